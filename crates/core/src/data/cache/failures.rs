//! What went wrong when a file was written back, until every open file has been told.

use crate::Error;
use extant_sync::{CountedAtomicU64, LockClass, Mutex, Rank, RmwClass};
use std::sync::atomic::Ordering;

static FAILURE: LockClass = LockClass::new("writeback failure", Rank::Leaf);
static FAILURES: RmwClass = RmwClass::new("writeback failures of a file");

/// How often writeback of a file failed, and the last reason.
#[derive(Debug)]
pub(in crate::data) struct Failures {
    count: CountedAtomicU64,
    last: Mutex<Option<Error>>,
}

impl Failures {
    /// Makes those of a file whose writeback never failed.
    pub(super) fn new() -> Self {
        Self {
            count: CountedAtomicU64::new(&FAILURES, 0),
            last: Mutex::new(&FAILURE, None),
        }
    }

    /// Notes that writeback failed. Every open file hears of it once.
    pub(in crate::data) fn note(&self, error: &Error) {
        *self.last.lock() = Some(error.clone());
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how often writeback failed so far.
    pub(in crate::data) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns why writeback failed last; `None` if it never did.
    pub(in crate::data) fn last(&self) -> Option<Error> {
        self.last.lock().clone()
    }
}
