//! The data of one file in memory, and what users see of the file before the device does.
//!
//! # What is live
//!
//! The size and the times that users see may be ahead of the record, which changes only under a
//! handle. They are kept here until writeback has a handle anyway: see [`LiveInode::live_size`] and
//! [`LiveInode::view`]. The live size is never below that of the record.
//!
//! # Locking
//!
//! | lock | rank | guards |
//! |---|---|---|
//! | `writing` | Writeback | writing the file back; held where blocks are taken away, so that no address is in use then |
//! | a folio's | Folio | content and state of 64 KiB; held across I/O of these |
//! | those in `dirty`, `placed`, `failures`, `map_hint` | Leaf | what these names say |

pub(super) mod caches;
mod dirty;
mod failures;
pub(super) mod folio;
mod folios;
pub(super) mod index;
mod map_hint;
pub(super) mod page;
mod prefault;
pub(super) mod readahead;
mod write_pattern;

use crate::alloc::{Alloc, Taken};
use crate::data::cache::caches::Caches;
use crate::data::cache::dirty::DirtyState;
use crate::data::cache::failures::Failures;
use crate::data::cache::folio::{FOLIO_BYTES, FOLIO_LOG2};
use crate::data::cache::index::{Index, Size};
use crate::data::cache::map_hint::{MAP_ONLY, MapHint};
use crate::data::cache::readahead::Streams;
use crate::data::cache::write_pattern::WritePattern;
use crate::data::direct::Bypass;
use crate::data::reserve::places::Places;
use crate::data::reserve::promises::Promise;
use crate::data::times::nanos_of;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode, Timestamp};
use crate::mutants::{Mutant, is_on};
use crate::volume::ClusterSize;
use extant_format::Ino;
use extant_format::inode::InodeFlags;
use extant_sync::{CountedAtomicI64, LockClass, Mutex, MutexGuard, Rank, RmwClass, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

static WRITING: LockClass = LockClass::new("file writeback", Rank::Writeback);
static PROMISE: LockClass = LockClass::new("blocks promised to a file", Rank::Promise);
static TIME: RmwClass = RmwClass::new("time of the last write");

/// No time waits to be stored.
const NO_TIME: i64 = i64::MIN;

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
    /// The inode is being deleted: nothing is written back any more.
    deleting: AtomicBool,
    writing: Mutex<()>,
    pub(super) dirty: DirtyState,
    pub(super) write_pattern: WritePattern,
    pub(super) map_hint: MapHint,
    pub(super) failures: Failures,
    /// Space that is promised.
    pub(super) promise: Mutex<Promise>,
    /// Places that writes chose.
    pub(super) placed: Places,
    /// The last transaction that unmapped blocks of clusters that stayed the file's, unless it is
    /// durable.
    pub(super) detached: AtomicU64,
    pub(super) readers: Streams,
    /// What direct I/O knows, once there was any.
    pub(super) bypass: OnceLock<Box<Bypass>>,
}

