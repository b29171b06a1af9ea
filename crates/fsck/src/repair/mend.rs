//! A file system as a repair would leave it, read over a device that is never written.
//!
//! What `repair` refuses is done as far as it helps reading. A device that ends too early is mended
//! as far as it goes; what waits in a journal that cannot be replayed is left out; a stage that
//! would lose files which can be read does nothing.
//!
//! # Invariants
//! - The device is only read.
//! - What could be read before can be read: `net` compares both sides, as for a repair.
//! - What lies behind the end of the device and was not mended is an error of the device for its
//!   reader, and never zeros.

use super::draft::{Draft, Fix};
use super::options::Options;
use super::rounds::Rounds;
use super::{journal, net, superblock};
use crate::error::{Error, Result};
use crate::report::Sink;
use crate::volume::{find_superblock, find_superblock_to_read};
use crate::{Code, Place, Progress};
use extant_blockdev::{
    BlockDevice, Completion, DeviceError, DeviceResult, Done, OverlayDevice, Request, SharedDevice,
};
use extant_format::geometry::Geometry;
use extant_format::superblock::Superblock;
use extant_format::{Ino, errno};
use extant_sync::{CountedAtomicU64, RmwClass};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What makes a device of so many bytes for the blocks that memory has no room for, if it can: one
/// that reads as zeros, each time another one.
pub type SpoolMaker<'a> = &'a dyn Fn(u64) -> Option<SharedDevice>;

/// A file system as a repair would leave it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Mended {
    /// The device as it would be. What was mended is in memory or on a spool; it is refused to be
    /// written to.
    pub device: SharedDevice,
    /// What was put right, in order; of each code at most the first 1,000.
    pub fixes: Vec<Fix>,
    /// How many fixes there are, also those beyond the ones kept.
    pub fixes_count: u64,
    /// Inodes whose content may not be what it was: their maps were damaged, or others claim their
    /// blocks too.
    pub in_doubt: BTreeSet<Ino>,
    /// Whether something is left as it was, since mending it would lose files that can be read.
    pub is_partial: bool,
    /// Whether what waited in the journal could not be replayed, and is left out.
    pub without_journal: bool,
    /// Bytes by which the device is shorter than its file system.
    pub missing: u64,
    /// Pieces of at most 4 KiB that the device could not read, of what was looked at.
    pub unreadable: u64,
}

/// Mends the file system that starts at byte 0 of `device` in memory, and writes nothing to the
/// device. Memory follows the blocks that change: up to 64 MiB of them, if there is a spool and no
/// stage has to be taken back.
///
/// # Errors
/// When nothing can be said: a device that fails, no file system, features that are not known here,
/// fast commits that wait for replay (see [`mend_after_replay`]), a journal on another device that
/// does.
pub fn mend(
    device: &SharedDevice,
    options: Options,
    spool: SpoolMaker<'_>,
    progress: &dyn Progress,
) -> Result<Mended> {
    mend_over(device, None, options, spool, progress)
}

/// Mends the file system that starts at byte 0 of `device`, as [`mend`] does, after its journal was
/// replayed as `replayed` has it: an overlay on the device into which an engine has written what
/// waited, fast commits among it.
///
/// # Errors
/// As for [`mend`].
pub fn mend_after_replay(
    device: &SharedDevice,
    replayed: &Arc<OverlayDevice>,
    options: Options,
    spool: SpoolMaker<'_>,
    progress: &dyn Progress,
) -> Result<Mended> {
    mend_over(device, Some(replayed), options, spool, progress)
}

fn mend_over(
    device: &SharedDevice,
    replayed: Option<&Arc<OverlayDevice>>,
    options: Options,
    spool: SpoolMaker<'_>,
    progress: &dyn Progress,
) -> Result<Mended> {
    let found = find_superblock_to_read(&**device)?;
    let needed = found
        .blocks_count()
        .saturating_mul(found.block_size().bytes().into());
    let missing = needed.saturating_sub(device.size());
    if missing > 0 {
        refuse_without_descriptors(&**device, &found)?;
    }
    let whole = Arc::new(Forgiving {
        base: Arc::clone(device),
        size: needed.max(device.size()),
        unreadable: CountedAtomicU64::new(&UNREADABLE, 0),
    });
    let attempt = Attempt {
        whole: &(Arc::clone(&whole) as SharedDevice),
        is_cut: missing > 0,
        found: &found,
        replayed,
        spool,
        progress,
    };
    let careful = options.discard_journal(false);
    let (draft, without_journal) = match attempt.draft(careful, false) {
        Err(Error::Refused { .. } | Error::Journal(_)) if options.discard_journal => {
            (attempt.draft(options, false)?, true)
        }
        done => (done?, false),
    };
    let is_partial = !is_replay_alone(&draft) && net::losses(&draft)?.1 > 0;
    let draft = if is_partial {
        let options = options.discard_journal(without_journal);
        attempt.draft(options, true)?
    } else {
        draft
    };
    Ok(Mended {
        missing,
        is_partial,
        without_journal,
        unreadable: whole.unreadable.load(Ordering::Relaxed),
        ..Mended::of(draft, device, needed)
    })
}

