//! Reading from the device into the caller's buffer, where memory has nothing of files.

use crate::Result;
use crate::data::io::{blocks_of, inside_file};
use crate::data::stored::read::read_device;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::map::{self, Target};

/// Reads from byte `offset` of a regular file whose content lies outside its inode.
pub(in crate::data) fn read(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let wanted = inside_file(held, offset, buf.len());
    if wanted == 0 {
        return Ok(0);
    }
    // Blocks stay where they are until everything is read.
    let _stay = held.pages().read();
    let readable = |image: &Inode| {
        let left = image.size().saturating_sub(offset);
        usize::try_from(left).unwrap_or(usize::MAX).min(wanted)
    };
    let (image, runs) = map::runs_live(fs, held, |image| {
        let end = offset + readable(image) as u64;
        blocks_of(fs, &(offset..end))
    })?;
    let len = readable(&image);
    let log2 = fs.block_size().log2();
    let mut at = offset;
    let mut rest = &mut buf[..len];
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
    Ok(len)
}
