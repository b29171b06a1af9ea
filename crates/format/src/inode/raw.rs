//! The bytes of an inode, field by field.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the fixed part, which every inode has.
pub const FIXED_BYTES: usize = 128;
/// Bytes of the fixed part and every extra field this crate knows.
pub const KNOWN_BYTES: usize = 160;
/// Bytes of the map inside an inode (`i_block`).
pub const MAP_BYTES: usize = 60;

/// The fixed part of an inode.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInode {
    /// Type and permissions.
    pub mode: U16,
    /// Owner, low half.
    pub uid_lo: U16,
    /// Size in bytes, low half.
    pub size_lo: U32,
    /// Access time, seconds.
    pub atime: U32,
    /// Change time, seconds.
    pub ctime: U32,
    /// Modification time, seconds.
    pub mtime: U32,
    /// Deletion time, or the next inode of the orphan list.
    pub dtime: U32,
    /// Group, low half.
    pub gid_lo: U16,
    /// Number of names.
    pub links: U16,
    /// Block count, low 32 bits.
    pub blocks_lo: U32,
    /// Flags.
    pub flags: U32,
    /// Version, low half.
    pub version_lo: U32,
    /// Map, symlink target, device number or inline data.
    pub map: [u8; MAP_BYTES],
    /// Generation, which tells reuses of a number apart.
    pub generation: U32,
    /// Extended attribute block, low 32 bits.
    pub file_acl_lo: U32,
    /// Size in bytes, high half.
    pub size_hi: U32,
    /// Fragment address (obsolete).
    pub fragment: U32,
    /// Block count, high 16 bits.
    pub blocks_hi: U16,
    /// Extended attribute block, high 16 bits.
    pub file_acl_hi: U16,
    /// Owner, high half.
    pub uid_hi: U16,
    /// Group, high half.
    pub gid_hi: U16,
    /// Checksum, low half.
    pub checksum_lo: U16,
    /// Unused.
    pub reserved: U16,
}

/// The extra fields, all that this crate knows. Which of them exist is said by `extra_isize`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInodeExtra {
    /// Bytes of extra fields in use, counted from the end of the fixed part.
    pub extra_isize: U16,
    /// Checksum, high half.
    pub checksum_hi: U16,
    /// Epoch bits and nanoseconds of the change time.
    pub ctime_extra: U32,
    /// Epoch bits and nanoseconds of the modification time.
    pub mtime_extra: U32,
    /// Epoch bits and nanoseconds of the access time.
    pub atime_extra: U32,
    /// Creation time, seconds.
    pub crtime: U32,
    /// Epoch bits and nanoseconds of the creation time.
    pub crtime_extra: U32,
    /// Version, high half.
    pub version_hi: U32,
    /// Project.
    pub project: U32,
}

/// Where the low half of the checksum lies in the inode.
pub(super) const CHECKSUM_LO_AT: usize = 0x7c;
/// Where the high half of the checksum lies in the inode.
pub(super) const CHECKSUM_HI_AT: usize = 0x82;

const _: () = assert!(size_of::<RawInode>() == FIXED_BYTES);
const _: () = assert!(size_of::<RawInodeExtra>() == KNOWN_BYTES - FIXED_BYTES);
const _: () = assert!(core::mem::offset_of!(RawInode, checksum_lo) == CHECKSUM_LO_AT);
const _: () =
    assert!(FIXED_BYTES + core::mem::offset_of!(RawInodeExtra, checksum_hi) == CHECKSUM_HI_AT);
