//! Errors: a number of Linux and a sentence.

use extant_blockdev::DeviceError;
use extant_core::Error;
use extant_format::errno::{EINVAL, EIO, EOPNOTSUPP, EUCLEAN};
use std::fmt;

/// The number of a failure where there is no ext4 file system at all. Linux has none for that.
pub(crate) const NOT_EXT4: i32 = 1000;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A number of Linux, or 1000 where there is no ext4 file system.
    pub errno: i32,
    /// A sentence.
    pub text: String,
}

/// A result for the program.
pub type Told<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Self {
            errno,
            text: text.into(),
        }
    }

    pub(crate) fn damaged(text: impl Into<String>) -> Self {
        Self::new(EUCLEAN, text)
    }

    pub(crate) fn unsupported(text: impl Into<String>) -> Self {
        Self::new(EOPNOTSUPP, text)
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(EINVAL, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let errno = match e {
            Error::NotExt4 { .. } => NOT_EXT4,
            ref e => e.errno(),
        };
        Self::new(errno, e.to_string())
    }
}

impl From<DeviceError> for Failure {
    fn from(e: DeviceError) -> Self {
        Self::new(e.errno(), e.to_string())
    }
}

impl From<extant_fsck::Error> for Failure {
    fn from(e: extant_fsck::Error) -> Self {
        let errno = match &e {
            extant_fsck::Error::Device(e) => e.errno(),
            extant_fsck::Error::NotExt4 { .. } => NOT_EXT4,
            _ => EIO,
        };
        Self::new(errno, e.to_string())
    }
}
