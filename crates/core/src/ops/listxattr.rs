//! `listxattr`.

use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::{Result, xattr};
use std::ops::ControlFlow;

/// The full names of an inode's attributes, in the order they are stored.
///
/// # Errors
/// As for [`xattr::list`].
pub fn listxattr(fs: &Fs, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    xattr::list(fs, inode)
}

/// The same of an inode that may change meanwhile.
///
/// # Errors
/// As for [`xattr::list`].
pub fn listxattr_live(fs: &Fs, inode: &Held) -> Result<Vec<Vec<u8>>> {
    let _shared = inode.op().read();
    xattr::list(fs, &inode.snapshot())
}

/// [`xattr::for_each`] of an inode that may change meanwhile, though not while this runs.
///
/// # Errors
/// As for [`xattr::for_each`].
pub fn for_each_xattr_live<B>(
    fs: &Fs,
    inode: &Held,
    visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
) -> Result<Option<B>> {
    let _shared = inode.op().read();
    xattr::for_each(fs, &inode.snapshot(), visit)
}
