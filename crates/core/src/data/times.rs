//! Times that writes leave behind.

use super::WriteOptions;
use super::cache::FileCache;
use crate::Result;
use crate::fs::Fs;
use crate::inode::{Held, LiveInode, Timestamp, Writer};
use extant_format::inode::Inode as DiskInode;
use extant_sync::pin;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How old the time of the last change may be when bytes are overwritten in place: one tick of a clock
/// as kernels keep it, and as much more as [`coarse_now`] is behind. So overwrites touch the inode's record once a tick and
/// not each time.
const TICK: Duration = Duration::from_millis(4);
/// How far [`coarse_now`] may be behind: the longest tick that Linux has.
const LAG: Duration = Duration::from_millis(10);

/// The time of now, as inodes store it.
pub fn now() -> Timestamp {
    // A clock before 1970 is as wrong as any: the beginning of time will do.
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos(),
    }
}

/// The time at the last tick of the system, which takes less time to read than [`now`].
pub(crate) fn coarse_now() -> Timestamp {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp {
        secs: time.tv_sec,
        // Below a thousand million.
        nanos: time.tv_nsec as u32,
    }
}

/// Notes in memory that bytes are being overwritten in place, once a tick: so nothing that others read is
/// stored to in between. The record gets the time when the file is written back, or with its next change.
pub(super) fn note_lazily(live: &Arc<LiveInode>, file: &FileCache, options: WriteOptions<'_>) {
    if !leaves_time(options) {
        return;
    }
    let last = file
        .time()
        .unwrap_or_else(|| live.image(&pin()).disk().mtime);
    // Stored by the exact clock, it may lie ahead of the other.
    let recent = -(LAG.as_nanos() as i128)..TICK.as_nanos() as i128;
    if !recent.contains(&age(last, coarse_now())) {
        file.set_time(now());
        file.list(live);
    }
}

/// Notes in a record that its content changes.
pub(super) fn stamp(disk: &mut DiskInode, time: Timestamp, options: WriteOptions<'_>) {
    if leaves_time(options) {
        disk.mtime = time;
        disk.ctime = time;
    }
}

/// Whether a write is dated by when it is done.
pub(super) fn leaves_time(options: WriteOptions<'_>) -> bool {
    !matches!(options.writer, Writer::Earlier)
}

/// Notes that bytes are about to be overwritten in place, with a handle only if the last one who did
/// so was not in the same tick.
pub(super) fn note_write(fs: &Fs, held: &Held, options: WriteOptions<'_>) -> Result<()> {
    let time = now();
    if !leaves_time(options) || is_recent(held.snapshot().disk().mtime, time) {
        return Ok(());
    }
    let handle = fs.start(1)?;
    held.live().update(&handle, |inode| {
        stamp(inode.disk_mut(), time, options);
    })
}

/// Whether `last` is less than a tick before `now`.
fn is_recent(last: Timestamp, now: Timestamp) -> bool {
    (0..TICK.as_nanos() as i128).contains(&age(last, now))
}

/// Nanoseconds from `last` to `now`.
fn age(last: Timestamp, now: Timestamp) -> i128 {
    let nanos = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    nanos(now) - nanos(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_recent_for_a_tick_and_never_when_it_lies_ahead() {
        let at = |nanos| Timestamp { secs: 5, nanos };
        assert!(is_recent(at(0), at(3_999_999)));
        assert!(!is_recent(at(0), at(4_000_000)));
        assert!(!is_recent(at(1), at(0)));
        assert!(is_recent(at(999_999_999), Timestamp { secs: 6, nanos: 0 }));
    }
}
