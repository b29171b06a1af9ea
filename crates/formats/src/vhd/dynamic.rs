//! The virtual disk of a dynamic VHD.
//!
//! # Locking
//! Reads take no lock: the table of blocks is in memory, and an entry changes once, from nothing to
//! a place. New blocks are handed out, and the table is written, under `blocks of a VHD`.
//!
//! # Invariants
//! - What was flushed stays readable whenever power fails. A new block, all zeros with a full
//!   bitmap, goes where no block is; its entry goes to the device's table with the next flush,
//!   after one that made the block durable. Until then the table on the device does not know it.
//! - No block overlaps another, the header or the table; an image that says so is refused.
//! - A block that is written to has a full bitmap: sectors that it said were never written were
//!   made zeros first.
//! - The footer is in the last sector of the device. While a block is being put there, the copy in
//!   the first sector stands for it.

use super::NAME;
use super::footer::{Footer, HEADER, Header, SECTOR};
use crate::FormatError;
use crate::mapped::{self, Part, Tables};
use extant_blockdev::{AlignedBuf, BlockDevice, Completion, DeviceError, DeviceResult};
use extant_blockdev::{Done, Request, SharedDevice};
use extant_sync::{LockClass, Mutex, MutexGuard, Rank};
use std::collections::BTreeSet;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// Bytes of a block of a new disk: the usual size.
const BLOCK: u32 = 2 << 20;

/// Most entries of a table: 2 TiB in blocks of 512 KiB.
const MOST_BLOCKS: u64 = 1 << 22;

/// An entry of the table that stands for no block.
const NONE: u32 = u32::MAX;

/// In an entry in memory: the bitmap of the block is known to be full.
const FULL: u64 = 1 << 32;

/// Blocks begin so that their data is aligned to this.
const ALIGN: u64 = 4096;

/// Entries of the table that are written together: those of a sector.
const ENTRIES: usize = (SECTOR / 4) as usize;

static BLOCKS_CLASS: LockClass = LockClass::new("blocks of a VHD", Rank::ImageFormat);

/// The virtual disk.
#[derive(Debug)]
pub(super) struct Dynamic {
    inner: SharedDevice,
    size: u64,
    read_only: bool,
    block: u64,
    /// Bytes of a block's bitmap.
    bitmap: u64,
    table_offset: u64,
    /// For each block its sector on the device, and perhaps [`FULL`].
    table: Box<[AtomicU64]>,
    footer: Footer,
    growth: Mutex<Growth>,
}

/// Where blocks are added, and what the table on the device does not say yet.
#[derive(Debug)]
struct Growth {
    /// The first byte behind all blocks.
    end: u64,
    /// Sectors of the table that are to be written.
    changed: BTreeSet<usize>,
}

/// The part of a range that lies in one block.
struct Piece {
    block: usize,
    /// First byte in the block.
    within: u64,
    /// The part of the range.
    range: Range<usize>,
}

