//! Locks in the manner of `parking_lot` over those of a model checker.
//!
//! The checker's lock decides which thread goes on; the value lies in a lock of the standard
//! library beside it, which is then always free. So unsized values, downgrading and waiting through
//! a borrowed guard come without `unsafe`, though the checkers' own locks know none of them.
//!
//! # Invariants
//!
//! - A guard gives the value back before it lets the checker's lock go: its fields are in that
//!   order.
//! - No time passes: a timed wait ends by notification only. So a wake-up that is missing shows as
//!   a deadlock and is not hidden by a timeout.

use super::{const_unless_loom, thread_local};
#[cfg(feature = "loom")]
use loom::sync as checker;
#[cfg(feature = "shuttle")]
use shuttle::sync as checker;
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self as plain, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

thread_local! {
    static CPU_ASKED: Cell<usize> = const { Cell::new(0) };
}

/// A CPU number that changes each time.
pub(crate) fn cpu_hint() -> usize {
    #[cfg(feature = "shuttle")]
    let first = usize::from(shuttle::thread::current().id());
    #[cfg(feature = "loom")]
    let first = 0;
    CPU_ASKED
        .try_with(|asked| first + asked.replace(asked.get() + 1))
        .unwrap_or(0)
}

/// What a lock guards is as good after a panic as before: the panic is what is reported.
fn unpoisoned<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn if_free<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The value of a lock that the checker has granted.
fn granted<G>(result: TryLockResult<G>) -> G {
    if_free(result).expect("whom the checker's lock admits finds the value free")
}

pub(crate) struct Mutex<T: ?Sized> {
    admission: checker::Mutex<()>,
    value: plain::Mutex<T>,
}

pub(crate) struct MutexGuard<'a, T: ?Sized> {
    /// `None` during a wait only, as is `admitted`.
    value: Option<plain::MutexGuard<'a, T>>,
    admitted: Option<checker::MutexGuard<'a, ()>>,
    lock: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        pub(crate) const fn new(value: T) -> Self {
            Self {
                admission: checker::Mutex::new(()),
                value: plain::Mutex::new(value),
            }
        }
    }

    pub(crate) fn into_inner(self) -> T {
        unpoisoned(self.value.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.enter(unpoisoned(self.admission.lock()))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if_free(self.admission.try_lock()).map(|admitted| self.enter(admitted))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.value.get_mut())
    }

    fn enter<'a>(&'a self, admitted: checker::MutexGuard<'a, ()>) -> MutexGuard<'a, T> {
        MutexGuard {
            value: Some(granted(self.value.try_lock())),
            admitted: Some(admitted),
            lock: self,
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

const INSIDE: &str = "a guard is used by the thread that waits with it";

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(INSIDE)
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(INSIDE)
    }
}

#[derive(Debug)]
pub(crate) struct Condvar {
    inner: checker::Condvar,
}

/// Whether a timed wait ended for want of a notification: never.
pub(crate) struct WaitTimeoutResult;

impl WaitTimeoutResult {
    #[expect(clippy::unused_self, reason = "parking_lot's shape")]
    pub(crate) fn timed_out(self) -> bool {
        false
    }
}

impl Condvar {
    const_unless_loom! {
        pub(crate) const fn new() -> Self {
            Self {
                inner: checker::Condvar::new(),
            }
        }
    }

    pub(crate) fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.value = None;
        let admitted = guard.admitted.take().expect(INSIDE);
        guard.admitted = Some(unpoisoned(self.inner.wait(admitted)));
        guard.value = Some(granted(guard.lock.value.try_lock()));
    }

    pub(crate) fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
    }

    pub(crate) fn notify_one(&self) {
        self.inner.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.inner.notify_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

/// What is inside a reader-writer lock.
struct Inside {
    readers: usize,
    writer: bool,
}

pub(crate) struct RwLock<T: ?Sized> {
    inside: checker::Mutex<Inside>,
    left: checker::Condvar,
    value: plain::RwLock<T>,
}

/// Takes a reader or the writer out again when dropped.
struct Admitted<'a> {
    inside: &'a checker::Mutex<Inside>,
    left: &'a checker::Condvar,
    writer: bool,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut inside = unpoisoned(self.inside.lock());
        if self.writer {
            inside.writer = false;
        } else {
            inside.readers -= 1;
        }
        drop(inside);
        self.left.notify_all();
    }
}

pub(crate) struct RwLockReadGuard<'a, T: ?Sized> {
    value: plain::RwLockReadGuard<'a, T>,
    _admitted: Admitted<'a>,
}

pub(crate) struct RwLockWriteGuard<'a, T: ?Sized> {
    value: plain::RwLockWriteGuard<'a, T>,
    admitted: Admitted<'a>,
    lock: &'a RwLock<T>,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        pub(crate) const fn new(value: T) -> Self {
            Self {
                inside: checker::Mutex::new(Inside { readers: 0, writer: false }),
                left: checker::Condvar::new(),
                value: plain::RwLock::new(value),
            }
        }
    }

    pub(crate) fn into_inner(self) -> T {
        unpoisoned(self.value.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Enters as soon as there is room; `None` if that is not now and `wait` is false.
    fn admit(&self, writer: bool, wait: bool) -> Option<Admitted<'_>> {
        let mut inside = unpoisoned(self.inside.lock());
        while inside.writer || (writer && inside.readers > 0) {
            if !wait {
                return None;
            }
            inside = unpoisoned(self.left.wait(inside));
        }
        if writer {
            inside.writer = true;
        } else {
            inside.readers += 1;
        }
        Some(Admitted {
            inside: &self.inside,
            left: &self.left,
            writer,
        })
    }

    fn reader<'a>(&'a self, admitted: Admitted<'a>) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard {
            value: granted(self.value.try_read()),
            _admitted: admitted,
        }
    }

    fn writer<'a>(&'a self, admitted: Admitted<'a>) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard {
            value: granted(self.value.try_write()),
            admitted,
            lock: self,
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.reader(self.admit(false, true).expect("it waits"))
    }

    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.admit(false, false).map(|a| self.reader(a))
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.writer(self.admit(true, true).expect("it waits"))
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.admit(true, false).map(|a| self.writer(a))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.value.get_mut())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    pub(crate) fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let Self {
            value,
            mut admitted,
            lock,
        } = guard;
        drop(value);
        let mut inside = unpoisoned(admitted.inside.lock());
        inside.writer = false;
        inside.readers += 1;
        admitted.writer = false;
        drop(inside);
        admitted.left.notify_all();
        lock.reader(admitted)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
