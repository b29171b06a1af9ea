//! Panics that begin while something is under way.

/// Tells whether a panic began since this was made. A destructor that runs because of an earlier
/// panic may do whole operations: what those hold is not dropped before its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PanicWatch {
    unwinding: bool,
}

impl PanicWatch {
    #[inline]
    pub(super) fn begin() -> Self {
        Self {
            unwinding: std::thread::panicking(),
        }
    }

    #[inline]
    pub(super) fn has_panicked(self) -> bool {
        !self.unwinding && std::thread::panicking()
    }
}
