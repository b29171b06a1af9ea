//! The ranked reader-writer lock.

use crate::LockClass;
use crate::backend::{self, const_unless_loom};
use crate::track::{Acquired, Mode, Track};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A reader-writer lock with a place in the lock order. Not poisoned by panics.
///
/// A waiting writer holds back new readers, so a thread must not read-lock it twice; debug builds
/// panic on that as on any other violation of the order.
pub struct RwLock<T: ?Sized> {
    track: Track,
    inner: backend::RwLock<T>,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        /// An unlocked lock of `class`.
        #[inline]
        #[must_use]
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self {
                track: Track::new(class),
                inner: backend::RwLock::new(value),
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

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of the same or a later rank.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.read_ascending(0)
    }

    /// Waits until nobody else holds the lock.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of the same or a later rank.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.write_ascending(0)
    }

    /// As [`read`](Self::read), with locks of the same ascending class and lower keys held.
    ///
    /// # Panics
    /// In debug builds, when the order is violated.
    #[inline]
    #[track_caller]
    pub fn read_ascending(&self, key: u64) -> RwLockReadGuard<'_, T> {
        let (inner, acquired) = self.track.acquire(
            key,
            Mode::Shared,
            || self.inner.try_read(),
            || self.inner.read(),
        );
        RwLockReadGuard {
            inner,
            _acquired: acquired,
        }
    }

    /// As [`write`](Self::write), with locks of the same ascending class and lower keys held.
    ///
    /// # Panics
    /// In debug builds, when the order is violated.
    #[inline]
    #[track_caller]
    pub fn write_ascending(&self, key: u64) -> RwLockWriteGuard<'_, T> {
        let (inner, acquired) = self.track.acquire(
            key,
            Mode::Exclusive,
            || self.inner.try_write(),
            || self.inner.write(),
        );
        RwLockWriteGuard { inner, acquired }
    }

    /// The read side, if it is free now. Allowed in any order.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let (inner, acquired) = self
            .track
            .try_acquire(Mode::Shared, || self.inner.try_read())?;
        Some(RwLockReadGuard {
            inner,
            _acquired: acquired,
        })
    }

    /// The write side, if it is free now. Allowed in any order.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let (inner, acquired) = self
            .track
            .try_acquire(Mode::Exclusive, || self.inner.try_write())?;
        Some(RwLockWriteGuard { inner, acquired })
    }

    /// The value, when nobody else can hold the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The held read side of a [`RwLock`]; released when dropped. Stays on its thread.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: backend::RwLockReadGuard<'a, T>,
    _acquired: Acquired,
}

/// The held write side of a [`RwLock`]; released when dropped. Stays on its thread.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    inner: backend::RwLockWriteGuard<'a, T>,
    acquired: Acquired,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Lets other readers in without letting go.
    #[inline]
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let Self {
            inner,
            mut acquired,
        } = guard;
        let inner = backend::RwLockWriteGuard::downgrade(inner);
        acquired.downgraded();
        RwLockReadGuard {
            inner,
            _acquired: acquired,
        }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
