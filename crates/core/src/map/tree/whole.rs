//! All of a tree: what it is made of, and making one of what a file has.

use super::super::budget::Everything;
use super::{Edit, NodeSpace, Tree, store};
use crate::Result;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use extant_format::Pblk;
use extant_format::extent::{Extent, LBLK_END};
use std::sync::Arc;

/// Returns the nodes of a tree that lie in blocks.
///
/// # Errors
/// When one is broken or cannot be read.
pub(in crate::map) fn nodes(fs: &Fs, inode: &Arc<Inode>) -> Result<Vec<Pblk>> {
    let mut draft = Tree::of(fs, Arc::clone(inode)).into_draft()?;
    draft.remove(&(0..LBLK_END), &mut Everything)?;
    draft.tidy();
    Ok(draft.freed_nodes)
}

/// Makes a tree of `runs`, which are the inode's, the map of `live`, in place of one with the nodes
/// `old_nodes`. `empty` is its record with the root of an empty tree.
///
/// # Errors
/// [`Error::NoSpace`](crate::Error::NoSpace). Nothing has changed then.
pub(in crate::map) fn build<'f>(
    handle: &Handle<'f>,
    live: &Arc<LiveInode>,
    empty: Inode,
    runs: &[Extent],
    old_nodes: Vec<Pblk>,
    also: impl FnOnce(&mut Inode),
) -> Result<()> {
    let mut draft = Tree::of(handle.fs(), Arc::new(empty)).into_draft()?;
    runs.iter()
        .try_for_each(|run| Edit::insert(&mut draft, run))?;
    // They were charged when they were mapped first.
    draft.inserted = 0;
    draft.freed_nodes = old_nodes;
    draft.root.changed = true;
    let space = NodeSpace::of_caller();
    store::store(handle, live, draft, &mut Vec::new(), also, &space)
}
