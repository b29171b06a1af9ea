//! What is known about a file besides its content.

use extant_core::inode::{DeviceNumber, FileType, Inode, Mode, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is known about a file besides its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata(extant_core::inode::Metadata);

impl Metadata {
    pub(crate) fn new(found: extant_core::inode::Metadata) -> Self {
        Self(found)
    }

    pub(crate) fn of(fs: &extant_core::fs::Fs, inode: &Inode) -> Self {
        Self(inode.metadata(fs.block_size()))
    }

    /// Returns the file type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// Returns whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0.file_type == FileType::Directory
    }

    /// Returns whether this is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0.file_type == FileType::Regular
    }

    /// Returns whether this is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0.file_type == FileType::Symlink
    }

    /// Returns the size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "the name std::fs uses")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Returns the file type and permissions.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// Returns the owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Returns the group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Returns the inode number.
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.0.ino.get()
    }

    /// Returns the number of names. A directory with 1 has more subdirectories than the field can
    /// count.
    #[must_use]
    pub fn nlink(&self) -> u32 {
        self.0.links
    }

    /// Returns the number of a device node, of others `None`.
    #[must_use]
    pub fn rdev(&self) -> Option<DeviceNumber> {
        self.0.device
    }

    /// Returns the space charged to the file, in units of 512 bytes. A regular file whose data lies
    /// in its inode has as many as that fills, as Linux tells.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.sectors
    }

    /// Returns the block size of the file system, in bytes.
    #[must_use]
    pub fn blksize(&self) -> u32 {
        self.0.block_size
    }

    /// Returns the time of the last access.
    #[must_use]
    pub fn atime(&self) -> Timestamp {
        self.0.atime
    }

    /// Returns the time of the last change of the content.
    #[must_use]
    pub fn mtime(&self) -> Timestamp {
        self.0.mtime
    }

    /// Returns the time of the last change of the inode.
    #[must_use]
    pub fn ctime(&self) -> Timestamp {
        self.0.ctime
    }

    /// Returns the time of creation, where the inode is large enough to hold it.
    #[must_use]
    pub fn crtime(&self) -> Option<Timestamp> {
        self.0.crtime
    }

    /// Returns the time of the last change of the content, as the standard library's clock type.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Returns the time of the last access, as the standard library's clock type.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Returns the time of creation, where the inode is large enough to hold it.
    #[must_use]
    pub fn created(&self) -> Option<SystemTime> {
        self.0.crtime.map(system_time)
    }

    /// Returns the inode flags, as the bits that `lsattr` shows.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.0.flags.bits()
    }

    /// Returns the inode flags in the letters of `lsattr`.
    #[must_use]
    pub fn lsattr(&self) -> String {
        self.0.flags.lsattr()
    }

    /// Returns the project, where the inode is large enough to hold it.
    #[must_use]
    pub fn project(&self) -> Option<u32> {
        self.0.project
    }

    /// Returns the generation, which tells reuses of an inode number apart.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.0.generation
    }
}

/// 34 bits of seconds fit every clock type of Linux.
fn system_time(time: Timestamp) -> SystemTime {
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole = if time.secs < 0 {
        UNIX_EPOCH.checked_sub(secs)
    } else {
        UNIX_EPOCH.checked_add(secs)
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanos.into())))
        .unwrap_or(UNIX_EPOCH)
}
