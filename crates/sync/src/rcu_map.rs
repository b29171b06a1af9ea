//! The read-mostly hash table: lookups take no lock and write no memory.
//!
//! The map is an array of buckets of fixed number. Each bucket is a small open-addressing table of
//! pointers to entries, with a lock for threads that change it. A bucket's table grows and shrinks
//! by itself: the writer fills a new table with the same pointers and publishes it, so entries
//! never move, readers never wait, and the whole map never stops.
//!
//! # Responsibilities
//!
//! | what | by |
//! |---|---|
//! | one writer per bucket | the bucket's [`Mutex`], whose class the owner of the map gives |
//! | keeping entries and old tables while somebody may read them | the epoch ([`EpochGuard`]) |
//! | hash flooding | a seed per map, from the system's randomness |
//!
//! # Invariants
//!
//! - A slot is *empty* (null, tag 0), *removed* (null, tag 1) or holds an entry whose pointer is
//!   tagged with six bits of the key's hash. A lookup ends at the first empty slot.
//! - A table always has an empty slot: at most three quarters of its slots are not empty.
//! - An entry is retired by the writer that unlinks it, exactly once, and is in no table that is
//!   published afterwards. A reader of an older table may still find it; such a lookup counts as
//!   having happened before the removal.
//! - Every entry pointer in a published table points to an entry that is not freed before all
//!   guards that could have seen the table are gone.
#![allow(unsafe_code)]

use crate::backend::{EpochPointer as Atomic, IS_MODEL, schedule_point};
use crate::{EpochGuard, LockClass, Mutex};
use crossbeam_epoch::{Guard, Owned, Shared};
use crossbeam_utils::CachePadded;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tag of a null pointer in a slot from which an entry was removed.
const REMOVED: usize = 1;
/// Slots in the smallest table.
const MIN_SLOTS: usize = 8;
/// Slots in the first table of a bucket, at most.
const MAX_FIRST_SLOTS: usize = 1024;

/// An entry. The alignment leaves six bits for the tag, and has a small entry lie in one cache
/// line: a lookup rarely touches an entry that is not the one, and then no more of it than it must.
#[repr(align(64))]
struct Entry<K, V> {
    key: K,
    value: V,
}

type Slot<K, V> = Atomic<Entry<K, V>>;
/// A table; its number of slots is a power of two. All slots are initialised.
type Slots<K, V> = [MaybeUninit<Slot<K, V>>];

struct Bucket<K, V> {
    /// Slots of the current table that are not empty. The thread that holds the lock is the one
    /// writer.
    writer: Mutex<usize>,
    /// Entries; changed by the writer only.
    live: AtomicUsize,
    /// Null as long as nothing was ever inserted.
    table: Atomic<Slots<K, V>>,
}

/// A concurrent hash table for maps that are read far more often than changed.
///
/// Lookups borrow under an [`EpochGuard`]; a removed value is dropped later, by whichever thread
/// finds that no guard can see it any more. Values are usually `Arc`s or small copies.
///
/// ```
/// use extant_sync::{LockClass, Rank, RcuMap, pin};
///
/// static BUCKET: LockClass = LockClass::new("example bucket", Rank::CacheBucket);
/// let map = RcuMap::new(&BUCKET, 16);
/// let guard = pin();
/// let (winner, rejected) = map.get_or_insert(7_u64, "seven", &guard);
/// assert_eq!((*winner, rejected), ("seven", None));
/// assert_eq!(map.get(&7, &guard), Some(&"seven"));
/// ```
pub struct RcuMap<K, V> {
    buckets: Box<[CachePadded<Bucket<K, V>>]>,
    /// Slots of the smallest table a bucket has, a power of two.
    least_slots: usize,
    seed: u64,
}

