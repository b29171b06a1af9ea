//! Where data and holes begin, and where data lies on the device.

use crate::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{Runs, Target};

/// A piece of a file, in bytes, cut to the file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte on the device; `None` for content inside the inode.
    pub device_offset: Option<u64>,
    /// Reserved, never written: reads as zeros.
    pub unwritten: bool,
}

/// Returns the first byte at or after `offset` that was written, or `None` when only holes follow.
/// Blocks that were reserved and never written count as holes.
///
/// # Errors
/// When the map breaks the format, or the device fails.
pub fn seek_data(fs: &Fs, inode: &Inode, offset: u64) -> Result<Option<u64>> {
    seek(fs, inode, offset, true)
}

/// Returns the first byte at or after `offset` that lies in a hole; the end of the file counts as
/// one. `None` when `offset` is past the end.
///
/// # Errors
/// When the map breaks the format, or the device fails.
pub fn seek_hole(fs: &Fs, inode: &Inode, offset: u64) -> Result<Option<u64>> {
    if offset >= inode.size() {
        return Ok(None);
    }
    Ok(Some(
        seek(fs, inode, offset, false)?.unwrap_or(inode.size()),
    ))
}

fn seek(fs: &Fs, inode: &Inode, offset: u64, data: bool) -> Result<Option<u64>> {
    if offset >= inode.size() {
        return Ok(None);
    }
    if inode.is_inline() {
        let stored = fs.inline_data(inode)?.stored() as u64;
        return Ok(match (data, offset < stored) {
            (true, is_stored) => is_stored.then_some(offset),
            (false, _) => Some(offset.max(stored)),
        });
    }
    let block_size = fs.block_size();
    let blocks = offset >> block_size.log2()..inode.size_in_blocks(block_size);
    for run in Runs::over(fs, inode, blocks) {
        let run = run?;
        if matches!(run.target, Target::Written(_)) == data {
            let start = u64::from(run.lblk.get()) << block_size.log2();
            return Ok(Some(start.max(offset)));
        }
    }
    Ok(None)
}

/// Returns the pieces of a file's content that have blocks, ascending. Blocks past the end of the
/// file are left out.
pub fn extents<'a>(fs: &'a Fs, inode: &'a Inode) -> impl Iterator<Item = Result<Extent>> + 'a {
    pieces(fs, inode, inode.size())
}

/// Returns all pieces of a file that have blocks, ascending, also those reserved past its end: what
/// `FIEMAP` and `filefrag` show.
pub fn allocated<'a>(fs: &'a Fs, inode: &'a Inode) -> impl Iterator<Item = Result<Extent>> + 'a {
    pieces(fs, inode, u64::MAX)
}

/// Returns the pieces before byte `end`.
fn pieces<'a>(fs: &'a Fs, inode: &'a Inode, end: u64) -> impl Iterator<Item = Result<Extent>> + 'a {
    let log2 = fs.block_size().log2();
    let size = inode.size();
    let inline = (inode.is_inline() && size > 0).then(|| {
        let data = fs.inline_data(inode)?;
        Ok(Extent {
            offset: 0,
            len: data.stored() as u64,
            device_offset: None,
            unwritten: false,
        })
    });
    let blocks = if inode.is_inline() {
        0
    } else {
        fs.block_size().blocks_for(end)
    };
    let mapped = Runs::over(fs, inode, 0..blocks).filter_map(move |run| {
        let run = match run {
            Ok(run) => run,
            Err(e) => return Some(Err(e)),
        };
        let pblk = run.target.pblk()?;
        let offset = u64::from(run.lblk.get()) << log2;
        Some(Ok(Extent {
            offset,
            len: (run.len << log2).min(end.saturating_sub(offset)),
            device_offset: fs.block_size().offset_of(pblk),
            unwritten: matches!(run.target, Target::Unwritten(_)),
        }))
    });
    inline.into_iter().chain(mapped)
}
