//! What the data of all files in memory shares: the budget, the clock that evicts, the list of
//! files that have something to write back.
//!
//! # Invariants
//!
//! - Counters are spread over CPUs; they are added up when a folio becomes dirty or gets its first
//!   page, not with each write. So limits are passed by a folio for each thread at most.
//! - A file is on the list of dirty files, once, from the moment something of it becomes dirty
//!   until it has been written back by a thread that took it from the list.

use crate::data::cache::FileCache;
use crate::data::cache::index::Size;
use crate::data::cache::page::{PAGE, Pool};
use crate::data::dispatch::Way;
use crate::data::writeback::flusher::Flusher;
use crate::fs::{DataMode, MountOptions, Shed};
use crate::inode::LiveInode;
use extant_sync::{
    CountedAtomicU32, LockClass, Mutex, MutexGuard, PerCpu, Rank, RmwClass, ShardedCounter,
};
use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

static CLOCK: LockClass = LockClass::new("folio clock", Rank::Leaf);
static FILES: LockClass = LockClass::new("dirty files", Rank::Leaf);
static FLUSHING: LockClass = LockClass::new("writing back all files", Rank::Flush);
static FLUSH_WAITERS: RmwClass = RmwClass::new("waiters for writing back all files");

/// Memory for file data where the system does not say how much it has.
const SMALL_MEMORY: usize = 1 << 30;
/// One part in this many of the system's memory, unless the caller says otherwise.
const MEMORY_SHARE: usize = 4;
/// Dirty bytes that are enough for requests that make good use of a link with long round trips.
const FAR_DIRTY: u64 = 8 << 20;
/// As many for which it goes on.
const FAR_DIRTY_ON: u64 = 2 << 20;
/// Folios that the hand passes for each it wants.
const HAND_STEPS: usize = 64;
/// Folios that are looked at at once.
const BATCH: usize = 32;

/// Folios, in the order the hand passes them: a file, and the number of a folio of it.
type Clock = VecDeque<(Weak<FileCache>, u32)>;

/// What the caches of all files share.
#[derive(Debug)]
pub(crate) struct Caches {
    /// The way of content outside inodes.
    way: Way,
    /// Blocks get their places when they are written back.
    has_delayed_allocation: bool,
    pub(in crate::data) pool: Pool,
    /// Bytes of memory in use: pages, what is known of maps, folios and what leads to them.
    memory: ShardedCounter,
    most_memory: u64,
    /// Folios, and bytes of memory that they take without their pages.
    folios: ShardedCounter,
    folio_bytes: ShardedCounter,
    /// Bytes of dirty blocks.
    dirty: ShardedCounter,
    /// Above this much, in bytes, writers also write back.
    most_dirty: u64,
    clock: PerCpu<Mutex<Clock>>,
    files: PerCpu<Mutex<Vec<Arc<LiveInode>>>>,
    /// Blocks that got their place while they were written.
    placed: ShardedCounter,
    /// Blocks whose place was chosen when they were written back.
    delayed: ShardedCounter,
    /// Where the clock's hand begins next: updates may be lost.
    hand: AtomicU64,
    /// Held from taking files off the list until they are written: the next one finds all others'
    /// files written, or on the list.
    pub(in crate::data) flushing: Mutex<()>,
    /// Threads that wait for it to write back everything.
    flush_waiters: CountedAtomicU32,
    pub(in crate::data) flusher: Flusher,
    #[cfg(feature = "baseline")]
    baseline: crate::data::Baseline,
}

impl Caches {
    pub(crate) fn new(options: &MountOptions) -> Self {
        let bytes = options.cache_bytes.unwrap_or_else(share_of_memory);
        let most_memory = bytes.max(16 * PAGE) as u64;
        Self {
            way: Way::usual(options.dax, options.data_mode),
            has_delayed_allocation: !options.dax && options.data_mode == DataMode::Delayed,
            pool: Pool::new(bytes),
            memory: ShardedCounter::new(),
            most_memory,
            folios: ShardedCounter::new(),
            folio_bytes: ShardedCounter::new(),
            dirty: ShardedCounter::new(),
            most_dirty: most_memory / 2,
            clock: PerCpu::new(|_| Mutex::new(&CLOCK, VecDeque::new())),
            files: PerCpu::new(|_| Mutex::new(&FILES, Vec::new())),
            placed: ShardedCounter::new(),
            delayed: ShardedCounter::new(),
            hand: AtomicU64::new(0),
            flushing: Mutex::new(&FLUSHING, ()),
            flush_waiters: CountedAtomicU32::new(&FLUSH_WAITERS, 0),
            flusher: Flusher::new(),
            #[cfg(feature = "baseline")]
            baseline: options.baseline.data,
        }
    }

