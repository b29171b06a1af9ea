//! Pages: the memory that folios are made of, and a store of memory for use again.
//!
//! A page need not have memory for all its bytes: little writes here and there take little. Bytes
//! without memory are zeros.

use crate::data::cache::prefault::ReadyPages;
use crate::data::range::zeros::ZEROS;
use extant_sync::{LockClass, Mutex, PerCpu, Rank};
use std::ops::Range;

static POOL: LockClass = LockClass::new("page pool", Rank::Leaf);

/// Binary logarithm of the bytes of a page.
pub(in crate::data) const PAGE_LOG2: u32 = 12;
/// Bytes of a page.
pub(in crate::data) const PAGE: usize = 1 << PAGE_LOG2;
const HALF: usize = PAGE / 2;
const QUARTER: usize = PAGE / 4;
/// Pieces of each size that are kept for use again, for each CPU.
const KEPT: usize = 1024;

pub(in crate::data) type Memory<const BYTES: usize> = Box<[u8; BYTES]>;

/// New memory.
pub(in crate::data) fn zeroed<const BYTES: usize>() -> Memory<BYTES> {
    match vec![0; BYTES].into_boxed_slice().try_into() {
        Ok(memory) => memory,
        Err(_) => unreachable!("as long as it was made"),
    }
}

/// The memory of a page: of all of it, or of its half or quarter of that number.
#[derive(Debug)]
pub(in crate::data) enum Page {
    Whole(Memory<PAGE>),
    Half(Memory<HALF>, u8),
    Quarter(Memory<QUARTER>, u8),
}

impl Page {
    /// Returns the bytes that have memory.
    pub(in crate::data) fn range(&self) -> Range<usize> {
        match self {
            Self::Whole(_) => 0..PAGE,
            Self::Half(_, i) => usize::from(*i) * HALF..(usize::from(*i) + 1) * HALF,
            Self::Quarter(_, i) => usize::from(*i) * QUARTER..(usize::from(*i) + 1) * QUARTER,
        }
    }

    /// Returns how many bytes have memory.
    pub(in crate::data) fn memory(&self) -> usize {
        self.range().len()
    }

    /// Tells whether all bytes of `range` have memory.
    pub(in crate::data) fn covers(&self, range: &Range<usize>) -> bool {
        let own = self.range();
        own.start <= range.start && range.end <= own.end
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(memory) => &memory[..],
            Self::Half(memory, _) => &memory[..],
            Self::Quarter(memory, _) => &memory[..],
        }
    }

    /// Returns what has memory of bytes `range`.
    pub(in crate::data) fn part_mut(&mut self, range: &Range<usize>) -> &mut [u8] {
        let own = self.range();
        let from = range.start.clamp(own.start, own.end) - own.start;
        let to = range.end.clamp(own.start, own.end) - own.start;
        let bytes = match self {
            Self::Whole(memory) => &mut memory[..],
            Self::Half(memory, _) => &mut memory[..],
            Self::Quarter(memory, _) => &mut memory[..],
        };
        &mut bytes[from..to.max(from)]
    }

    /// Bytes `range`, in three pieces, of which some may be empty: zeros, memory, zeros.
    pub(in crate::data) fn pieces(&self, range: &Range<usize>) -> [&[u8]; 3] {
        let own = self.range();
        let from = own.start.clamp(range.start, range.end);
        let to = own.end.clamp(from, range.end);
        if from == to {
            return [&ZEROS[..range.len()], &[], &[]];
        }
        [
            &ZEROS[..from - range.start],
            &self.bytes()[from - own.start..to - own.start],
            &ZEROS[..range.end - to],
        ]
    }
}

/// Memory that nobody uses, near each CPU: it need not come from the system.
#[derive(Debug)]
pub(in crate::data) struct Pool {
    free: PerCpu<Mutex<Free>>,
    pub(in crate::data) ready: ReadyPages,
}

#[derive(Debug, Default)]
struct Free {
    wholes: Vec<Memory<PAGE>>,
    /// Whole pages that are zeros.
    fresh: Vec<Memory<PAGE>>,
    halves: Vec<Memory<HALF>>,
    quarters: Vec<Memory<QUARTER>>,
}

impl Pool {
    /// For a cache of `memory` bytes.
    pub(in crate::data) fn new(memory: usize) -> Self {
        Self {
            free: PerCpu::new(|_| Mutex::new(&POOL, Free::default())),
            ready: ReadyPages::new(memory),
        }
    }

