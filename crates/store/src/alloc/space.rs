//! How many blocks a request may take: exact, and without a lock while there is plenty.
//!
//! The blocks that may be taken lie in three kinds of places: near each CPU a few, in a common pool
//! most, and, set aside, the reserve, which few may have, and the last blocks of it nobody but the
//! engine. Taking is subtracting from one of them, so more is never given out than there is. While
//! the pool is low nothing stays near a CPU, and a request that finds too little collects what
//! does: so a refusal is exact.
//!
//! This decides how many; which ones is found afterwards in the groups' bitmaps.

use super::share::Share;
use extant_sync::{CountedAtomicI64, LockClass, Mutex, PerCpu, Rank, RmwClass};
use std::sync::atomic::Ordering;

static NEAR: RmwClass = RmwClass::new("free blocks near a CPU");
static POOL: RmwClass = RmwClass::new("free blocks pool");
static COLLECT: LockClass = LockClass::new("free blocks collect", Rank::Leaf);

/// Most blocks that move between the pool and a CPU at once.
const MAX_CHUNK: i64 = 1024;
/// Chunks near a CPU before some go back.
const MOST_CHUNKS: i64 = 8;

/// The blocks that may be taken.
#[derive(Debug)]
pub(super) struct Space {
    near: PerCpu<CountedAtomicI64>,
    /// Negative after blocks turned out to be lost that somebody has taken.
    pool: CountedAtomicI64,
    /// What is not for everybody: at most `reserve_full`.
    reserve: CountedAtomicI64,
    reserve_full: i64,
    /// Of these, the last ones: for finishing what was begun.
    last: i64,
    chunk: i64,
    /// Blocks in the pool from which on some stay near CPUs.
    plenty: i64,
    /// One thread at a time collects, or fills the reserve.
    collecting: Mutex<()>,
}

impl Space {
    /// `free` blocks, of which `reserved` are not for everybody, and of those the `last` ones for
    /// the engine alone.
    pub(super) fn new(free: u64, reserved: u64, last: u64) -> Self {
        let free = i64::try_from(free).unwrap_or(i64::MAX);
        let reserve_full = i64::try_from(reserved).unwrap_or(i64::MAX);
        let near = PerCpu::new(|_| CountedAtomicI64::new(&NEAR, 0));
        let shards = near.len() as i64;
        let chunk = (free / (shards * 64)).clamp(1, MAX_CHUNK);
        let reserve = free.min(reserve_full);
        Self {
            near,
            pool: CountedAtomicI64::new(&POOL, free - reserve),
            reserve: CountedAtomicI64::new(&POOL, reserve),
            reserve_full,
            last: i64::try_from(last).unwrap_or(i64::MAX),
            chunk,
            plenty: chunk * shards * MOST_CHUNKS,
            collecting: Mutex::new(&COLLECT, ()),
        }
    }

    /// Takes `want` blocks, or fewer if there are not as many, but at least `min`. `None` if there
    /// are fewer than that. `share` is asked only when it matters.
    pub(super) fn take(&self, min: u32, want: u32, share: impl FnOnce() -> Share) -> Option<u32> {
        let near = self.near.local();
        if take_all(near, want.into(), 0) {
            return Some(want);
        }
        let more = i64::from(want) + self.chunk;
        if take_all(&self.pool, more, self.plenty) {
            near.fetch_add(self.chunk, Ordering::Relaxed);
            return Some(want);
        }
        self.take_exactly(min.into(), want.into(), share())
            .and_then(|taken| u32::try_from(taken).ok())
    }

    /// Takes `blocks` blocks, if that leaves plenty.
    pub(super) fn take_spare(&self, blocks: u32) -> bool {
        let blocks = i64::from(blocks);
        take_all(self.near.local(), blocks, 0) || take_all(&self.pool, blocks, self.plenty)
    }

