//! Folios: 64 KiB of a file in memory, and what is known about its blocks.
//!
//! # Invariants
//!
//! - What has no memory of a block that is *up to date* is zeros, and so are bytes past the end of
//!   the file in it.
//! - A block that is *dirty* or *under writeback* is up to date.
//! - A *delayed* block is dirty or under writeback and not mapped; space is promised for it, or its
//!   place is chosen.
//! - A *mapped* block holds data on the device. Blocks that are neither may or may not have a place
//!   there.

use crate::data::cache::page::{PAGE, PAGE_LOG2, Page, Pool};
use crate::data::range::zeros::ZEROS;
use extant_sync::{LockClass, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard, prefetch};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FOLIO: LockClass = LockClass::ascending("folio", Rank::Folio);

/// Binary logarithm of the bytes of a folio.
pub(in crate::data) const FOLIO_LOG2: u32 = 16;
/// Bytes of a folio.
pub(in crate::data) const FOLIO_BYTES: usize = 1 << FOLIO_LOG2;
/// Bytes that are worth fetching ahead: of more the processor finds the rest itself.
const MOST_AHEAD: usize = 1024;
/// Pages of a folio.
const PAGES: usize = FOLIO_BYTES / PAGE;

/// 64 KiB of a file.
#[derive(Debug)]
pub(in crate::data) struct Folio {
    index: u32,
    /// Used since the clock's hand last came by.
    used: AtomicBool,
    /// Where the pages are: for the processor to fetch.
    near: Near,
    state: RwLock<State>,
}

/// Where memory is, or was, in lines of it, without the uppermost bits, which are those of what
/// lies around: nothing is read there.
#[derive(Debug, Default)]
struct Near {
    table: AtomicU32,
    pages: [AtomicU32; PAGES],
}

/// Binary logarithm of the bytes of a line.
const LINE_LOG2: u32 = 6;

impl Near {
    /// Returns the address of which `line` was noted, if it is about where this is.
    fn address(&self, line: &AtomicU32) -> Option<usize> {
        let line = u64::from(line.load(Ordering::Relaxed));
        // In 64 bits on processors of 32 too, where there are no uppermost bits.
        let own = std::ptr::from_ref(self).addr() as u64 >> LINE_LOG2 >> 32;
        (line != 0).then_some(((own << 32 | line) << LINE_LOG2) as usize)
    }
}

fn note<T>(line: &AtomicU32, place: &T) {
    let address = std::ptr::from_ref(place).addr();
    line.store((address >> LINE_LOG2) as u32, Ordering::Relaxed);
}

/// The content of a folio. Masks have one bit for each block.
#[derive(Debug, Default)]
pub(in crate::data) struct State {
    /// None at all while nothing has memory: then a folio is small.
    pages: Vec<Option<Page>>,
    /// Holds what the file holds.
    pub(in crate::data) uptodate: u64,
    /// Newer than the device.
    pub(in crate::data) dirty: u64,
    /// Not mapped; its place is promised or chosen.
    pub(in crate::data) delayed: u64,
    /// On its way to the device, or there and not mapped yet.
    pub(in crate::data) writeback: u64,
    /// Known to hold data on the device.
    pub(in crate::data) mapped: u64,
    /// Known to have a place on the device that holds nothing yet.
    pub(in crate::data) unwritten: u64,
    /// Not one of the file's any more: nothing is put into it.
    pub(in crate::data) gone: bool,
}

impl Folio {
    pub(in crate::data) fn new(index: u32) -> Self {
        Self {
            index,
            used: AtomicBool::new(true),
            near: Near::default(),
            state: RwLock::new(&FOLIO, State::default()),
        }
    }

    /// Which folio of the file it is.
    pub(in crate::data) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the first block.
    pub(in crate::data) fn first_block(&self, log2: u32) -> u64 {
        u64::from(self.index) << (FOLIO_LOG2 - log2)
    }

