//! Mapping more blocks of files mapped by indirect blocks.
//!
//! As with extents, the change is first made in memory: blocks of pointers on the way are read or
//! made up, and only when the blocks for new ones are taken does anything become visible.

use super::check_node_owned;
use super::indirect::named_twice;
use super::tree::store::{Charge, commit_all, free, hold_groups};
use super::tree::{NewNodes, NodeSpace};
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use crate::meta::BlockRef;
use crate::meta::Seal;
use crate::{Error, InPlace, Place, Result};
use extant_format::extent::Extent;
use extant_format::indirect::{
    IndirectPath, ROOT_POINTERS, check_pointer, encode_pointers, encode_root, pointers,
    pointers_per_block, root_pointers,
};
use extant_format::{Lblk, Pblk, Structure};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A block of pointers on the way to one that is mapped.
struct Node {
    /// Its image; `None` for a new one.
    old: Option<BlockRef>,
    /// Where it lies, which of a new one is known at the end.
    block: Option<Pblk>,
    /// What points at it: a node, or the inode, and the place there.
    parent: (Option<usize>, usize),
    pointers: Vec<u32>,
    changed: bool,
}

/// A map while blocks are added to it.
struct Draft<'f> {
    fs: &'f Fs,
    inode: Arc<Inode>,
    root: [u32; ROOT_POINTERS],
    /// Parents come before their children.
    nodes: Vec<Node>,
    children: HashMap<(Option<usize>, usize), usize>,
    /// Blocks of the nodes there were: a broken map may name one twice.
    known: HashSet<Pblk>,
    /// Where new nodes should lie.
    near: Pblk,
    /// Blocks of data mapped that were not the inode's.
    inserted: u64,
    /// Nodes of another map, which are no more.
    freed_nodes: Vec<Pblk>,
}

/// Maps `runs`, which nothing maps yet; see [`change_paid`](super::change_paid).
pub(super) fn store<'f>(
    handle: &Handle<'f>,
    live: &Arc<LiveInode>,
    runs: &[Extent],
    taken: &mut Vec<Taken<'f>>,
    also: impl FnOnce(&mut Inode),
    space: &NodeSpace,
) -> Result<()> {
    let mut draft = Draft::of(handle.fs(), live.snapshot());
    draft.insert_all(runs)?;
    draft.inserted = runs.iter().map(|run| u64::from(run.len)).sum();
    draft.store(handle, live, taken, also, space)
}

/// Makes a map of `runs`, which are the inode's, that of `live`, in place of a tree with the nodes
/// `old_nodes`. `empty` is its record without either.
///
/// # Errors
/// [`Error::FileTooLarge`] when a run lies beyond what such a map reaches; [`Error::NoSpace`].
/// Nothing has changed then.
pub(super) fn build<'f>(
    handle: &Handle<'f>,
    live: &Arc<LiveInode>,
    empty: Inode,
    runs: &[Extent],
    old_nodes: Vec<Pblk>,
    also: impl FnOnce(&mut Inode),
) -> Result<()> {
    let mut draft = Draft::of(handle.fs(), Arc::new(empty));
    draft.insert_all(runs)?;
    draft.freed_nodes = old_nodes;
    let space = NodeSpace::of_caller();
    draft.store(handle, live, &mut Vec::new(), also, &space)
}

impl<'f> Draft<'f> {
    fn of(fs: &'f Fs, inode: Arc<Inode>) -> Self {
        Self {
            fs,
            root: root_pointers(&inode.disk().map),
            inode,
            nodes: Vec::new(),
            children: HashMap::new(),
            known: HashSet::new(),
            near: Pblk::default(),
            inserted: 0,
            freed_nodes: Vec::new(),
        }
    }

    fn insert_all(&mut self, runs: &[Extent]) -> Result<()> {
        self.near = runs.first().map_or_else(Pblk::default, |run| run.pblk);
        runs.iter().try_for_each(|run| self.insert(run))
    }

    /// Makes it the map of `live`: see [`change_paid`](super::change_paid).
    fn store(
        mut self,
        handle: &Handle<'f>,
        live: &Arc<LiveInode>,
        taken: &mut Vec<Taken<'f>>,
        also: impl FnOnce(&mut Inode),
        space: &NodeSpace,
    ) -> Result<()> {
        let fs = self.fs;
        let mut nodes = NewNodes::take(fs, self.near, self.new_nodes(), space, true)?;
        self.place_new_nodes(nodes.taken())?;
        let charge = Charge {
            gained: self.inserted + self.new_nodes() as u64,
            lost: self.freed_nodes.len() as u64,
        };
        charge.check(fs, &self.inode)?;
        let _let_in = charge.admit(fs, live, space)?;
        hold_groups(handle, &[], &self.freed_nodes)?;
        handle.touch_inode(live)?;
        commit_all(handle, taken)?;
        nodes.commit(handle)?;

        // From here on nothing fails that could be undone.
        self.publish(handle, live);
        live.note_datasync(handle);
        live.update(handle, |inode| {
            inode.disk_mut().map = encode_root(&self.root);
            charge.apply(fs, inode);
            also(inode);
        })?;
        free(handle, &self.inode, &[], &[], &self.freed_nodes)
    }
}

