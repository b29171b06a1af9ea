//! What operations on names have in common.

use super::fsync::fsync;
use super::permission::OpContext;
pub(super) use crate::data::now;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Held, Inode};
use crate::{Error, Result};
use extant_format::NAME_MAX;
use extant_format::inode::InodeFlags;
use extant_sync::pin;

/// Refuses what cannot be the name of a new entry in `dir`.
pub(super) fn check_name(dir: &Held, name: &[u8]) -> Result<()> {
    if !dir.is_dir() {
        return Err(Error::NotADirectory);
    }
    check_key(dir)?;
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|&b| b == b'/' || b == 0) => Err(Error::InvalidInput(
            "a name contains a slash or a zero byte",
        )),
        _ => Ok(()),
    }
}

/// Refuses a directory whose names are encrypted: as under Linux, names can be taken away there
/// without a key, but neither given nor moved.
pub(super) fn check_key(dir: &Held) -> Result<()> {
    if dir.image(&pin()).is_encrypted() {
        Err(Error::Encrypted)
    } else {
        Ok(())
    }
}

/// Returns the image of a directory that takes new names: one that has not been removed. The caller
/// holds its `op` lock.
pub(super) fn live_parent(dir: &Held) -> Result<Inode> {
    let image = dir.copy();
    if image.disk().links == 0 {
        return Err(Error::NotFound);
    }
    Ok(image)
}

/// Refuses to give a file a name in a directory that hands down another project. A caller that
/// wants it there copies it, which counts the copy for that project.
pub(super) fn check_project(dir: &Inode, file: &Held) -> Result<()> {
    let takes_all = !dir.flags().contains(InodeFlags::PROJECT_INHERIT);
    let project = |inode: &Inode| inode.disk().project.unwrap_or(0);
    if takes_all || project(dir) == project(&file.copy()) {
        Ok(())
    } else {
        Err(Error::OtherProject)
    }
}

/// Runs `operation`, which changes something, once nobody keeps the file system from being changed;
/// and once more if space ran out: after a commit if that gives some back, and at once otherwise,
/// as a commit may have given it back since. Nothing may be held by the caller.
pub(super) fn changing<R>(
    ctx: OpContext<'_>,
    mut operation: impl FnMut() -> Result<R>,
) -> Result<R> {
    let fs = ctx.fs();
    let _changing = ctx.begin_change()?;
    match operation() {
        Err(Error::NoSpace) => {
            if fs.is_space_pending() {
                fs.commit(fs.journal()?.running())?;
            }
            operation()
        }
        done => done,
    }
}

/// As [`changing`], and makes the changes durable of those of the inodes whose flags ask for that:
/// `S`, and for directories `D`.
pub(super) fn changing_of<R>(
    ctx: OpContext<'_>,
    inodes: &[&Held],
    operation: impl FnMut() -> Result<R>,
) -> Result<R> {
    let done = changing(ctx, operation)?;
    for inode in inodes {
        make_durable_if_asked(ctx.fs(), inode)?;
    }
    Ok(done)
}

/// Makes what was done to an inode durable, if its flags ask for that.
pub(super) fn make_durable_if_asked(fs: &Fs, inode: &Held) -> Result<()> {
    if inode.asks_durable() {
        fsync(fs, inode)
    } else {
        Ok(())
    }
}

/// Takes back a new inode that did not get its name.
pub(super) fn undo_new(fs: &Fs, handle: &Handle<'_>, new: Held) {
    if new.snapshot().disk().blocks == 0 {
        fs.abandon_inode(handle, new);
        return;
    }
    // What it has by now takes a handle of its own to give back. The record is registered and the
    // room was asked for, so neither step fails; if one does, the blocks are lost to the next
    // check.
    let undone = new
        .live()
        .update(handle, |inode| inode.disk_mut().links = 0)
        .and_then(|()| fs.orphan_add(handle, new.live()));
    if let Err(e) = undone {
        crate::event!(error, "inode {} was not given back: {e}", new.ino());
    }
}

/// Deletes what has lost its last name and is held by nobody, after the operation has been done:
/// what goes wrong here is not its failure. An inode that cannot be deleted stays an orphan.
pub(super) fn reap(fs: &Fs) {
    if !fs.has_unnamed() {
        return;
    }
    // Otherwise it has time.
    let Some(_changing) = fs.try_begin_change() else {
        return;
    };
    if let Err(error) = fs.reap() {
        crate::event!(error, %error, "an inode without names was not deleted");
    }
}

/// Notes in `dir` that its names changed now.
pub(super) fn touch_parent(handle: &Handle<'_>, dir: &Held) -> Result<()> {
    dir.live().names_changed(handle, now())
}
