//! Mapping more blocks of files mapped by indirect blocks.
//!
//! As with extents, the change is first made in memory: blocks of pointers on the way are read or made up, and only
//! when the blocks for new ones are taken does anything become visible.

use super::check_node_owned;
use super::tree::store::{Charge, commit_all};
use super::tree::{NewNodes, NodeSpace};
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode};
use crate::journal::{Handle, Seal};
use crate::meta::BlockRef;
use crate::{Error, InPlace, Place, Result};
use extant_format::extent::Extent;
use extant_format::indirect::{
    IndirectPath, ROOT_POINTERS, check_pointer, encode_pointers, encode_root, pointers,
    pointers_per_block, root_pointers,
};
use extant_format::{Expected, FormatError, Lblk, Pblk, Structure};
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
    let fs = handle.fs();
    let inode = live.snapshot();
    let mut draft = Draft {
        fs,
        root: root_pointers(&inode.disk().map),
        inode,
        nodes: Vec::new(),
        children: HashMap::new(),
        known: HashSet::new(),
    };
    for run in runs {
        draft.insert(run)?;
    }
    let near = runs.first().map_or_else(Pblk::default, |run| run.pblk);
    let mut nodes = NewNodes::take(fs, near, draft.new_nodes(), space, true)?;
    draft.place_new_nodes(nodes.taken())?;
    let inserted = runs.iter().map(|run| u64::from(run.len)).sum::<u64>();
    let charge = Charge {
        gained: inserted + draft.new_nodes() as u64,
        lost: 0,
    };
    charge.check(fs, &draft.inode)?;
    let _let_in = charge.admit(fs, live, space)?;
    handle.touch_inode(live)?;
    commit_all(handle, taken)?;
    nodes.commit(handle)?;

    // From here on nothing fails that could be undone.
    draft.publish(handle, live);
    live.note_datasync(handle);
    live.update(handle, |inode| {
        inode.disk_mut().map = encode_root(&draft.root);
        charge.apply(fs, inode);
        also(inode);
    })
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

    /// The node at a pointer, which is made up where there is none.
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
            let expected = Expected::Said("a block that the map names once");
            let what = Structure::IndirectBlock;
            let source = FormatError::new(what, "pointer", block.get(), expected);
            return Err(Error::corrupt(place, source));
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
