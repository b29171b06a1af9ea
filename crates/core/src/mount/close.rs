//! Closing, for good or for a while, and marking as in use.

use crate::Result;
use crate::fs::Fs;
use crate::journal::{Journal, Tail};
use crate::mutants::{Mutant, is_on};

impl Fs {
    /// Closes the file system: waits for changes that are being made, commits, writes everything
    /// home, empties the log and marks the file system as clean. Changes are refused from now on.
    /// Files that are open may be read on.
    ///
    /// Without this call the image recovers to what was committed last. A second call does nothing,
    /// nor does one on a file system open for reading.
    ///
    /// # Errors
    /// [`Error::InUse`](crate::Error::InUse) when it is frozen; what the device said, or what
    /// stopped the journal before. The log is left as it is then, to be replayed.
    pub fn close(&self) -> Result<()> {
        match self.journal() {
            Ok(journal) if !journal.is_closing() => self.end_changes(|| self.close_alone(journal)),
            _ => Ok(()),
        }
    }

    /// Closes the file system, which nobody changes any more.
    fn close_alone(&self, journal: &Journal) -> Result<()> {
        // What cannot be deleted is reported, and stays an orphan.
        let reaped = self.reap();
        let written = self.write_back_all();
        self.write_lazy_times();
        if !journal.begin_closing() {
            return Ok(());
        }
        self.data().flusher().stop();
        journal.stop_background();
        let mut result = reaped.and(written).and(self.commit_clean_mark(journal));
        // Nothing is written any more, however that went.
        if let Some(claim) = self.mmp() {
            result = result.and(claim.release());
        }
        if let Err(error) = &result {
            tracing::error!(%error, "the file system could not be closed cleanly");
        }
        result
    }

    /// Makes the image complete and clean while nobody changes anything, as [`close`](Self::close)
    /// does for good. [`mark_in_use`](Self::mark_in_use) comes before the next change.
    ///
    /// # Errors
    /// As for [`close`](Self::close). The file system is in use then as before.
    pub(crate) fn mark_clean_for_now(&self) -> Result<()> {
        let journal = self.journal()?;
        self.reap()?;
        self.write_back_all()?;
        self.write_lazy_times();
        let left = self.commit_clean_mark(journal);
        if left.is_err() {
            self.super_state()?.mark_dirty();
        }
        left
    }

    /// Marks the file system as in use again.
    ///
    /// # Errors
    /// What stopped the journal.
    pub(crate) fn mark_in_use(&self) -> Result<()> {
        self.super_state()?.mark_dirty();
        self.commit_in_use_mark()
    }

    fn commit_clean_mark(&self, journal: &Journal) -> Result<()> {
        // Threads that got in before have left when this is over, and nobody else gets in.
        self.commit(journal.running())?;
        // Made durable by the first flush of the next commit, before the mark can be.
        if !is_on(Mutant::LeftTooEarly) {
            self.journal()?.checkpoint_with(Tail::NextCommit)?;
        }
        self.super_state()?.mark_clean();
        self.commit_superblock(journal)?;
        // Between these two the superblock is clean and the log is not empty: Linux ignores the log
        // then, and e2fsck replays what is home already.
        self.journal()?.checkpoint_with(Tail::Empty)
    }

    /// Marks the file system as in use: the superblock as it is by now is committed in a
    /// transaction of its own, and is durable at home when this returns.
    pub(crate) fn commit_in_use_mark(&self) -> Result<()> {
        let journal = self.journal()?;
        self.commit_superblock(journal)?;
        // Should that fail, the journal stops: whatever came next would be lost with the log that
        // nobody knows to be in use.
        self.journal()?.checkpoint_with(Tail::FlushedNextCommit)
    }

    fn commit_superblock(&self, journal: &Journal) -> Result<()> {
        self.super_state()?.touch();
        self.commit(journal.running())
    }
}
