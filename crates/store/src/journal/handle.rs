//! The right to change metadata, for one operation.

use super::touched::Touched;
use super::unwinding::PanicWatch;
use super::{Journal, NumberList, Seal, Seq};
use crate::meta::{BlockRef, LockedBlock};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_format::Pblk;
use extant_sync::{FirstTouch, Joined, LockClass, Rank, RankToken};
use std::cell::Cell;
use std::sync::atomic::Ordering;

static HANDLE: LockClass = LockClass::new("journal handle", Rank::JournalHandle);

/// Revokes that take as much of the log as one image, at the most.
const REVOKES_PER_CREDIT: usize = 64;

/// The right to change metadata: all that is changed under one handle reaches the device together
/// or not at all.
///
/// Held for the length of one operation, and dropped when every change it stands for has been made.
/// A thread holds one at most.
#[derive(Debug)]
pub struct Handle<'f> {
    journal: &'f Journal,
    seq: Seq,
    /// Blocks this handle may still register.
    credits: Cell<u32>,
    watch: PanicWatch,
    // Before the gate is left: the rank belongs to being inside.
    _rank: RankToken,
    _joined: Joined<'f>,
}

/// What comes of asking for a handle.
#[derive(Debug)]
pub enum Start<'j> {
    /// The handle.
    Started(Handle<'j>),
    /// The running transaction has no room: it is to end first.
    Full(Seq),
}

impl Journal {
    /// Takes the request of a commit that waits for a caller, as there is no thread; returns
    /// whether there was one. The caller commits the running transaction: it holds nothing that a
    /// commit waits for.
    #[inline]
    pub fn take_commit_request(&self) -> bool {
        let requested = self.commit_requested.load(Ordering::Relaxed);
        if requested {
            self.commit_requested.store(false, Ordering::Relaxed);
        }
        requested
    }

    /// Starts a handle that may change up to `credits` blocks, if there is room in the running
    /// transaction. May wait while a commit captures.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] on a file system that is closed; [`Error::Stopped`] when an error has
    /// stopped it; [`Error::InvalidInput`] when no transaction can be as large.
    #[inline]
    pub fn try_start(&self, credits: u32) -> Result<Start<'_>> {
        if credits > self.credits.limit() {
            return Err(Error::InvalidInput("an operation larger than the journal"));
        }
        if self.unwritten.load(Ordering::Relaxed) {
            self.write_reports();
        }
        loop {
            let rank = RankToken::enter(&HANDLE);
            let Some(joined) = self.gate.join() else {
                drop(rank);
                self.gate.wait_open();
                continue;
            };
            // Inside the gate, so that closing the file system sees the end of all that got in.
            self.check_open()?;
            if self.take_room(credits) {
                self.counters.handles.inc();
                return Ok(Start::Started(Handle {
                    journal: self,
                    seq: self.running(),
                    credits: Cell::new(credits),
                    watch: PanicWatch::begin(),
                    _rank: rank,
                    _joined: joined,
                }));
            }
            let full = self.running();
            drop(joined);
            drop(rank);
            self.counters.waits.inc();
            return Ok(Start::Full(full));
        }
    }
}

impl<'f> Handle<'f> {
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
    pub fn extend(&self, credits: u32) -> bool {
        let granted = self.journal.take_room(credits);
        if granted {
            self.credits.set(self.credits.get() + credits);
        }
        granted
    }

    /// Changes a block: `edit` gets a copy of `block`, which must be the newest image, and the copy
    /// becomes the newest image. The caller holds the lock that orders changes of this block.
    pub fn edit(&self, block: &BlockRef, seal: Seal, edit: impl FnOnce(&mut [u8])) -> BlockRef {
        let mut data = self.journal.volume.cache().copy_of(block);
        edit(&mut data);
        self.publish(block.block(), data, seal, Some(block))
    }

    /// Changes a block that is locked: it is copied only where that has to be.
    ///
    /// # Errors
    /// [`Error::Internal`] when the block has no image, which never happens.
    pub fn edit_locked(
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

    /// Makes `data` the newest content of `block`, whose lock the caller holds.
    pub fn replace(&self, block: &BlockRef, seal: Seal, data: Box<[u8]>) -> BlockRef {
        self.publish(block.block(), data, seal, Some(block))
    }

    /// Makes `data` the content of a block that was just allocated.
    pub fn create(&self, block: Pblk, seal: Seal, data: Box<[u8]>) -> BlockRef {
        self.publish(block, data, seal, None)
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
        self.journal
            .volume
            .cache()
            .publish_image(block, data, self.seq, seal, old)
    }

    /// Says that `block` is metadata no longer: its images are void, here and in the log. The
    /// caller frees the block afterwards.
    pub fn revoke(&self, block: Pblk) {
        if is_on(Mutant::RevokesSkipped) {
            return self.journal.volume.cache().discard(block);
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
        self.journal.volume.cache().discard(block);
    }

    /// Registers the object `number` of a kind of metadata, which is about to change and takes
    /// `blocks` blocks of the log. `seen` is the object's own memory of that.
    pub fn touch_number(&self, list: NumberList, number: u32, blocks: u32, seen: &FirstTouch) {
        if seen.touch(self.seq.get()) {
            for _ in 0..blocks {
                self.spend();
            }
            self.touched(|touched| touched.numbers[list.0].push(number));
        }
    }

    /// Registers the superblock, whose counts or orphan list are about to change.
    #[inline]
    pub fn touch_superblock(&self) {
        self.journal.state.touch();
    }

    fn touched<R>(&self, f: impl FnOnce(&mut Touched) -> R) -> R {
        f(&mut self.journal.touched.local().lock())
    }

    /// Uses up one credit. An operation that asked for too few is a defect which debug builds show;
    /// others take the room the transaction keeps for it.
    pub fn spend(&self) {
        let left = self.credits.get();
        debug_assert!(left > 0, "an operation changes more blocks than it said");
        if left > 0 {
            self.credits.set(left - 1);
        }
    }
}

impl Drop for Handle<'_> {
    /// Gives back what is left of the credits. An operation that panics has done a part only, which
    /// must not be committed.
    fn drop(&mut self) {
        if self.watch.has_panicked() {
            let what = "an operation ended in the middle";
            self.journal.abort_unrecorded(Error::Internal(what));
        }
        self.journal.credits.give_back(self.credits.get());
    }
}
