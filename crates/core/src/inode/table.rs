//! Inodes in memory.
//!
//! Lookups take no lock. Inodes are kept until the budget is used up; then those not asked for
//! since the hand last came by make room.
//!
//! The map holds *leaves*: the places of 16 inodes whose numbers follow each other, which mostly
//! are those of one block of the inode table. A thread that looks at one inode finds its neighbours
//! next to it, and they come and go together.
//!
//! # Invariants
//!
//! - An inode that somebody holds, that is an orphan, whose newest image is not durable, or whose
//!   data is newer than the device, is never forgotten. To be forgotten an inode is claimed first,
//!   so that nobody can take hold of it, and only then looked at.
//! - An inode that was freed stays here, dead, until a commit has encoded that, or until its number
//!   is used again: the record on the device, and the block that holds it, still show it alive.
//! - A record that was read before an inode of that number changed and was forgotten does not come
//!   back: a loader notes the *turn* of the number before it reads, and inserts what it read only
//!   if no changed inode was forgotten in that turn.
//! - A leaf in the map has an inode, and one place in a queue, or is on its way there or from
//!   there. Its places change under the lock of its bucket.
//!
//! # Locking
//!
//! The hand's queue has one lock for each CPU shard, rank `LruShard`, held for pushes and pops
//! only. Bucket locks of the map (rank `CacheBucket`) are never held together with it.

use super::LiveInode;
use super::orphan::Membership;
use crate::fs::Shed;
use crate::meta::Seq;
use extant_format::Ino;
use extant_sync::{
    CountedAtomicI64, CountedAtomicU64, EpochGuard, LockClass, Mutex, PerCpu, Rank, RcuMap,
    RcuSlot, RmwClass, cpu_hint, pin, shard_count,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static BUCKET: LockClass = LockClass::new("inode bucket", Rank::CacheBucket);
static QUEUE: LockClass = LockClass::new("inode queue", Rank::LruShard);
static TURNS: RmwClass = RmwClass::new("inode turns");
static COUNT: RmwClass = RmwClass::new("inodes in memory");

/// Places of a leaf.
pub(super) const LEAF: usize = 16;
/// What an inode is taken to cost beyond its record.
const BYTES_PER_INODE: usize = 240;
/// What a leaf is taken to cost, its place in map and queue included.
const BYTES_PER_LEAF: usize = 256;
/// Leaves the hand passes at most, for each that comes in, to find inodes to forget.
const HAND_STEPS: usize = 16;
/// Inodes forgotten at least for each that comes in, if there are so many too many: more than one,
/// so that a table that had to grow past its budget shrinks again.
const VICTIMS: usize = 2;
/// Whether there are too many inodes is asked once for so many that come in on one CPU, if there is
/// room for many.
const ASK_ONCE_IN: i64 = LEAF as i64;
/// Turns are counted for this many classes of numbers.
const TURN_CLASSES: usize = 64;
/// Buckets of the map at least, unless the budget has room for fewer leaves.
const FEW_LEAVES: usize = 128;
/// Leaves in a bucket of the map, about, when the budget is used up and that is large.
const IN_BUCKET: usize = 64;

/// The inodes in memory, by number.
#[derive(Debug)]
pub struct Table {
    map: RcuMap<LeafKey, Leaf>,
    #[cfg(feature = "baseline")]
    one_lock: OneLock,
    /// Leaves in the order the hand passes them.
    queues: Box<[Mutex<VecDeque<LeafKey>>]>,
    /// How many came in less how many were forgotten, by the CPU that did it.
    counts: PerCpu<Counts>,
    /// Bytes that an inode is taken to cost.
    cost: i64,
    /// Bytes that all may take.
    budget: i64,
    /// See [`ASK_ONCE_IN`].
    ask_once_in: i64,
    /// The newest transaction that is durable.
    durable: AtomicU64,
    /// How many changed inodes of a class of numbers were forgotten.
    turns: Box<[CountedAtomicU64]>,
}

/// What the numbers of the inodes of a leaf have in common.
type LeafKey = u32;

/// The places of inodes whose numbers follow each other.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    places: [RcuSlot<LiveInode>; LEAF],
    /// Asked for since the hand last came by.
    used: [AtomicBool; LEAF],
}

#[derive(Debug)]
struct Counts {
    inodes: CountedAtomicI64,
    leaves: CountedAtomicI64,
}

