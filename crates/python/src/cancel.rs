//! Ending work by its device: once it is told to stop, every transfer fails.

use extant_blockdev::{BlockDevice, Completion, DeviceError, DeviceResult, Request, SharedDevice};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device that can be told to stop.
#[derive(Debug)]
pub(crate) struct Stoppable {
    device: SharedDevice,
    is_stopped: AtomicBool,
    /// What is under way now is done to the end.
    is_final: AtomicBool,
}

impl Stoppable {
    pub(crate) fn new(device: SharedDevice) -> Self {
        Self {
            device,
            is_stopped: AtomicBool::new(false),
            is_final: AtomicBool::new(false),
        }
    }

    /// Has what comes fail, unless it is to be done to the end.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Says that what comes is done to the end.
    ///
    /// # Errors
    /// `Cancelled` when it was told to stop before.
    pub(crate) fn begin_final(&self) -> DeviceResult<()> {
        self.go_on()?;
        self.is_final.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn go_on(&self) -> DeviceResult<()> {
        if self.is_stopped.load(Ordering::Relaxed) && !self.is_final.load(Ordering::Relaxed) {
            return Err(DeviceError::Cancelled);
        }
        Ok(())
    }
}

impl BlockDevice for Stoppable {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.go_on()?;
        self.device.read_at(offset, buf)
    }

    fn read_uncached_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.go_on()?;
        self.device.read_uncached_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        self.go_on()?;
        self.device.read_vectored_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.go_on()?;
        self.device.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        self.go_on()?;
        self.device.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.go_on()?;
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.go_on()?;
        self.device.discard(offset, len)
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.go_on()?;
        self.device.try_discard(offset, len)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.go_on()?;
        self.device.zero(offset, len)
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        self.device.submit(batch)
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.device.prefetch(ranges);
    }

    fn logical_sector(&self) -> u32 {
        self.device.logical_sector()
    }

    fn preferred_io(&self) -> u32 {
        self.device.preferred_io()
    }

    fn parallel_writes(&self) -> usize {
        self.device.parallel_writes()
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight()
    }

    fn is_served(&self) -> bool {
        self.device.is_served()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        self.go_on()?;
        self.device.next_data(from, end)
    }
}
