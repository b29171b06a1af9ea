//! Reading and writing past memory: direct I/O.
//!
//! # How memory and direct I/O agree
//!
//! A file is in one of two states. At first memory may have something of it. Then a direct read has
//! written back what is newer in memory, and a direct write is alone (`op` exclusively): it writes
//! back, writes to the device, and has memory forget what it wrote over.
//!
//! After some direct operations in a row memory forgets all of the file, and it is *bypassed*: then
//! memory has nothing, nothing is dirty, and direct operations look at no folio. They hold `op`
//! shared, and nothing else, until the device is done, so what takes blocks away or changes the
//! size waits for them. The first that wants to use memory again takes `op` exclusively, which
//! waits for all of these, and ends it.
//!
//! # Writes
//!
//! | where | lock | what else |
//! |---|---|---|
//! | blocks that hold data, bypassed | `op` shared | nothing: no handle, no block is taken, nothing shared is stored to but the time, once a tick |
//! | whole blocks that are reserved, bypassed | `op` shared | are converted when the data is on the device, those of several writers together |
//! | anything else | `op` exclusively | blocks are taken, then written, then mapped, as in [`write`](crate::data::through::write) |
//!
//! # Invariants
//!
//! - The state becomes *bypassed* under `op` and `pages` exclusively, and ends under `op`
//!   exclusively. What brings something of a file into memory holds one of them and has seen that
//!   it is not bypassed.
//! - While a file is bypassed no folio of it is up to date, and none is dirty: writeback changes no
//!   map.

mod conversion;
pub(super) mod dax;

use crate::data::cache::FileCache;
use crate::data::cache::folio::{FOLIO_BYTES, FOLIO_LOG2, mask_of_bytes};
use crate::data::dispatch::Way;
use crate::data::io::{
    Position, WriteIo, WriteOptions, blocks_of, check_writable, device_offset, image_outside,
    target_offset, within_limit,
};
use crate::data::through::write::{Pages, write_alone};
use crate::data::times;
use crate::data::writeback::flusher;
use crate::data::writeback::{write_back, write_back_quiet};
use crate::fs::Fs;
use crate::inode::{Held, LiveInode};
use crate::map::{self, KnownRuns, Mapping, Target};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result, xattr};
use extant_format::Pblk;
use extant_sync::pin;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(super) use crate::data::direct::conversion::Waiting;

/// Direct operations in a row after which memory forgets the file.
const TURNS: u32 = 4;

/// What direct I/O knows of a file.
#[derive(Debug, Default)]
pub(super) struct Bypass {
    /// Memory has nothing of the file.
    on: AtomicBool,
    /// Direct operations since memory was used last: updates may be lost.
    turns: AtomicU32,
    /// Blocks that were written and are reserved still.
    pub(super) waiting: Waiting,
    /// What was copied to a device that is memory, and may be lost.
    pub(super) unpersisted: dax::Unpersisted,
}

impl FileCache {
    /// Returns what direct I/O knows of the file.
    pub(super) fn bypass(&self) -> &Bypass {
        self.bypass.get_or_init(Box::default)
    }

    /// Tells whether memory has nothing of the file, and may not get anything.
    #[inline]
    pub(super) fn is_bypassed(&self) -> bool {
        let bypass = self.bypass.get();
        bypass.is_some_and(|bypass| bypass.on.load(Ordering::Acquire))
    }

    /// Allows memory to be used again. The caller holds `op` exclusively.
    pub(super) fn end_bypass(&self) {
        if self.is_bypassed() {
            self.bypass().on.store(false, Ordering::Release);
        }
        self.note_memory_use();
    }

    /// Notes that memory is of use.
    #[inline]
    pub(super) fn note_memory_use(&self) {
        if let Some(bypass) = self.bypass.get()
            && bypass.turns.load(Ordering::Relaxed) != 0
        {
            bypass.turns.store(0, Ordering::Relaxed);
        }
    }

    /// Notes a direct operation on a file that is not bypassed. Whether it should be.
    fn note_turn(&self) -> bool {
        let turns = &self.bypass().turns;
        let now = turns.load(Ordering::Relaxed).saturating_add(1);
        turns.store(now, Ordering::Relaxed);
        now >= TURNS
    }

