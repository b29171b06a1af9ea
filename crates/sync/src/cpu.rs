//! State spread over CPUs.
//!
//! A thread may move to another CPU at any moment, so the CPU number is a hint that spreads load,
//! never a licence: each shard is itself atomic or locked.

use crate::backend::atomic::{AtomicI64, Ordering};
use crate::backend::{self, IS_MODEL};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::sync::OnceLock;

/// Most shards a per-CPU structure has.
const MAX_SHARDS: usize = 256;
/// CPUs that have a shard each whatever quota there is.
#[cfg(target_os = "linux")]
const FEW_CPUS: u32 = 8;

/// The CPU this thread ran on a short while ago.
///
/// Read from the system once in 256 calls of a thread; otherwise a thread-local load.
#[inline]
#[must_use]
pub fn cpu_hint() -> usize {
    backend::cpu_hint()
}

static COUNT: OnceLock<usize> = OnceLock::new();

/// Gives per-CPU structures one shard each, so that nothing depends on which CPU a thread runs on
/// or on how many there are. For a process that has made none yet: afterwards it changes nothing.
pub fn keep_one_shard() {
    let _ = COUNT.set(1);
}

/// How many shards per-CPU structures have: a power of two, at least the number of CPUs this
/// process may use, at most 256; one after [`keep_one_shard`].
#[must_use]
pub fn shard_count() -> usize {
    if IS_MODEL {
        return 2;
    }
    *COUNT.get_or_init(|| cpus().next_power_of_two().min(MAX_SHARDS))
}

/// How many CPUs this process may use. Whether a quota leaves it fewer takes a dozen files of the
/// system to find out, and is not asked where there are few anyway.
fn cpus() -> usize {
    #[cfg(target_os = "linux")]
    if let Ok(set) = rustix::thread::sched_getaffinity(None)
        && (1..=FEW_CPUS).contains(&set.count())
    {
        return set.count() as usize;
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One `T` per shard, each on cache lines of its own.
pub struct PerCpu<T> {
    /// A power of two of them.
    shards: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// Makes each shard with `make`, which gets the shard's number.
    #[must_use]
    pub fn new(make: impl FnMut(usize) -> T) -> Self {
        Self {
            shards: (0..shard_count()).map(make).map(CachePadded::new).collect(),
        }
    }

    /// The number of the shard of the CPU this thread probably runs on.
    #[inline]
    #[must_use]
    pub fn local_index(&self) -> usize {
        cpu_hint() & (self.shards.len() - 1)
    }

    /// The shard of the CPU this thread probably runs on.
    #[inline]
    #[must_use]
    pub fn local(&self) -> &T {
        &self.shards[self.local_index()]
    }

    /// The shard that `index`, from [`local_index`](Self::local_index), is the number of.
    #[inline]
    pub(crate) fn local_shard(&self, index: usize) -> &T {
        &self.shards[index]
    }

    /// The shard of that number, if there is one.
    #[inline]
    #[must_use]
    pub fn get(&self, shard: usize) -> Option<&T> {
        self.shards.get(shard).map(|s| &**s)
    }

    /// All shards, in order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.shards.iter().map(|s| &**s)
    }

    /// All shards, when nobody else can use them.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.shards.iter_mut().map(|s| &mut **s)
    }

    /// How many shards there are. Never 0.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.len()
    }
}

impl<T: Default> Default for PerCpu<T> {
    fn default() -> Self {
        Self::new(|_| T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A signed counter that threads on different CPUs add to without sharing a cache line.
///
/// Wraps around at the ends of `i64`.
pub struct ShardedCounter {
    shards: PerCpu<AtomicI64>,
}

impl ShardedCounter {
    /// A counter at 0.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: PerCpu::default(),
        }
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.shards.local().fetch_add(n, Ordering::Relaxed);
    }

    /// Adds 1.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes 1 away.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// The sum of all additions that happened before, and perhaps some that happen meanwhile.
    /// May be below what any moment held while others add.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.shards.iter().fold(0, |sum, shard| {
            sum.wrapping_add(shard.load(Ordering::Relaxed))
        })
    }

    /// [`sum`](Self::sum), for counts that cannot truly be negative.
    #[must_use]
    pub fn count(&self) -> u64 {
        u64::try_from(self.sum()).unwrap_or(0)
    }

    /// Sets the counter to 0 and returns what it held. Additions that happen meanwhile are in
    /// the result or stay in the counter; none is lost.
    pub fn take(&self) -> i64 {
        self.shards.iter().fold(0, |sum, shard| {
            sum.wrapping_add(shard.swap(0, Ordering::Relaxed))
        })
    }
}

impl Default for ShardedCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ShardedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardedCounter").field(&self.sum()).finish()
    }
}
