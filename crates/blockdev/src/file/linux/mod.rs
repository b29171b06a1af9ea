//! Files on Linux: image files and block special files.
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | [`FileDevice`]: transfers, holes, size |
//! | `open.rs` | what may be opened, locking, creation |
//! | `mounted.rs` | image files that the kernel has mounted |
//! | `replace.rs` | [`hold_for_replacing`]: files that another file takes the name of |
//! | `direct.rs` | transfers past the page cache, whatever the caller's alignment |
//! | `backend.rs` | system calls or io_uring, and what goes through which |
//! | `jobs.rs` | what a ring of io_uring is given |
//! | `uring.rs` | rings of io_uring (feature `io-uring`) |
//! | `without_uring.rs` | what stands for them where there are none |
//!
//! # Invariants
//! - A device open for writing holds an exclusive `flock` on the file, so that no two programs
//!   that respect it change the same image. Readers take no lock.
//! - Only positioned transfers are used; the file's own position means nothing.

mod backend;
mod direct;
mod jobs;
mod mounted;
mod open;
mod replace;
#[cfg(feature = "io-uring")]
mod uring;
#[cfg(not(feature = "io-uring"))]
mod without_uring;

pub use replace::{HeldFile, hold_for_replacing};

use super::FileOptions;
use crate::device::{total_len, write_zeroes};
use crate::{BlockDevice, Completion, DeviceError, DeviceResult, Request};
use direct::DirectFile;
use extant_sync::{LockClass, Mutex, Rank, debug_assert_may_wait_for_device};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "io-uring")]
use uring::Rings;
#[cfg(not(feature = "io-uring"))]
use without_uring::Rings;

/// Most slices that Linux takes in one vectored transfer.
const MAX_SLICES: usize = 1024;

/// Holes are at least as large on most file systems.
const PAGE: u64 = 4096;

static GROWTH_CLASS: LockClass = LockClass::new("growth of a file", Rank::Leaf);

/// A device in a regular file or a block special file.
#[derive(Debug)]
pub struct FileDevice {
    // Before the files it knows by number.
    rings: Option<Rings>,
    path: PathBuf,
    file: File,
    direct: Option<DirectFile>,
    /// For reads past the page cache of a device that otherwise goes through it, from the first of
    /// them on; `None` where the system has no such reads.
    uncached: OnceLock<Option<DirectFile>>,
    size: AtomicU64,
    growth: Mutex<()>,
    writable: bool,
    locked: bool,
    block_special: bool,
    logical_sector: u32,
    preferred_io: u32,
}

impl FileDevice {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> DeviceResult<Self> {
        FileOptions::read_only().open(path)
    }

