//! Times that writes leave behind, and what they take away.

use super::WriteOptions;
use super::cache::FileCache;
use crate::Result;
use crate::fs::Fs;
use crate::inode::{Held, LiveInode, Mode, Timestamp};
use extant_format::inode::Inode as DiskInode;
use extant_sync::pin;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

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
fn coarse_now() -> Timestamp {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp {
        secs: time.tv_sec,
        // Below a thousand million.
        nanos: time.tv_nsec as u32,
    }
}

/// Notes in memory that bytes are being overwritten in place, once a tick: so nothing that others read is
/// stored to in between. The record gets the time when the file is written back, or with its next change.
pub(super) fn note_lazily(live: &Arc<LiveInode>, file: &FileCache) {
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
pub(super) fn stamp(disk: &mut DiskInode, time: Timestamp, options: WriteOptions) {
    disk.mtime = time;
    disk.ctime = time;
    if options.clear_set_ids {
        disk.mode = without_set_ids(disk.mode);
    }
}

/// Notes that bytes are about to be overwritten in place, with a handle only if the last one who did
/// so was not in the same tick.
pub(super) fn note_write(fs: &Fs, held: &Held, options: WriteOptions) -> Result<()> {
    let time = now();
    let image = held.snapshot();
    let disk = image.disk();
    let keeps_mode = !options.clear_set_ids || without_set_ids(disk.mode) == disk.mode;
    if keeps_mode && is_recent(disk.mtime, time) {
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

/// The mode without the bits that give a program the rights of its owner.
pub(super) fn without_set_ids(mode: Mode) -> Mode {
    let mut cleared = mode.bits() & !SET_UID;
    if mode.bits() & GROUP_EXECUTE != 0 {
        cleared &= !SET_GID;
    }
    Mode::from_bits(cleared)
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

    #[test]
    fn set_group_id_without_group_execute_means_something_else_and_stays() {
        let cleared = |bits: u16| without_set_ids(Mode::from_bits(0o100_000 | bits)).bits();
        assert_eq!(cleared(0o6755), 0o100_755);
        assert_eq!(cleared(0o6745), 0o102_745);
    }
}
