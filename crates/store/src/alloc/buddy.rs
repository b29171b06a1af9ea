//! Which clusters of a group may be handed out, and which blocks of 2^k of them side by side.
//!
//! Level k has a bit for each aligned block of 2^k clusters, set if all of them are free: each bit
//! is the conjunction of two of the level below. So a change costs a few words on the levels it
//! reaches, and a look for 2^k clusters is a look for a set bit. How many blocks there are of an
//! order that are no part of a larger free one follows from the number of set bits of two levels.

use std::ops::Range;

/// More levels than any group has: no group has more clusters than a block of 64 KiB has bits.
pub(super) const ORDERS: usize = 20;
const BITS: u32 = u64::BITS;

/// The free clusters of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buddy {
    /// The words of all levels, one level behind the other.
    words: Box<[u64]>,
    /// Where each level begins in `words`; the last one is the end.
    starts: Box<[u32]>,
    /// Set bits of each level.
    set: [u32; ORDERS],
    clusters: u32,
    /// Runs of free clusters.
    fragments: u32,
}

/// The order of the smallest block that holds `len` clusters.
pub(super) fn order_of(len: u32) -> u32 {
    len.max(1).next_power_of_two().trailing_zeros()
}

/// The words that bits `from..to` of a level lie in, each with a mask of those bits.
fn masks(from: u32, to: u32) -> impl Iterator<Item = (usize, u64)> {
    let words = from / BITS..to.div_ceil(BITS);
    words.map(move |word| {
        let low = from.saturating_sub(word * BITS);
        let high = (to - word * BITS).min(BITS);
        let mask = u64::MAX << low & u64::MAX >> (BITS - high);
        (word as usize, mask)
    })
}

/// The bits of even places, side by side.
fn squeeze(word: u64) -> u64 {
    let mut w = word & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        w = (w | w >> shift) & mask;
    }
    w
}

impl Buddy {
    /// Of a bitmap of clusters in use, whose first `clusters` bits count.
    pub(super) fn of_used(used: &[u8], clusters: u32) -> Self {
        let levels = (clusters.checked_ilog2().unwrap_or(0) + 1).min(ORDERS as u32);
        let mut starts = vec![0_u32];
        for order in 0..levels {
            let last = starts.last().copied().unwrap_or(0);
            starts.push(last + (clusters >> order).div_ceil(BITS));
        }
        let total = starts.last().copied().unwrap_or(0);
        let mut buddy = Self {
            words: vec![0; total as usize].into_boxed_slice(),
            starts: starts.into_boxed_slice(),
            set: [0; ORDERS],
            clusters,
            fragments: 0,
        };
        for (word, mask) in masks(0, clusters) {
            let mut bytes = [0xff; 8];
            let from = used.get(word * 8..).unwrap_or_default();
            bytes
                .iter_mut()
                .zip(from)
                .for_each(|(to, from)| *to = *from);
            buddy.words[word] = !u64::from_le_bytes(bytes) & mask;
        }
        buddy.fold();
        buddy
    }

    /// Makes everything anew from the lowest level.
    fn fold(&mut self) {
        let (mut before, mut fragments) = (0, 0);
        for word in self.level(0) {
            fragments += (word & !(word << 1 | before)).count_ones();
            before = word >> (BITS - 1);
        }
        self.fragments = fragments;
        for order in 1..self.levels() {
            let (below, level) = (self.starts[order - 1], self.starts[order]);
            let (lower, upper) = self.words.split_at_mut(level as usize);
            let lower = &lower[below as usize..];
            let len = (self.starts[order + 1] - level) as usize;
            for (at, word) in upper[..len].iter_mut().enumerate() {
                let half = |i: usize| {
                    let word = lower.get(at * 2 + i).copied().unwrap_or(0);
                    squeeze(word & word >> 1)
                };
                *word = half(0) | half(1) << (BITS / 2);
            }
        }
        for order in 0..self.levels() {
            self.set[order] = self.level(order).map(u64::count_ones).sum();
        }
    }

    fn levels(&self) -> usize {
        self.starts.len() - 1
    }

