//! One step of a path.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, Result, dir};
use extant_format::Ino;
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

/// The number of the inode that `name` stands for in the directory `dir`. What is in memory is found
/// without a lock.
///
/// # Errors
/// As for [`lookup`].
pub fn lookup_ino(fs: &Fs, dir: Ino, name: &[u8]) -> Result<Ino> {
    if let Some(known) = fs.names().get(dir, name) {
        return known.ok_or(Error::NotFound);
    }
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let dir = fs.hold(dir)?;
    if !dir.snapshot().is_dir() {
        return Err(Error::NotADirectory);
    }
    fs.lookup_name(&dir, name)?.ok_or(Error::NotFound)
}
