//! Inodes in memory.
//!
//! Lookups take no lock. Inodes are kept until the budget is used up; then those not asked for since
//! the hand last came by make room.
//!
//! # Invariants
//!
//! - An inode that somebody holds, that is an orphan, whose newest image is not durable, or whose data is
//!   newer than the device, is never forgotten. To be forgotten an inode is claimed first, so that nobody can take hold of it,
//!   and only then looked at.
//! - An inode that was freed stays here, dead, until a commit has encoded that, or until its number is
//!   used again: the record on the device, and the block that holds it, still show it alive.
//! - A record that was read before an inode of that number changed and was forgotten does not come
//!   back: a loader notes the *turn* of the number before it reads, and inserts what it read only if
//!   no changed inode was forgotten in that turn.
//!
//! # Locking
//!
//! The hand's queue has one lock for each CPU shard, rank `LruShard`, held for pushes and pops only.
//! Bucket locks of the map (rank `CacheBucket`) are never held together with it.

use super::LiveInode;
use super::orphan::Membership;
use crate::journal::Seq;
use extant_format::Ino;
use extant_sync::{
    CountedAtomicU64, EpochGuard, LockClass, Mutex, Rank, RcuMap, RmwClass, cpu_hint, pin,
    shard_count,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static BUCKET: LockClass = LockClass::new("inode bucket", Rank::CacheBucket);
static QUEUE: LockClass = LockClass::new("inode queue", Rank::LruShard);
static TURNS: RmwClass = RmwClass::new("inode turns");

/// What an inode is taken to cost beyond its record, its place in map and queue included.
const BYTES_PER_INODE: usize = 256;
/// Inodes the hand passes at most to find those to forget.
const HAND_STEPS: usize = 16;
/// Inodes forgotten at most for each that comes in: more than one, so that a table that had to grow
/// past its budget shrinks again.
const VICTIMS: usize = 2;
/// Turns are counted for this many classes of numbers.
const TURN_CLASSES: usize = 64;
/// Inodes in a bucket of the map, about, when the budget is used up and that is large.
const IN_BUCKET: usize = 256;
/// Inodes that go into the hand's way with the lock taken once.
const BATCH: usize = 32;

/// The inodes in memory, by number.
#[derive(Debug)]
pub struct Table {
    map: RcuMap<Ino, Kept>,
    #[cfg(feature = "baseline")]
    one_lock: OneLock,
    /// Inodes in the order the hand passes them.
    queues: Box<[Mutex<VecDeque<Ino>>]>,
    /// Most inodes in one queue.
    per_queue: usize,
    /// The newest transaction that is durable.
    durable: AtomicU64,
    /// How many changed inodes of a class of numbers were forgotten.
    turns: Box<[CountedAtomicU64]>,
}

#[derive(Debug)]
struct Kept {
    live: Arc<LiveInode>,
    /// Asked for since the hand last came by.
    used: AtomicBool,
}

impl Kept {
    fn new(live: Arc<LiveInode>) -> Self {
        Self {
            live,
            used: AtomicBool::new(false),
        }
    }

    /// Whether the inode was asked for since the last call. A use at the same moment may be lost.
    fn take_used(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        if used {
            self.used.store(false, Ordering::Relaxed);
        }
        used
    }
}

/// A moment before a record was read; see [`Table::insert`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn(u64);

/// The same for records of any numbers.
#[derive(Debug)]
pub(super) struct Turns([u64; TURN_CLASSES]);

impl Turns {
    fn of(&self, ino: Ino) -> Turn {
        Turn(self.0[ino.get() as usize % TURN_CLASSES])
    }
}

impl Table {
    /// A table that keeps about as many inodes with records of `inode_size` bytes as fit `budget`
    /// bytes.
    pub(crate) fn new(budget: usize, inode_size: u32) -> Self {
        let shards = shard_count().max(1);
        let cost = BYTES_PER_INODE + inode_size as usize;
        let most = budget / cost;
        let buckets = (shards * 32).max(128).max(most / IN_BUCKET);
        Self {
            #[cfg(feature = "baseline")]
            one_lock: OneLock::default(),
            map: RcuMap::new(&BUCKET, buckets).expecting(most),
            queues: (0..shards)
                .map(|_| Mutex::new(&QUEUE, VecDeque::new()))
                .collect(),
            per_queue: (most / shards).max(1),
            durable: AtomicU64::new(Seq::NONE.get()),
            turns: (0..TURN_CLASSES)
                .map(|_| CountedAtomicU64::new(&TURNS, 0))
                .collect(),
        }
    }

    /// The live inode, if it is in memory.
    #[inline]
    pub(crate) fn get_live(&self, ino: Ino) -> Option<Arc<LiveInode>> {
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
        #[cfg(feature = "baseline")]
        let _held = self.one_lock.lock();
        let kept = self.map.get(&ino, guard)?;
        // Stored only after the hand came by, so that a hot inode's line stays shared.
        if !kept.used.load(Ordering::Relaxed) {
            kept.used.store(true, Ordering::Relaxed);
        }
        Some(&kept.live)
    }

    /// What to note before the record of `ino` is read.
    pub(super) fn turn(&self, ino: Ino) -> Turn {
        Turn(self.turn_of(ino).load(Ordering::Acquire))
    }

    /// Keeps an inode whose record was read after `turn` was noted, unless another thread was first;
    /// returns the one that is kept. `None` says that the record may be old, and is to be read
    /// again.
    pub(super) fn insert(&self, live: Arc<LiveInode>, turn: Turn) -> Option<Arc<LiveInode>> {
        let ino = live.ino();
        let guard = pin();
        let (winner, is_new) = self.insert_one(live, turn, &guard)?;
        let winner = Arc::clone(winner);
        drop(guard);
        if is_new {
            self.make_room(&[ino], &mut [Ino::default(); VICTIMS]);
        }
        Some(winner)
    }

    /// The inode that is kept, and whether that is `live`.
    fn insert_one<'g>(
        &'g self,
        live: Arc<LiveInode>,
        turn: Turn,
        guard: &'g EpochGuard,
    ) -> Option<(&'g Arc<LiveInode>, bool)> {
        #[cfg(feature = "baseline")]
        let _held = self.one_lock.lock();
        let ino = live.ino();
        let same_turn = || self.turn(ino).0 == turn.0;
        let inserted = self
            .map
            .get_or_insert_if(ino, Kept::new(live), same_turn, guard);
        let (winner, rejected) = inserted.ok()?;
        Some((&winner.live, rejected.is_none()))
    }

    /// What to note before records of many inodes are read.
    pub(super) fn turns(&self) -> Turns {
        let mut turns = [0; TURN_CLASSES];
        for (noted, turn) in turns.iter_mut().zip(&self.turns) {
            *noted = turn.load(Ordering::Acquire);
        }
        Turns(turns)
    }

    /// Keeps inodes whose records were read after `turns` were noted, but for those that are kept
    /// already and those whose records may be old. Empties `loaded`.
    pub(super) fn insert_all(&self, loaded: &mut Vec<Arc<LiveInode>>, turns: &Turns) {
        let mut loaded = loaded.drain(..);
        while loaded.len() > 0 {
            let mut new = [Ino::default(); BATCH];
            let mut len = 0;
            let guard = pin();
            for live in loaded.by_ref().take(BATCH) {
                let ino = live.ino();
                if let Some((_, true)) = self.insert_one(live, turns.of(ino), &guard) {
                    new[len] = ino;
                    len += 1;
                }
            }
            drop(guard);
            self.make_room(
                &new[..len],
                &mut [Ino::default(); VICTIMS * BATCH][..VICTIMS * len],
            );
        }
    }

    /// Makes a new inode known, in place of the dead one that had the number before.
    pub(super) fn publish(&self, live: Arc<LiveInode>) {
        let ino = live.ino();
        {
            #[cfg(feature = "baseline")]
            let _held = self.one_lock.lock();
            self.map.replace(ino, Kept::new(live), &pin());
        }
        self.make_room(&[ino], &mut [Ino::default(); VICTIMS]);
    }

    /// Notes that transaction `seq` and those before it are durable: the records of the inodes they
    /// changed can be had from the blocks of the inode table, and no `fsync` has to wait for them.
    pub(crate) fn set_durable(&self, seq: Seq) {
        self.durable.store(seq.get(), Ordering::Release);
        for queue in &self.queues {
            self.trim(queue);
        }
    }

    /// Forgets inodes that had to stay past the budget until now. Each is passed twice at most: those
    /// asked for lately are spared the first time.
    fn trim(&self, queue: &Mutex<VecDeque<Ino>>) {
        let mut steps = 2 * queue.lock().len();
        while steps > 0 {
            steps -= 1;
            let next = {
                let mut queue = queue.lock();
                (queue.len() > self.per_queue)
                    .then(|| queue.pop_front())
                    .flatten()
            };
            let Some(ino) = next else { return };
            let used = self.map.get(&ino, &pin()).is_some_and(Kept::take_used);
            if used || !self.forget(ino) {
                queue.lock().push_back(ino);
            }
        }
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

    fn turn_of(&self, ino: Ino) -> &CountedAtomicU64 {
        &self.turns[ino.get() as usize % TURN_CLASSES]
    }

    /// Puts new inodes into the hand's way and forgets others when there are too many: as many as
    /// there are places for `victims`.
    fn make_room(&self, new: &[Ino], victims: &mut [Ino]) {
        let Some(queue) = self.queues.get(cpu_hint() % self.queues.len().max(1)) else {
            return;
        };
        let mut found = 0;
        {
            let mut queue = queue.lock();
            queue.extend(new);
            if queue.len() <= self.per_queue {
                return;
            }
            let guard = pin();
            let mut steps = HAND_STEPS * new.len();
            while queue.len() > self.per_queue
                && let Some(place) = victims.get_mut(found)
                && let Some(ino) = queue.pop_front()
            {
                steps = steps.saturating_sub(1);
                let used = self.map.get(&ino, &guard).is_some_and(Kept::take_used);
                if used && steps > 0 {
                    queue.push_back(ino);
                } else {
                    *place = ino;
                    found += 1;
                }
            }
        }
        // Those that stay move to the front of the victims, and go back together.
        let mut stay = 0;
        for at in 0..found {
            if !self.forget(victims[at]) {
                victims[stay] = victims[at];
                stay += 1;
            }
        }
        if stay > 0 {
            queue.lock().extend(&victims[..stay]);
        }
    }

    /// Forgets an inode unless it must stay; whether it is gone.
    fn forget(&self, ino: Ino) -> bool {
        let guard = pin();
        let Some(live) = self.map.get(&ino, &guard).map(|kept| &kept.live) else {
            return true;
        };
        let dead = live.image(&guard).is_freed();
        if !dead && !live.claim_if_unheld() {
            return false;
        }
        // Nobody can change it any more: what is seen now stays so.
        if !self.may_go(live) {
            if !dead {
                live.unclaim();
            }
            return false;
        }
        if live.last_seq() != Seq::NONE {
            // Before it is gone, so that whoever finds it gone also finds the turn over.
            let turn: &CountedAtomicU64 = self.turn_of(ino);
            turn.fetch_add(1, Ordering::AcqRel);
        }
        #[cfg(feature = "baseline")]
        let _held = self.one_lock.lock();
        self.map
            .remove_if(&ino, |kept| Arc::ptr_eq(&kept.live, live), &guard);
        true
    }

    fn may_go(&self, live: &LiveInode) -> bool {
        live.last_seq().get() <= self.durable.load(Ordering::Acquire)
            && live.membership() == Membership::None
            && live.is_stored()
    }
}

/// The unimproved form, to compare with: one lock for the hash table, one list under one lock.
#[cfg(feature = "baseline")]
#[derive(Debug)]
struct OneLock {
    chosen: bool,
    hash: Mutex<()>,
}

#[cfg(feature = "baseline")]
static HASH: LockClass = LockClass::new("one inode hash lock", Rank::JournalRunning);
#[cfg(feature = "baseline")]
static LIST: LockClass = LockClass::new("one inode list", Rank::LruShard);

#[cfg(feature = "baseline")]
impl Default for OneLock {
    fn default() -> Self {
        Self {
            chosen: false,
            hash: Mutex::new(&HASH, ()),
        }
    }
}

#[cfg(feature = "baseline")]
impl OneLock {
    fn lock(&self) -> Option<extant_sync::MutexGuard<'_, ()>> {
        self.chosen.then(|| self.hash.lock())
    }
}

#[cfg(feature = "baseline")]
impl Table {
    /// The same with one lock for the hash table and one list, or without.
    pub(crate) fn with_one_lock(mut self, chosen: bool) -> Self {
        if chosen {
            self.one_lock.chosen = true;
            self.per_queue *= self.queues.len();
            self.queues = Box::new([Mutex::new(&LIST, VecDeque::new())]);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::Inode;

    /// What the allocator adds to each allocation.
    const HEADER: usize = 8;

    #[test]
    fn a_cached_clean_inode_takes_512_bytes_at_most() {
        let arc = 2 * size_of::<usize>();
        let image = arc + size_of::<Inode>() + HEADER;
        let live = arc + size_of::<LiveInode>() + HEADER;
        let entry = size_of::<(Ino, Kept)>() + HEADER;
        // Slots of the map are between half and an eighth in use; the queue's are a number each.
        let slots = 3 * size_of::<usize>() + 2 * size_of::<Ino>();
        let total = image + live + entry + slots;
        // Debug builds keep the class in each lock.
        let allowed = if cfg!(debug_assertions) {
            512 + 32
        } else {
            512
        };
        assert!(
            total <= allowed,
            "{image} + {live} + {entry} + {slots} = {total}"
        );
    }
}
