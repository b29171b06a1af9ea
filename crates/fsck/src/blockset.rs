//! Compressed sets of numbers below 2^48: blocks, clusters, inodes.
//!
//! The space is cut into chunks of 65,536 numbers. A chunk is empty, full, a few runs, or bits,
//! whichever is smallest, and those that are empty are not kept, so a set of a sparse 16 TiB file
//! system takes a few MiB.
//!
//! # Invariant
//! Runs of a chunk are ascending, and neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

const CHUNK_BITS: u32 = 16;
const CHUNK: u32 = 1 << CHUNK_BITS;
/// More runs than this take more memory than bits.
const RUNS_MAX: usize = 1024;
const WORDS: usize = CHUNK as usize / 64;

/// Numbers inside a chunk: first, and one past the last.
type Run = (u32, u32);

#[derive(Clone, Debug, Default)]
enum Chunk {
    #[default]
    Empty,
    Full,
    Runs(Vec<Run>),
    Bits(Box<[u64; WORDS]>),
}

/// A set of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockSet {
    chunks: BTreeMap<u32, Chunk>,
}

fn word_mask(word: usize, start: u32, end: u32) -> u64 {
    let base = word as u32 * 64;
    let from = start.saturating_sub(base).min(64);
    let to = end.saturating_sub(base).min(64);
    let below = |n: u32| if n >= 64 { !0 } else { (1u64 << n) - 1 };
    below(to) & !below(from)
}

impl Chunk {
    fn to_bits(&self) -> Box<[u64; WORDS]> {
        let mut bits = Box::new([0; WORDS]);
        match self {
            Self::Empty => {}
            Self::Full => bits.fill(!0),
            Self::Runs(runs) => {
                for &(start, end) in runs {
                    set_bits(&mut bits, start, end, &mut |_, _| {});
                }
            }
            Self::Bits(own) => bits.copy_from_slice(&own[..]),
        }
        bits
    }

    /// Adds a run; calls `again` with each run of numbers that were there before.
    fn insert(&mut self, start: u32, end: u32, again: &mut dyn FnMut(u32, u32)) {
        match self {
            Self::Full => {
                again(start, end);
                return;
            }
            Self::Bits(bits) => {
                set_bits(bits, start, end, again);
                return;
            }
            Self::Empty => {
                *self = if start == 0 && end == CHUNK {
                    Self::Full
                } else {
                    Self::Runs(vec![(start, end)])
                };
                return;
            }
            Self::Runs(runs) => {
                // The first run that ends at or after the start: it may touch or overlap.
                let at = runs.partition_point(|run| run.1 < start);
                let overlaps = runs[at..]
                    .iter()
                    .take_while(|run| run.0 < end)
                    .any(|run| run.1 > start);
                if !overlaps {
                    join(runs, at, start, end);
                    if runs.as_slice() == [(0, CHUNK)] {
                        *self = Self::Full;
                    } else if runs.len() > RUNS_MAX {
                        *self = Self::Bits(self.to_bits());
                    }
                    return;
                }
            }
        }
        let mut bits = self.to_bits();
        set_bits(&mut bits, start, end, again);
        *self = Self::Bits(bits);
    }

    fn contains(&self, n: u32) -> bool {
        match self {
            Self::Empty => false,
            Self::Full => true,
            Self::Runs(runs) => {
                let at = runs.partition_point(|run| run.1 <= n);
                runs.get(at).is_some_and(|run| run.0 <= n)
            }
            Self::Bits(bits) => bits[n as usize / 64] & 1 << (n % 64) != 0,
        }
    }

    /// Calls `each` with the runs of numbers inside `start..end`, ascending.
    fn runs(&self, start: u32, end: u32, each: &mut dyn FnMut(u32, u32)) {
        match self {
            Self::Empty => {}
            Self::Full => each(start, end),
            Self::Runs(runs) => {
                let at = runs.partition_point(|run| run.1 <= start);
                for run in runs[at..].iter().take_while(|run| run.0 < end) {
                    each(run.0.max(start), run.1.min(end));
                }
            }
            Self::Bits(bits) => {
                let mut at = start;
                while let Some(first) = next(bits, at, end, 0) {
                    let last = next(bits, first, end, !0).unwrap_or(end);
                    each(first, last);
                    at = last;
                }
            }
        }
    }
}

