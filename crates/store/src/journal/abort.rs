//! Errors: what stops the journal, and what is written down about it.
//!
//! Two kinds of error come here. A commit or checkpoint that fails on the device stops the journal:
//! nobody knows what is durable beyond the last commit, so nothing more is written. A structure
//! found corrupt while writing is reported, and the file system's `errors=` behaviour, or another
//! that was asked for when it was opened, says what follows:
//!
//! | behaviour | what follows |
//! |---|---|
//! | continue | the error is recorded, and writing goes on |
//! | remount-ro | the journal stops, and with it all changes |
//! | panic | the same: a library does not end its caller's process, nor the machine |
//!
//! What was seen is recorded in the superblock, by the next commit. When the journal has stopped,
//! there is none: the record bypasses the log then, and so does the reason, in the journal
//! superblock. A thread that reports an error may hold any lock, so what is reported is written
//! down later: by the next caller that starts a handle, commits or closes.

use super::{CHECKPOINT, Journal, LOG};
use crate::{Error, Result};
use extant_format::superblock::ErrorsBehaviour;
use std::sync::atomic::Ordering;

impl Journal {
    /// Ends all changes: handles are refused from now on, and `cause` is what waiters get.
    pub fn abort(&self, cause: Error) {
        if self.aborted.set(cause).is_ok() {
            self.unwritten.store(true, Ordering::Release);
        }
        self.background.wake();
    }

    /// Ends all changes without a record of `cause`, when nothing may be written any more: the
    /// device belongs to another program by now, or a panic goes through a commit.
    pub fn abort_unrecorded(&self, cause: Error) {
        // Lost to an earlier error: that one stands.
        let _ = self.aborted.set(cause);
        self.unwritten.store(false, Ordering::Release);
    }

    /// Why nothing can be committed any more.
    #[must_use]
    pub fn stopped(&self) -> Option<&Error> {
        self.aborted.get()
    }

    /// Reports that a structure was found corrupt, or that the device failed, in the course of a
    /// change. Never waits; any lock may be held.
    pub fn report(&self, error: &Error) {
        crate::event!(error, %error, "the file system has an error");
        self.state.note_error(error);
        self.unwritten.store(true, Ordering::Release);
        match self.volume.errors() {
            ErrorsBehaviour::Continue | ErrorsBehaviour::Unknown(_) => {}
            ErrorsBehaviour::RemountReadOnly | ErrorsBehaviour::Panic => {
                self.abort(error.clone());
            }
        }
    }

    /// The device failed a commit or a checkpoint: the journal stops.
    pub fn stop(&self, cause: &Error) {
        if self.aborted.get().is_none() {
            crate::event!(error, error = %cause, "the journal stops");
            self.state.note_error(cause);
        }
        self.flushes.failed(cause);
        self.abort(cause.clone());
        self.write_reports();
    }

    /// Writes down what was reported, if anything was. As good as it goes: the device may be what
    /// failed.
    pub fn write_reports(&self) {
        if !self.unwritten.load(Ordering::Acquire) {
            return;
        }
        self.unwritten.store(false, Ordering::Release);
        if self.aborted.get().is_none() {
            self.state.touch();
            return;
        }
        if let Err(error) = self.write_records() {
            crate::event!(warn, %error, "the error could not be recorded");
        }
    }

    fn write_records(&self) -> Result<()> {
        // No checkpoint writes the superblock meanwhile: what is written here must not be older
        // than what is home.
        let _alone = self.checkpointing.lock_ascending(CHECKPOINT);
        if let (Some(cause), Some(log)) = (self.aborted.get(), &self.log) {
            let mut writer = log.lock_ascending(LOG);
            writer.record_error(cause.errno()).map_err(Error::log)?;
        }
        self.state.write_errors(self.volume.device())?;
        self.volume.device().flush()?;
        Ok(())
    }
}
