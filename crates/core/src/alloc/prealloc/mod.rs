//! Blocks for files, and what is kept ready for them.
#![allow(dead_code, reason = "the data path is about to ask")]

use super::{Request, Taken};
use crate::fs::Fs;
use crate::inode::LiveInode;
use crate::{Error, Result};
use extant_format::inode::InodeFlags;
use extant_format::{Lblk, Pblk};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a file asks blocks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// The first logical block that needs a place.
    pub(crate) lblk: Lblk,
    /// How many need one, at least 1.
    pub(crate) len: u32,
    /// The size of the file in bytes once they are written.
    pub(crate) size: u64,
    /// Space for them was promised by [`Fs::reserve_space`]: the promise of as many as are taken is
    /// used up, and there is always enough.
    pub(crate) reserved: bool,
    /// No more than is asked for.
    pub(crate) no_prealloc: bool,
    /// May use the blocks reserved for privileged users.
    pub(crate) privileged: bool,
}

/// What the allocator knows of a file.
#[derive(Debug)]
pub(crate) struct FileState {
    /// Where the last blocks were taken: behind them, 0 if nowhere yet.
    next: AtomicU64,
}

impl FileState {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
        }
    }
}

impl Fs {
    /// Takes one run of 1 to `ask.len` blocks for the file: see [`take_blocks`](Self::take_blocks) for
    /// what that means. May wait for the device.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when nothing is free to the caller. What others keep ready and what a commit
    /// would free is not counted: [`discard_preallocations`](Self::discard_preallocations) and
    /// [`pending_free_blocks`](Self::pending_free_blocks) say whether there is any.
    pub(crate) fn take_for(&self, live: &LiveInode, ask: &Ask) -> Result<Taken<'_>> {
        let state = live.alloc_state();
        let goal = match state.next.load(Ordering::Relaxed) {
            0 => self.near_inode(live.ino()),
            next => Pblk::new(next),
        };
        let extents = live.snapshot().flags().contains(InodeFlags::EXTENTS);
        let request = Request {
            goal,
            len: ask.len,
            min: 1,
            below_32_bits: !extents,
            privileged: ask.privileged,
        };
        let taken = if ask.reserved {
            let most = self.geometry().clusters_per_group();
            self.take_charged(&request, ask.len.clamp(1, most), 1)?
        } else {
            self.take_blocks(&request)?
        };
        let next = taken.start().get() + u64::from(taken.len());
        state.next.store(next, Ordering::Relaxed);
        Ok(taken)
    }

    /// Gives back what is kept ready for the file: when nobody writes to it any more.
    pub(crate) fn drop_preallocations(&self, live: &LiveInode) {
        self.drop_preallocations_from(live, Lblk::new(0));
    }

    /// The same for what lies at `lblk` and behind: when the file is truncated.
    pub(crate) fn drop_preallocations_from(&self, live: &LiveInode, lblk: Lblk) {
        let _ = (live.alloc_state_if_any(), lblk);
    }

    /// Gives back what is kept ready for any file, until that is `wanted` blocks; returns how many it
    /// was. For a caller who found no space.
    pub(crate) fn discard_preallocations(&self, wanted: u64) -> u64 {
        let _ = wanted;
        0
    }

    /// Promises `blocks` blocks whose place is chosen later, by [`take_for`](Self::take_for). Never
    /// waits for the device.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there are not as many. Then
    /// [`discard_preallocations`](Self::discard_preallocations) and a commit may bring more.
    pub(crate) fn reserve_space(&self, blocks: u32, privileged: bool) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let space = &self.alloc()?.space;
        space
            .take(blocks, blocks, privileged)
            .map(|_| ())
            .ok_or(Error::NoSpace)
    }

    /// Gives a promise back.
    pub(crate) fn return_space(&self, blocks: u32) {
        if let Ok(alloc) = self.alloc() {
            alloc.space.give(blocks);
        }
    }
}
