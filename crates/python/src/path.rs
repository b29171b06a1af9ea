//! Names and paths: `str`, `bytes`, or what can be made one of them.
//!
//! Names in ext4 are bytes. As `str` they are UTF-8, and what is not is kept by surrogates
//! (`surrogateescape`), whatever the locale says: an image is not of this machine.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::ffi::OsStr;
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The method by which paths of images say their text; those of the host have `__fspath__`.
const IMAGE_PATH: &str = "__image_path__";

/// A path in an image as a caller gave it.
#[derive(Clone, Debug)]
pub(crate) struct ImagePath {
    bytes: Vec<u8>,
    /// It was `bytes`, so names that belong to it are.
    pub(crate) is_bytes: bool,
}

impl ImagePath {
    /// The root.
    pub(crate) fn root() -> Self {
        Self {
            bytes: b"/".to_vec(),
            is_bytes: false,
        }
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives a name or path in the form that the caller uses.
    pub(crate) fn give<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        give(py, name, self.is_bytes)
    }
}

impl<'py> FromPyObject<'_, 'py> for ImagePath {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        let path = match plain(&value)? {
            Some(path) => path,
            None => {
                let text = if value.hasattr(IMAGE_PATH)? {
                    value.call_method0(IMAGE_PATH)?
                } else {
                    fs_path(py, &value)?
                };
                plain(&text.as_borrowed())?
                    .ok_or_else(|| PyTypeError::new_err("a path is str or bytes"))?
            }
        };
        if path.bytes.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(path)
    }
}

/// What is `str` or `bytes` already.
fn plain(value: &Borrowed<'_, '_, PyAny>) -> PyResult<Option<ImagePath>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Some(ImagePath {
            bytes: bytes_of(&text)?,
            is_bytes: false,
        }));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(ImagePath {
            bytes: bytes.as_bytes().to_vec(),
            is_bytes: true,
        }));
    }
    Ok(None)
}

/// `os.fspath`.
fn fs_path<'py>(py: Python<'py>, value: &Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    py.import("os")?.call_method1("fspath", (value,))
}

/// The bytes of a text.
pub(crate) fn bytes_of(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    if let Ok(utf8) = text.to_str() {
        return Ok(utf8.as_bytes().to_vec());
    }
    let encoded = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
    Ok(encoded.cast::<PyBytes>()?.as_bytes().to_vec())
}

/// The text of bytes.
pub(crate) fn text_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let len = ffi::Py_ssize_t::try_from(bytes.len())?;
    // SAFETY: the pointer and the length are those of `bytes`, the name of the error handler ends
    // with a zero byte, and what is returned is a new reference or null with an exception set.
    unsafe {
        let text = ffi::PyUnicode_DecodeUTF8(
            bytes.as_ptr().cast::<c_char>(),
            len,
            c"surrogateescape".as_ptr(),
        );
        Bound::from_owned_ptr_or_err(py, text)
    }
}

/// Gives bytes as they are, or as text.
pub(crate) fn give<'py>(
    py: Python<'py>,
    bytes: &[u8],
    is_bytes: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if is_bytes {
        Ok(PyBytes::new(py, bytes).into_any())
    } else {
        text_of(py, bytes)
    }
}

/// A name, and whether it is given as bytes.
pub(crate) struct Text<'a>(pub(crate) &'a [u8], pub(crate) bool);

impl<'py> IntoPyObject<'py> for Text<'_> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        give(py, self.0, self.1)
    }
}

/// A directory's path with one more name.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(dir.len() + 1 + name.len());
    joined.extend_from_slice(dir);
    if !dir.is_empty() && !dir.ends_with(b"/") {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