    /// Tells whether memory has something in bytes `range` that is newer than the device, or on its
    /// way there.
    fn is_newer(&self, range: &Range<u64>, log2: u32) -> bool {
        let folios = range.start >> FOLIO_LOG2..range.end.div_ceil(FOLIO_BYTES as u64);
        folios.into_iter().any(|index| {
            // Files end below 2^48.
            let Some(folio) = u32::try_from(index).ok().and_then(|i| self.index.load(i)) else {
                return false;
            };
            let start = index << FOLIO_LOG2;
            // Within the folio.
            let from = range.start.max(start) - start;
            let to = range.end.min(start + FOLIO_BYTES as u64) - start;
            let blocks = mask_of_bytes(&(from as usize..to as usize), log2);
            let state = folio.read();
            (state.dirty | state.writeback | state.delayed) & blocks != 0
        })
    }

    /// Forgets all folios, if they are clean. Whether they were.
    fn forget_all(&self) -> bool {
        self.invalidate(&(0..1 << 48));
        self.index
            .folios(0..1 << 32)
            .all(|folio| folio.read().uptodate == 0)
    }
}

/// Reads from byte `offset` of a file, if it is bypassed; `None` otherwise, where nothing was read.
#[inline]
pub(super) fn read_bypassed(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &mut [u8],
) -> Result<Option<usize>> {
    // What is bypassed is a regular file.
    if let Some(file) = held.file_cache()
        && file.is_bypassed()
    {
        let _shared = held.op().read();
        if file.is_bypassed() {
            return read_shared(fs, held, file, offset, buf).map(Some);
        }
    }
    Ok(None)
}

/// Reads from byte `offset` of a regular file whose content lies outside its inode.
pub(super) fn read(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let file = held.file_cache_in(fs);
    let (mut is_settled, mut is_tried) = (false, false);
    loop {
        let shared = held.op().read();
        if !is_settled && !file.is_bypassed() {
            is_settled = true;
            let end = offset.saturating_add(buf.len() as u64).min(1 << 48);
            if !is_tried && file.note_turn() {
                drop(shared);
                is_tried = true;
                // What stands in the way is no concern of a reader, unless it is in its way as
                // well.
                let _ = bypass(fs, held, file);
                is_settled = false;
            } else if file.is_newer(&(offset..end), fs.block_size().log2()) {
                drop(shared);
                write_back(fs, held.live())?;
            } else {
                return read_shared(fs, held, file, offset, buf);
            }
            continue;
        }
        return read_shared(fs, held, file, offset, buf);
    }
}

/// Returns where bytes of a file lie on the device, which are known to lie in one row there, from
/// `offset` on in block `first`.
#[inline]
fn place_in(fs: &Fs, first: Pblk, offset: u64) -> Result<u64> {
    device_offset(fs, first, offset & (u64::from(fs.block_size().bytes()) - 1))
}

/// Reads what the device has of a file, whose data is `file`, if what is known says that it lies in
/// one row; `None` otherwise, where nothing was read. `op` is held.
#[inline]
pub(super) fn read_known(
    fs: &Fs,
    live: &LiveInode,
    file: &FileCache,
    offset: u64,
    buf: &mut [u8],
) -> Result<Option<usize>> {
    let (len, known) = {
        // Once for all that is looked at.
        let guard = pin();
        let image = live.image(&guard);
        let left = file.size_with(image).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        if len == 0 || !image.has_plain_content() {
            return Ok(None);
        }
        let blocks = blocks_of(fs, &(offset..offset + len as u64));
        (len, map::known(live, file, &blocks, &guard))
    };
    match known {
        Some(KnownRuns::One(Mapping {
            target: Target::Written(first),
            ..
        })) => {
            dax::get(fs, place_in(fs, first, offset)?, &mut buf[..len])?;
            Ok(Some(len))
        }
        _ => Ok(None),
    }
}

/// Reads what the device has of a file, whose data is `file`. `op` is held.
#[inline]
pub(super) fn read_shared(
    fs: &Fs,
    live: &LiveInode,
    file: &FileCache,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    match read_known(fs, live, file, offset, buf)? {
        Some(len) => Ok(len),
        None => read_runs(fs, live, file, offset, buf),
    }
}

