//! The error of this crate: which path, and why.

use crate::export::{Missing, Unread};
use extant_blockdev::DeviceError;
use extant_core::Error as EngineError;
use extant_core::Place;
use extant_core::error::kind_of;
use extant_format::FormatError;
use extant_format::errno::{
    EACCES, EBUSY, EEXIST, EINVAL, EIO, ELOOP, ENOENT, ENOSPC, EOPNOTSUPP, EUCLEAN,
};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of an operation on a file system.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that failed: the path it was about, and why.
///
/// Reads as a sentence, with control characters of names escaped. Becomes an [`io::Error`] of the
/// kind that the operating system would report.
#[derive(Clone, Debug)]
pub struct Error {
    path: PathBuf,
    cause: Cause,
}

/// Why an operation failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The file system says so: missing, refused, corrupt, unreadable. The path is one inside it.
    Image(ImageError),
    /// A directory is found in more than one place, which would make a tree without end.
    DirectoryTwice,
    /// A name that no file may have here: it is empty, `.`, `..`, or holds a `/` or a zero byte.
    BadName,
    /// What is to be moved or removed is a place on the way: the root, or a path that ends in `.`
    /// or `..`.
    Busy,
    /// A directory holds the same name twice.
    NameTwice,
    /// Directories are nested deeper than this crate follows them.
    TooDeep,
    /// Files claim more data than the file system has room for.
    TooMuchData,
    /// The content is another one than fs-verity protected, from this byte on.
    Altered {
        /// The first byte of the first block that differs.
        offset: u64,
    },
    /// What fs-verity keeps to compare content with is damaged; the text says what.
    Unverifiable(Box<str>),
    /// What the file is cannot be kept where it goes; the text says what.
    NotKept(&'static str),
    /// A copy has the whole content, but not everything else that the file had.
    Incomplete(Arc<[Missing]>),
    /// Parts of a file cannot be read: it has no copy, or one with zeros there.
    Unread(Arc<Unread>),
    /// A file was mended in memory where its content lies: parts of what it held may be missing in
    /// the copy, or another file's.
    InDoubt,
    /// A file system cannot be made. The path is that of the host.
    #[cfg(feature = "mkfs")]
    NotMade(Arc<extant_mkfs::BuildError>),
    /// A file system cannot be checked. The path is that of the host.
    #[cfg(feature = "check")]
    NotChecked(Arc<extant_fsck::Error>),
    /// An archive cannot be read. There is no path.
    #[cfg(feature = "tar")]
    NotRead(Arc<extant_mkfs::source::SourceError>),
    /// The operating system refused something outside the image. The path is that of the host.
    Host {
        /// What was tried, as a verb.
        action: &'static str,
        /// What it said.
        source: Arc<io::Error>,
    },
}

impl Cause {
    pub(crate) fn engine(source: EngineError) -> Self {
        Self::Image(ImageError(source))
    }
}

impl From<EngineError> for ImageError {
    fn from(source: EngineError) -> Self {
        Self(source)
    }
}

/// The cause of a failure inside this crate, which `?` makes of an error of the engine.
pub(crate) struct Why(pub(crate) Cause);

impl From<EngineError> for Why {
    fn from(e: EngineError) -> Self {
        Self(Cause::engine(e))
    }
}

impl From<Cause> for Why {
    fn from(cause: Cause) -> Self {
        Self(cause)
    }
}

/// What a file system, or the device it lies on, answered in place of a result.
///
/// Reads as a sentence without the path, which is in the [`Error`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ImageError(EngineError);

