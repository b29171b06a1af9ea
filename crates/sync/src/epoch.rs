//! Epochs: what readers borrow under a guard is freed only after every such guard is gone.

use crate::order;
use std::marker::PhantomData;

/// Keeps what was found in a shared structure alive until it is dropped.
///
/// Cheap to take, and nested ones cheaper still. While one is held nothing that others retire is
/// freed, so it must not span a wait for a device; debug builds check this in
/// [`debug_assert_may_wait_for_device`](crate::debug_assert_may_wait_for_device).
pub struct EpochGuard {
    pub(crate) guard: crossbeam_epoch::Guard,
    _on_this_thread: PhantomData<*const ()>,
}

/// Enters the current epoch.
#[inline]
#[must_use]
pub fn pin() -> EpochGuard {
    order::epoch_entered();
    EpochGuard {
        guard: crossbeam_epoch::pin(),
        _on_this_thread: PhantomData,
    }
}

impl EpochGuard {
    /// Hands what this thread retired to everybody, so that it is freed soon.
    pub fn flush(&self) {
        self.guard.flush();
    }
}

impl Drop for EpochGuard {
    #[inline]
    fn drop(&mut self) {
        order::epoch_left();
    }
}

impl std::fmt::Debug for EpochGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EpochGuard")
    }
}
