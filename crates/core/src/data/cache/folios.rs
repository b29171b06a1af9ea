//! Using the folios of a file, and letting them go.
//!
//! # Invariant
//!
//! A folio of the index is in the way of the clock's hand once, from when it came into being until
//! it is gone.

use crate::data::cache::folio::{FOLIO_BYTES, Folio, State};
use crate::data::cache::page::PAGE_LOG2;
use crate::data::cache::{FileCache, number};
use extant_sync::RwLockWriteGuard;
use std::sync::Arc;

impl FileCache {
    /// Returns the folio of that number, which may go as long as nobody has locked it.
    pub(in crate::data) fn folio_at(self: &Arc<Self>, index: u32) -> Arc<Folio> {
        match self.index.load(index) {
            Some(folio) => folio,
            None => self.make_folio(index),
        }
    }

    #[cold]
    fn make_folio(self: &Arc<Self>, index: u32) -> Arc<Folio> {
        let (folio, came) = self.index.make(index);
        self.caches.count_index(came);
        if came.folios > 0 {
            self.caches.note_folio(self, index);
        }
        folio
    }

    /// Returns the folio that byte `offset` lies in, if it was used.
    pub(in crate::data) fn folio_if_any(&self, offset: u64) -> Option<Arc<Folio>> {
        self.index.load(number(offset))
    }

    /// Has `work` done with the folio of that number, which is locked.
    pub(in crate::data) fn with_folio<R>(
        self: &Arc<Self>,
        index: u32,
        work: impl FnOnce(&Folio, RwLockWriteGuard<'_, State>) -> R,
    ) -> R {
        loop {
            let folio = self.folio_at(index);
            let state = folio.write();
            if !state.gone {
                return work(&folio, state);
            }
            drop(state);
            self.take_out(&folio);
        }
    }

    /// Takes out a folio that is gone.
    pub(in crate::data) fn take_out(&self, folio: &Folio) {
        self.caches.count_index(self.index.remove(folio));
    }

    /// Forgets blocks of a folio; returns how many were delayed.
    pub(in crate::data) fn forget(&self, state: &mut State, blocks: u64, log2: u32) -> u32 {
        let delayed = (state.delayed & blocks).count_ones();
        let dirty = (state.dirty & blocks).count_ones();
        self.caches.count_dirty(-(i64::from(dirty) << log2));
        let mut memory = 0;
        state.forget(blocks, log2, |page| {
            memory += page.memory() as i64;
            self.caches.pool.put(page);
        });
        self.caches.count_memory(-memory);
        delayed
    }

    /// Forgets what is clean of `range`, in bytes.
    pub(in crate::data) fn invalidate(&self, range: &std::ops::Range<u64>) {
        let from = u64::from(number(range.start));
        let to = range.end.div_ceil(FOLIO_BYTES as u64);
        for folio in self.index.folios(from..to) {
            let mut state = folio.write();
            if state.is_clean() {
                self.forget(&mut state, u64::MAX, PAGE_LOG2);
            }
        }
    }

    /// Frees a folio with its pages, unless something needs them or it was used lately. `false`
    /// says that it is to be asked about again.
    pub(in crate::data) fn evict_folio(&self, index: u32) -> bool {
        let Some(folio) = self.index.load(index) else {
            return true;
        };
        if folio.take_used() {
            return false;
        }
        let Some(mut state) = folio.try_write() else {
            return false;
        };
        if !state.is_clean() {
            return false;
        }
        // Whatever the size of blocks, a bit for each page will do: all go.
        self.forget(&mut state, u64::MAX, PAGE_LOG2);
        state.gone = true;
        drop(state);
        self.take_out(&folio);
        true
    }
}
