//! First touch registers, later touches look.

use crate::backend::atomic::{AtomicU64, Ordering};
use crate::backend::const_unless_loom;

/// Remembers the last transaction in which an object was registered, so that of many threads that
/// touch it exactly one registers it.
///
/// Ids ascend and are not 0. The second and every later touch in a transaction costs one load.
///
/// ```
/// use extant_sync::FirstTouch;
///
/// let seen = FirstTouch::new();
/// assert!(seen.touch(7));
/// assert!(!seen.touch(7));
/// assert!(seen.touch(8));
/// assert_eq!(seen.last(), 8);
/// ```
#[derive(Debug)]
pub struct FirstTouch {
    last: AtomicU64,
}

impl FirstTouch {
    const_unless_loom! {
        /// Of an object that was never registered.
        #[must_use]
        pub const fn new() -> Self {
            Self {
                last: AtomicU64::new(0),
            }
        }
    }

    /// Whether this is the first touch in transaction `id`: the caller is then the one to register
    /// the object.
    ///
    /// `false` says that somebody registers the object or has done so, not that it is finished. To
    /// rely on its being finished, leave the transaction open until it is (a thread that registers
    /// is inside the same [`JoinGate`](crate::JoinGate)), or touch under the object's own lock.
    ///
    /// An `id` below one that was seen is never a first touch: a transaction ends before the next
    /// one's participants begin.
    #[inline]
    pub fn touch(&self, id: u64) -> bool {
        self.last.load(Ordering::Relaxed) < id && self.last.fetch_max(id, Ordering::AcqRel) < id
    }

    /// The id of the last transaction the object was registered in; 0 if there is none.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }
}

impl Default for FirstTouch {
    fn default() -> Self {
        Self::new()
    }
}
