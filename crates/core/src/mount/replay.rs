//! The journal as seen at mount: where it lies, and its replay into memory.

use super::fast_commit;
use crate::fs::{Fs, MountOptions, Notice};
use crate::inode::Inode;
use crate::map::{Runs, Target};
use crate::{Error, InPlace, Place, Result, data};
use extant_blockdev::SharedDevice;
use extant_format::jbd2::JournalSuperblock;
use extant_format::{Expected, FormatError, Ino, Structure};
use extant_jbd2::{Log, LogRun, Recovery, ReplayedDevice, external_log};
use extant_sync::pin;
use std::sync::Arc;

/// Most pieces a journal may lie in. `mke2fs` makes it in one; a map that points at the same
/// blocks over and over would fill memory with pieces.
const MAX_RUNS: usize = 1 << 20;

impl Fs {
    /// The device with the dirty journal replayed into memory in front of it, and what the user
    /// should know about that.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the journal lies on another device, or has fast commits for a
    /// file system that is only read; [`Error::Journal`] or [`Error::Corrupt`] when it is damaged.
    pub(super) fn replay(&self, options: &MountOptions) -> Result<(SharedDevice, Vec<Notice>)> {
        let (recovery, log) = self.recover_log(options)?;
        crate::event!(
            info,
            transactions = recovery.transaction_count,
            blocks = recovery.blocks.len(),
            "replayed the journal into memory"
        );
        let notices = Notice::of_recovery(&recovery);
        let device = Arc::clone(self.device());
        let replayed: SharedDevice =
            Arc::new(ReplayedDevice::with_log(device, log, recovery.blocks));
        Ok(match &recovery.fast_commits {
            Some(found) => (fast_commit::apply(&replayed, options, found)?, notices),
            None => (replayed, notices),
        })
    }

    /// What the log holds, and the device that it is on.
    ///
    /// # Errors
    /// As for [`Fs::replay`].
    pub(super) fn recover_log(&self, options: &MountOptions) -> Result<(Recovery, SharedDevice)> {
        if self.superblock().has_external_journal() {
            return self.recover_external_log(options);
        }
        let ino = self.superblock().journal_ino().ok_or_else(|| {
            let expected = Expected::Said("an inode, as the journal waits for replay");
            let source = FormatError::new(Structure::Superblock, "journal_inum", 0, expected);
            Error::corrupt(Place::Superblock, source)
        })?;
        let journal = self.journal_place(ino)?;
        let log = journal.open(self)?;
        let recovery = log.recover(self.geometry().blocks_count())?;
        Ok((recovery, Arc::clone(self.device())))
    }

    fn recover_external_log(&self, options: &MountOptions) -> Result<(Recovery, SharedDevice)> {
        let Some(device) = &options.journal_device else {
            return Err(Error::Unsupported {
                features: "an external journal that waits for replay (name the device that holds it; or replay it \
                           under Linux first: mount the file system once, or run e2fsck on it)"
                    .to_owned(),
            });
        };
        let runs = external_log(&**device, self.superblock())?;
        let log = Log::open(&**device, &runs, self.block_size())?;
        let recovery = log.recover(self.geometry().blocks_count())?;
        Ok((recovery, Arc::clone(device)))
    }

    /// Where the journal's blocks lie: as many as its superblock says it has.
    pub(super) fn journal_place(&self, ino: Ino) -> Result<JournalPlace> {
        let inode = self.inode(ino)?;
        let (blocks, first_block) = self.journal_len(ino, &inode)?;
        let mut runs = Vec::new();
        for run in Runs::over(self, &inode, 0..blocks) {
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
            if runs.len() == MAX_RUNS {
                let expected = Expected::AtMost(MAX_RUNS as u64);
                let found = runs.len() as u64 + 1;
                let what = Structure::Inode;
                let source = FormatError::new(what, "pieces of the journal", found, expected);
                return Err(Error::corrupt(Place::Inode(ino), source));
            }
            runs.push(LogRun {
                first: run.lblk.get(),
                // Runs end at `blocks`, which fits 32 bits.
                len: u32::try_from(run.len).unwrap_or(u32::MAX),
                start,
            });
        }
        Ok(JournalPlace { runs, first_block })
    }

    /// Blocks of the journal, which its superblock says: the inode may have more. And the first of
    /// them, which has the superblock.
    fn journal_len(&self, ino: Ino, inode: &Inode) -> Result<(u64, Box<[u8]>)> {
        let block = self.journal_front(inode)?;
        let superblock = JournalSuperblock::parse(&block).in_place(Place::Inode(ino))?;
        let blocks = inode.size_in_blocks(self.block_size());
        Ok((blocks.min(superblock.max_len.into()), block))
    }

    /// Block 0 of the journal, which may have been read ahead. It does not stay in memory: what
    /// writes the log goes past that.
    fn journal_front(&self, inode: &Inode) -> Result<Box<[u8]>> {
        if !inode.is_inline()
            && let Some(Ok(run)) = Runs::over(self, inode, 0..1).next()
            && let Target::Written(block) = run.target
            && let Some(ahead) = self.cache().peek(block, &pin())
        {
            let front = Box::from(&*ahead);
            self.cache().discard(block);
            return Ok(front);
        }
        let mut block = vec![0; self.block_size().len()];
        let read = data::read_content(self, inode, 0, &mut block)?;
        block.truncate(read);
        Ok(block.into())
    }
}

/// Where a journal lies, and what it begins with: read once, as it may be a round trip away.
pub(super) struct JournalPlace {
    pub(super) runs: Vec<LogRun>,
    /// Block 0, as it was when this was made.
    pub(super) first_block: Box<[u8]>,
}

impl JournalPlace {
    /// The log of the file system, from what was read.
    ///
    /// # Errors
    /// A superblock that does not fit the file system.
    pub(super) fn open<'d>(&self, fs: &'d Fs) -> Result<Log<'d>> {
        let (device, size) = (&**fs.device(), fs.block_size());
        Ok(Log::open_read(device, &self.runs, size, &self.first_block)?)
    }
}
