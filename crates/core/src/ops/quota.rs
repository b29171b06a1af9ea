//! `quotactl`: what users, groups and projects use and may use, as of the last commit; and giving
//! them other limits.

use super::naming::changing;
use super::permission::OpContext;
use crate::quota::{Grace, Quota, QuotaChange, QuotaFile, QuotaKind};
use crate::{Error, Result};
use std::ops::ControlFlow;

/// For how long the soft limits of this kind may be exceeded, or `None` if the file system does not
/// count it.
///
/// # Errors
/// [`Error::Corrupt`] when the file that counts breaks the format, [`Error::Device`] when it cannot
/// be read.
pub fn quota_grace<'a>(ctx: impl Into<OpContext<'a>>, kind: QuotaKind) -> Result<Option<Grace>> {
    let file = QuotaFile::open(ctx.into().fs(), kind)?;
    Ok(file.map(|file| file.grace()))
}

/// Returns what a user, group or project uses and may use, or `None` if the file system does not
/// count this kind. Of an id that has nothing, that it uses nothing.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller other than user 0 that asks for anything but its own user
/// and groups; otherwise as for [`quota_grace`].
pub fn quota<'a>(ctx: impl Into<OpContext<'a>>, kind: QuotaKind, id: u32) -> Result<Option<Quota>> {
    let ctx = ctx.into();
    let may = ctx.restricted().is_none_or(|caller| match kind {
        QuotaKind::User => caller.uid == id,
        QuotaKind::Group => caller.is_in(id),
        QuotaKind::Project => false,
    });
    if !may {
        return Err(Error::NotPermitted);
    }
    let file = QuotaFile::open(ctx.fs(), kind)?;
    file.map(|file| file.get(id)).transpose()
}

/// Calls `visit` with what is said of every user, group or project, ascending, until it breaks.
/// Returns whether the file system counts this kind.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller other than user 0; otherwise as for [`quota_grace`], after
/// `visit` was called with what was sound.
pub fn quotas<'a>(
    ctx: impl Into<OpContext<'a>>,
    kind: QuotaKind,
    mut visit: impl FnMut(Quota) -> ControlFlow<()>,
) -> Result<bool> {
    let ctx = ctx.into();
    if ctx.restricted().is_some() {
        return Err(Error::NotPermitted);
    }
    let Some(file) = QuotaFile::open(ctx.fs(), kind)? else {
        return Ok(false);
    };
    if ctx.fs().accounts().is_none() {
        return file.for_each(&mut visit).map(|()| true);
    }
    // Commits wait for readers of the file: not for what the caller does.
    let mut found = Vec::new();
    let read = file.for_each(&mut |quota| {
        found.push(quota);
        ControlFlow::Continue(())
    });
    drop(file);
    match found.into_iter().try_for_each(visit) {
        ControlFlow::Break(()) => Ok(true),
        ControlFlow::Continue(()) => read.map(|()| true),
    }
}

/// Gives a user, group or project other limits, durably. Returns whether the file system counts
/// this kind. If more is in use than a soft limit allows, the time of grace begins.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller other than user 0; [`Error::NoSpace`] when the file that
/// counts has to grow and cannot; [`Error::ReadOnly`]; [`Error::Corrupt`] when it breaks the
/// format, [`Error::Device`].
pub fn set_quota<'a>(
    ctx: impl Into<OpContext<'a>>,
    kind: QuotaKind,
    id: u32,
    change: QuotaChange,
) -> Result<bool> {
    let ctx = ctx.into();
    if ctx.restricted().is_some() {
        return Err(Error::NotPermitted);
    }
    changing(ctx, || ctx.fs().set_quota(kind, id, change))
}

/// Gives the soft limits of this kind other times of grace, durably, for limits that are exceeded
/// from now on. Returns whether the file system counts this kind.
///
/// # Errors
/// As for [`set_quota`]; [`Error::InvalidInput`] for more than 2³² - 1 seconds.
pub fn set_quota_grace<'a>(
    ctx: impl Into<OpContext<'a>>,
    kind: QuotaKind,
    grace: Grace,
) -> Result<bool> {
    let ctx = ctx.into();
    if ctx.restricted().is_some() {
        return Err(Error::NotPermitted);
    }
    changing(ctx, || ctx.fs().set_quota_grace(kind, grace))
}

/// Bytes and inodes that a user, group or project uses by now, with what is promised to data that
/// has no place yet; `None` where this kind is not held to limits. [`quota`] tells what was in use
/// at the last commit.
pub fn quota_in_use<'a>(
    ctx: impl Into<OpContext<'a>>,
    kind: QuotaKind,
    id: u32,
) -> Option<[u64; 2]> {
    ctx.into().fs().ledger()?.in_use(kind, id)
}