    #[cold]
    fn take_exactly(&self, min: i64, want: i64, share: Share) -> Option<i64> {
        let _alone = self.collecting.lock();
        self.collect();
        self.absorb_losses();
        let taken = take_some(&self.pool, want, 0);
        let mut more = match share {
            Share::Open => 0,
            Share::Reserve | Share::All => take_some(&self.reserve, want - taken, self.last),
        };
        if share == Share::All {
            // Of the last ones no more than is needed: others may need one too.
            let needed = (min - taken - more).max(0);
            more += take_some(&self.reserve, needed, 0);
        }
        if taken + more >= min {
            return Some(taken + more);
        }
        self.pool.fetch_add(taken, Ordering::Relaxed);
        self.reserve.fetch_add(more, Ordering::Relaxed);
        None
    }

    /// Makes up from the reserve for granted blocks that were lost.
    fn absorb_losses(&self) {
        let missing = -self.pool.load(Ordering::Relaxed);
        if missing > 0 {
            let found = take_some(&self.reserve, missing, 0);
            self.pool.fetch_add(found, Ordering::Relaxed);
        }
    }

    fn collect(&self) {
        for near in self.near.iter() {
            if near.load(Ordering::Relaxed) != 0 {
                let found = near.swap(0, Ordering::Relaxed);
                self.pool.fetch_add(found, Ordering::Relaxed);
            }
        }
    }

    /// Gives blocks back. The reserve is filled first.
    pub(super) fn give(&self, blocks: u32) {
        let mut left = i64::from(blocks);
        if left == 0 {
            return;
        }
        if self.reserve.load(Ordering::Relaxed) < self.reserve_full {
            let _alone = self.collecting.lock();
            let missing = self.reserve_full - self.reserve.load(Ordering::Relaxed);
            let part = left.min(missing.max(0));
            self.reserve.fetch_add(part, Ordering::Relaxed);
            left -= part;
        }
        if self.pool.load(Ordering::Relaxed) < self.plenty {
            self.pool.fetch_add(left, Ordering::Relaxed);
            return;
        }
        let near = self.near.local();
        let now = near.fetch_add(left, Ordering::Relaxed) + left;
        let most = self.chunk * MOST_CHUNKS;
        if now > most && take_all(near, now - most / 2, 0) {
            self.pool.fetch_add(now - most / 2, Ordering::Relaxed);
        }
    }

    /// Takes out blocks that can never be found: those of a group that turned out to be damaged.
    /// What the pool does not have of them is missing from what lies near CPUs, and then from the
    /// reserve, so that none is granted that is not there.
    pub(super) fn lose(&self, blocks: u32) {
        let _alone = self.collecting.lock();
        self.collect();
        self.pool.fetch_sub(blocks.into(), Ordering::Relaxed);
        self.absorb_losses();
    }

    /// All blocks that may be taken by someone. Exact while nobody takes or gives.
    pub(super) fn total(&self) -> i64 {
        let near: i64 = self.near.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        near + self.pool.load(Ordering::Relaxed) + self.reserve.load(Ordering::Relaxed)
    }

    /// The lowest count of all places.
    pub(super) fn least(&self) -> i64 {
        let near = self.near.iter();
        let all = near.chain([&self.pool, &self.reserve]);
        all.map(|n| n.load(Ordering::Relaxed)).min().unwrap_or(0)
    }
}

/// Subtracts `blocks`, if at least `rest` stay.
fn take_all(from: &CountedAtomicI64, blocks: i64, rest: i64) -> bool {
    let mut now = from.load(Ordering::Relaxed);
    while now >= blocks.saturating_add(rest) {
        match from.compare_exchange_weak(now, now - blocks, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(changed) => now = changed,
        }
    }
    false
}

