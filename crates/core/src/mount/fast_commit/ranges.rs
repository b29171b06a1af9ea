//! What records say about the map of one inode.

use crate::map::Target;
use extant_format::{Lblk, Pblk};
use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of logical blocks and what is to become of them. Of what is said about one block, the
/// last counts.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// By first block: one past the last, and where they lie.
    parts: BTreeMap<u64, (u64, Target)>,
}

impl Ranges {
    pub(super) fn map(&mut self, lblk: Lblk, len: u32, start: Pblk, unwritten: bool) {
        let target = if unwritten {
            Target::Unwritten(start)
        } else {
            Target::Written(start)
        };
        self.put(lblk, len, target);
    }

    pub(super) fn unmap(&mut self, lblk: Lblk, len: u32) {
        self.put(lblk, len, Target::Hole);
    }

    fn put(&mut self, lblk: Lblk, len: u32, target: Target) {
        let first = u64::from(lblk.get());
        let range = first..first + u64::from(len);
        self.clear(&range);
        if !range.is_empty() {
            self.parts.insert(range.start, (range.end, target));
        }
    }

    /// Forgets what is said about `range`.
    fn clear(&mut self, range: &Range<u64>) {
        let before = self.parts.range(..range.start).next_back();
        let first = match before {
            Some((start, (end, _))) if *end > range.start => *start,
            _ => range.start,
        };
        let touched: Vec<u64> = self
            .parts
            .range(first..range.end)
            .map(|(start, _)| *start)
            .collect();
        for start in touched {
            let Some((end, target)) = self.parts.remove(&start) else {
                continue;
            };
            if start < range.start {
                self.parts.insert(start, (range.start, target));
            }
            if end > range.end {
                let rest = target.advanced(range.end - start);
                self.parts.insert(range.end, (end, rest));
            }
        }
    }

    /// All ranges, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<u64>, Target)> {
        self.parts
            .iter()
            .map(|(start, (end, target))| (*start..*end, *target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_about_a_block_counts() {
        let mut ranges = Ranges::default();
        ranges.map(Lblk::new(10), 20, Pblk::new(100), false);
        ranges.map(Lblk::new(15), 5, Pblk::new(500), true);
        ranges.unmap(Lblk::new(28), 10);
        let all: Vec<_> = ranges.iter().collect();
        assert_eq!(
            all,
            [
                (10..15, Target::Written(Pblk::new(100))),
                (15..20, Target::Unwritten(Pblk::new(500))),
                (20..28, Target::Written(Pblk::new(110))),
                (28..38, Target::Hole),
            ]
        );
        ranges.unmap(Lblk::new(0), u32::MAX);
        assert_eq!(ranges.iter().count(), 1);
    }
}
