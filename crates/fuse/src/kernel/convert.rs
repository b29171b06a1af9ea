//! The engine's values as `fuser` has them, and back.

use crate::service::{Attributes, Stamp};
use extant_core::inode::{DeviceNumber, FileType, Timestamp};
use fuser::{FileAttr, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nobody but the kernel changes the file system, so what it was told stays true.
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
const SET_IDS: u16 = 0o6000;

fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.into());
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole = match time.secs {
        0.. => UNIX_EPOCH.checked_add(secs),
        _ => UNIX_EPOCH.checked_sub(secs),
    };
    whole
        .and_then(|whole| whole.checked_add(nanos))
        .unwrap_or(UNIX_EPOCH)
}

/// A time as `fuser` passes it on: before 1970 seconds and nanoseconds are those that the kernel gave, each counted
/// backwards, though the kernel counts only seconds so.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp {
            secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            Timestamp {
                secs: -i64::try_from(before.as_secs()).unwrap_or(i64::MAX),
                nanos: before.subsec_nanos(),
            }
        }
    }
}

pub(super) fn stamp(time: TimeOrNow) -> Stamp {
    match time {
        TimeOrNow::Now => Stamp::Now,
        TimeOrNow::SpecificTime(time) => Stamp::At(timestamp(time)),
    }
}

pub(super) fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// A device number in the kernel's wide form.
fn wide(device: DeviceNumber) -> u32 {
    (device.minor & 0xff) | (device.major << 8) | ((device.minor & !0xff) << 12)
}

/// How long what the kernel is told stays true. Changing a program takes away its set-ID bits without the kernel's
/// knowledge, so it has to ask before it runs one that has them; and it tells names apart that the file system may take
/// for the same.
pub(super) fn ttl(found: &Attributes) -> Duration {
    let metadata = &found.metadata;
    let is_regular = metadata.file_type == FileType::Regular;
    let strips = is_regular && metadata.mode.permissions() & SET_IDS != 0;
    match strips || found.has_other_names {
        true => Duration::ZERO,
        false => FOREVER,
    }
}

pub(super) fn attr(found: &Attributes) -> FileAttr {
    let metadata = &found.metadata;
    FileAttr {
        ino: INodeNo(found.node.0),
        size: metadata.size,
        blocks: metadata.sectors,
        atime: system_time(metadata.atime),
        mtime: system_time(metadata.mtime),
        ctime: system_time(metadata.ctime),
        crtime: metadata.crtime.map_or(UNIX_EPOCH, system_time),
        kind: kind(metadata.file_type),
        perm: metadata.mode.permissions(),
        nlink: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        rdev: metadata.device.map_or(0, wide),
        blksize: metadata.block_size,
        flags: 0,
    }
}

/// As programs see it: under its own number, the root too.
pub(super) fn own_attr(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(found.metadata.ino.get().into()),
        ..attr(found)
    }
}

/// What stands for "there is no such name": the kernel remembers that, too.
pub(super) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_what_the_kernel_said() {
        // As `fuser` makes it of -2 seconds and 300 million nanoseconds.
        let passed_on = UNIX_EPOCH - Duration::new(2, 300_000_000);
        let told = Timestamp {
            secs: -2,
            nanos: 300_000_000,
        };
        assert_eq!(timestamp(passed_on), told);
        // It takes the moment itself.
        let moment = UNIX_EPOCH - Duration::new(1, 700_000_000);
        assert_eq!(system_time(told), moment);
        assert_eq!(timestamp(UNIX_EPOCH), Timestamp::from_secs(0));
        assert_eq!(
            system_time(Timestamp::from_secs(-1)),
            UNIX_EPOCH - Duration::new(1, 0)
        );
    }
}
