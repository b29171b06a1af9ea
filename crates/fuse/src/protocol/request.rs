//! The fixed parts of requests. Fields that nothing here uses are there for their place.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
            pub(crate) struct $name {
                $($(#[$field_doc])* pub(crate) $field: $type,)*
            }
        )*
    };
}

records! {
    /// `FUSE_FORGET`.
    ForgetIn { lookups: u64, }
    /// `FUSE_BATCH_FORGET`: so many of [`ForgetOne`] follow.
    BatchForgetIn { count: u32, unused: u32, }
    /// One of several nodes that the kernel forgets.
    ForgetOne { node: u64, lookups: u64, }
    /// `FUSE_SETATTR`: what [`set`] names in `valid` is to change.
    SetattrIn {
        valid: u32,
        padding: u32,
        handle: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_nanos: u32,
        mtime_nanos: u32,
        ctime_nanos: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    /// `FUSE_MKNOD`.
    MknodIn { mode: u32, device: u32, umask: u32, padding: u32, }
    /// `FUSE_MKDIR`.
    MkdirIn { mode: u32, umask: u32, }
    /// `FUSE_CREATE` and `FUSE_TMPFILE`.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// `FUSE_RENAME`: two names follow.
    RenameIn { new_parent: u64, }
    /// `FUSE_RENAME2`.
    Rename2In { new_parent: u64, flags: u32, padding: u32, }
    /// `FUSE_LINK`: the node of the request is the directory.
    LinkIn { target: u64, }
    /// `FUSE_READ`, `FUSE_READDIR` and `FUSE_READDIRPLUS`.
    ReadIn {
        handle: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// `FUSE_WRITE`: the data follows.
    WriteIn {
        handle: u64,
        offset: u64,
        size: u32,
        /// See [`write_flags`].
        write_flags: u32,
        lock_owner: u64,
        /// Those of `open`, and what this write asks for in addition.
        flags: u32,
        padding: u32,
    }
    /// `FUSE_ACCESS`: what [`access`] names in `mask` is to be done.
    AccessIn { mask: u32, padding: u32, }
    /// `FUSE_FSYNC` and `FUSE_FSYNCDIR`.
    FsyncIn {
        handle: u64,
        /// Bit 0: the data only.
        flags: u32,
        padding: u32,
    }
    /// `FUSE_SETXATTR`, without the extension: the name and the value follow.
    SetXattrIn { size: u32, flags: i32, }
    /// The extension, which comes behind it where that was agreed upon.
    SetXattrExtension {
        /// See [`setxattr_flags`].
        flags: u32,
        padding: u32,
    }
    /// `FUSE_GETXATTR` and `FUSE_LISTXATTR`: 0 asks how long it is.
    GetXattrIn { size: u32, padding: u32, }
    /// `FUSE_IOCTL`: what goes in follows.
    IoctlIn {
        handle: u64,
        flags: u32,
        command: u32,
        argument: u64,
        in_size: u32,
        out_size: u32,
    }
    /// `FUSE_FALLOCATE`.
    FallocateIn { handle: u64, offset: u64, len: u64, mode: i32, padding: u32, }
    /// `FUSE_LSEEK`.
    LseekIn { handle: u64, offset: i64, whence: i32, padding: u32, }
    /// `FUSE_COPY_FILE_RANGE`, in both widths.
    CopyRangeIn {
        handle: u64,
        offset: u64,
        to: u64,
        to_handle: u64,
        to_offset: u64,
        len: u64,
        flags: u64,
    }
}

/// What a `FUSE_SETATTR` is about.
pub(crate) mod set {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    /// A file that is cut loses its set-ID bits.
    pub(crate) const KILL_SET_IDS: u32 = 1 << 11;
    /// What is set on request only.
    pub(crate) const BY_OWNERS: u32 = MODE | UID | GID | SIZE | ATIME;
}

/// What is to be done, as `access` has it.
pub(crate) mod access {
    pub(crate) const EXECUTE: u32 = 1 << 0;
    pub(crate) const WRITE: u32 = 1 << 1;
}

/// How data comes to be written.
pub(crate) mod write_flags {
    /// The kernel had kept it back.
    pub(crate) const CACHE: u32 = 1 << 0;
    /// The lock owner is told, which is so of direct writes alone.
    pub(crate) const LOCK_OWNER: u32 = 1 << 1;
    /// Set-ID bits go.
    pub(crate) const KILL_SET_IDS: u32 = 1 << 2;
}

/// What becomes of a file whose attribute is set.
pub(crate) mod setxattr_flags {
    /// It is an access control list, and set-group-ID goes with it.
    pub(crate) const KILL_SET_GID: u32 = 1 << 0;
}
