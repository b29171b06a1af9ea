//! Reading files that may change.

use super::read::{read_device, read_inline};
use super::seek::{self, Piece};
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode};
use crate::map::{self, Mapping, Target};
use crate::{Error, Result};

/// Reads from byte `offset` of a regular file that others may change meanwhile. Returns how much was
/// read: less than the buffer holds only at the end of the file, 0 past it.
///
/// Bytes that are being overwritten at the same time may be old or new, each by itself.
///
/// # Errors
/// As for [`read_at`](super::read_at).
pub fn read_live(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    // Blocks stay where they are until everything is read.
    let _stay = held.pages().read();
    let wanted = buf.len();
    let (image, runs) = map::runs_live(fs, held, |image| {
        let len = readable(image, offset, wanted);
        if image.is_inline() || len == 0 {
            return 0..0;
        }
        super::write::blocks_of(fs, &(offset..offset + len as u64))
    })?;
    match image.file_type() {
        FileType::Regular if image.is_encrypted() => return Err(Error::Encrypted),
        FileType::Regular => {}
        FileType::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::NotARegularFile),
    }
    let len = readable(&image, offset, wanted);
    let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else {
        return Ok(0);
    };
    if image.is_inline() {
        return read_inline(fs, &image, offset, buf);
    }
    read_runs(fs, &runs, offset, buf)?;
    Ok(len)
}

/// How many of `wanted` bytes from `offset` on a file has.
fn readable(image: &Inode, offset: u64, wanted: usize) -> usize {
    let left = image.size().saturating_sub(offset);
    usize::try_from(left).unwrap_or(usize::MAX).min(wanted)
}

/// Fills `buf` from byte `offset` of a file of which `runs` are the blocks.
fn read_runs(fs: &Fs, runs: &[Mapping], offset: u64, buf: &mut [u8]) -> Result<()> {
    let log2 = fs.block_size().log2();
    let mut at = offset;
    let mut rest = buf;
    for run in runs {
        let skip = at.saturating_sub(u64::from(run.lblk.get()) << log2);
        let here = (run.end() << log2).saturating_sub(at);
        let here = usize::try_from(here).unwrap_or(usize::MAX).min(rest.len());
        let (now, after) = rest.split_at_mut(here);
        match run.target {
            Target::Written(pblk) => read_device(fs, pblk, skip, now)?,
            Target::Unwritten(_) | Target::Hole => now.fill(0),
        }
        at += now.len() as u64;
        rest = after;
    }
    rest.fill(0);
    Ok(())
}

/// [`seek_data`](super::seek_data) in a file that others may change meanwhile.
///
/// # Errors
/// As there.
pub fn seek_data_live(fs: &Fs, held: &Held, offset: u64) -> Result<Option<u64>> {
    map::stable(held, |image| seek::seek_data(fs, image, offset))
}

/// [`seek_hole`](super::seek_hole) in a file that others may change meanwhile.
///
/// # Errors
/// As there.
pub fn seek_hole_live(fs: &Fs, held: &Held, offset: u64) -> Result<Option<u64>> {
    map::stable(held, |image| seek::seek_hole(fs, image, offset))
}

/// [`extents`](super::extents) of a file that others may change meanwhile, all of one moment.
///
/// # Errors
/// When the map breaks the format, or the device fails.
pub fn extents_live(fs: &Fs, held: &Held) -> Result<Vec<Piece>> {
    map::stable(held, |image| seek::extents(fs, image).collect())
}

/// [`allocated`](super::allocated) of a file that others may change meanwhile, all of one moment.
///
/// # Errors
/// When the map breaks the format, or the device fails.
pub fn allocated_live(fs: &Fs, held: &Held) -> Result<Vec<Piece>> {
    map::stable(held, |image| seek::allocated(fs, image).collect())
}
