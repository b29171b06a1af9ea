//! The device trait.

use crate::request::run_inline;
use crate::{AlignedBuf, Completion, DeviceError, DeviceResult, Request};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

/// A device shared by everything that uses it.
pub type SharedDevice = Arc<dyn BlockDevice>;

/// Most bytes that one write of zeroes carries.
const ZERO_CHUNK: u64 = 1 << 20;

/// A block device: positioned reads and writes from any number of threads.
///
/// Offsets and lengths are bytes and need no alignment. A device promises nothing about two
/// transfers that overlap in bytes and run at the same time; transfers that do not overlap
/// never disturb each other.
///
/// Five methods must be written; the others have defaults built on them, which a device
/// replaces where it can do better.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buf` from byte `offset`. A short read is an error.
    ///
    /// # Errors
    /// `OutOfRange` past the end of the device, `Io` when the system fails, `Shrunk` when the
    /// file below was cut.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()>;

    /// As [`BlockDevice::read_at`], past what the system keeps of the device in memory, where there
    /// is a way: what another host has written to it is seen. The default is for devices that have
    /// one user.
    ///
    /// # Errors
    /// As for `read_at`.
    fn read_uncached_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.read_at(offset, buf)
    }

    /// Writes all of `buf` at byte `offset`.
    ///
    /// # Errors
    /// As for `read_at`, and `ReadOnly`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()>;

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// `Io` when the system fails; nothing may then be assumed durable.
    fn flush(&self) -> DeviceResult<()>;

    /// What errors call the device, such as its path.
    fn name(&self) -> String {
        "the device".to_owned()
    }

    /// Fills the buffers one after the other from byte `offset`. The slices themselves may be
    /// advanced by this.
    ///
    /// # Errors
    /// As for `read_at`; the buffers' content is then undefined.
    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        self.check_range("read", offset, total_len(bufs.iter().map(|b| &**b)))?;
        let mut at = offset;
        for buf in bufs {
            self.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes the buffers one after the other at byte `offset`.
    ///
    /// # Errors
    /// As for `write_at`; when the system fails, part of the data may have been written.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        self.check_writable("write", offset, total_len(bufs.iter().map(|b| &**b)))?;
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Says that a range's content is no longer needed. A hint: afterwards the range may read as
    /// before or as zeroes.
    ///
    /// # Errors
    /// As for `write_at`. A device that cannot discard succeeds without doing anything.
    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("discard", offset, len)
    }

    /// Discards as [`BlockDevice::discard`] does, for callers that have to know whether anything
    /// can come of it. Returns `false` where the device, or what is below it, cannot discard. The
    /// default takes it for granted that it can.
    ///
    /// # Errors
    /// As for `write_at`.
    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.discard(offset, len).map(|()| true)
    }

    /// Makes a range read as zeroes, without using space where the device can do that.
    ///
    /// # Errors
    /// As for `write_at`.
    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        write_zeroes(self, offset, len)
    }

    /// Makes the device `size` bytes long, if it is shorter; what is new reads as zeroes. For
    /// formats whose files grow. The default is for devices that keep their size.
    ///
    /// # Errors
    /// `ReadOnly`; `OutOfRange` where the device cannot grow; `Open` when the system refuses.
    fn grow(&self, size: u64) -> DeviceResult<()> {
        let len = size.saturating_sub(self.size());
        self.check_writable("write", size - len, len)
    }

    /// Writes all of `buf` at byte `offset`, also behind the end: the device becomes longer as by
    /// [`BlockDevice::grow`].
    ///
    /// # Errors
    /// As for `grow` and `write_at`.
    fn write_growing_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.grow(offset.saturating_add(buf.len() as u64))?;
        self.write_at(offset, buf)
    }

    /// Starts a batch of requests; see [`Request`] for the order inside a batch. The
    /// default does the batch in the calling thread before it returns.
    fn submit(&self, batch: Vec<Request>) -> Completion {
        Completion::ended(run_inline(self, batch))
    }

    /// Says that these ranges of bytes will soon be read. A hint, which returns at once: a device
    /// behind a network begins to fetch them. The default does nothing.
    fn prefetch(&self, ranges: &[Range<u64>]) {
        let _ = ranges;
    }

    /// Access to the device as memory, if it is memory.
    fn direct(&self) -> Option<&dyn DirectMemory> {
        None
    }

    /// The smallest number of bytes that the device writes as a unit: a power of two, usually 512
    /// or 4096. File systems with smaller blocks are refused.
    fn logical_sector(&self) -> u32 {
        512
    }

    /// Requests of this many bytes, aligned to it, cost the device no extra work: a power of two.
    fn preferred_io(&self) -> u32 {
        4096
    }

    /// How many large writes, each from a thread of its own, are quicker than one after the other;
    /// 1 where they would wait for each other. The default is 1.
    fn parallel_writes(&self) -> usize {
        1
    }

    /// How many requests are worth having under way at once, because each takes a round trip
    /// however little it asks for; 1 where nothing is gained. Where it is more, callers that go
    /// through many places ask for them together: in batches, and from several threads. The default
    /// is 1.
    fn in_flight(&self) -> usize {
        1
    }

    /// Whether each request is a message to a server, however near it is: one that asks for some
    /// kilobytes more is then cheaper than two. The default is no.
    fn is_served(&self) -> bool {
        false
    }

    /// Whether to read something again costs no more than to copy it, since the device is memory or
    /// the system keeps what was read: what is needed once need not be kept elsewhere. The default
    /// is no.
    fn keeps_what_is_read(&self) -> bool {
        false
    }

    /// The first range at or after byte `from`, and before byte `end`, that may hold anything but
    /// zeroes; `None` if there is none. The default knows no holes.
    ///
    /// # Errors
    /// `Io` when the system fails.
    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size());
        Ok((from < end).then_some(from..end))
    }

    /// All ranges inside `range` that may hold anything but zeroes, ascending and not touching.
    ///
    /// # Errors
    /// `Io` when the system fails.
    fn data_extents(&self, range: Range<u64>) -> DeviceResult<Vec<Range<u64>>> {
        let mut extents: Vec<Range<u64>> = Vec::new();
        let mut from = range.start;
        while let Some(found) = self.next_data(from, range.end)? {
            let found = found.start.max(from)..found.end.min(range.end);
            if found.is_empty() {
                break;
            }
            from = found.end;
            match extents.last_mut() {
                Some(last) if last.end == found.start => last.end = found.end,
                _ => extents.push(found),
            }
        }
        Ok(extents)
    }

    /// Refuses a range that does not lie on the device. `op` is a verb for the error.
    ///
    /// # Errors
    /// `OutOfRange`.
    fn check_range(&self, op: &'static str, offset: u64, len: u64) -> DeviceResult<()> {
        let size = self.size();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(DeviceError::OutOfRange {
                op,
                device: self.name(),
                offset,
                len,
                size,
            }),
        }
    }

    /// Refuses a change of a range that does not lie on the device, or of a device that is open
    /// for reading only. `op` is a verb for the error.
    ///
    /// # Errors
    /// `OutOfRange` or `ReadOnly`.
    fn check_writable(&self, op: &'static str, offset: u64, len: u64) -> DeviceResult<()> {
        if self.is_read_only() {
            return Err(DeviceError::ReadOnly {
                device: self.name(),
            });
        }
        self.check_range(op, offset, len)
    }
}