    /// Locks the folio, in ascending order of folios of one file.
    pub(in crate::data) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.note_use();
        self.state.write_ascending(self.index.into())
    }

    /// Locks the folio against changes, in ascending order.
    pub(in crate::data) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.note_use();
        self.state.read_ascending(self.index.into())
    }

    /// Locks the folio against changes, unless somebody changes it.
    pub(in crate::data) fn try_read(&self) -> Option<RwLockReadGuard<'_, State>> {
        self.note_use();
        self.state.try_read()
    }

    /// Locks the folio if nobody else has it.
    pub(in crate::data) fn try_write(&self) -> Option<RwLockWriteGuard<'_, State>> {
        self.state.try_write()
    }

    /// Has the processor bring near what there is of `len` bytes from `at` on, which are about to
    /// be used.
    pub(in crate::data) fn prefetch(&self, at: usize, len: usize) {
        let page = at >> PAGE_LOG2;
        if let Some(table) = self.near.address(&self.near.table) {
            prefetch(table + page * size_of::<Option<Page>>(), 1);
        }
        if let Some(start) = self.near.address(&self.near.pages[page]) {
            let inside = at & (PAGE - 1);
            prefetch(start + inside, len.min(PAGE - inside).min(MOST_AHEAD));
        }
    }

    /// Notes where the pages of bytes `range` are.
    pub(in crate::data) fn note_pages(&self, state: &State, range: &Range<usize>) {
        if let Some(first) = state.pages.first() {
            note(&self.near.table, first);
        }
        for (page, _) in parts(range.clone()) {
            if let Some(Some(Page::Whole(memory))) = state.pages.get(page) {
                note(&self.near.pages[page], &memory[0]);
            }
        }
    }

    /// Notes that it is of use.
    #[inline]
    pub(in crate::data) fn note_use(&self) {
        // Stored once a turn of the hand, so that a hot folio's line stays shared.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Tells whether it was used since the last call. A use at the same moment may be lost.
    pub(in crate::data) fn take_used(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        if used {
            self.used.store(false, Ordering::Relaxed);
        }
        used
    }
}

/// Returns the bits of blocks `range` of a folio.
pub(in crate::data) fn mask(range: Range<u32>) -> u64 {
    let len = range.end.saturating_sub(range.start);
    match len {
        0 => 0,
        1..64 => ((1_u64 << len) - 1) << range.start,
        _ => u64::MAX,
    }
}

/// Returns the bits of the blocks that bytes `range` of a folio touch.
pub(in crate::data) fn mask_of_bytes(range: &Range<usize>, log2: u32) -> u64 {
    if range.is_empty() {
        return 0;
    }
    // At most 64 KiB.
    mask((range.start >> log2) as u32..((range.end - 1) >> log2) as u32 + 1)
}

/// Returns the rows of set bits, ascending.
pub(in crate::data) fn rows(mut bits: u64) -> impl Iterator<Item = Range<u32>> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let start = bits.trailing_zeros();
        let len = (bits >> start).trailing_ones();
        bits &= !mask(start..start + len);
        Some(start..start + len)
    })
}

/// Returns the parts of bytes `range` of a folio in its pages: which page, and which bytes of it.
fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let page = at >> PAGE_LOG2;
        let from = at & (PAGE - 1);
        let to = PAGE.min(from + (range.end - at));
        at += to - from;
        Some((page, from..to))
    })
}

impl State {
    /// Blocks that are yet to be written, or to be mapped.
    pub(in crate::data) fn waiting(&self) -> u64 {
        self.dirty | self.writeback | self.delayed
    }

    /// Blocks of which it is known what they have on the device: a place, or a promise of one.
    pub(in crate::data) fn known(&self) -> u64 {
        self.mapped | self.unwritten | self.delayed | self.writeback
    }

    /// Bytes of memory of all pages.
    pub(in crate::data) fn memory(&self) -> usize {
        self.pages.iter().flatten().map(Page::memory).sum()
    }

    /// Tells whether nothing is there that the device does not have.
    pub(in crate::data) fn is_clean(&self) -> bool {
        self.dirty | self.writeback | self.delayed == 0
    }

    /// Sees to it that there is memory for bytes `range`, which are about to be written. Other
    /// bytes that get memory by this, as few as can be if it is to be `frugal`, are zeros. Returns
    /// how many bytes of memory came.
    pub(in crate::data) fn provide(
        &mut self,
        range: &Range<usize>,
        pool: &Pool,
        frugal: bool,
    ) -> usize {
        let mut came = 0;
        if self.pages.len() < PAGES && !range.is_empty() {
            // Small files have one page.
            let most = if range.end <= PAGE { 1 } else { PAGES };
            if self.pages.len() < most {
                self.pages.reserve_exact(most - self.pages.len());
                self.pages.resize_with(most, || None);
            }
        }
        for (page, part) in parts(range.clone()) {
            let Some(place) = self.pages.get_mut(page) else {
                continue;
            };
            let before = place.as_ref().map_or(0, Page::memory);
            let page = match place.take() {
                None => pool.get(&part, frugal),
                Some(page) if page.covers(&part) => page,
                Some(page) => pool.widen(page, &part, frugal),
            };
            came += page.memory() - before;
            *place = Some(page);
        }
        came
    }

    /// Tells whether there is memory for all bytes of `range`.
    pub(in crate::data) fn covers(&self, range: &Range<usize>) -> bool {
        parts(range.clone()).all(|(page, part)| {
            let page = self.pages.get(page).and_then(Option::as_ref);
            page.is_some_and(|page| page.covers(&part))
        })
    }