/// Refuses a device that has no room for the descriptors that its superblock claims: what is held
/// in memory follows the size of the device.
fn refuse_without_descriptors(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    let geometry = Geometry::new(sb);
    let room = device.size() / u64::from(geometry.desc_size().max(1));
    let most = u32::try_from(room).unwrap_or(u32::MAX);
    if geometry.groups_count() > most {
        let groups = geometry.groups_count();
        return Err(Error::TooLarge { groups, most });
    }
    Ok(())
}

/// Whether nothing was done but to replay a journal: what can be read then is what a mount shows.
fn is_replay_alone(draft: &Draft) -> bool {
    let codes = Code::ALL.iter().copied();
    let mut others = codes.filter(|code| *code != Code::JournalReplayed);
    !others.any(|code| draft.has(code))
}

/// What is mended, and with what.
struct Attempt<'a> {
    /// As long as the file system.
    whole: &'a SharedDevice,
    is_cut: bool,
    found: &'a Superblock,
    replayed: Option<&'a Arc<OverlayDevice>>,
    spool: SpoolMaker<'a>,
    progress: &'a dyn Progress,
}

impl Attempt<'_> {
    fn draft(&self, options: Options, careful: bool) -> Result<Draft> {
        let block_size = self.found.block_size().bytes();
        let spool = (self.spool)(self.whole.size());
        let mut draft = Draft::for_reading(Arc::clone(self.whole), block_size, spool)?;
        if let Some(replayed) = self.replayed {
            journal::take_over(&mut draft, Arc::clone(replayed))?;
        }
        match find_superblock(&*draft.device(), &mut Sink::new()) {
            Ok(_) => superblock::restore(&mut draft, self.found)?,
            Err(Error::NotExt4 { source, .. }) => {
                draft.put_superblock(self.found)?;
                let text = format!("possible again, to read by ({source})");
                draft.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
            }
            Err(e) => return Err(e),
        }
        let rounds = Rounds::for_reading(options, careful, self.is_cut);
        rounds.run(&mut draft, self.progress)?;
        Ok(draft)
    }
}

impl Mended {
    fn of(draft: Draft, base: &SharedDevice, size: u64) -> Self {
        let block_size = u64::from(draft.block_size());
        let mut blocks: Vec<Range<u64>> = Vec::new();
        for block in draft.written_blocks() {
            match blocks.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => blocks.push(block..block + 1),
            }
        }
        let changed = blocks
            .into_iter()
            .map(|run| run.start * block_size..run.end.saturating_mul(block_size).min(size))
            .collect();
        let in_doubt = draft.in_doubt().clone();
        let mended = draft.device();
        let (fixes, fixes_count, _) = draft.into_parts();
        let size = size.max(base.size());
        Self {
            device: Arc::new(Front {
                base: Arc::clone(base),
                mended,
                changed,
                size,
            }),
            fixes,
            fixes_count,
            in_doubt,
            is_partial: false,
            without_journal: false,
            missing: 0,
            unreadable: 0,
        }
    }
}

/// Bytes that are given up where they cannot be read.
const PIECE: usize = 4096;
/// Pieces that are given up at most: a device of which so many fail is not there any more.
const MOST_UNREADABLE: u64 = 1 << 14;
static UNREADABLE: RmwClass = RmwClass::new("pieces that cannot be read");

/// A device with zeros behind its end, and in the place of what it cannot read.
#[derive(Debug)]
struct Forgiving {
    base: SharedDevice,
    size: u64,
    unreadable: CountedAtomicU64,
}

impl Forgiving {
    /// Whether an error is one of the place that was read, and not of the device as a whole, as it
    /// may be where that is a server.
    fn is_of_the_place(&self, e: &DeviceError) -> bool {
        let is_medium = |source: &io::Error| source.raw_os_error() == Some(errno::EIO);
        !self.base.is_served() && matches!(e, DeviceError::Io { source, .. } if is_medium(source))
    }

