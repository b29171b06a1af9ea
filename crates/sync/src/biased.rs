//! A reader-writer lock whose readers store nothing to the lock.
//!
//! After BRAVO (Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019),
//! with the table laid out in rows. While a lock is *biased* to readers, a reader makes itself
//! visible by writing the lock's address into a table shared by all locks, in a row of its own
//! thread: readers on different CPUs touch no common cache line that anybody writes. A writer takes
//! the ordinary lock below, ends the bias and waits until no row shows a reader. After enough
//! readers have had to use the lock below, the bias returns.
//!
//! # Invariants
//!
//! - A reader that is in the table saw the bias *after* it wrote itself there. A writer looks at
//!   the table *after* it ended the bias. All four accesses are sequentially consistent, so at
//!   least one side sees the other.
//! - Unless the lock is biased, or a writer is just ending the bias, the table shows no reader of
//!   it that goes on to use the value.
//! - The bias begins under the read side of the lock below and ends under its write side.
//!
//! A lock can be in one place of each row only, so a writer looks at as many places as there are
//! rows, and a thread that holds two locks which share a place takes the second one below.
#![allow(unsafe_code)]

use crate::LockClass;
use crate::backend::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::backend::{self, IS_MODEL, between_seqcst, const_unless_loom, global, thread_local};
use crate::track::{Acquired, Mode, Track};
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Rows of the table. More threads than rows share them.
const ROWS: usize = if IS_MODEL { 3 } else { 128 };
/// Places in a row: two cache lines.
const PLACES: usize = if IS_MODEL { 1 } else { 16 };

/// Readers that use the lock below before the bias begins (again), for each row that is in use.
/// Ending it costs a writer a look at a cache line for each of them; this many unbiased reads cost
/// about nine times as much, which bounds what writers lose.
const READS_PER_ROW: u32 = 4;
/// Reads until the bias comes back when all rows are in use.
const READS_UNTIL_BIAS: u32 = if IS_MODEL {
    1
} else {
    READS_PER_ROW * ROWS as u32
};

#[repr(align(128))]
struct Row([AtomicUsize; PLACES]);

/// Where readers show themselves.
struct Table {
    /// Addresses of locks with visible readers; 0 where there is none.
    rows: [Row; ROWS],
    /// How many threads have been given a row.
    threads: AtomicUsize,
}

impl Table {
    #[cfg(not(feature = "loom"))]
    const fn new() -> Self {
        Self {
            rows: [const { Row([const { AtomicUsize::new(0) }; PLACES]) }; ROWS],
            threads: AtomicUsize::new(0),
        }
    }

    #[cfg(feature = "loom")]
    fn new() -> Self {
        Self {
            rows: [(); ROWS].map(|()| Row([(); PLACES].map(|()| AtomicUsize::new(0)))),
            threads: AtomicUsize::new(0),
        }
    }
}

global! {
    static TABLE: Table = Table::new();
}

thread_local! {
    static ROW: usize = TABLE.threads.fetch_add(1, Ordering::SeqCst) % ROWS;
}

/// A reader-writer lock for values that are read often and from many CPUs, and written rarely.
///
/// Reading costs one compare-and-swap on a cache line of the thread's own; the first write after
/// a while costs some microseconds more than with an [`RwLock`](crate::RwLock).
pub struct BiasedRwLock<T: ?Sized> {
    track: Track,
    below: backend::RwLock<()>,
    /// Whether readers may use the table.
    biased: Bias,
    /// Readers of the lock below still to come before the bias begins. Updates may be lost.
    until_bias: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out `&T` to several threads at a time and `&mut T` to one, like any
// reader-writer lock.
unsafe impl<T: ?Sized + Send> Send for BiasedRwLock<T> {}
// SAFETY: as above; `Sync` since readers share `&T`, `Send` since a writer may move a `T` out.
unsafe impl<T: ?Sized + Send + Sync> Sync for BiasedRwLock<T> {}

impl<T> BiasedRwLock<T> {
    const_unless_loom! {
        /// An unlocked lock of `class`, biased to readers.
        #[must_use]
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self {
                track: Track::new(class),
                below: backend::RwLock::new(()),
                biased: Bias(AtomicBool::new(true)),
                until_bias: AtomicU32::new(READS_UNTIL_BIAS),
                value: UnsafeCell::new(value),
            }
        }
    }

