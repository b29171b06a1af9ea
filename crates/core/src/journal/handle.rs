//! The right to change metadata, for one operation.

use super::{Journal, Seal, Seq, Touched};
use crate::fs::Fs;
use crate::inode::{LiveInode, RegisteredInode};
use crate::meta::{BlockRef, LockedBlock};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_format::{Group, Pblk};
use extant_sync::{FirstTouch, Joined, LockClass, Rank, RankToken};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

static HANDLE: LockClass = LockClass::new("journal handle", Rank::JournalHandle);

/// Revokes that take as much of the log as one image, at the most.
const REVOKES_PER_CREDIT: usize = 64;

/// Records of inodes for which a transaction takes one block more than those they are in: capturing that many takes
/// longer than capturing a block, with everybody waiting. The fewer transactions there are, the fewer times the same blocks
/// of directories are written.
const RECORDS_PER_CREDIT: u32 = 16;

/// The right to change metadata: all that is changed under one handle reaches the device together
/// or not at all.
///
/// Held for the length of one operation, and dropped when every change it stands for has been made.
/// A thread holds one at most.
#[derive(Debug)]
pub struct Handle<'f> {
    fs: &'f Fs,
    journal: &'f Journal,
    seq: Seq,
    /// Blocks this handle may still register.
    credits: Cell<u32>,
    // Before the gate is left: the rank belongs to being inside.
    _rank: RankToken,
    _joined: Joined<'f>,
}

impl Fs {
    /// Starts a handle that may change up to `credits` blocks. May wait for a commit.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] on a file system open for reading or closed; [`Error::Stopped`] when an
    /// error has stopped it; [`Error::InvalidInput`] when no transaction can be as large.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        let journal = self.journal()?;
        if credits > journal.credits.limit() {
            return Err(Error::InvalidInput("an operation larger than the journal"));
        }
        if journal.unwritten.load(Ordering::Relaxed) {
            self.write_reports();
        }
        if journal.pressed.load(Ordering::Relaxed) {
            // Nothing is held here that a commit waits for.
            journal.pressed.store(false, Ordering::Relaxed);
            // If that fails the journal has stopped, which is found below.
            let _ = self.commit(journal.running());
        }
        loop {
            let rank = RankToken::enter(&HANDLE);
            let Some(joined) = journal.gate.join() else {
                drop(rank);
                journal.gate.wait_open();
                continue;
            };
            // Inside the gate, so that closing the file system sees the end of all who got in.
            journal.check_open()?;
            if journal.take_room(credits) {
                journal.counters.handles.inc();
                return Ok(Handle {
                    fs: self,
                    journal,
                    seq: journal.running(),
                    credits: Cell::new(credits),
                    _rank: rank,
                    _joined: joined,
                });
            }
            let full = journal.running();
            drop(joined);
            drop(rank);
            journal.counters.waits.inc();
            self.commit_full(full)?;
        }
    }
}