    /// Memory for bytes `range` of a page, which are about to be written, and for all of the page
    /// unless it is to be `frugal`. All other bytes are zeros.
    pub(in crate::data) fn get(&self, range: &Range<usize>, frugal: bool) -> Page {
        if !frugal {
            return Page::Whole(self.whole(range));
        }
        let last = range.end.max(range.start + 1) - 1;
        let (half, quarter) = (range.start / HALF, range.start / QUARTER);
        if last / QUARTER == quarter {
            let kept = self.free.local().lock().quarters.pop();
            Page::Quarter(ready(kept, range), quarter as u8)
        } else if last / HALF == half {
            let kept = self.free.local().lock().halves.pop();
            Page::Half(ready(kept, range), half as u8)
        } else {
            Page::Whole(self.whole(range))
        }
    }

    /// Memory for a whole page, of which bytes `range` are about to be written.
    fn whole(&self, range: &Range<usize>) -> Memory<PAGE> {
        let mut free = self.free.local().lock();
        if let Some(kept) = free.wholes.pop() {
            drop(free);
            return ready(Some(kept), range);
        }
        if free.fresh.is_empty()
            && let Some(batch) = self.ready.take()
        {
            free.fresh = batch;
        }
        let fresh = free.fresh.pop();
        drop(free);
        fresh.unwrap_or_else(zeroed)
    }

    /// Returns a page like `page` with memory for bytes `range` too.
    pub(in crate::data) fn widen(&self, page: Page, range: &Range<usize>, frugal: bool) -> Page {
        let own = page.range();
        let hull = own.start.min(range.start)..own.end.max(range.end);
        let mut wide = self.get(&hull, frugal);
        // What lies between the two is about to be written by nobody.
        let between = own.end.min(range.end)..own.start.max(range.start);
        wide.part_mut(&between).fill(0);
        wide.part_mut(range).fill(0);
        wide.part_mut(&own).copy_from_slice(page.bytes());
        self.put(page);
        wide
    }

    /// Keeps nothing any more.
    pub(in crate::data) fn clear(&self) {
        for free in self.free.iter() {
            let free = std::mem::take(&mut *free.lock());
            drop(free);
        }
    }

    /// Keeps memory for later, if there is not too much.
    pub(in crate::data) fn put(&self, page: Page) {
        let mut free = self.free.local().lock();
        match page {
            Page::Whole(memory) => keep(&mut free.wholes, memory),
            Page::Half(memory, _) => keep(&mut free.halves, memory),
            Page::Quarter(memory, _) => keep(&mut free.quarters, memory),
        }
    }
}

/// Memory that is zeros but for `range` of its page, which may be anything.
fn ready<const BYTES: usize>(kept: Option<Memory<BYTES>>, range: &Range<usize>) -> Memory<BYTES> {
    let Some(mut memory) = kept else {
        return zeroed();
    };
    let from = range.start % BYTES;
    let to = from + range.len();
    memory[..from].fill(0);
    memory[to.min(BYTES)..].fill(0);
    memory
}

fn keep<const BYTES: usize>(kept: &mut Vec<Memory<BYTES>>, memory: Memory<BYTES>) {
    if kept.len() < KEPT {
        kept.push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};

    #[test]
    fn what_was_never_written_is_zeros_whatever_memory_held_before() {
        let mut rng = Rng::new(seed_from_env("data_page"));
        let pool = Pool::new(1 << 30);
        for _ in 0..2000 {
            let mut expected = [0_u8; PAGE];
            let mut page: Option<Page> = None;
            for _ in 0..rng.between(1, 4) {
                let from = rng.below(PAGE as u64) as usize;
                let most = if rng.one_in(2) { PAGE } else { QUARTER };
                let len = rng.between(1, most.min(PAGE - from) as u64) as usize;
                let range = from..from + len;
                let mut new = match page.take() {
                    None => pool.get(&range, rng.one_in(2)),
                    Some(page) if page.covers(&range) => page,
                    Some(page) => pool.widen(page, &range, rng.one_in(2)),
                };
                new.part_mut(&range).fill(7);
                expected[range].fill(7);
                let all = new.pieces(&(0..PAGE)).concat();
                assert!(all == expected);
                page = Some(new);
            }
            pool.put(page.unwrap());
        }
    }

    #[test]
    fn small_writes_take_little_memory() {
        let pool = Pool::new(1 << 30);
        assert_eq!(pool.get(&(1024..2048), true).memory(), 1024);
        assert_eq!(pool.get(&(3000..4096), true).memory(), 2048);
        assert_eq!(pool.get(&(2047..2049), true).memory(), 4096);
        assert_eq!(pool.get(&(0..10), false).memory(), 4096);
        let page = pool.get(&(0..10), true);
        assert_eq!(pool.widen(page, &(1500..1501), true).memory(), 2048);
    }
}
