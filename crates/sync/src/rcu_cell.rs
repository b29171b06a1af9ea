//! One value that readers borrow under an epoch guard and writers replace as a whole.

#![allow(unsafe_code)]

use crate::EpochGuard;
use crossbeam_epoch::{Atomic, Owned, Shared};
use std::fmt;
use std::sync::atomic::Ordering;

/// A value that is read without a lock and changed by putting another one in its place.
///
/// Replacing does not order writers among themselves: whoever computes the new value from the old
/// one holds a lock of its own meanwhile.
///
/// ```
/// use extant_sync::{RcuCell, pin};
///
/// let cell = RcuCell::new(1);
/// let guard = pin();
/// let old = cell.get(&guard);
/// cell.replace(2, &guard);
/// assert_eq!((*old, *cell.get(&guard)), (1, 2));
/// ```
pub struct RcuCell<T> {
    value: Atomic<T>,
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell that holds `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            value: Atomic::new(value),
        }
    }

    /// The value of now.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g EpochGuard) -> &'g T {
        let value = self.value.load(Ordering::Acquire, &guard.guard);
        // SAFETY: the cell is never empty, and what was read from it under `guard` is freed only
        // after the guard is gone (`replace` defers) or when nobody borrows the cell (`drop`).
        unsafe { value.deref() }
    }

    /// Puts another value in place of the one of now, which readers may go on to use.
    pub fn replace(&self, value: T, guard: &EpochGuard) {
        let old = self
            .value
            .swap(Owned::new(value), Ordering::AcqRel, &guard.guard);
        // SAFETY: the swap made `old` unreachable for those who come later, and no other thread
        // got it from a swap; earlier readers hold a guard.
        unsafe { guard.guard.defer_destroy(old) };
    }
}

impl<T> Drop for RcuCell<T> {
    fn drop(&mut self) {
        let value = std::mem::replace(&mut self.value, Atomic::null());
        // SAFETY: `&mut self` shows that nobody borrows from the cell, and the value was never
        // retired.
        unsafe {
            if value.load(Ordering::Relaxed, crossbeam_epoch::unprotected()) != Shared::null() {
                drop(value.into_owned());
            }
        }
    }
}

impl<T> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RcuCell")
    }
}
