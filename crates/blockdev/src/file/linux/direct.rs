//! Transfers past the page cache (O_DIRECT) for callers of any alignment.
//!
//! The kernel takes only transfers whose place, length and memory are aligned. Those go through
//! as they are; others go through an aligned copy, a write then reading the sectors it only
//! partly covers first.
//!
//! # Invariants
//! - While a write reads, patches and writes back the sectors at its edges, no other write
//!   of this device may change the same sectors: such a write holds the locks of the regions it
//!   touches exclusively, and aligned writes hold theirs shared. Regions are 1 MiB and share 64
//!   locks, taken in ascending order.
//! - Bytes after the last whole aligned unit of the file are only ever touched through the page
//!   cache: an aligned write there would make the file longer.

use super::FileDevice;
use crate::buffer::BUFFER_ALIGN;
use crate::{AlignedBuf, BlockDevice, DeviceError, DeviceResult};
use extant_sync::{LockClass, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Most bytes copied at a time.
const BOUNCE: u64 = 1 << 20;
const REGION: u64 = 1 << 20;
const LOCKS: u64 = 64;

static REGION_CLASS: LockClass = LockClass::ascending("direct I/O region", Rank::DeviceQueue);

/// A file, opened a second time with O_DIRECT.
#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    /// Alignment of offsets and lengths, in bytes: a power of two.
    align: u64,
    /// Alignment of memory, in bytes: a power of two, at most [`BUFFER_ALIGN`].
    memory_align: usize,
    regions: Box<[RwLock<()>]>,
}

/// Held while a write runs.
#[expect(dead_code, reason = "held for their drop")]
pub(super) enum RegionGuard<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Exclusive(RwLockWriteGuard<'a, ()>),
}

impl DirectFile {
    /// Opens what `file` has open at `path` again, for direct transfers.
    pub(super) fn open(path: &Path, file: &File, logical_sector: u32) -> DeviceResult<Self> {
        let refuse = |reason: String| DeviceError::NoDirectIo {
            path: path.to_owned(),
            reason,
        };
        let found = file.metadata().map_err(|err| refuse(err.to_string()))?;
        let writable =
            rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::RDWR));
        let again = OpenOptions::new()
            .read(true)
            .write(writable)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .map_err(|err| refuse(format!("the file system refuses it ({err})")))?;
        let same = again
            .metadata()
            .is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino()));
        if !same {
            return Err(refuse(
                "the path was replaced while it was being opened".to_owned(),
            ));
        }
        let (align, memory_align) = alignment(&again, logical_sector).map_err(refuse)?;
        let regions = (0..LOCKS).map(|_| RwLock::new(&REGION_CLASS, ())).collect();
        Ok(Self {
            file: again,
            align,
            memory_align,
            regions,
        })
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Alignment of offsets and lengths in bytes.
    pub(super) fn align(&self) -> u64 {
        self.align
    }

    fn place_fits(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.align) && len.is_multiple_of(self.align)
    }

    fn fits(&self, offset: u64, buf: &[u8]) -> bool {
        self.place_fits(offset, buf.len() as u64)
            && buf.as_ptr().addr().is_multiple_of(self.memory_align)
    }

    /// Locks what a write to `range` touches.
    fn lock(&self, range: Range<u64>, exclusive: bool) -> Vec<RegionGuard<'_>> {
        self.lock_wanted(&[range], exclusive)
    }

    /// Locks what making zeros of `range` touches: alone, where it covers a part of what others
    /// write as a whole.
    pub(super) fn lock_zeroed(&self, range: Range<u64>) -> Vec<RegionGuard<'_>> {
        let fits = self.place_fits(range.start, range.end - range.start);
        self.lock(range, !fits)
    }

    /// Locks what aligned writes to `ranges` touch.
    pub(super) fn lock_all(&self, ranges: &[Range<u64>]) -> Vec<RegionGuard<'_>> {
        self.lock_wanted(ranges, false)
    }

    fn lock_wanted(&self, ranges: &[Range<u64>], exclusive: bool) -> Vec<RegionGuard<'_>> {
        let mut wanted = [false; LOCKS as usize];
        for range in ranges {
            let first = range.start / REGION;
            let last = range.end.saturating_sub(1).max(range.start) / REGION;
            for region in first..=last.min(first + LOCKS - 1) {
                wanted[(region % LOCKS) as usize] = true;
            }
        }
        let chosen = (0..).zip(self.regions.iter().zip(wanted));
        chosen
            .filter_map(|(key, (lock, on))| on.then_some((key, lock)))
            .map(|(key, lock)| {
                if exclusive {
                    RegionGuard::Exclusive(lock.write_ascending(key))
                } else {
                    RegionGuard::Shared(lock.read_ascending(key))
                }
            })
            .collect()
    }
}

