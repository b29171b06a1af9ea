//! Why nothing can be said of a file system.

use extant_blockdev::{BlockDevice, Content, DeviceError};
use extant_format::FormatError;
use extant_jbd2::JournalError;

/// A file system that cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no ext4 file system.
    #[error("{}", content.instead_of_ext().unwrap_or_else(|| format!("no ext4 file system was found: {source}")))]
    NotExt4 {
        /// What is wrong with the superblock.
        source: FormatError,
        /// What there is instead.
        content: Content,
    },
    /// The file system has features that are not known here.
    #[error("the file system has features that are not known: {}", names.join(", "))]
    Unsupported {
        /// Their names.
        names: Vec<String>,
    },
    /// Changes wait in it to be put in place.
    #[error(
        "changes that were made as a whole wait here to be put in place, which `extant replay` does"
    )]
    ChangesWait,
    /// Changes of it are taken back in part.
    #[error(
        "taking changes back was cut off here, and the image is neither what it was nor what it became: run \
         `extant revert` again with the same undo file"
    )]
    HalfTakenBack,
    /// More groups than the device has room for descriptors.
    #[error("the superblock tells of {groups} block groups, for which the device has no room")]
    TooLarge {
        /// The groups.
        groups: u32,
    },
    /// The log cannot be read.
    #[error("the journal: {0}")]
    Journal(JournalError),
    /// The journal lies on another device, which was not given.
    #[error("the journal lies on another device: give that with --journal")]
    ExternalJournal,
    /// There is no journal.
    #[error("the file system has no journal")]
    NoJournal,
}

impl Error {
    pub(crate) fn not_ext4(device: &dyn BlockDevice, source: FormatError) -> Self {
        Self::NotExt4 {
            source,
            content: Content::on(device).unwrap_or(Content::Unknown),
        }
    }

    /// Of a journal: the device, or what is in it.
    pub(crate) fn of_journal(e: JournalError) -> Self {
        match e {
            JournalError::Device { source, .. } | JournalError::Home { source, .. } => {
                Self::Device(source)
            }
            e => Self::Journal(e),
        }
    }
}

/// Result of looking at a file system.
pub type Result<T> = std::result::Result<T, Error>;
