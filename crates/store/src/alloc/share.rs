//! Whose share of the free blocks something is paid from.
//!
//! The superblock reserves blocks for user 0, for one user and for the members of one group.
//! Whether somebody is one of them is decided where space is taken or promised, which is many calls
//! below the operation that was asked for. As in Linux it is the thread that knows which user it
//! acts for: an operation says so for as long as it lasts ([`Spending`]), of the file system it
//! changes. A thread that says nothing of a file system acts for nobody else there, and may take
//! the reserve: programs that use images of their own, and the engine's threads. What finishes
//! something that was let in before, as writeback does, is nobody's and asks for all there is,
//! whichever thread does it.

use super::{Alloc, Request};
use extant_sync::thread_local;
use std::cell::RefCell;
use std::marker::PhantomData;

thread_local! {
    /// Which users the thread acts for, innermost last.
    static SHARES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Of which file system which share is used.
#[derive(Clone, Copy, Debug)]
struct Entry {
    fs: usize,
    share: Share,
    /// Whether the user that is acted for is held to limits of quotas.
    limited: bool,
}

/// Which of the free blocks may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All but the reserve.
    Open,
    /// The reserve too, but for its last blocks.
    Reserve,
    /// All: for finishing what was begun.
    All,
}

impl Alloc {
    /// What the thread may take now: all if it finishes something.
    pub(super) fn share(&self, finishes: bool) -> Share {
        if finishes {
            return Share::All;
        }
        self.said().map_or(Share::Reserve, |entry| entry.share)
    }

    /// What the thread says of this file system, if anything.
    fn said(&self) -> Option<Entry> {
        let here = self.id();
        let innermost = |shares: &RefCell<Vec<Entry>>| {
            let shares = shares.borrow();
            shares.iter().rev().find(|entry| entry.fs == here).copied()
        };
        // Without its values, the thread is about to end.
        SHARES.try_with(innermost).ok().flatten()
    }

    /// A number that no other file system has that is open.
    fn id(&self) -> usize {
        self.slots.as_ptr().addr()
    }
}

impl Request {
    /// The share of the free blocks it is paid from.
    pub(super) fn share(&self, alloc: &Alloc) -> Share {
        alloc.share(self.privileged)
    }
}

/// Has what this thread takes of a file system paid from somebody's share, as long as this lives.
/// Within another one of the same file system it comes before that one.
#[derive(Debug)]
#[must_use = "the thread acts for whom it did before when this is dropped"]
pub struct Spending {
    /// Its place among those of the thread.
    depth: usize,
    _on_this_thread: PhantomData<*const ()>,
}

impl Drop for Spending {
    fn drop(&mut self) {
        // Those inside end before, as values of a thread do. Without its values, the thread is
        // about to end.
        let _ = SHARES.try_with(|shares| shares.borrow_mut().truncate(self.depth));
    }
}

impl Spending {
    /// Has the space that this thread takes of `alloc`'s file system until the result is dropped
    /// paid from what is for all, or the reserve too if that `has_reserve`. `is_limited` says
    /// whether quotas hold it to limits. Without an allocator there is nothing to take.
    pub fn new(alloc: Option<&Alloc>, has_reserve: bool, is_limited: bool) -> Self {
        let share = if has_reserve {
            Share::Reserve
        } else {
            Share::Open
        };
        let entry = Entry {
            fs: alloc.map_or(0, Alloc::id),
            share,
            limited: is_limited,
        };
        let push = |shares: &RefCell<Vec<Entry>>| {
            let mut shares = shares.borrow_mut();
            shares.push(entry);
            shares.len() - 1
        };
        Self {
            depth: SHARES.try_with(push).unwrap_or(usize::MAX),
            _on_this_thread: PhantomData,
        }
    }
}

impl Alloc {
    /// Whether the thread acts for a user that is held to limits of quotas: not for user 0, nor for
    /// nobody.
    pub fn is_limited(&self) -> bool {
        self.said().is_some_and(|entry| entry.limited)
    }
}
