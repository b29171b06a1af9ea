//! `link`.

use super::naming::{check_name, live_parent, now, touch_parent, with_space};
use crate::fs::Fs;
use crate::inode::{Access, Held, LockSet};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result, dir};

/// Most names of a file, as under Linux.
const MAX_LINKS: u16 = 65_000;

/// Gives the file `target` another name, `name` in `dir`.
///
/// # Errors
/// [`Error::NotPermitted`] for a directory, [`Error::TooManyLinks`], [`Error::NotFound`] when the file
/// has lost its last name, [`Error::Exists`], [`Error::NoSpace`], [`Error::ReadOnly`]; those of reading
/// the directory.
pub fn link(fs: &Fs, target: &Held, dir: &Held, name: &[u8]) -> Result<()> {
    with_space(fs, || link_once(fs, target, dir, name))
}

fn link_once(fs: &Fs, target: &Held, dir: &Held, name: &[u8]) -> Result<()> {
    check_name(dir, name)?;
    if target.snapshot().is_dir() {
        // In this order under Linux.
        return Err(match fs.lookup_name(dir, name)? {
            Some(_) => Error::Exists,
            None => Error::NotPermitted,
        });
    }
    let _locks = LockSet::lock(&[(dir, Access::Shared)], &[(target, Access::Exclusive)]);
    let image = live_parent(dir)?;
    match target.snapshot().disk().links {
        0 => return Err(Error::NotFound),
        MAX_LINKS.. => return Err(Error::TooManyLinks),
        _ => {}
    }
    let locked = fs.lock_name(dir.ino(), name);
    if fs.lookup_locked(dir, &locked)?.is_some() {
        return Err(Error::Exists);
    }
    let handle = fs.start(dir::insert_credits(fs, &image) + 2)?;
    // Both records are registered before the first change, so that none can fail after it.
    handle.touch_inode(target.live())?;
    handle.touch_inode(dir.live())?;
    let file_type = target.snapshot().file_type();
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
