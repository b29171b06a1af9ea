//! Paths that are text.

use crate::AddressError;
use std::ffi::OsStr;

/// What a user wrote, as bytes.
///
/// # Errors
/// When it is no Unicode: no part of it could be given back as a path.
pub(crate) fn bytes(text: &OsStr) -> Result<&[u8], AddressError> {
    let unicode = text.to_str().map(str::as_bytes);
    unicode.ok_or_else(|| {
        AddressError::new(
            text.as_encoded_bytes(),
            "the name has parts that are no Unicode: give the file another name",
        )
    })
}

/// Bytes as a path of the host. They are part of what [`bytes`] gave, cut at ASCII characters, or
/// have been looked at, and so are Unicode.
pub(crate) fn os(bytes: &[u8]) -> &OsStr {
    OsStr::new(std::str::from_utf8(bytes).unwrap_or_default())
}