impl ImageError {
    /// Returns the Linux error number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.0.errno()
    }

    /// Returns the kind of [`io::Error`] that this is.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        kind_of(self.errno())
    }

    /// Returns whether a structure of the image breaks the format.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        self.0.is_corruption()
    }

    /// Returns whether there is no ext2, ext3 or ext4 file system at all.
    #[must_use]
    pub fn is_not_ext4(&self) -> bool {
        matches!(self.0, EngineError::NotExt4 { .. })
    }

    /// Returns where the corrupt structure lies, if one was found and its place is known.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match &self.0 {
            EngineError::Corrupt { place, .. } => Some(*place),
            EngineError::NotExt4 { .. } => Some(Place::Superblock),
            _ => None,
        }
    }

    /// Returns what is wrong with the corrupt structure, if one was found.
    #[must_use]
    pub fn format(&self) -> Option<&FormatError> {
        match &self.0 {
            EngineError::Corrupt { source, .. } | EngineError::NotExt4 { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }

    /// Returns what the device said, if it failed or refused.
    #[must_use]
    pub fn device(&self) -> Option<&DeviceError> {
        match &self.0 {
            EngineError::Device(source) => Some(source),
            _ => None,
        }
    }

    /// Returns the names of the features that this crate cannot handle, separated by `, `, if they
    /// are why.
    #[must_use]
    pub fn unsupported_features(&self) -> Option<&str> {
        match &self.0 {
            EngineError::Unsupported { features } => Some(features),
            _ => None,
        }
    }

    /// Returns the error of the engine.
    #[cfg(feature = "unstable")]
    #[must_use]
    pub fn engine(&self) -> &EngineError {
        &self.0
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl Error {
    /// An engine error about `path`.
    pub(crate) fn engine(path: impl Into<PathBuf>, source: EngineError) -> Self {
        Self::new(path, Cause::engine(source))
    }

    pub(crate) fn new(path: impl Into<PathBuf>, cause: Cause) -> Self {
        Self {
            path: path.into(),
            cause,
        }
    }

    pub(crate) fn host(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        let source = Arc::new(source.into());
        Self::new(path, Cause::Host { action, source })
    }

    /// Returns the path the operation was about; empty when it was about the file system as a
    /// whole.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns why it failed.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    pub(crate) fn into_cause(self) -> Cause {
        self.cause
    }

    /// Returns the Linux error number for this failure.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match &self.cause {
            Cause::Image(e) => e.errno(),
            Cause::DirectoryTwice
            | Cause::NameTwice
            | Cause::TooMuchData
            | Cause::InDoubt
            | Cause::Unverifiable(_) => EUCLEAN,
            Cause::Unread(unread) => unread.reason().errno(),
            Cause::Altered { .. } => EIO,
            Cause::BadName | Cause::NotKept(_) => EINVAL,
            Cause::Busy => EBUSY,
            Cause::TooDeep => ELOOP,
            Cause::Incomplete(missing) => missing
                .first()
                .and_then(|missing| missing.source().raw_os_error())
                .unwrap_or(EIO),
            #[cfg(feature = "mkfs")]
            Cause::NotMade(e) => match &**e {
                extant_mkfs::BuildError::Place(_) => ENOSPC,
                e => errno_of(e),
            },
            #[cfg(feature = "check")]
            Cause::NotChecked(e) => match &**e {
                extant_fsck::Error::Device(e) => e.errno(),
                extant_fsck::Error::NotExt4 { .. } => EUCLEAN,
                extant_fsck::Error::Unsupported { .. } => EOPNOTSUPP,
                e => errno_of(e),
            },
            #[cfg(feature = "tar")]
            Cause::NotRead(e) => errno_of(&**e),
            Cause::Host { source, .. } => errno_of_host(source),
        }
    }

    /// Returns the kind of [`io::Error`] this failure is.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match &self.cause {
            Cause::Host { source, .. } => source.kind(),
            _ => kind_of(self.errno()),
        }
    }
}

