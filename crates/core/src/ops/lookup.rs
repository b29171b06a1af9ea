//! One step of a path.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, Result, dir};
use std::sync::Arc;

/// Longest name of a directory entry, in bytes.
const NAME_MAX: usize = 255;

/// The inode that `name` stands for in `dir`.
///
/// # Errors
/// [`Error::NotADirectory`], [`Error::NotFound`], [`Error::NameTooLong`]; [`Error::Corrupt`] when
/// the directory or the inode is broken, [`Error::Device`] when the device fails.
pub fn lookup(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
    if !dir.is_dir() {
        return Err(Error::NotADirectory);
    }
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let found = dir::lookup(fs, dir, name)?.ok_or(Error::NotFound)?;
    fs.inode(found.ino)
}