impl<'f> Handle<'f> {
    /// The file system.
    #[must_use]
    pub fn fs(&self) -> &'f Fs {
        self.fs
    }

    /// The transaction this handle belongs to.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Blocks this handle may still register.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.credits.get()
    }

    /// Asks for more room, without waiting. `false` when the transaction has none: the caller
    /// then brings what it does to a consistent state, drops the handle and goes on with a new one.
    pub(crate) fn extend(&self, credits: u32) -> bool {
        let granted = self.journal.take_room(credits);
        if granted {
            self.credits.set(self.credits.get() + credits);
        }
        granted
    }

    /// Changes a block: `edit` gets a copy of `block`, which must be the newest image, and the copy
    /// becomes the newest image. The caller holds the lock that orders changes of this block.
    pub(crate) fn edit(
        &self,
        block: &BlockRef,
        seal: Seal,
        edit: impl FnOnce(&mut [u8]),
    ) -> BlockRef {
        let mut data = self.fs.cache().copy_of(block);
        edit(&mut data);
        self.publish(block.block(), data, seal, Some(block))
    }

    /// The same for a block that is locked, and copied only where that has to be.
    ///
    /// # Errors
    /// [`Error::Internal`] when the block has no image, which never happens.
    pub(crate) fn edit_locked(
        &self,
        block: &mut LockedBlock<'_>,
        seal: Seal,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        match block.draft(self.seq) {
            Ok(draft) => edit(draft),
            Err(image) => {
                let image = image.ok_or(Error::Internal("a locked block without an image"))?;
                let image = self.edit(&image, seal, edit);
                block.set_image(image);
            }
        }
        Ok(())
    }

    /// The same with new content that the caller has made up.
    pub(crate) fn replace(&self, block: &BlockRef, seal: Seal, data: Box<[u8]>) -> BlockRef {
        self.publish(block.block(), data, seal, Some(block))
    }

    /// Makes `data` the content of a block that was just allocated.
    pub(crate) fn create(&self, block: Pblk, seal: Seal, data: Box<[u8]>) -> BlockRef {
        self.publish(block, data, seal, None)
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

    fn publish(
        &self,
        block: Pblk,
        data: Box<[u8]>,
        seal: Seal,
        old: Option<&BlockRef>,
    ) -> BlockRef {
        // An image this transaction wrote has been registered; its block is ours by the lock the
        // caller holds, so nobody registers it at the same time.
        if old.is_none_or(|old| old.seq() != self.seq) {
            self.spend();
            self.touched(|touched| touched.blocks.push(block));
        }
        self.fs
            .cache()
            .publish_image(block, data, self.seq, seal, old)
    }

    /// Says that `block` is metadata no longer: its images are void, here and in the log. The caller
    /// frees the block afterwards.
    pub(crate) fn revoke(&self, block: Pblk) {
        if is_on(Mutant::RevokesSkipped) {
            return self.fs.cache().discard(block);
        }
        let revoked = self.touched(|touched| {
            touched.revoked.push(block);
            touched.revoked.len()
        });
        if revoked.is_multiple_of(REVOKES_PER_CREDIT) {
            // When the transaction has no more room, of what this handle was promised.
            let room = self.journal.take_room(1);
            let own = self.credits.get();
            if !room && own > 0 {
                self.credits.set(own - 1);
            }
        }
        self.fs.cache().discard(block);
    }

    /// Registers an inode, whose record is about to change.
    ///
    /// # Errors
    /// When the block of the inode table cannot be read, or attributes that count cannot; then nothing is registered.
    pub(crate) fn touch_inode(&self, live: &Arc<LiveInode>) -> Result<()> {
        if live.touched().last() == self.seq.get() {
            return Ok(());
        }
        let block = match self.fs.keeps_records_of(live.home(), self.seq) {
            true => None,
            false => Some(self.fs.inode_table_block(live)?),
        };
        if self.fs.counts_usage() {
            live.begin_counting(self.fs)?;
        }
        if live.touched().touch(self.seq.get()) {
            // Whoever finds the block counted is in the same transaction, as is the one who keeps it in memory.
            let first = block
                .as_ref()
                .is_some_and(|block| block.records().touch(self.seq.get()));
            if first || live.ino().get().is_multiple_of(RECORDS_PER_CREDIT) {
                self.spend();
            }
            self.touched(|touched| {
                touched
                    .inodes
                    .push(RegisteredInode::new(Arc::clone(live), block))
            });
        }
        Ok(())
    }

    /// Registers a group, whose bitmaps or descriptor are about to change. `seen` is the group's
    /// own memory of that.
    pub(crate) fn touch_group(&self, group: Group, seen: &FirstTouch) {
        if seen.touch(self.seq.get()) {
            // Two bitmaps, and the block with the descriptor.
            for _ in 0..3 {
                self.spend();
            }
            self.touched(|touched| touched.groups.push(group));
        }
    }

    /// Registers a block of the orphan file, by index. `seen` is that block's own memory of it.
    pub(crate) fn touch_orphan_block(&self, index: u32, seen: &FirstTouch) {
        if seen.touch(self.seq.get()) {
            self.spend();
            self.touched(|touched| touched.orphan_blocks.push(index));
        }
    }

    /// Registers the superblock, whose counts or orphan list are about to change.
    pub(crate) fn touch_superblock(&self) {
        self.touched(|touched| touched.superblock = true);
    }

    fn touched<R>(&self, f: impl FnOnce(&mut Touched) -> R) -> R {
        f(&mut self.journal.touched.local().lock())
    }

    /// Uses up one credit. An operation that asked for too few is a defect which debug builds show;
    /// others take the room the transaction keeps for it.
    fn spend(&self) {
        let left = self.credits.get();
        debug_assert!(left > 0, "an operation changes more blocks than it said");
        if left > 0 {
            self.credits.set(left - 1);
        }
    }
}

impl Drop for Handle<'_> {
    /// Gives back what is left of the credits. An operation that panics has done a part only, which must not be committed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "an operation ended in the middle";
            self.journal.cut_off(Error::Internal(what));
        }
        self.journal.credits.give_back(self.credits.get());
    }
}
