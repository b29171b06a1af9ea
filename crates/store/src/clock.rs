//! The time of day, which can be made to stand still.
//!
//! Everything that the engine stores as a time comes from here. A process in which the clock stands
//! still writes what depends on nothing but the operations: not on the hour, and not on the CPUs it
//! happens to run on.

use extant_format::inode::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
#[cfg(not(any(
    target_os = "linux",
    all(target_family = "wasm", target_os = "unknown")
)))]
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970 at which the clock stands; this many mean that it runs.
const RUNS: u64 = u64::MAX;

/// Stored once, before there are other threads.
static STANDS_AT: AtomicU64 = AtomicU64::new(RUNS);

/// Makes the clock of this process stand still at this many seconds since 1970, for all that is
/// written from here on. For a process that has not opened any file system yet. Changes should then
/// come from one thread, into file systems that were opened without a background thread.
pub fn stand_still(seconds: u64) {
    extant_sync::keep_one_shard();
    STANDS_AT.store(seconds, Ordering::Relaxed);
}

/// Where the clock stands, in seconds since 1970; `None` while it runs.
#[inline]
#[must_use]
pub fn stands_at() -> Option<u64> {
    Some(STANDS_AT.load(Ordering::Relaxed)).filter(|seconds| *seconds != RUNS)
}

/// The time of now, as inodes store it.
#[must_use]
pub fn now() -> Timestamp {
    if let Some(seconds) = stands_at() {
        return whole(seconds);
    }
    of_system()
}

#[cfg(target_os = "linux")]
#[inline]
fn of_system() -> Timestamp {
    of(rustix::time::ClockId::Realtime)
}

#[cfg(not(target_os = "linux"))]
fn of_system() -> Timestamp {
    let since = since_1970();
    Timestamp {
        nanos: since.subsec_nanos(),
        ..whole(since.as_secs())
    }
}

/// What a clock of the system says. One before 1970 is as wrong as any: the beginning of time will
/// do.
#[cfg(target_os = "linux")]
#[inline]
fn of(clock: rustix::time::ClockId) -> Timestamp {
    let time = rustix::time::clock_gettime(clock);
    Timestamp {
        secs: time.tv_sec.max(0),
        // Below a thousand million.
        nanos: time.tv_nsec as u32,
    }
}

/// Time since 1970. A clock before that is as wrong as any: the beginning of time will do.
#[cfg(not(any(
    target_os = "linux",
    all(target_family = "wasm", target_os = "unknown")
)))]
fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The beginning of time: WebAssembly alone has no clock, and to ask the standard library for one
/// is a panic. What changes an image there makes the clock [stand still](stand_still) first.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
fn since_1970() -> Duration {
    Duration::ZERO
}

/// The time at the last tick of the system, which takes less time to read than [`now`].
#[inline]
pub fn coarse_now() -> Timestamp {
    if let Some(seconds) = stands_at() {
        return whole(seconds);
    }
    last_tick()
}

#[cfg(target_os = "linux")]
#[inline]
fn last_tick() -> Timestamp {
    of(rustix::time::ClockId::RealtimeCoarse)
}

/// The time of now, where the system has no other.
#[cfg(not(target_os = "linux"))]
fn last_tick() -> Timestamp {
    now()
}

/// Time since some moment before the first call, that in which the system slept too where it says
/// how long that was. It never runs backwards, and [`stand_still`] is nothing to it.
#[cfg(target_os = "linux")]
#[must_use]
pub fn running() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Time since the first call, without that in which the system slept.
#[cfg(not(any(
    target_os = "linux",
    all(target_family = "wasm", target_os = "unknown")
)))]
#[must_use]
pub fn running() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

/// No time passes where there is no clock.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
#[must_use]
pub fn running() -> Duration {
    Duration::ZERO
}

/// Seconds since 1970.
pub fn seconds() -> u64 {
    u64::try_from(now().secs).unwrap_or(0)
}

fn whole(seconds: u64) -> Timestamp {
    Timestamp {
        secs: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: 0,
    }
}