impl FileCache {
    /// Returns an empty cache of a file with blocks of `1 << log2` bytes.
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
            deleting: AtomicBool::new(false),
            writing: Mutex::new(&WRITING, ()),
            dirty: DirtyState::new(),
            write_pattern: WritePattern::new(),
            map_hint: MapHint::new(),
            failures: Failures::new(),
            promise: Mutex::new(&PROMISE, Promise::default()),
            placed: Places::default(),
            detached: AtomicU64::new(0),
            readers: Streams::default(),
            bypass: OnceLock::new(),
        }
    }

    /// Keeps writeback away, after that which is under way.
    pub(super) fn quiesce(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Keeps writeback away, unless it is under way.
    pub(super) fn try_quiesce(&self) -> Option<MutexGuard<'_, ()>> {
        self.writing.try_lock()
    }

    /// Tells whether something may be newer than the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.has_any()
            || self.time.load(Ordering::Acquire) != NO_TIME
            || self.has_unpersisted()
    }

    /// Tells whether nothing is newer than the device, nor being written.
    pub(crate) fn is_idle(&self) -> bool {
        // Kept to the end: writeback takes the list of what is dirty first.
        let alone = self.writing.try_lock();
        alone.is_some() && !self.is_dirty()
    }

    /// Puts the file on the list of dirty ones, unless it is there.
    pub(super) fn list(&self, live: &Arc<LiveInode>) {
        if !self.dirty.is_listed() {
            self.caches.note_file(live, || self.dirty.set_listed());
        }
    }

    /// Tells whether the file is being deleted.
    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting.load(Ordering::Acquire)
    }

    /// Returns the size where it is ahead of the record, or something below.
    pub(super) fn extended(&self) -> u64 {
        self.extended.load(Ordering::Acquire)
    }

    /// Returns the size that users see, given the newest image of the inode.
    #[inline]
    pub(super) fn size_with(&self, image: &Inode) -> u64 {
        // After the image: a truncation lowers the live size before that of the record.
        image.size().max(self.extended())
    }

    /// Notes that the file was cut to nothing.
    pub(super) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Relaxed);
    }

    /// Tells whether the file was cut to nothing since the last call.
    pub(crate) fn take_replaced(&self) -> bool {
        dirty::take(&self.replaced)
    }

    /// Sets the live size, in bytes. The caller holds `op` exclusively.
    pub(super) fn set_extended(&self, size: u64) {
        self.extended.store(size, Ordering::Release);
    }

    /// Tells whether the last block of a file of `size` is known to be as it should be on the
    /// device or in memory, past the end too.
    pub(super) fn knows_tail(&self, size: u64) -> bool {
        self.tail.load(Ordering::Relaxed) == size
    }

    /// Notes that the last block of a file of `size` bytes is as it should be. The caller holds
    /// `op` exclusively.
    pub(super) fn set_tail(&self, size: u64) {
        self.tail.store(size, Ordering::Relaxed);
    }

    /// Notes the time of a write.
    pub(super) fn set_time(&self, time: Timestamp) {
        let nanos = nanos_of(time).max(NO_TIME + 1);
        self.time.store(nanos, Ordering::Release);
    }

    /// Returns the time of the last write, if the record does not have it.
    pub(super) fn time(&self) -> Option<Timestamp> {
        time_of(self.time.load(Ordering::Acquire))
    }

    /// Returns the time of the last write in nanoseconds since 1970, if the record does not have
    /// it.
    #[inline]
    pub(super) fn time_nanos(&self) -> Option<i64> {
        let nanos = self.time.load(Ordering::Acquire);
        (nanos != NO_TIME).then_some(nanos)
    }

    /// Tells whether a time waits to be stored.
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

    /// Forgets what lies in blocks from `first` on, and makes zeros of what lies past `size`
    /// before. The caller keeps writeback away.
    pub(super) fn cut(&self, fs: &Fs, alloc: &Alloc, live: &LiveInode, size: u64, first: u64) {
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
            self.give_up_promises(fs, alloc, live.ino(), clusters.logical(start)..u32::MAX);
        }
        self.release_reservation(fs, alloc, live, delayed, 0, 0);
        for (_, pblk, len) in self.placed.take(clusters, start, 1 << 32) {
            drop(Taken::from_raw(alloc, pblk, len));
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

    /// Frees what the clock's hand came by, unless it was used lately: a folio with its pages, or
    /// what is known of the map. `false` says that it is to be asked about again.
    pub(super) fn evict(&self, index: u32) -> bool {
        match index {
            MAP_ONLY => self.evict_map(),
            _ => self.evict_folio(index),
        }
    }

    /// Notes that the inode is being deleted: what is dirty is never written. `false` if it is
    /// being written right now. Any lock may be held.
    pub(crate) fn try_discard_all(&self, fs: &Fs, alloc: &Alloc, ino: Ino) -> bool {
        let Some(_alone) = self.try_quiesce() else {
            return false;
        };
        self.discard_quiet(fs, alloc, ino);
        true
    }

    /// Notes that the inode is being deleted, after the writing that is under way: what is dirty is
    /// never written.
    pub(crate) fn discard_all(&self, fs: &Fs, alloc: &Alloc, ino: Ino) {
        let _alone = self.quiesce();
        self.discard_quiet(fs, alloc, ino);
    }

    fn discard_quiet(&self, fs: &Fs, alloc: &Alloc, ino: Ino) {
        self.deleting.store(true, Ordering::Release);
        self.forget_map();
        self.time.store(NO_TIME, Ordering::Release);
        self.dirty.clear();
        let log2 = fs.block_size().log2();
        for folio in self.index.folios(0..1 << 32) {
            // Nobody uses a file that is being deleted. What the clock looks at goes with the
            // cache.
            if let Some(mut state) = folio.try_write() {
                self.forget(&mut state, u64::MAX, log2);
            }
        }
        self.give_up_all_promises(fs, alloc, ino);
        for (_, pblk, len) in self.placed.take(fs.cluster_size(), 0, 1 << 32) {
            drop(Taken::from_raw(alloc, pblk, len));
        }
    }
}

impl LiveInode {
    /// Returns the size that users see.
    #[inline]
    #[must_use]
    pub fn live_size(&self) -> u64 {
        let guard = pin();
        let image = self.image(&guard);
        self.file_cache()
            .map_or(image.size(), |cache| cache.size_with(image))
    }

    /// Returns the record as users see it: with the size and the times that writeback has yet to
    /// store.
    #[must_use]
    pub fn view(&self) -> Arc<Inode> {
        let image = self.snapshot();
        match self.ahead(&image) {
            Some(ahead) => Arc::new(ahead),
            None => image,
        }
    }

    /// Tells whether the device and the record have all that users see.
    pub(crate) fn is_stored(&self) -> bool {
        self.file_cache().is_none_or(|file| {
            file.is_deleting() || file.is_idle() && file.extended() <= self.image(&pin()).size()
        })
    }

    /// Returns the record as users see it, where it differs from `image`, its newest image.
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
        let (mut memory, mut dirty) = (self.map_hint.bytes(), 0);
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

/// Returns a time from its nanoseconds, if it is one.
fn time_of(nanos: i64) -> Option<Timestamp> {
    (nanos != NO_TIME).then(|| Timestamp {
        secs: nanos.div_euclid(1_000_000_000),
        nanos: nanos.rem_euclid(1_000_000_000) as u32,
    })
}

/// Returns the folio that byte `offset` lies in. Files end below 2^48.
pub(super) fn number(offset: u64) -> u32 {
    (offset >> FOLIO_LOG2) as u32
}

/// Returns the folio that block `block` lies in.
fn number_of_block(block: u64, log2: u32) -> u64 {
    block >> (FOLIO_LOG2 - log2)
}
