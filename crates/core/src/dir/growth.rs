//! A change of a directory that needs new blocks: made up, given places, made.

use super::block::{Directory, block_number};
use super::state::Exclusive;
use crate::alloc::Request;
use crate::fs::Handle;
use crate::inode::LiveInode;
use crate::map::{self, MapGuard, Places, Target};
use crate::meta::BlockRef;
use crate::meta::Seal;
use crate::mutants::{Mutant, is_on};
use crate::{Error, InPlace, Place, Result};
use extant_format::inode::InodeFlags;
use extant_format::{Lblk, Pblk, Structure};
use std::sync::Arc;

/// A directory without `large_dir` has a size of 32 bits.
const MAX_SIZE: u64 = u32::MAX as u64;

/// A change of a directory that needs new blocks, made up before anything is changed.
#[derive(Default)]
pub(super) struct Growth {
    /// Blocks there are, and what they become.
    pub(super) edited: Vec<(BlockRef, Seal, Box<[u8]>)>,
    /// New blocks, which follow the last one in this order.
    pub(super) created: Vec<(Seal, Box<[u8]>)>,
    /// The block of names among them, with what it was when this was made up.
    pub(super) leaf: Option<(Lblk, BlockRef)>,
    /// Whether the directory has an index from now on.
    pub(super) becomes_indexed: bool,
}

impl<'a> Directory<'a> {
    /// Returns where the next new block would lie.
    pub(super) fn next_lblk(&self) -> Result<Lblk> {
        block_number(self.blocks())
    }

    pub(super) fn empty_block(&self) -> Box<[u8]> {
        vec![0; self.layout.block_size.len()].into_boxed_slice()
    }

    /// Finds places for the blocks that a growth needs, behind the last one of the directory if
    /// that can be.
    pub(super) fn take(&self, growth: &Growth) -> Result<Places<'a>> {
        let count = u32::try_from(growth.created.len()).map_err(|_| Error::NoSpace)?;
        if self.size_with(count) > MAX_SIZE && !self.large_dir {
            return Err(Error::NoSpace);
        }
        let goal = self.goal()?;
        let first = self.next_lblk()?.get();
        Places::find(self.fs, self.inode, first, count, |behind, len| {
            self.fs.alloc()?.take_blocks(&Request {
                goal: behind.unwrap_or(goal),
                len,
                min: 1,
                below_32_bits: !self.inode.flags().contains(InodeFlags::EXTENTS),
                privileged: false,
            })
        })
    }

    /// Returns the size with so many more blocks.
    fn size_with(&self, more: u32) -> u64 {
        let blocks = self.blocks().saturating_add(more.into());
        blocks.saturating_mul(self.layout.block_size.len() as u64)
    }

    pub(super) fn goal(&self) -> Result<Pblk> {
        if let Some(last) = self.blocks().checked_sub(1) {
            let last = map::lookup(self.fs, self.inode, block_number(last)?)?;
            if let Target::Written(pblk) = last.target {
                return Ok(Pblk::new(pblk.get().saturating_add(1)));
            }
        }
        let ino = self.inode.ino();
        let geometry = self.fs.geometry();
        let location = geometry.locate_inode(ino).in_place(Place::Inode(ino))?;
        geometry
            .group_first_block(location.group)
            .in_place(Place::Group(location.group))
    }
}

impl Growth {
    /// Tells whether no names came to or went from the block of names since. The caller holds the
    /// lock of the index exclusively.
    pub(super) fn is_current(&self, dir: &Directory<'_>) -> bool {
        self.leaf.as_ref().is_none_or(|(lblk, leaf)| {
            let now = dir.existing_block(*lblk);
            now.is_ok_and(|now| now.same_load(leaf))
        })
    }

    /// Makes the change, in the blocks taken for it: after what can fail comes what cannot.
    pub(super) fn apply(
        self,
        handle: &Handle<'_>,
        live: &Arc<LiveInode>,
        map: &MapGuard<'_>,
        names: &Exclusive<'_>,
        dir: &Directory<'_>,
        places: Places<'_>,
    ) -> Result<()> {
        let size = dir.size_with(self.created.len() as u32);
        let _moving = names.moving();
        let Places { taken, runs } = places;
        let edit = |tree: &mut map::Tree<'_>| {
            let mut runs = runs.iter();
            runs.try_for_each(|&(lblk, start, len)| tree.insert(lblk, start, len, false))
        };
        map::change(handle, live, map, taken, edit, |inode| {
            let disk = inode.disk_mut();
            disk.size = size;
            if self.becomes_indexed {
                disk.flags |= InodeFlags::INDEX;
            }
        })?;
        let blocks = runs
            .iter()
            .flat_map(|&(_, start, len)| (0..u64::from(len)).map(move |i| start.get() + i));
        let splits = self.leaf.is_some();
        for ((seal, data), block) in self.created.into_iter().zip(blocks) {
            let block = Pblk::new(block);
            let block = if splits && is_on(Mutant::SplitHalfLogged) {
                publish_only(handle, block, seal, data, None)
            } else {
                handle.create(block, seal, data)
            };
            block.set_verified(Structure::DirBlock, Some(live.ino()));
        }
        for (block, seal, data) in self.edited {
            let is_index = matches!(seal, Seal::DxRoot(_) | Seal::DxNode(_));
            if is_index && is_on(Mutant::IndexForgotten) {
                publish_only(handle, block.block(), seal, data, Some(&block))
            } else {
                handle.replace(&block, seal, data)
            };
        }
        if let Some((lblk, _)) = self.leaf {
            // What is remembered of its room is wrong.
            names.state().forget_start(lblk);
        }
        Ok(())
    }
}

/// Shows others an image that the transaction does not have: a mistake, made on purpose.
fn publish_only(
    handle: &Handle<'_>,
    block: Pblk,
    seal: Seal,
    data: Box<[u8]>,
    old: Option<&BlockRef>,
) -> BlockRef {
    let cache = handle.fs().cache();
    cache.publish_image(block, data, handle.seq(), seal, old)
}