impl<K, V> RcuMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// An empty map of at least `buckets` buckets (made a power of two, at most 65,536), whose
    /// locks are of `class`.
    ///
    /// Two writers meet only if they change the same bucket: some tens of buckets per CPU are
    /// plenty. Entries may be many more than buckets.
    #[must_use]
    pub fn new(class: &'static LockClass, buckets: usize) -> Self {
        let buckets = buckets.clamp(1, 1 << 16).next_power_of_two();
        Self {
            buckets: (0..buckets)
                .map(|_| {
                    CachePadded::new(Bucket {
                        writer: Mutex::new(class, 0),
                        live: AtomicUsize::new(0),
                        table: Atomic::null(),
                    })
                })
                .collect(),
            least_slots: MIN_SLOTS,
            seed: if IS_MODEL {
                // A model repeats what it ran.
                1
            } else {
                RandomState::new().hash_one(0_u8) | 1
            },
        }
    }

    /// Prepares the map, empty still, for about so many entries: a bucket has room for its share,
    /// up to some hundreds, as soon as it has one entry. So growing up to there moves nothing.
    #[must_use]
    pub fn expecting(mut self, entries: usize) -> Self {
        let share = entries.div_ceil(self.buckets.len());
        let slots = share.saturating_mul(2).clamp(MIN_SLOTS, MAX_FIRST_SLOTS);
        self.least_slots = slots.next_power_of_two();
        self
    }

    /// The value of `key`.
    #[inline]
    pub fn get<'g, Q>(&'g self, key: &Q, guard: &'g EpochGuard) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let slots = self.bucket(hash).slots(&guard.guard)?;
        let (_, entry) = find(slots, hash, key, &guard.guard)?;
        // SAFETY: `entry` was read from a published table under `guard`, so it is not freed
        // before the guard is gone, nor before the map, both of which outlive 'g.
        Some(&unsafe { entry.deref() }.value)
    }

    /// The value of the key that `is` finds to be the one: a key that hashes like `hashed`. For
    /// keys that are costly to make just to look.
    #[inline]
    pub fn get_by<'g>(
        &'g self,
        hashed: &impl Hash,
        is: impl Fn(&K) -> bool,
        guard: &'g EpochGuard,
    ) -> Option<&'g V> {
        let hash = self.hash(hashed);
        let slots = self.bucket(hash).slots(&guard.guard)?;
        let (_, entry) = find_by(slots, hash, is, &guard.guard)?;
        // SAFETY: as in `get`.
        Some(&unsafe { entry.deref() }.value)
    }

    /// The value of `key`, which becomes `value` if there is none.
    ///
    /// Returns the value in the map, and `value` back if another one was there first. Of threads
    /// that insert the same key at the same time exactly one gets no value back.
    pub fn get_or_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g EpochGuard,
    ) -> (&'g V, Option<V>) {
        match self.get_or_insert_if(key, value, || true, guard) {
            Ok(found) => found,
            Err(_) => unreachable!("the condition always holds"),
        }
    }

    /// The value of `key`, which becomes `value` if there is none and `condition` holds.
    ///
    /// `condition` runs under the bucket's lock, so that nobody changes the bucket meanwhile, and
    /// only if there is no value. Otherwise as [`get_or_insert`](Self::get_or_insert).
    ///
    /// # Errors
    /// `value`, if there is none in the map and `condition` does not hold.
    pub fn get_or_insert_if<'g>(
        &'g self,
        key: K,
        value: V,
        condition: impl FnOnce() -> bool,
        guard: &'g EpochGuard,
    ) -> Result<(&'g V, Option<V>), V> {
        let hash = self.hash(&key);
        let bucket = self.bucket(hash);
        let mut used = bucket.writer.lock();
        if let Some((_, entry)) = bucket
            .slots(&guard.guard)
            .and_then(|slots| find(slots, hash, &key, &guard.guard))
        {
            // SAFETY: as in `get`.
            return Ok((&unsafe { entry.deref() }.value, Some(value)));
        }
        if !condition() {
            return Err(value);
        }
        let entry = self.insert_new(bucket, &mut used, hash, key, value, &guard.guard);
        // SAFETY: as in `get`; the entry was published by this thread.
        Ok((&unsafe { entry.deref() }.value, None))
    }

    /// Makes `value` the value of `key`; returns the one before.
    pub fn replace<'g>(&'g self, key: K, value: V, guard: &'g EpochGuard) -> Option<&'g V> {
        let hash = self.hash(&key);
        let bucket = self.bucket(hash);
        let mut used = bucket.writer.lock();
        let found = bucket.slots(&guard.guard).and_then(|slots| {
            find(slots, hash, &key, &guard.guard).map(|(at, old)| (&slots[at], old))
        });
        let Some((slot, old)) = found else {
            self.insert_new(bucket, &mut used, hash, key, value, &guard.guard);
            return None;
        };
        let new = Owned::new(Entry { key, value }).with_tag(tag_of(hash));
        schedule_point();
        slot_of(slot).store(new, Ordering::Release);
        // SAFETY: the lock makes this thread the only one to unlink `old`, which it just did;
        // readers that found it hold a guard. Entries are `Send + 'static`, so any thread may drop
        // them at any time later. The reference is good for 'g as in `get`.
        unsafe {
            guard.guard.defer_destroy(old);
            Some(&old.deref().value)
        }
    }

    /// Takes `key` out of the map; returns its value.
    #[inline]
    pub fn remove<'g, Q>(&'g self, key: &Q, guard: &'g EpochGuard) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.remove_if(key, |_| true, guard)
    }

    /// Takes `key` out of the map if `condition` holds for its value; returns the value taken out.
    ///
    /// `condition` runs under the bucket's lock, so that nobody changes the bucket meanwhile.
    pub fn remove_if<'g, Q>(
        &'g self,
        key: &Q,
        condition: impl FnOnce(&V) -> bool,
        guard: &'g EpochGuard,
    ) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let bucket = self.bucket(hash);
        let mut used = bucket.writer.lock();
        let slots = bucket.slots(&guard.guard)?;
        let (at, entry) = find(slots, hash, key, &guard.guard)?;
        // SAFETY: as in `get`.
        let value = &unsafe { entry.deref() }.value;
        if !condition(value) {
            return None;
        }
        self.take_out(bucket, &mut used, slots, at, &guard.guard);
        // SAFETY: as in `replace`.
        unsafe { guard.guard.defer_destroy(entry) };
        Some(value)
    }

    /// Has `change` look at the value of `key`, or at a new one if there is none, and says whether
    /// that is to be in the map from then on. For values that change inside. Returns what `change`
    /// returns besides.
    ///
    /// `change` runs under the bucket's lock, so that nobody else changes the bucket meanwhile.
    pub fn update<R>(&self, key: K, change: impl FnOnce(&V) -> (R, bool), guard: &EpochGuard) -> R
    where
        V: Default,
    {
        let hash = self.hash(&key);
        let bucket = self.bucket(hash);
        let mut used = bucket.writer.lock();
        let found = bucket
            .slots(&guard.guard)
            .and_then(|slots| Some((slots, find(slots, hash, &key, &guard.guard)?)));
        let Some((slots, (at, entry))) = found else {
            let value = V::default();
            let (result, stays) = change(&value);
            if stays {
                self.insert_new(bucket, &mut used, hash, key, value, &guard.guard);
            }
            return result;
        };
        // SAFETY: as in `get`.
        let (result, stays) = change(&unsafe { entry.deref() }.value);
        if !stays {
            self.take_out(bucket, &mut used, slots, at, &guard.guard);
            // SAFETY: as in `replace`.
            unsafe { guard.guard.defer_destroy(entry) };
        }
        result
    }

    /// How many entries there are; while others change the map, about how many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buckets
            .iter()
            .map(|b| b.live.load(Ordering::Relaxed))
            .sum()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many buckets there are: the end of the range that [`iter_buckets`](Self::iter_buckets)
    /// takes.
    #[must_use]
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// The entries of a range of buckets, in no particular order. Buckets that do not exist have
    /// none.
    ///
    /// Entries that are in the map throughout are seen exactly once; those inserted or removed
    /// meanwhile may or may not be. Long walks go range by range, with a guard for each.
    pub fn iter_buckets<'g>(
        &'g self,
        buckets: Range<usize>,
        guard: &'g EpochGuard,
    ) -> impl Iterator<Item = (&'g K, &'g V)> {
        let end = buckets.end.min(self.buckets.len());
        self.buckets[buckets.start.min(end)..end]
            .iter()
            .filter_map(|bucket| bucket.slots(&guard.guard))
            .flatten()
            .filter_map(|slot| {
                schedule_point();
                let entry = slot_of(slot).load(Ordering::Acquire, &guard.guard);
                // SAFETY: as in `get`; null is told apart.
                unsafe { entry.as_ref() }
            })
            .map(|entry| (&entry.key, &entry.value))
    }

    /// All entries, as [`iter_buckets`](Self::iter_buckets) over all buckets.
    pub fn iter<'g>(&'g self, guard: &'g EpochGuard) -> impl Iterator<Item = (&'g K, &'g V)> {
        self.iter_buckets(0..self.buckets.len(), guard)
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        let mut hasher = FoldHasher(self.seed);
        key.hash(&mut hasher);
        hasher.finish()
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Bucket<K, V> {
        // The low half of the hash finds the slot, the high half the bucket.
        &self.buckets[(hash >> 32) as usize & (self.buckets.len() - 1)]
    }

    /// Unlinks the entry in slot `at`, which the caller retires. `used` is the content of the
    /// bucket's lock.
    fn take_out(
        &self,
        bucket: &Bucket<K, V>,
        used: &mut usize,
        slots: &Slots<K, V>,
        at: usize,
        guard: &Guard,
    ) {
        unlink(slots, at, used, guard);
        let live = bucket.live.load(Ordering::Relaxed) - 1;
        bucket.live.store(live, Ordering::Relaxed);
        if slots.len() > self.least_slots && live < slots.len() / 8 {
            self.rebuild(bucket, used, live, guard);
        }
    }

    /// Adds an entry that is known to be new. `used` is the content of the bucket's lock.
    fn insert_new<'g>(
        &self,
        bucket: &Bucket<K, V>,
        used: &mut usize,
        hash: u64,
        key: K,
        value: V,
        guard: &'g Guard,
    ) -> Shared<'g, Entry<K, V>> {
        let live = bucket.live.load(Ordering::Relaxed);
        let slots = match bucket.slots(guard) {
            Some(slots) if (*used + 1) * 4 <= slots.len() * 3 => slots,
            _ => self.rebuild(bucket, used, live + 1, guard),
        };
        let entry = Owned::new(Entry { key, value }).into_shared(guard);
        let entry = entry.with_tag(tag_of(hash));
        place(slots, hash, entry, used, guard);
        bucket.live.store(live + 1, Ordering::Relaxed);
        entry
    }

    /// Publishes a table of the right size for `live` entries, with the same entries.
    fn rebuild<'g>(
        &self,
        bucket: &Bucket<K, V>,
        used: &mut usize,
        live: usize,
        guard: &'g Guard,
    ) -> &'g Slots<K, V> {
        // Half full after a rebuild: the next one is at least a quarter of the slots away.
        let len = (live * 2).next_power_of_two().max(self.least_slots);
        let mut new = Owned::<Slots<K, V>>::init(len);
        for slot in new.iter_mut() {
            slot.write(Atomic::null());
        }
        *used = 0;
        for slot in bucket.slots(guard).into_iter().flatten() {
            let entry = slot_of(slot).load(Ordering::Relaxed, guard);
            // SAFETY: only this thread, which holds the lock, unlinks and retires entries.
            if let Some(content) = unsafe { entry.as_ref() } {
                place(&new, self.hash(&content.key), entry, used, guard);
            }
        }
        let new = new.into_shared(guard);
        schedule_point();
        let old = bucket.table.swap(new, Ordering::AcqRel, guard);
        // SAFETY: `old` is no longer published and readers of it hold a guard; dropping it frees
        // the slots and leaves the entries alone. `new` was just published and is retired by a
        // later writer at the earliest, so it outlives `guard`.
        unsafe {
            if !old.is_null() {
                guard.defer_destroy(old);
            }
            new.deref()
        }
    }
}

