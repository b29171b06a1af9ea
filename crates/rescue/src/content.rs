//! Content of a deleted file.

use crate::error::{Error, Result};
use crate::maps::Run;
use crate::{DeletedFile, Rescue};
use std::ops::Range;

/// Bytes that are read at once.
const WINDOW: u64 = 1 << 20;

/// Where content lies.
#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    /// Nothing tells.
    #[default]
    Unknown,
    /// In the inode.
    Inline(Vec<u8>),
    /// In these blocks.
    Blocks {
        /// By logical block.
        runs: Vec<Run>,
        /// Blocks that were given away, sorted and apart.
        given: Vec<Range<u64>>,
    },
}

impl Content {
    /// The written runs, without the blocks that were given away: byte in the file, first block,
    /// number of blocks.
    fn pieces(&self, block_size: u64) -> Vec<(u64, u64, u64)> {
        let Self::Blocks { runs, given } = self else {
            return Vec::new();
        };
        let mut pieces = Vec::new();
        for run in runs.iter().filter(|run| !run.unwritten) {
            let (mut at, end) = (run.pblk, run.pblk + u64::from(run.len));
            let byte = |block: u64| (u64::from(run.lblk) + (block - run.pblk)) * block_size;
            let from = given.partition_point(|range| range.end <= at);
            for gap in given.iter().skip(from).take_while(|gap| gap.start < end) {
                if gap.start > at {
                    pieces.push((byte(at), at, gap.start - at));
                }
                at = gap.end.min(end);
            }
            if at < end {
                pieces.push((byte(at), at, end - at));
            }
        }
        pieces
    }
}

impl Rescue {
    /// Reads the content of a deleted file, and hands it on piece by piece, with the byte in the
    /// file at which each begins. Holes are left out, and so are blocks that were given away.
    ///
    /// # Errors
    /// A device that fails, and what `each` returns.
    pub fn read<E: From<Error>>(
        &self,
        file: &DeletedFile,
        mut each: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if let Content::Inline(bytes) = &file.content {
            return each(0, bytes);
        }
        let size = u64::from(self.volume.block_size().bytes());
        let mut buf = Vec::new();
        for (byte, start, len) in file.content.pieces(size) {
            let mut done = 0;
            while done < len {
                let count = (WINDOW / size).max(1).min(len - done);
                let at = byte + done * size;
                let left = file.size.saturating_sub(at);
                if left == 0 {
                    break;
                }
                buf.resize((count * size) as usize, 0);
                self.volume.read(start + done, &mut buf)?;
                let wanted = (buf.len() as u64).min(left) as usize;
                each(at, buf.get(..wanted).unwrap_or_default())?;
                done += count;
            }
        }
        Ok(())
    }

    /// Whether a block of the content reads as zeros, as those do that were trimmed.
    pub(crate) fn has_block_of_zeros(&self, content: &Content) -> Result<bool> {
        let size = u64::from(self.volume.block_size().bytes());
        let mut buf = Vec::new();
        for (_, start, len) in content.pieces(size) {
            let mut done = 0;
            while done < len {
                let count = (WINDOW / size).max(1).min(len - done);
                buf.resize((count * size) as usize, 0);
                self.volume.read(start + done, &mut buf)?;
                let mut blocks = buf.chunks_exact(size as usize);
                if blocks.any(|block| block.iter().all(|byte| *byte == 0)) {
                    return Ok(true);
                }
                done += count;
            }
        }
        Ok(false)
    }
}
