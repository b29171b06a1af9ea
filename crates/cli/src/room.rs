//! Whether something fits into an image, asked before anything is made.

use extant::{Filesystem, Metadata, Result};

/// What a file needs more than there is, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge {
    needed: u64,
    found: u64,
    block: u64,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |blocks: u64| crate::size::human(blocks.saturating_mul(self.block));
        write!(
            f,
            "no space is left for it: it needs {}, and with what the file has there are {}. The file is as it was; make \
             room with `extant rm` or `extant resize`",
            bytes(self.needed),
            bytes(self.found)
        )
    }
}

/// Bytes of a block of the image.
///
/// # Errors
/// When the counts of the image cannot be read.
pub(crate) fn block_size(fs: &Filesystem) -> Result<u64> {
    Ok(fs.statfs()?.block_size.bytes().into())
}

/// Blocks that may be taken now.
///
/// # Errors
/// When the counts of the image cannot be read.
pub(crate) fn available(fs: &Filesystem) -> Result<u64> {
    Ok(fs.statfs()?.available_to_root)
}

/// Where the new content of a file fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Beside the old content.
    Beside,
    /// In its place alone.
    InPlace,
}

/// Compares the blocks that a file's new content needs with those that are free, and with those
/// that it has.
///
/// # Errors
/// When the counts of the image cannot be read.
pub(crate) fn fits(
    fs: &Filesystem,
    there: &Metadata,
    needed: u64,
) -> Result<std::result::Result<Fit, TooLarge>> {
    let block = block_size(fs)?;
    let free = available(fs)?;
    if needed <= free {
        return Ok(Ok(Fit::Beside));
    }
    let own = there.blocks().saturating_mul(512) / block;
    let found = free.saturating_add(own);
    Ok(if needed <= found {
        Ok(Fit::InPlace)
    } else {
        Err(TooLarge {
            needed,
            found,
            block,
        })
    })
}
