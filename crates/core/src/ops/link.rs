//! `link`.

use super::flags::check_changeable;
use super::naming::{changing_of, check_name, check_project, live_parent, now, touch_parent};
use super::permission::{EXECUTE, OpContext, WRITE, access};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Access, FileType, Held, LockSet};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result, dir};

/// Most names of a file, as under Linux.
const MAX_LINKS: u16 = 65_000;

/// Gives the file `target` another name, `name` in `dir`.
///
/// # Errors
/// [`Error::NotPermitted`] for a directory and for a protected file, [`Error::TooManyLinks`],
/// [`Error::NotFound`] when the file has lost its last name (one that was [made
/// without](super::tmpfile()) may get its first), [`Error::Exists`], [`Error::PermissionDenied`],
/// [`Error::OtherProject`], [`Error::NoSpace`], [`Error::ReadOnly`]; those of reading the
/// directory.
pub fn link<'a>(
    ctx: impl Into<OpContext<'a>>,
    target: &Held,
    dir: &Held,
    name: &[u8],
) -> Result<()> {
    let ctx = ctx.into();
    changing_of(ctx, &[dir], || link_once(ctx, target, dir, name))
}

fn link_once(ctx: OpContext<'_>, target: &Held, dir: &Held, name: &[u8]) -> Result<()> {
    let fs = ctx.fs();
    check_name(dir, name)?;
    ctx.may_search(dir)?;
    if target.is_dir() {
        // In this order under Linux.
        if fs.lookup_name(dir, name)?.is_some() {
            return Err(Error::Exists);
        }
        access(ctx, dir, WRITE | EXECUTE)?;
        return Err(Error::NotPermitted);
    }
    let _locks = LockSet::lock(&[(dir, Access::Shared)], &[(target, Access::Exclusive)]);
    let image = live_parent(dir)?;
    let locked = fs.lock_name(dir, name);
    if fs.lookup_locked(dir, &locked)?.is_some() {
        return Err(Error::Exists);
    }
    ctx.may_put_name(&image)?;
    check_changeable(target)?;
    check_project(&image, target)?;
    match target.snapshot().disk().links {
        0 if !target.may_get_first_name() => return Err(Error::NotFound),
        MAX_LINKS.. => return Err(Error::TooManyLinks),
        _ => {}
    }
    let is_first = target.snapshot().disk().links == 0;
    let orphan = if is_first { fs.orphan_credits() } else { 0 };
    let handle = fs.start(dir::insert_credits(fs, &image) + orphan + 2)?;
    // Both records are registered before the first change, so that none can fail after it.
    handle.touch_inode(target.live())?;
    handle.touch_inode(dir.live())?;
    let file_type = target.snapshot().file_type();
    if is_first {
        give_first_name(fs, &handle, target, dir, name)?;
        target.note_first_name();
        touch_parent(&handle, dir)?;
        fs.names().insert(&locked, target.id());
        return Ok(());
    }
    dir::insert(&handle, dir, name, target.ino(), file_type)?;
    touch_parent(&handle, dir)?;
    let time = now();
    target.live().update(&handle, |inode| {
        let disk = inode.disk_mut();
        disk.links += u16::from(!is_on(Mutant::LinkForgotten));
        disk.ctime = time;
    })?;
    fs.names().insert(&locked, target.snapshot().id());
    Ok(())
}

/// Gives a file that was made without a name its first one: it is no orphan any more.
fn give_first_name(
    fs: &Fs,
    handle: &Handle<'_>,
    target: &Held,
    dir: &Held,
    name: &[u8],
) -> Result<()> {
    let set_links = |links| {
        target.live().update(handle, |inode| {
            let disk = inode.disk_mut();
            disk.links = links;
            disk.ctime = now();
        })
    };
    set_links(1)?;
    let named = fs
        .orphan_remove(handle, target.live())
        .and_then(|()| dir::insert(handle, dir, name, target.ino(), FileType::Regular));
    if let Err(e) = named {
        // The record is registered: neither fails but for a broken neighbour among the orphans.
        set_links(0)?;
        fs.orphan_add(handle, target.live())?;
        return Err(e);
    }
    Ok(())
}
