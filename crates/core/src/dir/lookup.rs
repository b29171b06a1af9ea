//! From a name to an inode number.

use super::Found;
use super::block::{Directory, found};
use super::htree::{self, Answer, Fault};
use super::matching::Wanted;
use super::state::DirState;
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode};
use crate::{Error, InPlace, Place, Result};
use extant_format::NAME_MAX;
use extant_format::dir::{DirLayout, edit, entries};
use extant_format::{Expected, FormatError, FormatResult, Ino, Lblk, Structure};
use std::ops::ControlFlow;

/// Returns what `dir` says about `name`, or `None` if it does not have it. `.` and `..` are names
/// like any other.
///
/// A hashed directory is searched through its index: the path to one leaf is read, not the
/// directory. An index of an unknown kind, or one that leads nowhere, is ignored and every block
/// searched instead.
///
/// In a casefolded directory names match without regard to case. In an encrypted one `name` is
/// compared with the stored bytes.
///
/// # Errors
/// [`Error::NotADirectory`], [`Error::NameTooLong`] for names over 255 bytes, [`Error::Corrupt`]
/// when a block that had to be searched is broken, [`Error::Device`] when the device fails.
pub fn lookup(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
    search(&Directory::new(fs, dir)?, name)
}

/// Returns how a name is written in `dir`, which may take others for the same; `None` if it does
/// not have it.
///
/// # Errors
/// As for [`lookup`].
pub(super) fn stored_name(dir: &Directory<'_>, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let wanted = Wanted::new(name, dir.is_casefolded());
    let found = search_for(dir, &wanted)?;
    Ok(found.map(|_| wanted.into_stored()))
}

fn search(directory: &Directory<'_>, name: &[u8]) -> Result<Option<Found>> {
    search_for(directory, &Wanted::new(name, directory.is_casefolded()))
}

fn search_for(directory: &Directory<'_>, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    let name = wanted.name();
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() {
        return Ok(None);
    }
    if directory.inode.is_inline() {
        return search_inline(directory, wanted);
    }
    if name == b"." || name == b".." {
        // Always in the first block.
        return search_blocks(directory, wanted, 1);
    }
    if directory.is_indexed() {
        match htree::search(directory, wanted)? {
            Answer::Found(found) => return Ok(Some(found)),
            // A kernel with other folding tables may have hashed the name differently.
            Answer::Absent if !directory.is_casefolded() || name.is_ascii() => return Ok(None),
            Answer::Absent | Answer::Useless => {}
        }
    }
    search_blocks(directory, wanted, u64::MAX)
}

/// Searches the first `blocks` blocks of a directory one by one.
fn search_blocks(dir: &Directory<'_>, wanted: &Wanted<'_>, blocks: u64) -> Result<Option<Found>> {
    dir.for_each_block(0..blocks, |lblk, block| {
        let hit = search_block(block, &dir.layout, wanted)
            .in_place(Place::FileBlock(dir.inode.ino(), lblk))?;
        Ok(match hit {
            Some(found) => ControlFlow::Break(found),
            None => ControlFlow::Continue(()),
        })
    })
}

/// Searches one block.
pub(super) fn search_block(
    block: &[u8],
    layout: &DirLayout,
    wanted: &Wanted<'_>,
) -> FormatResult<Option<Found>> {
    for entry in entries(block, layout) {
        let entry = entry?;
        if let Some(ino) = entry.ino
            && wanted.is(entry.name)
        {
            return Ok(Some(found(ino, entry.file_type)));
        }
    }
    Ok(None)
}

/// Searches a directory that lies in its inode.
fn search_inline(dir: &Directory<'_>, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    let inline = dir.inline()?;
    let place = Place::Inode(dir.inode.ino());
    let itself = |ino| Found {
        ino,
        file_type: Some(FileType::Directory),
    };
    match wanted.name() {
        b"." => return Ok(Some(itself(dir.inode.ino()))),
        b".." => return Ok(Some(itself(inline.parent()))),
        _ => {}
    }
    for entry in inline.entries(&dir.layout) {
        let entry = entry.in_place(place)?;
        if let Some(ino) = entry.ino
            && wanted.is(entry.name)
        {
            return Ok(Some(found(ino, entry.file_type)));
        }
    }
    Ok(None)
}

/// Searches a leaf that the index leads to.
pub(super) fn search_leaf(
    dir: &Directory<'_>,
    lblk: Lblk,
    wanted: &Wanted<'_>,
) -> Result<Option<Found>, Fault> {
    let place = Place::FileBlock(dir.inode.ino(), lblk);
    let searched = dir.with_block(lblk, |block| match wanted.exact() {
        Some(name) => edit::find(block, &dir.layout, name)
            .map(|spot| spot.map(|spot| found(spot.ino, spot.file_type))),
        None => search_block(block, &dir.layout, wanted),
    })?;
    match searched {
        Some(searched) => Ok(searched.in_place(place)?),
        None => Err(Fault::Index(dir.hole(lblk))),
    }
}

/// Returns what a directory that may change meanwhile says about `name`.
///
/// Takes no lock unless names move between blocks at the same time.
///
/// # Errors
/// As for [`lookup`].
pub(crate) fn find(fs: &Fs, dir: &Held, name: &[u8]) -> Result<Option<Found>> {
    let state = dir.dir_state_if_any();
    while_still(dir, |inode| {
        search(&Directory::new(fs, inode)?.with_state(state, false), name)
    })
}

/// Returns what `read` says about the directory while no names move between its blocks. May run it
/// twice: at first without a lock.
pub(super) fn while_still<R>(dir: &Held, read: impl Fn(&Inode) -> Result<R>) -> Result<R> {
    // Without a state nobody has written to the directory yet.
    let before = dir.dir_state_if_any().map_or(Some(0), DirState::version);
    if let Some(before) = before {
        let answer = read(&dir.copy());
        let still = dir
            .dir_state_if_any()
            .is_none_or(|state| state.is_still(before));
        if still {
            return answer;
        }
    }
    let _names_stay = dir.dir_state().shared();
    read(&dir.copy())
}

/// Returns the parent of a directory, as its `..` says.
///
/// # Errors
/// As for [`lookup`]; [`Error::Corrupt`] when there is no `..`.
pub fn parent(fs: &Fs, dir: &Inode) -> Result<Ino> {
    match lookup(fs, dir, b"..")? {
        Some(found) => Ok(found.ino),
        None => Err(no_parent(dir.ino())),
    }
}

/// Returns the directory does not begin with `.` and `..`.
pub(super) fn no_parent(dir: Ino) -> Error {
    let expected = Expected::Said("entries `.` and `..` at the beginning of the first block");
    let source = FormatError::new(Structure::DirBlock, "dotdot", 0, expected);
    Error::corrupt(Place::FileBlock(dir, Lblk::new(0)), source)
}
