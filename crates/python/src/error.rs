//! From errors of Rust to exceptions of Python.
//!
//! All are `OSError`, with the number and the path where there is one. Python itself makes
//! `FileNotFoundError` and the like of the number.

use crate::path::{ImagePath, text_of};
use extant::{Cause, Escaped};
use extant_blockdev::DeviceError;
use pyo3::PyErrArguments;
use pyo3::create_exception;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

create_exception!(
    extant,
    ImageError,
    PyOSError,
    "The image, and not what was asked of it, is the reason."
);
create_exception!(
    extant,
    NotExt4Error,
    ImageError,
    "There is no ext2, ext3 or ext4 file system."
);
create_exception!(
    extant,
    DamagedError,
    ImageError,
    "A structure of the file system breaks the format."
);

/// Which exception it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By its number alone.
    Plain,
    /// No file system is there.
    NotExt4,
    /// The file system is damaged.
    Damaged,
}

impl Kind {
    fn exception<A: PyErrArguments + Send + Sync + 'static>(self, args: A) -> PyErr {
        match self {
            Self::Plain => PyErr::new::<PyOSError, A>(args),
            Self::NotExt4 => PyErr::new::<NotExt4Error, A>(args),
            Self::Damaged => PyErr::new::<DamagedError, A>(args),
        }
    }
}

/// A failure that becomes an exception, which takes the GIL to make.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) errno: i32,
    pub(crate) text: String,
    /// Bytes of the path, where it is about a file.
    pub(crate) path: Option<Vec<u8>>,
    /// Bytes of the second path of calls that have two.
    pub(crate) other: Option<Vec<u8>>,
}

/// The number for what is no file system, as the library for C has it.
const EMEDIUMTYPE: i32 = 124;

impl Failure {
    /// A refusal that says what is wrong.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self {
            kind: Kind::Plain,
            errno: extant::errno::EINVAL,
            text: text.into(),
            path: None,
            other: None,
        }
    }

    /// Says it of the two paths of a call, as Python does whichever of them is the reason.
    pub(crate) fn between(self, one: &ImagePath, other: &ImagePath) -> Self {
        Self {
            path: Some(one.bytes().to_vec()),
            other: Some(other.bytes().to_vec()),
            ..self
        }
    }

    /// Makes the exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        let text = |path: Option<Vec<u8>>| -> PyResult<Option<Py<PyAny>>> {
            path.map(|path| text_of(py, &path).map(Bound::unbind))
                .transpose()
        };
        let (path, other) = match (text(self.path), text(self.other)) {
            (Ok(path), Ok(other)) => (path, other),
            (Err(e), _) | (_, Err(e)) => return e,
        };
        if path.is_none() && other.is_none() {
            return self.kind.exception((self.errno, self.text));
        }
        // The fourth is of Windows.
        let args = (self.errno, self.text, path, None::<i32>, other);
        self.kind.exception(args)
    }
}

impl From<extant::Error> for Failure {
    fn from(e: extant::Error) -> Self {
        let (kind, text) = match e.cause() {
            Cause::Image(image) if image.is_not_ext4() => (Kind::NotExt4, image.to_string()),
            Cause::Image(image) if image.is_corruption() => (Kind::Damaged, image.to_string()),
            Cause::Image(image) => (Kind::Plain, image.to_string()),
            cause => {
                let kind = match cause {
                    Cause::DirectoryTwice
                    | Cause::BadName
                    | Cause::NameTwice
                    | Cause::TooMuchData
                    | Cause::InDoubt
                    | Cause::Altered { .. }
                    | Cause::Unverifiable(_) => Kind::Damaged,
                    _ => Kind::Plain,
                };
                (kind, without_path(&e))
            }
        };
        let path = e.path().as_os_str().as_bytes();
        let (errno, is_about_file) = match kind {
            Kind::NotExt4 => (EMEDIUMTYPE, false),
            // An empty path is that of no file, and is named as well.
            kind => (
                e.errno(),
                kind == Kind::Plain && e.errno() == extant::errno::ENOENT,
            ),
        };
        Self {
            kind,
            errno,
            text,
            path: (is_about_file || !path.is_empty()).then(|| path.to_vec()),
            other: None,
        }
    }
}

/// What an error says, without the path that the exception has for itself.
fn without_path(e: &extant::Error) -> String {
    let text = e.to_string();
    let prefix = format!("{}: ", Escaped::path(e.path()));
    match text.strip_prefix(&prefix) {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

impl From<DeviceError> for Failure {
    fn from(e: DeviceError) -> Self {
        Self {
            kind: Kind::Plain,
            errno: e.errno(),
            text: e.to_string(),
            path: None,
            other: None,
        }
    }
}

impl From<extant_fsck::Error> for Failure {
    fn from(e: extant_fsck::Error) -> Self {
        use extant_fsck::Error;
        let text = e.to_string();
        let (kind, errno) = match e {
            Error::Device(e) => return e.into(),
            Error::NotExt4 { .. } => (Kind::NotExt4, EMEDIUMTYPE),
            Error::Unsupported { .. } => (Kind::Plain, extant::errno::EOPNOTSUPP),
            Error::InUse { .. } => (Kind::Plain, extant::errno::EBUSY),
            Error::Undo(e) => (Kind::Plain, e.raw_os_error().unwrap_or(extant::errno::EIO)),
            _ => (Kind::Damaged, extant::errno::EUCLEAN),
        };
        Self {
            kind,
            errno,
            text,
            path: None,
            other: None,
        }
    }
}

/// Says of which image a failure is that names no file.
pub(crate) fn of_image(mut failure: Failure, image: &Path) -> Failure {
    if failure.path.is_none() {
        failure.path = Some(image.as_os_str().as_bytes().to_vec());
    }
    failure
}
