//! `open(O_CREAT | O_EXCL)`.

use super::flags::check_takes_names;
use super::naming::{check_name, live_parent, touch_parent, undo_new, with_space};
use crate::dir;
use crate::fs::Fs;
use crate::inode::{FileType, Held, NewInode};
use crate::{Error, Result};

/// Makes an empty regular file called `name` in `dir`. Its permissions are taken as they are: the
/// umask is the caller's.
///
/// # Errors
/// [`Error::Exists`] when there is such a name, [`Error::NotFound`] when the directory has been
/// removed, [`Error::NoSpace`], [`Error::ReadOnly`]; those of reading the directory.
pub fn create(fs: &Fs, dir: &Held, name: &[u8], new: &NewInode) -> Result<Held> {
    if new.file_type == FileType::Directory || new.file_type == FileType::Symlink {
        return Err(Error::InvalidInput(
            "directories and symbolic links are made by operations of their own",
        ));
    }
    with_space(fs, || create_once(fs, dir, name, new))
}

fn create_once(fs: &Fs, dir: &Held, name: &[u8], new: &NewInode) -> Result<Held> {
    check_name(dir, name)?;
    let _parent = dir.op().read();
    let image = live_parent(dir)?;
    check_takes_names(&image)?;
    let locked = fs.lock_name(dir.ino(), name);
    if fs.lookup_locked(dir, &locked)?.is_some() {
        return Err(Error::Exists);
    }
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
