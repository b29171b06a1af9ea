//! Freezing, and making read-only while mounted.

use crate::fs::{Changes, Fs};
use crate::{Error, Result};
use std::sync::Arc;

/// A file system on which nothing changes, and whose image is complete and clean, until this is
/// dropped: operations that would change something wait.
#[derive(Debug)]
#[must_use = "the file system thaws when this is dropped"]
pub struct Frozen {
    fs: Arc<Fs>,
    thawed: bool,
}

impl Frozen {
    /// Lets changes go on.
    ///
    /// # Errors
    /// When the device fails, before which the file system cannot be marked as in use. Changes are
    /// refused then.
    pub fn thaw(mut self) -> Result<()> {
        self.thaw_now()
    }

    fn thaw_now(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.thawed, true) {
            return Ok(());
        }
        let entered = self.fs.mark_in_use();
        self.fs.changes()?.open();
        entered
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = self.thaw_now() {
            crate::event!(error, %error, "the file system could not be thawed");
        }
    }
}

impl Fs {
    /// Waits for the changes that are being made, lets nobody begin another, and makes the image
    /// complete and clean.
    ///
    /// # Errors
    /// [`Error::InUse`] when it is frozen already, [`Error::ReadOnly`] when nobody can change it
    /// anyway; when the device fails. Nothing is frozen then.
    pub fn freeze(self: &Arc<Self>) -> Result<Frozen> {
        let changes = self.changes()?;
        changes.close()?;
        let left = if changes.is_read_only() {
            Err(Error::ReadOnly)
        } else {
            self.mark_clean_for_now()
        };
        if let Err(e) = left {
            changes.open();
            return Err(e);
        }
        Ok(Frozen {
            fs: Arc::clone(self),
            thawed: false,
        })
    }

    /// Makes a file system that was opened for writing read-only, complete and clean, or writable
    /// again.
    ///
    /// # Errors
    /// [`Error::InUse`] when files are open for writing, or have no names and are still in use, or
    /// the file system is frozen; [`Error::ReadOnly`] when it was opened for reading, or has been
    /// closed; when the device fails, before which nothing has changed.
    pub fn remount(&self, read_only: bool) -> Result<()> {
        let changes = self.changes()?;
        changes.close()?;
        let done = match (changes.is_read_only(), read_only) {
            (false, true) => self.become_read_only(changes),
            // Closed, others may have the image by now.
            (true, false) => self
                .journal()
                .and_then(|journal| journal.check_open())
                .and_then(|()| self.mark_in_use()),
            _ => Ok(()),
        };
        if done.is_ok() {
            changes.set_read_only(read_only);
        }
        changes.open();
        done
    }

    fn become_read_only(&self, changes: &Changes) -> Result<()> {
        let in_use = |by: &str| Err(Error::InUse { by: by.to_owned() });
        if changes.has_open_files() {
            return in_use("files are open for writing");
        }
        self.reap()?;
        let orphans = self.orphans()?;
        if orphans.head().is_some() || !orphans.is_file_empty() {
            return in_use("files without names are open");
        }
        self.mark_clean_for_now()
    }
}
