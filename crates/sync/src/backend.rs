//! Where atomics, fences and pauses come from.
//!
//! Everything in this crate that threads race on goes through here, so that a build of the crate
//! can hand the races to a model checker. In ordinary builds these are the standard library's
//! types under their own names.

/// Shared atomics.
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

/// Stands between two `SeqCst` accesses whose mutual order a proof rests on.
///
/// Nothing: the accesses themselves are enough.
#[inline(always)]
pub(crate) fn between_seqcst() {}

/// How often it pays to look again before sleeping.
pub(crate) const SPINS: u32 = 128;

/// Waits a moment between two looks.
#[inline]
pub(crate) fn spin() {
    std::hint::spin_loop();
}