    /// Reads again, piece by piece, what could not be read.
    fn read_pieces(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let mut at = offset;
        for piece in buf.chunks_mut(PIECE) {
            match self.base.read_at(at, piece) {
                Err(e) if self.is_of_the_place(&e) => {
                    if self.unreadable.fetch_add(1, Ordering::Relaxed) >= MOST_UNREADABLE {
                        return Err(e);
                    }
                    piece.fill(0);
                }
                done => done?,
            }
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl BlockDevice for Forgiving {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.base.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let left = self.base.size().saturating_sub(offset);
        let (inside, behind) = buf.split_at_mut(left.min(buf.len() as u64) as usize);
        behind.fill(0);
        if inside.is_empty() {
            return Ok(());
        }
        match self.base.read_at(offset, inside) {
            Err(e) if self.is_of_the_place(&e) => self.read_pieces(offset, inside),
            done => done,
        }
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        in_parts(
            &*self.base,
            batch,
            |_, _| true,
            |offset, buf| self.read_at(offset, buf),
        )
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        let device = self.name();
        Err(DeviceError::ReadOnly { device })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        let end = self.base.size();
        let inside = ranges
            .iter()
            .map(|range| range.start.min(end)..range.end.min(end));
        self.base.prefetch(&inside.collect::<Vec<_>>());
    }

    fn logical_sector(&self) -> u32 {
        self.base.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.base.preferred_io()
    }

    fn in_flight(&self) -> usize {
        self.base.in_flight()
    }

    fn is_served(&self) -> bool {
        self.base.is_served()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        self.base.next_data(from, end.min(self.base.size()))
    }
}

/// Does the reads of a batch: those together that are for the device below, and lie on it; all
/// others, and what fails of those, one by one.
fn in_parts(
    base: &dyn BlockDevice,
    batch: Vec<Request>,
    is_for_base: impl Fn(u64, u64) -> bool,
    read: impl Fn(u64, &mut [u8]) -> DeviceResult<()>,
) -> Completion {
    let is_below = |request: &Request| match request {
        Request::Read { offset, buf } => {
            let len = buf.len() as u64;
            base.check_range("read", *offset, len).is_ok() && is_for_base(*offset, len)
        }
        _ => false,
    };
    let places: Vec<bool> = batch.iter().map(is_below).collect();
    let (mut below, mut here) = (Vec::new(), Vec::new());
    for (request, is_below) in batch.into_iter().zip(&places) {
        if *is_below {
            below.push(request);
        } else {
            here.push(request);
        }
    }
    let done = if below.is_empty() {
        Vec::new()
    } else {
        base.submit(below).wait()
    };
    let one = |mut request: Request| {
        let result = match &mut request {
            Request::Read { offset, buf } => read(*offset, buf),
            Request::Flush => Ok(()),
            _ => Err(DeviceError::ReadOnly {
                device: base.name(),
            }),
        };
        Done { request, result }
    };
    let (mut done, mut here) = (done.into_iter(), here.into_iter());
    let next = |is_below: bool| {
        if !is_below {
            return here.next().map(one);
        }
        done.next().map(|done| match done.result {
            Ok(()) => done,
            Err(_) => one(done.request),
        })
    };
    Completion::ended(places.into_iter().filter_map(next).collect())
}

/// A device with what was mended in front of it. What was not is read straight from it.
#[derive(Debug)]
struct Front {
    base: SharedDevice,
    /// The whole, with what was mended.
    mended: SharedDevice,
    /// The bytes that were mended, ascending.
    changed: Vec<Range<u64>>,
    size: u64,
}

impl Front {
    /// The first part of a range that is mended or not, and whether it is.
    fn part(&self, range: &Range<u64>) -> (bool, Range<u64>) {
        let next = self.changed.partition_point(|run| run.end <= range.start);
        match self.changed.get(next) {
            Some(run) if run.start <= range.start => (true, range.start..range.end.min(run.end)),
            Some(run) => (false, range.start..range.end.min(run.start)),
            None => (false, range.clone()),
        }
    }

    fn device(&self, is_mended: bool) -> &SharedDevice {
        if is_mended { &self.mended } else { &self.base }
    }

    /// Whether nothing of a range was mended.
    fn is_as_it_was(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.part(range) == (false, range.clone())
    }
}

impl BlockDevice for Front {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.base.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let mut rest = offset..offset + buf.len() as u64;
        while !rest.is_empty() {
            let (is_mended, part) = self.part(&rest);
            let bytes = (part.start - offset) as usize..(part.end - offset) as usize;
            let part_of_buf = buf.get_mut(bytes).unwrap_or_default();
            self.device(is_mended).read_at(part.start, part_of_buf)?;
            rest.start = part.end;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        let device = self.name();
        Err(DeviceError::ReadOnly { device })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        let is_for_base = |offset: u64, len: u64| self.is_as_it_was(&(offset..offset + len));
        in_parts(&*self.base, batch, is_for_base, |offset, buf| {
            self.read_at(offset, buf)
        })
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        let end = self.base.size();
        let inside = ranges
            .iter()
            .map(|range| range.start.min(end)..range.end.min(end));
        self.base.prefetch(&inside.collect::<Vec<_>>());
    }

    fn logical_sector(&self) -> u32 {
        self.base.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.base.preferred_io()
    }

    fn in_flight(&self) -> usize {
        self.base.in_flight()
    }

    fn is_served(&self) -> bool {
        self.base.is_served()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let mut rest = from..end.min(self.size);
        while !rest.is_empty() {
            let (is_mended, part) = self.part(&rest);
            // What lies behind the end is no hole.
            let is_behind = !is_mended && part.end > self.base.size();
            if is_behind && part.start >= self.base.size() {
                return Ok(Some(part));
            }
            let stop = if is_behind {
                self.base.size()
            } else {
                part.end
            };
            let found = self.device(is_mended).next_data(part.start, stop)?;
            let found = found.map(|found| found.start.max(part.start)..found.end.min(stop));
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                return Ok(Some(found));
            }
            rest.start = stop;
        }
        Ok(None)
    }
}
