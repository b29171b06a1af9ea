//! Listing a directory, resumable by cookie.

use super::Entry;
use super::block::{Directory, found};
use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use crate::{InPlace, Place, Result};
use extant_format::Lblk;
use extant_format::dir::entries;
use extant_format::inline_data::{BLOCK_SHIFT, PARENT_LEN};
use std::ops::ControlFlow;

/// A position in a listing, between two entries.
///
/// It is the byte position in the directory's blocks from which to go on (or in the block that an
/// inline directory would have), so it stays good for as long as the directory does not change,
/// across mounts too. (Where a directory can change, entries move between blocks; a listing that
/// must survive that has to be in order of hash.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cookie(u64);

impl Cookie {
    /// The beginning.
    pub const START: Self = Self(0);

    /// Returns the cookie that [`Cookie::to_raw`] gave this number for. Any number is safe: one
    /// that is not between two entries stands for the first place behind it that is.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns a number to keep, which fits 63 bits.
    #[must_use]
    pub const fn to_raw(self) -> u64 {
        self.0
    }
}

/// Positions that an inline directory gives to `.` and `..`, which it does not store: those they
/// have in the block that the directory gets when it outgrows its inode. So a listing goes on
/// behind that where it was.
const DOT: u64 = 0;
const DOT_DOT: u64 = 12;
const FIRST_RECORD: u64 = (PARENT_LEN + BLOCK_SHIFT) as u64;

/// Calls `visit` with the entries of `dir` from `from` on, `.` and `..` among them, until it breaks
/// or the directory ends. Returns the value it broke with.
///
/// Entries come in the order they are stored in, which is not sorted. Each carries the cookie to
/// go on after it. Holes in a directory, which no sound one has, are passed over.
///
/// # Errors
/// [`Error::NotADirectory`](crate::Error::NotADirectory);
/// [`Error::Corrupt`](crate::Error::Corrupt) when a block is broken, after the entries before it
/// have been visited; [`Error::Device`](crate::Error::Device) when the device fails.
pub fn readdir<B>(
    fs: &Fs,
    dir: &Inode,
    from: Cookie,
    mut visit: impl FnMut(Entry<'_>) -> ControlFlow<B>,
) -> Result<Option<B>> {
    let directory = Directory::new(fs, dir)?;
    if dir.is_inline() {
        return list_inline(&directory, from, visit);
    }
    let log2 = fs.block_size().log2();
    directory.for_each_block(from.0 >> log2..u64::MAX, |lblk, block| {
        list_block(&directory, lblk, block, from, &mut visit)
    })
}

/// Lists as [`readdir`] does, from the beginning, a directory of a file system that does not
/// change: around the cache, by way of `memory`.
///
/// # Errors
/// As for [`readdir`].
pub(crate) fn readdir_around<B>(
    fs: &Fs,
    dir: &Inode,
    memory: &mut Vec<u8>,
    mut visit: impl FnMut(Entry<'_>) -> ControlFlow<B>,
) -> Result<Option<B>> {
    let directory = Directory::new(fs, dir)?;
    if dir.is_inline() {
        return list_inline(&directory, Cookie::START, visit);
    }
    directory.for_each_block_around(memory, |lblk, block| {
        list_block(&directory, lblk, block, Cookie::START, &mut visit)
    })
}

/// Lists the entries of a block, those from `from` on.
fn list_block<B>(
    dir: &Directory<'_>,
    lblk: Lblk,
    block: &[u8],
    from: Cookie,
    visit: &mut impl FnMut(Entry<'_>) -> ControlFlow<B>,
) -> Result<ControlFlow<B>> {
    let start = u64::from(lblk.get()) << dir.fs.block_size().log2();
    for entry in entries(block, &dir.layout) {
        let entry = entry.in_place(Place::FileBlock(dir.inode.ino(), lblk))?;
        let Some(ino) = entry.ino else { continue };
        if start + (entry.offset as u64) < from.0 {
            continue;
        }
        let flow = visit(Entry {
            name: entry.name,
            ino,
            file_type: found(ino, entry.file_type).file_type,
            next: Cookie(start + (entry.offset + entry.rec_len) as u64),
        });
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn list_inline<B>(
    dir: &Directory<'_>,
    from: Cookie,
    mut visit: impl FnMut(Entry<'_>) -> ControlFlow<B>,
) -> Result<Option<B>> {
    let inline = dir.inline()?;
    let place = Place::Inode(dir.inode.ino());
    let unstored = [
        (DOT, &b"."[..], dir.inode.ino(), DOT_DOT),
        (DOT_DOT, b"..", inline.parent(), FIRST_RECORD),
    ];
    for (at, name, ino, next) in unstored {
        if at < from.0 {
            continue;
        }
        let flow = visit(Entry {
            name,
            ino,
            file_type: Some(FileType::Directory),
            next: Cookie(next),
        });
        if let ControlFlow::Break(value) = flow {
            return Ok(Some(value));
        }
    }
    for entry in inline.entries(&dir.layout) {
        let entry = entry.in_place(place)?;
        let Some(ino) = entry.ino else { continue };
        let at = entry.offset + BLOCK_SHIFT;
        if (at as u64) < from.0 {
            continue;
        }
        let flow = visit(Entry {
            name: entry.name,
            ino,
            file_type: found(ino, entry.file_type).file_type,
            next: Cookie((at + entry.rec_len) as u64),
        });
        if let ControlFlow::Break(value) = flow {
            return Ok(Some(value));
        }
    }
    Ok(None)
}
