//! Recording: sharded relaxed counters inside each class, and a registry that a class joins on
//! first use.

use super::{LockSnapshot, RmwSnapshot, Side, Snapshot, Times};
use crate::track::Mode;
use crate::{LockClass, RmwClass, cpu_hint};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SHARDS: usize = 8;

static LOCKS: parking_lot::Mutex<Vec<&'static LockClass>> = parking_lot::Mutex::new(Vec::new());
static ATOMICS: parking_lot::Mutex<Vec<&'static RmwClass>> = parking_lot::Mutex::new(Vec::new());

/// Puts `class` on `list` the first time it is used; one relaxed load afterwards.
fn register<T>(known: &AtomicBool, list: &parking_lot::Mutex<Vec<&'static T>>, class: &'static T) {
    if !known.load(Relaxed) && !known.swap(true, Relaxed) {
        list.lock().push(class);
    }
}

#[derive(Debug)]
struct TimesCell {
    count: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    total: AtomicU64,
}

impl TimesCell {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }

    fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Relaxed);
        self.total.fetch_add(ns, Relaxed);
        if ns < self.min.load(Relaxed) {
            self.min.fetch_min(ns, Relaxed);
        }
        if ns > self.max.load(Relaxed) {
            self.max.fetch_max(ns, Relaxed);
        }
    }

    fn fold_into(&self, times: &mut Times) {
        let count = self.count.load(Relaxed);
        if count == 0 {
            return;
        }
        let min = self.min.load(Relaxed);
        times.min_ns = if times.count == 0 {
            min
        } else {
            times.min_ns.min(min)
        };
        times.count += count;
        times.max_ns = times.max_ns.max(self.max.load(Relaxed));
        times.total_ns = times.total_ns.saturating_add(self.total.load(Relaxed));
    }

    fn reset(&self) {
        self.count.store(0, Relaxed);
        self.min.store(u64::MAX, Relaxed);
        self.max.store(0, Relaxed);
        self.total.store(0, Relaxed);
    }
}

#[derive(Debug)]
struct Shard {
    acquisitions: AtomicU64,
    squares: AtomicU64,
    acquisition_bounces: AtomicU64,
    contention_bounces: AtomicU64,
    wait: TimesCell,
    hold: TimesCell,
}

impl Shard {
    const fn new() -> Self {
        Self {
            acquisitions: AtomicU64::new(0),
            squares: AtomicU64::new(0),
            acquisition_bounces: AtomicU64::new(0),
            contention_bounces: AtomicU64::new(0),
            wait: TimesCell::new(),
            hold: TimesCell::new(),
        }
    }
}

#[derive(Debug)]
struct SideStats([CachePadded<Shard>; SHARDS]);

impl SideStats {
    const fn new() -> Self {
        Self([const { CachePadded::new(Shard::new()) }; SHARDS])
    }

    fn local(&self) -> &Shard {
        &self.0[cpu_hint() % SHARDS]
    }

    fn snapshot(&self, name: &'static str, side: Side) -> Option<LockSnapshot> {
        let mut sum = LockSnapshot {
            name,
            side,
            contention_bounces: 0,
            acquisition_bounces: 0,
            acquisitions: 0,
            squares: 0,
            wait: Times::default(),
            hold: Times::default(),
        };
        for shard in &self.0 {
            sum.acquisitions += shard.acquisitions.load(Relaxed);
            sum.squares += shard.squares.load(Relaxed);
            sum.acquisition_bounces += shard.acquisition_bounces.load(Relaxed);
            sum.contention_bounces += shard.contention_bounces.load(Relaxed);
            shard.wait.fold_into(&mut sum.wait);
            shard.hold.fold_into(&mut sum.hold);
        }
        (sum.acquisitions > 0 || sum.hold.count > 0).then_some(sum)
    }

    fn reset(&self) {
        for shard in &self.0 {
            shard.acquisitions.store(0, Relaxed);
            shard.squares.store(0, Relaxed);
            shard.acquisition_bounces.store(0, Relaxed);
            shard.contention_bounces.store(0, Relaxed);
            shard.wait.reset();
            shard.hold.reset();
        }
    }
}

/// Statistics of a lock class.
#[derive(Debug)]
pub(crate) struct ClassStats {
    known: AtomicBool,
    exclusive: SideStats,
    shared: SideStats,
}

impl ClassStats {
    pub(crate) const fn new() -> Self {
        Self {
            known: AtomicBool::new(false),
            exclusive: SideStats::new(),
            shared: SideStats::new(),
        }
    }

    fn side(&self, mode: Mode) -> &SideStats {
        match mode {
            Mode::Exclusive => &self.exclusive,
            Mode::Shared => &self.shared,
        }
    }

