//! What is kept ready for one file: runs of unused clusters, by the logical cluster they wait for.

use crate::volume::Cluster;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bits of the length of a run.
const LEN_BITS: u32 = 16;
/// Most clusters in a run.
pub(super) const MOST: u32 = (1 << LEN_BITS) - 1;

/// Clusters side by side.
pub(super) type Blocks = (Cluster, u32);

/// Clusters in one word: where they begin, which is below 2^48, and how many.
#[derive(Clone, Copy, Debug)]
struct Packed(u64);

impl Packed {
    fn new(start: u64, len: u32) -> Self {
        debug_assert!(start >> (u64::BITS - LEN_BITS) == 0 && len <= MOST);
        Self(start << LEN_BITS | u64::from(len & MOST))
    }

    fn start(self) -> u64 {
        self.0 >> LEN_BITS
    }

    fn len(self) -> u32 {
        (self.0 & u64::from(MOST)) as u32
    }
}

/// A logical cluster as a key of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u32);

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::count_comparison();
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A run and the logical cluster it waits for.
#[derive(Clone, Copy, Debug)]
struct Run {
    lblk: u32,
    blocks: Packed,
}

impl Run {
    /// One past the last logical cluster.
    fn end(self) -> u32 {
        self.lblk.saturating_add(self.blocks.len())
    }

    /// What is left of it from `lblk` on, which lies in it or at its end.
    fn from(self, lblk: u32) -> Option<Self> {
        let skip = lblk - self.lblk;
        let len = self.blocks.len().checked_sub(skip).filter(|len| *len > 0)?;
        let blocks = Packed::new(self.blocks.start() + u64::from(skip), len);
        Some(Self { lblk, blocks })
    }
}

/// The preallocations of a file.
///
/// They hold unused clusters only: a request that uses some takes them out, and the rest goes on as
/// one or two preallocations, all under the lock the tree lies in. So none is ever half used, none
/// needs a lock or a count, and no two overlap.
///
/// The one that was made last, which a file that grows goes on with, lies beside the others: for
/// such a file there is no tree at all.
#[derive(Debug, Default)]
pub(super) struct PaTree {
    recent: Option<Run>,
    others: BTreeMap<Key, Packed>,
}

