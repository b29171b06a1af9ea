//! Image files by the standard library alone, for systems other than Linux.
//!
//! Files are read and written by positioned transfers, one after the other. There is no way past
//! the page cache, no io_uring, and nobody says where holes are: whatever asks for one of these is
//! refused with a sentence, or gets the answer that promises least. Of block devices no size can be
//! had in this way, so they are refused.
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | [`FileDevice`]: opening, locking, transfers |
//! | `positioned.rs` | positioned transfers, as each system has them |
//! | `replace.rs` | [`hold_for_replacing`]: files that another file takes the name of |
//!
//! # Invariants
//! - A device open for writing holds an exclusive lock on the file ([`File::try_lock`]).

mod positioned;
mod replace;

pub use replace::{HeldFile, hold_for_replacing};

use super::options::Mode;
use super::{Backend, FileOptions};
use crate::device::write_zeroes;
use crate::{BlockDevice, DeviceError, DeviceResult};
use extant_sync::{LockClass, Mutex, Rank, debug_assert_may_wait_for_device};
use positioned::Positioned;
use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static GROWTH_CLASS: LockClass = LockClass::new("growth of a file", Rank::Leaf);

/// A device in a regular file.
#[derive(Debug)]
pub struct FileDevice {
    path: PathBuf,
    file: Positioned,
    size: AtomicU64,
    growth: Mutex<()>,
    writable: bool,
    locked: bool,
}

pub(super) fn open_failed(op: &'static str, path: &Path, source: io::Error) -> DeviceError {
    DeviceError::Open {
        op,
        path: path.to_owned(),
        source,
    }
}

pub(super) fn check_kind(path: &Path, found: FileType) -> DeviceResult<()> {
    let kind = if found.is_file() {
        return Ok(());
    } else if found.is_dir() {
        "a directory"
    } else {
        "no file that holds an image here (this system has image files only)"
    };
    Err(DeviceError::NotADevice {
        path: path.to_owned(),
        kind,
    })
}

/// Takes a lock that is held until the file is closed.
pub(super) fn lock(path: &Path, file: &File, exclusive: bool) -> DeviceResult<()> {
    let tried = if exclusive {
        file.try_lock()
    } else {
        file.try_lock_shared()
    };
    match tried {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(DeviceError::InUse {
            path: path.to_owned(),
        }),
        // The lock is advisory; some file systems have none to give.
        Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(source)) => Err(open_failed("lock", path, source)),
    }
}

impl FileDevice {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> DeviceResult<Self> {
        Self::open_with(&FileOptions::read_only(), path.as_ref())
    }

    /// Opens an existing file for reading and writing, and locks it.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> DeviceResult<Self> {
        Self::open_with(&FileOptions::read_write(), path.as_ref())
    }

    /// Makes a file of `size` bytes, all of them zeroes, and locks it. Whatever was in the file
    /// before is gone.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn create(path: impl AsRef<Path>, size: u64) -> DeviceResult<Self> {
        Self::open_with(&FileOptions::create(size), path.as_ref())
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        false
    }

    /// Returns how transfers reach the kernel: never [`Backend::Auto`].
    pub fn backend(&self) -> Backend {
        Backend::System
    }

    /// Makes the file `size` bytes long: a cut, or zeroes at the end. Transfers that run at the
    /// same time beyond the smaller of the sizes fail or are lost.
    ///
    /// # Errors
    /// `ReadOnly`; `Open` when the system refuses.
    pub fn set_len(&self, size: u64) -> DeviceResult<()> {
        if !self.writable {
            return Err(DeviceError::ReadOnly {
                device: self.name(),
            });
        }
        self.file
            .file()
            .set_len(size)
            .map_err(|source| open_failed("resize", &self.path, source))?;
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
}

impl FileDevice {
    /// What [`FileOptions::open`] does on systems other than Linux.
    pub(in crate::file) fn open_with(choice: &FileOptions, path: &Path) -> DeviceResult<Self> {
        // Looked at before opening, because opening a pipe would wait for its other end.
        match fs::metadata(path) {
            Ok(found) => check_kind(path, found.file_type())?,
            Err(err) if err.kind() == io::ErrorKind::NotFound && choice.creates() => {}
            Err(source) => return Err(open_failed("open", path, source)),
        }
        let mut options = OpenOptions::new();
        options.read(true).write(choice.mode != Mode::ReadOnly);
        match choice.mode {
            Mode::ReadOnly | Mode::ReadWrite => {}
            // Not truncated here: the file may be somebody else's until it is locked.
            Mode::Create { .. } => {
                options.create(true);
            }
            Mode::CreateNew { .. } => {
                options.create_new(true);
            }
        }
        let file = options
            .open(path)
            .map_err(|source| open_failed("open", path, source))?;
        let opened = Self::adopt_with(choice, file, path);
        if opened.is_err() && matches!(choice.mode, Mode::CreateNew { .. }) {
            // Nothing but an empty file of our own making is left behind; a failure to remove it
            // is less telling than the first error.
            let _ = fs::remove_file(path);
        }
        opened
    }

    /// What [`FileOptions::adopt`] does on systems other than Linux.
    pub(in crate::file) fn adopt_with(
        choice: &FileOptions,
        file: File,
        path: &Path,
    ) -> DeviceResult<Self> {
        if choice.direct {
            return Err(DeviceError::NoDirectIo {
                path: path.to_owned(),
                reason: "this system has no part for it".to_owned(),
            });
        }
        if choice.backend == Backend::IoUring {
            let source = io::ErrorKind::Unsupported.into();
            return Err(open_failed("use io_uring for", path, source));
        }
        let found = file
            .metadata()
            .map_err(|source| open_failed("open", path, source))?;
        check_kind(path, found.file_type())?;
        let writable = choice.mode != Mode::ReadOnly;
        let locks = !choice.locked_by_caller && (writable || choice.guarded);
        if locks {
            lock(path, &file, writable)?;
        }
        let mut size = found.len();
        if let Mode::Create { size: wanted } | Mode::CreateNew { size: wanted } = choice.mode {
            let emptied = file.set_len(0).and_then(|()| file.set_len(wanted));
            emptied.map_err(|source| open_failed("resize", path, source))?;
            size = wanted;
        }
        Ok(Self {
            path: path.to_owned(),
            file: Positioned::new(file),
            size: AtomicU64::new(size),
            growth: Mutex::new(&GROWTH_CLASS, ()),
            writable,
            locked: locks,
        })
    }
}

impl Drop for FileDevice {
    /// Gives the lock back here and now: a process that is being started by another thread may
    /// still have the open file for a moment.
    fn drop(&mut self) {
        if self.locked {
            let _ = self.file.file().unlock();
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
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.read_at(at, &mut buf[done..]) {
                Ok(0) => {
                    return Err(DeviceError::Shrunk {
                        device: self.name(),
                        offset: at,
                        size: self.size(),
                    });
                }
                Ok(n) => done += n,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(self.failed("read", offset, buf.len() as u64, err)),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        self.check_writable("write", offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let err = match self.file.write_at(offset + done as u64, &buf[done..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    done += n;
                    continue;
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
                Err(err) => err,
            };
            return Err(self.failed("write", offset, buf.len() as u64, err));
        }
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        debug_assert_may_wait_for_device();
        if !self.writable {
            return Ok(());
        }
        self.file
            .file()
            .sync_data()
            .map_err(|err| self.failed("flush", 0, self.size(), err))
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.check_writable("discard", offset, len)?;
        Ok(false)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
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

    fn keeps_what_is_read(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