/// The leaf that an inode of this number is in, and its place there. Blocks of the inode table
/// begin with the same numbers as leaves, as inodes count from 1.
#[inline]
fn place_of(ino: Ino) -> (LeafKey, usize) {
    let index = ino.get().wrapping_sub(1);
    (index / LEAF as u32, index as usize % LEAF)
}

impl Leaf {
    /// The inode at `place`, if it is in memory; notes that it was asked for.
    #[inline]
    fn peek<'g>(&'g self, place: usize, guard: &'g EpochGuard) -> Option<&'g LiveInode> {
        let live = self.places.get(place)?.get(guard)?;
        self.note_use(place);
        Some(live)
    }

    /// Stored only after the hand came by, so that a hot inode's line stays shared.
    #[inline]
    fn note_use(&self, place: usize) {
        if let Some(used) = self.used.get(place)
            && !used.load(Ordering::Relaxed)
        {
            used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the inode was asked for since the last call. A use at the same moment may be lost.
    fn take_used(&self, place: usize) -> bool {
        let Some(used) = self.used.get(place) else {
            return false;
        };
        let was = used.load(Ordering::Relaxed);
        if was {
            used.store(false, Ordering::Relaxed);
        }
        was
    }

    fn is_empty(&self) -> bool {
        self.places.iter().all(RcuSlot::is_empty)
    }

    /// Puts an inode in its place, which holds none or one that is dead. Under the bucket's lock.
    fn put(&self, place: usize, live: Arc<LiveInode>, guard: &EpochGuard) {
        if let (Some(to), Some(used)) = (self.places.get(place), self.used.get(place)) {
            // The first one of a leaf is last in the hand's way; others may have it come by at
            // once.
            used.store(!self.is_empty(), Ordering::Relaxed);
            to.put(live, guard);
        }
    }
}

/// What became of inodes that were to come into a leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    /// How many did.
    inodes: usize,
    /// They are the first ones of the leaf.
    is_new_leaf: bool,
}

/// What became of a leaf that the hand came by.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    forgotten: usize,
    /// There still are inodes in it.
    stays: bool,
}

/// A moment before a record was read; see [`Table::insert`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn(u64);

