//! Whose share of the free blocks something is paid from.
//!
//! The superblock reserves blocks for user 0, for one user and for the members of one group. Whether somebody is one of them is decided where
//! space is taken or promised, which is many calls below the operation that he asked for. As in Linux it is the thread that knows
//! for whom it acts: an operation says so for as long as it lasts ([`Spending`]). A thread that says nothing acts for nobody
//! else, and may take the reserve: programs that use images of their own, and the engine's threads, which write what was
//! let in before.

use super::Request;
use crate::fs::Fs;
use crate::inode::Caller;
use extant_sync::thread_local;
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static SHARE: Cell<Option<Share>> = const { Cell::new(None) };
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

impl Share {
    /// What the thread may take now: all if it finishes something.
    pub(super) fn now(finishes: bool) -> Self {
        match finishes {
            true => Self::All,
            false => SHARE
                .try_with(Cell::get)
                .ok()
                .flatten()
                .unwrap_or(Self::Reserve),
        }
    }
}

impl Request {
    /// The share of the free blocks it is paid from.
    pub(super) fn share(&self) -> Share {
        Share::now(self.privileged)
    }
}

/// Has what this thread takes paid from somebody's share, as long as this lives. Within another one it changes nothing.
#[derive(Debug)]
#[must_use = "the thread acts for nobody else again when this is dropped"]
pub struct Spending {
    is_outermost: bool,
    _on_this_thread: PhantomData<*const ()>,
}

impl Drop for Spending {
    fn drop(&mut self) {
        if self.is_outermost {
            // Without its values, the thread is about to end.
            let _ = SHARE.try_with(|share| share.set(None));
        }
    }
}

impl Fs {
    /// Has the space that this thread takes until the result is dropped paid from what `caller` may have: the blocks that the superblock
    /// reserves only if they are reserved for him. Operations that are told for whom they [act](crate::ops::Acting) do that by
    /// themselves; this is for those who check permissions otherwise.
    pub fn spending_for(&self, caller: &Caller) -> Spending {
        let share = match self.is_reserved_for(caller) {
            true => Share::Reserve,
            false => Share::Open,
        };
        let is_outermost = SHARE
            .try_with(|now| {
                let is_first = now.get().is_none();
                if is_first {
                    now.set(Some(share));
                }
                is_first
            })
            .unwrap_or(false);
        Spending {
            is_outermost,
            _on_this_thread: PhantomData,
        }
    }

    /// Group 0 is no group that blocks are reserved for, but stands for none.
    fn is_reserved_for(&self, caller: &Caller) -> bool {
        let (user, group) = self.superblock().reserved_for();
        caller.uid == 0 || caller.uid == user || (group != 0 && caller.is_in(group))
    }
}
