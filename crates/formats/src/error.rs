//! Errors of formats: one sentence each, with what was found and what to do.

use extant_blockdev::DeviceError;
use std::io;
use std::path::PathBuf;

/// An image that cannot be opened or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The device below failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A structure of the format says what cannot be.
    #[error("{device} is a damaged {format}: {reason}")]
    Damaged {
        /// Name of the device.
        device: String,
        /// Name of the format, such as `VHD`.
        format: &'static str,
        /// What was found, and what was expected.
        reason: String,
    },
    /// The image is sound, and of a kind that is not read or written here.
    #[error("{device} is {what}, which is not supported: {advice}")]
    Unsupported {
        /// Name of the device.
        device: String,
        /// What it is, with its article.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The format is read only.
    #[error("{device} is {what}, which is only read: {advice}")]
    ReadOnly {
        /// Name of the device.
        device: String,
        /// What it is, with its article.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// The image has no mark of the format that it was said to have.
    #[error(
        "{device} was said to be {said}, and has no mark of one: say what it is (--image-format), \
         or leave that to be seen"
    )]
    NotAsSaid {
        /// Name of the device.
        device: String,
        /// The format, with its article.
        said: &'static str,
    },
    /// The image names another file, which is not opened unless asked for.
    #[error("{device} names the file {named:?}, which was not opened: {reason}")]
    NotFollowed {
        /// Name of the device.
        device: String,
        /// The name as the image has it.
        named: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The image would be larger than the format, or the caller, allows.
    #[error("{what} has {size} bytes, and {limit} are the limit")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size in bytes, as far as it is known.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A size that the format cannot have.
    #[error("a {format} cannot have {size} bytes: {reason}")]
    BadSize {
        /// Name of the format.
        format: &'static str,
        /// Size asked for, in bytes.
        size: u64,
        /// What it can have.
        reason: &'static str,
    },
    /// The system refused a file of ours.
    #[error("cannot {op} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FormatError {
    /// Returns the one error number that tells a POSIX program the same, for example `EINVAL`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Self::Device(error) => return error.errno(),
            Self::File { source, .. } => {
                return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
            Self::Damaged { .. } | Self::BadSize { .. } | Self::NotAsSaid { .. } => Errno::INVAL,
            Self::Unsupported { .. } => Errno::OPNOTSUPP,
            Self::ReadOnly { .. } => Errno::ROFS,
            Self::NotFollowed { .. } => Errno::PERM,
            Self::TooLarge { .. } => Errno::FBIG,
        };
        errno.raw_os_error()
    }
}
