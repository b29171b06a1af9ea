//! `open(O_CREAT | O_EXCL)`.

use super::naming::changing_of;
use super::new_inode::{give_name, make_named};
use super::permission::OpContext;
use crate::dir;
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode};
use crate::lifecycle::NewInode;
use crate::{Error, Result};

/// Makes an empty regular file called `name` in `dir`. It belongs to the caller if there is one,
/// whose umask counts then.
///
/// # Errors
/// [`Error::Exists`] when there is such a name, [`Error::NotFound`] when the directory has been
/// removed, [`Error::PermissionDenied`], [`Error::NotPermitted`] for device nodes of others than
/// user 0, [`Error::NoSpace`], [`Error::ReadOnly`]; those of reading the directory.
pub fn create<'a>(
    ctx: impl Into<OpContext<'a>>,
    dir: &Held,
    name: &[u8],
    new: &NewInode,
) -> Result<Held> {
    let ctx = ctx.into();
    if new.file_type == FileType::Directory || new.file_type == FileType::Symlink {
        return Err(Error::InvalidInput(
            "directories and symbolic links are made by operations of their own",
        ));
    }
    changing_of(ctx, &[dir], || {
        make_named(ctx, dir, name, new, |parent, new| {
            create_under(ctx.fs(), dir, name, parent, new)
        })
    })
}

/// Makes the file under a handle of its own. All is checked and locked.
fn create_under(fs: &Fs, dir: &Held, name: &[u8], parent: &Inode, new: &NewInode) -> Result<Held> {
    let credits = fs.new_inode_credits_in(parent) + dir::insert_credits(fs, parent) + 1;
    let handle = fs.start(credits)?;
    let held = fs.new_inode(&handle, parent, new)?;
    give_name(fs, &handle, dir, name, held, new.file_type, Ok(()))
}
