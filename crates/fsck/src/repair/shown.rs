//! Devices that are only read, of which parts are shown otherwise than the device below has them.
//!
//! # Invariants
//! - The device below is only read, and what is as it lies comes straight from it, many requests at
//!   once.

use extant_blockdev::{
    BlockDevice, Completion, DeviceError, DeviceResult, Done, Request, SharedDevice,
};
use extant_format::errno;
use extant_sync::{CountedAtomicU64, RmwClass};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A device that is shown in another way.
#[derive(Debug)]
pub(super) struct Shown<W> {
    base: SharedDevice,
    size: u64,
    way: W,
}

/// How parts of a device are shown.
pub(super) trait Way: Debug + Send + Sync {
    /// Reads bytes that lie inside what is shown of `base`.
    fn read(&self, base: &SharedDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()>;

    /// Whether bytes are those of the device below, unless it fails.
    fn is_as_it_lies(&self, range: &Range<u64>) -> bool;

    /// The first bytes of a range that may not be zeros.
    fn next_data(&self, base: &SharedDevice, range: Range<u64>)
    -> DeviceResult<Option<Range<u64>>>;
}

impl<W: Way> Shown<W> {
    /// The device below as one of `size` bytes.
    pub(super) fn new(base: &SharedDevice, size: u64, way: W) -> Self {
        let base = SharedDevice::clone(base);
        Self { base, size, way }
    }

    pub(super) fn way(&self) -> &W {
        &self.way
    }

    fn is_for_base(&self, request: &Request) -> bool {
        let Request::Read { offset, buf } = request else {
            return false;
        };
        let len = buf.len() as u64;
        self.base.check_range("read", *offset, len).is_ok()
            && self.way.is_as_it_lies(&(*offset..*offset + len))
    }

    fn one(&self, mut request: Request) -> Done {
        let result = match &mut request {
            Request::Read { offset, buf } => self.read_at(*offset, buf),
            Request::Flush => Ok(()),
            _ => Err(self.refusal()),
        };
        Done { request, result }
    }

    fn refusal(&self) -> DeviceError {
        let device = self.name();
        DeviceError::ReadOnly { device }
    }
}

impl<W: Way> BlockDevice for Shown<W> {
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
        self.way.read(&self.base, offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        Err(self.refusal())
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    /// Those together that are for the device below, and lie on it; all others, and what fails of
    /// those, one by one.
    fn submit(&self, batch: Vec<Request>) -> Completion {
        let places: Vec<bool> = batch.iter().map(|r| self.is_for_base(r)).collect();
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
            self.base.submit(below).wait()
        };
        let (mut done, mut here) = (done.into_iter(), here.into_iter());
        let next = |is_below: bool| {
            if !is_below {
                return here.next().map(|request| self.one(request));
            }
            done.next().map(|done| match done.result {
                Ok(()) => done,
                Err(_) => self.one(done.request),
            })
        };
        Completion::ended(places.into_iter().filter_map(next).collect())
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
        self.way.next_data(&self.base, from..end.min(self.size))
    }
}

/// Bytes that are given up where they cannot be read.
const PIECE: usize = 4096;
/// Pieces that are given up at most: a device of which so many fail is not there any more.
const MOST_UNREADABLE: u64 = 1 << 14;
static UNREADABLE: RmwClass = RmwClass::new("pieces that cannot be read");

/// With zeros behind the end of the device, and in the place of what it cannot read.
#[derive(Debug)]
pub(super) struct Forgiving {
    unreadable: CountedAtomicU64,
}

impl Forgiving {
    pub(super) fn new() -> Self {
        Self {
            unreadable: CountedAtomicU64::new(&UNREADABLE, 0),
        }
    }

    /// Pieces of at most 4 KiB that could not be read.
    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Reads again, piece by piece, what could not be read.
    fn read_pieces(&self, base: &SharedDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let mut at = offset;
        for piece in buf.chunks_mut(PIECE) {
            match base.read_at(at, piece) {
                Err(e) if is_of_the_place(base, &e) => {
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

/// Whether an error is one of the place that was read, and not of the device as a whole, as it may
/// be where that is a server.
fn is_of_the_place(base: &SharedDevice, e: &DeviceError) -> bool {
    let is_medium = |source: &io::Error| source.raw_os_error() == Some(errno::EIO);
    !base.is_served() && matches!(e, DeviceError::Io { source, .. } if is_medium(source))
}

impl Way for Forgiving {
    fn read(&self, base: &SharedDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let left = base.size().saturating_sub(offset);
        let (inside, behind) = buf.split_at_mut(left.min(buf.len() as u64) as usize);
        behind.fill(0);
        if inside.is_empty() {
            return Ok(());
        }
        match base.read_at(offset, inside) {
            Err(e) if is_of_the_place(base, &e) => self.read_pieces(base, offset, inside),
            done => done,
        }
    }

    fn is_as_it_lies(&self, _: &Range<u64>) -> bool {
        true
    }

    fn next_data(
        &self,
        base: &SharedDevice,
        range: Range<u64>,
    ) -> DeviceResult<Option<Range<u64>>> {
        base.next_data(range.start, range.end.min(base.size()))
    }
}

/// With what was mended in front of the device.
#[derive(Debug)]
pub(super) struct Front {
    /// The whole, with what was mended.
    mended: SharedDevice,
    /// The bytes that were mended, ascending.
    changed: Vec<Range<u64>>,
}

impl Front {
    pub(super) fn new(mended: SharedDevice, changed: Vec<Range<u64>>) -> Self {
        Self { mended, changed }
    }

    /// The first part of a range that is mended or not, and whether it is.
    fn part(&self, range: &Range<u64>) -> (bool, Range<u64>) {
        let next = self.changed.partition_point(|run| run.end <= range.start);
        match self.changed.get(next) {
            Some(run) if run.start <= range.start => (true, range.start..range.end.min(run.end)),
            Some(run) => (false, range.start..range.end.min(run.start)),
            None => (false, range.clone()),
        }
    }

    fn device<'a>(&'a self, base: &'a SharedDevice, is_mended: bool) -> &'a SharedDevice {
        if is_mended { &self.mended } else { base }
    }
}

impl Way for Front {
    fn read(&self, base: &SharedDevice, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let mut rest = offset..offset + buf.len() as u64;
        while !rest.is_empty() {
            let (is_mended, part) = self.part(&rest);
            let bytes = (part.start - offset) as usize..(part.end - offset) as usize;
            let part_of_buf = buf.get_mut(bytes).unwrap_or_default();
            self.device(base, is_mended)
                .read_at(part.start, part_of_buf)?;
            rest.start = part.end;
        }
        Ok(())
    }

    fn is_as_it_lies(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.part(range) == (false, range.clone())
    }

    fn next_data(
        &self,
        base: &SharedDevice,
        mut rest: Range<u64>,
    ) -> DeviceResult<Option<Range<u64>>> {
        while !rest.is_empty() {
            let (is_mended, part) = self.part(&rest);
            // What lies behind the end is no hole.
            let is_behind = !is_mended && part.end > base.size();
            if is_behind && part.start >= base.size() {
                return Ok(Some(part));
            }
            let stop = if is_behind { base.size() } else { part.end };
            let found = self
                .device(base, is_mended)
                .next_data(part.start, stop)?
                .map(|found| found.start.max(part.start)..found.end.min(stop));
            if let Some(found) = found.filter(|found| !found.is_empty()) {
                return Ok(Some(found));
            }
            rest.start = stop;
        }
        Ok(None)
    }
}
