//! What is known about names.

use super::LockedName;
use crate::inode::InodeId;
use extant_format::Ino;
use extant_format::NAME_MAX;
use extant_sync::{
    CountedAtomicU64, EpochGuard, LockClass, Mutex, PerCpu, Rank, RcuMap, RmwClass, pin,
    shard_count,
};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static BUCKET: LockClass = LockClass::new("name bucket", Rank::CacheBucket);
static QUEUE: LockClass = LockClass::new("name queue", Rank::LruShard);
static NAME: LockClass = LockClass::ascending("name", Rank::Name);

static EVICTIONS: RmwClass = RmwClass::new("names forgotten");

/// Directories share this many counts of what was forgotten of them.
const EVICTION_CLASSES: usize = 64;
/// Under a model checker locks are costly to make.
const IS_MODEL: bool = cfg!(feature = "shuttle");
/// Tables of names. Those of one directory are in one, so that threads that work in directories of
/// their own change no common line of memory.
const TABLES: usize = if IS_MODEL { 2 } else { 32 };
/// Names that all tables have room for from the beginning, if so many may be kept.
const EXPECTED: usize = 1 << 16;
/// Locks of names, in groups that have a line of memory of their own, for the same reason.
const GROUPS: usize = if IS_MODEL { 16 } else { 256 };
/// Locks of a group.
pub(super) const GROUP: usize = if IS_MODEL { 4 } else { 64 };
/// Groups that names of one directory have their locks in.
const GROUPS_OF_DIR: usize = 8;
/// What a name is taken to cost, its place in table and queue included.
const BYTES_PER_NAME: usize = 128;
/// Names the hand passes at most to find one to forget.
const HAND_STEPS: usize = 8;

/// Keys, the next to be passed in front.
type Queue = Mutex<VecDeque<Key>>;

/// Names that were looked up, and the locks of names.
#[derive(Debug)]
pub(crate) struct Names {
    tables: Box<[RcuMap<Key, Known>]>,
    /// Keys in the order the hand passes them.
    queues: PerCpu<Queue>,
    /// Most keys in one queue.
    per_queue: usize,
    /// How often a name was forgotten that its directory still has.
    evictions: Box<[CountedAtomicU64]>,
    pub(super) stripes: Box<[Stripes]>,
}

/// A group of locks.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Stripes(pub(super) [Mutex<()>; GROUP]);

/// What is known about one name.
#[derive(Debug)]
struct Known {
    /// `None` when the directory does not have the name.
    id: Option<InodeId>,
    /// Asked for since the hand last came by.
    used: AtomicBool,
}

/// Bytes of a name that is kept where the entry is: with what is known about the name, a cache
/// line.
const SHORT: usize = 34;

/// The key of a name. Equal keys are of one kind: which one depends on the length of the name.
#[derive(Clone, Debug)]
enum Key {
    /// Most names: a lookup meets no other line of memory than the entry's.
    Short {
        len: u8,
        name: [u8; SHORT],
        dir: u32,
    },
    Long(u32, Arc<[u8]>),
}

impl Key {
    fn new(dir: Ino, name: &[u8]) -> Self {
        let dir = dir.get();
        let mut short = [0; SHORT];
        match short.get_mut(..name.len()) {
            Some(to) => {
                to.copy_from_slice(name);
                Self::Short {
                    len: name.len() as u8,
                    name: short,
                    dir,
                }
            }
            None => Self::Long(dir, name.into()),
        }
    }

    /// Returns the directory that the name is of.
    #[inline]
    fn dir(&self) -> Ino {
        match self {
            Self::Short { dir, .. } | Self::Long(dir, _) => Ino::new(*dir),
        }
    }

    #[inline]
    fn name(&self) -> &[u8] {
        match self {
            Self::Short { len, name, .. } => name.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(_, name) => name,
        }
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrowed(self.dir(), self.name()).hash(state);
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.dir() == other.dir() && self.name() == other.name()
    }
}

impl Eq for Key {}

/// What a key is made of. Hashes like it.
struct Borrowed<'a>(Ino, &'a [u8]);

impl Hash for Borrowed<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0.get());
        // The hasher takes the length of the bytes in.
        state.write(self.1);
    }
}

/// Returns a number that is likely to be another one for another directory.
#[inline]
fn spread(dir: Ino) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (u64::from(dir.get()).wrapping_mul(ODD) >> 40) as usize
}

/// Mixes names, to choose their locks by.
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(ODD);
            self.0 ^= self.0 >> 29;
        }
    }

    fn finish(&self) -> u64 {
        self.0 >> 32
    }
}

/// Tells whether what a name stands for may be kept.
pub(super) fn is_kept(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && name != b"." && name != b".."
}

