//! Reading a range of a file into the caller's buffer.

use crate::data::buffered;
use crate::data::io::device_offset;
use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use crate::map::{Runs, Target};
use crate::{Error, Result};
use extant_format::Pblk;
use extant_format::inode::InodeFlags;

/// Reads from byte `offset` of a regular file. Returns how much was read: less than the buffer
/// holds only at the end of the file, 0 past it.
///
/// # Errors
/// [`Error::IsADirectory`] or [`Error::NotARegularFile`] for anything but a regular file,
/// [`Error::Encrypted`] when there is no way to read the content, [`Error::Corrupt`] when the map
/// breaks the format, [`Error::Device`] when the device fails.
pub fn read_at(fs: &Fs, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    match inode.file_type() {
        FileType::Regular if inode.is_encrypted() => Err(Error::Encrypted),
        FileType::Regular => match fs.with_data(inode) {
            // The device may not have all of it.
            Some(live) => buffered::read::read(fs, &live, offset, buf),
            None => read_content(fs, inode, offset, buf),
        },
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::NotARegularFile),
    }
}

/// Reads the content of an inode of any type that has some, as stored: directories, targets of long
/// symbolic links, attribute values, encrypted data.
///
/// # Errors
/// [`Error::Corrupt`] when the map breaks the format, [`Error::Device`] when the device fails.
pub fn read_content(fs: &Fs, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let left = inode.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else {
        return Ok(0);
    };
    if inode.is_inline() {
        return read_inline(fs, inode, offset, buf);
    }
    read_mapped(fs, inode, offset, buf)?;
    Ok(len)
}

/// Fills `buf` from byte `offset` of what a file has behind its content that is protected by
/// fs-verity: hashes, and what describes them. What has no blocks is zeros.
///
/// # Errors
/// [`Error::NotARegularFile`] for anything else than such a file, and as for [`read_content`].
pub fn read_seal(fs: &Fs, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
    let is_sealed = inode.flags().contains(InodeFlags::VERITY) && !inode.is_inline();
    if inode.file_type() != FileType::Regular || !is_sealed {
        return Err(Error::NotARegularFile);
    }
    read_mapped(fs, inode, offset, buf)
}

/// Fills `buf` as the map has it, wherever the file ends.
fn read_mapped(fs: &Fs, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
    let block_size = fs.block_size();
    let end = offset.saturating_add(buf.len() as u64);
    let blocks = offset >> block_size.log2()..block_size.blocks_for(end);
    let mut rest = buf;
    let mut at = offset;
    for run in Runs::over(fs, inode, blocks) {
        let run = run?;
        // Bytes of the run before `at`: only the first run has any.
        let skip = at - (u64::from(run.lblk.get()) << block_size.log2()).min(at);
        let run_end = (run.end() << block_size.log2()).min(end);
        let here = usize::try_from(run_end.saturating_sub(at)).unwrap_or(usize::MAX);
        let (now, after) = rest.split_at_mut(here.min(rest.len()));
        match run.target {
            Target::Written(pblk) => read_device(fs, pblk, skip, now)?,
            Target::Unwritten(_) | Target::Hole => now.fill(0),
        }
        at += now.len() as u64;
        rest = after;
    }
    // Past the reach of the map (sizes are checked at load, so this is the map's very end).
    rest.fill(0);
    Ok(())
}

/// Fills `buf` from `skip` bytes past the start of a physical block.
pub(in crate::data) fn read_device(fs: &Fs, pblk: Pblk, skip: u64, buf: &mut [u8]) -> Result<()> {
    let offset = device_offset(fs, pblk, skip).unwrap_or(u64::MAX);
    fs.device().read_at(offset, buf)?;
    Ok(())
}

pub(in crate::data) fn read_inline(
    fs: &Fs,
    inode: &Inode,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    Ok(fs.inline_data(inode)?.read(offset, buf))
}
