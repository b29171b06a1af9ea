//! The one error of the engine: each failure carries its evidence, maps to one errno and reads as
//! a sentence.
//!
//! A record that breaks the format becomes an [`Error::Corrupt`] only together with the [`Place`]
//! where it was found, which is why there is no `From<FormatError>`: use [`InPlace::in_place`].

use extant_blockdev::{Content, DeviceError};
use extant_format::errno::{
    self, E2BIG, EACCES, EBADF, EBADMSG, EBUSY, EDQUOT, EEXIST, EFBIG, EINVAL, EIO, EISDIR, ELOOP,
    EMLINK, ENAMETOOLONG, ENODATA, ENOENT, ENOKEY, ENOSPC, ENOTDIR, ENOTEMPTY, EOPNOTSUPP, EPERM,
    ERANGE, EROFS, ESTALE, EUCLEAN, EXDEV,
};
use extant_format::{FormatError, FormatResult, Group, Ino, Lblk, Pblk};
use extant_jbd2::JournalError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Result of an operation of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the engine failed.
///
/// Cheap to clone, so that one failed device read can be reported to all that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed or refused; the errno is the device error's.
    #[error("{0}")]
    Device(#[source] Arc<DeviceError>),
    /// A structure on the device breaks the format (EUCLEAN; EBADMSG for a wrong checksum).
    #[error("{place} is corrupt: {source}")]
    Corrupt {
        /// Where the structure lies.
        place: Place,
        /// What is wrong with it.
        source: FormatError,
    },
    /// There is no superblock where it should be: this is something else (EUCLEAN).
    #[error("{}", not_ext4(source, *content))]
    NotExt4 {
        /// What is wrong with the superblock.
        source: FormatError,
        /// What there is instead.
        content: Content,
    },
    /// The device ends before the file system does (EUCLEAN).
    #[error(
        "the file system has {needed} bytes and the device only {found}: the image was cut short, \
         or the device shrank"
    )]
    DeviceTooSmall {
        /// Bytes of the file system, by its superblock.
        needed: u64,
        /// Bytes of the device.
        found: u64,
    },
    /// A structure on the device points past the end of the file system (EUCLEAN).
    #[error("block {block} lies past the end of the file system, which has {blocks} blocks")]
    BlockOutOfRange {
        /// The block pointed to.
        block: Pblk,
        /// Blocks in the file system.
        blocks: u64,
    },
    /// The journal cannot be used or replayed (EUCLEAN; EIO when the device failed).
    #[error("the journal cannot be replayed: {0}")]
    Journal(#[source] Arc<JournalError>),
    /// The journal could not be written (the device error's errno, EIO if there is none).
    #[error("the journal cannot be written: {0}")]
    Log(#[source] Arc<JournalError>),
    /// An earlier error stopped all changes (EROFS).
    #[error("the file system takes no more changes since an error: {0}")]
    Stopped(#[source] Arc<Error>),
    /// Another host or program has the file system open for writing (EBUSY).
    #[error("the file system is in use: {by}")]
    InUse {
        /// What is known about it.
        by: String,
    },
    /// The engine itself is at fault, or the system refused it something (EIO).
    #[error("{0}")]
    Internal(&'static str),
    /// The name or the inode does not exist (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// A directory was needed, and this is something else (ENOTDIR).
    #[error("not a directory")]
    NotADirectory,
    /// This is a directory, and the operation needs something else (EISDIR).
    #[error("is a directory")]
    IsADirectory,
    /// A symbolic link was needed, and this is something else (EINVAL).
    #[error("not a symbolic link")]
    NotASymlink,
    /// A regular file was needed, and this is a device, fifo or socket (EINVAL).
    #[error("not a regular file")]
    NotARegularFile,
    /// A name longer than 255 bytes, or a path longer than the limit (ENAMETOOLONG).
    #[error("the file name is too long")]
    NameTooLong,
    /// An argument that no state of the file system makes valid (EINVAL). The text completes
    /// "invalid argument: ".
    #[error("invalid argument: {0}")]
    InvalidInput(&'static str),
    /// Direct I/O whose offset or length does not fit (EINVAL).
    #[error("direct I/O needs offsets and lengths that are multiples of {bytes} bytes")]
    Misaligned {
        /// The alignment that is needed, in bytes.
        bytes: u32,
    },
    /// Features this engine cannot handle, by name (EOPNOTSUPP).
    #[error("the file system uses features that are not supported: {features}")]
    Unsupported {
        /// Names of the features, separated by ", ".
        features: String,
    },
    /// This file system cannot be changed as a whole or not at all (EOPNOTSUPP).
    #[error("changes cannot be made as a whole here: {0}")]
    NotAtOnce(&'static str),
    /// Changes fit neither into the journal nor into blocks that are free, where they could wait
    /// (ENOSPC).
    #[error(
        "changes that are made as a whole have to fit into the journal, or into free blocks until they are in \
         place: these need {needed} free blocks, and there are {capacity}"
    )]
    TooManyChanges {
        /// Blocks that the changes need.
        needed: u64,
        /// Blocks that are free before and after them.
        capacity: u64,
    },
    /// The device failed while changes were committed that are made as a whole: all of them are
    /// made, or none (the errno of the cause).
    #[error(
        "the device failed in the moment of the commit, so either all of the changes are made or none, which \
         the next opening shows: {0}"
    )]
    PerhapsMade(#[source] Arc<Error>),
    /// Changes are committed, and the device failed when they were put in place: the next opening
    /// for writing does that (the errno of the cause).
    #[error("the changes are made, and wait in the image to be put in place: {0}")]
    NotHome(#[source] Arc<Error>),
    /// A change was asked of a file system open for reading (EROFS).
    #[error("the file system is open for reading only")]
    ReadOnly,
    /// Too many symbolic links on the way (ELOOP).
    #[error("too many levels of symbolic links")]
    Loop,
    /// The inode has no extended attribute of that name (ENODATA).
    #[error("no such extended attribute")]
    NoAttribute,
    /// The value of an extended attribute is larger than any may be (E2BIG).
    #[error("the value of the extended attribute is too large")]
    AttributeTooLarge,
    /// The name of an extended attribute is empty or too long (ERANGE).
    #[error("the name of the extended attribute is empty or too long")]
    AttributeName,
    /// Extended attributes of such a name cannot be set on such a file (EOPNOTSUPP).
    #[error("this file cannot have an extended attribute of that name")]
    NoNamespace,
    /// Content or names are encrypted and there is no key (ENOKEY).
    #[error("the content is encrypted and no key is available")]
    Encrypted,
    /// The name exists already (EEXIST).
    #[error("the file exists already")]
    Exists,
    /// fs-verity protects the file already (EEXIST).
    #[error("the file is protected by fs-verity already")]
    AlreadyProtected,
    /// A directory that should be empty is not (ENOTEMPTY).
    #[error("the directory is not empty")]
    NotEmpty,
    /// A file or directory has as many names as the format can count (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The file was not opened for what is asked of it (EBADF). The text completes "not open for ".
    #[error("the file is not open for {0}")]
    BadHandle(&'static str),
    /// No block or inode is free (ENOSPC).
    #[error("no space is left on the file system")]
    NoSpace,
    /// A user, group or project may not use more (EDQUOT).
    #[error("the quota of the owner is exceeded")]
    QuotaExceeded,
    /// A file would grow past what its mapping can address (EFBIG).
    #[error("the file would be too large")]
    FileTooLarge,
    /// The mode bits or the access control list forbid it (EACCES).
    #[error("permission denied")]
    PermissionDenied,
    /// Only the owner or a privileged user may do this (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// Two files that should lie on one file system do not (EXDEV).
    #[error("the files are on different file systems")]
    OtherFileSystem,
    /// The directory hands its project down and takes nothing of another one (EXDEV).
    #[error("the directory belongs to another project")]
    OtherProject,
    /// An inode number that is not in use, or was reused since the handle was made (ESTALE).
    #[error("the inode is no longer in use")]
    Stale,
}

/// Where on the file system a corrupt structure lies. Displays as the subject of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The primary superblock.
    Superblock,
    /// The descriptor, bitmaps or counters of a block group.
    Group(Group),
    /// An inode's record.
    Inode(Ino),
    /// A block that belongs to no one inode, or whose owner is not known here.
    Block(Pblk),
    /// A block of an inode's metadata, by its physical address.
    InodeBlock(Ino, Pblk),
    /// A block of a file or directory, by its position in the file.
    FileBlock(Ino, Lblk),
    /// An entry of the journal, by block number in the journal.
    Journal(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => f.write_str("the superblock"),
            Self::Group(group) => write!(f, "block group {group}"),
            Self::Inode(ino) => write!(f, "inode {ino}"),
            Self::Block(block) => write!(f, "block {block}"),
            Self::InodeBlock(ino, block) => write!(f, "block {block} of inode {ino}"),
            Self::FileBlock(ino, block) => write!(f, "inode {ino} at file block {block}"),
            Self::Journal(block) => write!(f, "the journal at block {block}"),
        }
    }
}

/// Adds the place to an error that a parser of the format returned.
pub trait InPlace<T> {
    /// Returns the result with an error that says that the structure was found at `place`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] in place of the [`FormatError`].
    fn in_place(self, place: Place) -> Result<T>;
}

impl<T> InPlace<T> for FormatResult<T> {
    #[inline]
    fn in_place(self, place: Place) -> Result<T> {
        self.map_err(|source| Error::Corrupt { place, source })
    }
}

fn not_ext4(source: &FormatError, content: Content) -> String {
    content
        .instead_of_ext()
        .unwrap_or_else(|| format!("no ext4 file system was found: {source}"))
}

impl Error {
    /// The structure at `place` breaks the format.
    #[must_use]
    pub const fn corrupt(place: Place, source: FormatError) -> Self {
        Self::Corrupt { place, source }
    }

    /// The journal could not be written.
    pub fn log(e: JournalError) -> Self {
        Self::Log(Arc::new(e))
    }

    /// The Linux error number that system calls report for this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(e) => e.errno(),
            // As the kernel's EFSBADCRC and EFSCORRUPTED.
            Self::Corrupt { source, .. } if source.is_checksum() => EBADMSG,
            Self::Corrupt { .. }
            | Self::NotExt4 { .. }
            | Self::BlockOutOfRange { .. }
            | Self::DeviceTooSmall { .. } => EUCLEAN,
            Self::Journal(e) => match &**e {
                JournalError::Device { source, .. } => source.errno(),
                JournalError::FastCommitPending { .. }
                | JournalError::FastCommitFeatures { .. } => EOPNOTSUPP,
                _ => EUCLEAN,
            },
            Self::Log(e) => match &**e {
                JournalError::Device { source, .. } => source.errno(),
                _ => EIO,
            },
            Self::Stopped(_) => EROFS,
            Self::InUse { .. } => EBUSY,
            Self::Internal(_) => EIO,
            Self::NotFound => ENOENT,
            Self::NotADirectory => ENOTDIR,
            Self::IsADirectory => EISDIR,
            Self::NotASymlink
            | Self::NotARegularFile
            | Self::InvalidInput(_)
            | Self::Misaligned { .. } => EINVAL,
            Self::NameTooLong => ENAMETOOLONG,
            Self::Unsupported { .. } | Self::NotAtOnce(_) | Self::NoNamespace => EOPNOTSUPP,
            Self::PerhapsMade(cause) | Self::NotHome(cause) => cause.errno(),
            Self::AttributeTooLarge => E2BIG,
            Self::AttributeName => ERANGE,
            Self::ReadOnly => EROFS,
            Self::Loop => ELOOP,
            Self::NoAttribute => ENODATA,
            Self::Encrypted => ENOKEY,
            Self::Exists | Self::AlreadyProtected => EEXIST,
            Self::NotEmpty => ENOTEMPTY,
            Self::TooManyLinks => EMLINK,
            Self::BadHandle(_) => EBADF,
            Self::TooManyChanges { .. } | Self::NoSpace => ENOSPC,
            Self::QuotaExceeded => EDQUOT,
            Self::FileTooLarge => EFBIG,
            Self::PermissionDenied => EACCES,
            Self::NotPermitted => EPERM,
            Self::OtherFileSystem | Self::OtherProject => EXDEV,
            Self::Stale => ESTALE,
        }
    }

    /// Whether a structure on the device broke the format.
    #[must_use]
    pub const fn is_corruption(&self) -> bool {
        matches!(
            self,
            Self::Corrupt { .. }
                | Self::NotExt4 { .. }
                | Self::BlockOutOfRange { .. }
                | Self::DeviceTooSmall { .. }
        )
    }
}