    /// Which mechanisms work in their unimproved form.
    #[cfg(feature = "baseline")]
    pub(in crate::data) fn baseline(&self) -> crate::data::Baseline {
        self.baseline
    }

    /// Returns the thread that writes back, if there is one.
    pub(crate) fn flusher(&self) -> &Flusher {
        &self.flusher
    }

    /// Tells whether blocks get their places when they are written back, and not before.
    #[inline]
    pub(in crate::data) fn has_delayed_allocation(&self) -> bool {
        self.has_delayed_allocation
    }

    /// Returns the way of content outside inodes.
    #[inline]
    pub(in crate::data) fn way(&self) -> Way {
        self.way
    }

    /// Tells whether writes wait in memory until they are written back.
    #[inline]
    pub(in crate::data) fn is_write_back(&self) -> bool {
        self.way == Way::Buffered
    }

    /// Counts bytes of memory that came into use, or left it.
    pub(in crate::data) fn count_memory(&self, bytes: i64) {
        if bytes != 0 {
            self.memory.add(bytes);
        }
    }

    /// Counts folios that came or went.
    pub(in crate::data) fn count_index(&self, change: Size) {
        if change != Size::default() {
            self.folios.add(change.folios);
            self.folio_bytes.add(change.bytes);
            self.count_memory(change.bytes);
        }
    }

    /// Has pages made ready if writers keep needing them.
    pub(in crate::data) fn request_prefault(&self) {
        if self.pool.ready.take_wanted() {
            self.flusher.make_ready();
        }
    }

    /// Counts bytes that became dirty, or clean.
    pub(in crate::data) fn count_dirty(&self, bytes: i64) {
        if bytes != 0 {
            self.dirty.add(bytes);
        }
    }

    /// Counts blocks that got their place while they were written, or later.
    pub(in crate::data) fn count_places(&self, in_write: bool, blocks: u64) {
        let counter = if in_write {
            &self.placed
        } else {
            &self.delayed
        };
        counter.add(blocks as i64);
    }

    /// Returns what the data path did.
    pub(crate) fn stats(&self) -> DataStats {
        DataStats {
            cached_bytes: self.memory.count().saturating_sub(self.folio_bytes.count()),
            dirty_bytes: self.dirty.count(),
            folios: self.folios.count(),
            folio_bytes: self.folio_bytes.count(),
            placed_in_write: self.placed.count(),
            placed_in_writeback: self.delayed.count(),
        }
    }

    /// Returns the sums of dirty bytes and of memory.
    pub(crate) fn sums(&self) -> (i64, i64) {
        (self.dirty.sum(), self.memory.sum())
    }

    /// Tells whether so much is dirty that writers have to write back.
    pub(in crate::data) fn is_too_dirty(&self) -> bool {
        self.dirty.count() > self.most_dirty
    }

    /// Tells whether so much is dirty that the background should write back.
    pub(in crate::data) fn is_rather_dirty(&self) -> bool {
        self.dirty.count() > self.most_dirty / 2
    }

    /// Tells whether so much is dirty that writing it back makes good use of a link with long round
    /// trips.
    pub(in crate::data) fn is_worth_a_link(&self) -> bool {
        self.dirty.count() > FAR_DIRTY
    }

    /// Tells whether enough is dirty to go on with that, and nobody waits for the turn.
    pub(in crate::data) fn is_worth_going_on(&self) -> bool {
        self.dirty.count() > FAR_DIRTY_ON && self.flush_waiters.load(Ordering::Relaxed) == 0
    }

