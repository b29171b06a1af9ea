//! Where data and holes begin in files that may change.
//!
//! What was written and has no place yet is data: memory knows it, and nothing is written back to
//! find out.
//!
//! # How
//!
//! A block is in memory as newer than the device until after the map has it. So a reader that looks
//! at the map first and at memory then may take a block for a hole that got its place in between;
//! it has changed the map then, and the version of the map says so.

use crate::Result;
use crate::data::cache::FileCache;
use crate::data::cache::folio::{FOLIO_LOG2, mask};
use crate::data::io::blocks_of;
use crate::data::stored::seek::{self, Extent};
use crate::data::writeback::write_back;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::map::{self, Runs, Target};
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// How often the map may change while somebody looks, until the file is written back.
const TRIES: u32 = 8;

/// Returns where data begins, as [`seek_data`](crate::data::seek_data), in a file that others may
/// change meanwhile.
///
/// # Errors
/// As there; what writing back says, if the map keeps changing.
pub fn seek_data_live(fs: &Fs, held: &Held, offset: u64) -> Result<Option<u64>> {
    match look(fs, held, offset, true)? {
        Some((found, _)) => Ok(found),
        None => map::stable(held, |image| seek::seek_data(fs, image, offset)),
    }
}

/// Returns where a hole begins, as [`seek_hole`](crate::data::seek_hole), in a file that others may
/// change meanwhile.
///
/// # Errors
/// As there; what writing back says, if the map keeps changing.
pub fn seek_hole_live(fs: &Fs, held: &Held, offset: u64) -> Result<Option<u64>> {
    match look(fs, held, offset, false)? {
        Some((found, size)) => Ok((offset < size).then_some(found.unwrap_or(size))),
        None => map::stable(held, |image| seek::seek_hole(fs, image, offset)),
    }
}

/// Returns the first byte at or after `offset` of data, or of a hole, and the size of the file.
/// `None` if the map alone says it.
fn look(fs: &Fs, held: &Held, offset: u64, data: bool) -> Result<Option<(Option<u64>, u64)>> {
    let Some(file) = held.file_cache() else {
        return Ok(None);
    };
    if !fs.data().is_write_back() || held.snapshot().is_inline() {
        return Ok(None);
    }
    let version = held.map_version();
    for _ in 0..TRIES {
        if file.is_idle() && held.live_size() <= held.snapshot().size() {
            return Ok(None);
        }
        let before = version.load(Ordering::Acquire);
        let size = held.live_size();
        let found = find(fs, file, &held.snapshot(), offset..size, data);
        fence(Ordering::Acquire);
        if before & 1 == 0 && version.load(Ordering::Relaxed) == before {
            return found.map(|found| Some((found, size)));
        }
        extant_sync::thread::yield_now();
    }
    write_back(fs, held.live())?;
    Ok(None)
}

/// Returns the first byte of data, or of a hole, in bytes `range` of a file of the map of `image`.
fn find(
    fs: &Fs,
    file: &FileCache,
    image: &Inode,
    range: Range<u64>,
    data: bool,
) -> Result<Option<u64>> {
    if range.is_empty() {
        return Ok(None);
    }
    let log2 = fs.block_size().log2();
    for run in Runs::over(fs, image, blocks_of(fs, &range)) {
        let run = run?;
        let blocks = run.lblk.get().into()..run.end();
        let found = match run.target {
            Target::Written(_) => data.then_some(blocks.start),
            Target::Unwritten(_) | Target::Hole => file.first_newer(blocks, log2, data),
        };
        if let Some(block) = found {
            return Ok(Some((block << log2).max(range.start)));
        }
    }
    Ok(None)
}

impl FileCache {
    /// Returns the first of `blocks` that memory has, and the device has not; or, if `newer` is not
    /// asked for, that is not one of these.
    fn first_newer(&self, blocks: Range<u64>, log2: u32, newer: bool) -> Option<u64> {
        let per_folio = FOLIO_LOG2 - log2;
        let mut at = blocks.start;
        let folios = blocks.start >> per_folio..((blocks.end - 1) >> per_folio) + 1;
        for folio in self.index.folios(folios) {
            let first = folio.first_block(log2);
            if !newer && first > at {
                return Some(at);
            }
            let state = folio.read();
            let bits = state.dirty | state.writeback | state.delayed;
            let from = at.saturating_sub(first) as u32;
            let to = blocks.end.saturating_sub(first).min(1 << per_folio) as u32;
            let wanted = mask(from..to) & if newer { bits } else { !bits };
            if wanted != 0 {
                return Some(first + u64::from(wanted.trailing_zeros()));
            }
            at = first + u64::from(to);
        }
        (!newer && at < blocks.end).then_some(at)
    }
}

/// Returns the [`extents`](crate::data::extents) of a file that others may change meanwhile, all of
/// one moment.
///
/// # Errors
/// When the map breaks the format, or the device fails; what writing back says.
pub fn extents_live(fs: &Fs, held: &Held) -> Result<Vec<Extent>> {
    write_back_unmapped(fs, held)?;
    map::stable(held, |image| seek::extents(fs, image).collect())
}

/// Returns all [allocated](crate::data::allocated) extents of a file that others may change
/// meanwhile, all of one moment.
///
/// # Errors
/// When the map breaks the format, or the device fails.
pub fn allocated_live(fs: &Fs, held: &Held) -> Result<Vec<Extent>> {
    write_back_unmapped(fs, held)?;
    map::stable(held, |image| seek::allocated(fs, image).collect())
}

/// Brings the map up to what was written: what has no place yet is not in it.
fn write_back_unmapped(fs: &Fs, held: &Held) -> Result<()> {
    // What is written over reserved blocks is a hole in the map as well, and so is what is on its
    // way to the device.
    let behind = held.file_cache().is_some_and(|file| !file.is_idle())
        || held.live_size() > held.snapshot().size();
    if behind {
        write_back(fs, held.live())
    } else {
        Ok(())
    }
}
