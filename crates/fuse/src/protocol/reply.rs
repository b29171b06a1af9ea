//! The parts of answers.

use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }
        )*
    };
}

records! {
    /// What `stat` shows.
    Attr {
        ino: u64,
        size: u64,
        sectors: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nanos: u32,
        mtime_nanos: u32,
        ctime_nanos: u32,
        mode: u32,
        links: u32,
        uid: u32,
        gid: u32,
        device: u32,
        block_size: u32,
        flags: u32,
    }
    /// A name and what it stands for; node 0 for a name that is not there.
    EntryOut {
        node: u64,
        generation: u64,
        entry_secs: u64,
        attr_secs: u64,
        entry_nanos: u32,
        attr_nanos: u32,
        attr: Attr,
    }
    /// Attributes.
    AttrOut {
        attr_secs: u64,
        attr_nanos: u32,
        unused: u32,
        attr: Attr,
    }
    /// A moment, for `statx`.
    StatxTime { secs: i64, nanos: u32, reserved: u32, }
    /// What `statx` shows.
    Statx {
        mask: u32,
        block_size: u32,
        attributes: u64,
        links: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        sectors: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        device_major: u32,
        device_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    /// Attributes, with more of them.
    StatxOut {
        attr_secs: u64,
        attr_nanos: u32,
        flags: u32,
        spare: [u64; 2],
        stat: Statx,
    }
    /// A file that is opened, or a directory.
    OpenOut { handle: u64, flags: u32, backing: i32, }
    /// Bytes that were written or copied.
    WriteOut { size: u32, padding: u32, }
    /// Bytes that were copied, in the wider form; or, of an attribute, how long it is, in its lower
    /// half.
    LengthOut { len: u64, }
    /// Where to go on in a file.
    LseekOut { offset: u64, }
    /// How an `ioctl` ended: what it gives back follows.
    IoctlOut { result: i32, flags: u32, in_parts: u32, out_parts: u32, }
    /// Space and inodes.
    StatfsOut {
        blocks: u64,
        free: u64,
        available: u64,
        inodes: u64,
        free_inodes: u64,
        block_size: u32,
        name_len: u32,
        fragment_size: u32,
        padding: u32,
        spare: [u32; 6],
    }
    /// An entry of a directory: its name follows, and zeros up to a multiple of 8 bytes.
    Dirent { ino: u64, next: u64, name_len: u32, kind: u32, }
}

/// What [`Statx::mask`] says is there.
pub(crate) mod statx_mask {
    pub(crate) const BASIC: u32 = 0x7ff;
    pub(crate) const BTIME: u32 = 0x800;
}

impl EntryOut {
    /// Makes the entry of a name that is not there, which stays so for the time `stays`.
    pub(crate) fn nothing(stays: Duration) -> Self {
        Self {
            entry_secs: stays.as_secs(),
            entry_nanos: stays.subsec_nanos(),
            ..Self::default()
        }
    }
}
