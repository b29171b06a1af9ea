//! Inodes that wait to be deleted.

use crate::inode::LiveInode;
use extant_sync::{LockClass, Mutex, PerCpu, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static QUEUE: LockClass = LockClass::new("inode reaper", Rank::Leaf);

/// Inodes without names that nobody holds any more. The last hold may end anywhere, under a handle or
/// a lock; deleting needs neither to be held, so it is done by those who look here when they hold
/// nothing.
#[derive(Debug)]
pub(crate) struct Reaper {
    queues: PerCpu<Queue>,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<Vec<Arc<LiveInode>>>,
    /// Whether any do. Stored under the lock.
    some: AtomicBool,
}

impl Reaper {
    pub(super) fn new() -> Self {
        Self {
            queues: PerCpu::new(|_| Queue {
                waiting: Mutex::new(&QUEUE, Vec::new()),
                some: AtomicBool::new(false),
            }),
        }
    }

    /// Notes an inode. It may be noted more than once, and may have been taken hold of again.
    pub(crate) fn push(&self, live: Arc<LiveInode>) {
        let queue = self.queues.local();
        let mut waiting = queue.waiting.lock();
        waiting.push(live);
        queue.some.store(true, Ordering::Release);
    }

    /// Takes all that wait.
    pub(crate) fn take(&self) -> Vec<Arc<LiveInode>> {
        let mut taken = Vec::new();
        for queue in self.queues.iter() {
            if queue.some.load(Ordering::Acquire) {
                let mut waiting = queue.waiting.lock();
                queue.some.store(false, Ordering::Release);
                taken.append(&mut waiting);
            }
        }
        taken
    }
}