    /// Counts an acquisition of a lock of `class`, whose statistics these are.
    pub(crate) fn record(
        &self,
        class: &'static LockClass,
        mode: Mode,
        found: Use,
        waited: Option<Duration>,
    ) {
        register(&self.known, &LOCKS, class);
        let shard = self.side(mode).local();
        shard.acquisitions.fetch_add(1, Relaxed);
        shard.squares.fetch_add(found.adds_to_squares(), Relaxed);
        let bounced = found.bounced;
        if bounced {
            shard.acquisition_bounces.fetch_add(1, Relaxed);
        }
        if let Some(waited) = waited {
            shard.wait.record(waited);
            if bounced {
                shard.contention_bounces.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Measures how long a lock is held; recorded when dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    class: &'static LockClass,
    mode: Mode,
    since: Instant,
}

impl Hold {
    pub(crate) fn start(class: &'static LockClass, mode: Mode) -> Self {
        Self {
            class,
            mode,
            since: Instant::now(),
        }
    }

    /// Ends one hold: a condition variable is about to release the lock.
    pub(crate) fn pause(&mut self) {
        self.end();
    }

    /// Begins another hold, which counts as an acquisition.
    pub(crate) fn resume(&mut self) {
        self.class
            .stats
            .record(self.class, self.mode, Use::UNSHARED, None);
        self.since = Instant::now();
    }

    /// Ends the exclusive hold and begins a shared one.
    pub(crate) fn downgrade(&mut self) {
        self.end();
        self.mode = Mode::Shared;
        self.resume();
    }

    fn end(&self) {
        self.class
            .stats
            .side(self.mode)
            .local()
            .hold
            .record(self.since.elapsed());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
    }
}

/// Counts resets, so that what locks remember of the time before is known for old.
static ROUND: AtomicU64 = AtomicU64::new(1);

/// What a thread found when it used a lock or an atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Whether another thread had used it last.
    bounced: bool,
    /// How often it was used before.
    before: u64,
}

impl Use {
    /// The use of something that writes nothing other threads look at.
    pub(crate) const UNSHARED: Self = Self {
        bounced: false,
        before: 0,
    };

    /// What this use adds to the sum of the squares of uses.
    fn adds_to_squares(self) -> u64 {
        2 * self.before + 1
    }
}

/// Which thread used a lock or an atomic last, and how often it was used since the last reset.
///
/// One word: the low bits of the round, the thread and the count. What two threads do at once may
/// be counted once.
#[derive(Debug)]
pub(crate) struct Uses(AtomicU64);

impl Uses {
    const COUNT_BITS: u32 = 32;
    const THREAD_BITS: u32 = 20;

    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes this thread the last user.
    pub(crate) fn note(&self) -> Use {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        thread_local! {
            static THIS: u64 = u64::from(NEXT.fetch_add(1, Relaxed)) & ((1 << Uses::THREAD_BITS) - 1);
        }
        let this = THIS.try_with(|id| *id).unwrap_or(0);
        let round = ROUND.load(Relaxed) << (Self::COUNT_BITS + Self::THREAD_BITS);
        let mark = round | this << Self::COUNT_BITS;
        let word = self.0.load(Relaxed);
        let found = match (word ^ round) >> (Self::COUNT_BITS + Self::THREAD_BITS) {
            0 => Use {
                bounced: (word ^ mark) >> Self::COUNT_BITS != 0,
                before: word & ((1 << Self::COUNT_BITS) - 1),
            },
            _ => Use::UNSHARED,
        };
        let count = (found.before + 1).min((1 << Self::COUNT_BITS) - 1);
        self.0.store(mark | count, Relaxed);
        found
    }
}

/// What is counted of a class of shared atomics on one CPU.
#[derive(Debug)]
struct RmwShard {
    count: AtomicU64,
    bounces: AtomicU64,
    squares: AtomicU64,
}

/// Statistics of a class of shared atomics.
#[derive(Debug)]
pub(crate) struct RmwStats {
    known: AtomicBool,
    shards: [CachePadded<RmwShard>; SHARDS],
}

impl RmwStats {
    pub(crate) const fn new() -> Self {
        Self {
            known: AtomicBool::new(false),
            shards: [const {
                CachePadded::new(RmwShard {
                    count: AtomicU64::new(0),
                    bounces: AtomicU64::new(0),
                    squares: AtomicU64::new(0),
                })
            }; SHARDS],
        }
    }

    /// Counts a read-modify-write of an atomic of `class`, whose statistics these are.
    pub(crate) fn record(&self, class: &'static RmwClass, found: Use) {
        register(&self.known, &ATOMICS, class);
        let shard = &self.shards[cpu_hint() % SHARDS];
        shard.count.fetch_add(1, Relaxed);
        shard.bounces.fetch_add(u64::from(found.bounced), Relaxed);
        shard.squares.fetch_add(found.adds_to_squares(), Relaxed);
    }

    fn sum(&self, of: impl Fn(&RmwShard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|s| of(s).load(Relaxed)).sum()
    }
}

pub(crate) fn snapshot() -> Snapshot {
    let mut locks: Vec<_> = LOCKS
        .lock()
        .iter()
        .flat_map(|class| {
            let stats = &class.stats;
            [
                stats.exclusive.snapshot(class.name(), Side::Exclusive),
                stats.shared.snapshot(class.name(), Side::Shared),
            ]
        })
        .flatten()
        .collect();
    locks.sort_by_key(|l| std::cmp::Reverse((l.wait.count, l.acquisitions)));
    let mut atomics: Vec<_> = ATOMICS
        .lock()
        .iter()
        .map(|class| RmwSnapshot {
            name: class.name(),
            count: class.stats.sum(|s| &s.count),
            bounces: class.stats.sum(|s| &s.bounces),
            squares: class.stats.sum(|s| &s.squares),
        })
        .filter(|a| a.count > 0)
        .collect();
    atomics.sort_by_key(|a| std::cmp::Reverse(a.count));
    Snapshot { locks, atomics }
}

pub(crate) fn reset() {
    ROUND.fetch_add(1, Relaxed);
    for class in LOCKS.lock().iter() {
        class.stats.exclusive.reset();
        class.stats.shared.reset();
    }
    for class in ATOMICS.lock().iter() {
        for shard in &class.stats.shards {
            for counter in [&shard.count, &shard.bounces, &shard.squares] {
                counter.store(0, Relaxed);
            }
        }
    }
}
