//! `quotactl`: what users, groups and projects use and may use, as of the last commit.

use super::permission::Acting;
use crate::quota::{Grace, Quota, QuotaFile, QuotaKind};
use crate::{Error, Result};
use std::ops::ControlFlow;

/// For how long the soft limits of this kind may be exceeded, or `None` if the file system does not count it.
///
/// # Errors
/// [`Error::Corrupt`] when the file that counts breaks the format, [`Error::Device`] when it cannot be read.
pub fn quota_grace<'a>(by: impl Into<Acting<'a>>, kind: QuotaKind) -> Result<Option<Grace>> {
    let file = QuotaFile::open(by.into().fs(), kind)?;
    Ok(file.map(|file| file.grace()))
}

/// What a user, group or project uses and may use, or `None` if the file system does not count this kind. Of an id that
/// has nothing, that it uses nothing.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller who is not user 0 and asks for anything but himself and his groups; otherwise as
/// for [`quota_grace`].
pub fn quota<'a>(by: impl Into<Acting<'a>>, kind: QuotaKind, id: u32) -> Result<Option<Quota>> {
    let by = by.into();
    let may = by.restricted().is_none_or(|caller| match kind {
        QuotaKind::User => caller.uid == id,
        QuotaKind::Group => caller.is_in(id),
        QuotaKind::Project => false,
    });
    if !may {
        return Err(Error::NotPermitted);
    }
    let file = QuotaFile::open(by.fs(), kind)?;
    file.map(|file| file.get(id)).transpose()
}

/// Calls `visit` with what is said of every user, group or project, ascending, until it breaks. Returns whether the file
/// system counts this kind.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller who is not user 0; otherwise as for [`quota_grace`], after `visit` was called
/// with what was sound.
pub fn quotas<'a>(
    by: impl Into<Acting<'a>>,
    kind: QuotaKind,
    mut visit: impl FnMut(Quota) -> ControlFlow<()>,
) -> Result<bool> {
    let by = by.into();
    if by.restricted().is_some() {
        return Err(Error::NotPermitted);
    }
    let Some(file) = QuotaFile::open(by.fs(), kind)? else {
        return Ok(false);
    };
    if by.fs().accounts().is_none() {
        return file.for_each(&mut visit).map(|()| true);
    }
    // Commits wait for whoever reads the file: not for what the caller does.
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
