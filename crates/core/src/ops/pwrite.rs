//! `pwrite`, `write` with `O_APPEND`, and `ftruncate`.

use super::flags::check_content;
use super::naming::with_space;
use crate::data::{self, WriteOptions};
use crate::fs::Fs;
use crate::inode::Held;
use crate::{Error, Result};

/// Writes at byte `offset` of a regular file. Returns how much was written: less than all only when
/// space ran out on the way.
///
/// # Errors
/// As for [`data::write_at`].
pub fn pwrite(fs: &Fs, file: &Held, offset: u64, buf: &[u8]) -> Result<usize> {
    with_space(fs, || data::write_at(fs, file, offset, buf))
}

/// Writes at the end of a regular file, wherever that is. Returns where that was, and how much was
/// written.
///
/// # Errors
/// As for [`data::write_at`].
pub fn append(fs: &Fs, file: &Held, buf: &[u8]) -> Result<(u64, usize)> {
    with_space(fs, || data::append(fs, file, buf, WriteOptions::default()))
}

/// The same as [`pwrite`] past memory, as after opening with `O_DIRECT`.
///
/// # Errors
/// As for [`data::write_direct`].
pub fn pwrite_direct(fs: &Fs, file: &Held, offset: u64, buf: &[u8]) -> Result<usize> {
    let options = WriteOptions::default();
    with_space(fs, || data::write_direct(fs, file, offset, buf, options))
}

/// The same as [`append`] past memory.
///
/// # Errors
/// As for [`data::append_direct`].
pub fn append_direct(fs: &Fs, file: &Held, buf: &[u8]) -> Result<(u64, usize)> {
    let options = WriteOptions::default();
    with_space(fs, || data::append_direct(fs, file, buf, options))
}

/// Makes a regular file `size` bytes long.
///
/// # Errors
/// [`Error::IsADirectory`] and [`Error::InvalidInput`] for anything else; as for [`data::truncate`].
pub fn truncate(fs: &Fs, file: &Held, size: u64) -> Result<()> {
    if file.snapshot().is_dir() {
        return Err(Error::IsADirectory);
    }
    check_content(file)?;
    with_space(fs, || data::truncate(fs, file, size))
}
