//! The data of one file in memory, and what users see of the file before the device does.
//!
//! # What is live
//!
//! The size and the times that users see may be ahead of the record, which changes only under a handle. They
//! are kept here until writeback has a handle anyway: see [`LiveInode::live_size`] and
//! [`LiveInode::view`]. The live size is never below that of the record.
//!
//! # Locking
//!
//! | lock | rank | guards |
//! |---|---|---|
//! | `writing` | Writeback | writing the file back; held by whoever takes blocks away, so that no address is in use then |
//! | a folio's | Folio | content and state of 64 KiB; held across I/O of these |
//! | `dirty`, `placed`, `failure`, `hint` | Leaf | what these names say |

pub(super) mod caches;
pub(super) mod folio;
mod folios;
pub(super) mod index;
pub(super) mod page;
mod prefault;
pub(super) mod readahead;

use crate::Error;
use crate::alloc::ClusterSize;
use crate::data::cache::caches::Caches;
use crate::data::cache::folio::{FOLIO_BYTES, FOLIO_LOG2};
use crate::data::cache::index::{Index, Size};
use crate::data::cache::readahead::Streams;
use crate::data::direct::Bypass;
use crate::data::reserve::promises::Promise;
use crate::data::times::nanos_of;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode, Timestamp};
use crate::map;
use crate::mutants::{Mutant, is_on};
use extant_format::inode::InodeFlags;
use extant_format::{Ino, Pblk};
use extant_sync::{
    CountedAtomicBool, CountedAtomicI64, CountedAtomicU64, LockClass, Mutex, MutexGuard, Rank,
    RmwClass, pin,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

static WRITING: LockClass = LockClass::new("file writeback", Rank::Writeback);
static DIRTY: LockClass = LockClass::new("dirty folios", Rank::Leaf);
static PLACED: LockClass = LockClass::new("placed blocks", Rank::Leaf);
static PROMISE: LockClass = LockClass::new("blocks promised to a file", Rank::Promise);
static HINT: LockClass = LockClass::new("end of a map", Rank::Leaf);
static FAILURE: LockClass = LockClass::new("writeback failure", Rank::Leaf);
static TIME: RmwClass = RmwClass::new("time of the last write");
static LISTED: RmwClass = RmwClass::new("file on the list of dirty ones");
static FAILURES: RmwClass = RmwClass::new("writeback failures of a file");

/// On the clock, in place of the number of a folio: what is known of the map of the file. The one folio of that
/// number, at the end of a file of 2^48 bytes, does without.
const MAP_ONLY: u32 = u32::MAX;
/// The end of the map is not known: odd, as no version is at rest.
const UNKNOWN: u64 = u64::MAX;
/// No time waits to be stored.
const NO_TIME: i64 = i64::MIN;

/// Folios that become dirty one behind the other before somebody writes on and on.
const STREAM: u32 = 512;
/// Whoever goes on this many bytes ahead writes here and there.
const FAR: u64 = 1 << 20;
/// Writes with holes between them after which more of these are expected, and the longest of these holes.
const STRIDES: u32 = 4;
const MOST_STRIDE: u32 = 64;

/// The data of one file in memory.
#[derive(Debug)]
pub(crate) struct FileCache {
    pub(super) caches: Arc<Caches>,
    /// Sectors of a block.
    sectors: u64,
    clusters: ClusterSize,
    pub(super) index: Index,
    /// The size, where it is ahead of the record; otherwise anything not above it.
    extended: AtomicU64,
    /// The time of the last write, in nanoseconds, until it is in the record.
    time: CountedAtomicI64,
    /// Up to this size the last block is known to be as it should on the device, past the end too.
    tail: AtomicU64,
    /// Bytes past the end were found on the device that are no zeros.
    pub(super) tail_unclean: AtomicBool,
    /// The file was cut to nothing, and not closed since.
    replaced: AtomicBool,
    /// A folio became dirty since somebody looked after limits.
    grown: AtomicBool,
    /// On the list of dirty files.
    listed: CountedAtomicBool,
    /// The inode is being deleted: nothing is written back any more.
    dead: AtomicBool,
    writing: Mutex<()>,
    dirty: Mutex<Dirty>,
    /// Somebody writes on and on, and what lies behind should be written back.
    streams: AtomicBool,
    /// How often in a row a write left a hole behind the one before and went on further ahead: a hint.
    strides: AtomicU32,
    /// The block behind the last one that got its place in a write.
    stride_from: AtomicU32,
    /// Space that is promised.
    pub(super) promise: Mutex<Promise>,
    /// The map version for which `mapped_end` holds.
    mapped_at: AtomicU64,
    /// No block from here on is mapped.
    mapped_end: AtomicU64,
    /// Held to change the two.
    hint: Mutex<()>,
    /// Blocks that have a place and are not mapped yet, by first logical block.
    placed: Mutex<BTreeMap<u32, (Pblk, u32)>>,
    /// The last transaction that unmapped blocks of clusters that stayed the file's, unless it is durable.
    pub(super) detached: AtomicU64,
    /// Where the last write ended.
    write_next: AtomicU64,
    pub(super) readers: Streams,
    status: OnceLock<map::Status>,
    /// What is known of the map is on the clock by itself.
    has_clocked_map: AtomicBool,
    /// What direct I/O knows, once there was any.
    pub(super) bypass: OnceLock<Box<Bypass>>,
    /// How often writeback failed, and the last reason.
    failures: CountedAtomicU64,
    failure: Mutex<Option<Error>>,
}

impl FileCache {
    /// An empty cache of a file with blocks of `1 << log2` bytes.
    pub(crate) fn new(caches: Arc<Caches>, log2: u32, clusters: ClusterSize) -> Self {
        Self {
            caches,
            sectors: 1 << (log2 - 9),
            clusters,
            index: Index::default(),
            extended: AtomicU64::new(0),
            time: CountedAtomicI64::new(&TIME, NO_TIME),
            tail: AtomicU64::new(u64::MAX),
            tail_unclean: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            grown: AtomicBool::new(false),
            listed: CountedAtomicBool::new(&LISTED, false),
            dead: AtomicBool::new(false),
            writing: Mutex::new(&WRITING, ()),
            dirty: Mutex::new(&DIRTY, Dirty::default()),
            streams: AtomicBool::new(false),
            strides: AtomicU32::new(0),
            stride_from: AtomicU32::new(0),
            promise: Mutex::new(&PROMISE, Promise::default()),
            mapped_at: AtomicU64::new(UNKNOWN),
            mapped_end: AtomicU64::new(u64::MAX),
            hint: Mutex::new(&HINT, ()),
            placed: Mutex::new(&PLACED, BTreeMap::new()),
            detached: AtomicU64::new(0),
            write_next: AtomicU64::new(0),
            readers: Streams::default(),
            status: OnceLock::new(),
            has_clocked_map: AtomicBool::new(false),
            bypass: OnceLock::new(),
            failures: CountedAtomicU64::new(&FAILURES, 0),
            failure: Mutex::new(&FAILURE, None),
        }
    }

    /// Keeps writeback away, after that which is under way.
    pub(super) fn quiesce(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// The same, unless it is under way.
    pub(super) fn try_quiesce(&self) -> Option<MutexGuard<'_, ()>> {
        self.writing.try_lock()
    }

    /// Notes that a folio became dirty.
    pub(super) fn note_dirty(&self, index: u32) {
        let mut dirty = self.dirty.lock();
        dirty.folios.push(index);
        dirty.ascending = match index >= dirty.last {
            true => dirty.ascending + 1,
            false => 0,
        };
        dirty.last = index;
        if dirty.ascending >= STREAM {
            dirty.ascending = 0;
            self.streams.store(true, Ordering::Relaxed);
        }
        drop(dirty);
        self.grown.store(true, Ordering::Relaxed);
    }

    /// Whether somebody wrote on and on since the last call, so that what lies behind is not likely to be written
    /// again soon.
    pub(super) fn take_streams(&self) -> bool {
        let streams = self.streams.load(Ordering::Relaxed);
        if streams {
            self.streams.store(false, Ordering::Relaxed);
        }
        streams
    }

    /// Notes a write of bytes `from..to`. Whether what lies around these is not likely to be written soon: they begin
    /// a little ahead of where the last one ended, or the file is small.
    pub(super) fn note_write(&self, from: u64, to: u64) -> bool {
        let next = self.write_next.load(Ordering::Relaxed);
        self.write_next.store(to, Ordering::Relaxed);
        to <= FOLIO_BYTES as u64 || from > next && from - next < FAR
    }

    /// Notes that blocks `lblk..end` get their places in a write. Whether writes have been leaving holes between each
    /// other for some time, and went on ahead.
    pub(super) fn note_stride(&self, lblk: u32, end: u32) -> bool {
        let from = self.stride_from.load(Ordering::Relaxed);
        self.stride_from.store(end, Ordering::Relaxed);
        let strides = match lblk.checked_sub(from) {
            Some(1..=MOST_STRIDE) => self.strides.load(Ordering::Relaxed).saturating_add(1),
            _ => 0,
        };
        self.strides.store(strides, Ordering::Relaxed);
        strides >= STRIDES
    }

    /// Whether a folio became dirty since the last call. One at the same moment may be overlooked.
    pub(super) fn take_grown(&self) -> bool {
        let grown = self.grown.load(Ordering::Relaxed);
        if grown {
            self.grown.store(false, Ordering::Relaxed);
        }
        grown
    }

    /// Takes the numbers of dirty folios, ascending.
    pub(super) fn take_dirty(&self) -> Vec<u32> {
        let mut all = std::mem::take(&mut self.dirty.lock().folios);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether no folio is dirty but the first.
    pub(super) fn is_dirty_in_first_folio_only(&self) -> bool {
        self.dirty.lock().folios.iter().all(|&index| index == 0)
    }

    /// Puts dirty folios back.
    pub(super) fn put_dirty(&self, folios: &[u32]) {
        self.dirty.lock().folios.extend_from_slice(folios);
    }

    /// Whether blocks may be dirty.
    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.lock().folios.is_empty()
    }

    /// Whether something may be newer than the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.has_dirty() || self.time.load(Ordering::Acquire) != NO_TIME || self.has_unpersisted()
    }

    /// Whether nothing is newer than the device, nor being written.
    pub(crate) fn is_idle(&self) -> bool {
        // Kept to the end: who writes back takes the list of what is dirty first.
        let alone = self.writing.try_lock();
        alone.is_some() && !self.is_dirty()
    }

    /// Puts the file on the list of dirty ones, unless it is there.
    pub(super) fn list(&self, live: &Arc<LiveInode>) {
        if !self.listed.load(Ordering::Acquire) {
            let is_first = || !self.listed.swap(true, Ordering::AcqRel);
            self.caches.note_file(live, is_first);
        }
    }

    /// Somebody has taken the file from the list.
    pub(super) fn unlist(&self) {
        self.listed.store(false, Ordering::Release);
    }

    /// Whether the file is being deleted.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// The size where it is ahead of the record, or something below.
    pub(super) fn extended(&self) -> u64 {
        self.extended.load(Ordering::Acquire)
    }

    /// The size that users see, given the newest image of the inode.
    #[inline]
    pub(super) fn size_with(&self, image: &Inode) -> u64 {
        // After the image: a truncation lowers the live size before that of the record.
        image.size().max(self.extended())
    }

    /// Notes that the file was cut to nothing.
    pub(super) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Relaxed);
    }

    /// Whether the file was cut to nothing since the last call.
    pub(crate) fn take_replaced(&self) -> bool {
        let replaced = self.replaced.load(Ordering::Relaxed);
        if replaced {
            self.replaced.store(false, Ordering::Relaxed);
        }
        replaced
    }

    /// Sets it. For who holds `op` exclusively.
    pub(super) fn set_extended(&self, size: u64) {
        self.extended.store(size, Ordering::Release);
    }

    /// Whether the last block of a file of `size` is known to be as it should be on the device or in
    /// memory, past the end too.
    pub(super) fn knows_tail(&self, size: u64) -> bool {
        self.tail.load(Ordering::Relaxed) == size
    }

    /// Notes that it is. For who holds `op` exclusively.
    pub(super) fn set_tail(&self, size: u64) {
        self.tail.store(size, Ordering::Relaxed);
    }

    /// Notes the time of a write.
    pub(super) fn set_time(&self, time: Timestamp) {
        let nanos = nanos_of(time).max(NO_TIME + 1);
        self.time.store(nanos, Ordering::Release);
    }

    /// The time of the last write, if the record does not have it.
    pub(super) fn time(&self) -> Option<Timestamp> {
        time_of(self.time.load(Ordering::Acquire))
    }

    /// The same in nanoseconds.
    #[inline]
    pub(super) fn time_nanos(&self) -> Option<i64> {
        let nanos = self.time.load(Ordering::Acquire);
        (nanos != NO_TIME).then_some(nanos)
    }

    /// Whether a time waits to be stored.
    pub(super) fn has_time(&self) -> bool {
        self.time.load(Ordering::Acquire) != NO_TIME
    }

    /// Puts the time of the last write into a record that is about to be published; afterwards
    /// [`forget_time`](Self::forget_time) is told what this returned.
    pub(crate) fn put_time(&self, inode: &mut Inode) -> Option<i64> {
        let nanos = self.time.load(Ordering::Acquire);
        let time = time_of(nanos)?;
        let disk = inode.disk_mut();
        disk.mtime = time;
        disk.ctime = time;
        Some(nanos)
    }

    /// The record has this time now. A write since then has noted another one.
    pub(crate) fn forget_time(&self, nanos: i64) {
        let order = Ordering::AcqRel;
        let _ = self
            .time
            .compare_exchange(nanos, NO_TIME, order, Ordering::Relaxed);
    }

    /// The end of what is mapped as of map version `version`, if it is known.
    pub(super) fn mapped_end(&self, version: u64) -> Option<u64> {
        let same = self.mapped_at.load(Ordering::Acquire) == version;
        same.then(|| self.mapped_end.load(Ordering::Relaxed))
    }

    /// Notes it, unless something newer is known.
    pub(super) fn set_mapped_end(&self, version: u64, end: u64) {
        let _alone = self.hint.lock();
        let known = self.mapped_at.load(Ordering::Relaxed);
        if known == UNKNOWN || known < version {
            // Who reads both in between has the old version and the new end. While writers are at work
            // maps only grow, so that is an end further on than it need be.
            self.mapped_end.store(end, Ordering::Release);
            self.mapped_at.store(version, Ordering::Release);
        }
    }

    /// What is known of the map, if somebody looked at it.
    pub(crate) fn status(&self) -> Option<&map::Status> {
        self.status.get()
    }

    /// Changes what is known of the map; `learn` returns by how many bytes of memory it grew.
    pub(crate) fn learn(self: &Arc<Self>, learn: impl FnOnce(&map::Status) -> i64) {
        if self.caches.is_full() {
            self.caches.evict();
            if self.caches.is_full() {
                return;
            }
        }
        let grown = learn(self.status.get_or_init(map::Status::default));
        self.caches.count_memory(grown);
        // Files that are used past memory only have no folio by which eviction would find them. Two at the same time may
        // have it found twice.
        if grown > 0 && !self.has_clocked_map.load(Ordering::Relaxed) {
            self.has_clocked_map.store(true, Ordering::Relaxed);
            self.caches.note_folio(self, MAP_ONLY);
        }
    }

    /// Forgets what is known of the map.
    fn forget_map(&self) {
        if let Some(status) = self.status() {
            self.caches.count_memory(-status.forget());
        }
    }

    /// Adds blocks that have a place and are not mapped yet: whole clusters. `false` if they have one already.
    pub(super) fn place(&self, fs: &Fs, lblk: u32, pblk: Pblk, len: u32) -> bool {
        // What is taken together lies in one group.
        let begins_group = |(_, at): (extant_format::Group, u32)| at == 0;
        let is_first = fs.geometry().bitmap_position(pblk).is_ok_and(begins_group);
        let mut placed = self.placed.lock();
        if !fs.cluster_size().is_block()
            && let Some((&first, &(_, count))) = placed.range(..=lblk).next_back()
            && lblk - first < count
        {
            return false;
        }
        if !is_first
            && let Some((&first, (start, count))) = placed.range_mut(..lblk).next_back()
            && first + *count == lblk
            && start.get() + u64::from(*count) == pblk.get()
        {
            *count += len;
            return true;
        }
        placed.insert(lblk, (pblk, len));
        true
    }

    /// The run of placed blocks that `lblk` lies in: its first block's place and length from `lblk` on, or
    /// how many blocks further the next one begins.
    pub(super) fn placed_at(&self, lblk: u32) -> Result<(Pblk, u32), u32> {
        let placed = self.placed.lock();
        if let Some((&first, &(pblk, len))) = placed.range(..=lblk).next_back()
            && lblk - first < len
        {
            let skip = lblk - first;
            return Ok((Pblk::new(pblk.get() + u64::from(skip)), len - skip));
        }
        let next = placed.range(lblk..).next();
        Err(next.map_or(u32::MAX, |(&next, _)| next - lblk))
    }

    /// Takes out the placed clusters of `len` blocks from `lblk` on.
    pub(super) fn unplace(&self, size: ClusterSize, lblk: u32, len: u64) -> Vec<(u32, Pblk, u32)> {
        let mut placed = self.placed.lock();
        if placed.is_empty() {
            return Vec::new();
        }
        let whole = size.around(&(u64::from(lblk)..u64::from(lblk) + len));
        let (lblk, end) = (whole.start as u32, whole.end);
        let first = match placed.range(..=lblk).next_back() {
            Some((&first, &(_, count))) if lblk - first < count => first,
            _ => lblk,
        };
        let keys: Vec<u32> = placed
            .range(first..)
            .map(|(&key, _)| key)
            .take_while(|&key| u64::from(key) < end)
            .collect();
        let mut out = Vec::new();
        for key in keys {
            let Some((pblk, count)) = placed.remove(&key) else {
                continue;
            };
            let at = |block: u32| Pblk::new(pblk.get() + u64::from(block - key));
            let from = key.max(lblk);
            let to = end.min(u64::from(key) + u64::from(count)) as u32;
            if key < from {
                placed.insert(key, (pblk, from - key));
            }
            if to < key + count {
                placed.insert(to, (at(to), key + count - to));
            }
            out.push((from, at(from), to - from));
        }
        out
    }

    /// Notes that writeback failed. Every open file hears of it once.
    pub(super) fn note_failure(&self, error: &Error) {
        *self.failure.lock() = Some(error.clone());
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// How often writeback failed so far.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Why it failed last.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    /// Forgets what lies in blocks from `first` on, and makes zeros of what lies past `size` before.
    /// For who keeps writeback away.
    pub(super) fn cut(&self, fs: &Fs, live: &LiveInode, size: u64, first: u64) {
        let log2 = fs.block_size().log2();
        let from = number_of_block(first, log2);
        let mut delayed = 0;
        for folio in self.index.folios(from..1 << 32) {
            let mut state = folio.write();
            let skip = first.saturating_sub(folio.first_block(log2)).min(64);
            let blocks = match skip {
                0 => u64::MAX,
                64 => 0,
                skip => u64::MAX << skip,
            };
            delayed += self.forget(&mut state, blocks, log2);
        }
        let clusters = fs.cluster_size();
        // The cluster that is cut is of use to what remains of it.
        let start = clusters.around(&(0..first)).end;
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        if !clusters.is_block() {
            self.give_up_promises(fs, live.ino(), clusters.logical(start)..u32::MAX);
        }
        self.settle(fs, live, delayed, 0, 0);
        for (_, pblk, len) in self.unplace(clusters, start, 1 << 32) {
            drop(crate::alloc::Taken::unpark(fs, pblk, len));
        }
        if size & ((1 << log2) - 1) != 0
            && !is_on(Mutant::TailNotZeroed)
            && let Some(folio) = self.folio_if_any(size)
        {
            let at = size as usize & (FOLIO_BYTES - 1);
            let end = ((at >> log2) + 1) << log2;
            folio.write().zero(at..end);
        }
        self.set_tail(u64::MAX);
    }

    /// Frees what the clock's hand came by, unless it was used lately: a folio with its pages, or what is known of the map.
    /// `false` says that it is to be asked about again.
    pub(super) fn evict(&self, index: u32) -> bool {
        match index {
            MAP_ONLY => self.evict_map(),
            _ => self.evict_folio(index),
        }
    }

    fn evict_map(&self) -> bool {
        // First: what is learned from now on puts it there again.
        self.has_clocked_map.store(false, Ordering::Relaxed);
        let Some(status) = self.status() else {
            return true;
        };
        self.caches.count_memory(-status.age());
        let is_gone = status.bytes() == 0;
        if !is_gone {
            self.has_clocked_map.store(true, Ordering::Relaxed);
        }
        is_gone
    }

    /// Notes that the inode is being deleted: what is dirty is never written. `false` if it is being
    /// written right now. Any lock may be held.
    pub(crate) fn try_kill(&self, fs: &Fs, ino: Ino) -> bool {
        let Some(_alone) = self.try_quiesce() else {
            return false;
        };
        self.bury(fs, ino);
        true
    }

    /// The same, after the writing that is under way.
    pub(crate) fn kill(&self, fs: &Fs, ino: Ino) {
        let _alone = self.quiesce();
        self.bury(fs, ino);
    }

    fn bury(&self, fs: &Fs, ino: Ino) {
        self.dead.store(true, Ordering::Release);
        self.forget_map();
        self.time.store(NO_TIME, Ordering::Release);
        self.dirty.lock().folios.clear();
        let log2 = fs.block_size().log2();
        for folio in self.index.folios(0..1 << 32) {
            // Nobody uses a file that is being deleted. What the clock looks at goes with the cache.
            if let Some(mut state) = folio.try_write() {
                self.forget(&mut state, u64::MAX, log2);
            }
        }
        self.give_up_all_promises(fs, ino);
        for (_, pblk, len) in self.unplace(fs.cluster_size(), 0, 1 << 32) {
            drop(crate::alloc::Taken::unpark(fs, pblk, len));
        }
    }
}

