//! Why a check could not be made, as opposed to what it found.

use extant_blockdev::{BlockDevice, Content, DeviceError};
use extant_format::FormatError;
use extant_jbd2::JournalError;

/// A check that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no ext4 file system, and no backup of its superblock was found either.
    #[error("{}", not_ext4(source, *content))]
    NotExt4 {
        /// What is wrong with the superblock.
        source: FormatError,
        /// What there is instead.
        content: Content,
    },
    /// The file system has features that this version cannot judge.
    #[error("the file system has features that cannot be checked: {}", names.join(", "))]
    Unsupported {
        /// Their names.
        names: Vec<String>,
    },
    /// What recovery would make of the journal cannot be said.
    #[error("{0} (--as-is judges the file system without its journal)")]
    Journal(JournalError),
    /// A journal on another device has to be replayed first, and is not at hand.
    #[error(
        "the journal to be replayed lies on another device (give that with --journal to have the file system checked; --as-is \
         judges it without)"
    )]
    ExternalJournal,
    /// An undo file cannot be read or written.
    #[error("undo file: {0}")]
    Undo(std::io::Error),
    /// The device ends before the file system: there is no room to repair it in.
    #[error("the device has {size} bytes, the file system needs {needed}: nothing is changed")]
    TooShort {
        /// Of the device.
        size: u64,
        /// Of the file system.
        needed: u64,
    },
    /// The file system is open elsewhere.
    #[error(
        "multiple-mount protection says that the file system is in use on {node}; if nothing there uses or checks it any \
         more, clear that mark with tune2fs -f -E clear_mmp"
    )]
    InUse {
        /// The name of the machine.
        node: String,
    },
    /// A structure that was to be written cannot be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed while changes were made as a whole: all of them are made, or none.
    #[error(
        "{0}: whether the changes are made is not known. All of them are, or none; `extant replay` puts them in place \
         if they are"
    )]
    PerhapsMade(Box<Error>),
    /// Changes are made as a whole, and the device failed before they were in their places.
    #[error("{0}: the changes are made, and wait to be put in place, which `extant replay` does")]
    NotHome(Box<Error>),
    /// It is not done, and the image is as it was.
    #[error("{why}")]
    Refused {
        /// Why.
        why: String,
    },
    /// A repair would lose what can be read now; nothing is written.
    #[error(
        "the repair would lose {count} {} that can be read now (the first: {first}); nothing is written",
        if *count == 1 { "file" } else { "files" }
    )]
    Loss {
        /// How many files.
        count: u64,
        /// The first of them.
        first: crate::repair::Loss,
    },
    /// The file system has more groups than are held in memory, or than the device has room for.
    #[error("the file system has {groups} block groups, at most {most} can be checked")]
    TooLarge {
        /// Its groups.
        groups: u32,
        /// The limit.
        most: u32,
    },
}

fn not_ext4(source: &FormatError, content: Content) -> String {
    content
        .instead_of_ext()
        .unwrap_or_else(|| format!("no ext4 file system was found: {source}"))
}

impl Error {
    /// Makes the error of a device on which no ext4 file system was found, of what is wrong with
    /// its superblock.
    #[must_use]
    pub fn not_ext4(device: &dyn BlockDevice, source: FormatError) -> Self {
        Self::NotExt4 {
            source,
            content: Content::on(device).unwrap_or(Content::Unknown),
        }
    }

    /// Whether something was looked for behind the end of the device.
    pub(crate) fn is_of_what_is_missing(&self) -> bool {
        use JournalError::{Device, Home};
        let (Self::Device(source) | Self::Journal(Device { source, .. } | Home { source, .. })) =
            self
        else {
            // Descriptors of more groups than the device could hold.
            return matches!(self, Self::TooLarge { .. });
        };
        matches!(source, DeviceError::OutOfRange { .. })
    }

    /// Whether fast commits wait for replay, which is the work of an engine: what it makes of them
    /// can be checked.
    #[must_use]
    pub fn is_fast_commit(&self) -> bool {
        matches!(self, Self::Journal(JournalError::FastCommitPending { .. }))
    }

    /// Why a journal could not be read or replayed: the device, or what is in it.
    pub(crate) fn of_journal(e: JournalError) -> Self {
        match e {
            JournalError::Device { source, .. } | JournalError::Home { source, .. } => {
                Self::Device(source)
            }
            e => Self::Journal(e),
        }
    }
}

/// Result of a check.
pub type Result<T> = std::result::Result<T, Error>;