impl Dynamic {
    /// Opens the disk that `footer` stands for.
    pub(super) fn open(
        inner: SharedDevice,
        footer: &Footer,
        writable: bool,
    ) -> Result<Self, FormatError> {
        let damaged = |reason: String| FormatError::Damaged {
            device: inner.name(),
            format: NAME,
            reason,
        };
        let at = footer.data_offset();
        let end = inner.size();
        if at.checked_add(HEADER as u64).is_none_or(|last| last > end) {
            return Err(damaged(format!("its header would be at byte {at}")));
        }
        let mut bytes = [0; HEADER];
        inner.read_at(at, &mut bytes)?;
        let header = Header::parse(&bytes).map_err(damaged)?;
        let block = u64::from(header.block_size());
        if !block.is_power_of_two() || !(SECTOR..=1 << 30).contains(&block) {
            return Err(damaged(format!("its blocks have {block} bytes")));
        }
        let size = footer.disk_size();
        let blocks = size.div_ceil(block);
        if blocks > MOST_BLOCKS {
            return Err(FormatError::TooLarge {
                what: format!("the table of blocks of {}", inner.name()),
                size: blocks * 4,
                limit: MOST_BLOCKS * 4,
            });
        }
        if blocks > u64::from(header.entries()) {
            return Err(damaged(format!(
                "a disk of {size} bytes has {blocks} blocks, and its table {} entries",
                header.entries()
            )));
        }
        let table_offset = header.table_offset();
        let table_end = table_offset.checked_add(blocks * 4).filter(|&last| {
            last <= end && table_offset.is_multiple_of(SECTOR) && table_offset >= SECTOR
        });
        let overlaps = |from: u64, to: u64| from < at + HEADER as u64 && to > at;
        let Some(table_end) = table_end.filter(|&last| !overlaps(table_offset, last)) else {
            return Err(damaged(format!(
                "its table of {blocks} entries would be at byte {table_offset}"
            )));
        };
        let mut table = vec![0; blocks as usize * 4];
        inner.read_at(table_offset, &mut table)?;
        let (entries, _) = table.as_chunks::<4>();
        let entries: Vec<u32> = entries.iter().map(|&e| u32::from_be_bytes(e)).collect();
        let bitmap = (block / SECTOR).div_ceil(8).next_multiple_of(SECTOR);
        // The whole table is not for blocks, nor is the header.
        let whole = table_offset + u64::from(header.entries()) * 4;
        let behind = table_end.max(whole.min(end)).next_multiple_of(SECTOR);
        let last = check_blocks(&entries, bitmap + block, end, |from, to| {
            from >= SECTOR && !overlaps(from, to) && (to <= table_offset || from >= behind)
        })
        .map_err(damaged)?;
        let behind = behind.max(at + HEADER as u64);
        let read_only = !writable || inner.is_read_only();
        let disk = Self {
            size,
            read_only,
            block,
            bitmap,
            table_offset,
            table: entries.iter().map(|&e| AtomicU64::new(e.into())).collect(),
            footer: footer.clone(),
            growth: Mutex::new(
                &BLOCKS_CLASS,
                Growth {
                    end: last.max(behind),
                    changed: BTreeSet::new(),
                },
            ),
            inner,
        };
        disk.mend_end()?;
        Ok(disk)
    }

    /// Makes a disk without blocks.
    pub(super) fn create(inner: SharedDevice, footer: &Footer) -> Result<Self, FormatError> {
        let size = footer.disk_size();
        // The largest disk has about a million blocks.
        let blocks = size.div_ceil(BLOCK.into()) as usize;
        let table_offset = SECTOR + HEADER as u64;
        let end = table_offset + (blocks as u64 * 4).next_multiple_of(SECTOR);
        inner.grow(end + SECTOR)?;
        let header = Header::new(table_offset, blocks as u32, BLOCK);
        let table = vec![0xff; (end - table_offset) as usize];
        inner.write_at(SECTOR, header.as_bytes())?;
        inner.write_at(table_offset, &table)?;
        inner.write_at(inner.size() - SECTOR, footer.as_bytes())?;
        inner.write_at(0, footer.as_bytes())?;
        Ok(Self {
            size,
            read_only: inner.is_read_only(),
            block: BLOCK.into(),
            bitmap: SECTOR,
            table_offset,
            table: (0..blocks).map(|_| AtomicU64::new(NONE.into())).collect(),
            footer: footer.clone(),
            growth: Mutex::new(
                &BLOCKS_CLASS,
                Growth {
                    end,
                    changed: BTreeSet::new(),
                },
            ),
            inner,
        })
    }

