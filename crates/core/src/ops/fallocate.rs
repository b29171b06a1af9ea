//! `fallocate`.

use super::flags::check_content;
use super::naming::changing_of;
use super::permission::Acting;
use crate::data::{self, FallocateMode};
use crate::inode::Held;
use crate::{Error, Result};

/// Reserves blocks for a range of a regular file; see [`data::fallocate`].
///
/// # Errors
/// As there.
pub fn fallocate<'a>(
    by: impl Into<Acting<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
    mode: FallocateMode,
) -> Result<()> {
    let by = by.into();
    let fs = by.fs();
    if file.snapshot().is_dir() {
        return Err(Error::IsADirectory);
    }
    let _changing = by.begin_change()?;
    data::fallocate(fs, file, offset, len, mode, by.writing())
}

/// Makes a hole of a range of a regular file (`FALLOC_FL_PUNCH_HOLE`); see [`data::punch_hole`].
///
/// # Errors
/// As there; [`Error::NotPermitted`] for a file that is immutable or append-only.
pub fn punch_hole<'a>(by: impl Into<Acting<'a>>, file: &Held, offset: u64, len: u64) -> Result<()> {
    let by = by.into();
    let fs = by.fs();
    check_content(file)?;
    changing_of(by, &[file], || {
        data::punch_hole(fs, file, offset, len, by.writing())
    })
}

/// Makes a range of a regular file zeros that have space (`FALLOC_FL_ZERO_RANGE`); see [`data::zero_range`].
///
/// # Errors
/// As for [`punch_hole`].
pub fn zero_range<'a>(
    by: impl Into<Acting<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
    keep_size: bool,
) -> Result<()> {
    let by = by.into();
    let fs = by.fs();
    check_content(file)?;
    changing_of(by, &[file], || {
        data::zero_range(fs, file, offset, len, keep_size, by.writing())
    })
}

/// Takes a range out of a regular file (`FALLOC_FL_COLLAPSE_RANGE`); see [`data::collapse_range`].
///
/// # Errors
/// As for [`punch_hole`].
pub fn collapse_range<'a>(
    by: impl Into<Acting<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
) -> Result<()> {
    let by = by.into();
    let fs = by.fs();
    check_content(file)?;
    let _changing = by.begin_change()?;
    data::collapse_range(fs, file, offset, len, by.writing())
}

/// Puts a hole into a regular file (`FALLOC_FL_INSERT_RANGE`); see [`data::insert_range`].
///
/// # Errors
/// As for [`punch_hole`].
pub fn insert_range<'a>(
    by: impl Into<Acting<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
) -> Result<()> {
    let by = by.into();
    let fs = by.fs();
    check_content(file)?;
    let _changing = by.begin_change()?;
    data::insert_range(fs, file, offset, len, by.writing())
}
