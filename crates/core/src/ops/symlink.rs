//! `symlink`.

use super::naming::{changing_of, check_name, live_parent, touch_parent, undo_new};
use super::permission::Acting;
use crate::inode::{FileType, Held};
use crate::lifecycle::NewInode;
use crate::{Error, Result, dir};

/// Makes a symbolic link called `name` in `dir` that points to `target`, which may be any bytes but
/// zero ones.
///
/// # Errors
/// [`Error::NameTooLong`] when the target does not fit one block, [`Error::NotFound`] when it is empty,
/// [`Error::Exists`], [`Error::PermissionDenied`], [`Error::NoSpace`], [`Error::ReadOnly`]; those of reading the directory.
pub fn symlink<'a>(
    by: impl Into<Acting<'a>>,
    dir: &Held,
    name: &[u8],
    target: &[u8],
    new: &NewInode,
) -> Result<Held> {
    let by = by.into();
    let fs = by.fs();
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.contains(&0) {
        return Err(Error::InvalidInput("a target contains a zero byte"));
    }
    // The last byte of the block stays zero.
    if target.len() >= fs.block_size().len() {
        return Err(Error::NameTooLong);
    }
    let new = NewInode {
        file_type: FileType::Symlink,
        permissions: 0o777,
        ..new.clone()
    };
    changing_of(by, &[dir], || symlink_once(by, dir, name, target, &new))
}

fn symlink_once(
    by: Acting<'_>,
    dir: &Held,
    name: &[u8],
    target: &[u8],
    new: &NewInode,
) -> Result<Held> {
    let fs = by.fs();
    check_name(dir, name)?;
    by.may_search(dir)?;
    let _parent = dir.op().read();
    let image = live_parent(dir)?;
    let locked = fs.lock_name(dir, name);
    if fs.lookup_locked(dir, &locked)?.is_some() {
        return Err(Error::Exists);
    }
    by.may_put_name(&image)?;
    let new = &by.adopt(&image, new)?;
    let _let_in = fs.prepare_owners_in(&image, new)?;
    let credits = fs.new_inode_credits_in(&image)
        + fs.symlink_credits()
        + dir::insert_credits(fs, &image)
        + fs.orphan_credits()
        + 1;
    let handle = fs.start(credits)?;
    let held = fs.new_inode(&handle, &image, new)?;
    let made = fs
        .set_symlink_target(&handle, &held, target)
        .and_then(|()| dir::insert(&handle, dir, name, held.ino(), FileType::Symlink))
        .and_then(|()| touch_parent(&handle, dir));
    if let Err(e) = made {
        fs.names().lose(dir.ino());
        undo_new(fs, &handle, held);
        return Err(e);
    }
    fs.names().insert(&locked, held.id());
    Ok(held)
}
