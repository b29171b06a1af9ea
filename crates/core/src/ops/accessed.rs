//! Times of access: when reading notes the time, and how.
//!
//! No reader waits for that, nor does a read fail for it: where nothing may be changed now, or the
//! record cannot be changed, the time is not noted.

use super::naming::now;
use crate::data::coarse_now;
use crate::fs::{AccessPolicy, AccessTimes, Fs};
use crate::inode::{Held, Inode, Timestamp};
use extant_format::inode::InodeFlags;
use extant_sync::pin;

/// Seconds after which a time of access is old, whatever happened since.
const DAY: i64 = 24 * 60 * 60;
/// How much older than now a time of access is at least when each access counts: a tick of a clock
/// as kernels keep it.
const TICK_NANOS: i128 = 4_000_000;

/// Notes that somebody has read from an inode, if that is due.
#[inline]
pub(super) fn accessed(fs: &Fs, held: &Held) {
    let policy = fs.access_policy();
    if policy.when != AccessTimes::Never && is_due(policy, held.image(&pin())) {
        note(fs, policy, held);
    }
}

/// Notes that an inode was read, of which the caller has an image only.
pub(super) fn accessed_by_image(fs: &Fs, inode: &Inode) {
    let policy = fs.access_policy();
    if policy.when != AccessTimes::Never
        && is_due(policy, inode)
        && let Ok(held) = fs.hold_same(inode.id())
    {
        note(fs, policy, &held);
    }
}

#[cold]
fn note(fs: &Fs, policy: AccessPolicy, held: &Held) {
    let Some(_changing) = fs.try_begin_change() else {
        return;
    };
    let time = now();
    let set = |inode: &mut Inode| {
        // Somebody else may have come first.
        if is_due(policy, inode) {
            inode.disk_mut().atime = time;
        }
    };
    let noted = if policy.lazy {
        fs.note_lazily(held, set)
    } else {
        fs.start(1)
            .and_then(|handle| held.live().update(&handle, set))
    };
    if let Err(error) = noted {
        crate::event!(debug, %error, "the time of access to inode {} was not noted", held.ino());
    }
}

/// Tells whether an access now is to be noted.
fn is_due(policy: AccessPolicy, inode: &Inode) -> bool {
    if inode.flags().contains(InodeFlags::NO_ATIME) || (inode.is_dir() && !policy.dirs) {
        return false;
    }
    let disk = inode.disk();
    let since_1970 =
        |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let atime = since_1970(disk.atime);
    match policy.when {
        AccessTimes::Never => false,
        AccessTimes::Relative => {
            atime <= since_1970(disk.mtime)
                || atime <= since_1970(disk.ctime)
                || coarse_now().secs.saturating_sub(disk.atime.secs) >= DAY
        }
        AccessTimes::Strict => !(0..TICK_NANOS).contains(&(since_1970(now()) - atime)),
    }
}
