//! Chunks of an image that change anyway, beside an older one.
//!
//! What is new goes there first. So programs that ship images as chunks find all others in the
//! older image.

use super::regions::CHUNKS;
use crate::layout::{Draft, GroupPlace, RunSet};
use extant_format::Ino;
use extant_format::geometry::Geometry;
use std::ops::Range;
use std::sync::Arc;

/// Places that are looked at in a run of free space, besides where it begins.
const LOOKS_MAX: usize = 4;

/// Where the metadata of groups lies.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    geometry: Geometry,
    places: Arc<[GroupPlace]>,
}

impl Groups {
    pub(crate) fn of(draft: &Draft) -> Self {
        Self {
            geometry: draft.layout().geometry().clone(),
            places: draft.layout().places().into(),
        }
    }

    /// The blocks of the inode table of a group.
    fn table(&self, place: &GroupPlace) -> Range<u64> {
        let first = place.inode_table.get();
        first..first + u64::from(self.geometry.inode_table_blocks())
    }
}

/// Chunks that change anyway, by their number from the beginning of the file system.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    chunks: RunSet,
    groups: Groups,
    /// Blocks of a chunk, as a power of two.
    chunk_bits: u32,
    /// Blocks of an allocation unit, as a power of two.
    cluster_bits: u32,
    first_data_block: u64,
}

impl Changed {
    /// Those of the superblock, the first descriptors, and the first bitmaps.
    pub(crate) fn new(groups: &Groups) -> Self {
        let geometry = &groups.geometry;
        let first = geometry.first_data_block().get();
        let mut changed = Self {
            chunks: RunSet::new(),
            groups: groups.clone(),
            chunk_bits: CHUNKS[0].ilog2() - geometry.block_size().log2(),
            cluster_bits: geometry.cluster_bits(),
            first_data_block: first,
        };
        changed.mark_blocks(first..first + 2);
        if let Some(place) = groups.places.first() {
            let bitmaps = [place.block_bitmap, place.inode_bitmap];
            for block in bitmaps.map(|bitmap| bitmap.get()) {
                changed.mark_blocks(block..block + 1);
            }
        }
        changed
    }

    /// Blocks change.
    pub(crate) fn mark_blocks(&mut self, blocks: Range<u64>) {
        if let Some(chunks) = self.chunks_of(&blocks) {
            self.chunks.insert(chunks);
        }
    }

    /// An inode changes, and whether it is in use.
    pub(crate) fn mark_inode(&mut self, ino: Ino) {
        let Ok(at) = self.groups.geometry.locate_inode(ino) else {
            return;
        };
        let Some(place) = self.groups.places.get(at.group.get() as usize) else {
            return;
        };
        let block = place.inode_table.get() + u64::from(at.table_block);
        let bitmap = place.inode_bitmap.get();
        self.mark_blocks(block..block + 1);
        self.mark_blocks(bitmap..bitmap + 1);
    }

    /// Allocation units change, and whether they are in use.
    pub(crate) fn mark_units(&mut self, units: &Range<u64>) {
        self.mark_blocks(self.blocks_of(units));
        for bitmap in self.bitmaps_of(units) {
            self.mark_blocks(bitmap..bitmap + 1);
        }
    }

    /// How many chunks change that did not, where these units do.
    pub(crate) fn cost(&self, units: &Range<u64>) -> u64 {
        let more = |blocks: Range<u64>| {
            let chunks = self.chunks_of(&blocks);
            chunks.map_or(0, |all| all.end - all.start - self.chunks.count_in(all))
        };
        let bitmaps = self.bitmaps_of(units);
        let bitmaps: u64 = bitmaps.map(|bitmap| more(bitmap..bitmap + 1)).sum();
        more(self.blocks_of(units)) + bitmaps
    }

    /// Where so many units may begin in a run of free ones: with it, with a chunk, or with one that
    /// changes anyway.
    pub(crate) fn places(
        &self,
        free: &Range<u64>,
        want: u64,
    ) -> impl Iterator<Item = u64> + use<'_> {
        let (start, end) = (free.start, free.end);
        let chunk = 1 << self.chunk_bits;
        let next = (self.block_of(start) + 1).next_multiple_of(chunk);
        let chunks = self.chunks_of(&self.blocks_of(free)).unwrap_or(0..0);
        let changed = self.chunks.runs_in(chunks);
        let changed = changed.map(move |run| run.start << self.chunk_bits);
        let changed = changed.take(LOOKS_MAX);
        let begin = std::iter::once(next).chain(changed);
        let begin = begin.map(move |block| self.unit_at(block).max(start));
        let fits = move |at: &u64| at.checked_add(want).is_some_and(|last| last <= end);
        std::iter::once(start).chain(begin).filter(fits)
    }

    /// Numbers of inodes that lie where chunks change anyway.
    pub(crate) fn inodes(&self) -> Vec<Range<u64>> {
        let geometry = &self.groups.geometry;
        let (per_group, per_block) = (geometry.inodes_per_group(), geometry.inodes_per_block());
        let mut found = Vec::new();
        for (group, place) in (0_u64..).zip(self.groups.places.iter()) {
            let bitmap = place.inode_bitmap.get();
            let is_marked = |block: u64| self.chunks.contains(block >> self.chunk_bits);
            let table = self.groups.table(place);
            let Some(chunks) = self.chunks_of(&table).filter(|_| is_marked(bitmap)) else {
                continue;
            };
            for run in self.chunks.runs_in(chunks) {
                let from = (run.start << self.chunk_bits).max(table.start) - table.start;
                let to = (run.end << self.chunk_bits).min(table.end) - table.start;
                let number = |blocks: u64| {
                    let within = (blocks * u64::from(per_block)).min(per_group.into());
                    group * u64::from(per_group) + within + 1
                };
                found.push(number(from)..number(to));
            }
        }
        found
    }

    fn chunks_of(&self, blocks: &Range<u64>) -> Option<Range<u64>> {
        let last = blocks.end.checked_sub(1).filter(|_| !blocks.is_empty())?;
        Some(blocks.start >> self.chunk_bits..(last >> self.chunk_bits) + 1)
    }

    fn block_of(&self, unit: u64) -> u64 {
        self.first_data_block + (unit << self.cluster_bits)
    }

    /// The first unit at or after a block.
    fn unit_at(&self, block: u64) -> u64 {
        block
            .saturating_sub(self.first_data_block)
            .div_ceil(1 << self.cluster_bits)
    }

    fn blocks_of(&self, units: &Range<u64>) -> Range<u64> {
        self.block_of(units.start)..self.block_of(units.end)
    }

    /// The block bitmaps of the groups in which units begin and end.
    fn bitmaps_of(&self, units: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let blocks = self.blocks_of(units);
        let per_group = u64::from(self.groups.geometry.blocks_per_group());
        let group = |block: u64| (block.saturating_sub(self.first_data_block) / per_group) as usize;
        let (first, last) = (group(blocks.start), group(blocks.end.saturating_sub(1)));
        let last = (last != first).then_some(last);
        let places = Arc::clone(&self.groups.places);
        let bitmap = move |group: usize| Some(places.get(group)?.block_bitmap.get());
        std::iter::once(first).chain(last).filter_map(bitmap)
    }
}