    /// Opens an existing file for reading and writing, and locks it.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> DeviceResult<Self> {
        FileOptions::read_write().open(path)
    }

    /// Makes a file of `size` bytes, all of them a hole, and locks it. Whatever was in the file
    /// before is gone.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn create(path: impl AsRef<Path>, size: u64) -> DeviceResult<Self> {
        FileOptions::create(size).open(path)
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Makes the file `size` bytes long: a cut, or a hole at the end. Transfers that run at the
    /// same time beyond the smaller of the sizes fail or are lost.
    ///
    /// # Errors
    /// `ReadOnly`; `Open` when the system refuses; `TooSmall` for block special files, which
    /// have the size they have.
    pub fn set_len(&self, size: u64) -> DeviceResult<()> {
        if !self.writable {
            return Err(DeviceError::ReadOnly {
                device: self.name(),
            });
        }
        if self.block_special {
            let available = self.size();
            return if size == available {
                Ok(())
            } else {
                Err(DeviceError::TooSmall {
                    path: self.path.clone(),
                    wanted: size,
                    available,
                })
            };
        }
        self.file
            .set_len(size)
            .map_err(|source| DeviceError::Open {
                op: "resize",
                path: self.path.clone(),
                source,
            })?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    fn failed(&self, op: &'static str, offset: u64, len: u64, source: io::Error) -> DeviceError {
        DeviceError::Io {
            op,
            device: self.name(),
            offset,
            len,
            source,
        }
    }

    /// Fills `buf`, however many system calls that takes.
    fn read_full(&self, file: &File, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            // The system call itself: the C library's makes it a point of cancellation, with two
            // locked instructions.
            match rustix::io::pread(file, &mut buf[done..], at) {
                Ok(0) => return Err(self.shrunk(at)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(err) => return Err(self.failed("read", offset, buf.len() as u64, err.into())),
            }
        }
        Ok(())
    }

    /// Writes all of `buf`, however many system calls that takes.
    fn write_full(&self, file: &File, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let mut done = 0;
        while done < buf.len() {
            let err = match rustix::io::pwrite(file, &buf[done..], offset + done as u64) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    done += n;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(err) => err.into(),
            };
            return Err(self.failed("write", offset, buf.len() as u64, err));
        }
        Ok(())
    }

    fn read_vectored_full(
        &self,
        file: &File,
        offset: u64,
        mut bufs: &mut [IoSliceMut<'_>],
    ) -> DeviceResult<()> {
        let mut at = offset;
        IoSliceMut::advance_slices(&mut bufs, 0);
        while !bufs.is_empty() {
            let slices = bufs.len().min(MAX_SLICES);
            match rustix::io::preadv(file, &mut bufs[..slices], at) {
                Ok(0) => return Err(self.shrunk(at)),
                Ok(n) => {
                    at += n as u64;
                    IoSliceMut::advance_slices(&mut bufs, n);
                }
                Err(Errno::INTR) => {}
                Err(err) => {
                    let len = total_len(bufs.iter().map(|b| &**b));
                    return Err(self.failed("read", at, len, err.into()));
                }
            }
        }
        Ok(())
    }

    fn write_vectored_full(
        &self,
        file: &File,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> DeviceResult<()> {
        let mut at = offset;
        let mut owned = bufs.to_vec();
        let mut rest = &mut owned[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let slices = rest.len().min(MAX_SLICES);
            let err = match rustix::io::pwritev(file, &rest[..slices], at) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    at += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(err) => err.into(),
            };
            let len = total_len(rest.iter().map(|b| &**b));
            return Err(self.failed("write", at, len, err));
        }
        Ok(())
    }

    fn shrunk(&self, offset: u64) -> DeviceError {
        DeviceError::Shrunk {
            device: self.name(),
            offset,
            size: self.size(),
        }
    }

    /// Makes zeros without writing them, if that is possible.
    fn zero_in_place(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        let zero_range = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        let direct = self.direct.as_ref();
        let _regions = direct.map(|direct| direct.lock_zeroed(offset..offset + len));
        Ok(self.punch("zero", offset, len)? || self.fallocate(zero_range, "zero", offset, len)?)
    }

    /// Punches a hole; `false` when this file has no such thing.
    fn punch(&self, op: &'static str, offset: u64, len: u64) -> DeviceResult<bool> {
        self.fallocate(
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            op,
            offset,
            len,
        )
    }

    fn fallocate(
        &self,
        flags: FallocateFlags,
        op: &'static str,
        offset: u64,
        len: u64,
    ) -> DeviceResult<bool> {
        loop {
            return match fallocate(&self.file, flags, offset, len) {
                Ok(()) => Ok(true),
                Err(Errno::INTR) => continue,
                // INVAL: a block special file whose sectors the range does not fill.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => Ok(false),
                Err(err) => Err(self.failed(op, offset, len, err.into())),
            };
        }
    }
}