    /// Copies bytes from `at` on into `buf`.
    pub(in crate::data) fn copy_out(&self, at: usize, buf: &mut [u8]) {
        let mut done = 0;
        for slice in self.slices(at..at + buf.len()) {
            buf[done..done + slice.len()].copy_from_slice(slice);
            done += slice.len();
        }
    }

    /// Copies `data` to `at`. There is memory.
    pub(in crate::data) fn copy_in(&mut self, at: usize, data: &[u8]) {
        let mut done = 0;
        for slice in self.slices_mut(at..at + data.len()) {
            slice.copy_from_slice(&data[done..done + slice.len()]);
            done += slice.len();
        }
    }

    /// Makes zeros of bytes `range`.
    pub(in crate::data) fn zero(&mut self, range: Range<usize>) {
        for (page, part) in parts(range) {
            if let Some(Some(page)) = self.pages.get_mut(page) {
                page.part_mut(&part).fill(0);
            }
        }
    }

    /// Tells whether bytes `range` hold anything but zeros.
    pub(in crate::data) fn has_data(&self, range: Range<usize>) -> bool {
        self.slices(range)
            .any(|slice| slice.iter().any(|&byte| byte != 0))
    }

    /// Bytes `range`, in pieces.
    pub(in crate::data) fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let pieces = parts(range).flat_map(|(page, part)| match self.pages.get(page) {
            Some(Some(page)) => page.pieces(&part),
            _ => [&ZEROS[..part.len()], &[], &[]],
        });
        pieces.filter(|piece| !piece.is_empty())
    }

    /// Bytes `range`, in pieces, to be changed. There is memory.
    pub(in crate::data) fn slices_mut(
        &mut self,
        range: Range<usize>,
    ) -> impl Iterator<Item = &mut [u8]> {
        let first = range.start >> PAGE_LOG2;
        let mut parts = parts(range);
        self.pages.iter_mut().skip(first).map_while(move |page| {
            let (_, part) = parts.next()?;
            Some(page.as_mut()?.part_mut(&part))
        })
    }

    /// Forgets blocks: they are neither up to date nor dirty any more. Takes out the pages that no
    /// block needs then.
    pub(in crate::data) fn forget(&mut self, blocks: u64, log2: u32, mut gone: impl FnMut(Page)) {
        for bits in [
            &mut self.uptodate,
            &mut self.dirty,
            &mut self.delayed,
            &mut self.writeback,
            &mut self.mapped,
            &mut self.unwritten,
        ] {
            *bits &= !blocks;
        }
        for (i, page) in self.pages.iter_mut().enumerate() {
            let bytes = i << PAGE_LOG2..(i + 1) << PAGE_LOG2;
            if self.uptodate & mask_of_bytes(&bytes, log2) == 0
                && let Some(page) = page.take()
            {
                gone(page);
            }
        }
        if self.uptodate == 0 {
            self.pages = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_runs_of_set_bits() {
        let all: Vec<_> = rows(0b1110_0101).collect();
        assert_eq!(all, [0..1, 2..3, 5..8]);
        assert_eq!(rows(u64::MAX).collect::<Vec<_>>(), vec![0..64]);
        assert_eq!(rows(0).count(), 0);
    }

    #[test]
    fn masks_have_a_bit_for_each_block_touched() {
        assert_eq!(mask_of_bytes(&(0..1), 10), 1);
        assert_eq!(mask_of_bytes(&(1023..1025), 10), 3);
        assert_eq!(mask_of_bytes(&(0..FOLIO_BYTES), 10), u64::MAX);
        assert_eq!(mask_of_bytes(&(0..FOLIO_BYTES), 12), 0xffff);
        assert_eq!(mask_of_bytes(&(0..FOLIO_BYTES), 16), 1);
        assert_eq!(mask_of_bytes(&(5..5), 12), 0);
    }

    #[test]
    fn bytes_written_over_pages_come_back_and_forgotten_pages_go() {
        let mut state = State::default();
        let data: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
        let came = state.provide(&(100..10_100), &Pool::new(1 << 30), true);
        // Of the last page the first half.
        assert_eq!(came, 2 * PAGE + PAGE / 2);
        state.copy_in(100, &data);
        let mut back = vec![0; data.len()];
        state.copy_out(100, &mut back);
        assert_eq!(back, data);
        state.uptodate = 0b111;
        let mut gone = 0;
        state.forget(0b101, 12, |_| gone += 1);
        assert_eq!((gone, state.memory(), state.uptodate), (2, PAGE, 0b010));
    }
}
