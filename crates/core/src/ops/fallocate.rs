//! `fallocate`.

use super::flags::check_content;
use super::naming::changing_of;
use super::permission::OpContext;
use crate::data::{self, FallocateMode};
use crate::inode::Held;
use crate::{Error, Result};

/// Reserves blocks for a range of a regular file; see [`data::fallocate`].
///
/// # Errors
/// As there.
pub fn fallocate<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
    mode: FallocateMode,
) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    if file.snapshot().is_dir() {
        return Err(Error::IsADirectory);
    }
    let _changing = ctx.begin_change()?;
    data::fallocate(fs, file, offset, len, mode, ctx.writing())
}

/// Makes a hole of a range of a regular file (`FALLOC_FL_PUNCH_HOLE`); see [`data::punch_hole`].
///
/// # Errors
/// As there; [`Error::NotPermitted`] for a file that is immutable or append-only.
pub fn punch_hole<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    check_content(file)?;
    changing_of(ctx, &[file], || {
        data::punch_hole(fs, file, offset, len, ctx.writing())
    })
}

/// Makes a range of a regular file zeros that have space (`FALLOC_FL_ZERO_RANGE`); see
/// [`data::zero_range`].
///
/// # Errors
/// As for [`punch_hole`].
pub fn zero_range<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
    keep_size: bool,
) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    check_content(file)?;
    changing_of(ctx, &[file], || {
        data::zero_range(fs, file, offset, len, keep_size, ctx.writing())
    })
}

/// Takes a range out of a regular file (`FALLOC_FL_COLLAPSE_RANGE`); see [`data::collapse_range`].
///
/// # Errors
/// As for [`punch_hole`].
pub fn collapse_range<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    check_content(file)?;
    let _changing = ctx.begin_change()?;
    data::collapse_range(fs, file, offset, len, ctx.writing())
}

/// Puts a hole into a regular file (`FALLOC_FL_INSERT_RANGE`); see [`data::insert_range`].
///
/// # Errors
/// As for [`punch_hole`].
pub fn insert_range<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    offset: u64,
    len: u64,
) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    check_content(file)?;
    let _changing = ctx.begin_change()?;
    data::insert_range(fs, file, offset, len, ctx.writing())
}
