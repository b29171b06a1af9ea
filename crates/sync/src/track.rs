//! What every lock of this crate does around acquiring and releasing: the order check and the
//! statistics. Empty in release builds without `lockstat`.

use crate::LockClass;
#[cfg(debug_assertions)]
use crate::order;
use crate::order::Held;
#[cfg(feature = "lockstat")]
use crate::stat;

/// How a lock is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other readers.
    Shared,
}

/// The part of a lock that knows its class.
#[derive(Debug)]
pub(crate) struct Track {
    #[cfg(any(debug_assertions, feature = "lockstat"))]
    class: &'static LockClass,
    #[cfg(feature = "lockstat")]
    uses: stat::Uses,
}

impl Track {
    #[inline]
    pub(crate) const fn new(class: &'static LockClass) -> Self {
        #[cfg(not(any(debug_assertions, feature = "lockstat")))]
        let _ = class;
        Self {
            #[cfg(any(debug_assertions, feature = "lockstat"))]
            class,
            #[cfg(feature = "lockstat")]
            uses: stat::Uses::new(),
        }
    }

    /// Panics in debug builds if acquiring now would violate the order.
    #[inline]
    #[track_caller]
    pub(crate) fn check_order(&self, key: u64) {
        #[cfg(debug_assertions)]
        order::check(self.class, key);
        #[cfg(not(debug_assertions))]
        let _ = key;
    }

    /// Acquires through `block`, after the order check; `attempt` tells contention apart.
    #[inline]
    #[track_caller]
    pub(crate) fn acquire<G>(
        &self,
        key: u64,
        mode: Mode,
        attempt: impl FnOnce() -> Option<G>,
        block: impl FnOnce() -> G,
    ) -> (G, Acquired) {
        self.check_order(key);
        #[cfg(feature = "lockstat")]
        {
            let (guard, waited) = match attempt() {
                Some(guard) => (guard, None),
                None => {
                    let start = std::time::Instant::now();
                    (block(), Some(start.elapsed()))
                }
            };
            let acquired = self.acquired(key, mode, waited);
            (guard, acquired)
        }
        #[cfg(not(feature = "lockstat"))]
        {
            let _ = attempt;
            let guard = block();
            (guard, self.acquired(key, mode, None))
        }
    }

    /// Acquires through `attempt`, without an order check.
    #[inline]
    pub(crate) fn try_acquire<G>(
        &self,
        mode: Mode,
        attempt: impl FnOnce() -> Option<G>,
    ) -> Option<(G, Acquired)> {
        let guard = attempt()?;
        // `u64::MAX`: nothing may ascend from a lock that was taken out of order.
        let acquired = self.acquired(u64::MAX, mode, None);
        Some((guard, acquired))
    }

    /// Records an acquisition that has happened.
    #[inline]
    fn acquired(&self, key: u64, mode: Mode, waited: Option<std::time::Duration>) -> Acquired {
        #[cfg(feature = "lockstat")]
        {
            let found = self.uses.note();
            self.class.stats.record(self.class, mode, found, waited);
        }
        #[cfg(not(feature = "lockstat"))]
        let _ = waited;
        self.trace(key, mode)
    }

    /// Records an acquisition that wrote nothing other threads look at: it never bounces.
    #[inline]
    pub(crate) fn acquired_unshared(&self, key: u64, mode: Mode) -> Acquired {
        #[cfg(feature = "lockstat")]
        self.class
            .stats
            .record(self.class, mode, stat::Use::UNSHARED, None);
        self.trace(key, mode)
    }

    #[inline]
    fn trace(&self, key: u64, mode: Mode) -> Acquired {
        let _ = (key, mode);
        Acquired {
            #[cfg(debug_assertions)]
            held: order::push(self.class, key),
            #[cfg(not(debug_assertions))]
            _held: Held::unchecked(),
            #[cfg(debug_assertions)]
            class: self.class,
            #[cfg(feature = "lockstat")]
            hold: stat::Hold::start(self.class, mode),
        }
    }
}

/// The trace of an acquisition in its guard. Must be dropped after the lock is released, so that
/// its work does not lengthen the hold time.
#[derive(Debug)]
pub(crate) struct Acquired {
    #[cfg(debug_assertions)]
    held: Held,
    #[cfg(not(debug_assertions))]
    _held: Held,
    #[cfg(debug_assertions)]
    class: &'static LockClass,
    #[cfg(feature = "lockstat")]
    hold: stat::Hold,
}

impl Acquired {
    /// The lock is about to be released by a condition variable.
    #[inline]
    #[track_caller]
    pub(crate) fn before_wait(&mut self) {
        #[cfg(debug_assertions)]
        self.held.check_wait(self.class);
        #[cfg(feature = "lockstat")]
        self.hold.pause();
    }

    /// The condition variable holds the lock again.
    #[inline]
    pub(crate) fn after_wait(&mut self) {
        #[cfg(feature = "lockstat")]
        self.hold.resume();
    }

    /// The lock is held shared from now on.
    #[inline]
    pub(crate) fn downgraded(&mut self) {
        #[cfg(feature = "lockstat")]
        self.hold.downgrade();
    }
}
