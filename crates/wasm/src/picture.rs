//! How the blocks are used, as a picture: the bitmaps, and what of them the groups use themselves.

use crate::failure::Told;
use extant_core::fs::Fs;
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::{Group, Pblk, bitmap};
use std::ops::Range;

/// Cells of a picture at most.
const MOST_CELLS: u32 = 1 << 16;

/// Numbers of a cell.
const KINDS: usize = 3;
/// Blocks for the structure of groups: superblocks, descriptors, bitmaps, inode tables.
const STRUCTURE: usize = 0;
/// Blocks that are used otherwise.
const CONTENT: usize = 1;
const FREE: usize = 2;

/// Counts the blocks of equal parts of a file system, of which there are `cells` at most: for each
/// part those of the structure, those with content and those that are free, in this order.
pub(crate) fn draw(fs: &Fs, cells: u32) -> Told<Vec<f64>> {
    let geometry = fs.geometry();
    let blocks = geometry.blocks_count();
    let per_cell = blocks
        .div_ceil(u64::from(cells.clamp(1, MOST_CELLS)))
        .max(1);
    let mut own = Vec::new();
    for group in geometry.groups() {
        own.extend(own_blocks(fs, group, &fs.group(group)?));
    }
    let mut picture = Picture {
        per_cell,
        counts: vec![[0; KINDS]; blocks.div_ceil(per_cell) as usize],
        own: disjoint(own),
    };
    // The boot block in front of a file system with 1 KiB blocks.
    picture.add(0..geometry.first_data_block().get(), STRUCTURE);
    for group in geometry.groups() {
        picture.group(fs, group)?;
    }
    let counts = picture.counts.into_iter().flatten();
    Ok(counts.map(|count| count as f64).collect())
}

struct Picture {
    per_cell: u64,
    counts: Vec<[u64; KINDS]>,
    /// The blocks of the structure: ascending, disjoint.
    own: Vec<Range<u64>>,
}

impl Picture {
    fn add(&mut self, range: Range<u64>, kind: usize) {
        let mut at = range.start;
        while at < range.end {
            let cell = at / self.per_cell;
            let end = ((cell + 1) * self.per_cell).min(range.end);
            let count = self.counts.get_mut(cell as usize);
            if let Some(count) = count.and_then(|counts| counts.get_mut(kind)) {
                *count += end - at;
            }
            at = end;
        }
    }

    fn group(&mut self, fs: &Fs, group: Group) -> Told<()> {
        let geometry = fs.geometry();
        let (Ok(first), Ok(last)) = (
            geometry.group_first_block(group),
            geometry.group_last_block(group),
        ) else {
            return Ok(());
        };
        let (first, end) = (first.get(), last.get().saturating_add(1));
        let desc = fs.group(group)?;
        let mut map = vec![0; fs.block_size().len()];
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            // A bitmap that was never written stands for a group that holds nothing but its own
            // structure.
            for block in own_blocks(fs, group, &desc).into_iter().flatten() {
                if let Ok((owner, bit)) = geometry.bitmap_position(Pblk::new(block))
                    && owner == group
                {
                    bitmap::set(&mut map, bit);
                }
            }
        } else {
            let offset = fs.block_size().offset_of(desc.block_bitmap);
            fs.device().read_at(offset.unwrap_or(u64::MAX), &mut map)?;
        }
        let clusters = geometry.clusters_in_group(group).unwrap_or(0);
        let bits = geometry.cluster_bits();
        let mut at = first;
        for run in bitmap::clear_runs(&map, 0..clusters) {
            let block = |cluster: u32| (first + (u64::from(cluster) << bits)).min(end);
            let (from, to) = (block(run.start), block(run.end));
            self.used(at..from);
            self.add(from..to, FREE);
            at = to;
        }
        self.used(at..end);
        Ok(())
    }

    /// Adds blocks that are used, each for the structure or otherwise.
    fn used(&mut self, range: Range<u64>) {
        let mut at = range.start;
        let mut next = self.own.partition_point(|own| own.end <= at);
        while let Some(own) = self.own.get(next).cloned()
            && own.start < range.end
        {
            let (from, to) = (own.start.max(at), own.end.min(range.end));
            self.add(at..from, CONTENT);
            self.add(from..to, STRUCTURE);
            (at, next) = (to, next + 1);
        }
        self.add(at..range.end, CONTENT);
    }
}

/// The blocks that the structure of a group has, which may lie in other groups.
fn own_blocks(fs: &Fs, group: Group, desc: &GroupDesc) -> Vec<Range<u64>> {
    let geometry = fs.geometry();
    let one = |block: Pblk| block.get()..block.get().saturating_add(1);
    let table = desc.inode_table.get();
    let table_end = table.saturating_add(geometry.inode_table_blocks().into());
    let mut own = vec![
        one(desc.block_bitmap),
        one(desc.inode_bitmap),
        table..table_end,
    ];
    if let Ok(header) = geometry.group_header(group) {
        let end = header.end().get();
        own.push(end.saturating_sub(header.blocks())..end);
    }
    own
}

/// Merges ranges into ascending ones of which none touches another.
fn disjoint(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_divided_into_structure_and_content() {
        let mut picture = Picture {
            per_cell: 10,
            counts: vec![[0; KINDS]; 3],
            own: disjoint(vec![12..14, 0..5, 3..8, 28..40]),
        };
        assert_eq!(picture.own, [0..8, 12..14, 28..40]);
        picture.used(2..13);
        picture.add(13..20, FREE);
        picture.used(20..30);
        assert_eq!(picture.counts, [[6, 2, 0], [1, 2, 7], [2, 8, 0]]);
    }
}
