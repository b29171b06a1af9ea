//! How the free space lies: the figure for fragmentation.

use super::Alloc;
use super::fixed::{Fixed, FixedBuilder};
use crate::volume::Volume;
use crate::{InPlace, Place, Result};
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFlags};
use extant_format::{Group, Structure, bitmap};
use std::ops::Range;

/// Free extents of a file system: runs of free blocks, each within one block group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeExtents {
    /// Free blocks.
    pub blocks: u64,
    /// Extents they lie in.
    pub extents: u64,
    /// Blocks of the longest one.
    pub longest: u64,
    /// By order: extents of 2^k to 2^(k+1) - 1 blocks are in place k. As long as it has to be.
    pub orders: Vec<ExtentsOfOrder>,
}

/// Free extents of about the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentsOfOrder {
    /// How many there are.
    pub extents: u64,
    /// Blocks they have together.
    pub blocks: u64,
}

impl FreeExtents {
    fn add(&mut self, blocks: u64) {
        let order = blocks.max(1).ilog2() as usize;
        if self.orders.len() <= order {
            self.orders.resize(order + 1, ExtentsOfOrder::default());
        }
        let of_order = &mut self.orders[order];
        of_order.extents += 1;
        of_order.blocks += blocks;
        self.extents += 1;
        self.blocks += blocks;
        self.longest = self.longest.max(blocks);
    }

    /// Finds how the free space lies, by the bitmaps as they are on the device, or will be with
    /// what has changed since: space that is only kept ready for a file counts as free. Reads the
    /// bitmap of each group that is not in memory.
    ///
    /// # Errors
    /// When the device fails, or descriptors or bitmaps break the format.
    pub fn of(volume: &Volume, alloc: Option<&Alloc>) -> Result<Self> {
        let mut found = Self::default();
        let all = |_| true;
        for_each_free_run(volume, alloc, all, |run| found.add(run.end - run.start))?;
        Ok(found)
    }
}

/// Calls `visit` with each run of free blocks of the groups that are `wanted`, as block numbers in
/// ascending order, by the bitmaps as they are on the device, or will be with what has changed
/// since. A run lies within one block group.
///
/// # Errors
/// When the device fails, or descriptors or bitmaps break the format.
pub fn for_each_free_run(
    volume: &Volume,
    alloc: Option<&Alloc>,
    wanted: impl Fn(Group) -> bool,
    mut visit: impl FnMut(Range<u64>),
) -> Result<()> {
    let geometry = volume.geometry();
    let mut fixed = FixedBuilder::default();
    let mut descs = Vec::new();
    volume.for_each_group(|group, desc| {
        fixed.add(group, desc, geometry.inode_table_blocks());
        if wanted(group) {
            descs.push((group, *desc));
        }
    })?;
    let fixed = fixed.finish(geometry)?;
    for (group, desc) in descs {
        let place = Place::Group(group);
        let clusters = geometry.clusters_in_group(group).in_place(place)?;
        let first = geometry.group_first_block(group).in_place(place)?.get();
        let used = match alloc.and_then(|alloc| alloc.live_block_bitmap(group)) {
            Some(bits) => bits.to_vec(),
            None => stored_block_bitmap(volume, group, &desc, &fixed)?,
        };
        let bits = geometry.cluster_bits();
        let block = |cluster: u32| first + (u64::from(cluster) << bits);
        let mut at = 0;
        while let Some(start) = bitmap::next_clear(&used, at, clusters) {
            at = bitmap::next_set(&used, start, clusters).unwrap_or(clusters);
            visit(block(start)..block(at));
        }
    }
    Ok(())
}

/// The bitmap of a group that is not in memory.
fn stored_block_bitmap(
    volume: &Volume,
    group: Group,
    desc: &GroupDesc,
    fixed: &Fixed,
) -> Result<Vec<u8>> {
    let (place, what) = (Place::Group(group), Structure::BlockBitmap);
    let uninit = volume.superblock().desc_checksum() != DescChecksum::None
        && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
    if !uninit {
        let bits = volume.metadata(desc.block_bitmap, place, what, None, |_| Ok(()))?;
        return Ok(bits.to_vec());
    }
    let mut bits = vec![0; volume.block_size().len()];
    for run in fixed_of(volume, group, fixed)? {
        bitmap::set_range(&mut bits, run);
    }
    Ok(bits)
}

/// The clusters of a group that hold fixed metadata: its own, and that of other groups.
pub(super) fn fixed_of(volume: &Volume, group: Group, fixed: &Fixed) -> Result<Vec<Range<u32>>> {
    let geometry = volume.geometry();
    let place = Place::Group(group);
    let first = geometry.group_first_block(group).in_place(place)?.get();
    let blocks = geometry.blocks_in_group(group).in_place(place)?;
    let bits = geometry.cluster_bits();
    // Below the blocks of a group, which fit 32 bits.
    let cluster = |block: u64| ((block - first) >> bits) as u32;
    Ok(fixed
        .within(first..first + u64::from(blocks))
        .map(|range| cluster(range.start)..cluster(range.end - 1) + 1)
        .collect())
}
