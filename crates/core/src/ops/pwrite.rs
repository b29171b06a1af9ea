//! `pwrite`, `write` with `O_APPEND`, `truncate` and `ftruncate`.

use super::flags::check_content;
use super::naming::changing_of;
use super::permission::{OpContext, WRITE, access};
use crate::data;
use crate::inode::{FileType, Held};
use crate::{Error, Result};

/// Writes at byte `offset` of a regular file. Returns how much was written: less than all only when
/// space ran out on the way.
///
/// # Errors
/// As for [`data::write_at`].
pub fn pwrite<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    offset: u64,
    buf: &[u8],
) -> Result<usize> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    changing_of(ctx, &[file], || {
        data::write_with(fs, file, offset, buf, ctx.writing())
    })
}

/// Writes at the end of a regular file, wherever that is. Returns where that was, and how much was
/// written.
///
/// # Errors
/// As for [`data::write_at`].
pub fn append<'a>(ctx: impl Into<OpContext<'a>>, file: &Held, buf: &[u8]) -> Result<(u64, usize)> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    changing_of(ctx, &[file], || data::append(fs, file, buf, ctx.writing()))
}

/// Writes as [`pwrite`] does, past memory, as after opening with `O_DIRECT`.
///
/// # Errors
/// As for [`data::write_direct`].
pub fn pwrite_direct<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    offset: u64,
    buf: &[u8],
) -> Result<usize> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    changing_of(ctx, &[file], || {
        data::write_direct(fs, file, offset, buf, ctx.writing())
    })
}

/// Appends as [`append`] does, past memory.
///
/// # Errors
/// As for [`data::append_direct`].
pub fn append_direct<'a>(
    ctx: impl Into<OpContext<'a>>,
    file: &Held,
    buf: &[u8],
) -> Result<(u64, usize)> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    changing_of(ctx, &[file], || {
        data::append_direct(fs, file, buf, ctx.writing())
    })
}

/// Makes a regular file `size` bytes long (`truncate`), if the caller may write it.
///
/// # Errors
/// As for [`ftruncate`]; [`Error::PermissionDenied`].
pub fn truncate<'a>(ctx: impl Into<OpContext<'a>>, file: &Held, size: u64) -> Result<()> {
    let ctx = ctx.into();
    match file.copy().file_type() {
        FileType::Regular => access(ctx, file, WRITE)?,
        FileType::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::NotARegularFile),
    }
    ftruncate(ctx, file, size)
}

/// Makes a regular file `size` bytes long that has been opened for writing (`ftruncate`).
///
/// # Errors
/// [`Error::IsADirectory`] and [`Error::NotARegularFile`] for anything else; as for
/// [`data::truncate`].
pub fn ftruncate<'a>(ctx: impl Into<OpContext<'a>>, file: &Held, size: u64) -> Result<()> {
    let ctx = ctx.into();
    if file.is_dir() {
        return Err(Error::IsADirectory);
    }
    check_content(file)?;
    changing_of(ctx, &[file], || {
        data::truncate_with(ctx.fs(), file, size, ctx.writing())
    })
}
