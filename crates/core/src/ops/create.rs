//! `open(O_CREAT | O_EXCL)`.

use super::naming::{changing_of, check_name, live_parent, touch_parent, undo_new};
use super::permission::Acting;
use crate::dir;
use crate::inode::{FileType, Held};
use crate::lifecycle::NewInode;
use crate::{Error, Result};

/// Makes an empty regular file called `name` in `dir`. It belongs to the caller if there is one, whose umask counts
/// then.
///
/// # Errors
/// [`Error::Exists`] when there is such a name, [`Error::NotFound`] when the directory has been
/// removed, [`Error::PermissionDenied`], [`Error::NotPermitted`] for device nodes of others than user 0, [`Error::NoSpace`], [`Error::ReadOnly`]; those of reading the directory.
pub fn create<'a>(
    by: impl Into<Acting<'a>>,
    dir: &Held,
    name: &[u8],
    new: &NewInode,
) -> Result<Held> {
    let by = by.into();
    if new.file_type == FileType::Directory || new.file_type == FileType::Symlink {
        return Err(Error::InvalidInput(
            "directories and symbolic links are made by operations of their own",
        ));
    }
    changing_of(by, &[dir], || create_once(by, dir, name, new))
}

fn create_once(by: Acting<'_>, dir: &Held, name: &[u8], new: &NewInode) -> Result<Held> {
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
    let credits = fs.new_inode_credits_in(&image) + dir::insert_credits(fs, &image) + 1;
    let handle = fs.start(credits)?;
    let held = fs.new_inode(&handle, &image, new)?;
    let made = dir::insert(&handle, dir, name, held.ino(), new.file_type)
        .and_then(|()| touch_parent(&handle, dir));
    if let Err(e) = made {
        fs.names().lose(dir.ino());
        undo_new(fs, &handle, held);
        return Err(e);
    }
    fs.names().insert(&locked, held.id());
    Ok(held)
}
