//! A device that keeps what was there before it is written to.

use super::batch::{FULL, Kind, Page, Writer};
use super::{BLOCK, PRIMARY, RECORD_MAX, Sums, bytes_of};
use crate::blockset::BlockSet;
use crate::error::{Error, Result};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_format::superblock::SUPERBLOCK_OFFSET;
use extant_sync::{LockClass, Rank, RwLock};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

static KEPT: LockClass = LockClass::new("what was there", Rank::Kept);

/// Bytes that wait in memory before they are written.
const WAITING_MAX: usize = 32 << 20;
/// How what blocks become is told apart.
const SUMS: Sums = Sums::Sha256;
/// Where the UUID lies on the device.
const UUID_AT: u64 = SUPERBLOCK_OFFSET + 0x68;

/// A device that keeps in an undo file what the blocks of another one hold, before it writes to
/// them for the first time. [`crate::repair::revert`] puts that back.
///
/// Writes wait in memory until they are to be durable, or are many. Then what was there is written
/// to the undo file and made durable, once for all of them, and only then are they made. So a crash
/// at any moment leaves an undo file that takes back all that was written.
///
/// An undo file that cannot be written, such as for want of space, has all further changes refused:
/// see [`KeepingDevice::failure`].
pub struct KeepingDevice {
    base: SharedDevice,
    state: RwLock<State>,
}

struct State {
    /// What waits to be written, by number of block.
    waiting: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of it.
    waiting_len: usize,
    /// Blocks that are kept.
    kept: BlockSet,
    count: u64,
    /// Whether anything may have been changed.
    is_changed: bool,
    out: Writer,
    /// Why nothing more can be kept.
    failure: Option<String>,
}

impl State {
    /// Whether a write to a block is made at once: nothing of it waits, and what was there is kept.
    fn is_direct(&self, block: u64) -> bool {
        block != PRIMARY && self.kept.contains(block) && !self.waiting.contains_key(&block)
    }
}

/// Records of what was there, which go to the file in batches.
struct Records<'a> {
    out: &'a mut Writer,
    bytes: Vec<u8>,
    /// Zeros that were met last.
    zeros: Range<u64>,
}