    const_unless_loom! {
        /// Makes a lock without the bias: for those of which most are written before they are read
        /// often.
        #[must_use]
        pub const fn unbiased(class: &'static LockClass, value: T) -> Self {
            Self {
                track: Track::new(class),
                below: backend::RwLock::new(()),
                biased: Bias(AtomicBool::new(false)),
                until_bias: AtomicU32::new(READS_UNTIL_BIAS),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// The value, when nobody else can hold the lock.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> BiasedRwLock<T> {
    /// Waits until no writer holds the lock.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of the same or a later rank.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        self.read_ascending(0)
    }

    /// As [`read`](Self::read), with locks of the same ascending class and lower keys held.
    ///
    /// # Panics
    /// In debug builds, when the order is violated.
    #[inline]
    #[track_caller]
    pub fn read_ascending(&self, key: u64) -> BiasedReadGuard<'_, T> {
        self.track.check_order(key);
        if let Some(place) = self.become_visible() {
            let acquired = self.track.acquired_unshared(key, Mode::Shared);
            return BiasedReadGuard {
                lock: self,
                held: Held::Visible(place),
                _acquired: acquired,
            };
        }
        let (below, acquired) = self.track.acquire(
            key,
            Mode::Shared,
            || self.below.try_read(),
            || self.below.read(),
        );
        self.approach_bias();
        BiasedReadGuard {
            lock: self,
            held: Held::Below(Some(below)),
            _acquired: acquired,
        }
    }

    /// The read side, if it is free now. Allowed in any order.
    #[inline]
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        if let Some(place) = self.become_visible() {
            let acquired = self.track.acquired_unshared(u64::MAX, Mode::Shared);
            return Some(BiasedReadGuard {
                lock: self,
                held: Held::Visible(place),
                _acquired: acquired,
            });
        }
        let (below, acquired) = self
            .track
            .try_acquire(Mode::Shared, || self.below.try_read())?;
        self.approach_bias();
        Some(BiasedReadGuard {
            lock: self,
            held: Held::Below(Some(below)),
            _acquired: acquired,
        })
    }

    /// Waits until nobody else holds the lock.
    ///
    /// # Panics
    /// In debug builds, when this thread holds a lock of the same or a later rank.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        self.write_ascending(0)
    }

    /// As [`write`](Self::write), with locks of the same ascending class and lower keys held.
    ///
    /// # Panics
    /// In debug builds, when the order is violated.
    #[inline]
    #[track_caller]
    pub fn write_ascending(&self, key: u64) -> BiasedWriteGuard<'_, T> {
        let (below, acquired) = self.track.acquire(
            key,
            Mode::Exclusive,
            || {
                let below = self.below.try_write()?;
                self.end_bias(|| false).then_some(below)
            },
            || {
                let below = self.below.write();
                let mut wait = Backoff::default();
                self.end_bias(|| {
                    wait.pause();
                    true
                });
                below
            },
        );
        BiasedWriteGuard {
            lock: self,
            _below: below,
            _acquired: acquired,
        }
    }

    /// The write side, if it is free now. Allowed in any order.
    #[inline]
    pub fn try_write(&self) -> Option<BiasedWriteGuard<'_, T>> {
        let (below, acquired) = self.track.try_acquire(Mode::Exclusive, || {
            let below = self.below.try_write()?;
            self.end_bias(|| false).then_some(below)
        })?;
        Some(BiasedWriteGuard {
            lock: self,
            _below: below,
            _acquired: acquired,
        })
    }

    /// The value, when nobody else can hold the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// What stands for this lock in the table. Not 0.
    #[inline]
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.biased).addr()
    }

    /// The place of this lock in every row.
    #[inline]
    fn place(&self) -> usize {
        place_of(self.address())
    }

    /// Enters the table as a reader, if the lock is biased and the place is free.
    #[inline]
    fn become_visible(&self) -> Option<&'static AtomicUsize> {
        if !self.biased.0.load(Ordering::Relaxed) {
            return None;
        }
        let row = ROW.try_with(|row| *row).ok()?;
        let place = &TABLE.rows[row].0[self.place()];
        place
            .compare_exchange(0, self.address(), Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        between_seqcst();
        if self.biased.0.load(Ordering::SeqCst) {
            return Some(place);
        }
        place.store(0, Ordering::Release);
        None
    }

    /// Counts a reader of the lock below, which holds it; begins the bias when there were enough.
    #[inline]
    fn approach_bias(&self) {
        if self.biased.0.load(Ordering::Relaxed) {
            return;
        }
        match self.until_bias.load(Ordering::Relaxed) {
            0 => self.biased.0.store(true, Ordering::Release),
            // Lost updates only delay the bias.
            n => self.until_bias.store(n - 1, Ordering::Relaxed),
        }
    }

    /// Sees to it that no reader is in the table. The caller holds the write side below.
    ///
    /// While there is a reader, asks `wait` whether to look again. If that says no, the lock stays
    /// biased, and this returns false.
    fn end_bias(&self, mut wait: impl FnMut() -> bool) -> bool {
        // The thread that began the bias held the read side below before.
        if !self.biased.0.load(Ordering::Relaxed) {
            return true;
        }
        self.biased.0.store(false, Ordering::SeqCst);
        between_seqcst();
        let (address, place) = (self.address(), self.place());
        // A thread that is given its row after this load sees that the bias has ended.
        let rows = TABLE.threads.load(Ordering::SeqCst).min(ROWS);
        for row in &TABLE.rows[..rows] {
            while row.0[place].load(Ordering::SeqCst) == address {
                if !wait() {
                    // Readers may remain in the table, so the bias must too.
                    self.biased.0.store(true, Ordering::Release);
                    return false;
                }
            }
        }
        let reads = READS_UNTIL_BIAS.min(READS_PER_ROW * rows as u32);
        self.until_bias.store(reads, Ordering::Relaxed);
        true
    }
}

