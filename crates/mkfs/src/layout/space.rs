//! Which numbers are taken: runs of blocks, or of inodes.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, kept as runs. Costs what its fragmentation costs, not its extent: an empty
/// 16 TiB file system is some ten thousand runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSet {
    /// Start to end (exclusive); runs neither touch nor overlap.
    runs: BTreeMap<u64, u64>,
}

impl RunSet {
    /// Returns the empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a run; what is already in stays in.
    pub fn insert(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let (mut start, mut end) = (run.start, run.end);
        if let Some((&before, &before_end)) = self.runs.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.runs.range(start..=end).next() {
            self.runs.remove(&next);
            end = end.max(next_end);
        }
        self.runs.insert(start, end);
    }

    /// Returns whether a number is in.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.runs
            .range(..=number)
            .next_back()
            .is_some_and(|(_, &end)| end > number)
    }

    /// Returns whether any number of the run is in.
    #[must_use]
    pub fn touches(&self, run: Range<u64>) -> bool {
        self.runs_in(run).next().is_some()
    }

    /// Returns the parts of the set inside `within`, ascending.
    pub fn runs_in(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self
            .runs
            .range(..=within.start)
            .next_back()
            .map_or(within.start, |(&start, _)| start);
        let (from, to) = (within.start, within.end.max(within.start));
        self.runs
            .range(first..to.max(first))
            .map(move |(&start, &end)| start.max(from)..end.min(to))
            .filter(|run| !run.is_empty())
    }

    /// Returns the gaps inside `within`, ascending.
    pub fn gaps_in(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = within.start;
        let end = within.end;
        let mut runs = self.runs_in(within);
        std::iter::from_fn(move || {
            while at < end {
                let Some(run) = runs.next() else {
                    let gap = at..end;
                    at = end;
                    return Some(gap);
                };
                let gap = at..run.start;
                at = run.end;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Numbers of `within` that are in.
    #[must_use]
    pub fn count_in(&self, within: Range<u64>) -> u64 {
        self.runs_in(within).map(|run| run.end - run.start).sum()
    }

    /// Returns the first number at or after `from` and before `before` where `len` numbers in a
    /// row, all below `end`, are not in.
    #[must_use]
    pub fn first_gap(&self, from: u64, before: u64, len: u64, end: u64) -> Option<u64> {
        self.gaps_in(from..end)
            .take_while(|gap| gap.start < before)
            .find(|gap| gap.end - gap.start >= len)
            .map(|gap| gap.start)
    }

    /// The set with every run widened to multiples of `1 << bits` above `base`.
    #[must_use]
    pub(crate) fn widened(&self, base: u64, bits: u32) -> Self {
        let mut wide = Self::new();
        for (&start, &end) in &self.runs {
            let (start, end) = (start - base, end - base);
            wide.insert((start >> bits << bits) + base..(end.div_ceil(1 << bits) << bits) + base);
        }
        wide
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_are_a_set_of_numbers(
            inserts in proptest::collection::vec((0_u64..120, 0_u64..20), 0..20),
            from in 0_u64..140, len in 1_u64..10,
        ) {
            let mut set = RunSet::new();
            let mut model = BTreeSet::new();
            for (start, len) in inserts {
                set.insert(start..start + len);
                model.extend(start..start + len);
            }
            let all: Vec<u64> = set.runs_in(from..150).flatten().collect();
            let expected: Vec<u64> = model.range(from..).copied().collect();
            prop_assert_eq!(&all, &expected);
            prop_assert_eq!(set.count_in(from..150), expected.len() as u64);
            let gaps: Vec<u64> = set.gaps_in(from..150).flatten().collect();
            let expected: Vec<u64> = (from..150).filter(|n| !model.contains(n)).collect();
            prop_assert_eq!(gaps, expected);
            prop_assert!(set.gaps_in(0..150).zip(set.gaps_in(0..150).skip(1)).all(|(a, b)| a.end < b.start));
            let fits = |s: u64| s + len <= 150 && (s..s + len).all(|n| !model.contains(&n));
            let first = (from..100).find(|s| fits(*s));
            prop_assert_eq!(set.first_gap(from, 100, len, 150), first);
        }
    }
}
