//! The engine's values as `fuser` has them, and back.

use crate::service::{Attributes, Stamp};
use extant_core::inode::{DeviceNumber, FileType, Timestamp};
use fuser::{FileAttr, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp {
            secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp::from_secs(-secs),
                nanos => Timestamp {
                    secs: -secs - 1,
                    nanos: 1_000_000_000 - nanos,
                },
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
