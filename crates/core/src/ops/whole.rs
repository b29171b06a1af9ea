//! What is asked of the file system as a whole: another label, and telling the device of what is
//! free.

use super::naming::changing;
use super::permission::OpContext;
use crate::alloc::TrimRange;
use crate::{Error, Result};

/// Gives the file system another label, of at most 16 bytes, durably: in the superblock by way of
/// the journal, and then in its backups.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller other than user 0; [`Error::InvalidInput`] for a label that
/// is too long or has zeros in it; [`Error::ReadOnly`]; when the device fails.
pub fn set_label<'a>(ctx: impl Into<OpContext<'a>>, label: &[u8]) -> Result<()> {
    let ctx = ctx.into();
    if ctx.restricted().is_some() {
        return Err(Error::NotPermitted);
    }
    changing(ctx, || ctx.fs().change_label(label))
}

/// Tells the device of what is free in a range, as `fstrim` asks for. Returns how many bytes that
/// were. Nothing that is in use or waits for a commit is told of.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller other than user 0; otherwise as for
/// [`Fs::trim`](crate::fs::Fs::trim).
pub fn trim<'a>(ctx: impl Into<OpContext<'a>>, range: TrimRange) -> Result<u64> {
    let ctx = ctx.into();
    if ctx.restricted().is_some() {
        return Err(Error::NotPermitted);
    }
    ctx.fs().trim(range)
}