impl LiveInode {
    /// The size that users see.
    #[inline]
    #[must_use]
    pub fn live_size(&self) -> u64 {
        let guard = pin();
        let image = self.image(&guard);
        self.file_cache()
            .map_or(image.size(), |cache| cache.size_with(image))
    }

    /// The record as users see it: with the size and the times that writeback has yet to store.
    #[must_use]
    pub fn view(&self) -> Arc<Inode> {
        let image = self.snapshot();
        match self.ahead(&image) {
            Some(ahead) => Arc::new(ahead),
            None => image,
        }
    }

    /// Whether the device and the record have all that users see.
    pub(crate) fn is_stored(&self) -> bool {
        self.file_cache().is_none_or(|file| {
            file.is_dead() || file.is_idle() && file.extended() <= self.image(&pin()).size()
        })
    }

    /// The record as users see it, where it differs from `image`, its newest image.
    pub(crate) fn ahead(&self, image: &Inode) -> Option<Inode> {
        let cache = self.file_cache()?;
        let (extended, promised) = (cache.extended(), cache.promised(cache.clusters));
        let time = cache.time();
        if extended <= image.size() && time.is_none() && promised == 0 {
            return None;
        }
        let mut ahead = image.clone();
        let disk = ahead.disk_mut();
        disk.size = disk.size.max(extended);
        if let Some(time) = time {
            disk.mtime = time;
            disk.ctime = time;
        }
        // What has no place yet takes space all the same.
        if !disk.flags.contains(InodeFlags::HUGE_FILE) {
            disk.blocks = disk.blocks.saturating_add(promised * cache.sectors);
        }
        Some(ahead)
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        // No lock is taken here: values are dropped wherever an epoch ends.
        let (mut memory, mut dirty) = (self.status().map_or(0, map::Status::bytes), 0);
        for folio in self.index.folios(0..1 << 32) {
            let Some(state) = folio.try_write() else {
                continue;
            };
            memory += state.memory() as i64;
            dirty += i64::from(state.dirty.count_ones());
        }
        self.caches.count_memory(-memory);
        let Size { folios, bytes } = self.index.size_of_own();
        self.caches.count_index(Size {
            folios: -folios,
            bytes: -bytes,
        });
        self.caches
            .count_dirty(-dirty * (self.sectors as i64) * 512);
    }
}

/// Folios that became dirty.
#[derive(Debug, Default)]
struct Dirty {
    /// Since the last writeback; some may be clean again, or come twice.
    folios: Vec<u32>,
    /// The last one.
    last: u32,
    /// How many came one behind the other.
    ascending: u32,
}

/// A time from its nanoseconds, if it is one.
fn time_of(nanos: i64) -> Option<Timestamp> {
    (nanos != NO_TIME).then(|| Timestamp {
        secs: nanos.div_euclid(1_000_000_000),
        nanos: nanos.rem_euclid(1_000_000_000) as u32,
    })
}

/// The folio that byte `offset` lies in. Files end below 2^48.
pub(super) fn number(offset: u64) -> u32 {
    (offset >> FOLIO_LOG2) as u32
}

/// The folio that block `block` lies in.
fn number_of_block(block: u64, log2: u32) -> u64 {
    block >> (FOLIO_LOG2 - log2)
}