/// The first set bit of `bits ^ flip` in `at..end`.
fn next(bits: &[u64; WORDS], at: u32, end: u32, flip: u64) -> Option<u32> {
    let mut at = at;
    while at < end {
        let base = at & !63;
        let word = (bits[base as usize / 64] ^ flip) & (!0 << (at - base));
        if word != 0 {
            let found = base + word.trailing_zeros();
            return (found < end).then_some(found);
        }
        at = base + 64;
    }
    None
}

/// Puts a run that overlaps none between those at `at`, joined with what it touches.
fn join(runs: &mut Vec<Run>, at: usize, start: u32, end: u32) {
    let before = runs.get(at).is_some_and(|run| run.1 == start);
    let follower = at + usize::from(before);
    let after = runs.get(follower).is_some_and(|run| run.0 == end);
    match (before, after) {
        (true, true) => {
            runs[at].1 = runs[follower].1;
            runs.remove(follower);
        }
        (true, false) => runs[at].1 = end,
        (false, true) => runs[follower].0 = start,
        (false, false) => runs.insert(at, (start, end)),
    }
}

fn set_bits(bits: &mut [u64; WORDS], start: u32, end: u32, again: &mut dyn FnMut(u32, u32)) {
    if start >= end {
        return;
    }
    let (first, last) = (start as usize / 64, (end as usize - 1) / 64);
    for (i, word) in bits.iter_mut().enumerate().take(last + 1).skip(first) {
        let mask = word_mask(i, start, end);
        let mut twice = *word & mask;
        *word |= mask;
        while twice != 0 {
            let from = twice.trailing_zeros();
            let len = (!(twice >> from)).trailing_zeros();
            let base = i as u32 * 64 + from;
            again(base, base + len);
            twice &= !word_mask(i, base, base + len);
        }
    }
}

/// The chunk a number lies in.
fn index_of(n: u64) -> Option<u32> {
    u32::try_from(n >> CHUNK_BITS).ok()
}

impl BlockSet {
    /// Adds `range`; calls `again` with each run of it that was there before.
    pub(crate) fn insert(&mut self, range: Range<u64>, again: &mut dyn FnMut(Range<u64>)) {
        let mut at = range.start;
        while at < range.end {
            let Some(index) = index_of(at) else { return };
            let base = u64::from(index) << CHUNK_BITS;
            let end = range.end.min(base + u64::from(CHUNK));
            let chunk = self.chunks.entry(index).or_default();
            chunk.insert((at - base) as u32, (end - base) as u32, &mut |from, to| {
                again(base + u64::from(from)..base + u64::from(to))
            });
            at = end;
        }
    }

