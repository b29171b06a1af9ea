//! A device whose changes go to another one.
//!
//! # Invariants
//! - The base device is never written.
//! - A block that is marked as changed lies wholly on the device for changes. It is marked after it
//!   was written there, so that readers find all of it on one of the two.
//! - A block that is not marked is written to `changes` by one thread at a time, which copies the
//!   base there or changes all of it: what was copied late never lies over a change. No lock is
//!   held meanwhile, since the block is noted as being moved.
//! - A thread has one turn to move blocks at a time, so that none waits for another that waits.

use crate::device::total_len;
use crate::{BlockDevice, DeviceResult, SharedDevice};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

static CHANGED: LockClass = LockClass::new("changed blocks", Rank::Leaf);

/// Bytes of a block: what is copied for a change of a part of it.
const BLOCK: u64 = 4096;
/// Words of a page of marks.
const WORDS: usize = 64;
/// Blocks that a word marks.
const IN_WORD: u64 = u64::BITS as u64;
/// Blocks that a page marks.
const IN_PAGE: u64 = WORDS as u64 * IN_WORD;

/// A device that takes writes without changing the one below: what is written goes to a second
/// device, and is read from there. Both are used in blocks of 4 KiB, and a bit of memory is needed
/// for each block of the parts that were written to: at most 32 MiB for each TiB.
///
/// Nothing is durable: [`flush`](BlockDevice::flush) does nothing, and with the second device the
/// changes are gone.
pub struct CowDevice {
    base: SharedDevice,
    changes: SharedDevice,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    changed: Marks,
    /// Blocks that threads move to the device for changes, one range for each thread: one that it
    /// copies in order to change a part, or all those that it changes wholly.
    moving: Vec<Range<u64>>,
}

/// Which blocks are marked, in pages that are there from the first mark in them on.
#[derive(Default)]
struct Marks(BTreeMap<u64, Box<[u64; WORDS]>>);

impl Marks {
    fn word(&self, block: u64) -> u64 {
        let page = self.0.get(&(block / IN_PAGE));
        page.map_or(0, |page| page[(block % IN_PAGE / IN_WORD) as usize])
    }

    fn has(&self, block: u64) -> bool {
        self.word(block) >> (block % IN_WORD) & 1 == 1
    }

    fn set(&mut self, blocks: Range<u64>) {
        let mut at = blocks.start;
        while at < blocks.end {
            let end = (at / IN_WORD + 1) * IN_WORD;
            let count = end.min(blocks.end) - at;
            let ones = u64::MAX >> (IN_WORD - count);
            let page = self.0.entry(at / IN_PAGE).or_insert([0; WORDS].into());
            page[(at % IN_PAGE / IN_WORD) as usize] |= ones << (at % IN_WORD);
            at += count;
        }
    }

    /// Whether the first of these blocks is marked, and where the first one is that differs.
    fn run(&self, blocks: Range<u64>) -> (bool, u64) {
        let is_marked = self.has(blocks.start);
        let mut at = blocks.start;
        while at < blocks.end {
            if !is_marked && !self.0.contains_key(&(at / IN_PAGE)) {
                let page = self.0.range(at / IN_PAGE..).next();
                at = page.map_or(blocks.end, |(page, _)| page * IN_PAGE);
                continue;
            }
            let word = self.word(at);
            let word = if is_marked { !word } else { word };
            let different = word >> (at % IN_WORD);
            if different != 0 {
                at += u64::from(different.trailing_zeros());
                break;
            }
            at = (at / IN_WORD + 1) * IN_WORD;
        }
        (is_marked, at.min(blocks.end))
    }
}

/// The turn to move blocks to the device for changes, which goes on to the next thread when this is
/// dropped.
struct Turn<'a> {
    device: &'a CowDevice,
    blocks: Range<u64>,
}

impl Turn<'_> {
    /// Marks the blocks, which lie on the device for changes now.
    fn done(self) {
        let mut state = self.device.state.lock();
        state.changed.set(self.blocks.clone());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.device.state.lock();
        state.moving.retain(|blocks| *blocks != self.blocks);
        drop(state);
        self.device.moved.notify_all();
    }
}

impl CowDevice {
    /// Puts `changes`, which reads as zeroes and has room for it, over `base`.
    ///
    /// # Errors
    /// `ReadOnly` or `OutOfRange` when `changes` cannot be written to as far as `base` reaches.
    pub fn new(base: SharedDevice, changes: SharedDevice) -> DeviceResult<Self> {
        changes.check_writable("write", 0, base.size())?;
        Ok(Self {
            base,
            changes,
            state: Mutex::new(&CHANGED, State::default()),
            moved: Condvar::new(),
        })
    }