impl PaTree {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.others.len() + usize::from(self.recent.is_some())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.recent.is_none() && self.others.is_empty()
    }

    /// Takes out what waits for `lblk` and up to `len` blocks from there on.
    #[inline]
    pub(super) fn take(&mut self, lblk: u32, len: u32) -> Option<Blocks> {
        if let Some(run) = self.recent
            && (run.lblk..run.end()).contains(&lblk)
        {
            let there = run.from(lblk)?.blocks;
            let len = len.min(there.len());
            self.recent = run.from(lblk + len);
            if run.lblk < lblk {
                let front = Packed::new(run.blocks.start(), lblk - run.lblk);
                self.others.insert(Key(run.lblk), front);
            }
            return Some((Cluster::new(there.start()), len));
        }
        if self.others.is_empty() {
            return None;
        }
        self.take_other(lblk, len)
    }

    fn take_other(&mut self, lblk: u32, len: u32) -> Option<Blocks> {
        let (&first, run) = self.others.range_mut(..=Key(lblk)).next_back()?;
        let skip = lblk - first.0;
        let whole = *run;
        let there = whole.len().checked_sub(skip).filter(|there| *there > 0)?;
        let len = len.min(there);
        let start = whole.start() + u64::from(skip);
        if skip > 0 {
            *run = Packed::new(whole.start(), skip);
        } else {
            self.others.remove(&first);
        }
        if len < there {
            let rest = Packed::new(start + u64::from(len), there - len);
            self.put(lblk + len, rest);
        }
        Some((Cluster::new(start), len))
    }

    /// Adds a run to those beside `recent`, or in its place if there is none.
    fn put(&mut self, lblk: u32, blocks: Packed) {
        match self.recent {
            None => self.recent = Some(Run { lblk, blocks }),
            Some(_) => drop(self.others.insert(Key(lblk), blocks)),
        }
    }

    /// Has the run that waits for `from` and begins at `start` wait for `to`, further ahead, if
    /// nothing waits for what it passes or for what it would wait for then.
    pub(super) fn move_up(&mut self, from: u32, start: Cluster, to: u32) {
        let recent = self.recent.filter(|run| run.lblk == from);
        let run = recent.map(|run| run.blocks);
        let Some(run) = run.or_else(|| self.others.get(&Key(from)).copied()) else {
            return;
        };
        let behind = from
            .checked_add(1)
            .and_then(|at| self.others.range(Key(at)..).next());
        let recent_behind = self.recent.filter(|run| run.lblk > from);
        let next = behind
            .map_or(u32::MAX, |(at, _)| at.0)
            .min(recent_behind.map_or(u32::MAX, |run| run.lblk));
        let fits = next.checked_sub(to).is_some_and(|room| room >= run.len());
        if !fits || run.start() != start.get() {
            return;
        }
        if recent.is_some() {
            self.recent = None;
        } else {
            self.others.remove(&Key(from));
        }
        self.put(to, run);
    }

    /// The logical clusters around `lblk`, which nothing waits for, up to what there is on both
    /// sides.
    pub(super) fn gap(&self, lblk: u32) -> Range<u32> {
        let (mut start, mut end) = (0, u32::MAX);
        if let Some(run) = self.recent {
            if run.lblk <= lblk {
                start = run.end()
            } else {
                end = run.lblk
            }
        }
        if self.others.is_empty() {
            return start..end;
        }
        if let Some((first, run)) = self.others.range(..=Key(lblk)).next_back() {
            start = start.max(first.0.saturating_add(run.len()));
        }
        if let Some((first, _)) = self.others.range(Key(lblk)..).next() {
            end = end.min(first.0);
        }
        start..end
    }

    /// How many blocks wait for `lblk` and those behind, in the run that begins there.
    fn len_at(&self, lblk: u32) -> Option<u32> {
        match self.recent {
            Some(run) if run.lblk == lblk => Some(run.blocks.len()),
            _ => self.others.get(&Key(lblk)).map(|run| run.len()),
        }
    }

    /// Has blocks wait for `lblk` and the blocks behind it. Calls `left` with those for whose
    /// logical blocks others wait already.
    pub(super) fn insert(&mut self, lblk: u32, blocks: Blocks, mut left: impl FnMut(Blocks)) {
        let (start, len) = blocks;
        let end = lblk.saturating_add(len);
        let mut at = lblk;
        while at < end {
            let gap = self.gap(at);
            let blocks = |from: u32, to: u32| {
                let start = start.get() + u64::from(from - lblk);
                (Cluster::new(start), to - from)
            };
            if gap.start > at {
                // Taken up to there.
                let to = gap.start.min(end);
                left(blocks(at, to));
                at = to;
            } else if gap.end == at {
                // Taken from here on.
                let len = self.len_at(at).unwrap_or(1);
                let to = at.saturating_add(len).min(end);
                left(blocks(at, to));
                at = to;
            } else {
                let to = gap.end.min(end).min(at.saturating_add(MOST));
                let (start, len) = blocks(at, to);
                let blocks = Packed::new(start.get(), len);
                if let Some(old) = self.recent.replace(Run { lblk: at, blocks }) {
                    self.others.insert(Key(old.lblk), old.blocks);
                }
                at = to;
            }
        }
    }

    /// Takes out all that waits for `lblk` and what lies behind it.
    pub(super) fn split_off(&mut self, lblk: u32) -> Vec<Blocks> {
        // The rest of what reaches over it.
        let mut out = Vec::from_iter(self.take(lblk, MOST));
        let recent = self.recent.take_if(|run| run.lblk >= lblk);
        out.extend(recent.map(|run| (Cluster::new(run.blocks.start()), run.blocks.len())));
        let behind = match lblk {
            0 => std::mem::take(&mut self.others),
            _ => self.others.split_off(&Key(lblk)),
        };
        let behind = behind.into_values();
        out.extend(behind.map(|run| (Cluster::new(run.start()), run.len())));
        out
    }

    /// Each with the logical cluster it waits for.
    #[cfg(any(test, feature = "inspect"))]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Blocks)> + '_ {
        let recent = self.recent.iter().map(|run| (run.lblk, run.blocks));
        let others = self.others.iter().map(|(lblk, run)| (lblk.0, *run));
        others
            .chain(recent)
            .map(|(lblk, run)| (lblk, (Cluster::new(run.start()), run.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Store;
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};
    use std::cell::Cell;
    use std::collections::HashMap;

    extant_sync::thread_local! {
        /// Keys that this thread has compared.
        static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn count_comparison() {
        COMPARISONS.with(|count| count.set(count.get() + 1));
    }

    /// Keys compared by a call, on the average, while `live` wait: each asks for a block anywhere
    /// and splits a run of three, and another one comes.
    fn comparisons(live: u32, rng: &mut Rng) -> f64 {
        const CALLS: u32 = 10_000;
        let mut tree = PaTree::default();
        let run = |at: u32| (Cluster::new(u64::from(at) * 8), 3);
        let stride = |i: u32| i * 8;
        for i in 0..live {
            tree.insert(stride(i), run(i), |_| unreachable!());
        }
        let mut total = 0;
        let mut end = live;
        for _ in 0..CALLS {
            let at = rng.below(u64::from(live) - 1) as u32;
            let before = COMPARISONS.with(Cell::get);
            // The search for neighbours, use of the middle, and what takes its place.
            let gap = tree.gap(stride(at) + 5);
            let middle = tree.take(stride(at) + 1, 1);
            tree.insert(stride(end), run(end), |_| unreachable!());
            total += COMPARISONS.with(Cell::get) - before;
            assert!(gap.start == stride(at) + 3 && gap.end == stride(at + 1));
            end += 1;
            // As many as before.
            if let Some((start, len)) = middle {
                assert_eq!((start.get(), len), (u64::from(at) * 8 + 1, 1));
                tree.insert(stride(at) + 1, (start, len), |_| unreachable!());
                for part in 0..3 {
                    tree.take(stride(at) + part, 1).unwrap();
                }
                tree.insert(stride(at), run(at), |_| unreachable!());
            }
            tree.take(stride(end - 1), 3).unwrap();
            end -= 1;
            assert_eq!(tree.len(), live as usize);
        }
        total as f64 / f64::from(CALLS)
    }

    #[test]
    fn a_call_costs_as_the_logarithm_of_how_many_are_alive() {
        let mut rng = Rng::new(seed_from_env("alloc_pa_tree_growth"));
        let of = [1_000, 10_000, 100_000, 1_000_000].map(|live| comparisons(live, &mut rng));
        println!("keys compared by a call with 1e3 to 1e6 alive: {of:.1?}");
        // Ten times as many add a level of the tree, or two.
        assert!(of.windows(2).all(|pair| pair[1] <= pair[0] * 1.6), "{of:?}");
    }

    #[test]
    fn it_holds_what_a_map_of_single_blocks_holds() {
        compare_with_a_map(Store::default);
    }

    #[test]
    #[cfg(feature = "baseline")]
    fn so_does_the_list_it_is_compared_with() {
        use crate::alloc::baseline::list::PaList;
        compare_with_a_map(|| Store::List(PaList::new(usize::MAX)));
        let mut short = PaList::new(3);
        let mut left = Vec::new();
        for i in 0..5 {
            short.insert(i * 10, (Cluster::new(i.into()), 2), |blocks| {
                left.push(blocks)
            });
        }
        assert_eq!(left, [(Cluster::new(0), 2), (Cluster::new(1), 2)]);
    }

    fn compare_with_a_map(new: impl Fn() -> Store) {
        let mut rng = Rng::new(seed_from_env("alloc_pa_tree"));
        for _ in 0..20 {
            let mut tree = new();
            let mut naive: HashMap<u32, u64> = HashMap::new();
            let mut next = 1 << 40;
            for _ in 0..600 {
                let lblk = rng.below(400) as u32;
                match rng.below(10) {
                    0..5 => {
                        let len = rng.between(1, 60) as u32;
                        let mut left = HashMap::new();
                        tree.insert(lblk, (Cluster::new(next), len), |(start, len)| {
                            for block in start.get()..start.get() + u64::from(len) {
                                assert_eq!(left.insert(block, ()), None);
                            }
                        });
                        for i in 0..len {
                            let block = next + u64::from(i);
                            // The first one stays.
                            let waits = *naive.entry(lblk + i).or_insert(block);
                            assert_eq!(left.remove(&block), (waits != block).then_some(()));
                        }
                        assert!(left.is_empty());
                        next += 1000;
                    }
                    5..9 => {
                        let len = rng.between(1, 30) as u32;
                        match tree.take(lblk, len) {
                            Some((start, got)) => {
                                assert!(got >= 1 && got <= len);
                                for i in 0..got {
                                    let block = start.get() + u64::from(i);
                                    assert_eq!(naive.remove(&(lblk + i)), Some(block));
                                }
                            }
                            None => assert!(!naive.contains_key(&lblk)),
                        }
                    }
                    _ if rng.one_in(20) => {
                        for (start, len) in tree.split_off(lblk) {
                            for block in start.get()..start.get() + u64::from(len) {
                                let at = naive.iter().find(|(_, b)| **b == block).map(|(l, _)| *l);
                                assert!(at.is_some_and(|at| at >= lblk));
                                naive.remove(&at.unwrap());
                            }
                        }
                        assert!(naive.keys().all(|at| *at < lblk));
                    }
                    _ => {}
                }
                check(&tree, &naive);
            }
        }
    }

    fn check(tree: &Store, naive: &HashMap<u32, u64>) {
        let mut blocks = 0;
        for (lblk, (start, len)) in tree.iter() {
            for i in 0..len {
                assert_eq!(naive.get(&(lblk + i)), Some(&(start.get() + u64::from(i))));
            }
            blocks += len as usize;
        }
        assert_eq!(blocks, naive.len());
        for lblk in (0..460).step_by(7).filter(|lblk| !naive.contains_key(lblk)) {
            let gap = tree.gap(lblk);
            assert!(gap.contains(&lblk));
            assert!(gap.clone().take(500).all(|at| !naive.contains_key(&at)));
            assert!(gap.start == 0 || naive.contains_key(&(gap.start - 1)));
            assert!(gap.end == u32::MAX || naive.contains_key(&gap.end));
        }
    }

    #[test]
    fn a_run_moves_up_unless_others_wait_there() {
        let mut tree = PaTree::default();
        let none = |_| unreachable!();
        tree.insert(10, (Cluster::new(100), 5), none);
        tree.insert(30, (Cluster::new(200), 5), none);
        tree.move_up(10, Cluster::new(100), 12);
        assert_eq!(tree.take(12, 1), Some((Cluster::new(100), 1)));
        tree.move_up(13, Cluster::new(101), 26);
        assert_eq!(tree.take(26, 9), Some((Cluster::new(101), 4)));
        tree.insert(10, (Cluster::new(100), 5), none);
        for to in [26, 31, 35, u32::MAX] {
            tree.move_up(10, Cluster::new(100), to);
        }
        tree.move_up(10, Cluster::new(101), 11);
        tree.move_up(11, Cluster::new(100), 12);
        let mut all: Vec<_> = tree.iter().collect();
        all.sort_unstable_by_key(|(lblk, _)| *lblk);
        assert_eq!(
            all,
            [(10, (Cluster::new(100), 5)), (30, (Cluster::new(200), 5))]
        );
    }

    #[test]
    fn a_preallocation_takes_96_bytes_at_most() {
        /// Single blocks that wait with a gap between each other, as sparse writing leaves them:
        /// then the nodes of the tree are as empty as they get.
        const LIVE: u32 = 2_000_000;
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
            pages * 4096
        };
        let before = resident();
        let mut tree = PaTree::default();
        for i in 0..LIVE {
            tree.insert(
                i * 2,
                (Cluster::new(u64::from(i) * 3), 1),
                |_| unreachable!(),
            );
        }
        assert_eq!(tree.len(), LIVE as usize);
        // Other tests take memory too meanwhile, but not as much.
        let each = resident().saturating_sub(before) / u64::from(LIVE);
        println!("{each} bytes for each preallocation");
        assert!(each <= 96, "{each}");
    }
}
