//! Holds on a shared thing, and whether it is leaving.

use crate::{CountedAtomicU64, RmwClass};
use std::sync::atomic::Ordering;

/// Set when the thing is leaving: nobody can take hold of it any more.
const LEAVING: u64 = 1 << 63;

/// Counts the holders of a thing that others find in a table, and lets one of them, or a thread
/// that finds that nobody does, claim it for its way out. From then on nobody takes hold of it.
///
/// # Invariants
///
/// - A hold is taken only while the thing is not leaving, and the claim succeeds only at the exact
///   count that its maker asked for. Both are one exchange of the same word, so one of the two is
///   first.
/// - A thread that claims sees what those did that let go before; the one that lets go last sees
///   what the others did.
#[derive(Debug)]
pub struct HoldCount(CountedAtomicU64);

impl HoldCount {
    /// A count of `holds` whose changes are counted under `class`.
    #[inline]
    #[must_use]
    pub fn new(class: &'static RmwClass, holds: u64) -> Self {
        Self(CountedAtomicU64::new(class, holds))
    }

    /// Takes hold, unless the thing is leaving; whether that was done.
    #[inline]
    pub fn try_hold(&self) -> bool {
        let mut count = self.0.load(Ordering::Relaxed);
        while count & LEAVING == 0 {
            match self.0.compare_exchange_weak(
                count,
                count + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// Takes hold once more, for a holder: so nobody can have claimed it.
    #[inline]
    pub fn hold_again(&self) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & LEAVING == 0, "a claimed hold is not shared");
    }

    /// Lets go. Whether nobody holds it now, and nobody has claimed it.
    #[inline]
    pub fn release(&self) -> bool {
        // Exactly 1: what is claimed is somebody's already.
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Claims it for its way out, if exactly so many hold it.
    #[inline]
    pub fn claim_if(&self, holds: u64) -> bool {
        self.0
            .compare_exchange(holds, LEAVING | holds, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends a claim: it stays after all.
    pub fn unclaim(&self) {
        self.0.fetch_and(!LEAVING, Ordering::Release);
    }

    /// Whether it is leaving, or has left.
    #[inline]
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.0.load(Ordering::Acquire) & LEAVING != 0
    }

    /// How many hold it.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire) & !LEAVING
    }
}
