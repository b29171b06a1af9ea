//! Names in directories that lie in their inodes, and the way out of there.
//!
//! A directory that is made where the file system has `inline_data` begins so, and stays so while
//! there is room for its names in the map, and beside its attributes. Each name is a change of the
//! record like any other. Once it has a block it does not come back.
//!
//! # Invariants
//!
//! - Such names change under the lock of the index held exclusively. A lookup has an image of the
//!   record, and needs no lock.
//! - Records keep their places, also in the block that comes: listings may go by them.

use super::Found;
use super::block::{Directory, found};
use super::room::check_encoding;
use crate::alloc::Request;
use crate::fs::Handle;
use crate::inode::{Held, Inode};
use crate::map::MapGuard;
use crate::xattr::LEAVE_CREDITS;
use crate::{Error, InPlace, Place, Result};
use extant_format::dir::edit::{self, Spot};
use extant_format::dir::{DirLayout, NewEntry};
use extant_format::inline_data::{self, IN_MAP};
use extant_format::{Ino, Structure};

/// Makes `dir`, whose content lies in its inode and is none yet, a directory without names in
/// `parent`.
///
/// # Errors
/// When its record cannot be registered.
pub(super) fn init(handle: &Handle<'_>, dir: &Held, parent: Ino) -> Result<()> {
    let state = dir.dir_state();
    let _names = state.exclusive();
    let image = dir.copy();
    let (directory, _) = Directory::writable(handle.fs(), &image, state)?;
    let mut map = [0; IN_MAP];
    if !inline_data::encode_dir(&mut map, &mut [], &directory.layout, parent, []) {
        return Err(Error::Internal("a directory of nothing that does not fit"));
    }
    dir.live().update(handle, |inode| {
        let disk = inode.disk_mut();
        disk.map = map;
        disk.size = IN_MAP as u64;
    })
}

/// Puts the entry into a directory that lies in its inode, where it fits; `false` if it does not,
/// or the directory has a block by now.
///
/// # Errors
/// As for [`insert`](super::insert()). Nothing has changed then.
pub(super) fn insert(handle: &Handle<'_>, dir: &Held, entry: &NewEntry<'_>) -> Result<bool> {
    let fs = handle.fs();
    let state = dir.dir_state();
    let _names = state.exclusive();
    let image = dir.copy();
    if !image.is_inline() {
        return Ok(false);
    }
    let (directory, _) = Directory::writable(fs, &image, state)?;
    check_encoding(&directory, entry.name)?;
    let layout = &directory.layout;
    let need = layout.min_rec_len(entry.name);
    let inline = directory.inline()?;
    let place = Place::Inode(dir.ino());
    if let Some((part, room)) = inline.find_room(layout, need).in_place(place)? {
        let rest = fs.inline_rest(&image)?;
        dir.live().update(handle, |inode| {
            let (map, attributes) = inode.content_mut();
            let rest = attributes.get_mut(rest).unwrap_or_default();
            let fits = edit::insert(part.of(map, rest), layout, &room, entry);
            debug_assert!(fits, "there was room");
        })?;
        return Ok(true);
    }
    // Behind the others, if there is room beside the attributes: so much that it fits, for they may
    // become more.
    let mut rest = inline.rest().to_vec();
    let at = rest.len();
    rest.resize(at + need, 0);
    if !edit::append(&mut rest, at, layout, entry) {
        return Err(Error::NameTooLong);
    }
    let Some(xattrs) = fs.xattrs_with_content(&image, Some(&rest))? else {
        return Ok(false);
    };
    dir.live().update(handle, |inode| {
        inode.set_xattr_region(xattrs);
        inode.disk_mut().size = (IN_MAP + rest.len()) as u64;
    })?;
    Ok(true)
}

/// Makes `..` of a directory that lies in its inode stand for another directory. The caller holds
/// the lock of the index exclusively.
///
/// # Errors
/// When the content breaks the format, or the record cannot be registered.
pub(super) fn set_parent(
    handle: &Handle<'_>,
    dir: &Held,
    directory: &Directory<'_>,
    parent: Ino,
) -> Result<()> {
    directory.inline()?;
    dir.live().update(handle, |inode| {
        inline_data::set_parent(&mut inode.disk_mut().map, parent);
    })
}

/// Changes an entry where it lies, in the inode of its directory. The caller holds the lock of the
/// index exclusively.
pub(super) fn change(
    handle: &Handle<'_>,
    dir: &Held,
    directory: &Directory<'_>,
    name: &[u8],
    edit: impl FnOnce(&mut [u8], &DirLayout, &Spot) -> Option<usize>,
) -> Result<Found> {
    let place = Place::Inode(dir.ino());
    let (inline, layout) = (directory.inline()?, &directory.layout);
    let found_at = inline.find(layout, name).in_place(place)?;
    let (part, spot) = found_at.ok_or(Error::NotFound)?;
    let rest = handle.fs().inline_rest(directory.inode)?;
    dir.live().update(handle, |inode| {
        let (map, attributes) = inode.content_mut();
        let rest = attributes.get_mut(rest).unwrap_or_default();
        let _ = edit(part.of(map, rest), layout, &spot);
    })?;
    Ok(found(spot.ino, spot.file_type))
}

/// Gives a directory whose entries lie in its inode a block for them, so that there can be more.
/// They keep their order and their distances, which listings go by.
///
/// # Errors
/// [`Error::NoSpace`](crate::Error::NoSpace),
/// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded); when the entries break the format.
/// Nothing has changed then.
pub(super) fn leave(handle: &Handle<'_>, dir: &Held) -> Result<()> {
    let fs = handle.fs();
    let map = MapGuard::lock(dir.live());
    let names = dir.dir_state().exclusive();
    let image = dir.copy();
    if !image.is_inline() {
        return Ok(());
    }
    let (directory, _) = Directory::writable(fs, &image, dir.dir_state())?;
    let mut data = directory.empty_block();
    directory
        .inline()?
        .fill_block(&mut data, &directory.layout, dir.ino())
        .in_place(Place::Inode(dir.ino()))?;
    let taken = fs.alloc()?.take_blocks(&Request {
        goal: directory.goal()?,
        len: 1,
        min: 1,
        below_32_bits: true,
        privileged: false,
    })?;
    let block = taken.start();
    let _moving = names.moving();
    let size = fs.block_size().bytes().into();
    fs.leave_inode(handle, dir, &map, Some(taken), size)?;
    let seal = directory.leaf_seal();
    let block = handle.create(block, seal, data);
    block.set_verified(Structure::DirBlock, Some(dir.ino()));
    Ok(())
}

/// Blocks that [`leave`] may change.
pub(super) fn leave_credits(dir: &Inode) -> u32 {
    if dir.is_inline() {
        LEAVE_CREDITS + 1
    } else {
        0
    }
}
