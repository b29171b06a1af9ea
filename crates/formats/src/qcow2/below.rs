//! One of our devices as what imago reads and writes.
//!
//! imago's trait has unsafe methods, since a caller must go by the trait's alignment and, for some,
//! see to it that nothing else uses the storage meanwhile. Our devices ask for no alignment, and
//! take any transfers at the same time, so the methods here need no promise of their callers.
#![allow(unsafe_code, reason = "imago's storage trait has unsafe methods")]

use extant_blockdev::{DeviceError, SharedDevice};
use imago::Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device below imago. It grows where imago writes behind its end.
#[derive(Debug)]
pub(super) struct Below {
    device: SharedDevice,
    /// Whether each write is on the device before the next one begins.
    in_order: Arc<AtomicBool>,
    helper: CommonStorageHelper,
}

impl Below {
    pub(super) fn new(device: SharedDevice) -> Self {
        Self {
            device,
            in_order: Arc::default(),
            helper: CommonStorageHelper::default(),
        }
    }

    /// Whether this is that device.
    pub(super) fn is_on(&self, device: &SharedDevice) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// What says whether each write is on the device before the next one begins.
    pub(super) fn in_order(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.in_order)
    }

    /// Sees to it that the device has the bytes of a range, and what was written before if that
    /// matters.
    fn reach(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.in_order.load(Ordering::Relaxed) {
            self.device.flush().map_err(failed)?;
        }
        let end = offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        if end > self.device.size() {
            self.device.grow(end).map_err(failed)?;
        }
        Ok(())
    }
}

/// The error as imago passes it on; `disk` takes it out again.
fn failed(error: DeviceError) -> io::Error {
    io::Error::other(error)
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device.name())
    }
}

impl Storage for Below {
    fn size(&self) -> io::Result<u64> {
        Ok(self.device.size())
    }

    /// Reads, and zeros behind the end.
    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let size = self.device.size();
        let mut bufs = bufv.into_inner();
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            return match &mut bufs[..] {
                [buf] => self.device.read_at(offset, buf),
                bufs => self.device.read_vectored_at(offset, bufs),
            }
            .map_err(failed);
        }
        let mut at = offset;
        for buf in &mut bufs {
            let there = size.saturating_sub(at).min(buf.len() as u64) as usize;
            let (front, behind) = buf.split_at_mut(there);
            if !front.is_empty() {
                self.device.read_at(at, front).map_err(failed)?;
            }
            behind.fill(0);
            at = at.saturating_add(buf.len() as u64);
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        self.reach(offset, bufv.len())?;
        let bufs = bufv.into_inner();
        match &bufs[..] {
            [buf] => self.device.write_at(offset, buf),
            bufs => self.device.write_vectored_at(offset, bufs),
        }
        .map_err(failed)
    }

    unsafe fn pure_write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.reach(offset, length)?;
        self.device.zero(offset, length).map_err(failed)
    }

    unsafe fn pure_write_allocated_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        // Whether space is allocated for zeros is the device's business.
        self.reach(offset, length)?;
        self.device.zero(offset, length).map_err(failed)
    }

    unsafe fn pure_discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let len = length.min(self.device.size().saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        self.device.discard(offset, len).map_err(failed)
    }

    /// Nothing is kept here.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.device.flush().map_err(failed)
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }

    fn resize(&self, new_size: u64, _: PreallocateMode) -> io::Result<()> {
        self.device.grow(new_size).map_err(failed)
    }
}
