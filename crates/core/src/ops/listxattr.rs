//! `listxattr`.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Result, xattr};

/// The full names of an inode's attributes, in the order they are stored.
///
/// # Errors
/// As for [`xattr::list`].
pub fn listxattr(fs: &Fs, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    xattr::list(fs, inode)
}
