//! Bitmaps, descriptors and superblocks: what is written when everything has its place.
//!
//! Order: collected blocks and inode records, bitmaps, descriptors with their copies, backup
//! superblocks, flush, and last the primary superblock. A device that loses power before the end
//! holds no file system rather than half of one.

use crate::layout::{Draft, PlanResult};
use extant_blockdev::{BlockDevice, DeviceError, Gathering};
use extant_format::bitmap;
use extant_format::features::RoCompat;
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_format::{Group, Ino, Pblk};
use std::ops::Range;

/// An image that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FormatWriteError {
    /// The plan cannot be encoded.
    #[error(transparent)]
    Plan(#[from] crate::layout::PlanError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<extant_format::FormatError> for FormatWriteError {
    fn from(error: extant_format::FormatError) -> Self {
        Self::Plan(error.into())
    }
}

/// What the target holds before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Zeroes everywhere: a fresh file.
    Zeroed,
    /// Anything: what must read as zero is zeroed.
    Unknown,
}

/// The final numbers of a draft: descriptors and superblock.
#[derive(Clone, Debug)]
pub struct FinalMetadata {
    /// Descriptors by group, with bitmap checksums.
    pub descs: Vec<GroupDesc>,
    /// The superblock with its counts.
    pub superblock: Superblock,
}

/// Counts what a draft has taken and fills in descriptors and superblock.
///
/// # Errors
/// The counts do not fit the format.
pub fn finish(draft: &Draft) -> PlanResult<FinalMetadata> {
    let geometry = draft.layout().geometry();
    let mut descs = Vec::with_capacity(geometry.groups_count() as usize);
    let (mut free_clusters, mut free_inodes) = (0_u64, 0_u32);
    for group in geometry.groups() {
        let desc = describe(draft, group)?;
        free_clusters += u64::from(desc.free_clusters);
        free_inodes += desc.free_inodes;
        descs.push(desc);
    }
    let mut superblock = draft.superblock().clone();
    superblock.set_free_blocks_count(free_clusters << geometry.cluster_bits());
    superblock.set_free_inodes_count(free_inodes);
    let overhead = u32::try_from(draft.overhead_clusters()).unwrap_or(0);
    let superblock = superblock.with(|raw| raw.overhead_clusters.set(overhead))?;
    Ok(FinalMetadata { descs, superblock })
}

fn blocks_of(draft: &Draft, group: Group) -> PlanResult<Range<u64>> {
    let geometry = draft.layout().geometry();
    let first = geometry.group_first_block(group)?.get();
    Ok(first..first + u64::from(geometry.blocks_in_group(group)?))
}

fn inodes_of(draft: &Draft, group: Group) -> Range<u64> {
    let per_group = u64::from(draft.layout().geometry().inodes_per_group());
    let first = u64::from(group.get()) * per_group + 1;
    first..first + per_group
}

/// The descriptor of a group, checksums of its bitmaps included.
fn describe(draft: &Draft, group: Group) -> PlanResult<GroupDesc> {
    let layout = draft.layout();
    let geometry = layout.geometry();
    let place = layout.places()[group.get() as usize];
    let blocks = blocks_of(draft, group)?;
    let used = draft.space().count_in(blocks.clone());
    let inodes = inodes_of(draft, group);
    let per_group = geometry.inodes_per_group();
    let used_inodes = draft.inodes().count_in(inodes.clone()) as u32;
    let mut desc = GroupDesc {
        block_bitmap: place.block_bitmap,
        inode_bitmap: place.inode_bitmap,
        inode_table: place.inode_table,
        free_clusters: ((blocks.end - blocks.start).div_ceil(1 << geometry.cluster_bits())
            - used.div_ceil(1 << geometry.cluster_bits())) as u32,
        free_inodes: per_group - used_inodes,
        used_dirs: draft.dirs_in(group),
        ..GroupDesc::default()
    };
    if layout.has_uninit_groups() {
        let end = draft.inodes().runs_in(inodes.clone()).last();
        let touched = end.map_or(0, |run| run.end - inodes.start) as u32;
        desc.itable_unused = per_group - touched;
        if used_inodes == 0 {
            desc.flags |= GroupFlags::INODE_UNINIT;
        }
        if layout.tables_are_zeroed() {
            desc.flags |= GroupFlags::INODE_ZEROED;
        }
        if used == untouched(draft, group)? && group.get() + 1 < geometry.groups_count() {
            desc.flags |= GroupFlags::BLOCK_UNINIT;
        }
    }
    if let Some(seed) = layout.checksum_seed() {
        let size = geometry.block_size().len();
        let mut map = vec![0; size];
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            block_bitmap(draft, group, &mut map)?;
            desc.block_bitmap_csum =
                bitmap::checksum(seed.value(), &map, geometry.clusters_per_group());
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            inode_bitmap(draft, group, &mut map);
            desc.inode_bitmap_csum = bitmap::checksum(seed.value(), &map, per_group);
        }
    }
    Ok(desc)
}