/// Subtracts up to `most` blocks, of which `rest` stay, and says how many there were.
fn take_some(from: &CountedAtomicI64, most: i64, rest: i64) -> i64 {
    let mut now = from.load(Ordering::Relaxed);
    loop {
        let taken = now.saturating_sub(rest).clamp(0, most);
        match from.compare_exchange_weak(now, now - taken, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return taken,
            Err(changed) => now = changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};
    use std::sync::Arc;

    fn take_all_of(space: &Space, share: Share) -> u64 {
        std::iter::from_fn(|| space.take(1, 700, || share))
            .map(u64::from)
            .sum()
    }

    #[test]
    fn refusals_are_exact_and_each_share_ends_where_it_should() {
        for free in [0_u64, 1, 100, 5000, 1 << 20] {
            let reserved = free / 20;
            let last = reserved / 3;
            let space = Space::new(free, reserved, last);
            assert_eq!(take_all_of(&space, Share::Open), free - reserved);
            assert_eq!(space.take(1, 1, || Share::Open), None);
            assert_eq!(take_all_of(&space, Share::Reserve), reserved - last);
            assert_eq!(space.take(1, 1, || Share::Reserve), None);
            assert_eq!(take_all_of(&space, Share::All), last);
            // What comes back fills the reserve first, its last blocks before all others.
            for back in 1..=reserved.min(30) {
                space.give(1);
                assert_eq!(space.take(1, 1, || Share::Open), None);
                let is_more = back > last;
                assert_eq!(space.take(1, 1, || Share::Reserve).is_some(), is_more);
                if is_more {
                    space.give(1);
                }
            }
        }
    }

    #[test]
    fn a_request_gets_what_there_is_but_never_less_than_it_needs() {
        let space = Space::new(10, 0, 0);
        assert_eq!(space.take(11, 20, || Share::Open), None);
        assert_eq!(space.take(4, 20, || Share::Open), Some(10));
        space.give(10);
        assert_eq!(space.total(), 10);
    }

    #[test]
    fn lost_blocks_are_granted_to_nobody() {
        // Some lie near a CPU, and more than the pool has is lost.
        let space = Space::new(100_000, 1000, 10);
        assert_eq!(space.take(98_000, 98_000, || Share::Open), Some(98_000));
        let near = 98_000 + u64::from(space.take(1, 1, || Share::Open).unwrap());
        space.lose(1500);
        assert_eq!(space.total(), 100_000 - near as i64 - 1500);
        let left = space.total() as u64;
        assert_eq!(take_all_of(&space, Share::Open), 0);
        assert_eq!(take_all_of(&space, Share::Reserve), left - 10);
        assert_eq!(take_all_of(&space, Share::All), 10);
        // More than there is: what comes back pays for that first.
        space.lose(30);
        space.give(29);
        assert_eq!(space.take(1, 1, || Share::All), None);
        space.give(3);
        assert_eq!(take_all_of(&space, Share::All), 2);
    }

    #[test]
    fn of_the_last_blocks_a_wish_gets_what_it_needs() {
        let space = Space::new(100, 20, 8);
        assert_eq!(take_all_of(&space, Share::Reserve), 92);
        assert_eq!(space.take(1, 100, || Share::All), Some(1));
        assert_eq!(space.take(8, 8, || Share::All), None);
        assert_eq!(space.take(7, 9, || Share::All), Some(7));
        assert_eq!(space.take(1, 1, || Share::All), None);
    }

    #[test]
    fn threads_take_every_block_once() {
        let seed = seed_from_env("alloc_space");
        for free in [3000_u64, 300_000] {
            let space = Arc::new(Space::new(free, 100, 20));
            let left: i64 = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..4)
                    .map(|i| {
                        let space = Arc::clone(&space);
                        scope.spawn(move || {
                            let mut rng = Rng::new(seed ^ i);
                            let mut mine = 0_i64;
                            for _ in 0..20_000 {
                                let n = rng.between(1, 200) as u32;
                                if rng.one_in(2) {
                                    let all =
                                        [Share::Open, Share::Open, Share::Reserve, Share::All];
                                    let share = *rng.pick(&all);
                                    mine += i64::from(space.take(1, n, || share).unwrap_or(0));
                                } else {
                                    let n = i64::from(n).min(mine);
                                    space.give(n as u32);
                                    mine -= n;
                                }
                                assert!(mine >= 0 && mine <= free as i64);
                            }
                            mine
                        })
                    })
                    .collect();
                workers.into_iter().map(|w| w.join().unwrap()).sum()
            });
            assert_eq!(space.total() + left, free as i64, "seed {seed}");
        }
    }
}