impl<K, V> Bucket<K, V> {
    /// The current table, unless nothing was ever inserted.
    #[inline]
    fn slots<'g>(&self, guard: &'g Guard) -> Option<&'g Slots<K, V>> {
        schedule_point();
        let table = self.table.load(Ordering::Acquire, guard);
        // SAFETY: a published table is retired only after it was replaced, and freed only after
        // all guards that may have loaded it are gone. Null is told apart.
        unsafe { table.as_ref() }
    }
}

/// The slot itself: all slots of a table are initialised before it is used.
#[inline]
fn slot_of<K, V>(slot: &MaybeUninit<Slot<K, V>>) -> &Slot<K, V> {
    // SAFETY: tables are made in `rebuild` only, which writes every slot first.
    unsafe { slot.assume_init_ref() }
}

/// Six bits of the hash that neither slot nor (for up to 2^26 buckets) bucket numbers use.
#[inline]
fn tag_of(hash: u64) -> usize {
    (hash >> 58) as usize
}

/// The slots a key of `hash` may be in, in order.
#[inline]
fn probe(hash: u64, len: usize) -> impl Iterator<Item = usize> {
    let start = hash as u32 as usize;
    (0..len).map(move |step| (start + step) & (len - 1))
}

/// Looks for `key`: its slot and its entry.
#[inline]
fn find<'g, K, V, Q>(
    slots: &Slots<K, V>,
    hash: u64,
    key: &Q,
    guard: &'g Guard,
) -> Option<(usize, Shared<'g, Entry<K, V>>)>
where
    K: Borrow<Q>,
    Q: Eq + ?Sized,
{
    find_by(slots, hash, |found| found.borrow() == key, guard)
}

/// Looks for the key that `is` finds to be the one.
#[inline]
fn find_by<'g, K, V>(
    slots: &Slots<K, V>,
    hash: u64,
    is: impl Fn(&K) -> bool,
    guard: &'g Guard,
) -> Option<(usize, Shared<'g, Entry<K, V>>)> {
    let tag = tag_of(hash);
    for at in probe(hash, slots.len()) {
        schedule_point();
        let entry = slot_of(&slots[at]).load(Ordering::Acquire, guard);
        if entry.is_null() {
            if entry.tag() == REMOVED {
                continue;
            }
            return None;
        }
        // SAFETY: not null, and read from a published table under a guard.
        if entry.tag() == tag && is(&unsafe { entry.deref() }.key) {
            return Some((at, entry));
        }
    }
    None
}

