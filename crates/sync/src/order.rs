//! What each thread holds, and the check of the lock order. Debug builds only.

use crate::{LockClass, Rank};
use std::marker::PhantomData;

/// Proof that a thread holds a lock; forgets it when dropped. Stays on its thread.
#[derive(Debug)]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    id: u64,
    _on_this_thread: PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
mod checked {
    use super::{Held, LockClass, PhantomData, Rank};
    use crate::backend::thread_local;
    use std::cell::{Cell, RefCell};

    struct Entry {
        class: &'static LockClass,
        key: u64,
        id: u64,
    }

    thread_local! {
        static HELD: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
        static NEXT_ID: Cell<u64> = const { Cell::new(0) };
        static EPOCH_GUARDS: Cell<u32> = const { Cell::new(0) };
    }

    /// The class of the first held lock for which `wrong` says so.
    fn find(wrong: impl Fn(&Entry) -> bool) -> Option<&'static LockClass> {
        HELD.try_with(|held| held.borrow().iter().find(|e| wrong(e)).map(|e| e.class))
            .ok()
            .flatten()
    }

    #[track_caller]
    pub(crate) fn check(class: &'static LockClass, key: u64) {
        let rank = class.rank();
        let wrong = find(|e| {
            let held = e.class.rank();
            let ascends = std::ptr::eq(e.class, class) && class.is_ascending() && e.key < key;
            held > rank || (held == rank && !ascends)
        });
        if let Some(held) = wrong {
            panic!(
                "lock order: acquiring `{}` (rank {:?}) while holding `{}` (rank {:?})",
                class.name(),
                rank,
                held.name(),
                held.rank(),
            );
        }
    }

    pub(crate) fn push(class: &'static LockClass, key: u64) -> Held {
        let id = NEXT_ID.try_with(|n| n.replace(n.get() + 1)).unwrap_or(0);
        // A thread that is ending may already have dropped its list; it checks nothing then.
        let _ = HELD.try_with(|held| held.borrow_mut().push(Entry { class, key, id }));
        Held {
            id,
            _on_this_thread: PhantomData,
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|e| e.id == self.id) {
                    held.remove(at);
                }
            });
        }
    }

    impl Held {
        /// Checks that waiting for a condition, which acquires this lock anew, keeps the order.
        #[track_caller]
        pub(crate) fn check_wait(&self, class: &'static LockClass) {
            if let Some(held) = find(|e| e.id != self.id && e.class.rank() >= class.rank()) {
                panic!(
                    "lock order: waiting with `{}` (rank {:?}) while holding `{}` (rank {:?})",
                    class.name(),
                    class.rank(),
                    held.name(),
                    held.rank(),
                );
            }
        }
    }

    #[track_caller]
    pub(crate) fn no_locks_at_or_above(rank: Rank) {
        if let Some(held) = find(|e| e.class.rank() >= rank) {
            panic!(
                "lock order: `{}` (rank {:?}) is held where nothing from rank {rank:?} on may be",
                held.name(),
                held.rank(),
            );
        }
    }

    #[track_caller]
    pub(crate) fn may_wait_for_device() {
        if let Some(held) = find(|e| e.class.rank().forbids_device_wait()) {
            panic!(
                "lock order: waiting for the device while holding `{}` (rank {:?})",
                held.name(),
                held.rank(),
            );
        }
        if EPOCH_GUARDS.try_with(|n| n.get() > 0).unwrap_or(false) {
            panic!("lock order: waiting for the device under an epoch guard");
        }
    }

    pub(crate) fn epoch_entered() {
        let _ = EPOCH_GUARDS.try_with(|n| n.set(n.get() + 1));
    }

    pub(crate) fn epoch_left() {
        let _ = EPOCH_GUARDS.try_with(|n| n.set(n.get().saturating_sub(1)));
    }
}

#[cfg(not(debug_assertions))]
mod checked {
    use super::{Held, LockClass, PhantomData, Rank};

    #[inline(always)]
    pub(crate) fn push(_class: &'static LockClass, _key: u64) -> Held {
        Held {
            _on_this_thread: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn check(_class: &'static LockClass, _key: u64) {}

    #[inline(always)]
    pub(crate) fn no_locks_at_or_above(_rank: Rank) {}

    #[inline(always)]
    pub(crate) fn may_wait_for_device() {}

    #[inline(always)]
    pub(crate) fn epoch_entered() {}

    #[inline(always)]
    pub(crate) fn epoch_left() {}
}

#[cfg(not(debug_assertions))]
impl Held {
    /// What an acquisition leaves behind when nothing is checked.
    #[inline(always)]
    pub(crate) fn unchecked() -> Self {
        Self {
            _on_this_thread: PhantomData,
        }
    }
}

#[cfg(debug_assertions)]
pub(crate) use checked::check;
pub(crate) use checked::{epoch_entered, epoch_left, push};

/// In debug builds, panics if this thread holds a lock of `rank` or any later rank.
///
/// For places that may sleep for long: before a wait for memory budget, eviction, writeback or a
/// commit, `debug_assert_no_locks_at_or_above(Rank::JournalHandle)`.
#[inline]
#[track_caller]
pub fn debug_assert_no_locks_at_or_above(rank: Rank) {
    checked::no_locks_at_or_above(rank);
}

/// In debug builds, panics if this thread holds a lock under which no device may be waited for
/// (see [`Rank::forbids_device_wait`]), or an epoch guard.
#[inline]
#[track_caller]
pub fn debug_assert_may_wait_for_device() {
    checked::may_wait_for_device();
}

/// A place in the lock order held by something that is not a lock: a journal handle, a folio's
/// writeback mark.
///
/// Checked and counted as held like a lock, until dropped.
#[derive(Debug)]
pub struct RankToken {
    _held: Held,
}

impl RankToken {
    /// Enters the order at the rank of `class`. Panics in debug builds as a lock would.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn enter(class: &'static LockClass) -> Self {
        checked::check(class, 0);
        Self {
            _held: push(class, 0),
        }
    }
}
