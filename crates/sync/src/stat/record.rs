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
    acquisition_bounces: AtomicU64,
    contention_bounces: AtomicU64,
    wait: TimesCell,
    hold: TimesCell,
}

impl Shard {
    const fn new() -> Self {
        Self {
            acquisitions: AtomicU64::new(0),
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
            wait: Times::default(),
            hold: Times::default(),
        };
        for shard in &self.0 {
            sum.acquisitions += shard.acquisitions.load(Relaxed);
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
        bounced: bool,
        waited: Option<Duration>,
    ) {
        register(&self.known, &LOCKS, class);
        let shard = self.side(mode).local();
        shard.acquisitions.fetch_add(1, Relaxed);
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
        self.class.stats.record(self.class, self.mode, false, None);
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

/// Which thread acquired a lock last.
#[derive(Debug)]
pub(crate) struct LastOwner(AtomicU32);

impl LastOwner {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Makes this thread the last owner; whether another thread was.
    pub(crate) fn bounced(&self) -> bool {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        thread_local! {
            static THIS: u32 = NEXT.fetch_add(1, Relaxed);
        }
        let this = THIS.try_with(|id| *id).unwrap_or(0);
        let last = self.0.load(Relaxed);
        if last != this {
            self.0.store(this, Relaxed);
        }
        last != this && last != 0
    }
}

/// Statistics of a class of shared atomics.
#[derive(Debug)]
pub(crate) struct RmwStats {
    known: AtomicBool,
    shards: [CachePadded<AtomicU64>; SHARDS],
}

impl RmwStats {
    pub(crate) const fn new() -> Self {
        Self {
            known: AtomicBool::new(false),
            shards: [const { CachePadded::new(AtomicU64::new(0)) }; SHARDS],
        }
    }

    /// Counts a read-modify-write of an atomic of `class`, whose statistics these are.
    pub(crate) fn record(&self, class: &'static RmwClass) {
        register(&self.known, &ATOMICS, class);
        self.shards[cpu_hint() % SHARDS].fetch_add(1, Relaxed);
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
            count: class.stats.shards.iter().map(|s| s.load(Relaxed)).sum(),
        })
        .filter(|a| a.count > 0)
        .collect();
    atomics.sort_by_key(|a| std::cmp::Reverse(a.count));
    Snapshot { locks, atomics }
}

pub(crate) fn reset() {
    for class in LOCKS.lock().iter() {
        class.stats.exclusive.reset();
        class.stats.shared.reset();
    }
    for class in ATOMICS.lock().iter() {
        for shard in &class.stats.shards {
            shard.store(0, Relaxed);
        }
    }
}