    /// Returns the ranges of bytes that were changed, in ascending order: whole blocks of 4 KiB,
    /// but for the end of the device. What is being changed meanwhile may be missing.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let state = self.state.lock();
        let end = self.size().div_ceil(BLOCK);
        let mut found = Vec::new();
        let mut at = 0;
        while at < end {
            let (is_changed, to) = state.changed.run(at..end);
            if is_changed {
                found.push(at * BLOCK..(to * BLOCK).min(self.size()));
            }
            at = to;
        }
        found
    }

    /// Bytes of a block, of which the last one may be cut.
    fn bytes_of(&self, block: u64) -> Range<u64> {
        block * BLOCK..((block + 1) * BLOCK).min(self.size())
    }

    /// The blocks that lie wholly in a range of bytes.
    fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.div_ceil(BLOCK);
        let end = if range.end == self.size() {
            range.end.div_ceil(BLOCK)
        } else {
            range.end / BLOCK
        };
        start..end.max(start)
    }

    /// The blocks that lie in a range of bytes in part: at most two.
    fn cut_blocks(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let whole = self.whole_blocks(range);
        let (first, last) = (range.start / BLOCK, (range.end - 1) / BLOCK);
        let last = (last != first).then_some(last);
        [Some(first), last]
            .into_iter()
            .flatten()
            .filter(move |block| !whole.contains(block))
    }

    /// Waits until no other thread moves any of these blocks, and keeps others from it. `None` when
    /// all of them lie on the device for changes: nothing is copied there any more.
    fn turn(&self, blocks: Range<u64>) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        loop {
            if blocks.is_empty() || state.changed.run(blocks.clone()) == (true, blocks.end) {
                return None;
            }
            let mut others = state.moving.iter();
            if !others.any(|other| other.start < blocks.end && blocks.start < other.end) {
                break;
            }
            self.moved.wait(&mut state);
        }
        state.moving.push(blocks.clone());
        drop(state);
        Some(Turn {
            device: self,
            blocks,
        })
    }

    /// Sees to it that a block lies on the device for changes.
    fn copy(&self, block: u64) -> DeviceResult<()> {
        let Some(turn) = self.turn(block..block + 1) else {
            return Ok(());
        };
        let bytes = self.bytes_of(block);
        let mut content = [0; BLOCK as usize];
        let content = &mut content[..(bytes.end - bytes.start) as usize];
        self.base.read_at(bytes.start, content)?;
        self.changes.write_at(bytes.start, content)?;
        turn.done();
        Ok(())
    }

    /// Has `change` change a range of bytes, which is not empty, on the device for changes.
    fn change(
        &self,
        range: &Range<u64>,
        change: impl FnOnce() -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        for block in self.cut_blocks(range) {
            self.copy(block)?;
        }
        let turn = self.turn(self.whole_blocks(range));
        change()?;
        if let Some(turn) = turn {
            turn.done();
        }
        Ok(())
    }

    /// The first part of a range of bytes that lies on one device, and whether it was changed.
    fn part(&self, range: &Range<u64>) -> (bool, Range<u64>) {
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        let (is_changed, end) = self.state.lock().changed.run(blocks);
        (is_changed, range.start..(end * BLOCK).min(range.end))
    }

    fn device(&self, is_changed: bool) -> &SharedDevice {
        if is_changed {
            &self.changes
        } else {
            &self.base
        }
    }
}

impl fmt::Debug for CowDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CowDevice")
            .field("base", &self.base)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for CowDevice {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        self.base.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let mut rest = offset..offset + buf.len() as u64;
        while !rest.is_empty() {
            let (is_changed, part) = self.part(&rest);
            let bytes = (part.start - offset) as usize..(part.end - offset) as usize;
            self.device(is_changed)
                .read_at(part.start, &mut buf[bytes])?;
            rest.start = part.end;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        let range = offset..offset + buf.len() as u64;
        if range.is_empty() {
            return Ok(());
        }
        self.change(&range, || self.changes.write_at(offset, buf))
    }

    /// Reads from one device at once, as far as the range lies on one.
    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        let len = total_len(bufs.iter().map(|buf| &**buf));
        self.check_range("read", offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let range = offset..offset + len;
        let (is_changed, part) = self.part(&range);
        if part == range {
            return self.device(is_changed).read_vectored_at(offset, bufs);
        }
        let mut at = offset;
        for buf in bufs {
            self.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let len = total_len(bufs.iter().map(|buf| &**buf));
        self.check_writable("write", offset, len)?;
        let range = offset..offset + len;
        if range.is_empty() {
            return Ok(());
        }
        self.change(&range, || self.changes.write_vectored_at(offset, bufs))
    }

    /// Does nothing: the changes do not outlive the device.
    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    /// Gives the room of whole blocks back, which read as zeroes then.
    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("discard", offset, len)?;
        let whole = self.whole_blocks(&(offset..offset + len));
        if whole.is_empty() {
            return Ok(());
        }
        let (start, end) = (whole.start * BLOCK, (whole.end * BLOCK).min(self.size()));
        self.zero(start, end - start)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        let range = offset..offset + len;
        if range.is_empty() {
            return Ok(());
        }
        self.change(&range, || self.changes.zero(offset, len))
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.base.prefetch(ranges);
    }

    fn logical_sector(&self) -> u32 {
        self.base.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.base.preferred_io().max(BLOCK as u32)
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let mut rest = from..end.min(self.size());
        while !rest.is_empty() {
            let (is_changed, part) = self.part(&rest);
            let found = self
                .device(is_changed)
                .next_data(part.start, part.end)?
                .map(|found| found.start.max(part.start)..found.end.min(part.end));
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                return Ok(Some(found));
            }
            rest.start = part.end;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_runs_of_blocks_wherever_words_and_pages_end() {
        let mut marks = Marks::default();
        let marked = [3..4, 60..70, 4000..IN_PAGE + 5, 9 * IN_PAGE..10 * IN_PAGE];
        for range in &marked {
            marks.set(range.clone());
        }
        let end = 12 * IN_PAGE;
        let mut found = Vec::new();
        let mut at = 0;
        while at < end {
            let (is_marked, to) = marks.run(at..end);
            assert!(to > at);
            if is_marked {
                found.push(at..to);
            }
            at = to;
        }
        assert_eq!(found, marked);
        assert_eq!(marks.run(62..64), (true, 64));
        assert_eq!(marks.0.len(), 3, "pages without marks are not there");
    }
}