/// Alignment of places and of memory, as the kernel tells it or as is safe everywhere.
fn alignment(file: &File, logical_sector: u32) -> Result<(u64, usize), String> {
    let safe = (u64::from(logical_sector).max(4096), BUFFER_ALIGN);
    let Ok(told) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Ok(safe);
    };
    if told.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(safe);
    }
    let (align, memory_align) = (u64::from(told.stx_dio_offset_align), told.stx_dio_mem_align);
    if align == 0 || memory_align == 0 {
        return Err("the file system says it has none for this file".to_owned());
    }
    let memory_align = memory_align as usize;
    if !align.is_power_of_two() || align > BOUNCE || !memory_align.is_power_of_two() {
        return Err(format!(
            "its alignment is {align} bytes on the device, {memory_align} in memory"
        ));
    }
    if memory_align > BUFFER_ALIGN {
        return Err(format!(
            "it wants memory aligned to {memory_align} bytes, and buffers are aligned to {BUFFER_ALIGN}"
        ));
    }
    Ok((align, memory_align))
}

impl FileDevice {
    /// Where direct transfers end and the page cache begins.
    fn direct_end(&self, direct: &DirectFile) -> u64 {
        self.size() / direct.align * direct.align
    }

    /// Bytes of a transfer at `offset` of `len` bytes that lie in the direct part.
    fn direct_len(&self, direct: &DirectFile, offset: u64, len: usize) -> usize {
        let room = self.direct_end(direct).saturating_sub(offset);
        usize::try_from(room).map_or(len, |room| room.min(len))
    }

    /// Whether a transfer, which lies on the device, can be direct as it is.
    pub(super) fn fits_direct(&self, direct: &DirectFile, offset: u64, buf: &[u8]) -> bool {
        direct.fits(offset, buf) && offset + buf.len() as u64 <= self.direct_end(direct)
    }

    /// Reads a range that lies on the device.
    pub(super) fn read_direct(
        &self,
        direct: &DirectFile,
        offset: u64,
        buf: &mut [u8],
    ) -> DeviceResult<()> {
        let split = self.direct_len(direct, offset, buf.len());
        let (body, tail) = buf.split_at_mut(split);
        if direct.fits(offset, body) {
            if !self.read_large(offset, &mut [IoSliceMut::new(&mut *body)])? {
                self.read_full(&direct.file, offset, body)?;
            }
        } else {
            self.read_bounced(direct, offset, body)?;
        }
        self.read_full(&self.file, offset + split as u64, tail)
    }

    /// Reads a range that lies on the device, as much of it as can be past the page cache, in the
    /// calling thread.
    pub(super) fn read_past_cache(
        &self,
        direct: &DirectFile,
        offset: u64,
        buf: &mut [u8],
    ) -> DeviceResult<()> {
        let split = self.direct_len(direct, offset, buf.len());
        let (body, tail) = buf.split_at_mut(split);
        self.read_bounced(direct, offset, body)?;
        self.read_full(&self.file, offset + split as u64, tail)
    }

