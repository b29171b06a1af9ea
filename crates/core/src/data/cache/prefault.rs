//! Pages made ready ahead of their use.
//!
//! Memory that comes from the system is given, cleared and mapped at the first touch of each page,
//! which takes as long as all the rest of a small write. While writers need new pages one after the
//! other, the thread that writes data back makes some ready, so that on a machine with a processor
//! to spare they need not wait for it.
//!
//! What is ready counts as nobody's: there is little of it, and it goes when nobody wants it.

use crate::data::cache::page::{Memory, PAGE, zeroed};
use extant_sync::{LockClass, Mutex, Rank};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static STOCK: LockClass = LockClass::new("pages in stock", Rank::Leaf);

/// Pages that are taken, and made, at once.
const BATCH: usize = 64;
/// Batches that are ready at most, and the part of all memory for data that they may have.
const MOST: usize = 32;
const SHARE: usize = 64;
/// Pages that were not ready until more are to be made.
const MISSES: u32 = BATCH as u32;
/// Batches that are made before the thread looks at what else is to be done.
const ROUND: usize = 4 * MOST;

/// Pages that are zeros.
pub(in crate::data) type Batch = Vec<Memory<PAGE>>;

/// Pages that are ready: see the module.
#[derive(Debug)]
pub(in crate::data) struct ReadyPages {
    batches: Mutex<Vec<Batch>>,
    most: usize,
    /// Pages that somebody needed and did not find. Some may not be counted.
    misses: AtomicU32,
    /// More are to be made.
    is_wanted: AtomicBool,
    /// Something was taken since the last look.
    is_used: AtomicBool,
}

impl ReadyPages {
    /// Makes an empty supply for a cache of `memory` bytes.
    pub(in crate::data) fn new(memory: usize) -> Self {
        Self {
            batches: Mutex::new(&STOCK, Vec::new()),
            most: (memory / SHARE / (BATCH * PAGE)).min(MOST),
            misses: AtomicU32::new(0),
            is_wanted: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
        }
    }

    /// Some pages, if there are any.
    pub(in crate::data) fn take(&self) -> Option<Batch> {
        let taken = self.batches.try_lock().and_then(|mut batches| {
            let batch = batches.pop();
            batch.map(|batch| (batch, batches.len()))
        });
        match taken {
            Some((batch, left)) => {
                self.is_used.store(true, Ordering::Relaxed);
                if left < self.most / 2 {
                    self.is_wanted.store(true, Ordering::Relaxed);
                }
                Some(batch)
            }
            None => {
                let misses = self.misses.load(Ordering::Relaxed) + 1;
                self.misses.store(misses % MISSES, Ordering::Relaxed);
                if misses == MISSES && self.most > 0 {
                    self.is_wanted.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }

    /// Takes the note that more are to be made, if there is one.
    pub(in crate::data) fn take_wanted(&self) -> bool {
        let wanted = self.is_wanted.load(Ordering::Relaxed);
        if wanted {
            self.is_wanted.store(false, Ordering::Relaxed);
        }
        wanted
    }

    /// Makes pages ready until there are enough, or for some time.
    pub(in crate::data) fn fill(&self) {
        for _ in 0..ROUND {
            if self.batches.lock().len() >= self.most {
                return;
            }
            let batch = (0..BATCH).map(|_| touched()).collect();
            self.batches.lock().push(batch);
        }
    }

    /// Frees what is ready if nothing was taken since the last call.
    pub(in crate::data) fn trim(&self) {
        if self.is_used.load(Ordering::Relaxed) {
            return self.is_used.store(false, Ordering::Relaxed);
        }
        let all = std::mem::take(&mut *self.batches.lock());
        drop(all);
    }
}

/// Returns a page that has its memory from the system already.
fn touched() -> Memory<PAGE> {
    let mut page = zeroed();
    std::hint::black_box(&mut page)[0] = 0;
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_made_for_who_keeps_needing_them_and_go_when_nobody_does() {
        let ready = ReadyPages::new(1 << 30);
        for _ in 1..MISSES {
            assert!(ready.take().is_none());
            assert!(!ready.take_wanted());
        }
        assert!(ready.take().is_none());
        assert!(ready.take_wanted());
        assert!(!ready.take_wanted());
        ready.fill();
        let mut batches = 0;
        while let Some(batch) = ready.take() {
            assert!(batch.iter().all(|page| page.iter().all(|&byte| byte == 0)));
            assert_eq!(batch.len(), BATCH);
            batches += 1;
        }
        assert_eq!(batches, MOST);
        assert!(ready.take_wanted());
        ready.fill();
        ready.trim();
        assert!(ready.take().is_some());
        ready.trim();
        ready.trim();
        assert!(ready.take().is_none());
    }

    #[test]
    fn small_caches_have_none() {
        let ready = ReadyPages::new(1 << 20);
        for _ in 0..3 * MISSES {
            assert!(ready.take().is_none());
        }
        assert!(!ready.take_wanted());
        ready.fill();
        assert!(ready.take().is_none());
    }
}