    /// Waits for the turn to write back everything.
    pub(in crate::data) fn flush_turn(&self) -> MutexGuard<'_, ()> {
        self.flush_waiters.fetch_add(1, Ordering::Relaxed);
        let turn = self.flushing.lock();
        self.flush_waiters.fetch_sub(1, Ordering::Relaxed);
        turn
    }

    /// Tells whether more memory is used than the budget says.
    pub(in crate::data) fn is_full(&self) -> bool {
        self.memory.count() > self.most_memory
    }

    /// Puts a folio that came into being into the way of the clock's hand.
    pub(in crate::data) fn note_folio(&self, cache: &Arc<FileCache>, index: u32) {
        let entry = (Arc::downgrade(cache), index);
        let mut clock = self.clock.local().lock();
        clock.push_back(entry);
        // Those of files that are gone need not wait for the hand.
        if clock.len() >= 4096 && clock.len().is_power_of_two() {
            clock.retain(|(cache, _)| cache.strong_count() > 0);
        }
    }

    /// Notes that something of a file is dirty that is not on the list, if `enlist` says so. A
    /// thread that finds the file noted and then takes the list finds it there, since it waits for
    /// this lock.
    pub(in crate::data) fn note_file(&self, live: &Arc<LiveInode>, enlist: impl FnOnce() -> bool) {
        let mut files = self.files.local().lock();
        if !enlist() {
            return;
        }
        files.push(Arc::clone(live));
        // Deleted files need not wait until the list is taken.
        if files.len().is_power_of_two() && files.len() >= 1024 {
            let gone: Vec<_> = files
                .extract_if(.., |live| live.file_cache().is_none_or(|c| c.is_deleting()))
                .collect();
            drop(files);
            drop(gone);
        }
    }

    /// Takes the list of files that have something to write back.
    pub(in crate::data) fn take_files(&self) -> Vec<Arc<LiveInode>> {
        let mut all = Vec::new();
        for files in self.files.iter() {
            all.append(&mut files.lock());
        }
        all
    }

    /// Takes at most so many files from the list, of those that are longest on it.
    pub(in crate::data) fn take_some_files(&self, most: usize) -> Vec<Arc<LiveInode>> {
        let mut some = Vec::new();
        for files in self.files.iter() {
            let mut files = files.lock();
            let count = files.len().min(most - some.len());
            some.extend(files.drain(..count));
        }
        some
    }

    /// Tells how many files are on the list.
    pub(in crate::data) fn listed_files(&self) -> usize {
        self.files.iter().map(|files| files.lock().len()).sum()
    }

    /// Evicts clean folios that were not used lately until the budget is kept, as far as a short
    /// look finds any. Holds no lock of a file but by trying.
    pub(in crate::data) fn evict(&self) {
        let mut passed = 0;
        while self.is_full() && passed < HAND_STEPS * BATCH {
            let turn = self.hand.load(Ordering::Relaxed);
            self.hand.store(turn.wrapping_add(1), Ordering::Relaxed);
            let mut found = Vec::with_capacity(BATCH);
            for shard in 0..self.clock.len() {
                let at = (turn as usize + shard) % self.clock.len();
                let Some(clock) = self.clock.get(at) else {
                    continue;
                };
                let mut clock = clock.lock();
                while found.len() < BATCH
                    && let Some(entry) = clock.pop_front()
                {
                    found.push(entry);
                }
            }
            if found.is_empty() {
                return;
            }
            passed += found.len();
            for (cache, index) in found {
                if let Some(file) = cache.upgrade()
                    && !file.evict(index)
                {
                    self.clock.local().lock().push_back((cache, index));
                }
            }
        }
    }

    /// Evicts clean folios that nobody used since the last call, or all of them. Holds no lock of a
    /// file but by trying.
    pub(crate) fn shed(&self, what: Shed) {
        for clock in self.clock.iter() {
            let mut left = clock.lock().len();
            while left > 0 {
                let batch: Vec<_> = {
                    let mut clock = clock.lock();
                    let count = BATCH.min(left).min(clock.len());
                    clock.drain(..count).collect()
                };
                if batch.is_empty() {
                    break;
                }
                left -= batch.len();
                for (cache, index) in batch {
                    // What was used is spared once.
                    let goes = |file: &Arc<FileCache>| {
                        file.evict(index) || what == Shed::All && file.evict(index)
                    };
                    if let Some(file) = cache.upgrade()
                        && !goes(&file)
                    {
                        clock.lock().push_back((cache, index));
                    }
                }
            }
        }
        self.pool.clear();
    }
}

/// What the data path did since the file system was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataStats {
    /// File data in memory.
    pub cached_bytes: u64,
    /// File data in memory that the device does not have yet.
    pub dirty_bytes: u64,
    /// Parts of files, of 64 KiB, of which memory knows something.
    pub folios: u64,
    /// Memory that these take beside their data. It counts towards the limit too.
    pub folio_bytes: u64,
    /// Blocks whose place was chosen inside a write.
    pub placed_in_write: u64,
    /// Blocks whose place was chosen when they were written back.
    pub placed_in_writeback: u64,
}

/// Returns a share of the system's memory.
fn share_of_memory() -> usize {
    // Once for all: reading it takes longer than the rest of opening a small file system.
    static MEMORY: OnceLock<usize> = OnceLock::new();
    *MEMORY.get_or_init(installed_memory) / MEMORY_SHARE
}

/// Bytes of memory that the machine has.
fn installed_memory() -> usize {
    // It stands in the first line.
    let mut text = [0; 256];
    let read = std::fs::File::open("/proc/meminfo").and_then(|mut file| file.read(&mut text));
    let text = text.get(..read.unwrap_or(0)).unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<usize>().ok());
    kib.map_or(SMALL_MEMORY, |kib| kib << 10)
}
