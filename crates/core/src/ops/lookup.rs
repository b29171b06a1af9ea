//! One step of a path.

use super::permission::{OpContext, search};
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode, InodeId, LiveInode};
use crate::{Error, Result, dir};
use extant_format::features::Incompat;
use extant_format::{Ino, NAME_MAX};
use extant_sync::pin;
use std::sync::Arc;

/// Returns the inode that `name` stands for in `dir`.
///
/// # Errors
/// [`Error::NotADirectory`], [`Error::NotFound`], [`Error::NameTooLong`]; [`Error::Corrupt`] when
/// the directory or the inode is broken, [`Error::Device`] when the device fails.
pub fn lookup(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
    if !dir.is_dir() {
        return Err(Error::NotADirectory);
    }
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let found = dir::lookup(fs, dir, name)?.ok_or(Error::NotFound)?;
    fs.named_inode(found.ino)
}

/// Looks at the inode that `name` stands for in the directory `dir`, and says which one it is. What
/// is in memory is found without a lock. `look` must not wait for the device.
///
/// # Errors
/// As for [`lookup`]; [`Error::NotFound`] also when the directory has been removed;
/// [`Error::PermissionDenied`] when it may not be searched.
pub fn lookup_with<'a, R>(
    ctx: impl Into<OpContext<'a>>,
    dir: InodeId,
    name: &[u8],
    look: impl Fn(&Inode) -> R,
) -> Result<(InodeId, R)> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    if let Some(found) = look_in_memory(ctx, dir, name, &look) {
        return Ok(found);
    }
    search(ctx, dir)?;
    let known = fs.names().get(dir.ino, name);
    let found = match known.filter(|_| !may_fold(fs, dir)) {
        Some(known) => known,
        None => fs.lookup_name(&hold_dir(fs, dir, name)?, name)?,
    };
    // Asked after the look: only then it was that directory's name that was found.
    match fs.is_same_dir(dir) {
        Ok(true) => {}
        Ok(false) => return Err(Error::NotADirectory),
        Err(Error::Stale) => return Err(Error::NotFound),
        Err(e) => return Err(e),
    }
    let id = found.ok_or(Error::NotFound)?;
    match fs.with_same(id, &look) {
        Err(Error::Stale) => {}
        looked => return Ok((id, looked?)),
    }
    // Removed or replaced since. Waits for that operation.
    let held = fs.hold_name(&hold_dir(fs, dir, name)?, name)?;
    let image = held.ok_or(Error::NotFound)?.snapshot();
    Ok((image.id(), look(&image)))
}

/// As [`lookup_with`], if the name is known and both inodes are in memory.
#[inline]
fn look_in_memory<R>(
    ctx: OpContext<'_>,
    dir: InodeId,
    name: &[u8],
    look: impl FnOnce(&Inode) -> R,
) -> Option<(InodeId, R)> {
    let fs = ctx.fs();
    // One guard for all of it.
    let guard = pin();
    let id = fs.names().get_under(dir.ino, name, &guard)??;
    // Asked after the look: only then it was that directory's name that was found.
    let may_search = |live: &LiveInode, dir: &Inode| {
        !dir.is_casefolded() && ctx.may_search_fast(live, dir, &guard) == Some(true)
    };
    if !fs.is_dir_in_memory(dir, &guard, may_search) {
        return None;
    }
    let looked = fs.look_in_memory(id, &guard, look)?;
    Some((id, looked))
}

/// Looks at the inode that `names` lead to, one after the other from the root, if all of that is
/// known and in memory: no lock is taken and no count of references changes. `None` leaves it open
/// whether there is such an inode, and why not: then the names are to be looked up one by one. So
/// it is for `.`, `..` and symbolic links. `look` must not wait for the device.
#[inline]
pub fn look_along<'a, 'n, R>(
    ctx: impl Into<OpContext<'a>>,
    names: impl Iterator<Item = &'n [u8]>,
    look: impl FnOnce(&Inode) -> R,
) -> Option<R> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    // One guard for all of it.
    let guard = pin();
    let mut at = fs.peek_inode(Ino::ROOT, &guard)?;
    for name in names {
        let dir = at.image(&guard);
        let is_open = || ctx.may_search_fast(at, dir, &guard) == Some(true);
        let found = if dir.is_dir() && !dir.is_casefolded() && is_open() {
            fs.names().get_under(dir.ino(), name, &guard)??
        } else {
            return None;
        };
        // Asked after the look: only then it was that directory's name that was found.
        if !at.is_here(&guard) {
            return None;
        }
        at = fs.peek_inode(found.ino, &guard)?;
        let image = at.image(&guard);
        if image.id() != found || image.file_type() == FileType::Symlink {
            return None;
        }
    }
    at.look_at(&guard, look)
}

/// Returns the inode that `name` stands for in `dir`, to work with.
///
/// # Errors
/// As for [`lookup`]; [`Error::PermissionDenied`] when the directory may not be searched.
pub fn lookup_held<'a>(ctx: impl Into<OpContext<'a>>, dir: &Held, name: &[u8]) -> Result<Held> {
    let ctx = ctx.into();
    if !dir.is_dir() {
        return Err(Error::NotADirectory);
    }
    ctx.may_search(dir)?;
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    ctx.fs().hold_name(dir, name)?.ok_or(Error::NotFound)
}

/// Tells whether the directory may take names that differ in case for the same.
fn may_fold(fs: &Fs, dir: InodeId) -> bool {
    fs.superblock().has_incompat(Incompat::CASEFOLD)
        && fs.with_same(dir, Inode::is_casefolded).unwrap_or(true)
}

/// Takes hold of a directory that `name` is looked up in.
fn hold_dir(fs: &Fs, dir: InodeId, name: &[u8]) -> Result<Held> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    match fs.hold_same(dir) {
        Ok(held) if held.snapshot().is_dir() => Ok(held),
        Ok(_) => Err(Error::NotADirectory),
        Err(Error::Stale) => Err(Error::NotFound),
        Err(e) => Err(e),
    }
}
