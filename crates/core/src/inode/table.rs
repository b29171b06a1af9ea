//! Inodes in memory.
//!
//! Lookups take no lock. Inodes are kept until the budget is used up; then those not asked for since
//! the hand last came by make room. An inode that somebody holds stays valid when it is forgotten
//! here; for a file system open for reading, loading it again gives an equal one.
//!
//! # Locking
//!
//! The hand's queue has one lock for each CPU shard, rank `LruShard`, held for pushes and pops only.
//! Bucket locks of the map (rank `CacheBucket`) are never held together with it.

use super::{Inode, LiveInode};
use extant_format::Ino;
use extant_sync::{EpochGuard, LockClass, Mutex, Rank, RcuMap, cpu_hint, pin, shard_count};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static BUCKET: LockClass = LockClass::new("inode bucket", Rank::CacheBucket);
static QUEUE: LockClass = LockClass::new("inode queue", Rank::LruShard);

/// What an inode is taken to cost beyond its record, its place in map and queue included.
const BYTES_PER_INODE: usize = 384;
/// Inodes the hand passes at most to find one to forget.
const HAND_STEPS: usize = 16;

/// The inodes in memory, by number.
#[derive(Debug)]
pub struct Table {
    map: RcuMap<Ino, Kept>,
    /// Inodes in the order the hand passes them.
    queues: Box<[Mutex<VecDeque<Ino>>]>,
    /// Most inodes in one queue.
    per_queue: usize,
}

#[derive(Debug)]
struct Kept {
    live: Arc<LiveInode>,
    /// Asked for since the hand last came by.
    used: AtomicBool,
}

impl Kept {
    /// Whether the inode was asked for since the last call. A use at the same moment may be lost.
    fn take_used(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        if used {
            self.used.store(false, Ordering::Relaxed);
        }
        used
    }
}

impl Table {
    /// A table that keeps about as many inodes with records of `inode_size` bytes as fit `budget`
    /// bytes.
    pub(crate) fn new(budget: usize, inode_size: u32) -> Self {
        let shards = shard_count().max(1);
        let cost = BYTES_PER_INODE + inode_size as usize;
        Self {
            map: RcuMap::new(&BUCKET, (shards * 32).max(128)),
            queues: (0..shards)
                .map(|_| Mutex::new(&QUEUE, VecDeque::new()))
                .collect(),
            per_queue: (budget / cost / shards).max(1),
        }
    }

    /// The inode, if it is in memory.
    #[inline]
    pub(super) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        let guard = pin();
        self.peek(ino, &guard)
            .map(|live| Arc::clone(live.image(&guard)))
    }

    /// The live inode, if it is in memory.
    #[inline]
    pub(super) fn get_live(&self, ino: Ino) -> Option<Arc<LiveInode>> {
        let guard = pin();
        self.peek(ino, &guard).map(Arc::clone)
    }

    /// The inode, if it is in memory, borrowed: not even a reference count changes.
    #[inline]
    pub(super) fn peek<'g>(
        &'g self,
        ino: Ino,
        guard: &'g EpochGuard,
    ) -> Option<&'g Arc<LiveInode>> {
        let kept = self.map.get(&ino, guard)?;
        // Stored only after the hand came by, so that a hot inode's line stays shared.
        if !kept.used.load(Ordering::Relaxed) {
            kept.used.store(true, Ordering::Relaxed);
        }
        Some(&kept.live)
    }

    /// Keeps an inode, unless another thread was first; returns the one that is kept.
    pub(super) fn insert(&self, inode: Arc<Inode>) -> Arc<LiveInode> {
        let ino = inode.ino();
        let kept = Kept {
            live: Arc::new(LiveInode::new(inode)),
            used: AtomicBool::new(false),
        };
        let guard = pin();
        let (winner, rejected) = self.map.get_or_insert(ino, kept, &guard);
        let winner = Arc::clone(&winner.live);
        if rejected.is_none() {
            self.make_room(ino);
        }
        winner
    }

    /// Number of inodes in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no inode is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Puts a new inode into the hand's way and forgets another one when there are too many.
    fn make_room(&self, new: Ino) {
        let Some(queue) = self.queues.get(cpu_hint() % self.queues.len().max(1)) else {
            return;
        };
        let mut victim = None;
        {
            let mut queue = queue.lock();
            queue.push_back(new);
            let guard = pin();
            let mut steps = 0;
            while queue.len() > self.per_queue {
                let Some(ino) = queue.pop_front() else { break };
                steps += 1;
                let used = self.map.get(&ino, &guard).is_some_and(Kept::take_used);
                if used && steps < HAND_STEPS {
                    queue.push_back(ino);
                } else {
                    victim = Some(ino);
                    break;
                }
            }
        }
        if let Some(ino) = victim {
            self.map.remove(&ino, &pin());
        }
    }
}