    /// Writes the footer to the end and to the front where a crash has left none.
    fn mend_end(&self) -> Result<(), FormatError> {
        if self.read_only {
            return Ok(());
        }
        let growth = self.growth.lock();
        self.inner
            .grow((growth.end + SECTOR).next_multiple_of(SECTOR))?;
        for place in [0, self.inner.size() - SECTOR] {
            let mut sector = [0; SECTOR as usize];
            self.inner.read_at(place, &mut sector)?;
            // A device of another length than whole sectors has its last one across two.
            if place >= growth.end && sector != self.footer.as_bytes()
                || place == 0 && Footer::parse(&sector).is_err()
            {
                self.inner.write_at(place, self.footer.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Where the data of a block is, if it is there; and whether its bitmap is known to be full.
    fn place(&self, block: usize) -> Option<(u64, bool)> {
        let entry = self.table[block].load(Ordering::Acquire);
        let sector = entry as u32;
        (sector != NONE).then(|| {
            let start = u64::from(sector) * SECTOR;
            (start + self.bitmap, entry & FULL != 0)
        })
    }

    /// Cuts a range, which lies on the disk, at the bounds of blocks.
    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = Piece> + use<> {
        let block = self.block;
        let mut done = 0;
        std::iter::from_fn(move || {
            if done >= len {
                return None;
            }
            let at = offset + done as u64;
            let within = at % block;
            let part = (block - within).min((len - done) as u64) as usize;
            let range = done..done + part;
            done += part;
            Some(Piece {
                block: (at / block) as usize,
                within,
                range,
            })
        })
    }

    /// Reads the bitmap of a block whose data is at `data`; `None` if it is full.
    fn partial_bitmap(&self, block: usize, data: u64) -> DeviceResult<Option<Vec<u8>>> {
        let mut bitmap = vec![0; self.bitmap as usize];
        self.inner.read_at(data - self.bitmap, &mut bitmap)?;
        if self.is_full(&bitmap) {
            self.mark_full(block, data);
            return Ok(None);
        }
        Ok(Some(bitmap))
    }

    /// Whether a bitmap says that all sectors of a block were written.
    fn is_full(&self, bitmap: &[u8]) -> bool {
        let sectors = self.block / SECTOR;
        let whole = (sectors / 8) as usize;
        let rest = !(0xff_u8.checked_shr((sectors % 8) as u32).unwrap_or(0));
        bitmap[..whole].iter().all(|&byte| byte == 0xff)
            && bitmap.get(whole).is_none_or(|&byte| byte & rest == rest)
    }

    /// Reads the bitmaps of the blocks of ranges, given by offset and length, with one batch where
    /// each request takes a round trip: most are full, and are not looked at again. What cannot be
    /// read is left to what needs it.
    fn bitmaps_ahead(&self, ranges: impl Iterator<Item = (u64, u64)>) {
        if self.inner.in_flight() < 2 {
            return;
        }
        let mut blocks = BTreeSet::new();
        for (offset, len) in ranges {
            if len > 0 && offset.checked_add(len).is_some_and(|end| end <= self.size) {
                blocks.extend(offset / self.block..=(offset + len - 1) / self.block);
            }
        }
        let unknown: Vec<(usize, u64)> = blocks
            .into_iter()
            .filter_map(|block| match self.place(block as usize) {
                Some((data, false)) => Some((block as usize, data)),
                _ => None,
            })
            .collect();
        if unknown.is_empty() {
            return;
        }
        let read =
            |(_, data): &(usize, u64)| Request::read(data - self.bitmap, self.bitmap as usize);
        let requests = unknown.iter().map(read).collect();
        for (Done { request, result }, (block, data)) in
            self.inner.submit(requests).wait().into_iter().zip(unknown)
        {
            let bitmap = request.into_read_buf().filter(|_| result.is_ok());
            if bitmap.is_some_and(|bitmap| self.is_full(&bitmap)) {
                self.mark_full(block, data);
            }
        }
    }

    /// Remembers that the bitmap of a block, whose data is at `data`, is full. Its entry changes in
    /// nothing else any more, so a plain store will do.
    fn mark_full(&self, block: usize, data: u64) {
        let sector = (data - self.bitmap) / SECTOR;
        self.table[block].store(sector | FULL, Ordering::Release);
    }

    /// Makes zeros of the sectors of a block that were never written, and its bitmap full.
    fn fill(&self, block: usize, data: u64) -> DeviceResult<()> {
        let _alone = self.growth.lock();
        let Some(bitmap) = self.partial_bitmap(block, data)? else {
            return Ok(());
        };
        for run in runs(&bitmap, 0..self.block / SECTOR, false) {
            let (from, to) = (run.start * SECTOR, run.end * SECTOR);
            self.inner.zero(data + from, to - from)?;
        }
        self.inner.flush()?;
        let full = vec![0xff; self.bitmap as usize];
        self.inner.write_at(data - self.bitmap, &full)?;
        self.mark_full(block, data);
        Ok(())
    }

    /// The place of a block's data, which gets one if it has none.
    fn place_or_new(&self, block: usize) -> DeviceResult<u64> {
        match self.place(block) {
            Some((data, true)) => return Ok(data),
            Some((data, false)) => {
                self.fill(block, data)?;
                return Ok(data);
            }
            None => {}
        }
        let mut growth = self.growth.lock();
        if let Some((data, _)) = self.place(block) {
            return Ok(data);
        }
        let data = (growth.end + self.bitmap).next_multiple_of(ALIGN);
        let start = data - self.bitmap;
        let end = data + self.block;
        let sector = u32::try_from(start / SECTOR).ok().filter(|&s| s != NONE);
        let Some(sector) = sector else {
            return Err(self.no_room(start));
        };
        let was = self.inner.size();
        if end + SECTOR > was {
            self.inner.grow(end + SECTOR)?;
            let last = self.inner.size() - SECTOR;
            self.inner.write_at(last, self.footer.as_bytes())?;
        }
        // A crash may have left something there, such as the last footer.
        let old = was.min(end).saturating_sub(start);
        if old > 0 {
            self.inner.zero(start, old)?;
        }
        self.inner
            .write_at(start, &vec![0xff; self.bitmap as usize])?;
        growth.end = end;
        growth.changed.insert(block / ENTRIES);
        self.table[block].store(u64::from(sector) | FULL, Ordering::Release);
        Ok(data)
    }

    fn no_room(&self, offset: u64) -> DeviceError {
        DeviceError::Io {
            op: "write",
            device: self.name(),
            offset,
            len: self.block,
            source: io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the file of a VHD has at most 2 TiB",
            ),
        }
    }

    /// Makes what was written durable, then the entries of new blocks.
    fn publish(&self, mut growth: MutexGuard<'_, Growth>) -> DeviceResult<()> {
        // With one batch, which may be one round trip.
        let mut batch = vec![Request::Flush];
        for &sector in &growth.changed {
            let mut bytes = [0xff; SECTOR as usize];
            let entries = self.table.iter().skip(sector * ENTRIES);
            for (to, entry) in bytes.chunks_mut(4).zip(entries) {
                let place = entry.load(Ordering::Acquire) as u32;
                to.copy_from_slice(&place.to_be_bytes());
            }
            let at = self.table_offset + sector as u64 * SECTOR;
            // Behind the last entry other things may begin.
            let len = (self.table.len() - sector * ENTRIES).min(ENTRIES) * 4;
            batch.push(Request::write(at, AlignedBuf::copy_of(&bytes[..len])));
        }
        batch.push(Request::Flush);
        self.inner.submit(batch).wait_all()?;
        growth.changed.clear();
        Ok(())
    }

    /// Calls `each` with the parts of a range that have a place on the device below: their offset
    /// there, and their length.
    fn placed(
        &self,
        offset: u64,
        len: u64,
        mut each: impl FnMut(u64, u64) -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let block = (at / self.block) as usize;
            let stop = end.min((block as u64 + 1) * self.block);
            if let Some((data, full)) = self.place(block) {
                if !full {
                    self.fill(block, data)?;
                }
                each(data + at % self.block, stop - at)?;
            }
            at = stop;
        }
        Ok(())
    }
}

/// Checks that all blocks, of `len` bytes each, lie on the device, where `is_free` says that
/// nothing else is, and none on another. Returns the first byte behind all of them.
fn check_blocks(
    entries: &[u32],
    len: u64,
    end: u64,
    is_free: impl Fn(u64, u64) -> bool,
) -> Result<u64, String> {
    let places = entries.iter().filter(|&&entry| entry != NONE);
    let mut starts: Vec<u64> = places.map(|&entry| u64::from(entry) * SECTOR).collect();
    starts.sort_unstable();
    let mut last = 0;
    for start in starts {
        if start < last {
            return Err(format!("two blocks of it overlap at byte {start}"));
        }
        last = start + len;
        if last > end || !is_free(start, last) {
            return Err(format!("a block of it would be at byte {start}"));
        }
    }
    Ok(last)
}

/// The runs of sectors in `range` whose bits are as `wanted`.
fn runs(bitmap: &[u8], range: Range<u64>, wanted: bool) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for sector in range {
        let bit = bitmap[(sector / 8) as usize] & (0x80 >> (sector % 8)) != 0;
        if bit != wanted {
            continue;
        }
        match found.last_mut() {
            Some(run) if run.end == sector => run.end += 1,
            _ => found.push(sector..sector + 1),
        }
    }
    found
}

impl BlockDevice for Dynamic {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        self.bitmaps_ahead(std::iter::once((offset, buf.len() as u64)));
        if let Some(done) = mapped::read(self, &*self.inner, offset, buf, || self) {
            return done;
        }
        for piece in self.pieces(offset, buf.len()) {
            let part = &mut buf[piece.range];
            let Some((data, full)) = self.place(piece.block) else {
                part.fill(0);
                continue;
            };
            let end = piece.within + part.len() as u64;
            let bitmap = if full {
                None
            } else {
                self.partial_bitmap(piece.block, data)?
            };
            self.inner.read_at(data + piece.within, part)?;
            let sectors = piece.within / SECTOR..end.div_ceil(SECTOR);
            for run in bitmap.map_or_else(Vec::new, |bitmap| runs(&bitmap, sectors, false)) {
                let from = (run.start * SECTOR).max(piece.within) - piece.within;
                let to = (run.end * SECTOR).min(end) - piece.within;
                part[from as usize..to as usize].fill(0);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        self.bitmaps_ahead(std::iter::once((offset, buf.len() as u64)));
        if let Some(done) = mapped::write(self, &*self.inner, offset, buf, || self) {
            return done;
        }
        for piece in self.pieces(offset, buf.len()) {
            let part = &buf[piece.range];
            if self.place(piece.block).is_none() && part.iter().all(|&byte| byte == 0) {
                continue;
            }
            let data = self.place_or_new(piece.block)?;
            self.inner.write_at(data + piece.within, part)?;
        }
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        let growth = self.growth.lock();
        if growth.changed.is_empty() {
            drop(growth);
            return self.inner.flush();
        }
        self.publish(growth)
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("discard", offset, len)?;
        self.placed(offset, len, |at, len| self.inner.discard(at, len))
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        self.placed(offset, len, |at, len| self.inner.zero(at, len))
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        mapped::read_vectored(self, &*self.inner, offset, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        mapped::write_vectored(self, &*self.inner, offset, bufs)
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        self.bitmaps_ahead(batch.iter().filter_map(Request::range));
        mapped::submit(self, &*self.inner, batch, || self)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn is_served(&self) -> bool {
        self.inner.is_served()
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.inner.preferred_io()
    }

    fn parallel_writes(&self) -> usize {
        self.inner.parallel_writes()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size);
        let mut at = from;
        while at < end {
            let block = (at / self.block) as usize;
            let stop = end.min((block as u64 + 1) * self.block);
            if let Some((data, _)) = self.place(block) {
                let start = data + at % self.block;
                let found = self.inner.next_data(start, start + (stop - at))?;
                if let Some(found) = found {
                    let moved = |byte: u64| (at + byte.saturating_sub(start)).min(stop);
                    return Ok(Some(moved(found.start)..moved(found.end)));
                }
            }
            at = stop;
        }
        Ok(None)
    }
}

impl Tables for &Dynamic {
    fn find(&self, offset: u64, len: u64, writes: bool) -> (Part, u64) {
        let block = (offset / self.block) as usize;
        let within = offset % self.block;
        let part = match self.place(block) {
            Some((data, true)) => Part::Below(data + within),
            None if !writes => Part::Zeros,
            _ => Part::Other,
        };
        (part, len.min(self.block - within))
    }

    fn settle(&self) -> DeviceResult<()> {
        let growth = self.growth.lock();
        if growth.changed.is_empty() {
            return Ok(());
        }
        self.publish(growth)
    }
}

impl Drop for Dynamic {
    /// Without a flush nothing is promised. Still the next program should find what was written.
    fn drop(&mut self) {
        if !self.growth.get_mut().changed.is_empty() {
            let _ = self.flush();
        }
    }
}
