//! The engine's values as the kernel has them, and back.

use crate::protocol::{Attr, EntryOut, Statx, StatxOut, StatxTime, statx_mask};
use crate::service::{Attributes, Node, Stays};
use extant_core::inode::{DeviceNumber, FileType, Timestamp};
use std::time::Duration;

const SET_IDS: u16 = 0o6000;

/// Converts a time that the kernel passes on: seconds since 1970, which may be negative, and
/// nanoseconds after them.
pub(super) fn timestamp(secs: i64, nanos: u32) -> Timestamp {
    Timestamp { secs, nanos }
}

/// Converts a file type to the number that the upper bits of a mode, and directory entries, have.
pub(super) fn kind(file_type: FileType) -> u32 {
    match file_type {
        FileType::Fifo => 1,
        FileType::CharDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::Regular => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
    }
}

/// Converts a device number to the kernel's wide form.
fn wide(device: DeviceNumber) -> u32 {
    (device.minor & 0xff) | (device.major << 8) | ((device.minor & !0xff) << 12)
}

/// Says how long what the kernel is told stays true. Changing a program takes away its set-ID bits
/// without the kernel's knowledge, so it has to ask before it runs one that has them; and it tells
/// names apart that the file system may take for the same.
fn stays(found: &Attributes) -> Stays {
    let metadata = &found.metadata;
    let is_regular = metadata.file_type == FileType::Regular;
    let strips = is_regular && metadata.mode.permissions() & SET_IDS != 0;
    if strips || found.has_other_names {
        Stays {
            names: Duration::ZERO,
            attributes: Duration::ZERO,
        }
    } else {
        found.stays
    }
}

/// Says how long attributes stay true.
pub(super) fn ttl(found: &Attributes) -> Duration {
    stays(found).attributes
}

fn mode(found: &Attributes) -> u32 {
    let metadata = &found.metadata;
    kind(metadata.file_type) << 12 | u32::from(metadata.mode.permissions())
}

/// Converts attributes, under the number by which the kernel knows the inode.
pub(super) fn attr(found: &Attributes) -> Attr {
    let metadata = &found.metadata;
    Attr {
        ino: found.node.0,
        size: metadata.size,
        sectors: metadata.sectors,
        atime: metadata.atime.secs,
        mtime: metadata.mtime.secs,
        ctime: metadata.ctime.secs,
        atime_nanos: metadata.atime.nanos,
        mtime_nanos: metadata.mtime.nanos,
        ctime_nanos: metadata.ctime.nanos,
        mode: mode(found),
        links: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        device: metadata.device.map_or(0, wide),
        block_size: metadata.block_size,
        flags: 0,
    }
}

/// Converts attributes as programs see them: under the inode's own number, the root too.
pub(super) fn own_attr(found: &Attributes) -> Attr {
    Attr {
        ino: found.metadata.ino.get().into(),
        ..attr(found)
    }
}

/// Describes what a name stands for.
pub(super) fn entry(found: &Attributes) -> EntryOut {
    let stays = stays(found);
    EntryOut {
        node: found.node.0,
        // Of the root, which is always there, it knows none.
        generation: match found.node {
            Node::ROOT => 0,
            _ => found.metadata.generation.into(),
        },
        entry_secs: stays.names.as_secs(),
        attr_secs: stays.attributes.as_secs(),
        entry_nanos: stays.names.subsec_nanos(),
        attr_nanos: stays.attributes.subsec_nanos(),
        attr: attr(found),
    }
}

fn moment(time: Timestamp) -> StatxTime {
    StatxTime {
        secs: time.secs,
        nanos: time.nanos,
        reserved: 0,
    }
}

/// Converts attributes with the time of birth, if the inode has one.
pub(super) fn statx(found: &Attributes) -> StatxOut {
    let stays = ttl(found);
    let metadata = &found.metadata;
    let born = match metadata.crtime {
        Some(_) => statx_mask::BTIME,
        None => 0,
    };
    let (device_major, device_minor) = metadata
        .device
        .map_or((0, 0), |device| (device.major, device.minor));
    StatxOut {
        attr_secs: stays.as_secs(),
        attr_nanos: stays.subsec_nanos(),
        stat: Statx {
            mask: statx_mask::BASIC | born,
            block_size: metadata.block_size,
            links: metadata.links,
            uid: metadata.uid,
            gid: metadata.gid,
            // Types and permissions have 16 bits.
            mode: u16::try_from(mode(found)).unwrap_or(0),
            ino: metadata.ino.get().into(),
            size: metadata.size,
            sectors: metadata.sectors,
            atime: moment(metadata.atime),
            btime: metadata.crtime.map_or_else(StatxTime::default, moment),
            ctime: moment(metadata.ctime),
            mtime: moment(metadata.mtime),
            device_major,
            device_minor,
            ..Statx::default()
        },
        ..StatxOut::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_what_the_kernel_said() {
        let sent = timestamp(-2, 300_000_000);
        assert_eq!((sent.secs, sent.nanos), (-2, 300_000_000));
        let shown = moment(sent);
        assert_eq!((shown.secs, shown.nanos), (-2, 300_000_000));
    }
}
