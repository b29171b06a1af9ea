//! `copy_file_range`.

use super::flags::check_content;
use super::naming::changing;
use super::permission::OpContext;
use super::{pread, pwrite, seek_data_live, seek_hole_live};
use crate::data;
use crate::inode::Held;
use crate::{Error, Result};

/// Bytes that are copied at a time.
const CHUNK: u64 = 1 << 20;

/// Copies up to `len` bytes of a regular file to another one, or within one where the ranges do not
/// overlap. Holes of the source are left out past the end of the target, and written as zeros
/// before. Returns how much was copied: less than `len` only at the end of the source.
///
/// # Errors
/// [`Error::InvalidInput`] when the ranges overlap; [`Error::NotPermitted`] for an append-only
/// target, but at its end; as for [`pread`] and [`pwrite`], when nothing was copied before.
pub fn copy_range<'a>(
    ctx: impl Into<OpContext<'a>>,
    (from, offset): (&Held, u64),
    (to, to_offset): (&Held, u64),
    len: u64,
) -> Result<u64> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    let len = len.min(from.live_size().saturating_sub(offset));
    let (Some(end), Some(to_end)) = (offset.checked_add(len), to_offset.checked_add(len)) else {
        return Err(Error::FileTooLarge);
    };
    if from.ino() == to.ino() && offset < to_end && to_offset < end {
        return Err(Error::InvalidInput("the ranges overlap"));
    }
    if to_offset < to.live_size() {
        check_content(to)?;
    }
    let mut at = offset;
    let copying = copy_parts(ctx, (from, &mut at, end), (to, to_offset));
    let copied = at - offset;
    // What fails after a part of it fails the next call, too.
    if copied == 0 {
        copying?;
    }
    // The last part may have been a hole.
    if to.live_size() < to_offset + copied && copied > 0 {
        changing(ctx, || {
            data::grow(fs, to, to_offset + copied, ctx.writing())
        })?;
    }
    Ok(copied)
}

/// Copies from `at` up to `end`, and moves `at` along.
fn copy_parts(
    ctx: OpContext<'_>,
    (from, at, end): (&Held, &mut u64, u64),
    (to, to_offset): (&Held, u64),
) -> Result<()> {
    let fs = ctx.fs();
    let offset = *at;
    let mut buffer = vec![0; (end - offset).min(CHUNK) as usize];
    while *at < end {
        let to_at = to_offset + (*at - offset);
        let mut part = (end - *at).min(CHUNK);
        if to_at >= to.live_size() {
            let data = seek_data_live(fs, from, *at)?.unwrap_or(end).min(end);
            if data > *at {
                *at = data;
                continue;
            }
            if let Some(hole) = seek_hole_live(fs, from, *at)?
                && hole > *at
            {
                part = part.min(hole - *at);
            }
        }
        let part = part as usize;
        let Some(part) = buffer.get_mut(..part) else {
            break;
        };
        let read = pread(fs, from, *at, part)?;
        let mut rest = part.get(..read).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() {
            let written = pwrite(ctx, to, to_offset + (*at - offset), rest)?;
            rest = rest.get(written..).unwrap_or_default();
            *at += written as u64;
        }
    }
    Ok(())
}
