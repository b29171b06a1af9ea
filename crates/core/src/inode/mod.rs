//! Inodes: loading, the live table, bulkstat.
//!
//! | file | owns |
//! |---|---|
//! | `held` | [`Held`]: a hold on an inode in memory |
//! | `inline` | content that lies inside the inode: where it is |
//! | `live` | [`LiveInode`]: an inode that can change, its locks, its holds |
//! | `load` | the way from a number to a checked [`Inode`] |
//! | `ahead` | records that are read together before they are needed |
//! | `lazy` | times of access that only memory has |
//! | `table` | inodes in memory |
//! | `caller` | the user that something is done for, and what of a program's mode outlives a change |
//! | `encode` | records into blocks of the inode table, once per commit |
//! | `lock` | [`LockSet`]: locking several inodes for one operation |
//! | `orphan` | inodes that a crash must not leave behind |
//! | `bulkstat` | every inode of the file system, in parallel, through the cache or around it |
//! | `scan` | every inode of a group, straight from the inode table |
//! | `window` | a part of an inode table, around the cache |
//! | `baseline` | unimproved forms, to compare with |
//!
//! # Invariants
//!
//! - An [`Inode`] has a known file type and a size its map can reach.
//! - An [`Inode`] is an image and never changes; a [`LiveInode`] publishes one after the other.

mod ahead;
#[cfg(feature = "baseline")]
mod baseline;
mod bulkstat;
mod caller;
mod encode;
mod held;
mod inline;
mod lazy;
mod live;
mod load;
mod lock;
mod orphan;
mod scan;
mod table;
mod window;

#[cfg(feature = "baseline")]
pub use baseline::Baseline;
pub use bulkstat::{Bulkstat, BulkstatWay};
pub use caller::{Actor, Caller};
pub(crate) use caller::{GROUP_EXECUTE, SET_GID, without_set_ids};
pub(crate) use encode::{RegisteredInode, RegisteredInodes, capture_inodes};
pub use held::Held;
pub(crate) use lazy::LazyTimes;
pub use live::LiveInode;
pub(crate) use lock::{Access, LockSet};
pub(crate) use orphan::{CapturedSlots, Membership, ORPHAN_BLOCKS};
pub use orphan::{OrphanStats, Orphans};
pub use scan::GroupInodes;
pub use table::Table;
pub(crate) use window::TableWindow;

use extant_format::checksum::Crc32c;
pub use extant_format::inode::{DeviceNumber, FileType, Mode, Timestamp};
use extant_format::inode::{Inode as DiskInode, InodeFlags};
use extant_format::{BlockSize, Ino, inline_data};

/// An inode's record at one moment.
// What lookups read comes first, so that it lies in one cache line.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Inode {
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
    /// Made here, not loaded: nothing in its slot of the inode table is its own.
    pub(crate) fresh: bool,
    /// The number is free, and this is what the record says from then on.
    pub(crate) freed: bool,
    /// Checksum seed of everything that belongs to this inode.
    pub(crate) seed: Option<Crc32c>,
    pub(crate) disk: DiskInode,
    /// The part of the record after the extra fields; empty when it holds nothing.
    pub(crate) xattrs: Box<[u8]>,
    /// Of its attributes, how many have their value in an inode of its own, once
    /// [`LiveInode::begin_counting`] has looked.
    pub(crate) values: u16,
}

/// One inode for good: its number is used again after it, by an inode of another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeId {
    /// The number.
    pub ino: Ino,
    /// The generation.
    pub generation: u32,
}

impl Inode {
    /// Its number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Its number and generation.
    #[must_use]
    pub fn id(&self) -> InodeId {
        InodeId {
            ino: self.ino,
            generation: self.disk.generation,
        }
    }

    /// Its file type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// The record as the inode table holds it.
    #[must_use]
    pub fn disk(&self) -> &DiskInode {
        &self.disk
    }

    /// The record, to change it: see [`LiveInode::update`].
    pub(crate) fn disk_mut(&mut self) -> &mut DiskInode {
        &mut self.disk
    }

    /// Replaces the part of the record that holds extended attributes.
    pub(crate) fn set_xattr_region(&mut self, region: Box<[u8]>) {
        self.xattrs = region;
    }

    /// What lies in the map, and the part of the record that holds extended attributes, to be
    /// changed in place.
    pub(crate) fn content_mut(&mut self) -> (&mut [u8; inline_data::IN_MAP], &mut [u8]) {
        (&mut self.disk.map, &mut self.xattrs)
    }