impl Names {
    /// Returns a cache that keeps about as many names as fit `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        let shards = shard_count().max(1);
        let expected = (budget / BYTES_PER_NAME).min(EXPECTED);
        // What keeps next to nothing takes next to nothing.
        let tables = if expected == 0 { 1 } else { TABLES };
        Self {
            tables: (0..tables)
                .map(|_| RcuMap::new(&BUCKET, (shards * 16).max(32)).expecting(expected / tables))
                .collect(),
            queues: PerCpu::new(|_| Mutex::new(&QUEUE, VecDeque::new())),
            per_queue: (budget / BYTES_PER_NAME / shards).max(1),
            evictions: (0..EVICTION_CLASSES)
                .map(|_| CountedAtomicU64::new(&EVICTIONS, 0))
                .collect(),
            stripes: (0..GROUPS)
                .map(|_| Stripes(std::array::from_fn(|_| Mutex::new(&NAME, ()))))
                .collect(),
        }
    }

    /// Returns the table that has the names of a directory.
    #[inline]
    fn table(&self, dir: Ino) -> &RcuMap<Key, Known> {
        &self.tables[spread(dir) % self.tables.len()]
    }

    /// Which lock a name has. Locks of one group are in a row.
    pub(super) fn stripe(&self, dir: Ino, name: &[u8]) -> usize {
        let mut hasher = Fold(spread(dir) as u64);
        hasher.write(name);
        let hash = hasher.finish() as usize;
        let group = spread(dir) + hash % GROUPS_OF_DIR;
        (group % GROUPS) * GROUP + hash / GROUPS_OF_DIR % GROUP
    }

    /// Returns what is known about a name: `None` if nothing, `Some(None)` if the directory does
    /// not have it.
    #[inline]
    pub(crate) fn get(&self, dir: Ino, name: &[u8]) -> Option<Option<InodeId>> {
        self.get_under(dir, name, &pin())
    }

    /// Returns what is known about a name, as [`get`](Self::get), under a guard that the caller
    /// has.
    #[inline]
    pub(crate) fn get_under(
        &self,
        dir: Ino,
        name: &[u8],
        guard: &EpochGuard,
    ) -> Option<Option<InodeId>> {
        let is = |key: &Key| key.dir() == dir && key.name() == name;
        let known = self.table(dir).get_by(&Borrowed(dir, name), is, guard)?;
        // Stored only after the hand came by, so that a hot name's line stays shared.
        if !known.used.load(Ordering::Relaxed) {
            known.used.store(true, Ordering::Relaxed);
        }
        Some(known.id)
    }

    /// Notes that the name stands for this inode from now on.
    pub(crate) fn insert(&self, name: &LockedName<'_>, id: InodeId) {
        self.set(name, Some(id));
    }

    /// Notes that the directory does not have the name.
    pub(super) fn insert_absent(&self, name: &LockedName<'_>) {
        self.set(name, None);
    }

    /// Forgets what was known about the name, which the directory does not have any more.
    pub(crate) fn remove(&self, name: &LockedName<'_>) {
        self.forget(name.dir(), name.name());
    }

    /// Forgets what was known about a name that the caller has locked: what the name stood for must
    /// not be found any more when the inode is deleted and its number used again.
    pub(crate) fn forget(&self, dir: Ino, name: &[u8]) {
        self.table(dir).remove(&Key::new(dir, name), &pin());
    }

    /// Returns how often a name of the directory, or of one that it shares the count with, may have
    /// been forgotten though the directory has it. A caller that has not found a name here and sees
    /// the count unchanged since all names of the directory were here knows that it does not have
    /// the name.
    #[inline]
    pub(crate) fn evictions(&self, dir: Ino) -> u64 {
        self.evictions_of(dir)
            .map_or(0, |evictions| evictions.load(Ordering::Acquire))
    }

    /// A name of the directory may be missing here from now on. Counted before it is.
    pub(crate) fn note_eviction(&self, dir: Ino) {
        if let Some(evictions) = self.evictions_of(dir) {
            evictions.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn evictions_of(&self, dir: Ino) -> Option<&CountedAtomicU64> {
        self.evictions.get(dir.get() as usize % EVICTION_CLASSES)
    }

    fn set(&self, name: &LockedName<'_>, id: Option<InodeId>) {
        if !name.is_kept() {
            return;
        }
        let key = Key::new(name.dir(), name.name());
        let known = Known {
            id,
            used: AtomicBool::new(false),
        };
        let guard = pin();
        let before = self.table(key.dir()).replace(key.clone(), known, &guard);
        if before.is_none() {
            self.make_room(key);
        }
    }

    /// Puts a new name into the hand's way and forgets another one when there are too many.
    fn make_room(&self, new: Key) {
        let mut victim = None;
        {
            let mut queue = self.queues.local().lock();
            queue.push_back(new);
            let guard = pin();
            for step in 0..HAND_STEPS {
                if queue.len() <= self.per_queue {
                    break;
                }
                let Some(key) = queue.pop_front() else { break };
                match self.table(key.dir()).get(&key, &guard) {
                    // Changed or removed meanwhile: this place in the queue is nobody's.
                    None => {}
                    Some(known) if known.used.load(Ordering::Relaxed) && step + 1 < HAND_STEPS => {
                        known.used.store(false, Ordering::Relaxed);
                        queue.push_back(key);
                    }
                    Some(_) => {
                        victim = Some(key);
                        break;
                    }
                }
            }
        }
        if let Some(key) = victim {
            // Counted before it goes, and where nobody can put another one in its place in between.
            let note_eviction = |_: &Known| {
                self.note_eviction(key.dir());
                true
            };
            self.table(key.dir()).remove_if(&key, note_eviction, &pin());
        }
    }

    /// Returns how many names are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tables.iter().map(RcuMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::Naming;
    use super::*;

    fn id(ino: u32) -> InodeId {
        InodeId {
            ino: Ino::new(ino),
            generation: 1,
        }
    }

    #[test]
    fn a_name_is_known_until_it_is_removed() {
        let names = Names::new(1 << 20);
        let dir = Ino::new(12);
        assert_eq!(names.get(dir, b"a"), None);
        let locked = names.lock(Naming::of(dir, b"a"));
        names.insert_absent(&locked);
        assert_eq!(names.get(dir, b"a"), Some(None));
        names.insert(&locked, id(77));
        assert_eq!(names.get(dir, b"a"), Some(Some(id(77))));
        assert_eq!(names.get(Ino::new(13), b"a"), None);
        names.remove(&locked);
        assert_eq!(names.get(dir, b"a"), None);
    }

    #[test]
    fn dots_and_what_cannot_be_a_name_are_not_kept() {
        let names = Names::new(1 << 20);
        let dir = Ino::new(12);
        for name in [&b"."[..], b"..", b"", &[b'x'; 256]] {
            let locked = names.lock(Naming::of(dir, name));
            names.insert(&locked, id(2));
            assert_eq!(names.get(dir, name), None);
        }
    }

    #[test]
    fn the_budget_holds_and_names_in_use_stay() {
        let names = Names::new(BYTES_PER_NAME * 64 * shard_count());
        let dir = Ino::new(12);
        names.insert(&names.lock(Naming::of(dir, b"hot")), id(5));
        for i in 0..10_000_u32 {
            assert_eq!(names.get(dir, b"hot"), Some(Some(id(5))), "{i}");
            names.insert(&names.lock(Naming::of(dir, &i.to_le_bytes())), id(i + 1));
        }
        assert!(names.len() <= 64 * shard_count());
    }

    #[test]
    fn what_is_forgotten_for_lack_of_room_is_counted_and_what_is_removed_is_not() {
        let names = Names::new(BYTES_PER_NAME * 64 * shard_count());
        let (dir, other) = (Ino::new(12), Ino::new(13));
        names.insert(&names.lock(Naming::of(dir, b"a")), id(5));
        names.remove(&names.lock(Naming::of(dir, b"a")));
        assert_eq!((names.evictions(dir), names.evictions(other)), (0, 0));
        let kept = 64 * shard_count() as u32;
        for i in 0..2 * kept {
            names.insert(&names.lock(Naming::of(dir, &i.to_le_bytes())), id(i + 1));
        }
        assert!(names.evictions(dir) >= u64::from(kept) - 1);
        assert_eq!(names.evictions(other), 0);
    }

    #[test]
    fn two_names_are_locked_whatever_their_order() {
        let names = Names::new(1 << 20);
        std::thread::scope(|scope| {
            for flip in [false, true] {
                let names = &names;
                scope.spawn(move || {
                    for i in 0..2000_u32 {
                        let (a, b) = (i.to_le_bytes(), (i + 1).to_le_bytes());
                        let (a, b) = if flip { (&b, &a) } else { (&a, &b) };
                        let locked =
                            names.lock_two(Naming::of(Ino::new(3), a), Naming::of(Ino::new(3), b));
                        assert_eq!(locked.first().name(), a);
                        assert_eq!(locked.second().name(), b);
                    }
                });
            }
        });
        let same = Naming::of(Ino::new(3), b"x");
        assert_eq!(names.lock_two(same, same).second().name(), b"x");
    }
}
