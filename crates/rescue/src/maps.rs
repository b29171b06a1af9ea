//! The map of one inode: extent tree or indirect blocks.
//!
//! # Invariants
//! - What is handed on lies inside the file system.
//! - A walk ends: nodes of extent trees lie in disjoint logical ranges and get shallower, and an
//!   indirect block is followed once only.

use crate::error::Result;
use crate::volume::Volume;
use extant_format::checksum::Crc32c;
use extant_format::extent::{self, ExtentNode, NodeContext};
use extant_format::indirect::{self, DIRECT};
use extant_format::inode::{Inode, InodeFlags, MAP_BYTES};
use std::collections::HashSet;

/// A piece of an inode's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A block of the map itself.
    Node(u64),
    /// A run of data.
    Data(Run),
}

/// Blocks of a file that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) lblk: u32,
    pub(crate) len: u32,
    pub(crate) pblk: u64,
    pub(crate) unwritten: bool,
}

/// Reads a node of a map.
pub(crate) type ReadNode<'a> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'a;

/// Whether an inode has a map at all.
pub(crate) fn has_map(volume: &Volume, inode: &Inode) -> bool {
    use extant_format::inode::FileType::{Directory, Regular, Symlink};
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        return false;
    }
    match inode.file_type() {
        Some(Regular | Directory) => true,
        Some(Symlink) => !is_fast_symlink(volume, inode),
        _ => false,
    }
}

/// Whether a symbolic link has its target in the place of a map: then it has no blocks but that of
/// its attributes.
pub(crate) fn is_fast_symlink(volume: &Volume, inode: &Inode) -> bool {
    let cluster = u64::from(volume.block_size().bytes()) << volume.geo.cluster_bits();
    let attributes = if inode.file_acl.get() == 0 {
        0
    } else {
        cluster >> 9
    };
    inode.size < MAP_BYTES as u64
        && !inode.flags.contains(InodeFlags::EXTENTS)
        && inode.sectors(volume.block_size()) <= attributes
}

/// Hands on the pieces of the map of `inode`, whose nodes `read` reads; whether all of it is sound.
pub(crate) fn walk(
    volume: &Volume,
    inode: &Inode,
    seed: Option<Crc32c>,
    read: &mut ReadNode<'_>,
    each: &mut dyn FnMut(Piece),
) -> Result<bool> {
    let mut walk = Walk {
        volume,
        seed,
        read,
        each,
        seen: HashSet::new(),
        pending: None,
    };
    if inode.flags.contains(InodeFlags::EXTENTS) {
        let context = NodeContext::root(volume.physical());
        walk.node(&inode.map, &context)
    } else {
        let sound = walk.indirect(inode)?;
        walk.flush();
        Ok(sound)
    }
}

/// The data of an inode as it lies now; whether all of its map is sound.
pub(crate) fn runs_in_place(
    volume: &Volume,
    inode: &Inode,
    seed: Option<Crc32c>,
    each: &mut dyn FnMut(Piece),
) -> Result<bool> {
    walk(
        volume,
        inode,
        seed,
        &mut |at, buf| volume.read(at, buf),
        each,
    )
}

struct Walk<'a, 'r> {
    volume: &'a Volume,
    seed: Option<Crc32c>,
    read: &'a mut ReadNode<'r>,
    each: &'a mut dyn FnMut(Piece),
    /// Indirect blocks that were followed.
    seen: HashSet<u64>,
    /// The last run of an indirect map, which may grow.
    pending: Option<Run>,
}

impl Walk<'_, '_> {
    /// Looks at one node and all below it.
    fn node(&mut self, bytes: &[u8], context: &NodeContext) -> Result<bool> {
        let Ok(node) = ExtentNode::parse(bytes) else {
            return Ok(false);
        };
        if node.validate(context).is_err() {
            return Ok(false);
        }
        if node.is_leaf() {
            for extent in node.extents() {
                (self.each)(Piece::Data(Run {
                    lblk: extent.lblk.get(),
                    len: extent.len,
                    pblk: extent.pblk.get(),
                    unwritten: extent.unwritten,
                }));
            }
            return Ok(true);
        }
        let mut block = vec![0; self.volume.block_size().len()];
        let mut sound = true;
        for (i, entry) in node.index_entries().enumerate() {
            let Some(below) = node.child_context(i, context) else {
                continue;
            };
            if !self.volume.may_read_node() {
                return Ok(false);
            }
            (self.each)(Piece::Node(entry.child.get()));
            (self.read)(entry.child.get(), &mut block)?;
            let wrong = |seed| extent::verify_checksum(&block, seed).is_err();
            sound &= !self.seed.is_some_and(wrong) && self.node(&block, &below)?;
        }
        Ok(sound)
    }

    fn indirect(&mut self, inode: &Inode) -> Result<bool> {
        let per_block = u64::from(indirect::pointers_per_block(self.volume.block_size()));
        let mut lblk = 0;
        let mut sound = true;
        for (i, &pointer) in indirect::root_pointers(&inode.map).iter().enumerate() {
            let level = (i as u32 + 1).saturating_sub(DIRECT);
            sound &= self.pointer(pointer, lblk, level)?;
            lblk += per_block.pow(level);
        }
        Ok(sound)
    }

    /// Follows one pointer; `level` is the number of indirect blocks on the way to data.
    fn pointer(&mut self, pointer: u32, lblk: u64, level: u32) -> Result<bool> {
        let Ok(target) = indirect::check_pointer(pointer, 0, &self.volume.physical()) else {
            return Ok(false);
        };
        let Some(target) = target else {
            return Ok(true);
        };
        if level == 0 {
            self.data(lblk, target.get());
            return Ok(true);
        }
        if !self.seen.insert(target.get()) || !self.volume.may_read_node() {
            return Ok(false);
        }
        self.flush();
        (self.each)(Piece::Node(target.get()));
        let mut bytes = vec![0; self.volume.block_size().len()];
        (self.read)(target.get(), &mut bytes)?;
        let per_block = u64::from(indirect::pointers_per_block(self.volume.block_size()));
        let span = per_block.pow(level - 1);
        let mut sound = true;
        for (below, i) in indirect::pointers(&bytes).zip(0..) {
            sound &= self.pointer(below, lblk + i * span, level - 1)?;
        }
        Ok(sound)
    }

    fn data(&mut self, lblk: u64, block: u64) {
        let Ok(lblk) = u32::try_from(lblk) else {
            return;
        };
        if let Some(run) = &mut self.pending
            && u64::from(run.lblk) + u64::from(run.len) == u64::from(lblk)
            && run.pblk + u64::from(run.len) == block
        {
            run.len += 1;
            return;
        }
        self.flush();
        self.pending = Some(Run {
            lblk,
            len: 1,
            pblk: block,
            unwritten: false,
        });
    }

    fn flush(&mut self) {
        if let Some(run) = self.pending.take() {
            (self.each)(Piece::Data(run));
        }
    }
}