impl From<DeviceError> for Error {
    fn from(e: DeviceError) -> Self {
        Self::Device(Arc::new(e))
    }
}

impl From<JournalError> for Error {
    fn from(e: JournalError) -> Self {
        Self::Journal(Arc::new(e))
    }
}

impl From<Error> for io::Error {
    /// Keeps the message; the kind is that of the errno.
    fn from(e: Error) -> Self {
        Self::new(kind_of(e.errno()), e)
    }
}

/// The kind of an error of the standard library that an error number of Linux stands for, on
/// whatever system.
#[must_use]
pub fn kind_of(number: i32) -> io::ErrorKind {
    if cfg!(target_os = "linux") {
        io::Error::from_raw_os_error(number).kind()
    } else {
        kind_by_table(number)
    }
}

/// What [`kind_of`] is where the system's own numbers are others.
fn kind_by_table(number: i32) -> io::ErrorKind {
    match number {
        errno::ENOENT => io::ErrorKind::NotFound,
        errno::EPERM | errno::EACCES => io::ErrorKind::PermissionDenied,
        errno::E2BIG => io::ErrorKind::ArgumentListTooLong,
        errno::EBUSY => io::ErrorKind::ResourceBusy,
        errno::EEXIST => io::ErrorKind::AlreadyExists,
        errno::EXDEV => io::ErrorKind::CrossesDevices,
        errno::ENOTDIR => io::ErrorKind::NotADirectory,
        errno::EISDIR => io::ErrorKind::IsADirectory,
        errno::EINVAL => io::ErrorKind::InvalidInput,
        errno::EFBIG => io::ErrorKind::FileTooLarge,
        errno::ENOSPC => io::ErrorKind::StorageFull,
        errno::EROFS => io::ErrorKind::ReadOnlyFilesystem,
        errno::EMLINK => io::ErrorKind::TooManyLinks,
        errno::ENAMETOOLONG => io::ErrorKind::InvalidFilename,
        errno::ENOTEMPTY => io::ErrorKind::DirectoryNotEmpty,
        errno::EOPNOTSUPP => io::ErrorKind::Unsupported,
        errno::ESTALE => io::ErrorKind::StaleNetworkFileHandle,
        errno::EDQUOT => io::ErrorKind::QuotaExceeded,
        _ => io::ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_format::{Expected, Structure};

    #[test]
    fn numbers_stand_for_the_same_kinds_on_every_system() {
        for number in 1..134 {
            let (here, elsewhere) = (kind_of(number), kind_by_table(number));
            // Other kinds have no name yet, or no number that the engine gives.
            let is_named = elsewhere != io::ErrorKind::Other;
            assert!(
                !is_named || here == elsewhere,
                "{number}: {here}, {elsewhere}"
            );
        }
    }

    #[test]
    fn corruption_names_the_place_and_the_evidence() {
        let found = FormatError::new(Structure::ExtentNode, "depth", 9, Expected::AtMost(5));
        let e = Err::<(), _>(found)
            .in_place(Place::InodeBlock(Ino::new(12), Pblk::new(700)))
            .unwrap_err();
        assert_eq!(
            e.to_string(),
            "block 700 of inode 12 is corrupt: extent tree node: depth is 9, expected at most 5"
        );
        assert_eq!(e.errno(), EUCLEAN);
        let e = Error::corrupt(
            Place::Group(Group::new(3)),
            FormatError::checksum(Structure::GroupDescriptor, 1, 2),
        );
        assert_eq!(e.errno(), EBADMSG);
    }

    #[test]
    fn device_errors_keep_their_message_and_kind() {
        let e = Error::from(DeviceError::ReadOnly {
            device: "disk.img".to_owned(),
        });
        assert_eq!(e.errno(), EROFS);
        let io = io::Error::from(Error::NotFound);
        assert_eq!(io.kind(), io::ErrorKind::NotFound);
        assert_eq!(io.to_string(), "no such file or directory");
    }
}
