//! `symlink`.

use super::naming::changing_of;
use super::new_inode::{give_name, make_named};
use super::permission::OpContext;
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode};
use crate::lifecycle::NewInode;
use crate::{Error, Result, dir};

/// Makes a symbolic link called `name` in `dir` that points to `target`, which may be any bytes but
/// zero ones.
///
/// # Errors
/// [`Error::NameTooLong`] when the target does not fit one block, [`Error::NotFound`] when it is
/// empty, [`Error::Exists`], [`Error::PermissionDenied`], [`Error::NoSpace`], [`Error::ReadOnly`];
/// those of reading the directory.
pub fn symlink<'a>(
    ctx: impl Into<OpContext<'a>>,
    dir: &Held,
    name: &[u8],
    target: &[u8],
    new: &NewInode,
) -> Result<Held> {
    let ctx = ctx.into();
    let fs = ctx.fs();
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
    changing_of(ctx, &[dir], || {
        make_named(ctx, dir, name, &new, |parent, new| {
            symlink_under(fs, dir, name, target, parent, new)
        })
    })
}

/// Makes the link under a handle of its own. All is checked and locked.
fn symlink_under(
    fs: &Fs,
    dir: &Held,
    name: &[u8],
    target: &[u8],
    parent: &Inode,
    new: &NewInode,
) -> Result<Held> {
    let credits = fs.new_inode_credits_in(parent)
        + fs.symlink_credits()
        + dir::insert_credits(fs, parent)
        + fs.orphan_credits()
        + 1;
    let handle = fs.start(credits)?;
    let held = fs.new_inode(&handle, parent, new)?;
    let filled = fs.set_symlink_target(&handle, &held, target);
    give_name(fs, &handle, dir, name, held, FileType::Symlink, filled)
}