    fn read_bounced(&self, direct: &DirectFile, offset: u64, body: &mut [u8]) -> DeviceResult<()> {
        let mut rest = body;
        let mut at = offset;
        while !rest.is_empty() {
            let chunk = bounce_chunk(direct.align, at, rest.len() as u64);
            let mut bounce = AlignedBuf::zeroed((chunk.end - chunk.start) as usize);
            self.read_full(&direct.file, chunk.start, &mut bounce)?;
            let skip = (at - chunk.start) as usize;
            let n = rest.len().min(bounce.len() - skip);
            let (part, after) = rest.split_at_mut(n);
            part.copy_from_slice(&bounce[skip..skip + n]);
            at += n as u64;
            rest = after;
        }
        Ok(())
    }

    /// Writes a range that lies on the device.
    pub(super) fn write_direct(
        &self,
        direct: &DirectFile,
        offset: u64,
        buf: &[u8],
    ) -> DeviceResult<()> {
        let (body, tail) = buf.split_at(self.direct_len(direct, offset, buf.len()));
        let end = offset + body.len() as u64;
        if !body.is_empty() {
            let partly = !direct.place_fits(offset, body.len() as u64);
            let _regions = direct.lock(offset..end, partly);
            if direct.fits(offset, body) {
                if !self.write_large(offset, &[IoSlice::new(body)])? {
                    self.write_full(&direct.file, offset, body)?;
                }
            } else {
                self.write_bounced(direct, offset, body)?;
            }
        }
        self.write_full(&self.file, end, tail)
    }

    fn write_bounced(&self, direct: &DirectFile, offset: u64, body: &[u8]) -> DeviceResult<()> {
        let mut rest = body;
        let mut at = offset;
        let align = direct.align as usize;
        while !rest.is_empty() {
            let chunk = bounce_chunk(direct.align, at, rest.len() as u64);
            let mut bounce = AlignedBuf::zeroed((chunk.end - chunk.start) as usize);
            let skip = (at - chunk.start) as usize;
            let n = rest.len().min(bounce.len() - skip);
            let last = bounce.len() - align;
            if skip > 0 {
                self.read_full(&direct.file, chunk.start, &mut bounce[..align])?;
            }
            if skip + n < bounce.len() && (last > 0 || skip == 0) {
                self.read_full(&direct.file, chunk.start + last as u64, &mut bounce[last..])?;
            }
            let (part, after) = rest.split_at(n);
            bounce[skip..skip + n].copy_from_slice(part);
            self.write_full(&direct.file, chunk.start, &bounce)?;
            at += n as u64;
            rest = after;
        }
        Ok(())
    }

    /// Reads buffers that lie on the device; in one system call if all of them are aligned.
    pub(super) fn read_vectored_direct(
        &self,
        direct: &DirectFile,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> DeviceResult<()> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let all_fit = offset + len <= self.direct_end(direct)
            && offset.is_multiple_of(direct.align)
            && bufs.iter().all(|buf| direct.fits(0, buf));
        if all_fit {
            return if self.read_large(offset, bufs)? {
                Ok(())
            } else {
                self.read_vectored_full(&direct.file, offset, bufs)
            };
        }
        let mut at = offset;
        for buf in bufs {
            self.read_direct(direct, at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes buffers that lie on the device; in one system call if all of them are aligned.
    pub(super) fn write_vectored_direct(
        &self,
        direct: &DirectFile,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> DeviceResult<()> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let all_fit = offset + len <= self.direct_end(direct)
            && offset.is_multiple_of(direct.align)
            && bufs.iter().all(|buf| direct.fits(0, buf));
        if all_fit {
            let _regions = direct.lock(offset..offset + len, false);
            return if self.write_large(offset, bufs)? {
                Ok(())
            } else {
                self.write_vectored_full(&direct.file, offset, bufs)
            };
        }
        let mut at = offset;
        for buf in bufs {
            self.write_direct(direct, at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }
}

/// The aligned range to copy next: it holds byte `at` and at most [`BOUNCE`] bytes.
fn bounce_chunk(align: u64, at: u64, len: u64) -> Range<u64> {
    let start = at / align * align;
    let end = (at + len).next_multiple_of(align).min(start + BOUNCE);
    start..end
}