impl Drop for FileDevice {
    /// Gives the lock back here and now. A process that is being started by another thread still
    /// has the open file for a moment, and would keep the lock with it.
    fn drop(&mut self) {
        if self.locked {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        !self.writable
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("read", offset, buf.len() as u64)?;
        match &self.direct {
            None => self.read_full(&self.file, offset, buf),
            Some(direct) => self.read_direct(direct, offset, buf),
        }
    }

    fn read_uncached_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("read", offset, buf.len() as u64)?;
        // Opened once: later the process may not be allowed to any more.
        let open = || DirectFile::open(&self.path, &self.file, self.logical_sector).ok();
        match (&self.direct, self.uncached.get_or_init(open)) {
            (None, Some(uncached)) => self.read_past_cache(uncached, offset, buf),
            _ => self.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_writable("write", offset, buf.len() as u64)?;
        match &self.direct {
            None => self.write_full(&self.file, offset, buf),
            Some(direct) => self.write_direct(direct, offset, buf),
        }
    }

    fn flush(&self) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        if !self.writable {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(|err| self.failed("flush", 0, self.size(), err))
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_range("read", offset, total_len(bufs.iter().map(|b| &**b)))?;
        match &self.direct {
            None => self.read_vectored_full(&self.file, offset, bufs),
            Some(direct) => self.read_vectored_direct(direct, offset, bufs),
        }
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_writable("write", offset, total_len(bufs.iter().map(|b| &**b)))?;
        match &self.direct {
            None => self.write_vectored_full(&self.file, offset, bufs),
            Some(direct) => self.write_vectored_direct(direct, offset, bufs),
        }
    }

    /// Ends before it returns. Through io_uring all requests between two barriers are under way
    /// together.
    fn submit(&self, batch: Vec<Request>) -> Completion {
        debug_assert_may_wait_for_device();
        Completion::ended(self.do_batch(batch))
    }

    /// Punches a hole where the file can have holes. On a block special file this unmaps the
    /// sectors if the device then guarantees zeroes.
    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.try_discard(offset, len).map(drop)
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        debug_assert_may_wait_for_device();
        self.check_writable("discard", offset, len)?;
        if len == 0 {
            return Ok(true);
        }
        let direct = self.direct.as_ref();
        let _regions = direct.map(|direct| direct.lock_zeroed(offset..offset + len));
        self.punch("discard", offset, len)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_writable("zero", offset, len)?;
        // Less than a page frees nothing, and is written with less work than a hole is made.
        if len == 0 || (len >= PAGE && self.zero_in_place(offset, len)?) {
            return Ok(());
        }
        write_zeroes(self, offset, len)
    }

    fn grow(&self, size: u64) -> DeviceResult<()> {
        // A second thread that grows by less would cut what the first has grown.
        let _alone = self.growth.lock();
        if size <= self.size() {
            return Ok(());
        }
        self.set_len(size)
    }

    /// A write behind the end of a regular file makes it longer by itself.
    fn write_growing_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.size() && self.writable && self.direct.is_none() && !self.block_special {
            // One that grows the file by less meanwhile would cut what is written here.
            let _alone = self.growth.lock();
            if end > self.size() {
                self.write_full(&self.file, offset, buf)?;
                self.size.store(end, Ordering::Release);
                return Ok(());
            }
        }
        self.grow(end)?;
        self.write_at(offset, buf)
    }

    fn logical_sector(&self) -> u32 {
        self.logical_sector
    }

    fn preferred_io(&self) -> u32 {
        self.preferred_io
    }

    fn keeps_what_is_read(&self) -> bool {
        self.direct.is_none()
    }

    /// 4 to a disk, and past the system's cache; through it a file is written by one at a time.
    fn parallel_writes(&self) -> usize {
        if self.block_special || self.direct.is_some() {
            4
        } else {
            1
        }
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size());
        if from >= end {
            return Ok(None);
        }
        if self.block_special {
            return Ok(Some(from..end));
        }
        let start = match seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start.max(from),
            Err(Errno::NXIO) => return Ok(None),
            // No such question on this file system: everything may be data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(from..end)),
            Err(err) => return Err(self.failed("find data in", from, end - from, err.into())),
        };
        if start >= end {
            return Ok(None);
        }
        let stop = seek(&self.file, SeekFrom::Hole(start)).unwrap_or(end);
        Ok(Some(start..stop.clamp(start + 1, end)))
    }
}
