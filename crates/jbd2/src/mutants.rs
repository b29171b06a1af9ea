//! Deliberate mistakes in writing the log, for tests that must find them.
//!
//! Without the feature `mutants` none can be made: the question is answered at compile time.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[cfg_attr(
    not(feature = "mutants"),
    expect(unreachable_pub, reason = "of use with the feature")
)]
pub enum LogMutant {
    /// A commit does not flush between the transaction and its commit block.
    FirstFlushDropped = 1,
    /// A commit does not flush after its commit block.
    SecondFlushDropped,
    /// The commit block is written before the blocks of the transaction.
    CommitBlockFirst,
}

#[cfg(feature = "mutants")]
mod switch {
    use super::LogMutant;
    use std::sync::atomic::{AtomicU8, Ordering};

    static ON: AtomicU8 = AtomicU8::new(0);

    /// Has the log written with this mistake, in the whole process.
    pub fn set(mutant: Option<LogMutant>) {
        ON.store(mutant.map_or(0, |mutant| mutant as u8), Ordering::SeqCst);
    }

    pub(crate) fn is_on(mutant: LogMutant) -> bool {
        ON.load(Ordering::Relaxed) == mutant as u8
    }
}

#[cfg(feature = "mutants")]
pub(crate) use switch::is_on;
#[cfg(feature = "mutants")]
pub use switch::set;

#[cfg(not(feature = "mutants"))]
pub(crate) const fn is_on(_: LogMutant) -> bool {
    false
}
