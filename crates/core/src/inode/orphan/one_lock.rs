//! The unimproved form, to compare with: one lock for all orphans, held while it is found out
//! whether there is anything to do, and while what the change needs is prepared.

use super::Orphans;
use extant_sync::{LockClass, Mutex, MutexGuard, Rank};
use std::sync::OnceLock;

static ONE: LockClass = LockClass::new("one orphan lock", Rank::Xattr);

/// The lock, if that form is in use.
#[derive(Debug)]
pub(super) struct OneLock {
    chosen: OnceLock<bool>,
    lock: Mutex<()>,
}

impl Default for OneLock {
    fn default() -> Self {
        Self {
            chosen: OnceLock::new(),
            lock: Mutex::new(&ONE, ()),
        }
    }
}

impl OneLock {
    /// The lock, taken, if that form is in use.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        let chosen = self.chosen.get().copied().unwrap_or(false);
        chosen.then(|| self.lock.lock())
    }
}

impl Orphans {
    /// Returns the orphans with one lock for all of them, or without.
    pub(crate) fn with_one_lock(self, chosen: bool) -> Self {
        let _ = self.one_lock.chosen.set(chosen);
        self
    }
}
