//! What memory knows of the map of a file: where it ends, and where runs of it lie.

use crate::data::cache::FileCache;
use crate::map;
use extant_sync::{LockClass, Mutex, Rank};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

static HINT: LockClass = LockClass::new("end of a map", Rank::Leaf);

/// On the clock, in place of the number of a folio: what is known of the map of the file. The one
/// folio of that number, at the end of a file of 2^48 bytes, does without.
pub(super) const MAP_ONLY: u32 = u32::MAX;
/// The end of the map is not known: odd, as no version is at rest.
const UNKNOWN: u64 = u64::MAX;

/// What is known of the map of a file.
#[derive(Debug)]
pub(in crate::data) struct MapHint {
    /// The map version for which `end` holds.
    version: AtomicU64,
    /// No block from here on is mapped.
    end: AtomicU64,
    /// Held to change the two.
    change: Mutex<()>,
    status: OnceLock<map::Status>,
    /// What is known is on the clock by itself.
    is_on_clock: AtomicBool,
}

impl MapHint {
    /// Makes that of a file of whose map nothing is known.
    pub(super) fn new() -> Self {
        Self {
            version: AtomicU64::new(UNKNOWN),
            end: AtomicU64::new(u64::MAX),
            change: Mutex::new(&HINT, ()),
            status: OnceLock::new(),
            is_on_clock: AtomicBool::new(false),
        }
    }

    /// Returns the end of what is mapped as of map version `version`, in blocks, if it is known.
    pub(in crate::data) fn end(&self, version: u64) -> Option<u64> {
        let same = self.version.load(Ordering::Acquire) == version;
        same.then(|| self.end.load(Ordering::Relaxed))
    }

    /// Notes the end of what is mapped, unless something newer is known.
    pub(in crate::data) fn set_end(&self, version: u64, end: u64) {
        let _alone = self.change.lock();
        let known = self.version.load(Ordering::Relaxed);
        if known == UNKNOWN || known < version {
            // A reader of both in between has the old version and the new end. While writers are at
            // work maps only grow, so that is an end further on than it need be.
            self.end.store(end, Ordering::Release);
            self.version.store(version, Ordering::Release);
        }
    }

    /// Returns how many bytes of memory it takes.
    pub(super) fn bytes(&self) -> i64 {
        self.status.get().map_or(0, map::Status::bytes)
    }
}

impl FileCache {
    /// Returns what is known of the map, if it was looked at.
    #[inline]
    pub(crate) fn status(&self) -> Option<&map::Status> {
        self.map_hint.status.get()
    }

    /// Changes what is known of the map; `learn` returns by how many bytes of memory it grew.
    pub(crate) fn learn(self: &Arc<Self>, learn: impl FnOnce(&map::Status) -> i64) {
        if self.caches.is_full() {
            self.caches.evict();
            if self.caches.is_full() {
                return;
            }
        }
        let hint = &self.map_hint;
        let grown = learn(hint.status.get_or_init(map::Status::default));
        self.caches.count_memory(grown);
        // Files that are used past memory only have no folio by which eviction would find them. Two
        // at the same time may have it found twice.
        if grown > 0 && !hint.is_on_clock.load(Ordering::Relaxed) {
            hint.is_on_clock.store(true, Ordering::Relaxed);
            self.caches.note_folio(self, MAP_ONLY);
        }
    }

    /// Forgets what is known of the map.
    pub(super) fn forget_map(&self) {
        if let Some(status) = self.status() {
            self.caches.count_memory(-status.forget());
        }
    }

    /// Frees what is known of the map, unless it was used lately. `false` says that it is to be
    /// asked about again.
    pub(super) fn evict_map(&self) -> bool {
        let is_on_clock = &self.map_hint.is_on_clock;
        // First: what is learned from now on puts it there again.
        is_on_clock.store(false, Ordering::Relaxed);
        let Some(status) = self.status() else {
            return true;
        };
        self.caches.count_memory(-status.age());
        let is_gone = status.bytes() == 0;
        if !is_gone {
            is_on_clock.store(true, Ordering::Relaxed);
        }
        is_gone
    }
}