impl Draft<'_> {
    fn insert(&mut self, run: &Extent) -> Result<()> {
        let per_block = pointers_per_block(self.fs.block_size()) as usize;
        let mut done = 0;
        while done < run.len {
            let lblk = Lblk::new(run.lblk.get() + done);
            let path = IndirectPath::to(lblk, self.fs.block_size()).ok_or(Error::FileTooLarge)?;
            let mut node = None;
            let mut slot = path.root();
            for &step in path.steps() {
                node = Some(self.child((node, slot))?);
                slot = step as usize;
            }
            // All that follow in the same node.
            let end = match node {
                Some(_) => per_block,
                None => path.root() + 1,
            };
            while slot < end && done < run.len {
                let pblk = run.pblk.get().saturating_add(done.into());
                self.point((node, slot), pblk)?;
                slot += 1;
                done += 1;
            }
        }
        Ok(())
    }

    fn pointer(&self, (node, slot): (Option<usize>, usize)) -> u32 {
        let pointers = match node {
            Some(node) => self.nodes.get(node).map(|node| &node.pointers[..]),
            None => Some(&self.root[..]),
        };
        pointers
            .and_then(|pointers| pointers.get(slot))
            .map_or(0, |pointer| *pointer)
    }

    /// Makes a pointer that is 0 point at `pblk`.
    fn point(&mut self, place: (Option<usize>, usize), pblk: u64) -> Result<()> {
        if self.pointer(place) != 0 {
            return Err(Error::Internal("a block would be mapped twice"));
        }
        // They were taken below 2^32.
        let value = u32::try_from(pblk).map_err(|_| Error::NoSpace)?;
        let (node, slot) = place;
        let pointers = match node.and_then(|node| self.nodes.get_mut(node)) {
            Some(node) => {
                node.changed = true;
                &mut node.pointers[..]
            }
            None => &mut self.root[..],
        };
        if let Some(pointer) = pointers.get_mut(slot) {
            *pointer = value;
        }
        Ok(())
    }

    /// Returns the node at a pointer, which is made up where there is none.
    fn child(&mut self, parent: (Option<usize>, usize)) -> Result<usize> {
        if let Some(known) = self.children.get(&parent) {
            return Ok(*known);
        }
        let place = match parent.0.and_then(|node| self.nodes.get(node)?.block) {
            Some(block) => Place::InodeBlock(self.inode.ino(), block),
            None => Place::Inode(self.inode.ino()),
        };
        let block = check_pointer(self.pointer(parent), parent.1, &self.fs.physical());
        let block = block.in_place(place)?;
        let (old, pointers) = match block {
            Some(block) => {
                let bytes = self.read(block)?;
                let pointers = pointers(&bytes).collect();
                (Some(bytes), pointers)
            }
            None => {
                let per_block = pointers_per_block(self.fs.block_size());
                (None, vec![0; per_block as usize])
            }
        };
        let index = self.nodes.len();
        self.nodes.push(Node {
            changed: old.is_none(),
            old,
            block,
            parent,
            pointers,
        });
        self.children.insert(parent, index);
        Ok(index)
    }

    fn read(&mut self, block: Pblk) -> Result<BlockRef> {
        let ino = self.inode.ino();
        let place = Place::InodeBlock(ino, block);
        if !self.known.insert(block) {
            return Err(named_twice(ino, block));
        }
        check_node_owned(self.fs, &self.inode, block)?;
        let what = Structure::IndirectBlock;
        self.fs.metadata(block, place, what, Some(ino), |_| Ok(()))
    }

    fn new_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| node.old.is_none()).count()
    }

    /// Gives the new nodes their blocks, and those that point at them the pointers.
    fn place_new_nodes(&mut self, taken: &[Taken<'_>]) -> Result<()> {
        let mut blocks = taken
            .iter()
            .flat_map(|taken| (0..taken.len()).map(|i| taken.start().get() + u64::from(i)));
        for index in 0..self.nodes.len() {
            let Some(node) = self.nodes.get_mut(index).filter(|node| node.old.is_none()) else {
                continue;
            };
            let block = blocks.next().ok_or(Error::NoSpace)?;
            node.block = Some(Pblk::new(block));
            let parent = node.parent;
            self.point(parent, block)?;
        }
        Ok(())
    }

    /// Publishes the nodes that changed, children before their parents.
    fn publish(&self, handle: &Handle<'_>, live: &LiveInode) {
        for node in self.nodes.iter().rev().filter(|node| node.changed) {
            match (&node.old, node.block) {
                (Some(old), _) => {
                    handle.edit(old, Seal::Plain, |bytes| {
                        encode_pointers(bytes, &node.pointers);
                    });
                }
                (None, Some(block)) => {
                    let mut data = vec![0; self.fs.block_size().len()].into_boxed_slice();
                    encode_pointers(&mut data, &node.pointers);
                    let new = handle.create(block, Seal::Plain, data);
                    new.set_verified(Structure::IndirectBlock, Some(live.ino()));
                }
                (None, None) => {}
            }
        }
    }
}
