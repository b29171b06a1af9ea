//! `unlink` and `rmdir`.

use super::mkdir::remove_subdirectory;
use super::naming::{changing_of, live_parent, now, reap};
use super::permission::OpContext;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Access, Held, LockSet, Timestamp};
use crate::{Error, Result, dir};

/// Removes the name `name` of a file from `dir`. The file itself goes with its last name, or, if it
/// is still held then, with the last hold.
///
/// # Errors
/// [`Error::NotFound`], [`Error::IsADirectory`], [`Error::ReadOnly`]; [`Error::PermissionDenied`]
/// and [`Error::NotPermitted`]; those of reading the directory.
pub fn unlink<'a>(ctx: impl Into<OpContext<'a>>, dir: &Held, name: &[u8]) -> Result<()> {
    remove(ctx.into(), dir, name, Kind::File)
}

/// Removes the empty directory `name` from `dir`.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NotEmpty`], [`Error::ReadOnly`];
/// [`Error::InvalidInput`] for `.`; [`Error::PermissionDenied`] and [`Error::NotPermitted`]; those
/// of reading the directories.
pub fn rmdir<'a>(ctx: impl Into<OpContext<'a>>, dir: &Held, name: &[u8]) -> Result<()> {
    remove(ctx.into(), dir, name, Kind::Directory)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

fn remove(ctx: OpContext<'_>, dir: &Held, name: &[u8], kind: Kind) -> Result<()> {
    let fs = ctx.fs();
    if !dir.is_dir() {
        return Err(Error::NotADirectory);
    }
    ctx.may_search(dir)?;
    match (name, kind) {
        (b"", _) => return Err(Error::NotFound),
        (b".", Kind::Directory) => return Err(Error::InvalidInput("`.` cannot be removed")),
        (b"..", Kind::Directory) => return Err(Error::NotEmpty),
        (b"." | b"..", Kind::File) => return Err(Error::IsADirectory),
        _ => {}
    }
    loop {
        let victim = fs.hold_name(dir, name)?.ok_or(Error::NotFound)?;
        let done = changing_of(ctx, &[dir], || remove_held(ctx, dir, name, &victim, kind))?;
        // Its last hold may be this one.
        drop(victim);
        if done {
            reap(fs);
            return Ok(());
        }
    }
}

/// Removes the name if it still is that of `victim`; whether it was.
fn remove_held(
    ctx: OpContext<'_>,
    dir: &Held,
    name: &[u8],
    victim: &Held,
    kind: Kind,
) -> Result<bool> {
    let fs = ctx.fs();
    let _locks = LockSet::lock(&[(dir, Access::Shared)], &[(victim, Access::Exclusive)]);
    let image = live_parent(dir)?;
    let locked = fs.lock_name(dir, name);
    if fs.lookup_locked(dir, &locked)? != Some(victim.id()) {
        return Ok(false);
    }
    ctx.may_take_name(&image, victim)?;
    match (victim.is_dir(), kind) {
        (true, Kind::File) => return Err(Error::IsADirectory),
        (false, Kind::Directory) => return Err(Error::NotADirectory),
        (true, Kind::Directory) if !dir::is_empty(fs, victim)? => return Err(Error::NotEmpty),
        _ => {}
    }
    let handle = fs.start(dir::remove_credits(fs, &image) + fs.orphan_credits() + 2)?;
    handle.touch_inode(victim.live())?;
    handle.touch_inode(dir.live())?;
    dir::remove(&handle, dir, name)?;
    // One look at the clock for all of it.
    let time = now();
    match kind {
        Kind::File => dir.live().names_changed(&handle, time)?,
        Kind::Directory => remove_subdirectory(&handle, dir)?,
    }
    drop_name(fs, &handle, victim, time)?;
    Ok(true)
}

/// Takes one name from a file, all names from a directory. Without names it is deleted if
/// this hold is the only one and it is small, otherwise when the last hold is given up.
pub(super) fn drop_name(
    fs: &Fs,
    handle: &Handle<'_>,
    victim: &Held,
    time: Timestamp,
) -> Result<()> {
    let deleted = fs.delete_empty(handle, victim, time);
    if deleted.as_ref().is_ok_and(|deleted| !deleted) {
        return drop_one(fs, handle, victim, time);
    }
    told(victim, deleted.map(drop));
    Ok(())
}

/// The name is gone all the same when what it was for is not: the caller is not told that it is
/// not.
fn told(victim: &Held, deleted: Result<()>) {
    if let Err(error) = deleted {
        crate::event!(error, %error, "inode {} was not deleted", victim.ino());
    }
}

fn drop_one(fs: &Fs, handle: &Handle<'_>, victim: &Held, time: Timestamp) -> Result<()> {
    let left = victim.live().update(handle, |inode| {
        let is_dir = inode.is_dir();
        let disk = inode.disk_mut();
        disk.links = if is_dir {
            0
        } else {
            disk.links.saturating_sub(1)
        };
        disk.ctime = time;
        disk.links
    })?;
    if left == 0 {
        told(victim, fs.unnamed(handle, victim));
    }
    Ok(())
}
