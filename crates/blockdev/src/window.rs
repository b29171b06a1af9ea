//! A range of another device as a device of its own.

use crate::device::total_len;
use crate::request::run_inline;
use crate::{
    BlockDevice, Completion, DeviceError, DeviceResult, DirectMemory, Done, PendingBatch, Request,
    SharedDevice,
};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// A window on another device: a partition, a file system at an offset, or just a view that
/// refuses writes.
#[derive(Debug)]
pub struct WindowDevice {
    inner: SharedDevice,
    start: u64,
    len: u64,
    read_only: bool,
    label: String,
}

impl WindowDevice {
    /// Takes the `len` bytes of `inner` from byte `start` on.
    ///
    /// # Errors
    /// `BadWindow` if they do not lie on the device.
    pub fn new(inner: SharedDevice, start: u64, len: u64) -> DeviceResult<Self> {
        Self::labelled(inner, start, len, None)
    }

    /// Takes everything of `inner` from byte `start` on.
    ///
    /// # Errors
    /// `BadWindow` if the device ends before that.
    pub fn from_offset(inner: SharedDevice, start: u64) -> DeviceResult<Self> {
        let len = inner.size().saturating_sub(start);
        Self::new(inner, start, len)
    }

    /// A window whose errors call it by `label` ("partition 2") and the device.
    pub(crate) fn labelled(
        inner: SharedDevice,
        start: u64,
        len: u64,
        label: Option<String>,
    ) -> DeviceResult<Self> {
        let size = inner.size();
        if start.checked_add(len).is_none_or(|end| end > size) {
            return Err(DeviceError::BadWindow {
                what: label.unwrap_or_else(|| "the window".to_owned()),
                device: inner.name(),
                offset: start,
                len,
                size,
            });
        }
        let label = match label {
            Some(label) => format!("{label} of {}", inner.name()),
            None if start == 0 && len == size => inner.name(),
            None => format!("{} from byte {start}", inner.name()),
        };
        let read_only = inner.is_read_only();
        Ok(Self {
            inner,
            start,
            len,
            read_only,
            label,
        })
    }

    /// Makes the window refuse writes.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Returns the first byte of the window on the device below.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether the window itself lets the request through.
    fn admits(&self, request: &Request) -> bool {
        let Some((offset, len)) = request.range() else {
            return true;
        };
        let reads = matches!(request, Request::Read { .. });
        (reads || !self.read_only) && self.check_range("use", offset, len).is_ok()
    }
}

impl BlockDevice for WindowDevice {
    fn size(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn name(&self) -> String {
        self.label.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        self.inner.read_at(self.start + offset, buf)
    }

    fn read_uncached_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        self.inner.read_uncached_at(self.start + offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        self.inner.write_at(self.start + offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        self.check_range("read", offset, total_len(bufs.iter().map(|b| &**b)))?;
        self.inner.read_vectored_at(self.start + offset, bufs)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        self.check_writable("write", offset, total_len(bufs.iter().map(|b| &**b)))?;
        self.inner.write_vectored_at(self.start + offset, bufs)
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        let inside = |range: &Range<u64>| {
            let range = range.start.min(self.len)..range.end.min(self.len);
            self.start + range.start..self.start + range.end
        };
        let ranges: Vec<Range<u64>> = ranges.iter().map(inside).collect();
        self.inner.prefetch(&ranges);
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("discard", offset, len)?;
        self.inner.discard(self.start + offset, len)
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.check_writable("discard", offset, len)?;
        self.inner.try_discard(self.start + offset, len)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        self.inner.zero(self.start + offset, len)
    }

    fn submit(&self, mut batch: Vec<Request>) -> Completion {
        if !batch.iter().all(|request| self.admits(request)) {
            // Something will be refused: the inline way gives each request its own result.
            return Completion::ended(run_inline(self, batch));
        }
        for request in &mut batch {
            request.move_by(|offset| offset + self.start);
        }
        let below = self.inner.submit(batch);
        Completion::pending(Box::new(WindowBatch {
            below,
            start: self.start,
        }))
    }

    fn direct(&self) -> Option<&dyn DirectMemory> {
        self.inner.direct().map(|_| self as &dyn DirectMemory)
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

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn is_served(&self) -> bool {
        self.inner.is_served()
    }

    fn keeps_what_is_read(&self) -> bool {
        self.inner.keeps_what_is_read()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.len);
        if from >= end {
            return Ok(None);
        }
        let found = self.inner.next_data(self.start + from, self.start + end)?;
        Ok(found.map(|found| {
            found.start.saturating_sub(self.start)..found.end.saturating_sub(self.start).min(end)
        }))
    }
}

impl DirectMemory for WindowDevice {
    fn copy_in(&self, offset: u64, src: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, src.len() as u64)?;
        match self.inner.direct() {
            Some(memory) => memory.copy_in(self.start + offset, src),
            None => self.inner.write_at(self.start + offset, src),
        }
    }

    fn copy_out(&self, offset: u64, dst: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, dst.len() as u64)?;
        match self.inner.direct() {
            Some(memory) => memory.copy_out(self.start + offset, dst),
            None => self.inner.read_at(self.start + offset, dst),
        }
    }

    fn persist(&self, range: Range<u64>) -> DeviceResult<()> {
        let len = range.end.saturating_sub(range.start);
        self.check_range("persist", range.start, len)?;
        let below = self.start + range.start..self.start + range.start + len;
        match self.inner.direct() {
            Some(memory) => memory.persist(below),
            None => self.inner.flush(),
        }
    }

    fn is_persistent_on_copy(&self) -> bool {
        let memory = self.inner.direct();
        memory.is_some_and(DirectMemory::is_persistent_on_copy)
    }

    fn whole_within(&self) -> u64 {
        let below = self.inner.direct().map_or(0, DirectMemory::whole_within);
        // Parts of the window are smaller if it begins inside one of the device.
        match self.start & below.saturating_sub(1) {
            0 => below,
            inside => 1 << inside.trailing_zeros(),
        }
    }
}

/// A batch on the device below whose offsets are those of the window when it has ended.
struct WindowBatch {
    below: Completion,
    start: u64,
}

impl PendingBatch for WindowBatch {
    fn is_done(&self) -> bool {
        self.below.is_done()
    }

    fn wait(self: Box<Self>) -> Vec<Done> {
        let mut done = self.below.wait();
        for Done { request, .. } in &mut done {
            request.move_by(|offset| offset - self.start);
        }
        done
    }
}
