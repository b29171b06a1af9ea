//! Bytes of files on the device.

use crate::data::io::blocks_of;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{self, Target};
use crate::{Error, Result};
use extant_format::Pblk;
use std::ops::Range;

/// Zeros, as many as a block has at most.
pub(in crate::data) static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Returns where byte `skip` of a run from `pblk` lies on the device.
fn offset_of(fs: &Fs, pblk: Pblk, skip: u64) -> Result<u64> {
    fs.block_size()
        .offset_of(pblk)
        .and_then(|offset| offset.checked_add(skip))
        .ok_or(Error::InvalidInput("a position past the end of any device"))
}

/// Returns the parts of `range`, in bytes of the file, whose blocks hold data: where they lie on
/// the device, and how long they are.
fn written(fs: &Fs, image: &Inode, range: &Range<u64>) -> Result<Vec<(u64, u64)>> {
    let log2 = fs.block_size().log2();
    let mut parts = Vec::new();
    for run in map::runs_of(fs, image, blocks_of(fs, range))? {
        let Target::Written(pblk) = run.target else {
            continue;
        };
        let start = u64::from(run.lblk.get()) << log2;
        let from = start.max(range.start);
        let to = (run.end() << log2).min(range.end);
        if from < to {
            parts.push((offset_of(fs, pblk, from - start)?, to - from));
        }
    }
    Ok(parts)
}

/// Makes zeros of what is mapped in `range`, in bytes of the file. Past the end of a file, blocks
/// may hold anything.
pub(in crate::data) fn zero_mapped(fs: &Fs, image: &Inode, range: Range<u64>) -> Result<()> {
    for (offset, len) in written(fs, image, &range)? {
        fs.device().zero(offset, len)?;
    }
    Ok(())
}

/// Tells whether anything mapped in `range`, which is less than a block, differs from zero.
pub(in crate::data) fn has_data(fs: &Fs, image: &Inode, range: Range<u64>) -> Result<bool> {
    for (offset, len) in written(fs, image, &range)? {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(ZEROS.len())];
        fs.device().read_at(offset, &mut bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}
