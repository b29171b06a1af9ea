//! A map of indirect blocks made of a tree of extents, and the other way round: the data stays
//! where it is.
//!
//! All happens in one transaction, or not at all.

use super::tree::whole;
use super::{
    GROUP, MapGuard, Target, Walk, check_indirect, indirect_insert, indirect_remove, report,
};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use crate::{Error, InPlace, Place, Result};
use extant_format::Pblk;
use extant_format::extent::{
    Entries, Extent, LBLK_END, MAX_WRITTEN_LEN, ROOT_CAPACITY, block_capacity, build_node,
};
use extant_format::features::Incompat;
use extant_format::indirect::pointers_per_block;
use extant_format::inode::{InodeFlags, MAP_BYTES};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pieces of a file at most, and leaves of its tree, which bounds memory.
const MOST_PIECES: usize = 1 << 18;
const MOST_LEAVES: u32 = 1 << 14;
/// What changes in any case.
const RECORD_AND_SUPERBLOCK: u32 = 2;

/// Another map for an inode, made up while nobody can change the one it has.
pub(crate) struct Reshape {
    /// The record, with an empty map of the other kind.
    empty: Inode,
    pieces: Vec<Extent>,
    old_nodes: Vec<Pblk>,
    credits: u32,
}

impl Reshape {
    /// Returns what becomes of the map of `live`: extents if it has none, otherwise indirect
    /// blocks.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason, when the other kind cannot say what this one does,
    /// the file system does not have it, or it takes more changes than a transaction has; when a
    /// node is broken or cannot be read.
    pub(crate) fn make(fs: &Fs, live: &LiveInode) -> Result<Self> {
        let inode = live.snapshot();
        let made = if inode.flags().contains(InodeFlags::EXTENTS) {
            to_pointers(fs, &inode)
        } else {
            to_extents(fs, &inode)
        };
        made.inspect_err(|e| {
            if e.is_corruption() {
                fs.report(e);
            }
        })
    }

    /// Returns the record as it would be, with an empty map.
    pub(crate) fn empty(&self) -> &Inode {
        &self.empty
    }

    /// Blocks that [`store`](Self::store) changes at most.
    pub(crate) fn credits(&self) -> u32 {
        self.credits
    }

    /// Puts it in place; `also` changes the rest of the record in the same image.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::QuotaExceeded`] for its nodes; [`Error::FileTooLarge`] when the
    /// map does not reach as far. Nothing has changed then.
    pub(crate) fn store<'f>(
        self,
        handle: &Handle<'f>,
        live: &Arc<LiveInode>,
        guard: &MapGuard<'_>,
        also: impl FnOnce(&mut Inode),
    ) -> Result<()> {
        debug_assert!(guard.is_of(live), "the guard is another inode's");
        let Self {
            empty,
            pieces,
            old_nodes,
            ..
        } = self;
        let extents = empty.flags().contains(InodeFlags::EXTENTS);
        let also = |inode: &mut Inode| {
            inode.disk_mut().flags.set(InodeFlags::EXTENTS, extents);
            also(inode);
        };
        let stored = if extents {
            whole::build(handle, live, empty, &pieces, old_nodes, also)
        } else {
            indirect_insert::build(handle, live, empty, &pieces, old_nodes, also)
        };
        stored.inspect_err(|e| report(handle, e))
    }
}

fn to_pointers(fs: &Fs, inode: &Arc<Inode>) -> Result<Reshape> {
    check_indirect(fs)?;
    let pieces = pieces_of(fs, inode)?;
    if pieces.iter().any(|run| run.unwritten) {
        return Err(unsupported(
            "space that is reserved (fallocate) in files mapped by indirect blocks",
        ));
    }
    let end = |run: &Extent| run.pblk.get().saturating_add(run.len.into());
    if pieces.iter().any(|run| end(run) > 1 << 32) {
        return Err(unsupported(
            "blocks beyond 2^32 in files mapped by indirect blocks",
        ));
    }
    let old_nodes = whole::nodes(fs, inode)?;
    let mut empty = Inode::clone(inode);
    let disk = empty.disk_mut();
    disk.flags.remove(InodeFlags::EXTENTS);
    disk.map = [0; MAP_BYTES];
    let nodes = nodes_of_pointers(fs, &pieces);
    finish(fs, empty, pieces, old_nodes, nodes)
}

