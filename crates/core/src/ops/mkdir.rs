//! `mkdir`.

use super::naming::{changing_of, now};
use super::new_inode::{give_name, make_named};
use super::permission::OpContext;
use crate::dir;
use crate::fs::{Fs, Handle};
use crate::inode::{FileType, Held, Inode};
use crate::lifecycle::NewInode;
use crate::{Error, Result};
use extant_format::features::RoCompat;
use extant_format::inode::{Inode as DiskInode, InodeFlags};

/// Most names of a directory without the `dir_nlink` feature, as under Linux.
const MAX_LINKS: u16 = 65_000;

/// Makes an empty directory called `name` in `dir`.
///
/// # Errors
/// [`Error::Exists`], [`Error::TooManyLinks`] when the parent can have no more subdirectories,
/// [`Error::NotFound`] when it has been removed, [`Error::PermissionDenied`], [`Error::NoSpace`],
/// [`Error::ReadOnly`]; those of reading the directory.
pub fn mkdir<'a>(
    ctx: impl Into<OpContext<'a>>,
    dir: &Held,
    name: &[u8],
    new: &NewInode,
) -> Result<Held> {
    let ctx = ctx.into();
    let new = NewInode {
        file_type: FileType::Directory,
        ..new.clone()
    };
    changing_of(ctx, &[dir], || {
        make_named(ctx, dir, name, &new, |parent, new| {
            mkdir_under(ctx.fs(), dir, name, parent, new)
        })
    })
}

/// Makes the directory under a handle of its own. All is checked and locked.
fn mkdir_under(fs: &Fs, dir: &Held, name: &[u8], parent: &Inode, new: &NewInode) -> Result<Held> {
    let credits = fs.new_inode_credits_in(parent)
        + dir::init_credits(fs)
        + dir::insert_credits(fs, parent)
        + fs.orphan_credits()
        + 1;
    let handle = fs.start(credits)?;
    // The count goes first: of two that make the last possible directory one fails.
    add_subdirectory(fs, &handle, dir)?;
    let made = fs.new_inode(&handle, parent, new).and_then(|held| {
        let evictions = fs.names().evictions(held.ino());
        let filled = dir::init(&handle, &held, dir.ino());
        let held = give_name(fs, &handle, dir, name, held, FileType::Directory, filled)?;
        Ok((held, evictions))
    });
    let (held, evictions) = made.inspect_err(|_| {
        // The parent was registered above, so this cannot fail.
        let _ = forget_subdirectory(&handle, dir);
    })?;
    let flags = held.snapshot().flags();
    if !flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT) {
        held.dir_state().note_all_known(evictions);
    }
    Ok(held)
}

/// Counts one more subdirectory in `dir`, whose times change once the name is there. With the
/// `dir_nlink` feature a count that no longer fits becomes 1, for good.
pub(super) fn add_subdirectory(fs: &Fs, handle: &Handle<'_>, dir: &Held) -> Result<()> {
    let unlimited = fs.superblock().has_ro_compat(RoCompat::DIR_NLINK);
    dir.live().update(handle, |inode| {
        let disk = inode.disk_mut();
        match disk.links {
            1 => {}
            MAX_LINKS.. if unlimited => disk.links = 1,
            MAX_LINKS.. => return Err(Error::TooManyLinks),
            links => disk.links = links + 1,
        }
        Ok(())
    })?
}

/// Takes back [`add_subdirectory`]: nothing has changed.
pub(super) fn forget_subdirectory(handle: &Handle<'_>, dir: &Held) -> Result<()> {
    dir.live()
        .update(handle, |inode| count_down(inode.disk_mut()))
}

/// Counts one subdirectory less in `dir`.
pub(super) fn remove_subdirectory(handle: &Handle<'_>, dir: &Held) -> Result<()> {
    let time = now();
    dir.live().update(handle, |inode| {
        let disk = inode.disk_mut();
        count_down(disk);
        disk.mtime = time;
        disk.ctime = time;
    })
}

fn count_down(disk: &mut DiskInode) {
    // 1 stands for a count that did not fit; 2 is an empty directory.
    if disk.links > 2 {
        disk.links -= 1;
    }
}