    /// Adds `range`, whether it was there before or not.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        self.insert(range, &mut |_| {});
    }

    /// Whether `n` is in the set.
    pub(crate) fn contains(&self, n: u64) -> bool {
        let chunk = index_of(n).and_then(|index| self.chunks.get(&index));
        chunk.is_some_and(|chunk| chunk.contains(n as u32 & (CHUNK - 1)))
    }

    /// Calls `each` with the runs of the set inside `range`, ascending. Neighbouring runs may
    /// touch.
    pub(crate) fn runs(&self, range: Range<u64>, each: &mut dyn FnMut(Range<u64>)) {
        if range.is_empty() {
            return;
        }
        let Some(first) = index_of(range.start) else {
            return;
        };
        let last = index_of(range.end - 1).unwrap_or(u32::MAX);
        for (index, chunk) in self.chunks.range(first..=last) {
            let base = u64::from(*index) << CHUNK_BITS;
            let from = range.start.max(base) - base;
            let end = range.end.min(base + u64::from(CHUNK)) - base;
            chunk.runs(from as u32, end as u32, &mut |from, to| {
                each(base + u64::from(from)..base + u64::from(to));
            });
        }
    }

    /// The first of so many numbers in a row inside `range` that are not members.
    pub(crate) fn first_gap(&self, range: Range<u64>, len: u64) -> Option<u64> {
        let mut next = range.start;
        let mut found = None;
        self.runs(range.clone(), &mut |run| {
            if found.is_none() && run.start.saturating_sub(next) >= len {
                found = Some(next);
            }
            next = run.end;
        });
        let fits = range.end.saturating_sub(next) >= len;
        found.or(fits.then_some(next))
    }

    /// The smallest member.
    pub(crate) fn first(&self) -> Option<u64> {
        let mut first = None;
        for (index, chunk) in &self.chunks {
            let base = u64::from(*index) << CHUNK_BITS;
            chunk.runs(0, CHUNK, &mut |from, _| {
                first.get_or_insert(base + u64::from(from));
            });
            if first.is_some() {
                break;
            }
        }
        first
    }

    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.values().all(|chunk| match chunk {
            Chunk::Empty => true,
            Chunk::Full | Chunk::Runs(_) => false,
            Chunk::Bits(bits) => bits.iter().all(|word| *word == 0),
        })
    }

    /// Adds all of another set; calls `again` with each run that was in both.
    pub(crate) fn absorb(&mut self, other: Self, again: &mut dyn FnMut(Range<u64>)) {
        for (index, theirs) in other.chunks {
            let base = u64::from(index) << CHUNK_BITS;
            let ours = self.chunks.entry(index).or_default();
            match (&mut *ours, theirs) {
                (_, Chunk::Empty) => {}
                (Chunk::Empty, theirs) => *ours = theirs,
                (_, theirs) => theirs.runs(0, CHUNK, &mut |from, to| {
                    ours.insert(from, to, &mut |from, to| {
                        again(base + u64::from(from)..base + u64::from(to));
                    });
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};
    use std::collections::BTreeSet;

    fn members(set: &BlockSet, range: Range<u64>) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        set.runs(range, &mut |run| all.extend(run));
        all
    }

    #[test]
    fn a_set_holds_what_was_added_and_tells_what_was_added_twice() {
        let mut rng = Rng::new(seed_from_env("blockset"));
        for round in 0..12 {
            let (mut set, mut model) = (BlockSet::default(), BTreeSet::new());
            let span = if round % 2 == 0 { 140_000 } else { 3000 };
            let longest = if round % 3 == 0 { 70_000 } else { 9 };
            let adds = if longest > 9 { 8 } else { 2500 };
            for _ in 0..adds {
                let start = rng.below(span);
                let range = start..start + 1 + rng.below(longest);
                let mut again = BTreeSet::new();
                set.insert(range.clone(), &mut |run| again.extend(run));
                let expected: BTreeSet<u64> = range.clone().filter(|n| model.contains(n)).collect();
                assert_eq!(again, expected);
                model.extend(range);
            }
            assert_eq!(members(&set, 0..1 << 20), model);
            let part = 1000..90_000;
            let inside: BTreeSet<u64> = model.range(part.clone()).copied().collect();
            assert_eq!(members(&set, part), inside);
            for _ in 0..200 {
                let n = rng.below(span + 100_000);
                assert_eq!(set.contains(n), model.contains(&n));
            }
        }
    }

    #[test]
    fn joining_two_sets_tells_what_both_had() {
        let (mut a, mut b) = (BlockSet::default(), BlockSet::default());
        a.add(10..20);
        a.add(200_000..300_000);
        b.add(15..30);
        b.add(250_000..250_010);
        b.add(500_000..500_001);
        let mut both = Vec::new();
        a.absorb(b, &mut |run| both.push(run));
        assert_eq!(both, [15..20, 250_000..250_010]);
        assert!(a.contains(29) && a.contains(500_000) && !a.contains(30));
        assert!(members(&a, 30..200_000).is_empty());
        assert!(!BlockSet::default().contains(0) && BlockSet::default().is_empty());
    }

    #[test]
    fn a_number_far_out_costs_no_more_than_a_near_one() {
        let mut set = BlockSet::default();
        let far = (1 << 48) - 5;
        set.add(far..far + 5);
        assert_eq!(set.chunks.len(), 1);
        assert!(set.contains(far) && !set.contains(far - 1));
        assert_eq!(members(&set, 0..1 << 48).len(), 5);
    }

    #[test]
    fn a_set_of_a_huge_sparse_device_is_small() {
        let mut set = BlockSet::default();
        let blocks = 1_u64 << 32;
        for group in (0..blocks).step_by(32_768 * 16) {
            set.add(group..group + 9000);
        }
        let runs: usize = set
            .chunks
            .values()
            .map(|chunk| match chunk {
                Chunk::Runs(runs) => runs.len(),
                Chunk::Bits(_) => panic!("bits where a run would do"),
                _ => 0,
            })
            .sum();
        assert_eq!(runs, 8192);
    }
}
