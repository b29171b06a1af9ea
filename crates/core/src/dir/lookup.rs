//! From a name to an inode number.

use super::Found;
use super::block::{Directory, found};
use super::htree::{self, Answer};
use super::matching::Wanted;
use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use crate::{Error, InPlace, Place, Result};
use extant_format::dir::{DirLayout, entries, entry::NAME_MAX};
use extant_format::{FormatResult, Lblk};
use std::ops::ControlFlow;

/// What `dir` says about `name`, or `None` if it does not have it. `.` and `..` are names like any
/// other.
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
    let directory = Directory::new(fs, dir)?;
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() {
        return Ok(None);
    }
    let wanted = Wanted::new(name, directory.is_casefolded());
    if dir.is_inline() {
        return search_inline(&directory, &wanted);
    }
    if name == b"." || name == b".." {
        // Always in the first block.
        return search_blocks(&directory, &wanted, 1);
    }
    if directory.is_indexed() {
        match htree::search(&directory, &wanted)? {
            Answer::Found(found) => return Ok(Some(found)),
            // A kernel with other folding tables may have hashed the name differently.
            Answer::Absent if !directory.is_casefolded() || name.is_ascii() => return Ok(None),
            Answer::Absent | Answer::Useless => {}
        }
    }
    search_blocks(&directory, &wanted, u64::MAX)
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

/// The leaf block that has to be searched, if the directory has it.
pub(super) fn search_leaf(
    dir: &Directory<'_>,
    lblk: Lblk,
    wanted: &Wanted<'_>,
) -> Result<Option<Option<Found>>> {
    let Some(block) = dir.block(lblk)? else {
        return Ok(None);
    };
    search_block(&block, &dir.layout, wanted)
        .in_place(Place::FileBlock(dir.inode.ino(), lblk))
        .map(Some)
}