/// Puts `entry` into the first slot for `hash` that holds none. The caller is the one writer and
/// has seen to it that there is such a slot.
fn place<K, V>(
    slots: &Slots<K, V>,
    hash: u64,
    entry: Shared<'_, Entry<K, V>>,
    used: &mut usize,
    guard: &Guard,
) {
    for at in probe(hash, slots.len()) {
        let slot = slot_of(&slots[at]);
        let found = slot.load(Ordering::Relaxed, guard);
        if found.is_null() {
            if found.tag() != REMOVED {
                *used += 1;
            }
            schedule_point();
            slot.store(entry, Ordering::Release);
            return;
        }
    }
    unreachable!("a table always has an empty slot");
}

/// Marks slot `at` as removed, or empty where no lookup needs to go on past it.
fn unlink<K, V>(slots: &Slots<K, V>, at: usize, used: &mut usize, guard: &Guard) {
    let mask = slots.len() - 1;
    let is = |at: usize, tag: usize| {
        let found = slot_of(&slots[at & mask]).load(Ordering::Relaxed, guard);
        found.is_null() && found.tag() == tag
    };
    if !is(at + 1, 0) {
        let mark = Shared::null().with_tag(REMOVED);
        schedule_point();
        slot_of(&slots[at]).store(mark, Ordering::Release);
        return;
    }
    // No run of probes reaches past an empty slot, so nothing beyond `at` is looked for through
    // it; the same then holds for removed slots right before it.
    let mut at = at;
    loop {
        schedule_point();
        slot_of(&slots[at]).store(Shared::null(), Ordering::Release);
        *used -= 1;
        let before = at.wrapping_sub(1) & mask;
        if !is(before, REMOVED) {
            return;
        }
        at = before;
    }
}

