//! How much memory the layers of one file take together.
//!
//! A compressed disk may hold another one, and each has something in memory. What bounds them is of
//! the file, not of each.

use extant_sync::{CountedAtomicI64, RmwClass};
use std::sync::Arc;
use std::sync::atomic::Ordering;

static LEFT: RmwClass = RmwClass::new("memory left for layers");

/// Bytes that all layers of a file may keep.
pub(crate) const MOST: usize = 512 << 20;

/// What is left for the layers of a file.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    left: Arc<CountedAtomicI64>,
}

/// What one layer has of it. It goes back when the layer does.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            left: Arc::new(CountedAtomicI64::new(&LEFT, bytes as i64)),
        }
    }

    /// The share of a layer that has nothing yet.
    pub(crate) fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

impl Share {
    /// Takes more. Returns `false`, and takes nothing, if there is not so much left.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self
            .budget
            .left
            .fetch_add(-(bytes as i64), Ordering::Relaxed)
            >= bytes as i64
        {
            return true;
        }
        self.shrink_to(self.bytes - bytes);
        false
    }

    /// Gives back all but so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.budget.left.fetch_add(back as i64, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_leaves_room_for_what_comes() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.grow(60) && !other.grow(41) && other.grow(40) && !one.grow(1));
        one.shrink_to(20);
        assert!(other.grow(40) && !other.grow(1));
        drop(other);
        assert!(one.grow(80) && !one.grow(1));
        assert_eq!(one.bytes(), 100);
    }
}