    fn level(&self, order: usize) -> impl Iterator<Item = u64> + '_ {
        let words = self.starts[order] as usize..self.starts[order + 1] as usize;
        self.words[words].iter().copied()
    }

    /// Clusters.
    #[cfg(any(test, feature = "inspect"))]
    pub(crate) fn clusters(&self) -> u32 {
        self.clusters
    }

    /// Free clusters.
    pub(crate) fn free(&self) -> u32 {
        self.set[0]
    }

    /// Runs of free clusters.
    pub(super) fn fragments(&self) -> u32 {
        self.fragments
    }

    /// The order of the largest free block; `None` when nothing is free.
    pub(super) fn largest(&self) -> Option<u32> {
        self.set.iter().rposition(|&set| set > 0).map(|o| o as u32)
    }

    /// Free blocks of exactly that order, that are no part of a larger free one.
    #[cfg(test)]
    pub(super) fn blocks(&self, order: usize) -> u32 {
        let at = |order: usize| self.set.get(order).copied().unwrap_or(0);
        at(order) - 2 * at(order + 1)
    }

    /// The bitmap of clusters that must not be handed out, of `len` bytes.
    pub(crate) fn used(&self, len: usize) -> Box<[u8]> {
        let bytes = self.level(0).flat_map(|word| (!word).to_le_bytes());
        let mut used: Box<[u8]> = bytes.chain(std::iter::repeat(0xff)).take(len).collect();
        extant_format::bitmap::set_padding(&mut used, self.clusters);
        used
    }

    /// Whether bit `at` of a level is set; one past its end is not.
    fn test(&self, order: usize, at: u32) -> bool {
        let start = self.starts[order];
        let word = start + at / BITS;
        word < self.starts[order + 1] && self.words[word as usize] & 1 << (at % BITS) != 0
    }

    /// Whether the cluster is free; one past the end is not.
    pub(crate) fn is_free(&self, cluster: u32) -> bool {
        self.test(0, cluster)
    }

    /// Whether all clusters of the run are free.
    pub(super) fn all_free(&self, run: &Range<u32>) -> bool {
        run.end <= self.clusters
            && masks(run.start, run.end).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// Whether none of them is.
    pub(super) fn none_free(&self, run: &Range<u32>) -> bool {
        run.end <= self.clusters
            && masks(run.start, run.end).all(|(word, mask)| self.words[word] & mask == 0)
    }

    /// How many of the two clusters beside the run are free.
    fn neighbours(&self, run: &Range<u32>) -> u32 {
        let before = run.start.checked_sub(1).is_some_and(|at| self.is_free(at));
        u32::from(before) + u32::from(self.is_free(run.end))
    }

    /// Takes a run of free clusters.
    pub(super) fn take(&mut self, run: &Range<u32>) {
        debug_assert!(self.all_free(run), "taken twice: {run:?}");
        self.fragments = (self.fragments + self.neighbours(run)).saturating_sub(1);
        let (mut from, mut to) = (run.start, run.end);
        for order in 0..self.levels() {
            let start = self.starts[order] as usize;
            let bits = (self.clusters >> order).min(to);
            let mut cleared = 0;
            for (word, mask) in masks(from, bits.max(from)) {
                let word = &mut self.words[start + word];
                cleared += (*word & mask).count_ones();
                *word &= !mask;
            }
            if cleared == 0 {
                // Nor is anything free above.
                return;
            }
            self.set[order] -= cleared;
            (from, to) = (from / 2, to.div_ceil(2));
        }
    }

    /// Gives a run of taken clusters back.
    pub(super) fn give(&mut self, run: &Range<u32>) {
        debug_assert!(self.none_free(run), "given back twice: {run:?}");
        self.fragments = (self.fragments + 1) - self.neighbours(run);
        let (mut from, mut to) = (run.start, run.end);
        for order in 0..self.levels() {
            let start = self.starts[order] as usize;
            for (word, mask) in masks(from, to) {
                self.words[start + word] |= mask;
            }
            self.set[order] += to - from;
            // A block above is free if both its halves are.
            let odd = |at: u32| at % 2 == 1;
            let joins = odd(from) && self.test(order, from - 1);
            from = if joins { from / 2 } else { from.div_ceil(2) };
            let joins = odd(to) && self.test(order, to);
            to = if joins { to.div_ceil(2) } else { to / 2 };
            if from >= to {
                return;
            }
        }
    }

    /// The first set bit of a level in `from..to`.
    fn next_set(&self, order: usize, from: u32, to: u32) -> Option<u32> {
        let to = to.min(self.clusters >> order);
        let start = self.starts[order] as usize;
        masks(from.min(to), to).find_map(|(word, mask)| {
            let bits = self.words[start + word] & mask;
            (bits != 0).then(|| word as u32 * BITS + bits.trailing_zeros())
        })
    }

    /// The first taken cluster in `from..to`, or `to`.
    fn next_used(&self, from: u32, to: u32) -> u32 {
        let found = masks(from, to).find_map(|(word, mask)| {
            let bits = !self.words[word] & mask;
            (bits != 0).then(|| word as u32 * BITS + bits.trailing_zeros())
        });
        found.unwrap_or(to)
    }

    /// Where the free clusters begin that reach up to `to`, but not before `lowest`.
    fn free_from(&self, lowest: u32, to: u32) -> u32 {
        let mut at = to;
        while at > lowest {
            let word = (at - 1) / BITS;
            let upto = at - word * BITS;
            let free = (self.words[word as usize] << (BITS - upto)).leading_ones();
            at -= free.min(upto);
            if free < upto {
                break;
            }
        }
        at.max(lowest)
    }

    /// Runs of free clusters in `within`, ascending.
    pub(crate) fn runs(&self, within: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let (mut at, end) = (within.start, within.end.min(self.clusters));
        std::iter::from_fn(move || {
            let start = self.next_set(0, at, end)?;
            at = self.next_used(start, end);
            Some(start..at)
        })
    }

    /// `len` free clusters below `end`: at `goal` if they are there, else in the first block behind
    /// it, else in the first of the group; in one with room for `room`, if there is any. `None` if
    /// no block of the order is free, though as many may lie side by side.
    pub(super) fn near(&self, goal: u32, end: u32, len: u32, room: u32) -> Option<Range<u32>> {
        let end = end.min(self.clusters);
        let goal = if goal < end { goal } else { 0 };
        let at_goal = goal..goal.saturating_add(len);
        if at_goal.end <= end && self.all_free(&at_goal) {
            return Some(at_goal);
        }
        if room > len
            && let Some(start) = self.block_near(goal, end, order_of(room))
        {
            return Some(start..start + len);
        }
        let order = order_of(len);
        let mut start = self.block_near(goal, end, order)?;
        if order < BITS.trailing_zeros() || !len.is_power_of_two() {
            // What is small or odd closes up to what lies before it.
            let lowest = if start > goal { goal } else { 0 };
            start = self.free_from(lowest, start);
        }
        Some(start..start + len)
    }

    /// The first cluster of a free block of the order below `end`, the first one from `goal` on or
    /// else of all.
    fn block_near(&self, goal: u32, end: u32, order: u32) -> Option<u32> {
        if self.largest()? < order {
            return None;
        }
        let above = goal.div_ceil(1 << order);
        let last = end >> order;
        let block = self
            .next_set(order as usize, above, last)
            .or_else(|| self.next_set(order as usize, 0, above.min(last)))?;
        Some(block << order)
    }

    /// The first `len` free clusters side by side below `end`, from `goal` on or else anywhere; if
    /// there are not as many, the most there are.
    pub(super) fn longest(&self, goal: u32, end: u32, len: u32) -> Option<Range<u32>> {
        let end = end.min(self.clusters);
        let goal = if goal < end { goal } else { 0 };
        let mut longest: Option<Range<u32>> = None;
        // A run may reach over the goal.
        for run in self.runs(goal..end).chain(self.runs(0..end)) {
            let size = run.end - run.start;
            if size >= len {
                return Some(run.start..run.start + len);
            }
            if longest.as_ref().is_none_or(|l| l.end - l.start < size) {
                longest = Some(run);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_format::bitmap;
    use extant_testkit::rng::{Rng, seed_from_env};

    /// Clusters, one by one.
    struct Naive(Vec<bool>);

    impl Naive {
        fn block_free(&self, order: u32, at: usize) -> bool {
            let size = 1 << order;
            self.0
                .get(at * size..(at + 1) * size)
                .is_some_and(|b| b.iter().all(|free| *free))
        }

        fn check(&self, buddy: &Buddy) {
            let free = self.0.iter().filter(|free| **free).count();
            assert_eq!(buddy.free() as usize, free);
            let runs: Vec<_> = self
                .0
                .chunk_by(|a, b| a == b)
                .scan(0, |at, run| {
                    *at += run.len() as u32;
                    Some((run[0], *at - run.len() as u32..*at))
                })
                .filter_map(|(free, run)| free.then_some(run))
                .collect();
            assert_eq!(buddy.fragments() as usize, runs.len());
            assert_eq!(buddy.runs(0..self.0.len() as u32).collect::<Vec<_>>(), runs);
            let mut largest = None;
            for order in 0..ORDERS as u32 {
                let of_order = (0..self.0.len() >> order)
                    .filter(|&at| self.block_free(order, at) && !self.block_free(order + 1, at / 2))
                    .count();
                assert_eq!(buddy.blocks(order as usize) as usize, of_order, "{order}");
                if of_order > 0 {
                    largest = Some(order);
                }
            }
            assert_eq!(buddy.largest(), largest);
        }

        fn longest(&self, end: u32) -> u32 {
            let runs = self.0[..end as usize].chunk_by(|a, b| a == b);
            runs.filter(|run| run[0])
                .map(<[bool]>::len)
                .max()
                .unwrap_or(0) as u32
        }
    }

    #[test]
    fn levels_are_what_a_look_at_every_cluster_finds() {
        let mut rng = Rng::new(seed_from_env("alloc_buddy"));
        for round in 0..60 {
            let clusters = match round % 4 {
                0 => rng.between(1, 70) as u32,
                1 => 1 << rng.below(11),
                _ => rng.between(100, 2000) as u32,
            };
            let mut used = vec![0_u8; (clusters as usize).div_ceil(8)];
            rng.fill(&mut used);
            let free = (0..clusters).map(|bit| !bitmap::test(&used, bit));
            let mut naive = Naive(free.collect());
            let mut buddy = Buddy::of_used(&used, clusters);
            for _ in 0..150 {
                let at = rng.below(clusters.into()) as usize;
                let state = naive.0[at];
                let most = naive.0[at..].iter().take_while(|f| **f == state).count();
                let len = rng.between(1, most as u64) as usize;
                let run = at as u32..(at + len) as u32;
                assert_eq!(buddy.all_free(&run), state);
                assert_eq!(buddy.none_free(&run), !state);
                if state {
                    buddy.take(&run);
                } else {
                    buddy.give(&run);
                }
                naive.0[at..at + len].fill(!state);
                naive.check(&buddy);
                let anew = Buddy::of_used(&buddy.used(clusters.div_ceil(8) as usize), clusters);
                assert_eq!(anew, buddy);
                search(&mut rng, &naive, &buddy);
            }
        }
    }

    fn search(rng: &mut Rng, naive: &Naive, buddy: &Buddy) {
        let clusters = naive.0.len() as u32;
        let end = rng.between(1, u64::from(clusters) + 5) as u32;
        let goal = rng.below(u64::from(clusters) + 5) as u32;
        let len = 1 << rng.below(7) | rng.below(3) as u32;
        let inside = end.min(clusters);
        let blocks = |order: u32| (0..inside >> order).map(|at| at as usize);
        let has_block = |order| blocks(order).any(|at| naive.block_free(order, at));
        let room = if rng.one_in(2) {
            0
        } else {
            len << rng.below(4)
        };
        match buddy.near(goal, end, len, room) {
            Some(run) => {
                assert_eq!(run.end - run.start, len);
                assert!(run.end <= inside && buddy.all_free(&run));
                let order = order_of(room);
                if room > len && run.start != goal && run.start != 0 && has_block(order) {
                    assert_eq!(run.start % (1 << order), 0);
                    assert!(naive.block_free(order, (run.start >> order) as usize));
                }
            }
            None => assert!(!has_block(order_of(len))),
        }
        let longest = naive.longest(inside);
        match buddy.longest(goal, end, len) {
            Some(run) => {
                assert_eq!(run.end - run.start, len.min(longest));
                assert!(run.end <= inside && buddy.all_free(&run));
            }
            None => assert_eq!(longest, 0),
        }
    }
}