/// The error number of the system that an error came of, or that of an argument that cannot be.
#[cfg(any(feature = "mkfs", feature = "check", feature = "tar"))]
fn errno_of(e: &(dyn std::error::Error + 'static)) -> i32 {
    let mut next = Some(e);
    while let Some(e) = next {
        let number = match e.downcast_ref::<io::Error>() {
            Some(e) => e.raw_os_error(),
            None => e.downcast_ref::<DeviceError>().map(DeviceError::errno),
        };
        if let Some(number) = number {
            return number;
        }
        next = e.source();
    }
    EINVAL
}

/// The error number of what the operating system refused, or of what was refused in its place.
fn errno_of_host(source: &io::Error) -> i32 {
    // Other systems have numbers of their own.
    let number = source.raw_os_error().filter(|_| cfg!(target_os = "linux"));
    number.unwrap_or(match source.kind() {
        io::ErrorKind::AlreadyExists => EEXIST,
        io::ErrorKind::InvalidInput => EINVAL,
        io::ErrorKind::NotFound => ENOENT,
        io::ErrorKind::PermissionDenied => EACCES,
        io::ErrorKind::StorageFull => ENOSPC,
        io::ErrorKind::Unsupported => EOPNOTSUPP,
        _ => EIO,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Escaped::path(&self.path);
        match &self.cause {
            Cause::Host { action, source } => return write!(f, "cannot {action} {path}: {source}"),
            _ if self.path.as_os_str().is_empty() => {}
            _ => write!(f, "{path}: ")?,
        }
        match &self.cause {
            Cause::Image(e) => fmt::Display::fmt(e, f),
            Cause::DirectoryTwice => {
                f.write_str("the file system is corrupt: this directory has a second place")
            }
            Cause::Busy => f.write_str("the root, `.` and `..` can be neither moved nor removed"),
            Cause::BadName => f.write_str("the file system is corrupt: no file may have this name"),
            Cause::NameTwice => {
                f.write_str("the file system is corrupt: its directory has this name twice")
            }
            Cause::TooDeep => f.write_str("directories are nested too deeply"),
            Cause::TooMuchData => f.write_str(
                "the file system is corrupt: its files claim more data than it has room for",
            ),
            Cause::NotKept(what) => f.write_str(what),
            Cause::Altered { offset } => write!(
                f,
                "its content at byte {offset} is not what fs-verity protects"
            ),
            Cause::Unverifiable(what) => write!(f, "fs-verity cannot vouch for it: {what}"),
            Cause::Unread(unread) => fmt::Display::fmt(unread, f),
            Cause::InDoubt => f.write_str(
                "where its content lies was mended: parts of it may be missing, or another file's",
            ),
            Cause::Incomplete(missing) => {
                f.write_str("copied without ")?;
                for (index, missing) in missing.iter().enumerate() {
                    let between = if index == 0 { "" } else { ", " };
                    write!(f, "{between}{missing}")?;
                }
                Ok(())
            }
            #[cfg(feature = "mkfs")]
            Cause::NotMade(e) => fmt::Display::fmt(e, f),
            #[cfg(feature = "check")]
            Cause::NotChecked(e) => fmt::Display::fmt(e, f),
            #[cfg(feature = "tar")]
            Cause::NotRead(e) => fmt::Display::fmt(e, f),
            Cause::Host { .. } => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Image(e) => Some(e),
            #[cfg(feature = "mkfs")]
            Cause::NotMade(e) => Some(&**e),
            #[cfg(feature = "check")]
            Cause::NotChecked(e) => Some(&**e),
            #[cfg(feature = "tar")]
            Cause::NotRead(e) => Some(&**e),
            Cause::Host { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the message; the kind is that of the errno.
    fn from(e: Error) -> Self {
        Self::new(e.kind(), e)
    }
}

/// Bytes of a name or path, written so that they cannot command a terminal: control characters
/// and whatever is not UTF-8 appear as `\x1b`, a backslash as `\\`.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl<'a> Escaped<'a> {
    /// Returns the bytes of a path.
    #[must_use]
    pub fn path(path: &'a Path) -> Self {
        Self(path.as_os_str().as_bytes())
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    // C1 controls, and the marks that reorder text.
                    c if c.is_control() || is_bidi_control(c) => {
                        let mut bytes = [0; 4];
                        for byte in c.encode_utf8(&mut bytes).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
