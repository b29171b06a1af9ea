//! `open(O_TMPFILE)`.

use super::naming::{changing, check_key, undo_new};
use super::new_inode::make_unnamed;
use super::permission::OpContext;
use crate::inode::{FileType, Held};
use crate::lifecycle::NewInode;
use crate::{Error, Result};

/// Makes a regular file without a name, on the file system of the directory `dir` and near it. It
/// goes with its last hold, unless [`link`](super::link()) has given it a name by then.
///
/// # Errors
/// [`Error::NotADirectory`], [`Error::NotFound`] when the directory has been removed,
/// [`Error::PermissionDenied`], [`Error::NoSpace`], [`Error::ReadOnly`].
pub fn tmpfile<'a>(ctx: impl Into<OpContext<'a>>, dir: &Held, new: &NewInode) -> Result<Held> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    if !dir.is_dir() {
        return Err(Error::NotADirectory);
    }
    check_key(dir)?;
    let new = NewInode {
        file_type: FileType::Regular,
        ..new.clone()
    };
    changing(ctx, || {
        make_unnamed(ctx, dir, &new, |parent, new| {
            let credits = fs.new_inode_credits_in(parent) + fs.orphan_credits() + 1;
            let handle = fs.start(credits)?;
            let held = fs.new_inode(&handle, parent, new)?;
            let noted = held
                .live()
                .update(&handle, |inode| inode.disk_mut().links = 0)
                .and_then(|()| fs.orphan_add(&handle, held.live()));
            if let Err(e) = noted {
                undo_new(fs, &handle, held);
                return Err(e);
            }
            held.allow_first_name();
            Ok(held)
        })
    })
}
