//! `getdents`.

use super::accessed::accessed;
use crate::dir::{self, Cookie, Entry};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, Result};
use std::ops::ControlFlow;

/// Calls `visit` with the entries of `dir` from `from` on, `.` and `..` among them, until it
/// breaks. Returns the value it broke with.
///
/// On a file system open for writing the directory may change meanwhile: what stays is listed once,
/// as [`dir::readdir_live`] says, and a directory that was removed has no entries.
///
/// # Errors
/// As for [`dir::readdir`].
pub fn readdir<B>(
    fs: &Fs,
    dir: &Inode,
    from: Cookie,
    visit: impl FnMut(Entry<'_>) -> ControlFlow<B>,
) -> Result<Option<B>> {
    if !dir.is_dir() {
        return Err(Error::NotADirectory);
    }
    if fs.journal().is_err() {
        return dir::readdir(fs, dir, from, visit);
    }
    match fs.hold_same(dir.id()) {
        Ok(held) => {
            let found = dir::readdir_live(fs, &held, from, visit)?;
            accessed(fs, &held);
            Ok(found)
        }
        Err(Error::Stale) => Ok(None),
        Err(e) => Err(e),
    }
}
