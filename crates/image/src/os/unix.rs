//! Paths that are bytes.

use crate::AddressError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What a user wrote, as bytes.
///
/// # Errors
/// None.
#[expect(clippy::unnecessary_wraps, reason = "on other systems it can fail")]
pub(crate) fn bytes(text: &OsStr) -> Result<&[u8], AddressError> {
    Ok(text.as_bytes())
}

/// Bytes as a path of the host.
pub(crate) fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