/// Whether readers may use the table; its address is that of the lock.
struct Bias(AtomicBool);

impl Drop for Bias {
    /// A guard that was leaked (`mem::forget`) has left the lock in the table, and kept its bias.
    /// Another lock that comes to lie here would wait for it for ever.
    fn drop(&mut self) {
        if !self.0.load(Ordering::Relaxed) {
            return;
        }
        let address = std::ptr::from_ref(self).addr();
        let place = place_of(address);
        let rows = TABLE.threads.load(Ordering::Relaxed).min(ROWS);
        for row in &TABLE.rows[..rows] {
            // Nobody can be using the lock: what is there was leaked.
            if row.0[place].load(Ordering::Relaxed) == address {
                row.0[place].store(0, Ordering::Release);
            }
        }
    }
}

/// The place in every row of the lock at this address.
#[inline]
fn place_of(address: usize) -> usize {
    // Locks in an array or on the heap differ in bits above the lowest four or so.
    (address >> 4 ^ address >> 9 ^ address >> 15).rem_euclid(PLACES)
}

/// Waits longer and longer. Readers do not wake writers: they must not touch the lock after they
/// have left it, since it may be gone by then.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn pause(&mut self) {
        if IS_MODEL {
            return backend::thread::yield_now();
        }
        match self.0 {
            0..64 => std::hint::spin_loop(),
            64..80 => std::thread::yield_now(),
            n => {
                let micros = 20_u64 << (n - 80).min(5);
                std::thread::sleep(Duration::from_micros(micros));
            }
        }
        self.0 = self.0.saturating_add(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for BiasedRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("BiasedRwLock");
        match self.try_read() {
            Some(value) => out.field("value", &&*value).finish(),
            None => out.finish_non_exhaustive(),
        }
    }
}

/// How a reader holds the lock.
enum Held<'a> {
    /// By its place in the table.
    Visible(&'static AtomicUsize),
    /// By the lock below; taken out when dropped.
    Below(Option<backend::RwLockReadGuard<'a, ()>>),
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        match self {
            // Release: what was read under the lock was read before this.
            Self::Visible(place) => place.store(0, Ordering::Release),
            Self::Below(guard) => drop(guard.take()),
        }
    }
}

/// The held read side of a [`BiasedRwLock`]; released when dropped. Stays on its thread.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct BiasedReadGuard<'a, T: ?Sized> {
    lock: &'a BiasedRwLock<T>,
    #[expect(
        dead_code,
        reason = "held until it is dropped, before the record of it"
    )]
    held: Held<'a>,
    _acquired: Acquired,
}

/// The held write side of a [`BiasedRwLock`]; released when dropped. Stays on its thread.
#[must_use = "the lock is released at once if the guard is dropped"]
pub struct BiasedWriteGuard<'a, T: ?Sized> {
    lock: &'a BiasedRwLock<T>,
    _below: backend::RwLockWriteGuard<'a, ()>,
    _acquired: Acquired,
}

impl<T: ?Sized> Deref for BiasedReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: until the guard is dropped it is in the table or holds the read side below;
        // either keeps writers out (see the invariants above).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for BiasedWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the write side below, and there was no reader in the table
        // after the bias ended.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for BiasedWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; and `&mut self` makes this the only reference from the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for BiasedReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for BiasedWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