impl<K, V> Drop for RcuMap<K, V> {
    fn drop(&mut self) {
        // SAFETY: with `&mut self` no reader borrows from the map, and every slot of the current
        // tables holds an entry that was not retired, which this frees once. Retired entries and
        // tables belong to the epoch already.
        unsafe {
            let guard = crossbeam_epoch::unprotected();
            for bucket in &mut self.buckets {
                let table = std::mem::take(&mut bucket.table);
                let Some(table) = table.try_into_owned() else {
                    continue;
                };
                for slot in table.iter() {
                    let entry = slot_of(slot).load(Ordering::Relaxed, guard);
                    if !entry.is_null() {
                        drop(entry.into_owned());
                    }
                }
            }
        }
    }
}

impl<K, V> fmt::Debug for RcuMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuMap")
            .field("buckets", &self.buckets.len())
            .finish_non_exhaustive()
    }
}

/// Folds 128-bit products. Fast for integers, and with a secret seed not predictable enough to
/// choose colliding keys in advance.
struct FoldHasher(u64);

impl FoldHasher {
    #[inline]
    fn fold(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let product =
            u128::from(self.0 ^ word).wrapping_mul(u128::from(ODD ^ self.0.rotate_left(29)));
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for FoldHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // One more round, so that each half depends on every bit of the last word.
        let mut last = Self(self.0);
        last.fold(0xd6e8_feb8_6659_fd93);
        last.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
        let rest = chunks.remainder();
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        self.fold(u64::from_le_bytes(word) ^ ((bytes.len() as u64) << 56));
    }

    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.fold(u64::from(n));
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.fold(u64::from(n));
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.fold(n);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.fold(n as u64);
    }
}
