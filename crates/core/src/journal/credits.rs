//! Room in the running transaction.

use extant_sync::{CountedAtomicI64, RmwClass};
use std::sync::atomic::Ordering;

static LEFT: RmwClass = RmwClass::new("journal credits");

/// Blocks that the running transaction may still take.
#[derive(Debug)]
pub(super) struct Credits {
    left: CountedAtomicI64,
    blocks: u32,
}

impl Credits {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            left: CountedAtomicI64::new(&LEFT, blocks.into()),
            blocks,
        }
    }

    /// Takes room for `blocks`, if there is as much.
    pub(super) fn take(&self, blocks: u32) -> bool {
        let before = self.left.fetch_sub(blocks.into(), Ordering::Relaxed);
        if before >= i64::from(blocks) {
            return true;
        }
        self.left.fetch_add(blocks.into(), Ordering::Relaxed);
        false
    }

    /// Gives back what was not used.
    pub(super) fn give_back(&self, blocks: u32) {
        if blocks > 0 {
            self.left.fetch_add(blocks.into(), Ordering::Relaxed);
        }
    }

    /// A new transaction begins, with all its room.
    #[expect(dead_code, reason = "commit begins transactions")]
    pub(super) fn reset(&self) {
        self.left.store(self.blocks.into(), Ordering::Relaxed);
    }
}
