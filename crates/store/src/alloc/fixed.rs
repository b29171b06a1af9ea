//! The blocks that belong to the file system itself: superblocks, descriptors, bitmaps, inode
//! tables; and those of the journal.
//!
//! No file may own one of them, whatever a map or a bitmap says: a write to such a file would go
//! over them.

use super::Alloc;
use crate::{Error, InPlace, Place, Result};
use extant_format::geometry::Geometry;
use extant_format::group_desc::GroupDesc;
use extant_format::{Expected, FormatError, Group, Pblk, Structure};
use extant_jbd2::LogRun;
use std::ops::Range;

/// All blocks of fixed metadata, as ascending ranges that do not touch each other. With `flex_bg`
/// a few for each flex group.
#[derive(Clone, Debug, Default)]
pub(super) struct Fixed {
    ranges: Box<[Range<u64>]>,
}

/// Collects the ranges while the descriptors are read.
#[derive(Debug, Default)]
pub(super) struct FixedBuilder {
    ranges: Vec<(Range<u64>, Group)>,
    /// Where in `ranges` the last of each of the three kinds is.
    latest: [usize; 3],
}

impl FixedBuilder {
    /// Adds what the descriptor of `group` points at. Ranges that follow each other, as those of
    /// a flex group do, become one.
    pub(super) fn add(&mut self, group: Group, desc: &GroupDesc, table_blocks: u32) {
        let kinds = [
            (desc.block_bitmap, 1),
            (desc.inode_bitmap, 1),
            (desc.inode_table, table_blocks.into()),
        ];
        for ((block, len), latest) in kinds.into_iter().zip(&mut self.latest) {
            let range = block.get()..block.get().saturating_add(len);
            // The three kinds of flex groups grow side by side.
            if let Some((last, _)) = self.ranges.get_mut(*latest)
                && last.end == range.start
            {
                last.end = range.end;
                continue;
            }
            // Or one follows another: look at the last few.
            let recent = self.ranges.len().saturating_sub(6);
            let mut last = self.ranges.iter().skip(recent);
            *latest = match last.position(|(last, _)| last.end == range.start) {
                Some(at) => recent + at,
                None => self.ranges.len(),
            };
            match self.ranges.get_mut(*latest) {
                Some((last, _)) => last.end = range.end,
                None => self.ranges.push((range, group)),
            }
        }
    }

    /// Adds what the groups behind have, those of `next`.
    pub(super) fn append(&mut self, mut next: Self) {
        self.ranges.append(&mut next.ranges);
    }

    /// Adds superblocks and descriptors, and puts all in order.
    ///
    /// # Errors
    /// When two groups claim one block.
    pub(super) fn finish(mut self, geometry: &Geometry) -> Result<Fixed> {
        let end = geometry.blocks_count();
        let mut reserved = Vec::new();
        for group in geometry.groups_with_headers() {
            let place = Place::Group(group);
            let header = geometry.group_header(group).in_place(place)?;
            let first = geometry.group_first_block(group).in_place(place)?.get();
            let behind = header.reserved_gdt.start;
            if behind > first {
                self.ranges.push((first..behind.min(end), group));
            }
            if header.reserved_gdt.end > behind {
                reserved.push(behind.min(end)..header.reserved_gdt.end.min(end));
            }
        }
        // Two rows that are in order already, but where tables were moved: a sort by merging is
        // done with them in one pass.
        self.ranges.sort_by_key(|(range, _)| range.start);
        for pair in self.ranges.windows(2) {
            let [(before, _), (after, group)] = pair else {
                continue;
            };
            if before.end > after.start {
                let expected = Expected::AtLeast(before.end);
                let what = Structure::GroupDescriptor;
                let source = FormatError::new(what, "metadata block", after.start, expected);
                return Err(Error::corrupt(Place::Group(*group), source));
            }
        }
        let mut all: Vec<_> = self.ranges.into_iter().map(|(range, _)| range).collect();
        // These belong to the resize inode; tools that moved tables may have left some shared.
        all.append(&mut reserved);
        Ok(Fixed::of(all))
    }
}

impl Fixed {
    /// These and further ranges.
    fn with(&self, more: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self::of(self.ranges.iter().cloned().chain(more).collect())
    }

    fn of(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self {
            ranges: merged.into_boxed_slice(),
        }
    }

    /// The fixed blocks in `blocks`, as ascending ranges.
    pub(super) fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|r| r.end <= blocks.start);
        self.ranges[first..]
            .iter()
            .take_while(move |r| r.start < blocks.end)
            .map(move |r| r.start.max(blocks.start)..r.end.min(blocks.end))
    }
}

impl Alloc {
    /// Keeps the blocks of the journal from files, too.
    ///
    /// # Errors
    /// When the journal has blocks of the file system's own metadata.
    pub fn keep_journal(&mut self, runs: &[LogRun]) -> Result<()> {
        let blocks = |run: &LogRun| run.start.get()..run.start.get().saturating_add(run.len.into());
        for run in runs {
            if let Some(fixed) = self.fixed.within(blocks(run)).next() {
                let expected = Expected::Said("a block that is not the file system's own metadata");
                let what = Structure::JournalSuperblock;
                let source = FormatError::new(what, "journal block", fixed.start, expected);
                return Err(Error::corrupt(Place::Block(Pblk::new(fixed.start)), source));
            }
        }
        self.kept = self.fixed.with(runs.iter().map(blocks));
        Ok(())
    }

    /// The first of these blocks that no file's map may lead to.
    #[inline]
    pub fn first_kept(&self, blocks: Range<u64>) -> Option<Pblk> {
        let found = self.kept.within(blocks).next();
        found.map(|range| Pblk::new(range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_are_found() {
        let fixed = Fixed::of(vec![10..12, 0..3, 3..5, 20..30, 25..40]);
        assert_eq!(&*fixed.ranges, [0..5, 10..12, 20..40]);
        let found: Vec<_> = fixed.within(4..21).collect();
        assert_eq!(found, [4..5, 10..12, 20..21]);
        assert_eq!(fixed.within(5..10).count(), 0);
        assert_eq!(fixed.within(40..50).count(), 0);
    }

    #[test]
    fn others_are_kept_with_them() {
        let fixed = Fixed::of(vec![0..3, 10..12]).with([3..5, 20..30]);
        assert_eq!(&*fixed.ranges, [0..5, 10..12, 20..30]);
    }

    #[test]
    fn tables_of_a_flex_group_take_three_ranges() {
        let mut builder = FixedBuilder::default();
        for i in 0..16 {
            let desc = GroupDesc {
                block_bitmap: Pblk::new(100 + i),
                inode_bitmap: Pblk::new(200 + i),
                inode_table: Pblk::new(300 + i * 8),
                ..GroupDesc::default()
            };
            builder.add(Group::new(i as u32), &desc, 8);
        }
        assert_eq!(builder.ranges.len(), 3);
    }
}
