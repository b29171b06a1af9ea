//! Times that writes leave behind.

use crate::Result;
use crate::clock::{coarse_now, now};
use crate::data::cache::FileCache;
use crate::data::io::WriteOptions;
use crate::fs::Fs;
use crate::inode::{Actor, Held, LiveInode, Timestamp};
use extant_format::inode::Inode as DiskInode;
use extant_sync::pin;
use std::sync::Arc;

/// How old the time of the last change may be when bytes are overwritten with a handle: one tick of
/// a clock as kernels keep it. So they touch the inode's record once a tick and not each time.
const TICK_NANOS: i64 = 4_000_000;
/// How far [`coarse_now`] may be behind: the longest tick that Linux has.
const LAG_NANOS: i64 = 10_000_000;

/// Nanoseconds from 1970 to `time`; of times after 2262, the most there are.
#[inline]
pub(super) fn nanos_of(time: Timestamp) -> i64 {
    let nanos = time.secs.saturating_mul(1_000_000_000);
    nanos.saturating_add(time.nanos.into())
}

/// Notes in memory that bytes are being overwritten in place, once a tick: so nothing that others
/// read is stored to in between. The record gets the time when the file is written back, or with
/// its next change.
#[inline]
pub(super) fn note_lazily(live: &Arc<LiveInode>, file: &FileCache, options: WriteOptions<'_>) {
    if !leaves_time(options) {
        return;
    }
    let last = file
        .time_nanos()
        .unwrap_or_else(|| nanos_of(live.image(&pin()).disk().mtime));
    // The time of the tick, not of now: of two files that are written to in turn the later one
    // never looks older. What others stored by the exact clock may lie ahead of it.
    let tick = coarse_now();
    if !(-LAG_NANOS..=0).contains(&nanos_of(tick).saturating_sub(last)) {
        file.set_time(tick);
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

/// Tells whether a write is dated by when it is done.
pub(super) fn leaves_time(options: WriteOptions<'_>) -> bool {
    !matches!(options.actor, Actor::Earlier)
}

/// Notes that bytes are about to be overwritten in place, with a handle only if the last write that
/// did so was not in the same tick.
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

/// Tells whether `last` is less than a tick before `now`.
fn is_recent(last: Timestamp, now: Timestamp) -> bool {
    (0..TICK_NANOS).contains(&nanos_of(now).saturating_sub(nanos_of(last)))
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
