//! Making everything durable, and closing.

use super::checkpoint::Tail;
use super::{FlushTicket, Journal, JournalStats};
use crate::fs::Fs;
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};

impl Fs {
    /// What the journal did since the file system was opened for writing; nothing if it was not.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.journal()
            .map_or_else(|_| JournalStats::default(), |journal| journal.stats())
    }

    /// A ticket for writes of data that are complete: [`Fs::flush_data`] makes them durable. 0 on a
    /// file system open for reading.
    #[must_use]
    pub(crate) fn data_ticket(&self) -> FlushTicket {
        self.journal().map_or_else(
            |_| FlushTicket::default(),
            |journal| journal.flushes.ticket(),
        )
    }

    /// Makes data durable that was complete when the ticket was taken. Costs nothing when a commit or
    /// a flush has begun since and is over; one flush serves all who wait at the same time.
    ///
    /// # Errors
    /// [`Error::Device`] when the flush fails.
    pub(crate) fn flush_data(&self, since: FlushTicket) -> Result<()> {
        let journal = self.journal()?;
        match journal.flushes.flush(&**self.device(), since)? {
            true => journal.counters.flushes.inc(),
            false => journal.counters.shared_flushes.inc(),
        }
        Ok(())
    }

    /// How many flushes of data have failed since the file system was opened for writing.
    pub(crate) fn flush_failures(&self) -> u64 {
        self.journal()
            .map_or(0, |journal| journal.flushes.failures())
    }

    /// Why the last flush of data failed that did.
    pub(crate) fn flush_failure(&self) -> Option<Error> {
        self.journal().ok()?.flushes.failure()
    }

    /// Makes all changes durable that were complete when this was called: on a file system open for reading there are none.
    ///
    /// # Errors
    /// [`Error::Device`] and what else stopped the journal.
    pub fn sync(&self) -> Result<()> {
        self.write_lazy_times();
        self.sync_but_lazy_times()
    }

    /// The same without times that only memory has: those are for who may change something.
    pub(crate) fn sync_but_lazy_times(&self) -> Result<()> {
        let Ok(journal) = self.journal() else {
            return Ok(());
        };
        let written = self.write_back_all();
        let data = self.data_ticket();
        self.commit(journal.running())?;
        self.flush_data(data)?;
        written
    }

    /// Closes the file system: waits for changes that are being made, commits, writes everything home, empties the log and
    /// marks the file system as clean. Changes are refused from now on. Files that are open may be read on.
    ///
    /// Without this call the image recovers to what was committed last. A second call does nothing, nor does one on a file
    /// system open for reading.
    ///
    /// # Errors
    /// [`Error::InUse`] when it is frozen; what the device said, or what stopped the journal before. The log is left as it
    /// is then, to be replayed.
    pub fn close(&self) -> Result<()> {
        match self.journal() {
            Ok(journal) if journal.closing.get().is_none() => {
                self.end_changes(|| self.close_alone(journal))
            }
            _ => Ok(()),
        }
    }

    /// Closes the file system, which nobody changes any more.
    fn close_alone(&self, journal: &Journal) -> Result<()> {
        // What cannot be deleted is reported, and stays an orphan.
        let reaped = self.reap();
        let written = self.write_back_all();
        self.write_lazy_times();
        if journal.closing.set(()).is_err() {
            return Ok(());
        }
        self.data().flusher().stop();
        journal.background.stop();
        let mut result = reaped.and(written).and(self.leave(journal));
        // Nothing is written any more, however that went.
        if let Some(claim) = self.mmp() {
            result = result.and(claim.release());
        }
        if let Err(error) = &result {
            tracing::error!(%error, "the file system could not be closed cleanly");
        }
        result
    }

    /// Makes the image complete and clean while nobody changes anything, as [`close`](Self::close) does for good.
    /// [`enter`](Self::enter) comes before the next change.
    ///
    /// # Errors
    /// As for [`close`](Self::close). The file system is in use then as before.
    pub(crate) fn leave_for_now(&self) -> Result<()> {
        let journal = self.journal()?;
        self.reap()?;
        self.write_back_all()?;
        self.write_lazy_times();
        let left = self.leave(journal);
        if left.is_err() {
            self.super_state()?.enter();
        }
        left
    }

    /// Marks the file system as in use again.
    ///
    /// # Errors
    /// What stopped the journal.
    pub(crate) fn enter(&self) -> Result<()> {
        self.super_state()?.enter();
        self.announce()
    }

    fn leave(&self, journal: &Journal) -> Result<()> {
        // Those who got in before have left when this is over, and nobody else gets in.
        self.commit(journal.running())?;
        // Made durable by the first flush of the next commit, before the mark can be.
        if !is_on(Mutant::LeftTooEarly) {
            self.checkpoint_with(Tail::NextCommit)?;
        }
        self.super_state()?.leave();
        self.commit_superblock(journal)?;
        // Between these two the superblock is clean and the log is not empty: Linux ignores the log
        // then, and e2fsck replays what is home already.
        self.checkpoint_with(Tail::Empty)
    }

    /// Marks the file system as in use: the superblock as it is by now is committed in a transaction of
    /// its own, and is durable at home when this returns.
    pub(crate) fn announce(&self) -> Result<()> {
        let journal = self.journal()?;
        self.commit_superblock(journal)?;
        self.checkpoint_with(Tail::NextCommit)?;
        let flushed = self.device().flush().map_err(Error::from);
        // Whatever came next would be lost with the log that nobody knows to be in use.
        flushed.inspect_err(|e| self.stop(e))
    }

    fn commit_superblock(&self, journal: &Journal) -> Result<()> {
        journal.touch_superblock();
        self.commit(journal.running())
    }
}
