//! Names that go, or come to stand for something else.

use super::Found;
use super::block::{Directory, block_number, found};
use super::form::Form;
use super::htree::{Fault, Leaf, Way, leaf_of, major};
use super::inline;
use super::lookup;
use super::room::report;
use super::state::{DirState, Start};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{FileType, Held, Inode};
use crate::{Error, InPlace, Place, Result};
use extant_format::dir::edit::{self, Spot};
use extant_format::dir::htree::{self, DxKind};
use extant_format::dir::{DirLayout, EntryType};
use extant_format::{Ino, Lblk};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// Blocks that [`remove`], [`replace`] or [`set_parent`] change in any directory.
pub(crate) fn remove_credits(_fs: &Fs, _dir: &Inode) -> u32 {
    1
}

/// Takes a name out of `dir`; returns what it stood for. The name cache forgets it.
///
/// The caller holds the lock of the name; times and links are the caller's too.
///
/// # Errors
/// [`Error::NotFound`]; otherwise as for [`insert`](super::insert()). Nothing has changed then.
pub(crate) fn remove(handle: &Handle<'_>, dir: &Held, name: &[u8]) -> Result<Found> {
    change(handle, dir, name, |block, layout, spot| {
        Some(edit::remove(block, layout, spot))
    })
}

/// Makes a name of `dir` stand for another inode; returns what it stood for, which the name cache
/// forgets.
///
/// The caller holds the lock of the name; times and links are the caller's too.
///
/// # Errors
/// As for [`remove`].
pub(crate) fn replace(
    handle: &Handle<'_>,
    dir: &Held,
    name: &[u8],
    ino: Ino,
    file_type: FileType,
) -> Result<Found> {
    let file_type = EntryType::of(file_type);
    change(handle, dir, name, |block, layout, spot| {
        edit::retarget(block, layout, spot, ino, file_type);
        None
    })
}

/// Makes `..` of `dir` stand for another directory.
///
/// The caller holds the `op` lock of `dir` exclusively; links are the caller's too.
///
/// # Errors
/// [`Error::Corrupt`] when there is no `..`; otherwise as for [`insert`](super::insert()). Nothing
/// has changed then.
pub(crate) fn set_parent(handle: &Handle<'_>, dir: &Held, parent: Ino) -> Result<()> {
    change_parent(handle, dir, parent).inspect_err(|e| report(handle, e))
}

fn change_parent(handle: &Handle<'_>, dir: &Held, parent: Ino) -> Result<()> {
    let state = dir.dir_state();
    let _index = state.exclusive();
    let image = dir.copy();
    let (directory, form) = Directory::writable(handle.fs(), &image, state)?;
    if image.is_inline() {
        return inline::set_parent(handle, dir, &directory, parent);
    }
    let lblk = Lblk::new(0);
    let block = directory.existing_block(lblk)?;
    let place = Place::FileBlock(dir.ino(), lblk);
    match form {
        Form::Indexed => {
            // Checks that `..` is where a root has it.
            htree::DxRoot::parse(&block, &directory.layout, directory.large_dir).in_place(place)?;
            let seal = directory.node_seal(DxKind::Root);
            handle.edit(&block, seal, |bytes| htree::set_parent(bytes, parent));
        }
        Form::One(_) | Form::Linear => {
            let spot = edit::find(&block, &directory.layout, b"..").in_place(place)?;
            let spot = spot.ok_or_else(|| super::lookup::no_parent(dir.ino()))?;
            handle.edit(&block, directory.leaf_seal(), |bytes| {
                edit::retarget(
                    bytes,
                    &directory.layout,
                    &spot,
                    parent,
                    EntryType::Directory,
                );
            });
        }
    }
    Ok(())
}

/// Tells whether the directory has no names but `.` and `..`.
///
/// The caller holds its `op` lock exclusively, so that this stays so.
///
/// # Errors
/// As for [`lookup`](super::lookup).
pub(crate) fn is_empty(fs: &Fs, dir: &Held) -> Result<bool> {
    let _names_stay = dir.dir_state().shared();
    let image = dir.snapshot();
    let is_name = |name: &[u8]| name != b"." && name != b"..";
    let first = super::readdir(fs, &image, super::Cookie::START, |entry| {
        if is_name(entry.name) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(first.is_none())
}

/// Changes the block that holds a name. `edit` says which record has more room now, if any.
fn change(
    handle: &Handle<'_>,
    dir: &Held,
    name: &[u8],
    edit: impl FnOnce(&mut [u8], &DirLayout, &Spot) -> Option<usize>,
) -> Result<Found> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Error::InvalidInput("a name that every directory keeps"));
    }
    let found = change_entry(handle, dir, name, edit).inspect_err(|e| report(handle, e))?;
    handle.fs().names().forget(dir.ino(), name);
    Ok(found)
}

