//! Reading files that may change: from memory, or through it.
//!
//! What is not in memory is read from the device into folios first, more of it at once the longer a
//! reader goes on from where it stopped. Holes take no memory.

use crate::Result;
use crate::data::cache::folio::{FOLIO_BYTES, FOLIO_LOG2, Folio, State, mask, mask_of_bytes, rows};
use crate::data::cache::number;
use crate::data::cache::readahead::MOST_FOLIOS;
use crate::data::io::{FileIo, blocks_of, device_offset, inside_file};
use crate::fs::Fs;
use crate::inode::LiveInode;
use crate::map::{self, Mapping, Target};
use extant_sync::{RwLockWriteGuard, pin};
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

/// Reads through memory what a file has of `buf.len()` bytes from `offset` on.
pub(in crate::data) fn read(
    fs: &Fs,
    live: &Arc<LiveInode>,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let len = inside_file(live, offset, buf.len());
    let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else {
        return Ok(0);
    };
    let io = FileIo::new(fs, live);
    let mut done = 0;
    let mut missed = false;
    while done < len {
        let at = offset + done as u64;
        match io.copy_known(at, &mut buf[done..]) {
            0 => {
                missed = true;
                done += io.read_missing(at, &mut buf[done..])?;
            }
            some => done += some,
        }
    }
    if missed && io.cache.caches.is_full() {
        io.cache.caches.evict();
    }
    Ok(len)
}

