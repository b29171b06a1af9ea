//! What making an inode has in common, with a name and without: the order of checks and locks, and
//! the way back.

use super::naming::{check_name, live_parent, touch_parent, undo_new};
use super::permission::OpContext;
use crate::dir;
use crate::fs::{Fs, Handle};
use crate::inode::{FileType, Held, Inode};
use crate::lifecycle::NewInode;
use crate::{Error, Result};

/// Makes an inode called `name` in `dir`: has `make` do that when all is checked and locked, and
/// notes the name. `make` is given the image of `dir`, and what the new inode is to be.
///
/// # Errors
/// [`Error::Exists`] when there is such a name, [`Error::NotFound`] when `dir` has been removed,
/// what the caller may not do, those of reading the directory, and those of `make`.
pub(super) fn make_named(
    ctx: OpContext<'_>,
    dir: &Held,
    name: &[u8],
    new: &NewInode,
    make: impl FnOnce(&Inode, &NewInode) -> Result<Held>,
) -> Result<Held> {
    let fs = ctx.fs();
    check_name(dir, name)?;
    ctx.may_search(dir)?;
    let _parent = dir.op().read();
    let image = live_parent(dir)?;
    let locked = fs.lock_name(dir, name);
    if fs.lookup_locked(dir, &locked)?.is_some() {
        return Err(Error::Exists);
    }
    let held = make_admitted(ctx, &image, new, make)?;
    fs.names().insert(&locked, held.id());
    Ok(held)
}

/// Makes an inode without a name, near `dir`, as [`make_named`] does one with a name.
///
/// # Errors
/// [`Error::NotFound`] when `dir` has been removed, what the caller may not do, and those of
/// `make`.
pub(super) fn make_unnamed(
    ctx: OpContext<'_>,
    dir: &Held,
    new: &NewInode,
    make: impl FnOnce(&Inode, &NewInode) -> Result<Held>,
) -> Result<Held> {
    let _parent = dir.op().read();
    let image = live_parent(dir)?;
    make_admitted(ctx, &image, new, make)
}

/// Has `make` make an inode if the caller may have one in the directory of `image`, and its owners
/// are within their limits.
#[inline]
fn make_admitted(
    ctx: OpContext<'_>,
    image: &Inode,
    new: &NewInode,
    make: impl FnOnce(&Inode, &NewInode) -> Result<Held>,
) -> Result<Held> {
    ctx.may_put_name(image)?;
    let new = ctx.adopt(image, new)?;
    let _quota = ctx.fs().admit_new_inode(|| new.owners_in(image))?;
    make(image, &new)
}

/// Gives a new inode its name in `dir` once it is `filled`, and takes it back if either fails.
///
/// # Errors
/// That of `filled`; as for [`dir::insert`]. The inode is gone then.
pub(super) fn give_name(
    fs: &Fs,
    handle: &Handle<'_>,
    dir: &Held,
    name: &[u8],
    held: Held,
    file_type: FileType,
    filled: Result<()>,
) -> Result<Held> {
    let named = filled
        .and_then(|()| dir::insert(handle, dir, name, held.ino(), file_type))
        .and_then(|()| touch_parent(handle, dir));
    if let Err(e) = named {
        fs.names().note_eviction(dir.ino());
        undo_new(fs, handle, held);
        return Err(e);
    }
    Ok(held)
}