/// A device that is memory: copied to and from, never lent as a slice, because other threads
/// and other programs may change it at any time.
pub trait DirectMemory: Send + Sync {
    /// Copies `src` into the device at byte `offset`. Durable only after `persist`, unless it
    /// persists at once.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`.
    fn copy_in(&self, offset: u64, src: &[u8]) -> DeviceResult<()>;

    /// Copies from byte `offset` of the device into `dst`.
    ///
    /// # Errors
    /// `OutOfRange`.
    fn copy_out(&self, offset: u64, dst: &mut [u8]) -> DeviceResult<()>;

    /// Makes earlier copies into `range` durable.
    ///
    /// # Errors
    /// `OutOfRange`, `Io`.
    fn persist(&self, range: Range<u64>) -> DeviceResult<()>;

    /// Whether a copy is durable when `copy_in` returns, so that nothing need be noted for
    /// `persist`. The default is that it is not.
    fn is_persistent_on_copy(&self) -> bool {
        false
    }

    /// Bytes of the parts of the device, the first at its beginning, within each of which a copy,
    /// in or out, is whole: another one finds all of it or nothing. A power of two, or 0, the
    /// default, where nothing is promised.
    fn whole_within(&self) -> u64 {
        0
    }
}

/// Writes zeroes the long way. The range has been checked.
pub(crate) fn write_zeroes<D: BlockDevice + ?Sized>(
    device: &D,
    offset: u64,
    len: u64,
) -> DeviceResult<()> {
    let zeroes = AlignedBuf::zeroed(len.min(ZERO_CHUNK) as usize);
    let mut done = 0;
    while done < len {
        let n = (len - done).min(ZERO_CHUNK);
        device.write_at(offset + done, &zeroes[..n as usize])?;
        done += n;
    }
    Ok(())
}

/// Bytes in a list of slices; saturates, and then fails the range check.
pub(crate) fn total_len<'a>(lens: impl Iterator<Item = &'a [u8]>) -> u64 {
    lens.fold(0, |sum, slice| sum.saturating_add(slice.len() as u64))
}