/// Blocks a group has taken if nothing but what its descriptor implies is in it, in whole clusters.
fn untouched(draft: &Draft, group: Group) -> PlanResult<u64> {
    let layout = draft.layout();
    let geometry = layout.geometry();
    let bits = geometry.cluster_bits();
    let first = blocks_of(draft, group)?.start;
    let header = first..first + geometry.group_header(group)?.blocks();
    let mut own = vec![header];
    if geometry.groups_per_flex() <= 1 {
        // They need not lie side by side: RAID strides move bitmaps.
        let place = layout.places()[group.get() as usize];
        let table = place.inode_table.get();
        own.push(table..table + u64::from(geometry.inode_table_blocks()));
        own.extend([place.block_bitmap, place.inode_bitmap].map(|at| at.get()..at.get() + 1));
    }
    own.sort_unstable_by_key(|run| run.start);
    let (mut clusters, mut done) = (0, 0);
    for run in own {
        // Where blocks begin, the first one is not part of a cluster of another group.
        let from = ((run.start - first) >> bits).max(done);
        let to = (run.end - first).div_ceil(1 << bits);
        clusters += to.saturating_sub(from);
        done = done.max(to);
    }
    Ok(clusters << bits)
}

/// Fills `map` with the block bitmap of a group.
pub(crate) fn block_bitmap(draft: &Draft, group: Group, map: &mut [u8]) -> PlanResult<()> {
    let bits = draft.layout().geometry().cluster_bits();
    let blocks = blocks_of(draft, group)?;
    map.fill(0);
    for run in draft.space().runs_in(blocks.clone()) {
        let (start, end) = (run.start - blocks.start, run.end - blocks.start);
        bitmap::set_range(map, (start >> bits) as u32..end.div_ceil(1 << bits) as u32);
    }
    let clusters = (blocks.end - blocks.start).div_ceil(1 << bits) as u32;
    bitmap::set_padding(map, clusters);
    Ok(())
}

/// Fills `map` with the inode bitmap of a group.
pub(crate) fn inode_bitmap(draft: &Draft, group: Group, map: &mut [u8]) {
    let inodes = inodes_of(draft, group);
    map.fill(0);
    for run in draft.inodes().runs_in(inodes.clone()) {
        let (start, end) = (run.start - inodes.start, run.end - inodes.start);
        bitmap::set_range(map, start as u32..end as u32);
    }
    bitmap::set_padding(map, draft.layout().geometry().inodes_per_group());
}

/// Makes what must read as zero read as zero, where the target may hold anything. Comes before all
/// other writes.
///
/// # Errors
/// The device failed.
pub fn prepare(
    device: &dyn BlockDevice,
    draft: &Draft,
    target: Target,
) -> Result<(), FormatWriteError> {
    match target {
        Target::Zeroed => Ok(()),
        Target::Unknown => {
            let mut writer = Writer::new(device, draft);
            writer.zero_what_must_be()?;
            Ok(writer.changes.end()?)
        }
    }
}

/// Writes everything a draft has collected, and all fixed metadata. Data blocks and inode tables
/// the caller writes itself must be written before: the last write makes it a file system.
///
/// # Errors
/// The device failed, or the plan cannot be encoded.
pub fn write_metadata(
    device: &dyn BlockDevice,
    draft: &Draft,
) -> Result<FinalMetadata, FormatWriteError> {
    let done = finish(draft)?;
    let mut writer = Writer::new(device, draft);
    for (at, block) in draft.blocks() {
        writer.put(at, block)?;
    }
    writer.inode_records()?;
    writer.bitmaps(&done.descs)?;
    writer.descriptors(&done)?;
    let mut changes = writer.changes;
    changes.flush()?;
    changes.write(
        SUPERBLOCK_OFFSET,
        &done.superblock.encode_for_group(Group::new(0)),
    )?;
    changes.flush()?;
    changes.end()?;
    Ok(done)
}

struct Writer<'a> {
    changes: Gathering<'a>,
    draft: &'a Draft,
}

impl<'a> Writer<'a> {
    fn new(device: &'a dyn BlockDevice, draft: &'a Draft) -> Self {
        Self {
            changes: Gathering::new(device),
            draft,
        }
    }

    fn put(&mut self, at: Pblk, block: &[u8]) -> Result<(), FormatWriteError> {
        let offset = self.offset(at);
        self.changes.write(offset, block)?;
        Ok(())
    }

    fn offset(&self, at: Pblk) -> u64 {
        at.get() << self.draft.layout().geometry().block_size().log2()
    }

    fn zero(&mut self, run: Range<u64>) -> Result<(), FormatWriteError> {
        let from = self.offset(Pblk::new(run.start));
        let len = self.offset(Pblk::new(run.end)) - from;
        self.changes.zero(from, len)?;
        Ok(())
    }

