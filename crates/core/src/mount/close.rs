//! Closing, for good or for a while, and marking as in use.

use crate::Result;
use crate::fs::Fs;
use crate::journal::{Journal, Tail};
use crate::mutants::{Mutant, is_on};
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread;

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
            crate::event!(error, %error, "the file system could not be closed cleanly");
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
        // The log has an image of the superblock then, whatever a crash leaves of it at home.
        self.super_state()?.touch();
        // Threads that got in before have left when this is over, and nobody else gets in.
        self.commit(journal.running())?;
        // Everything is durable at home before the mark can be.
        let tail = if is_on(Mutant::LeftTooEarly) {
            Tail::NextCommit
        } else {
            Tail::FlushedNextCommit
        };
        journal.checkpoint_with(tail)?;
        self.super_state()?.mark_clean();
        let (block, bytes) = self.superblock_now()?;
        journal.end_log(block, bytes)
    }

    /// Marks the file system as in use: the superblock as it is by now is committed in a
    /// transaction of its own, and is durable at home when this returns.
    pub(crate) fn commit_in_use_mark(&self) -> Result<()> {
        self.commit_mark_then(|| ())
    }

    /// Marks the file system as in use as [`commit_in_use_mark`](Self::commit_in_use_mark) does,
    /// and returns as soon as the transaction with the mark has ended. What is changed from now on
    /// is committed when the mark is durable at home, and not before; what is written past the log
    /// lies in free blocks until then, or is content of files.
    ///
    /// # Errors
    /// When the system has no thread, as for `commit_in_use_mark`. Otherwise what goes wrong stops
    /// the journal, and reaches whatever is changed next.
    pub(super) fn commit_in_use_mark_aside(self: &Arc<Self>) -> Result<()> {
        let (begun, has_begun) = mpsc::channel();
        let fs = Arc::clone(self);
        let tell = move || {
            // It waits, unless it is gone.
            let _ = begun.send(());
        };
        let marking = thread::Builder::new()
            .name("extant-mark".to_owned())
            .spawn(move || fs.commit_mark_then(tell));
        let Ok(marking) = marking else {
            return self.commit_in_use_mark();
        };
        match has_begun.recv() {
            Ok(()) => Ok(()),
            // It is over already.
            Err(_) => marking.join().unwrap_or_else(|panic| resume_unwind(panic)),
        }
    }

    /// Commits the superblock, calls `begun` when the next transaction runs, and writes it home.
    fn commit_mark_then(&self, begun: impl FnOnce()) -> Result<()> {
        self.super_state()?.touch();
        // Should that fail, the journal stops: whatever came next would be lost with the log that
        // nobody knows to be in use.
        self.commit_home(begun)
    }
}
