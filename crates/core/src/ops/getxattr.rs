//! `getxattr`.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Result, xattr};

/// The value of the attribute with this full name (`user.mime_type`).
///
/// # Errors
/// As for [`xattr::get`].
pub fn getxattr(fs: &Fs, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    xattr::get(fs, inode, name)
}
