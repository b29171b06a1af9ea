//! What of a file is newer than the device: which folios, whether the file is on the list of dirty
//! ones, and whether it is being written on and on.

use extant_sync::{CountedAtomicBool, LockClass, Mutex, Rank, RmwClass};
use std::sync::atomic::{AtomicBool, Ordering};

static DIRTY: LockClass = LockClass::new("dirty folios", Rank::Leaf);
static LISTED: RmwClass = RmwClass::new("file on the list of dirty ones");

/// Folios that become dirty one behind the other before the file counts as written on and on.
const STREAM: u32 = 512;

/// What of a file is dirty.
#[derive(Debug)]
pub(in crate::data) struct DirtyState {
    folios: Mutex<DirtyFolios>,
    /// On the list of dirty files.
    listed: CountedAtomicBool,
    /// A folio became dirty since limits were looked after.
    grown: AtomicBool,
    /// The file is written on and on, and what lies behind should be written back.
    streams: AtomicBool,
}

/// Folios that became dirty.
#[derive(Debug, Default)]
struct DirtyFolios {
    /// Since the last writeback; some may be clean again, or come twice.
    numbers: Vec<u32>,
    /// The last one.
    last: u32,
    /// How many came one behind the other.
    ascending: u32,
}

impl DirtyState {
    /// Makes the state of a file of which nothing is dirty.
    pub(super) fn new() -> Self {
        Self {
            folios: Mutex::new(&DIRTY, DirtyFolios::default()),
            listed: CountedAtomicBool::new(&LISTED, false),
            grown: AtomicBool::new(false),
            streams: AtomicBool::new(false),
        }
    }

    /// Notes that the folio of number `index` became dirty.
    pub(in crate::data) fn note(&self, index: u32) {
        let mut folios = self.folios.lock();
        folios.numbers.push(index);
        folios.ascending = if index >= folios.last {
            folios.ascending + 1
        } else {
            0
        };
        folios.last = index;
        if folios.ascending >= STREAM {
            folios.ascending = 0;
            self.streams.store(true, Ordering::Relaxed);
        }
        drop(folios);
        self.grown.store(true, Ordering::Relaxed);
    }

    /// Takes the numbers of dirty folios, ascending.
    pub(in crate::data) fn take(&self) -> Vec<u32> {
        let mut all = std::mem::take(&mut self.folios.lock().numbers);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Puts numbers of dirty folios back.
    pub(in crate::data) fn put_back(&self, folios: &[u32]) {
        self.folios.lock().numbers.extend_from_slice(folios);
    }

    /// Forgets which folios are dirty.
    pub(super) fn clear(&self) {
        self.folios.lock().numbers.clear();
    }

    /// Tells whether blocks may be dirty.
    pub(in crate::data) fn has_any(&self) -> bool {
        !self.folios.lock().numbers.is_empty()
    }

    /// Tells whether no folio is dirty but the first `count`.
    pub(in crate::data) fn is_below(&self, count: u32) -> bool {
        let folios = self.folios.lock();
        folios.numbers.iter().all(|&index| index < count)
    }

    /// Takes the note that the file is written on and on, if there is one: what lies behind is not
    /// likely to be written again soon.
    pub(in crate::data) fn take_streams(&self) -> bool {
        take(&self.streams)
    }

    /// Takes the note that a folio became dirty, if there is one. A folio at the same moment may be
    /// overlooked.
    pub(in crate::data) fn take_grown(&self) -> bool {
        take(&self.grown)
    }

    /// Tells whether the file is on the list of dirty ones.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Notes that the file goes on the list. `false` if it was there.
    pub(super) fn set_listed(&self) -> bool {
        !self.listed.swap(true, Ordering::AcqRel)
    }

    /// Notes that the file has been taken from the list.
    pub(in crate::data) fn unlist(&self) {
        self.listed.store(false, Ordering::Release);
    }
}

/// Takes a note that may be lost to another thread: one load where there is none.
pub(super) fn take(note: &AtomicBool) -> bool {
    let is_set = note.load(Ordering::Relaxed);
    if is_set {
        note.store(false, Ordering::Relaxed);
    }
    is_set
}
