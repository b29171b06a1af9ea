//! The ranked mutex.

use crate::LockClass;
use crate::backend::{self, const_unless_loom};
use crate::track::{Acquired, Mode, Track};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A mutual-exclusion lock with a place in the lock order. Not poisoned by panics.
pub struct Mutex<T: ?Sized> {
    track: Track,
    inner: backend::Mutex<T>,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// An unlocked mutex of `class`.
        #[inline]
        #[must_use]
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self {
                track: Track::new(class),
                inner: backend::Mutex::new(value),
            }
        }
    }

    /// The value, when nobody else can hold the lock.
    #[inline]
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of the same or a later rank.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_ascending(0)
    }

    /// Waits for the lock; other locks of an ascending class may be held if their keys are lower.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of a later rank, or of the same rank and not
    /// of this class with a lower key.
    #[inline]
    #[track_caller]
    pub fn lock_ascending(&self, key: u64) -> MutexGuard<'_, T> {
        let (inner, acquired) = self.track.acquire(
            key,
            Mode::Exclusive,
            || self.inner.try_lock(),
            || self.inner.lock(),
        );
        MutexGuard { inner, acquired }
    }

    /// The lock, if it is free now. Allowed in any order.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let (inner, acquired) = self
            .track
            .try_acquire(Mode::Exclusive, || self.inner.try_lock())?;
        Some(MutexGuard { inner, acquired })
    }

    /// The value, when nobody else can hold the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A held [`Mutex`]; unlocks when dropped. Stays on its thread.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    pub(crate) inner: backend::MutexGuard<'a, T>,
    pub(crate) acquired: Acquired,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