/// Turns of records of any numbers.
#[derive(Debug)]
pub(crate) struct Turns([u64; TURN_CLASSES]);

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
        let leaves = budget / (cost * LEAF + BYTES_PER_LEAF);
        let buckets = match leaves {
            // What keeps next to nothing takes next to nothing.
            few @ ..FEW_LEAVES => few.max(1),
            _ => (shards * 32).max(FEW_LEAVES).max(leaves / IN_BUCKET),
        };
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        Self {
            #[cfg(feature = "baseline")]
            one_lock: OneLock::default(),
            map: RcuMap::new(&BUCKET, buckets).expecting(leaves),
            queues: (0..shards)
                .map(|_| Mutex::new(&QUEUE, VecDeque::new()))
                .collect(),
            counts: PerCpu::new(|_| Counts {
                inodes: CountedAtomicI64::new(&COUNT, 0),
                leaves: CountedAtomicI64::new(&COUNT, 0),
            }),
            cost: signed(cost),
            budget: signed(budget),
            ask_once_in: signed(budget / cost / LEAF).clamp(1, ASK_ONCE_IN),
            durable: AtomicU64::new(Seq::NONE.get()),
            turns: (0..TURN_CLASSES)
                .map(|_| CountedAtomicU64::new(&TURNS, 0))
                .collect(),
        }
    }

    /// The live inode, if it is in memory.
    #[inline]
    pub(crate) fn get_live(&self, ino: Ino) -> Option<Arc<LiveInode>> {
        #[cfg(feature = "baseline")]
        let _held = self.one_lock.lock();
        let guard = pin();
        let (key, place) = place_of(ino);
        let leaf = self.map.get(&key, &guard)?;
        let live = leaf.places.get(place)?.load(&guard)?;
        leaf.note_use(place);
        Some(live)
    }

    /// The inode, if it is in memory, borrowed: not even a reference count changes.
    #[inline]
    pub(crate) fn peek<'g>(&'g self, ino: Ino, guard: &'g EpochGuard) -> Option<&'g LiveInode> {
        #[cfg(feature = "baseline")]
        let _held = self.one_lock.lock();
        let (key, place) = place_of(ino);
        self.map.get(&key, guard)?.peek(place, guard)
    }

    /// The leaf of inodes around this number, if any of them is in memory: those whose numbers less
    /// one are the same multiple of [`LEAF`] and the place in it.
    #[inline]
    pub(super) fn leaf<'g>(&'g self, ino: Ino, guard: &'g EpochGuard) -> Option<&'g Leaf> {
        let (key, _) = place_of(ino);
        self.map.get(&key, guard)
    }

    /// As [`peek`](Self::peek), of an inode at a place of a leaf.
    #[inline]
    pub(super) fn peek_in<'g>(
        &'g self,
        leaf: &'g Leaf,
        place: usize,
        guard: &'g EpochGuard,
    ) -> Option<&'g LiveInode> {
        #[cfg(feature = "baseline")]
        let _held = self.one_lock.lock();
        leaf.peek(place, guard)
    }

    /// What to note before the record of `ino` is read.
    pub(crate) fn turn(&self, ino: Ino) -> Turn {
        Turn(self.turn_of(ino).load(Ordering::Acquire))
    }

    /// Keeps an inode whose record was read after `turn` was noted, unless another thread was
    /// first; returns the one that is kept. `None` says that the record may be old, and is to be
    /// read again.
    pub(crate) fn insert(&self, live: Arc<LiveInode>, turn: Turn) -> Option<Arc<LiveInode>> {
        let (key, place) = place_of(live.ino());
        let guard = pin();
        let (kept, came) = self.update(
            key,
            |leaf| {
                let is_new_leaf = leaf.is_empty();
                let known = leaf.places.get(place).and_then(|known| known.load(&guard));
                let (kept, inodes) = match known {
                    Some(known) => (Some(known), 0),
                    None if self.turn(live.ino()).0 == turn.0 => {
                        leaf.put(place, Arc::clone(&live), &guard);
                        (Some(live), 1)
                    }
                    None => (None, 0),
                };
                let came = Came {
                    inodes,
                    is_new_leaf,
                };
                ((kept, came), !is_new_leaf || inodes > 0)
            },
            &guard,
        );
        drop(guard);
        // What was asked for is not forgotten before it is handed out.
        self.came(key, came, Some(place));
        kept
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
    /// already and those whose records may be old. They come in ascending order. Empties `loaded`.
    pub(super) fn insert_all(&self, loaded: &mut Vec<Arc<LiveInode>>, turns: &Turns) {
        let key_of = |live: &Arc<LiveInode>| place_of(live.ino()).0;
        let mut loaded = loaded.drain(..).peekable();
        while let Some(key) = loaded.peek().map(key_of) {
            let guard = pin();
            let came = self.update(
                key,
                |leaf| {
                    let is_new_leaf = leaf.is_empty();
                    let mut inodes = 0;
                    while let Some(live) = loaded.next_if(|live| key_of(live) == key) {
                        let (_, place) = place_of(live.ino());
                        let is_free = leaf.places.get(place).is_some_and(RcuSlot::is_empty);
                        if is_free && self.turn(live.ino()).0 == turns.of(live.ino()).0 {
                            leaf.put(place, live, &guard);
                            inodes += 1;
                        }
                    }
                    let came = Came {
                        inodes,
                        is_new_leaf,
                    };
                    (came, !is_new_leaf || inodes > 0)
                },
                &guard,
            );
            drop(guard);
            self.came(key, came, None);
        }
    }

    /// Makes a new inode known, in place of the dead one that had the number before.
    pub(crate) fn publish(&self, live: Arc<LiveInode>) {
        let (key, place) = place_of(live.ino());
        let guard = pin();
        let came = self.update(
            key,
            |leaf| {
                let is_new_leaf = leaf.is_empty();
                let was_empty = leaf.places.get(place).is_some_and(RcuSlot::is_empty);
                leaf.put(place, live, &guard);
                let came = Came {
                    inodes: usize::from(was_empty),
                    is_new_leaf,
                };
                (came, true)
            },
            &guard,
        );
        drop(guard);
        self.came(key, came, None);
    }

    /// Changes a leaf under the lock of its bucket; see [`RcuMap::update`].
    fn update<R>(
        &self,
        key: LeafKey,
        change: impl FnOnce(&Leaf) -> (R, bool),
        guard: &EpochGuard,
    ) -> R {
        #[cfg(feature = "baseline")]
        let _held = self.one_lock.change();
        self.map.update(key, change, guard)
    }

    /// Counts what came into a leaf, and makes room for it, but not with what is at the place
    /// `kept` there. The caller holds nothing.
    fn came(&self, key: LeafKey, came: Came, kept: Option<usize>) {
        if came.inodes == 0 {
            return;
        }
        let counts = self.counts.local();
        let more = came.inodes as i64;
        let before = counts.inodes.fetch_add(more, Ordering::Relaxed);
        let is_new_leaf = came.is_new_leaf;
        if is_new_leaf {
            counts.leaves.fetch_add(1, Ordering::Relaxed);
        }
        if is_new_leaf || before / self.ask_once_in != (before + more) / self.ask_once_in {
            self.make_room(key, came, kept);
        }
    }

    /// Notes that transaction `seq` and those before it are durable: the records of the inodes they
    /// changed can be had from the blocks of the inode table, and no `fsync` has to wait for them.
    pub(crate) fn set_durable(&self, seq: Seq) {
        self.durable.store(seq.get(), Ordering::Release);
        for queue in &self.queues {
            self.trim(queue);
        }
    }

    /// Forgets inodes that had to stay past the budget until now. Each is passed twice at most:
    /// those asked for lately are spared the first time.
    fn trim(&self, queue: &Mutex<VecDeque<LeafKey>>) {
        if self.excess() <= 0 {
            return;
        }
        let mut steps = 2 * queue.lock().len();
        while steps > 0 && self.excess() > 0 {
            steps -= 1;
            let Some(key) = queue.lock().pop_front() else {
                return;
            };
            if self.pass(key, true, None).stays {
                queue.lock().push_back(key);
            }
        }
    }

    /// Forgets inodes that need not stay: those that nobody asked for since the last call, or all.
    pub(crate) fn shed(&self, what: Shed) {
        for queue in &self.queues {
            let steps = queue.lock().len();
            for _ in 0..steps {
                let Some(key) = queue.lock().pop_front() else {
                    break;
                };
                if self.pass(key, what == Shed::Unused, None).stays {
                    queue.lock().push_back(key);
                }
            }
        }
    }

    /// Number of inodes in memory; while others change that, about so many.
    #[must_use]
    pub fn len(&self) -> usize {
        let inodes = |counts: &Counts| counts.inodes.load(Ordering::Relaxed);
        usize::try_from(self.counts.iter().map(inodes).sum::<i64>()).unwrap_or(0)
    }

    /// Whether no inode is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// How many inodes there are too many.
    fn excess(&self) -> i64 {
        let sums = self.counts.iter().fold((0, 0), |(inodes, leaves), counts| {
            (
                inodes + counts.inodes.load(Ordering::Relaxed),
                leaves + counts.leaves.load(Ordering::Relaxed),
            )
        });
        let bytes = sums.0 * self.cost + sums.1 * BYTES_PER_LEAF as i64;
        (bytes - self.budget + self.cost - 1).div_euclid(self.cost)
    }

    fn turn_of(&self, ino: Ino) -> &CountedAtomicU64 {
        &self.turns[ino.get() as usize % TURN_CLASSES]
    }

    /// Puts a leaf into the hand's way if it is new, and forgets inodes when there are too many,
    /// now that so many have come into that leaf, but not what is at the place `kept` there.
    fn make_room(&self, new: LeafKey, came: Came, kept: Option<usize>) {
        let local = cpu_hint() % self.queues.len().max(1);
        if came.is_new_leaf
            && let Some(queue) = self.queues.get(local)
        {
            queue.lock().push_back(new);
        }
        let excess = usize::try_from(self.excess()).unwrap_or(0);
        let mut wanted = excess.min(VICTIMS * came.inodes.max(ASK_ONCE_IN as usize));
        let mut steps = 0;
        // What one's own queue does not have, the others' may.
        for at in 0..self.queues.len() {
            let Some(queue) = self.queues.get((local + at) % self.queues.len()) else {
                return;
            };
            while wanted > 0 && steps < HAND_STEPS {
                let Some(key) = queue.lock().pop_front() else {
                    break;
                };
                steps += 1;
                // Rather one in use than none.
                let kept = kept.filter(|_| key == new);
                let passed = self.pass(key, steps < HAND_STEPS, kept);
                wanted = wanted.saturating_sub(passed.forgotten);
                if passed.stays {
                    queue.lock().push_back(key);
                }
            }
        }
    }

    /// Forgets the inodes of a leaf that need not stay; with `spares` those only that were not
    /// asked for since the last time, and not what is at the place `kept`. The caller has taken the
    /// leaf out of its queue.
    fn pass(&self, key: LeafKey, spares: bool, kept: Option<usize>) -> Passed {
        let guard = pin();
        let Some(leaf) = self.map.get(&key, &guard) else {
            return Passed::default();
        };
        let mut going: [Option<&LiveInode>; LEAF] = [None; LEAF];
        for (place, going) in going.iter_mut().enumerate() {
            let used = leaf.take_used(place);
            if !(used && spares)
                && kept != Some(place)
                && let Some(live) = leaf.places.get(place).and_then(|live| live.get(&guard))
                && self.claim(live, &guard)
            {
                *going = Some(live);
            }
        }
        if going.iter().all(Option::is_none) {
            return Passed {
                forgotten: 0,
                stays: true,
            };
        }
        let passed = self.update(key, |leaf| forget(leaf, &going, &guard), &guard);
        drop(guard);
        let counts = self.counts.local();
        let forgotten = passed.forgotten as i64;
        counts.inodes.fetch_sub(forgotten, Ordering::Relaxed);
        if !passed.stays {
            counts.leaves.fetch_sub(1, Ordering::Relaxed);
        }
        passed
    }

    /// Claims an inode to forget it, unless it must stay.
    fn claim(&self, live: &LiveInode, guard: &EpochGuard) -> bool {
        // Most that must stay are told without a store.
        if !self.may_go(live) {
            return false;
        }
        let dead = live.image(guard).is_freed();
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
            // Before it is gone, so that a thread that finds it gone also finds the turn over.
            let turn: &CountedAtomicU64 = self.turn_of(live.ino());
            turn.fetch_add(1, Ordering::AcqRel);
        }
        true
    }

    fn may_go(&self, live: &LiveInode) -> bool {
        live.last_seq().get() <= self.durable.load(Ordering::Acquire)
            && live.membership() == Membership::None
            && live.is_stored()
            && !live.is_lazy()
    }
}

