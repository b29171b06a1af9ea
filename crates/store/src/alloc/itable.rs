//! Parts of the inode table that were never written.
//!
//! `mke2fs` may leave the end of each table as it finds the device, and says in the descriptor from
//! where on. Before an inode there is used, its block is zeroed, and so are all blocks before it: a
//! checker would otherwise take what lies there for inodes.

use super::Alloc;
use super::group::{Loaded, Slot};
use crate::Result;
use crate::volume::Volume;
use extant_format::Pblk;
use extant_format::group_desc::GroupFlags;

/// Blocks that are zeroed together.
const AHEAD: u32 = 16;
/// Blocks that are zeroed together where each request takes a round trip.
const FAR_AHEAD: u32 = 128;

impl Alloc {
    /// Makes the table of a group sound up to the inode of `index` and some way past it.
    ///
    /// The zeros go straight to the device: nobody refers to these blocks before the transaction
    /// that uses the inode, and its commit flushes the device first.
    ///
    /// # Errors
    /// When the device fails; the table is then as sound as before.
    pub(super) fn zero_table(&self, slot: &Slot, loaded: &Loaded, index: u32) -> Result<()> {
        let _alone = loaded.zeroing.lock();
        let (table, sound) = {
            let state = slot.lock_remembered(loaded);
            (state.desc.inode_table, state.table_sound)
        };
        if index < sound {
            return Ok(());
        }
        let geometry = self.volume.geometry();
        let per_block = geometry.inodes_per_block().max(1);
        let first = sound.div_ceil(per_block);
        let ahead = if self.volume.device().in_flight() > 1 {
            FAR_AHEAD
        } else {
            AHEAD
        };
        let end = (index / per_block + 1 + ahead).min(geometry.inode_table_blocks());
        zero(
            &self.volume,
            Pblk::new(table.get() + u64::from(first)),
            end.saturating_sub(first),
        )?;
        let cache = self.volume.cache();
        let zeroed = table.get() + u64::from(first)..table.get() + u64::from(end);
        for block in zeroed.clone() {
            // What lay there before may have come in beside a neighbour.
            cache.discard(Pblk::new(block));
        }
        // They are about to be used, and by nobody before they are known as sound.
        cache.take_in_zeros(zeroed, || true);
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

/// Zeros `count` blocks from `first` on, some at a time.
fn zero(volume: &Volume, first: Pblk, count: u32) -> Result<()> {
    let size = volume.block_size();
    let zeros = vec![0; size.len() * count.min(FAR_AHEAD) as usize];
    for step in (0..count).step_by(FAR_AHEAD as usize) {
        let first = Pblk::new(first.get().saturating_add(step.into()));
        let bytes = size.len() * (count - step).min(FAR_AHEAD) as usize;
        let offset = size.offset_of(first).unwrap_or(u64::MAX);
        volume
            .device()
            .write_at(offset, zeros.get(..bytes).unwrap_or(&zeros))?;
    }
    Ok(())
}
