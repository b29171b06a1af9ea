//! File flags: setting them (`chattr`), and what they forbid.
//!
//! An immutable file keeps content, record, names and attributes; one that is append-only may grow,
//! and is changed in no other way; neither loses a name or gets one. No name comes into an
//! immutable directory, none goes out of one that is either. As under Linux, a caller that may set
//! these flags may also remove them.

use super::naming::now;
use super::permission::OpContext;
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode};
use crate::{Error, Result, data, dir};
use extant_format::features::{Incompat, RoCompat};
use extant_format::inode::InodeFlags;
use extant_sync::pin;

/// Flags that users may change.
pub const CHANGEABLE: InodeFlags = InodeFlags::SECURE_DELETION
    .union(InodeFlags::UNDELETABLE)
    .union(InodeFlags::COMPRESSED)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NO_DUMP)
    .union(InodeFlags::NO_ATIME)
    .union(InodeFlags::NO_COMPRESS)
    .union(InodeFlags::NO_TAIL)
    .union(InodeFlags::DIR_SYNC)
    .union(InodeFlags::TOP_DIR)
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD);
/// Of these, what only directories have.
const FOR_DIRECTORIES: InodeFlags = InodeFlags::DIR_SYNC
    .union(InodeFlags::TOP_DIR)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD);
/// Of these, what files that are neither regular nor directories have.
const FOR_OTHERS: InodeFlags = InodeFlags::NO_DUMP.union(InodeFlags::NO_ATIME);
/// What forbids changes.
const PROTECTED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Flags that users may change of files of a type.
#[must_use]
pub fn changeable(file_type: FileType) -> InodeFlags {
    match file_type {
        FileType::Directory => CHANGEABLE,
        FileType::Regular => CHANGEABLE & !FOR_DIRECTORIES,
        _ => FOR_OTHERS,
    }
}

/// Sets the flags in `set` and takes those in `clear`. Flags that a file of its type does not have
/// are left alone. The time of change becomes now, whether any flag changes or not.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller that does not own the file, and for flags that protect it
/// but for user 0; [`Error::Unsupported`], with the name, for flags that the engine or the format
/// does not let anybody change; [`Error::NotEmpty`] for `casefold` of a directory that has names;
/// [`Error::ReadOnly`]; [`Error::Device`] when the record's block cannot be read. For `extents`
/// also [`Error::NoSpace`], [`Error::QuotaExceeded`] and [`Error::FileTooLarge`], when the other
/// kind of map needs more than there is or does not reach as far, and what is met in the map there
/// is.
pub fn chattr<'a>(
    ctx: impl Into<OpContext<'a>>,
    inode: &Held,
    set: InodeFlags,
    clear: InodeFlags,
) -> Result<()> {
    let ctx = ctx.into();
    let _changing = ctx.begin_change()?;
    match chattr_once(ctx, inode, set, clear) {
        // What is promised to the data of other files for the worst case comes back when that is
        // written back.
        Err(Error::NoSpace) => {
            data::make_room(ctx.fs(), inode.live())?;
            chattr_once(ctx, inode, set, clear)
        }
        done => done,
    }
}

fn chattr_once(ctx: OpContext<'_>, inode: &Held, set: InodeFlags, clear: InodeFlags) -> Result<()> {
    let fs = ctx.fs();
    let possible = changeable(inode.snapshot().file_type());
    let _exclusive = inode.op().write();
    let image = inode.snapshot();
    let changed = ((image.flags() | set) & !clear) ^ image.flags();
    ctx.may_chattr(&image, changed)?;
    check_flags(fs, set | clear)?;
    let stays = image.flags() & !changed;
    if !changed.is_empty() && stays.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    if (changed & possible).contains(InodeFlags::CASEFOLD) && !dir::is_empty(fs, inode)? {
        // Names that are there were hashed, and told apart, in the other way.
        return Err(Error::NotEmpty);
    }
    // Where no flag changes the time of change does all the same, as under Linux.
    let time = now();
    let others = changed & possible & !InodeFlags::EXTENTS;
    let change = |image: &mut Inode| {
        let disk = image.disk_mut();
        disk.flags ^= others;
        disk.ctime = time;
    };
    if (changed & possible).contains(InodeFlags::EXTENTS) {
        return data::reshape(fs, inode, change);
    }
    let handle = fs.start(1)?;
    inode.live().update(&handle, change)
}

fn check_flags(fs: &Fs, asked: InodeFlags) -> Result<()> {
    let superblock = fs.superblock();
    let missing = if asked.contains(InodeFlags::JOURNAL_DATA) {
        "changing whether file data goes through the journal"
    } else if asked.contains(InodeFlags::CASEFOLD) && !superblock.has_incompat(Incompat::CASEFOLD) {
        "casefold (the file system does not have it)"
    } else if asked.contains(InodeFlags::PROJECT_INHERIT)
        && !superblock.has_ro_compat(RoCompat::PROJECT)
    {
        "project (the file system does not have it)"
    } else if !CHANGEABLE.contains(asked) {
        "changing flags that say how the file is stored"
    } else {
        return Ok(());
    };
    Err(unsupported(missing))
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        features: what.to_owned(),
    }
}

fn refuse(image: &Inode, flags: InodeFlags) -> Result<()> {
    if image.flags().intersects(flags) {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}

/// Refuses to change the record, the attributes or the names of a file that is protected.
pub(super) fn check_changeable(inode: &Held) -> Result<()> {
    refuse(inode.image(&pin()), PROTECTED)
}

/// Refuses to take `victim` out of `dir`, or to put something else in its place.
pub(super) fn check_removable(dir: &Inode, victim: &Held) -> Result<()> {
    refuse(dir, PROTECTED)?;
    check_changeable(victim)
}

/// Refuses to write what is immutable.
pub(super) fn check_not_immutable(image: &Inode) -> Result<()> {
    refuse(image, InodeFlags::IMMUTABLE)
}

/// Refuses to put a name into an immutable directory.
pub(super) fn check_takes_names(dir: &Inode) -> Result<()> {
    refuse(dir, InodeFlags::IMMUTABLE)
}

/// Refuses to change what an append-only file has by now.
pub(super) fn check_content(inode: &Held) -> Result<()> {
    refuse(inode.image(&pin()), PROTECTED)
}
