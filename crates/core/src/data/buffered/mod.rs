//! Writing to memory.
//!
//! A write copies its bytes into folios and leaves the rest to [writeback](crate::data::writeback).
//! Of a block that it covers in part and that is not in memory, the rest is read first. A block
//! that has no place on the device gets the promise of one, or, where the file system was opened
//! so, the place itself.
//!
//! # Invariants
//!
//! - A write that changes the size has `op` exclusively, all others shared.
//! - Before the size passes the last block of a file, what that block holds past the old end is
//!   zeros in memory, and the block is dirty if the device has anything else there.

pub(super) mod fast_path;
pub(super) mod read;
pub(super) mod seek;

use crate::alloc::{FileRequest, Taken};
use crate::data::cache::folio::{FOLIO_BYTES, FOLIO_LOG2, Folio, State, mask, mask_of_bytes, rows};
use crate::data::cache::number;
use crate::data::io::{
    FileIo, Position, WriteIo, WriteOptions, check_changeable, check_writable, size_limit,
    within_limit,
};
use crate::data::reserve::preallocation;
use crate::data::stored::read::read_device;
use crate::data::times;
use crate::data::writeback::flusher;
use crate::fs::Fs;
use crate::inode::Held;
use crate::map::{self, Target};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result, xattr};
use extant_format::{Lblk, Pblk};
use extant_sync::{RwLockWriteGuard, pin};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Bytes that are written before limits are looked after again.
const CHUNK: usize = 8 << 20;

/// Writes to a file through memory. Returns where, and how much.
///
/// # Errors
/// As for [`write_at`](crate::data::write_at).
#[inline]
pub(super) fn write(
    fs: &Fs,
    held: &Held,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<(u64, usize)> {
    let io = WriteIo::new(fs, held.live())?;
    flusher::balance(fs, held.live())?;
    let (mut start, mut done) = (None, 0);
    let mut may_retry = true;
    loop {
        let next = start.map_or(to, |start: u64| Position::Byte(start + done as u64));
        let rest = &buf[done..];
        let now = match next {
            Position::Byte(_) => &rest[..rest.len().min(CHUNK)],
            // Its place is found once.
            Position::End => rest,
        };
        let (at, some, failed) = match io.write_some(held, next, now, options) {
            Err(_) if done > 0 => break,
            written => written?,
        };
        start.get_or_insert(at);
        done += some;
        let Some(error) = failed else {
            if some == 0 || done >= buf.len() {
                break;
            }
            if flusher::balance(fs, held.live()).is_err() {
                break;
            }
            continue;
        };
        // Each time some was written, less is promised for the worst case afterwards.
        if matches!(error, Error::NoSpace) && (may_retry || some > 0) {
            may_retry = false;
            flusher::make_room(fs, held.live())?;
        } else if done == 0 {
            return Err(error);
        } else {
            break;
        }
    }
    Ok((start.unwrap_or(0), done))
}

impl FileIo<'_> {
    /// Makes zeros of what blocks that came from the device, bytes `own` of a folio, hold past the
    /// end of the file, whose size was `size` before they were read: somebody may have cleared them
    /// on the device since.
    pub(super) fn clear_past_end(
        &self,
        folio: &Folio,
        state: &mut State,
        own: Range<usize>,
        size: u64,
    ) {
        let start = u64::from(folio.index()) << FOLIO_LOG2;
        let past = size.saturating_sub(start);
        let past = usize::try_from(past).unwrap_or(usize::MAX).max(own.start)..own.end;
        if !past.is_empty() && state.has_data(past.clone()) && !is_on(Mutant::TailNotZeroed) {
            state.zero(past);
            self.cache.tail_unclean.store(true, Ordering::Release);
        }
    }
}