    /// How many of its attributes have their value in an inode of its own, for which it is charged;
    /// 0 where that is not counted.
    pub(crate) fn values(&self) -> u16 {
        self.values
    }

    /// Notes how many attributes have their value in an inode of its own.
    pub(crate) fn set_values(&mut self, values: u16) {
        self.values = values;
    }

    /// Whether it was made here, so that its slot of the inode table holds nothing of it.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Whether the inode is gone: its number is free.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.disk.size
    }

    /// Flags.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        self.disk.flags
    }

    /// Whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether this is a directory that takes names which differ in case for the same.
    #[must_use]
    #[inline]
    pub fn is_casefolded(&self) -> bool {
        self.flags().contains(InodeFlags::CASEFOLD) && self.is_dir()
    }

    /// Whether the content lies inside the inode.
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.disk.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Whether this is a regular file whose content lies in blocks of its own, for everybody to
    /// read.
    #[inline]
    #[must_use]
    pub(crate) fn has_plain_content(&self) -> bool {
        let other = InodeFlags::ENCRYPT.union(InodeFlags::INLINE_DATA);
        self.file_type == FileType::Regular && !self.flags().intersects(other)
    }

    /// Whether the content (of a directory: the names) is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.disk.flags.contains(InodeFlags::ENCRYPT)
    }

    /// Checksum seed of directory blocks and extent nodes of this inode, or `None` when the file
    /// system has no metadata checksums.
    #[must_use]
    pub fn seed(&self) -> Option<Crc32c> {
        self.seed
    }

    /// The part of the record that holds extended attributes, their magic first. Empty when it
    /// holds none.
    #[must_use]
    pub fn xattr_region(&self) -> &[u8] {
        &self.xattrs
    }

    /// Whether there is a place where attributes of the inode may be.
    #[must_use]
    pub(crate) fn may_have_attributes(&self) -> bool {
        !self.xattrs.is_empty() || self.disk.file_acl.get() != 0
    }

    /// Blocks its size spans: holes included.
    #[must_use]
    pub fn size_in_blocks(&self, block_size: BlockSize) -> u64 {
        block_size.blocks_for(self.disk.size)
    }
}

/// What `stat` reports about an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Inode number.
    pub ino: Ino,
    /// File type.
    pub file_type: FileType,
    /// File type and permissions.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space charged to the file, in 512-byte sectors. A file whose data lies in its inode has as
    /// many as that fills, as with Linux: programs that copy holes take a file without any for one.
    pub sectors: u64,
    /// Preferred size of reads and writes: the block size.
    pub block_size: u32,
    /// Names. 1 for a directory means "more than the field can say".
    pub links: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Creation, where the inode is large enough to say.
    pub crtime: Option<Timestamp>,
    /// Flags.
    pub flags: InodeFlags,
    /// Generation, which tells reuses of a number apart.
    pub generation: u32,
    /// Number of a device node.
    pub device: Option<DeviceNumber>,
    /// Project, where the inode is large enough to say.
    pub project: Option<u32>,
    /// Change counter.
    pub version: u64,
}

impl Inode {
    /// What `stat` reports.
    #[inline]
    #[must_use]
    pub fn metadata(&self, block_size: BlockSize) -> Metadata {
        Metadata::of(self.ino, self.file_type, &self.disk, block_size)
    }
}

impl Metadata {
    /// What `stat` reports about an inode with this record.
    #[inline]
    fn of(ino: Ino, file_type: FileType, disk: &DiskInode, block_size: BlockSize) -> Self {
        // Nobody is shown what is gone when the record is read again.
        let [atime, ctime, mtime] = if disk.has_long_times() {
            [disk.atime, disk.ctime, disk.mtime]
        } else {
            disk.stored_times()
        };
        Self {
            ino,
            file_type,
            mode: disk.mode,
            uid: disk.uid,
            gid: disk.gid,
            size: disk.size,
            sectors: disk.sectors(block_size) + sectors_inline(file_type, disk),
            block_size: block_size.bytes(),
            links: disk.links.into(),
            atime,
            ctime,
            mtime,
            crtime: disk.crtime,
            flags: disk.flags,
            generation: disk.generation,
            device: file_type.is_device().then(|| disk.device()),
            project: disk.project,
            version: disk.version,
        }
    }
}

/// Sectors that the data of a regular file fills in its inode, which are charged to nothing.
fn sectors_inline(file_type: FileType, disk: &DiskInode) -> u64 {
    let is_inline = disk.flags.contains(InodeFlags::INLINE_DATA);
    if is_inline && file_type == FileType::Regular {
        disk.size.div_ceil(512)
    } else {
        0
    }
}