/// Takes claimed inodes out of their leaf, and says whether that is to stay. Under the bucket's
/// lock.
fn forget(leaf: &Leaf, going: &[Option<&LiveInode>; LEAF], guard: &EpochGuard) -> (Passed, bool) {
    let is_going = |place: usize, going: Option<&LiveInode>| {
        let there = leaf.places.get(place).and_then(|live| live.get(guard));
        there.is_some() && there.map(std::ptr::from_ref) == going.map(std::ptr::from_ref)
    };
    let mut forgotten = 0;
    let mut stays = false;
    for (place, (going, there)) in going.iter().zip(&leaf.places).enumerate() {
        if is_going(place, *going) {
            forgotten += 1;
        } else {
            stays |= !there.is_empty();
        }
    }
    // Otherwise they go with their leaf.
    if stays {
        for (place, (going, there)) in going.iter().zip(&leaf.places).enumerate() {
            if is_going(place, *going) {
                there.clear(guard);
            }
        }
    }
    (Passed { forgotten, stays }, stays)
}

/// The unimproved form, to compare with: one lock for the hash table, one list under one lock.
#[cfg(feature = "baseline")]
#[derive(Debug)]
struct OneLock {
    chosen: bool,
    hash: Mutex<()>,
    list: Mutex<()>,
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
            list: Mutex::new(&LIST, ()),
        }
    }
}

#[cfg(feature = "baseline")]
impl OneLock {
    fn lock(&self) -> Option<extant_sync::MutexGuard<'_, ()>> {
        self.chosen.then(|| self.hash.lock())
    }

    /// For a change: the list is locked too, though not at the same time.
    fn change(&self) -> Option<extant_sync::MutexGuard<'_, ()>> {
        if self.chosen {
            drop(self.list.lock());
        }
        self.lock()
    }
}

#[cfg(feature = "baseline")]
impl Table {
    /// Returns the table with one lock for its hash table and list, or without.
    pub(crate) fn with_one_lock(mut self, chosen: bool) -> Self {
        if chosen {
            self.one_lock.chosen = true;
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
        // Slots of the map are between half and an eighth in use; the queue's are a number each.
        let slots = 3 * size_of::<usize>() + 2 * size_of::<LeafKey>();
        let leaf = (size_of::<(LeafKey, Leaf)>().next_multiple_of(64) + slots).div_ceil(LEAF);
        let total = image + live + leaf;
        // Debug builds keep the class in each lock.
        let allowed = if cfg!(debug_assertions) {
            512 + 32
        } else {
            512
        };
        assert!(total <= allowed, "{image} + {live} + {leaf} = {total}");
    }
}
