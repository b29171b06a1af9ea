//! Inodes that wait to be deleted.

use crate::inode::LiveInode;
use extant_sync::{LockClass, Mutex, PerCpu, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static QUEUE: LockClass = LockClass::new("inode reaper", Rank::Leaf);

/// Inodes without names that nobody holds any more. The last hold may end anywhere, under a handle
/// or a lock; deleting needs neither to be held, so it is done by threads that look here when they
/// hold nothing.
///
/// There is one for each CPU, so that not even the count of references to it is shared.
#[derive(Debug)]
pub(crate) struct Reaper {
    waiting: Mutex<Vec<Arc<LiveInode>>>,
    /// Whether any do. Stored under the lock.
    some: AtomicBool,
}

/// The reapers of all CPUs.
#[derive(Debug)]
pub(crate) struct Reapers {
    each: PerCpu<Arc<Reaper>>,
}

impl Reaper {
    /// Notes an inode. It may be noted more than once, and may have been taken hold of again.
    pub(crate) fn push(&self, live: Arc<LiveInode>) {
        let mut waiting = self.waiting.lock();
        waiting.push(live);
        self.some.store(true, Ordering::Release);
    }
}

impl Reapers {
    pub(super) fn new() -> Self {
        let reaper = || Reaper {
            waiting: Mutex::new(&QUEUE, Vec::new()),
            some: AtomicBool::new(false),
        };
        Self {
            each: PerCpu::new(|_| Arc::new(reaper())),
        }
    }

    /// The one of this CPU.
    pub(super) fn local(&self) -> &Arc<Reaper> {
        self.each.local()
    }

    /// Whether none wait.
    pub(crate) fn is_empty(&self) -> bool {
        let waits = |queue: &Arc<Reaper>| queue.some.load(Ordering::Acquire);
        !self.each.iter().any(waits)
    }

    /// Takes all that wait.
    pub(crate) fn take(&self) -> Vec<Arc<LiveInode>> {
        let mut taken = Vec::new();
        for queue in self.each.iter() {
            if queue.some.load(Ordering::Acquire) {
                let mut waiting = queue.waiting.lock();
                queue.some.store(false, Ordering::Release);
                taken.append(&mut waiting);
            }
        }
        taken
    }
}
