//! Making everything durable, and what the journal tells of itself.

use super::Fs;
use super::log_items::Kinds;
use crate::journal::{FlushTicket, JournalStats};
use crate::meta::Seq;
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
        self.journal()
            .map_or_else(|_| FlushTicket::default(), |journal| journal.data_ticket())
    }

    /// Makes data durable that was complete when the ticket was taken. Costs nothing when a commit
    /// or a flush has begun since and is over; one flush serves all threads that wait at the same
    /// time.
    ///
    /// # Errors
    /// [`Error::Device`] when the flush fails.
    pub(crate) fn flush_data(&self, since: FlushTicket) -> Result<()> {
        self.journal()?.flush_data(since)
    }

    /// How many flushes of data have failed since the file system was opened for writing.
    pub(crate) fn flush_failures(&self) -> u64 {
        self.journal().map_or(0, |journal| journal.flush_failures())
    }

    /// Why the last flush of data failed that did.
    pub(crate) fn flush_failure(&self) -> Option<Error> {
        self.journal().ok()?.flush_failure()
    }

    /// Makes transaction `upto`, and all before it, durable. Commits in the calling thread unless
    /// another one is at it, and returns when the changes are on the device.
    ///
    /// The caller holds neither a handle nor any lock that is acquired under one.
    ///
    /// # Errors
    /// Why the journal stopped, when it has; nothing is known to be durable then. On a file system
    /// open for reading only [`Error::ReadOnly`].
    pub fn commit(&self, upto: Seq) -> Result<()> {
        let write_state = self.write_state()?;
        let kinds = Kinds::of(self, write_state);
        write_state.journal.commit(&kinds.list(), upto)
    }

    /// Ends a transaction that has no room: returns when another one runs.
    ///
    /// # Errors
    /// As for [`Fs::commit`].
    #[cold]
    pub(super) fn commit_full(&self, full: Seq) -> Result<()> {
        let write_state = self.write_state()?;
        let kinds = Kinds::of(self, write_state);
        write_state.journal.commit_full(&kinds.list(), full)
    }

    /// Commits what runs, and has it durable where it belongs before anything else is committed.
    /// `begun` is called when the next transaction runs.
    ///
    /// # Errors
    /// As for [`Fs::commit`].
    pub(crate) fn commit_home(&self, begun: impl FnOnce()) -> Result<()> {
        let write_state = self.write_state()?;
        let kinds = Kinds::of(self, write_state);
        write_state.journal.commit_home(&kinds.list(), begun)
    }

    /// Writes everything committed to where it belongs and frees its space in the log.
    ///
    /// # Errors
    /// When the device fails, which stops the journal; why the journal stopped, when it has.
    pub fn checkpoint(&self) -> Result<()> {
        self.journal()?.checkpoint()
    }

    /// The last transaction that is durable.
    #[must_use]
    pub(crate) fn durable(&self) -> Seq {
        self.journal()
            .map_or(Seq::NONE, |journal| journal.durable())
    }

    /// Records damage that was found in reading, as Linux does while a file system can be written
    /// to: the superblock will say that there are errors, and with `errors=remount-ro` changes end.
    /// Other errors are not recorded. Never waits; any lock may be held.
    pub fn report_found(&self, error: &Error) {
        if error.is_corruption() {
            self.report(error);
        }
    }

    /// Reports that a structure was found corrupt, or that the device failed, in the course of a
    /// change. Never waits; any lock may be held.
    pub(crate) fn report(&self, error: &Error) {
        if let Ok(journal) = self.journal() {
            journal.report(error);
        }
    }
}
