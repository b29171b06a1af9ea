//! `getdents`.

use crate::dir::{self, Cookie, Entry};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, Result};
use std::ops::ControlFlow;

/// Calls `visit` with the entries of `dir` from `from` on, `.` and `..` among them, until it
/// breaks. Returns the value it broke with.
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
    dir::readdir(fs, dir, from, visit)
}