impl Records<'_> {
    fn new(out: &mut Writer) -> Records<'_> {
        Records {
            out,
            bytes: Vec::new(),
            zeros: 0..0,
        }
    }

    fn head(&mut self, range: Range<u64>, form: u32) {
        self.bytes.extend_from_slice(&range.start.to_le_bytes());
        let len = range.end - range.start;
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(&form.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    fn put_zeros(&mut self) {
        let zeros = std::mem::replace(&mut self.zeros, 0..0);
        if !zeros.is_empty() {
            self.head(zeros, 1);
        }
    }

    /// Takes note of what whole blocks hold that begin at a byte.
    fn take(&mut self, start: u64, content: &[u8]) {
        let mut at = start;
        let mut from = 0;
        for block in content.chunks(BLOCK as usize) {
            let end = at + block.len() as u64;
            if block.iter().all(|byte| *byte == 0) {
                self.content(start, content, from..(at - start) as usize);
                if self.zeros.end != at {
                    self.put_zeros();
                    self.zeros = at..at;
                }
                self.zeros.end = end;
                from = (end - start) as usize;
            }
            at = end;
        }
        self.content(start, content, from..content.len());
    }

    fn content(&mut self, start: u64, content: &[u8], part: Range<usize>) {
        if part.is_empty() {
            return;
        }
        self.put_zeros();
        let range = start + part.start as u64..start + part.end as u64;
        self.head(range, 0);
        let bytes = content.get(part).unwrap_or_default();
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes all of them as a batch, and makes it durable.
    fn put(&mut self) -> io::Result<()> {
        self.put_zeros();
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.out.put(Kind::Kept, &self.bytes)?;
        self.bytes.clear();
        self.out.sync()
    }
}

/// An error of the base, or of the undo file.
enum Failed {
    Base(DeviceError),
    Undo(io::Error),
}

impl From<DeviceError> for Failed {
    fn from(e: DeviceError) -> Self {
        Self::Base(e)
    }
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Self {
        Self::Undo(e)
    }
}

/// Runs of numbers that follow each other, no longer than a record.
fn runs(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(last) if last.end == number && last.end - last.start < RECORD_MAX / BLOCK => {
                last.end += 1;
            }
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

impl KeepingDevice {
    /// Puts a device over `base` that keeps what is there in `file`, which is new and empty. Making
    /// its name durable is the caller's.
    ///
    /// # Errors
    /// Of the device, and [`Error::Undo`] of the file.
    pub fn new(base: SharedDevice, file: File) -> Result<Self> {
        let mut uuid = [0; 16];
        if base.size() >= UUID_AT + 16 {
            base.read_at(UUID_AT, &mut uuid)?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |now| now.as_nanos() as u64);
        let page = Page {
            size: base.size(),
            uuid,
            sums: SUMS,
            number: nanoseconds ^ u64::from(std::process::id()) << 40,
        };
        let out = Writer::begin(file, &page).map_err(Error::Undo)?;
        let state = State {
            waiting: BTreeMap::new(),
            waiting_len: 0,
            kept: BlockSet::default(),
            count: 0,
            is_changed: false,
            out,
            failure: None,
        };
        Ok(Self {
            base,
            state: RwLock::new(&KEPT, state),
        })
    }

    /// Returns why the undo file could not be written, if so. Nothing was changed that it does not
    /// hold: [`crate::repair::revert`] takes all of it back.
    pub fn failure(&self) -> Option<String> {
        self.state.read().failure.clone()
    }

    /// Writes what waits, makes it durable, and ends the undo file with sums of what the blocks
    /// hold now: they tell later whether they were written since. Returns how many blocks are
    /// kept: 0 if nothing was changed, and then the file gets no end and is of no use.
    ///
    /// # Errors
    /// Of the device, and [`Error::Undo`] of the file.
    pub fn finish(&self) -> Result<u64> {
        self.flush()?;
        let mut state = self.state.write();
        if !state.is_changed {
            return Ok(0);
        }
        let mut blocks = Vec::new();
        state
            .kept
            .runs(0..self.blocks(), &mut |run| blocks.push(run));
        let mut records: Vec<u8> = Vec::new();
        for run in blocks {
            let mut start = run.start;
            while start < run.end {
                let end = run.end.min(start + RECORD_MAX / BLOCK);
                let bytes = self.content(start..end)?;
                records.extend_from_slice(&(start * BLOCK).to_le_bytes());
                records.extend_from_slice(&((end - start) as u32).to_le_bytes());
                for block in bytes.chunks(BLOCK as usize) {
                    SUMS.push(block, &mut records);
                }
                if records.len() >= FULL {
                    state.out.put(Kind::Sums, &records).map_err(Error::Undo)?;
                    records.clear();
                }
                start = end;
            }
        }
        let count = state.count;
        state
            .out
            .put(Kind::Sums, &records)
            .and_then(|()| state.out.put(Kind::End, &count.to_le_bytes()))
            .and_then(|()| state.out.sync())
            .map_err(Error::Undo)?;
        Ok(count)
    }

    fn blocks(&self) -> u64 {
        self.size().div_ceil(BLOCK)
    }

    /// What some blocks of the base hold.
    fn content(&self, blocks: Range<u64>) -> DeviceResult<Vec<u8>> {
        let range = bytes_of(blocks, self.size());
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.base.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes note of why nothing can be kept any more, and says so.
    fn told(&self, state: &mut State, failed: Failed) -> DeviceError {
        match failed {
            Failed::Base(e) => e,
            Failed::Undo(e) => {
                let why = e.to_string();
                state.failure.get_or_insert(why);
                self.refused(state)
            }
        }
    }

    fn refused(&self, state: &State) -> DeviceError {
        let why = state.failure.as_deref().unwrap_or_default();
        DeviceError::Refused {
            place: self.name(),
            reason: format!("nothing is written, since the undo file cannot be: {why}"),
        }
    }

    fn check_failure(&self, state: &State) -> DeviceResult<()> {
        match state.failure {
            Some(_) => Err(self.refused(state)),
            None => Ok(()),
        }
    }

    /// Keeps blocks that are not kept yet, and makes that durable. `becomes` has the sums of what
    /// the block with the superblock becomes. That block is among the first that are kept, whether
    /// it is written or not: it tells whether the image was opened since, and gets the mark while a
    /// part is put back.
    fn keep(
        &self,
        state: &mut State,
        blocks: impl Iterator<Item = u64>,
        becomes: Option<Vec<u8>>,
    ) -> std::result::Result<(), Failed> {
        let kept = &state.kept;
        let mut new = runs(blocks.filter(|block| !kept.contains(*block)));
        if new.is_empty() && becomes.is_none() {
            return Ok(());
        }
        if !kept.contains(PRIMARY) && new.first().is_none_or(|run| run.start != PRIMARY) {
            new.insert(0, PRIMARY..PRIMARY + 1);
        }
        let mut records = Records::new(&mut state.out);
        // A block counts once its batch is durable, whatever fails after that.
        let mut taken = Vec::new();
        for run in new {
            let bytes = self.content(run.clone())?;
            records.take(run.start * BLOCK, &bytes);
            taken.push(run);
            if records.bytes.len() >= FULL {
                records.put()?;
                for run in taken.drain(..) {
                    state.count += run.end - run.start;
                    state.kept.add(run);
                }
            }
        }
        if let Some(sums) = becomes {
            records.put_zeros();
            records.head(bytes_of(PRIMARY..PRIMARY + 1, self.base.size()), 2);
            records.bytes.extend_from_slice(&sums);
        }
        records.put()?;
        for run in taken {
            state.count += run.end - run.start;
            state.kept.add(run);
        }
        Ok(())
    }

    /// Keeps what is where writes wait, and makes these.
    fn drain(&self, state: &mut State) -> DeviceResult<()> {
        self.check_failure(state)?;
        if state.waiting.is_empty() {
            return Ok(());
        }
        let blocks: Vec<u64> = state.waiting.keys().copied().collect();
        let becomes = state
            .waiting
            .get(&PRIMARY)
            .map(|block| SUMS.of_sectors(block));
        let kept = self.keep(state, blocks.iter().copied(), becomes);
        kept.map_err(|failed| self.told(state, failed))?;
        state.is_changed = true;
        for run in runs(blocks.into_iter()) {
            let mut bytes = Vec::new();
            for block in run.clone() {
                let waiting = state.waiting.get(&block);
                bytes.extend_from_slice(waiting.map_or(&[], |block| block));
            }
            self.base.write_at(run.start * BLOCK, &bytes)?;
        }
        state.waiting.clear();
        state.waiting_len = 0;
        Ok(())
    }

    /// Has a part of a block wait to be written.
    fn wait(&self, state: &mut State, block: u64, at: usize, bytes: &[u8]) -> DeviceResult<()> {
        if !state.waiting.contains_key(&block) {
            let range = bytes_of(block..block + 1, self.size());
            let len = (range.end - range.start) as usize;
            let content = if bytes.len() == len {
                vec![0; len]
            } else {
                self.content(block..block + 1)?
            };
            state.waiting_len += len;
            state.waiting.insert(block, content.into_boxed_slice());
        }
        let waiting = state.waiting.get_mut(&block);
        if let Some(to) = waiting.and_then(|waiting| waiting.get_mut(at..at + bytes.len())) {
            to.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Keeps what lies in a range of bytes that is to be changed otherwise than by writes, but for
    /// what is a hole: that reads as zeros until it is written.
    fn keep_range(&self, state: &mut State, range: Range<u64>) -> DeviceResult<()> {
        self.drain(state)?;
        let mut at = range.start / BLOCK * BLOCK;
        let end = (range.end.div_ceil(BLOCK) * BLOCK).min(self.size());
        while let Some(data) = self
            .base
            .next_data(at, end)?
            .filter(|data| !data.is_empty())
        {
            let data = data.start.max(at)..data.end.min(end);
            let mut block = data.start / BLOCK;
            let last = data.end.div_ceil(BLOCK);
            while block < last {
                let next = last.min(block + WAITING_MAX as u64 / BLOCK);
                let kept = self.keep(state, block..next, None);
                kept.map_err(|failed| self.told(state, failed))?;
                block = next;
            }
            at = data.end;
            if at >= end {
                break;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for KeepingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepingDevice")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for KeepingDevice {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn name(&self) -> String {
        self.base.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let state = self.state.read();
        self.base.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        for (block, content) in state.waiting.range(blocks) {
            let start = (block * BLOCK).max(offset);
            let stop = (block * BLOCK + content.len() as u64).min(end);
            let from =
                content.get((start - block * BLOCK) as usize..(stop - block * BLOCK) as usize);
            let to = buf.get_mut((start - offset) as usize..(stop - offset) as usize);
            if let (Some(to), Some(from)) = (to, from) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        let mut state = self.state.write();
        let state = &mut *state;
        self.check_failure(state)?;
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let block = at / BLOCK;
            let inside = (at % BLOCK) as usize;
            let mut len = rest.len().min(BLOCK as usize - inside);
            if state.is_direct(block) {
                // As many as there are of them.
                let mut next = block + 1;
                while len < rest.len() && state.is_direct(next) {
                    len = rest.len().min(len + BLOCK as usize);
                    next += 1;
                }
                let (now, later) = rest.split_at(len);
                state.is_changed = true;
                self.base.write_at(at, now)?;
                rest = later;
            } else {
                let (now, later) = rest.split_at(len);
                self.wait(state, block, inside, now)?;
                rest = later;
                if state.waiting_len >= WAITING_MAX {
                    self.drain(state)?;
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        let mut state = self.state.write();
        self.drain(&mut state)?;
        drop(state);
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.try_discard(offset, len).map(|_| ())
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.check_writable("discard", offset, len)?;
        let end = offset + len;
        // A hint: what holds the superblock stays.
        let start = offset.max((PRIMARY + 1) * BLOCK).min(end);
        if start == end {
            return Ok(true);
        }
        let mut state = self.state.write();
        self.keep_range(&mut state, start..end)?;
        let done = self.base.try_discard(start, end - start);
        state.is_changed |= !matches!(done, Ok(false));
        done
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        let end = offset + len;
        let start = offset.max((PRIMARY + 1) * BLOCK).min(end);
        if offset < start {
            self.write_at(offset, &vec![0; (start - offset) as usize])?;
        }
        if start == end {
            return Ok(());
        }
        let mut state = self.state.write();
        self.keep_range(&mut state, start..end)?;
        state.is_changed = true;
        self.base.zero(start, end - start)
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

    fn in_flight(&self) -> usize {
        self.base.in_flight()
    }

    fn is_served(&self) -> bool {
        self.base.is_served()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size());
        if from >= end {
            return Ok(None);
        }
        let state = self.state.read();
        let found = self.base.next_data(from, end)?;
        let mut waiting = state.waiting.range(from / BLOCK..end.div_ceil(BLOCK));
        let Some((block, _)) = waiting.next() else {
            return Ok(found);
        };
        let range = (block * BLOCK).max(from)..((block + 1) * BLOCK).min(end);
        Ok(Some(match found {
            Some(found) if found.start <= range.start => found,
            _ => range,
        }))
    }
}
