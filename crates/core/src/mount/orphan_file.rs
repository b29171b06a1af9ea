//! Where the blocks of the orphan file lie.

use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use crate::map::{Runs, Target};
use crate::{Error, Place, Result};
use extant_format::{Expected, FormatError, Pblk, Structure};
use std::collections::HashSet;

/// Largest orphan file, as under Linux: 8 MiB.
const MAX_BYTES: u64 = 8 << 20;

/// Finds the blocks of the orphan file, in their order.
///
/// # Errors
/// [`Error::Corrupt`] when it is no regular file of whole blocks, or has holes.
pub(super) fn orphan_file_blocks(fs: &Fs, inode: &Inode) -> Result<Vec<Pblk>> {
    let place = Place::Inode(inode.ino());
    let wrong = |field, found, expected| {
        let source = FormatError::new(Structure::OrphanFile, field, found, expected);
        Error::corrupt(place, source)
    };
    let bytes = inode.size();
    let whole = bytes.is_multiple_of(fs.block_size().bytes().into());
    if inode.file_type() != FileType::Regular || inode.is_inline() || bytes == 0 || !whole {
        let expected = Expected::Said("whole blocks of a regular file");
        return Err(wrong("size", bytes, expected));
    }
    if bytes > MAX_BYTES {
        return Err(wrong("size", bytes, Expected::AtMost(MAX_BYTES)));
    }
    let mut blocks = Vec::new();
    let mut seen = HashSet::new();
    for run in Runs::over(fs, inode, 0..inode.size_in_blocks(fs.block_size())) {
        let run = run?;
        let Target::Written(start) = run.target else {
            let expected = Expected::Said("a written block, as the file has no holes");
            return Err(wrong("block", run.lblk.get().into(), expected));
        };
        for step in 0..run.len {
            let block = Pblk::new(start.get().saturating_add(step));
            if !seen.insert(block) {
                let expected = Expected::Said("a block that appears once");
                return Err(wrong("block", block.get(), expected));
            }
            blocks.push(block);
        }
    }
    Ok(blocks)
}