/// As [`read_shared`], wherever it lies.
fn read_runs(
    fs: &Fs,
    live: &LiveInode,
    file: &FileCache,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let (len, known) = {
        let guard = pin();
        let left = file.size_with(live.image(&guard)).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let range = offset..offset.saturating_add(len as u64);
        (len, map::known(live, file, &blocks_of(fs, &range), &guard))
    };
    let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else {
        return Ok(0);
    };
    let runs = match known {
        Some(runs) => runs,
        None => learn(fs, live, &(offset..offset + len as u64))?,
    };
    let log2 = fs.block_size().log2();
    let mut at = offset;
    let mut rest = buf;
    for run in runs.iter() {
        let skip = at.saturating_sub(u64::from(run.lblk.get()) << log2);
        let here = (run.end() << log2).saturating_sub(at);
        let here = usize::try_from(here).unwrap_or(usize::MAX).min(rest.len());
        let (now, after) = rest.split_at_mut(here);
        match run.target {
            Target::Written(pblk) => dax::get(fs, device_offset(fs, pblk, skip)?, now)?,
            Target::Unwritten(_) | Target::Hole => now.fill(0),
        }
        at += now.len() as u64;
        rest = after;
    }
    if !rest.is_empty() {
        rest.fill(0);
    }
    Ok(len)
}

