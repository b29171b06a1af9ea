//! The journal as seen at mount: where it lies, and its replay into memory.

use super::Fs;
use crate::inode::Inode;
use crate::map::{Runs, Target};
use crate::{Error, Place, Result};
use extant_blockdev::SharedDevice;
use extant_format::{Expected, FormatError, Ino, Structure};
use extant_jbd2::{Log, LogRun, ReplayedDevice};
use std::sync::Arc;

/// Most blocks of a journal, whatever its inode says.
const MAX_JOURNAL_BLOCKS: u64 = u32::MAX as u64;

impl Fs {
    /// The device with the dirty journal replayed into memory in front of it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the journal lies on another device or has fast commits to replay,
    /// [`Error::Journal`] or [`Error::Corrupt`] when it is damaged.
    pub(super) fn replay(&self) -> Result<SharedDevice> {
        if self.superblock.has_external_journal() {
            return Err(Error::Unsupported {
                features: "an external journal that waits for replay (replay it under Linux \
                           first: mount the file system once, or run e2fsck on it)"
                    .to_owned(),
            });
        }
        let ino = self.superblock.journal_ino().ok_or_else(|| {
            let expected = Expected::Said("an inode, as the journal waits for replay");
            let source = FormatError::new(Structure::Superblock, "journal_inum", 0, expected);
            Error::corrupt(Place::Superblock, source)
        })?;
        let runs = self.journal_runs(ino, &*self.inode(ino)?)?;
        let log = Log::open(&*self.device, &runs, self.block_size()).map_err(Error::from)?;
        let recovery = log.recover(self.geometry.blocks_count())?;
        tracing::info!(
            transactions = recovery.transaction_count,
            blocks = recovery.blocks.len(),
            "replayed the journal into memory"
        );
        let device = Arc::clone(&self.device);
        Ok(Arc::new(ReplayedDevice::new(device, recovery.blocks)))
    }

    /// Where the journal's blocks lie.
    fn journal_runs(&self, ino: Ino, inode: &Inode) -> Result<Vec<LogRun>> {
        let blocks = inode
            .size_in_blocks(self.block_size())
            .min(MAX_JOURNAL_BLOCKS);
        let mut runs = Vec::new();
        for run in Runs::over(self, inode, 0..blocks) {
            let run = run?;
            let Target::Written(start) = run.target else {
                let expected = Expected::Said("a block, as journals have no holes");
                let source = FormatError::new(
                    Structure::Inode,
                    "journal block",
                    run.lblk.get().into(),
                    expected,
                );
                return Err(Error::corrupt(Place::Inode(ino), source));
            };
            runs.push(LogRun {
                first: run.lblk.get(),
                // Runs end at `blocks`, which fits 32 bits.
                len: u32::try_from(run.len).unwrap_or(u32::MAX),
                start,
            });
        }
        Ok(runs)
    }
}