    /// Boot sector, stale superblock, inode tables, journal.
    fn zero_what_must_be(&mut self) -> Result<(), FormatWriteError> {
        let layout = self.draft.layout();
        let geometry = layout.geometry();
        self.changes.zero(0, SUPERBLOCK_OFFSET + 1024)?;
        // Or the old superblock might outlive what it tells of.
        self.changes.flush()?;
        for run in self.draft.zeroed() {
            self.zero(run.clone())?;
        }
        let per_block = geometry.inodes_per_block();
        for group in geometry.groups() {
            let table = layout.places()[group.get() as usize].inode_table.get();
            let mut blocks = geometry.inode_table_blocks();
            if !layout.tables_are_zeroed() && layout.has_uninit_groups() {
                // The kernel zeroes the rest; what comes before the unused inodes is ours.
                let inodes = inodes_of(self.draft, group);
                let last = self.draft.inodes().runs_in(inodes.clone()).last();
                let touched = last.map_or(0, |run| run.end - inodes.start) as u32;
                blocks = touched.div_ceil(per_block);
            }
            if blocks > 0 {
                self.zero(table..table + u64::from(blocks))?;
            }
        }
        Ok(())
    }

    /// Inode records, one write for each table block.
    fn inode_records(&mut self) -> Result<(), FormatWriteError> {
        let layout = self.draft.layout();
        let geometry = layout.geometry();
        let mut block = vec![0; geometry.block_size().len()];
        let mut current: Option<Pblk> = None;
        for (ino, slot) in self.draft.records() {
            let (at, offset) = self.table_position(ino)?;
            if current.is_some_and(|current| current != at) {
                self.flush_table_block(&mut current, &mut block)?;
            }
            current = Some(at);
            let offset = offset as usize;
            block[offset..offset + slot.len()].copy_from_slice(slot);
        }
        self.flush_table_block(&mut current, &mut block)
    }

    fn flush_table_block(
        &mut self,
        current: &mut Option<Pblk>,
        block: &mut [u8],
    ) -> Result<(), FormatWriteError> {
        if let Some(at) = current.take() {
            self.put(at, block)?;
            block.fill(0);
        }
        Ok(())
    }

    fn table_position(&self, ino: Ino) -> PlanResult<(Pblk, u32)> {
        let layout = self.draft.layout();
        let at = layout.geometry().locate_inode(ino)?;
        let table = layout.places()[at.group.get() as usize].inode_table;
        Ok((
            Pblk::new(table.get() + u64::from(at.table_block)),
            at.offset,
        ))
    }

    fn bitmaps(&mut self, descs: &[GroupDesc]) -> Result<(), FormatWriteError> {
        let geometry = self.draft.layout().geometry();
        let mut map = vec![0; geometry.block_size().len()];
        for (group, desc) in geometry.groups().zip(descs) {
            if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                block_bitmap(self.draft, group, &mut map)?;
                self.put(desc.block_bitmap, &map)?;
            }
            if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                inode_bitmap(self.draft, group, &mut map);
                self.put(desc.inode_bitmap, &map)?;
            }
        }
        Ok(())
    }

    /// Descriptors, their copies and the backup superblocks.
    fn descriptors(&mut self, done: &FinalMetadata) -> Result<(), FormatWriteError> {
        let geometry = self.draft.layout().geometry();
        let block_len = geometry.block_size().len();
        let table = encode_descriptors(geometry, done)?;
        for group in geometry.groups() {
            let header = geometry.group_header(group)?;
            let descs = header.descs;
            let from = header.first_desc as usize * block_len;
            let len = (descs.end - descs.start) as usize * block_len;
            // The last ones of a table may lie past its end where groups were to come.
            let mut part = table.get(from..from + len).unwrap_or_default();
            let made = done.superblock.encode_for_group(group);
            let mut superblock = made.as_slice();
            let copies = self.draft.former_copies();
            if let Some(former) = copies.still_true(group, superblock, part, geometry, done) {
                superblock = &former.superblock;
                part = &former.descriptors;
            }
            if !part.is_empty() {
                self.put(Pblk::new(descs.start), part)?;
            }
            if let Some(at) = header.super_block.filter(|_| group.get() > 0) {
                let mut block = vec![0; block_len];
                block[..superblock.len()].copy_from_slice(superblock);
                self.put(at, &block)?;
            }
        }
        Ok(())
    }
}

/// The whole descriptor table, in whole blocks.
pub(crate) fn encode_descriptors(
    geometry: &extant_format::geometry::Geometry,
    done: &FinalMetadata,
) -> PlanResult<Vec<u8>> {
    let size = geometry.desc_size() as usize;
    let per_block = geometry.descs_per_block() as usize;
    let block_len = geometry.block_size().len();
    let mut table = vec![0; geometry.desc_blocks() as usize * block_len];
    let sum = done.superblock.desc_checksum();
    for (group, desc) in geometry.groups().zip(&done.descs) {
        let index = group.get() as usize;
        let at = index / per_block * block_len + index % per_block * size;
        desc.encode(&mut table[at..at + size], group, &sum)?;
    }
    debug_assert!(
        done.superblock.has_ro_compat(RoCompat::METADATA_CSUM)
            || done.descs.iter().all(|desc| desc.block_bitmap_csum == 0)
    );
    Ok(table)
}
