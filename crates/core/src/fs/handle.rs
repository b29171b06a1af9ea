//! The right to change metadata, for one operation on a file system.

use super::{Fs, WriteState};
use crate::Result;
use crate::alloc::Alloc;
use crate::inode::{LiveInode, RegisteredInode};
use crate::journal::{self, Start};
use std::ops::Deref;
use std::sync::Arc;

/// Records of inodes for which a transaction takes one block more than those they are in: capturing
/// that many takes longer than capturing a block, with everybody waiting. The fewer transactions
/// there are, the fewer times the same blocks of directories are written.
const RECORDS_PER_CREDIT: u32 = 16;

/// A journal's [`Handle`](journal::Handle) with the file system it is of: all that is changed under
/// one handle reaches the device together or not at all.
///
/// Held for the length of one operation, and dropped when every change it stands for has been made.
/// A thread holds one at most.
#[derive(Debug)]
pub struct Handle<'f> {
    fs: &'f Fs,
    write_state: &'f WriteState,
    handle: journal::Handle<'f>,
}

impl<'f> Deref for Handle<'f> {
    type Target = journal::Handle<'f>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.handle
    }
}

impl Fs {
    /// Starts a handle that may change up to `credits` blocks. May wait for a commit.
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) on a file system open for reading or closed;
    /// [`Error::Stopped`](crate::Error::Stopped) when an error has stopped it;
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) when no transaction can be as large.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        let write_state = self.write_state()?;
        let journal = &*write_state.journal;
        if journal.take_commit_request() {
            // If that fails the journal has stopped, which is found below.
            let _ = self.commit(journal.running());
        }
        loop {
            match journal.try_start(credits)? {
                Start::Started(handle) => {
                    return Ok(Handle {
                        fs: self,
                        write_state,
                        handle,
                    });
                }
                Start::Full(full) => self.commit_full(full)?,
            }
        }
    }
}

impl<'f> Handle<'f> {
    /// The file system.
    #[inline]
    #[must_use]
    pub fn fs(&self) -> &'f Fs {
        self.fs
    }

    /// The allocator.
    #[inline]
    #[must_use]
    pub(crate) fn alloc(&self) -> &'f Alloc {
        &self.write_state.alloc
    }

    /// Registers an inode, whose record is about to change.
    ///
    /// # Errors
    /// When the block of the inode table cannot be read, or attributes that count cannot; then
    /// nothing is registered.
    pub(crate) fn touch_inode(&self, live: &Arc<LiveInode>) -> Result<()> {
        let seq = self.seq();
        if live.touched().last() == seq.get() {
            return Ok(());
        }
        let block = if self.fs.keeps_records_of(live.home(), seq) {
            None
        } else {
            Some(self.fs.inode_table_block(live)?)
        };
        if self.fs.counts_usage() {
            live.begin_counting(self.fs)?;
        }
        if live.touched().touch(seq.get()) {
            // The thread that finds the block counted is in the same transaction, as is the one
            // that keeps it in memory.
            let first = block
                .as_ref()
                .is_some_and(|block| block.records().touch(seq.get()));
            if first || live.ino().get().is_multiple_of(RECORDS_PER_CREDIT) {
                self.spend();
            }
            let registered = RegisteredInode::new(Arc::clone(live), block);
            self.write_state.registered_inodes.push(registered);
        }
        Ok(())
    }

    /// Ends this handle and starts another one, which may belong to a later transaction. What was
    /// changed must be consistent, and what was looked at may have changed.
    ///
    /// # Errors
    /// As for [`Fs::start`].
    #[cfg(test)]
    pub(crate) fn restart(self, credits: u32) -> Result<Self> {
        let fs = self.fs;
        drop(self);
        fs.start(credits)
    }
}
