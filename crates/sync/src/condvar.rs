//! The condition variable that goes with the ranked mutex.

use crate::MutexGuard;
use crate::backend::{self, const_unless_loom};
use std::time::Duration;

/// A condition variable for a [`Mutex`](crate::Mutex). All waits may wake without cause.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: backend::Condvar,
}

impl Condvar {
    const_unless_loom! {
        /// A condition variable nobody waits on.
        #[inline]
        #[must_use]
        pub const fn new() -> Self {
            Self {
                inner: backend::Condvar::new(),
            }
        }
    }

    /// Releases the mutex, waits for a notification and acquires the mutex again.
    ///
    /// # Panics
    /// In debug builds, when another lock of the mutex's rank or a later one is held: acquiring
    /// the mutex again would violate the order.
    #[inline]
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.acquired.before_wait();
        self.inner.wait(&mut guard.inner);
        guard.acquired.after_wait();
    }

    /// Waits until `condition` no longer holds.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[inline]
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut guard.inner) {
            self.wait(guard);
        }
    }

    /// Waits for at most `timeout`; whether it passed without a notification.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[inline]
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        guard.acquired.before_wait();
        let timed_out = self.inner.wait_for(&mut guard.inner, timeout).timed_out();
        guard.acquired.after_wait();
        timed_out
    }

    /// Wakes one waiter, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes every waiter.
    #[inline]
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
