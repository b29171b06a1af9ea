//! Parts of the inode table that were never written.
//!
//! `mke2fs` may leave the end of each table as it finds the device, and says in the descriptor from
//! where on. Before an inode there is used, its block is zeroed, and so are all blocks before it: a
//! checker would otherwise take what lies there for inodes.

use super::Alloc;
use super::group::{Loaded, Slot};
use crate::Result;
use crate::fs::Fs;
use extant_format::Pblk;
use extant_format::group_desc::GroupFlags;

/// Blocks that are zeroed together.
const AHEAD: u32 = 16;

impl Alloc {
    /// Makes the table of a group sound up to the inode of `index` and some way past it.
    ///
    /// The zeros go straight to the device: nobody refers to these blocks before the transaction
    /// that uses the inode, and its commit flushes the device first.
    ///
    /// # Errors
    /// When the device fails; the table is then as sound as before.
    pub(super) fn zero_table(
        &self,
        fs: &Fs,
        slot: &Slot,
        loaded: &Loaded,
        index: u32,
    ) -> Result<()> {
        let _alone = loaded.zeroing.lock();
        let (table, sound) = {
            let state = slot.lock_remembered(loaded);
            (state.desc.inode_table, state.table_sound)
        };
        if index < sound {
            return Ok(());
        }
        let geometry = fs.geometry();
        let per_block = geometry.inodes_per_block().max(1);
        let first = sound.div_ceil(per_block);
        let end = (index / per_block + 1 + AHEAD).min(geometry.inode_table_blocks());
        for block in first..end {
            let block = Pblk::new(table.get() + u64::from(block));
            zero(fs, block)?;
            // What lay there before may have come in beside a neighbour.
            fs.cache().discard(block);
        }
        let mut state = slot.lock_remembered(loaded);
        state.table_sound = end
            .saturating_mul(per_block)
            .min(geometry.inodes_per_group());
        if end == geometry.inode_table_blocks() {
            state.table_sound = geometry.inodes_per_group();
            state.desc.flags.insert(GroupFlags::INODE_ZEROED);
        }
        Ok(())
    }
}

fn zero(fs: &Fs, block: Pblk) -> Result<()> {
    let size = fs.block_size();
    let offset = size.offset_of(block).unwrap_or(u64::MAX);
    fs.device().write_at(offset, &vec![0; size.len()])?;
    Ok(())
}
