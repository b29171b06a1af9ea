//! One value, or a place for one, that readers borrow under an epoch guard and writers replace as a
//! whole.

#![allow(unsafe_code)]

use crate::EpochGuard;
use crate::backend::{AtomicPtr, const_unless_loom, last_of, schedule_point};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of the counts that an `Arc` has in front of its value.
const COUNTS: usize = 2 * size_of::<usize>();

/// A shared value that is read without a lock and changed by putting another one in its place.
///
/// Replacing does not order writers among themselves: a thread that computes the new value from the
/// old one holds a lock of its own meanwhile.
///
/// # Invariants
///
/// - The pointer came from [`Arc::into_raw`] and stands for one reference, which the cell owns.
/// - That reference is given up only after every guard under which the pointer may have been read
///   is gone.
///
/// ```
/// use extant_sync::{RcuCell, pin};
/// use std::sync::Arc;
///
/// let cell = RcuCell::new(Arc::new(1));
/// let guard = pin();
/// let old = cell.get(&guard);
/// cell.replace(Arc::new(2), &guard);
/// assert_eq!((*old, *cell.get(&guard)), (1, 2));
/// assert_eq!(*cell.load(&guard), 2);
/// ```
pub struct RcuCell<T> {
    value: AtomicPtr<T>,
}

// SAFETY: the cell is an `Arc<T>` that several threads read and replace, so it may go where an
// `Arc` may.
unsafe impl<T: Send + Sync> Send for RcuCell<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for RcuCell<T> {}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell that holds `value`.
    #[must_use]
    pub fn new(value: Arc<T>) -> Self {
        Self {
            value: AtomicPtr::new(Arc::into_raw(value).cast_mut()),
        }
    }

    /// The value of now, borrowed: not even a reference count changes.
    #[inline]
    pub fn get<'g>(&'g self, _guard: &'g EpochGuard) -> &'g T {
        // SAFETY: the cell is never empty, and what was read from it under a guard is freed only
        // after the guard is gone (`replace` defers) or when nobody borrows the cell (`drop`).
        unsafe { &*self.value.load(Ordering::Acquire) }
    }

    /// The value of now, to keep.
    #[inline]
    pub fn load(&self, _guard: &EpochGuard) -> Arc<T> {
        let value = self.value.load(Ordering::Acquire).cast_const();
        // SAFETY: the pointer came from `Arc::into_raw`, and the cell's reference is not given up
        // before the guard is gone, so there is one while another is made.
        unsafe {
            Arc::increment_strong_count(value);
            Arc::from_raw(value)
        }
    }

    /// Puts another value in place of the one of now, which readers may go on to use.
    pub fn replace(&self, value: Arc<T>, guard: &EpochGuard) {
        let new = Arc::into_raw(value).cast_mut();
        let old = self.value.swap(new, Ordering::AcqRel) as usize;
        // SAFETY: the swap made the old value unreachable for threads that come later, and no other
        // thread got it from a swap; earlier readers hold a guard. The pointer came from
        // `Arc::into_raw`, and its reference, which was the cell's, may be dropped by any thread at
        // any time, as `T` is `Send`, `Sync` and `'static`.
        unsafe {
            guard
                .guard
                .defer_unchecked(move || drop(Arc::from_raw(old as *const T)));
        }
    }
}

impl<T> Drop for RcuCell<T> {
    fn drop(&mut self) {
        let value = last_of(&mut self.value).cast_const();
        if !value.is_null() {
            // SAFETY: `&mut self` shows that nobody borrows from the cell; the reference is the
            // cell's and was never given up.
            drop(unsafe { Arc::from_raw(value) });
        }
    }
}

impl<T> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RcuCell")
    }
}

/// A place for a shared value: as [`RcuCell`], but it may be empty.
///
/// Changes are not ordered among themselves either: threads that make them hold a lock of their
/// own.
///
/// # Invariants
///
/// Those of [`RcuCell`], where the pointer is not null.
///
/// ```
/// use extant_sync::{RcuSlot, pin};
/// use std::sync::Arc;
///
/// let slot = RcuSlot::empty();
/// let guard = pin();
/// assert_eq!(slot.get(&guard), None);
/// slot.put(Arc::new(1), &guard);
/// let found = slot.get(&guard);
/// slot.clear(&guard);
/// assert_eq!((found, slot.get(&guard)), (Some(&1), None));
/// ```
pub struct RcuSlot<T> {
    value: AtomicPtr<T>,
}

// SAFETY: as for `RcuCell`.
unsafe impl<T: Send + Sync> Send for RcuSlot<T> {}
// SAFETY: as for `RcuCell`.
unsafe impl<T: Send + Sync> Sync for RcuSlot<T> {}

impl<T> RcuSlot<T> {
    const_unless_loom! {
        /// A place with nothing in it.
        #[must_use]
        pub const fn empty() -> Self {
            Self {
                value: AtomicPtr::new(std::ptr::null_mut()),
            }
        }
    }

    /// Whether nothing is there.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.load(Ordering::Relaxed).is_null()
    }
}

impl<T: Send + Sync + 'static> RcuSlot<T> {
    /// The value of now, borrowed: not even a reference count changes.
    #[inline]
    pub fn get<'g>(&'g self, _guard: &'g EpochGuard) -> Option<&'g T> {
        schedule_point();
        // SAFETY: what was read from the slot under a guard is freed only after the guard is gone
        // (`put` and `clear` defer) or when nobody borrows the slot (`drop`). Null is told apart.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// The value of now, to keep.
    #[inline]
    pub fn load(&self, _guard: &EpochGuard) -> Option<Arc<T>> {
        schedule_point();
        let value = self.value.load(Ordering::Acquire).cast_const();
        if value.is_null() {
            return None;
        }
        // SAFETY: the pointer came from `Arc::into_raw`, and the slot's reference is not given up
        // before the guard is gone, so there is one while another is made.
        unsafe {
            Arc::increment_strong_count(value);
            Some(Arc::from_raw(value))
        }
    }

    /// Has the processor bring the value near, which is about to be used.
    #[inline]
    pub fn prefetch(&self) {
        // An address: nothing is read there, so it may be gone.
        let address = self.value.load(Ordering::Relaxed).addr();
        crate::prefetch(address.wrapping_sub(COUNTS), COUNTS + size_of::<T>());
    }

    /// Puts a value there, in place of what there was, which readers may go on to use.
    pub fn put(&self, value: Arc<T>, guard: &EpochGuard) {
        self.exchange(Arc::into_raw(value).cast_mut(), guard);
    }

    /// Empties the place. Readers may go on to use what was there.
    pub fn clear(&self, guard: &EpochGuard) {
        self.exchange(std::ptr::null_mut(), guard);
    }

    fn exchange(&self, new: *mut T, guard: &EpochGuard) {
        schedule_point();
        let old = self.value.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return;
        }
        let old = old as usize;
        // SAFETY: as in `RcuCell::replace`.
        unsafe {
            guard
                .guard
                .defer_unchecked(move || drop(Arc::from_raw(old as *const T)));
        }
    }
}

impl<T> Default for RcuSlot<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T> Drop for RcuSlot<T> {
    fn drop(&mut self) {
        let value = last_of(&mut self.value).cast_const();
        if !value.is_null() {
            // SAFETY: as for `RcuCell`.
            drop(unsafe { Arc::from_raw(value) });
        }
    }
}

impl<T> fmt::Debug for RcuSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RcuSlot")
    }
}