fn change_entry(
    handle: &Handle<'_>,
    dir: &Held,
    name: &[u8],
    edit: impl FnOnce(&mut [u8], &DirLayout, &Spot) -> Option<usize>,
) -> Result<Found> {
    let state = dir.dir_state();
    let mut names_stay = state.shared();
    let mut image = dir.copy();
    if image.is_inline() {
        drop(names_stay);
        let alone = state.exclusive();
        let image_alone = dir.copy();
        if image_alone.is_inline() {
            let (directory, _) = Directory::writable(handle.fs(), &image_alone, state)?;
            let name = stored(&directory, name)?;
            return inline::change(handle, dir, &directory, &name, edit);
        }
        drop(alone);
        // It has blocks by now, and keeps them.
        names_stay = state.shared();
        image = dir.copy();
    }
    let _names_stay = names_stay;
    let (directory, form) = Directory::writable(handle.fs(), &image, state)?;
    if directory.layout.hash_in_entry && directory.is_indexed() {
        // Its index goes by a keyed hash, by which nobody finds a name without the key.
        return Err(Error::Encrypted);
    }
    let name = stored(&directory, name)?;
    let change = Change {
        handle,
        state,
        dir: &directory,
        name: &name,
    };
    match form {
        Form::Indexed => change.indexed(edit).map_err(Fault::into_error),
        Form::One(_) | Form::Linear => change.linear(edit),
    }
}

/// Returns how a name is written in the directory. The caller holds its lock, and names stay where
/// they are.
fn stored<'n>(dir: &Directory<'_>, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
    if !dir.is_casefolded() {
        Ok(Cow::Borrowed(name))
    } else {
        lookup::stored_name(dir, name)?
            .map(Cow::Owned)
            .ok_or(Error::NotFound)
    }
}

/// A change of the entry of one name.
struct Change<'c, 'f> {
    handle: &'c Handle<'f>,
    state: &'c DirState,
    dir: &'c Directory<'c>,
    name: &'c [u8],
}

impl Change<'_, '_> {
    fn indexed(
        self,
        edit: impl FnOnce(&mut [u8], &DirLayout, &Spot) -> Option<usize>,
    ) -> Result<Found, Fault> {
        let mut edit = Some(edit);
        let leaf: Leaf = leaf_of(self.dir, |hasher| major(hasher, self.name))?;
        if let Some(found) = self.block(leaf.lblk, &mut edit)? {
            return Ok(found);
        }
        if leaf.continues() {
            let mut left = self.dir.blocks();
            let mut way = Way::to(self.dir, |_| leaf.hash)?;
            while way.advance(self.dir)? && left > 0 {
                left -= 1;
                if let Some(found) = self.block(way.leaf, &mut edit)? {
                    return Ok(found);
                }
            }
        }
        Err(Error::NotFound.into())
    }

    fn linear(
        self,
        edit: impl FnOnce(&mut [u8], &DirLayout, &Spot) -> Option<usize>,
    ) -> Result<Found> {
        let mut edit = Some(edit);
        for at in 0..self.dir.blocks() {
            if let Some(found) = self.block(block_number(at)?, &mut edit)? {
                return Ok(found);
            }
        }
        Err(Error::NotFound)
    }

    /// Changes the name in this block, if it is here.
    fn block(
        &self,
        lblk: Lblk,
        edit: &mut Option<impl FnOnce(&mut [u8], &DirLayout, &Spot) -> Option<usize>>,
    ) -> Result<Option<Found>> {
        let layout = &self.dir.layout;
        let place = Place::FileBlock(self.dir.inode.ino(), lblk);
        let mut block = self.dir.lock_leaf(self.state, lblk)?;
        let Some(spot) = edit::find(&block, layout, self.name).in_place(place)? else {
            return Ok(None);
        };
        if let Some(edit) = edit.take() {
            let seal = self.dir.leaf_seal();
            let mut roomier = None;
            self.handle.edit_locked(&mut block, seal, |bytes| {
                roomier = edit(bytes, layout, &spot);
            })?;
            if let Some(at) = roomier {
                let start = Start::unpack(block.note());
                let at = start.at.min(at);
                block.set_note(Start { at, ..start }.pack());
            }
        }
        Ok(Some(found(spot.ino, spot.file_type)))
    }
}