fn to_extents(fs: &Fs, inode: &Arc<Inode>) -> Result<Reshape> {
    check_indirect(fs)?;
    if !fs.superblock().has_incompat(Incompat::EXTENTS) {
        return Err(unsupported("extents (the file system does not have them)"));
    }
    if inode.is_inline() {
        return Err(unsupported("extents of content that lies in its inode"));
    }
    let pieces = pieces_of(fs, inode)?;
    let old_nodes = indirect_remove::nodes(fs, inode)?;
    let mut empty = Inode::clone(inode);
    let disk = empty.disk_mut();
    disk.flags.insert(InodeFlags::EXTENTS);
    disk.map = [0; MAP_BYTES];
    build_node(&mut disk.map, Entries::Extents(&[])).in_place(Place::Inode(inode.ino()))?;
    let nodes = nodes_of_tree(fs, &pieces);
    finish(fs, empty, pieces, old_nodes, nodes)
}

/// Returns what a file maps, in ascending order. A broken map that names blocks or nodes over and
/// over is found out.
fn pieces_of(fs: &Fs, inode: &Inode) -> Result<Vec<Extent>> {
    let mut pieces = Vec::new();
    let mut walk = Walk::over(0..LBLK_END);
    while let Some(run) = walk.next(fs, inode)? {
        let (pblk, unwritten) = match run.target {
            Target::Written(pblk) => (pblk, false),
            Target::Unwritten(pblk) => (pblk, true),
            Target::Hole => continue,
        };
        pieces.push(Extent {
            lblk: run.lblk,
            len: u32::try_from(run.len).map_err(|_| Error::FileTooLarge)?,
            pblk,
            unwritten,
        });
        if pieces.len() > MOST_PIECES || walk.leaves() > MOST_LEAVES {
            return Err(too_much());
        }
    }
    if walk.leaves() > MOST_LEAVES {
        Err(too_much())
    } else {
        Ok(pieces)
    }
}

/// Nodes that a tree of `pieces` has at most, each level half full.
fn nodes_of_tree(fs: &Fs, pieces: &[Extent]) -> u32 {
    let extents = |piece: &Extent| piece.len.div_ceil(MAX_WRITTEN_LEN);
    let mut entries: u32 = pieces.iter().map(extents).sum();
    let half = (u32::from(block_capacity(fs.block_size())) / 2).max(1);
    let mut nodes = 0;
    while entries > u32::from(ROOT_CAPACITY) {
        entries = entries.div_ceil(half);
        nodes += entries;
    }
    nodes
}

/// Nodes that a map of indirect blocks of `pieces` has at most.
fn nodes_of_pointers(fs: &Fs, pieces: &[Extent]) -> u32 {
    let per_node = pointers_per_block(fs.block_size());
    // A piece may begin and end within a node, on each level.
    let ends = 2 * pieces.len() as u32;
    let blocks: u32 = pieces.iter().map(|piece| piece.len).sum();
    let lowest = blocks / per_node + ends;
    let above = blocks / per_node / per_node + ends;
    lowest + above.min(lowest) + 1
}

/// Counts what it takes, with `new_nodes` at most.
fn finish(
    fs: &Fs,
    empty: Inode,
    pieces: Vec<Extent>,
    old_nodes: Vec<Pblk>,
    new_nodes: u32,
) -> Result<Reshape> {
    // Otherwise freeing them would fail when all is done.
    for &node in &old_nodes {
        fs.alloc()?.check_in_use(node, 1)?;
    }
    // Out of range cannot be: the nodes were validated.
    let group = |block: &Pblk| fs.geometry().group_of_block(*block).unwrap_or_default();
    let freed_in: BTreeSet<_> = old_nodes.iter().map(group).collect();
    // Each new node may lie in another group.
    let groups = freed_in.len() as u32 + new_nodes.min(fs.geometry().groups_count());
    let credits = RECORD_AND_SUPERBLOCK + new_nodes + GROUP * groups;
    if credits > fs.journal()?.max_credits() {
        Err(too_much())
    } else {
        Ok(Reshape {
            empty,
            pieces,
            old_nodes,
            credits,
        })
    }
}

fn too_much() -> Error {
    unsupported(
        "another kind of map for a file so large, or in so many pieces: it has to fit a transaction",
    )
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        features: what.to_owned(),
    }
}