impl WriteIo<'_> {
    /// Writes what can be written of `data`. Returns where, how much, and why it was not more.
    ///
    /// # Errors
    /// When the file cannot be written at all.
    #[inline]
    fn write_some(
        &self,
        held: &Held,
        to: Position,
        data: &[u8],
        options: WriteOptions<'_>,
    ) -> Result<(u64, usize, Option<Error>)> {
        if let Position::Byte(offset) = to
            && let Some((done, failed)) = self.write_inside(held, offset, data, options)?
        {
            return Ok((offset, done, failed));
        }
        let _alone = self.live.op().write();
        self.cache.end_bypass();
        let size = self.live.live_size();
        let offset = match to {
            Position::Byte(offset) => offset,
            Position::End => size,
        };
        let data = {
            let guard = pin();
            let image = self.live.image(&guard);
            check_writable(image)?;
            within_limit(self.fs, image, offset, data)?
        };
        if data.is_empty() {
            return Ok((offset, 0, None));
        }
        xattr::take_away(self.fs, held, options.actor)?;
        if offset + data.len() as u64 > size {
            self.prepare_tail(size, offset)?;
        }
        let (done, failed) = self.copy(offset, data, options);
        let end = offset + done as u64;
        if done > 0 && end > size {
            self.cache.set_extended(end);
            // Even if all has been written back by now: the record has not got the size.
            self.cache.list(self.live);
            self.cache.set_tail(end);
        }
        Ok((offset, done, failed))
    }

    /// Writes what can be written of `data` inside the file, with `op` held shared. Returns how
    /// much, and why it was not more; `None` if that takes being alone.
    ///
    /// # Errors
    /// When the file cannot be written at all.
    fn write_inside(
        &self,
        held: &Held,
        offset: u64,
        data: &[u8],
        options: WriteOptions<'_>,
    ) -> Result<Option<(usize, Option<Error>)>> {
        let end = offset.saturating_add(data.len() as u64);
        let guard = pin();
        let image = self.live.image(&guard);
        if data.is_empty() {
            return check_changeable(image).map(|()| Some((0, None)));
        }
        // A write that makes the file longer leaves the shared lock alone.
        if end > self.cache.size_with(image) {
            return Ok(None);
        }
        self.cache.index.prefetch(number(offset), &guard);
        let (_shared, guard) = match self.live.op().try_read() {
            Some(shared) => (shared, guard),
            None => {
                drop(guard);
                (self.live.op().read(), pin())
            }
        };
        let image = self.live.image(&guard);
        check_writable(image)?;
        // A damaged record may say that the file is longer than it can be.
        if end > self.cache.size_with(image).min(size_limit(self.fs, image))
            || self.cache.is_bypassed()
            || xattr::loses_by(image, held, options.actor)
        {
            return Ok(None);
        }
        self.cache.note_memory_use();
        if let Some(done) = self.write_over(offset, data, &guard) {
            times::note_lazily(self.live, self.cache, options);
            return Ok(Some((done, None)));
        }
        drop(guard);
        Ok(Some(self.copy(offset, data, options)))
    }

    /// Copies `data` to byte `offset`, folio by folio. Returns how much, and why it was not more.
    fn copy(&self, offset: u64, data: &[u8], options: WriteOptions<'_>) -> (usize, Option<Error>) {
        let mut done = 0;
        let mut failed = None;
        let frugal = self
            .cache
            .write_pattern
            .note_write(offset, offset + data.len() as u64);
        while done < data.len() && failed.is_none() {
            let at = offset + done as u64;
            let inside = at as usize & (FOLIO_BYTES - 1);
            let len = (FOLIO_BYTES - inside).min(data.len() - done);
            let part = &data[done..done + len];
            let mut why = None;
            let copied = self.cache.with_folio(number(at), |folio, state| {
                self.copy_into(folio, state, inside, part, frugal, &mut why)
            });
            match copied {
                Ok(some) => {
                    done += some;
                    if some < len {
                        failed = Some(why.unwrap_or(Error::NoSpace));
                    }
                }
                Err(e) => failed = Some(e),
            }
        }
        if done > 0 {
            times::note_lazily(self.live, self.cache, options);
        }
        (done, failed)
    }

    /// Copies `data` into a folio. Returns how much: less than all when space ran out, or a limit
    /// was reached, as it says in `why`.
    fn copy_into(
        &self,
        folio: &Folio,
        mut state: RwLockWriteGuard<'_, State>,
        at: usize,
        data: &[u8],
        frugal: bool,
        why: &mut Option<Error>,
    ) -> Result<usize> {
        let mut len = data.len();
        let (holes, chosen) = loop {
            let bytes = at..at + len;
            let blocks = mask_of_bytes(&bytes, self.log2);
            let unknown = blocks & !state.known();
            let holes = match unknown {
                0 => 0,
                unknown => self.find_holes(folio, &mut state, unknown)?,
            };
            match self.grant(folio, holes, state.waiting()) {
                Ok(chosen) => break (holes, chosen),
                // Less may fit.
                Err(e @ (Error::NoSpace | Error::QuotaExceeded)) if blocks.count_ones() > 1 => {
                    *why = Some(e);
                    let end = at + len;
                    let half = at + len / 2;
                    let cut = half
                        .next_multiple_of(1 << self.log2)
                        .min((end - 1) >> self.log2 << self.log2);
                    len = cut.max(((at >> self.log2) + 1) << self.log2) - at;
                }
                Err(e) => return Err(e),
            }
        };
        let bytes = at..at + len;
        if let Err(e) = self.load_edges(folio, &mut state, &bytes, holes) {
            self.ungrant(folio, holes, &chosen, state.waiting());
            return Err(e);
        }
        let blocks = mask_of_bytes(&bytes, self.log2);
        let came = state.provide(&bytes, &self.cache.caches.pool, frugal);
        if came > 0 {
            self.cache.caches.count_memory(came as i64);
            self.cache.caches.request_prefault();
            folio.note_pages(&state, &bytes);
        }
        state.copy_in(at, &data[..len]);
        state.uptodate |= blocks;
        state.delayed |= holes;
        self.set_dirty(folio, &mut state, blocks);
        Ok(len)
    }

    /// Marks blocks that are up to date as dirty.
    #[inline(always)]
    pub(super) fn set_dirty(&self, folio: &Folio, state: &mut State, blocks: u64) {
        let newly = (blocks & !state.dirty).count_ones();
        let was_clean = state.dirty == 0;
        state.dirty |= blocks;
        if newly > 0 {
            self.cache.caches.count_dirty(i64::from(newly) << self.log2);
        }
        if was_clean && newly > 0 {
            self.cache.dirty.note(folio.index());
            self.cache.list(self.live);
        }
    }

    /// Of blocks of a folio of which nothing is known, those that have no place on the device; the
    /// others are known from now on.
    fn find_holes(&self, folio: &Folio, state: &mut State, unknown: u64) -> Result<u64> {
        let first = folio.first_block(self.log2);
        let start = first + u64::from(unknown.trailing_zeros());
        if self.is_past_map(start)? {
            return Ok(unknown);
        }
        let end = first + u64::from(u64::BITS - unknown.leading_zeros());
        let (_, runs) = map::runs_live(self.fs, self.live, |_| start..end)?;
        let (mut mapped, mut unwritten) = (0, 0);
        for run in runs {
            let from = u64::from(run.lblk.get()).saturating_sub(first) as u32;
            let to = run.end().saturating_sub(first).min(64) as u32;
            match run.target {
                Target::Written(_) => mapped |= mask(from..to),
                Target::Unwritten(_) => unwritten |= mask(from..to),
                Target::Hole => {}
            }
        }
        // A block that is dirty and none of all this is what a failed writeback left.
        state.mapped |= unknown & mapped;
        state.unwritten |= unknown & unwritten;
        Ok(unknown & !mapped & !unwritten)
    }

    /// Tells whether nothing is mapped from `block` on. Costs two loads as long as the map does not
    /// change.
    pub(super) fn is_past_map(&self, block: u64) -> Result<bool> {
        let version = self.live.map_version();
        let now = version.load(Ordering::Acquire);
        if now & 1 == 0
            && let Some(end) = self.cache.map_hint.end(now)
        {
            return Ok(block >= end);
        }
        let end = map::stable(self.live, |image| map::mapped_end(self.fs, image))?;
        if now & 1 == 0 && version.load(Ordering::Acquire) == now {
            self.cache.map_hint.set_end(now, end);
        }
        Ok(block >= end)
    }

    /// Promises, or chooses, a place for each of `holes`, blocks of a folio. Returns a block of
    /// each cluster that was chosen, where that is more than a block. `waiting` are the blocks that
    /// are yet to be written.
    fn grant(&self, folio: &Folio, holes: u64, waiting: u64) -> Result<Vec<u32>> {
        if holes == 0 {
            return Ok(Vec::new());
        }
        let clusters = self.unmapped_clusters(folio, holes)?;
        self.cache.promise(
            self.fs,
            self.alloc,
            self.live,
            holes.count_ones(),
            &clusters,
        )?;
        if self.fs.data().has_delayed_allocation() {
            return Ok(Vec::new());
        }
        let size = self.fs.cluster_size();
        let has_place = |lblk: u32| {
            let is_mapped = || clusters.binary_search(&size.logical(lblk)).is_err();
            !size.is_block() && (is_mapped() || self.cache.placed.at(lblk).is_ok())
        };
        let mut missing = holes;
        let mut chosen = Vec::new();
        while let Some(mut row) = rows(missing).next() {
            while !row.is_empty() {
                let lblk = (folio.first_block(self.log2) + u64::from(row.start)) as u32;
                let mut len = row.end - row.start;
                if !size.is_block() {
                    len = len.min(size.blocks() - size.inside(lblk));
                }
                if has_place(lblk) {
                    missing &= !mask(row.start..row.start + len);
                    row.start += len;
                    continue;
                }
                if self
                    .cache
                    .write_pattern
                    .note_stride(lblk, lblk + (row.end - row.start))
                {
                    preallocation::keep_for(self.alloc, self.live, Lblk::new(lblk));
                }
                let ask = FileRequest {
                    lblk: Lblk::new(lblk),
                    len,
                    size: self.live.live_size().max(u64::from(lblk + 1) << self.log2),
                    reserved: false,
                    no_prealloc: false,
                    privileged: false,
                };
                let taken = preallocation::take_for(self.fs, self.live, &ask);
                let taken = taken.inspect_err(|_| {
                    self.ungrant(folio, holes, &chosen, waiting);
                })?;
                let (pblk, found) = taken.into_raw();
                let inside = size.inside(lblk);
                if !self.cache.placed.add(self.fs, lblk - inside, pblk, found) {
                    drop(Taken::from_raw(self.alloc, pblk, found));
                } else if !size.is_block() {
                    chosen.push(lblk);
                }
                self.cache.caches.count_places(true, found.into());
                let len = len.min(found - inside);
                missing &= !mask(row.start..row.start + len);
                row.start += len;
            }
        }
        Ok(chosen)
    }

    /// Takes a grant back, and the clusters that were `chosen` for it, but for those in which
    /// another block is `waiting`: it is going to be written there.
    fn ungrant(&self, folio: &Folio, holes: u64, chosen: &[u32], waiting: u64) {
        if holes == 0 {
            return;
        }
        self.cache
            .release_reservation(self.fs, self.alloc, self.live, holes.count_ones(), 0, 0);
        if !self.fs.cluster_size().is_block() {
            // The others are those of other blocks, and stay theirs.
            let size = self.fs.cluster_size();
            let first = folio.first_block(self.log2);
            let is_needed = |lblk: u32| {
                let inside = u64::from(lblk - size.inside(lblk)).checked_sub(first);
                // A cluster larger than a folio may have such a block in another one.
                inside.is_none_or(|from| {
                    let end = from + u64::from(size.blocks());
                    end > 64 || waiting & !holes & mask(from as u32..end as u32) != 0
                })
            };
            let unneeded = chosen.iter().filter(|lblk| !is_needed(**lblk));
            unneeded.for_each(|&lblk| self.unplace(lblk, 1));
            return;
        }
        for row in rows(holes) {
            let lblk = (folio.first_block(self.log2) + u64::from(row.start)) as u32;
            self.unplace(lblk, row.end - row.start);
        }
    }

    /// Brings into memory what bytes `bytes` of a folio leave of the blocks they touch in part.
    /// `holes` are blocks without data on the device.
    fn load_edges(
        &self,
        folio: &Folio,
        state: &mut State,
        bytes: &Range<usize>,
        holes: u64,
    ) -> Result<()> {
        let first = bytes.start >> self.log2;
        let last = (bytes.end - 1) >> self.log2;
        let in_part = |block: usize| {
            let own = block << self.log2..(block + 1) << self.log2;
            bytes.start > own.start || bytes.end < own.end
        };
        for block in [first, last] {
            let bit = 1_u64 << block;
            if state.uptodate & bit != 0 || !in_part(block) {
                continue;
            }
            let own = block << self.log2..(block + 1) << self.log2;
            if holes & bit != 0 {
                state.zero(own);
            } else {
                let lblk = folio.first_block(self.log2) + block as u64;
                let pblk = self.pblk_of(lblk)?;
                self.load(folio, state, own, pblk)?;
            }
            if first == last {
                break;
            }
        }
        Ok(())
    }

    /// Returns where block `lblk` lies, if it holds data on the device.
    fn pblk_of(&self, lblk: u64) -> Result<Option<Pblk>> {
        let lblk = Lblk::new(u32::try_from(lblk).map_err(|_| Error::FileTooLarge)?);
        let run = map::stable(self.live, |image| map::lookup(self.fs, image, lblk))?;
        Ok(match run.target {
            Target::Written(pblk) => Some(pblk),
            Target::Unwritten(_) | Target::Hole => None,
        })
    }

    /// Reads one block, bytes `own` of a folio, or makes zeros of it; and of what lies past the end
    /// of the file.
    fn load(
        &self,
        folio: &Folio,
        state: &mut State,
        own: Range<usize>,
        pblk: Option<Pblk>,
    ) -> Result<()> {
        let Some(pblk) = pblk else {
            state.zero(own);
            return Ok(());
        };
        let size = self.live.live_size();
        let came = state.provide(&own, &self.cache.caches.pool, true);
        self.cache.caches.count_memory(came as i64);
        let mut skip = 0;
        for slice in state.slices_mut(own.clone()) {
            read_device(self.fs, pblk, skip, slice)?;
            skip += slice.len() as u64;
        }
        self.clear_past_end(folio, state, own, size);
        Ok(())
    }

    /// Sees to the last block of a file of `size` bytes before a write at `offset` makes it longer.
    /// `op` is held exclusively.
    fn prepare_tail(&self, size: u64, offset: u64) -> Result<()> {
        let block = size >> self.log2;
        if size & ((1 << self.log2) - 1) == 0
            || offset >> self.log2 <= block
            || self.cache.knows_tail(size)
        {
            return Ok(());
        }
        self.cache.with_folio(number(size), |folio, state| {
            self.load_tail(folio, state, block)
        })
    }

    /// Brings the last block of a file into memory, a block of `folio`, if it lies on the device;
    /// and has it written back if it held anything there past the end.
    fn load_tail(
        &self,
        folio: &Folio,
        mut state: RwLockWriteGuard<'_, State>,
        block: u64,
    ) -> Result<()> {
        let inside = (block - folio.first_block(self.log2)) as usize;
        let bit = 1_u64 << inside;
        if state.uptodate & bit == 0 {
            let Some(pblk) = self.pblk_of(block)? else {
                return Ok(());
            };
            let own = inside << self.log2..(inside + 1) << self.log2;
            self.load(folio, &mut state, own, Some(pblk))?;
            state.uptodate |= bit;
            state.mapped |= bit;
        }
        let unclean = self.cache.tail_unclean.load(Ordering::Acquire);
        self.cache.tail_unclean.store(false, Ordering::Release);
        if unclean && state.dirty & bit == 0 {
            if state.known() & bit == 0 && self.pblk_of(block)?.is_some() {
                state.mapped |= bit;
            }
            if state.mapped & bit != 0 {
                self.set_dirty(folio, &mut state, bit);
            }
        }
        Ok(())
    }
}