impl FileIo<'_> {
    /// Copies what is in memory from byte `offset` on, up to the end of its folio at most. Returns
    /// how much.
    fn copy_known(&self, offset: u64, buf: &mut [u8]) -> usize {
        let index = number(offset);
        let guard = pin();
        let Some(folio) = self.cache.index.get(index, &guard) else {
            return 0;
        };
        if let Some(state) = folio.try_read() {
            return copy_uptodate(&state, offset, buf, self.log2);
        }
        // Somebody changes it, and may wait for the device meanwhile.
        drop(guard);
        let folio = self.cache.index.load(index);
        folio.map_or(0, |folio| {
            copy_uptodate(&folio.read(), offset, buf, self.log2)
        })
    }

    /// Reads into `buf` from byte `offset` on, and ahead if that is how the file is read. Returns
    /// how much of `buf` was filled.
    fn read_missing(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let holes = self.skip_hole(offset, buf)?;
        if holes > 0 {
            self.cache.readers.pass(offset, offset + holes as u64);
            return Ok(holes);
        }
        // Blocks stay where they are until everything is read, and nobody begins to go past memory.
        let _stay = loop {
            let stay = self.live.pages().read();
            if !self.cache.is_bypassed() {
                break stay;
            }
            drop(stay);
            let _alone = self.live.op().write();
            self.cache.end_bypass();
        };
        self.cache.note_memory_use();
        let end = offset + buf.len() as u64;
        let first = number(offset);
        let last = number(end - 1).min(first.saturating_add(MOST_FOLIOS - 1));
        let reader = self.cache.readers.reader(offset);
        // With little memory, what is read ahead would be gone when it is asked for.
        let ahead = if self.cache.caches.is_full() {
            reader.window.min(2)
        } else {
            reader.window
        };
        let size = self.live.live_size();
        let top = number(size.saturating_sub(1)).max(last);
        let until = match ahead {
            0 => last,
            ahead => last.max(first.saturating_add(ahead - 1)).min(top),
        };
        loop {
            let folios: Vec<_> = (first..=until)
                .map(|index| self.cache.folio_at(index))
                .collect();
            if let Some(done) = self.read_into(&folios, offset, buf, ahead > 0)? {
                reader.note(match ahead {
                    0 => offset + done as u64,
                    _ => (u64::from(until) + 1) << FOLIO_LOG2,
                });
                return Ok(done);
            }
        }
    }

    /// Reads into `folios` what they lack, all there is of them if `whole` says so, and from byte
    /// `offset` of the file on into `buf`. Returns how much of `buf` was filled; `None` if one of
    /// the folios is gone.
    fn read_into(
        &self,
        folios: &[Arc<Folio>],
        offset: u64,
        buf: &mut [u8],
        whole: bool,
    ) -> Result<Option<usize>> {
        let (Some(first), Some(last)) = (folios.first(), folios.last()) else {
            return Ok(Some(0));
        };
        let (first, until) = (first.index(), last.index());
        let mut locked = Vec::with_capacity(folios.len());
        for folio in folios {
            let state = folio.write();
            if state.gone {
                drop(state);
                self.cache.take_out(folio);
                return Ok(None);
            }
            locked.push((folio.index(), &**folio, state));
        }
        let mut folios = locked;
        let end = offset + buf.len() as u64;
        let size = self.live.live_size();
        // Random reads bring in what was asked for, others all there is.
        let log2 = self.log2;
        let wanted = if !whole {
            offset >> log2 << log2..end.next_multiple_of(1 << log2)
        } else {
            u64::from(first) << FOLIO_LOG2..(u64::from(until) + 1) << FOLIO_LOG2
        };
        let wanted = wanted.start..wanted.end.min(size.next_multiple_of(1 << log2));
        let (_, runs) = map::runs_live(self.fs, self.live, |_| {
            wanted.start >> log2..wanted.end >> log2
        })?;
        for run in &runs {
            if let Target::Written(_) = run.target {
                self.fill(&mut folios, run, size)?;
            }
        }
        let mut done = 0;
        for (index, _, state) in &folios {
            let start = u64::from(*index) << FOLIO_LOG2;
            let from = (offset + done as u64).max(start);
            let to = end.min(start + FOLIO_BYTES as u64);
            if from >= to {
                break;
            }
            let at = (from - start) as usize;
            let len = (to - from) as usize;
            copy_or_zero(state, at, &mut buf[done..done + len], log2);
            done += len;
        }
        Ok(Some(done))
    }

    /// Makes zeros of what lies in a hole of the file of which memory has nothing, at the front of
    /// `buf`. Returns how much. So reading holes takes no memory, however large they are.
    fn skip_hole(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = offset + buf.len() as u64;
        let last = number(end - 1);
        // In this order: what somebody wrote before is in a folio, or in the map by now.
        let unused = (number(offset)..=last)
            .take_while(|&index| self.cache.index.get(index, &pin()).is_none())
            .count() as u64;
        if unused == 0 {
            return Ok(0);
        }
        let end = end.min(((offset >> FOLIO_LOG2) + unused) << FOLIO_LOG2);
        let blocks = blocks_of(self.fs, &(offset..end));
        let (_, runs) = map::runs_live(self.fs, self.live, |_| blocks.clone())?;
        let data = runs
            .iter()
            .find(|run| matches!(run.target, Target::Written(_)))
            .map_or(end, |run| u64::from(run.lblk.get()) << self.log2);
        let len = data.min(end).saturating_sub(offset) as usize;
        if let Some(zeros) = buf.get_mut(..len) {
            zeros.fill(0);
        }
        Ok(len)
    }

    /// Reads those blocks of `run` from the device that are not in memory. The folios are locked.
    fn fill(
        &self,
        folios: &mut [(u32, &Folio, RwLockWriteGuard<'_, State>)],
        run: &Mapping,
        size: u64,
    ) -> Result<()> {
        let log2 = self.log2;
        let missing = missing(folios, run, log2);
        for row in missing {
            let Some(pblk) = run
                .target
                .advanced(row.start - u64::from(run.lblk.get()))
                .pblk()
            else {
                continue;
            };
            let bytes = row.start << log2..row.end << log2;
            let mut slices = Vec::new();
            for (index, _, state) in folios.iter_mut() {
                let Some(own) = part_of(*index, &bytes) else {
                    continue;
                };
                let came = state.provide(&own, &self.cache.caches.pool, true);
                self.cache.caches.count_memory(came as i64);
                slices.extend(state.slices_mut(own).map(IoSliceMut::new));
            }
            let from = device_offset(self.fs, pblk, 0)?;
            for some in slices.chunks_mut(MOST_SLICES).scan(from, |at, some| {
                let here = *at;
                *at += some.iter().map(|slice| slice.len() as u64).sum::<u64>();
                Some((here, some))
            }) {
                self.fs.device().read_vectored_at(some.0, some.1)?;
            }
            drop(slices);
            for (index, folio, state) in folios.iter_mut() {
                let Some(own) = part_of(*index, &bytes) else {
                    continue;
                };
                let blocks = mask_of_bytes(&own, log2);
                self.clear_past_end(folio, state, own, size);
                state.uptodate |= blocks;
                state.mapped |= blocks;
            }
        }
        Ok(())
    }
}

/// Slices of one transfer at most.
const MOST_SLICES: usize = 1024;

/// Returns the blocks of `run` that are not up to date in `folios`, in rows.
fn missing(
    folios: &[(u32, &Folio, RwLockWriteGuard<'_, State>)],
    run: &Mapping,
    log2: u32,
) -> Vec<Range<u64>> {
    let bytes = u64::from(run.lblk.get()) << log2..run.end() << log2;
    let mut all: Vec<Range<u64>> = Vec::new();
    for (index, _, state) in folios {
        let Some(own) = part_of(*index, &bytes) else {
            continue;
        };
        let first = u64::from(*index) << (FOLIO_LOG2 - log2);
        for row in rows(mask_of_bytes(&own, log2) & !state.uptodate) {
            let row = first + u64::from(row.start)..first + u64::from(row.end);
            match all.last_mut() {
                Some(last) if last.end == row.start => last.end = row.end,
                _ => all.push(row),
            }
        }
    }
    all
}

/// Returns what bytes `range` of a file are in folio `index`.
fn part_of(index: u32, range: &Range<u64>) -> Option<Range<usize>> {
    let start = u64::from(index) << FOLIO_LOG2;
    let from = range.start.max(start) - start;
    let to = range
        .end
        .min(start + FOLIO_BYTES as u64)
        .checked_sub(start)?;
    (from < to).then_some(from as usize..to as usize)
}

/// Copies what is up to date from byte `offset` of the file on, which lies in the folio. Returns
/// how much.
fn copy_uptodate(state: &State, offset: u64, buf: &mut [u8], log2: u32) -> usize {
    let at = offset as usize & (FOLIO_BYTES - 1);
    let known = (state.uptodate >> (at >> log2)).trailing_ones() as usize;
    let end = ((at >> log2) + known) << log2;
    let len = end.min(FOLIO_BYTES).saturating_sub(at).min(buf.len());
    if len > 0 {
        state.copy_out(at, &mut buf[..len]);
    }
    len
}

/// Copies bytes from `at` on; blocks that are not there are holes.
fn copy_or_zero(state: &State, at: usize, buf: &mut [u8], log2: u32) {
    let all = mask_of_bytes(&(at..at + buf.len()), log2);
    if state.uptodate & all == all {
        return state.copy_out(at, buf);
    }
    let mut done = 0;
    while done < buf.len() {
        let block = (at + done) >> log2;
        let end = ((block + 1) << log2) - at;
        let to = end.min(buf.len());
        let part = &mut buf[done..to];
        match state.uptodate & mask(block as u32..block as u32 + 1) {
            0 => part.fill(0),
            _ => state.copy_out(at + done, part),
        }
        done = end;
    }
}
