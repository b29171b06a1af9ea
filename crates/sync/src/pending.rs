//! How much has come and not left: a sum that many CPUs change and that is never read as too
//! little.
//!
//! A single [`ShardedCounter`] that grows on one CPU and shrinks on another may be read as less
//! than it ever was, even as nothing: the reader passes a shard before something comes there, and
//! reaches another one after it left from that. So what came and what left are sums of their own,
//! and both only grow. A reader adds up first what left.
//!
//! # Invariant
//! What left in the eyes of a reader came in its eyes, too: a thread that lets something leave has
//! a release fence before it, and the reader an acquire fence between the two sums. That it came
//! happens before it leaves is up to the callers, which hand over what is counted under some lock.

use crate::ShardedCounter;
use crate::atomic::{Ordering, fence};

/// See the module.
#[derive(Debug, Default)]
pub struct PendingSum {
    came: ShardedCounter,
    left: ShardedCounter,
}

impl PendingSum {
    /// Nothing has come yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `n` came.
    #[inline]
    pub fn come(&self, n: u32) {
        self.came.add(n.into());
    }

    /// Notes that `n` of those that came have left. A thread that sees that in [`sum`](Self::sum)
    /// sees everything that the caller did before.
    #[inline]
    pub fn leave(&self, n: u32) {
        fence(Ordering::Release);
        self.left.add(n.into());
    }

    /// What has come and not left. Never less than there is at some moment of the call, so negative
    /// only if more left than came.
    #[must_use]
    pub fn sum(&self) -> i64 {
        let left = self.left.sum();
        fence(Ordering::Acquire);
        self.came.sum().wrapping_sub(left)
    }

    /// [`sum`](Self::sum), where no more left than came.
    #[must_use]
    pub fn count(&self) -> u64 {
        u64::try_from(self.sum()).unwrap_or(0)
    }
}