/// Writes at byte `offset` of a file, if it is bypassed and that takes nothing but its lock, held
/// shared; `None` otherwise.
#[inline]
pub(super) fn write_bypassed(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<Option<usize>> {
    // Content of what is bypassed lies outside the record, and is written past memory.
    match held.file_cache() {
        Some(file) if file.is_bypassed() => {
            write_shared(fs, held, file, offset, buf, options, Way::Direct)
        }
        _ => Ok(None),
    }
}

/// Writes to a regular file whose content lies outside its inode. Returns where, and how much.
pub(super) fn write(
    fs: &Fs,
    held: &Held,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<(u64, usize)> {
    check_writable(&image_outside(held))?;
    let file = held.file_cache_in(fs);
    if let Position::Byte(offset) = to
        && !file.is_bypassed()
        && file.note_turn()
    {
        bypass(fs, held, file)?;
        let written = write_shared(fs, held, file, offset, buf, options, Way::Direct)?;
        if let Some(written) = written {
            return Ok((offset, written));
        }
    }
    retried(fs, held, || {
        write_exclusive(fs, held, file, to, buf, options, Way::Direct)
    })
}

/// Tries again with what space can be had when there is none.
pub(super) fn retried<R>(fs: &Fs, held: &Held, mut write: impl FnMut() -> Result<R>) -> Result<R> {
    match write() {
        Err(Error::NoSpace) => {
            flusher::make_room(fs, held.live())?;
            write()
        }
        done => done,
    }
}

/// Refuses what does not begin and end with sectors.
pub(super) fn check_aligned(fs: &Fs, offset: u64, len: usize) -> Result<()> {
    let sector = fs.sector();
    let mask = u64::from(sector) - 1;
    match (offset | len as u64) & mask {
        0 => Ok(()),
        _ => Err(Error::Misaligned { bytes: sector }),
    }
}

/// Returns where bytes `range` lie, if that is known.
fn known(fs: &Fs, live: &LiveInode, file: &FileCache, range: &Range<u64>) -> Option<KnownRuns> {
    map::known(live, file, &blocks_of(fs, range), &pin())
}

/// Looks up where bytes `range` lie, which is known afterwards.
fn learn(fs: &Fs, live: &LiveInode, range: &Range<u64>) -> Result<KnownRuns> {
    let blocks = blocks_of(fs, range);
    let (_, runs) = map::runs_live(fs, live, |_| blocks.clone())?;
    Ok(KnownRuns::Some(runs))
}

/// Has memory forget the file.
///
/// # Errors
/// What writing back says; the file is not bypassed then.
fn bypass(fs: &Fs, held: &Held, file: &Arc<FileCache>) -> Result<()> {
    let _alone = held.op().write();
    // Nobody reads anything into memory.
    let _none = held.pages().write();
    let _quiet = file.quiesce();
    write_back_quiet(fs, held.live(), file)?;
    if file.forget_all() {
        file.bypass().on.store(true, Ordering::Release);
    }
    Ok(())
}

/// Writes with `op` held shared, if the file is bypassed, ends behind the range, every block of it
/// holds data, or is reserved and written as a whole, and nothing is taken away with that. `None`
/// otherwise; what is reserved may have been written to then. To a device that is memory, where
/// nobody can tell it from a write that is alone.
pub(super) fn write_shared(
    fs: &Fs,
    held: &Held,
    file: &Arc<FileCache>,
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
    way: Way,
) -> Result<Option<usize>> {
    let is_dax = way == Way::Dax;
    if !(is_dax || file.is_bypassed()) || buf.is_empty() {
        return Ok(None);
    }
    #[cfg(feature = "baseline")]
    if file.transaction_per_overwrite() {
        return Ok(None);
    }
    let bytes = offset..offset.saturating_add(buf.len() as u64);
    let _shared = (!is_on(Mutant::OverwriteNotLocked)).then(|| held.op().read());
    if !(is_dax || file.is_bypassed()) {
        return Ok(None);
    }
    let known = {
        // Once for all that is looked at.
        let guard = pin();
        let image = held.image(&guard);
        if image.is_inline() {
            return Ok(None);
        }
        check_writable(image)?;
        if bytes.end > file.size_with(image) || xattr::loses_by(image, held, options.actor) {
            return Ok(None);
        }
        map::known(held, file, &blocks_of(fs, &bytes), &guard)
    };
    if let Some(KnownRuns::One(Mapping {
        target: Target::Written(first),
        ..
    })) = known
    {
        let to = place_in(fs, first, offset)?;
        if is_dax && !dax::is_whole(fs, to, buf.len()) {
            return Ok(None);
        }
        let failures = fs.flush_failures();
        dax::put(fs, held.live(), file, to, buf)?;
        held.note_data(fs, failures);
        times::note_lazily(held.live(), file, options);
        return Ok(Some(buf.len()));
    }
    let runs = match known {
        Some(runs) => runs,
        None => learn(fs, held, &bytes)?,
    };
    write_runs_shared(fs, held, file, &runs, bytes, buf, options)
}

/// Writes over several runs of blocks with `op` held shared, as [`write_shared`] does over one row
/// of written blocks.
fn write_runs_shared(
    fs: &Fs,
    held: &Held,
    file: &Arc<FileCache>,
    runs: &[Mapping],
    bytes: Range<u64>,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<Option<usize>> {
    let log2 = fs.block_size().log2();
    let fits = |run: &Mapping| match run.target {
        Target::Written(_) => true,
        Target::Unwritten(_) => (bytes.start | bytes.end) & ((1 << log2) - 1) == 0,
        Target::Hole => false,
    };
    let may_share = match (fs.data().way() == Way::Dax, runs) {
        (false, runs) => runs.iter().all(fits),
        (true, [run]) if holds_data(run) => {
            let skip = bytes
                .start
                .saturating_sub(u64::from(run.lblk.get()) << log2);
            dax::is_whole(fs, target_offset(fs, run.target, skip)?, buf.len())
        }
        (true, _) => false,
    };
    if !may_share {
        return Ok(None);
    }
    let written = write_runs(fs, held.live(), file, runs, bytes.start, buf)?;
    let is_reserved = |run: &Mapping| matches!(run.target, Target::Unwritten(_));
    if runs.iter().any(is_reserved) {
        let blocks = bytes.start >> log2..(bytes.start + written as u64) >> log2;
        match file.bypass().waiting.convert(fs, held.live(), file, blocks) {
            // There may be room for it when nobody else is at work in the same reserved extents.
            Err(Error::NoSpace) => return Ok(None),
            converted => converted?,
        }
    }
    times::note_lazily(held.live(), file, options);
    Ok(Some(written))
}

/// Writes `buf` to runs of the device from byte `at` of the file on. Returns how much was written.
///
/// # Errors
/// When nothing was written.
fn write_runs(
    fs: &Fs,
    live: &Arc<LiveInode>,
    file: &FileCache,
    runs: &[Mapping],
    at: u64,
    buf: &[u8],
) -> Result<usize> {
    // The change that made it data has committed that.
    if !runs.iter().all(holds_data) {
        file.commit_detached(fs)?;
    }
    let log2 = fs.block_size().log2();
    let failures = fs.flush_failures();
    let mut done = 0;
    for run in runs {
        let left = &buf[done..];
        let at = at + done as u64;
        let start = u64::from(run.lblk.get()) << log2;
        let len = (run.end() << log2).saturating_sub(at);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(left.len());
        let written = target_offset(fs, run.target, at.saturating_sub(start))
            .and_then(|to| dax::put(fs, live, file, to, &left[..len]));
        match written {
            Ok(()) => done += len,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    live.note_data(fs, failures);
    Ok(done)
}

/// Writes at byte `offset`, or at the end, with `op` held exclusively. Returns where, and how much.
pub(super) fn write_exclusive(
    fs: &Fs,
    held: &Held,
    file: &Arc<FileCache>,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
    way: Way,
) -> Result<(u64, usize)> {
    let live = held.live();
    let _alone = held.op().write();
    fs.journal()?.check_open()?;
    let size = held.live_size();
    let offset = match to {
        Position::Byte(offset) => offset,
        Position::End => size,
    };
    if way != Way::Dax {
        check_aligned(fs, offset, buf.len())?;
    }
    let buf = {
        let guard = pin();
        let image = held.image(&guard);
        check_writable(image)?;
        within_limit(fs, image, offset, buf)?
    };
    if buf.is_empty() {
        return Ok((offset, 0));
    }
    xattr::take_away(fs, held, options.actor)?;
    let bytes = offset..offset + buf.len() as u64;
    let nothing_in_memory = way == Way::Dax || file.is_bypassed();
    if nothing_in_memory
        && bytes.end <= size
        && let Some(runs) = known(fs, live, file, &bytes)
        && runs.iter().all(holds_data)
    {
        // A change of where blocks lie holds `op`, since there is nothing to write back.
        let written = overwrite(fs, live, file, &runs, offset, buf, options)?;
        return Ok((offset, written));
    }
    // Addresses stay what they are, and nobody else changes the map.
    let _stay = held.pages().read();
    let _quiet = file.quiesce();
    if !nothing_in_memory {
        write_back_quiet(fs, live, file)?;
    }
    let io = WriteIo::new(fs, live)?;
    let written = if bytes.end <= size
        && let runs = match known(fs, live, file, &bytes) {
            Some(runs) => runs,
            None => learn(fs, live, &bytes)?,
        }
        && runs.iter().all(holds_data)
    {
        overwrite(fs, live, file, &runs, offset, buf, options)
    } else {
        file.set_tail(u64::MAX);
        io.write_and_map(held, offset, buf, options)
    };
    if !nothing_in_memory {
        // Also what somebody read into memory meanwhile.
        file.invalidate(&bytes);
    }
    Ok((offset, written?))
}

/// Tells whether the blocks of a run are mapped to what was written.
pub(super) fn holds_data(run: &Mapping) -> bool {
    matches!(run.target, Target::Written(_))
}

/// Writes over blocks that hold data, with `op` held exclusively. Returns how much.
fn overwrite(
    fs: &Fs,
    live: &Arc<LiveInode>,
    file: &FileCache,
    runs: &[Mapping],
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<usize> {
    let written = write_runs(fs, live, file, runs, offset, buf);
    #[cfg(feature = "baseline")]
    if file.transaction_per_overwrite() {
        crate::data::baseline::note_in_transaction(fs, live, options)?;
    }
    times::note_lazily(live, file, options);
    written
}

impl WriteIo<'_> {
    /// Writes with whatever that changes about the file. `op` is held exclusively and `pages`
    /// shared; nobody else writes the file back.
    fn write_and_map(
        &self,
        held: &Held,
        offset: u64,
        buf: &[u8],
        options: WriteOptions<'_>,
    ) -> Result<usize> {
        let mut done = 0;
        loop {
            let (at, left) = (offset + done as u64, &buf[done..]);
            match write_alone(self.fs, held, at, left, options, Pages::Callers) {
                Ok(written) if done + written == buf.len() => return Ok(buf.len()),
                Ok(written) if written > 0 => done += written,
                // Reserved space is there to be written to, whatever becomes of the map.
                Ok(_) | Err(Error::NoSpace) => match self.write_reserved(at, left) {
                    Ok(true) => {}
                    Ok(false) if done == 0 => return Err(Error::NoSpace),
                    Err(e) if done == 0 => return Err(e),
                    Ok(false) | Err(_) => return Ok(done),
                },
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
        }
    }
}
