//! Shared pointers in loom's models: those of `crossbeam-epoch`, held by loom's atomics.
//!
//! So loom sees each look at a pointer and each publication of one, goes through their orders, and
//! lets a look find whatever weak memory may show. What pointers point to is freed by the real
//! epoch, which in a model frees nothing while any guard is held.

#![allow(unsafe_code)]

use crossbeam_epoch::{Guard, Owned, Pointable, Pointer, Shared};
use loom::sync::atomic::{AtomicUsize, Ordering};
use std::marker::PhantomData;

/// What of `crossbeam_epoch::Atomic` is in use.
pub(crate) struct Atomic<T: ?Sized + Pointable> {
    at: AtomicUsize,
    _points_to: PhantomData<*mut T>,
}

// SAFETY: as for `crossbeam_epoch::Atomic`: a pointer that several threads read and replace.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Send for Atomic<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Sync for Atomic<T> {}

impl<T: ?Sized + Pointable> Atomic<T> {
    #[track_caller]
    pub(crate) fn null() -> Self {
        Self {
            at: AtomicUsize::new(0),
            _points_to: PhantomData,
        }
    }

    #[track_caller]
    pub(crate) fn load<'g>(&self, order: Ordering, _guard: &'g Guard) -> Shared<'g, T> {
        // SAFETY: only what `into_usize` returned, or null, is ever stored.
        unsafe { Shared::from_usize(self.at.load(order)) }
    }

    #[track_caller]
    pub(crate) fn store<P: Pointer<T>>(&self, new: P, order: Ordering) {
        self.at.store(new.into_usize(), order);
    }

    #[track_caller]
    pub(crate) fn swap<'g, P: Pointer<T>>(
        &self,
        new: P,
        order: Ordering,
        _guard: &'g Guard,
    ) -> Shared<'g, T> {
        // SAFETY: as in `load`.
        unsafe { Shared::from_usize(self.at.swap(new.into_usize(), order)) }
    }

    /// # Safety
    /// As for `crossbeam_epoch::Atomic::try_into_owned`: nobody else has the pointer.
    pub(crate) unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        let at = self.at.into_inner();
        // SAFETY: as in `load`; that it is the only one the caller has promised.
        (at != 0).then(|| unsafe { Owned::from_usize(at) })
    }
}

impl<T: ?Sized + Pointable> Default for Atomic<T> {
    #[track_caller]
    fn default() -> Self {
        Self::null()
    }
}
