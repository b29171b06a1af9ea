//! Opening files: what may be a device, in which mode, and alone.

use super::direct::DirectFile;
use super::mounted::is_loop_mounted;
use super::{Backend, FileDevice, GROWTH_CLASS, backend};
use crate::{DeviceError, DeviceResult};
use extant_sync::Mutex;
use rustix::fs::{FlockOperation, OFlags, SeekFrom, fcntl_lock, flock, ioctl_blksszget, seek};
use rustix::io::Errno;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    ReadOnly,
    ReadWrite,
    /// Make or empty the file, `size` bytes.
    Create {
        size: u64,
    },
    /// Make the file, `size` bytes; it must not exist.
    CreateNew {
        size: u64,
    },
}

/// How to open a [`FileDevice`].
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    mode: Mode,
    guarded: bool,
    locked_by_caller: bool,
    direct: bool,
    backend: Backend,
}

impl FileOptions {
    fn of(mode: Mode) -> Self {
        Self {
            mode,
            guarded: false,
            locked_by_caller: false,
            direct: false,
            backend: Backend::Auto,
        }
    }

    /// Opens an existing file, for reading. No lock is taken unless [asked for](Self::guarded).
    pub fn read_only() -> Self {
        Self::of(Mode::ReadOnly)
    }

    /// Opens an existing file, for reading and writing, locked against other writers.
    pub fn read_write() -> Self {
        Self::of(Mode::ReadWrite)
    }

    /// Makes a file of `size` bytes of zeroes, without space for them yet; an existing one is
    /// emptied. A block special file keeps its size, which must not be smaller, and its content.
    pub fn create(size: u64) -> Self {
        Self::of(Mode::Create { size })
    }

    /// Makes a file as [`FileOptions::create`] does, but the file must not exist.
    pub fn create_new(size: u64) -> Self {
        Self::of(Mode::CreateNew { size })
    }

    /// Sets whether a file for reading is locked against writers, as others may that only read it.
    /// One for writing is locked against everything that locks it.
    #[must_use]
    pub fn guarded(mut self, guarded: bool) -> Self {
        self.guarded = guarded;
        self
    }

    /// Sets whether a file that is [adopted](Self::adopt) is locked already, by its opener: no lock
    /// is taken then, and none given back.
    #[must_use]
    pub fn locked_by_caller(mut self, locked: bool) -> Self {
        self.locked_by_caller = locked;
        self
    }

    /// Sets whether to transfer past the page cache (O_DIRECT). Callers need no alignment: what
    /// does not fit goes through an aligned copy.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Sets how transfers reach the kernel. Unless said, as fits.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// - `Open` when the system refuses, also io_uring where that is asked for;
    /// - `NotADevice` for directories, pipes and the like;
    /// - `InUse` when another program has it open for writing, or the kernel has it
    ///   mounted, also through a loop device as far as the system tells;
    /// - `TooSmall` for a block special file smaller than the size asked for;
    /// - `NoDirectIo` when direct I/O is asked for and not to be had.
    pub fn open(&self, path: impl AsRef<Path>) -> DeviceResult<FileDevice> {
        let path = path.as_ref();
        // Looked at before opening, because opening a pipe would wait for its other end.
        match fs::metadata(path) {
            Ok(found) => check_kind(path, found.file_type())?,
            Err(err) if err.kind() == io::ErrorKind::NotFound && self.creates() => {}
            Err(source) => return Err(open_failed("open", path, source)),
        }
        let file = self.open_file(path)?;
        let opened = self.adopt(file, path);
        if opened.is_err() && matches!(self.mode, Mode::CreateNew { .. }) {
            // Nothing but an empty file of our own making is left behind; a failure to remove
            // it is less telling than the first error.
            let _ = fs::remove_file(path);
        }
        opened
    }

    /// Opens as [`FileOptions::open`] does, for a file that is open already, in a mode that allows
    /// what these options are for. It need not have a name: `path` is what it is called in errors.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn adopt(&self, file: File, path: impl AsRef<Path>) -> DeviceResult<FileDevice> {
        let path = path.as_ref();
        let found = file
            .metadata()
            .map_err(|source| open_failed("open", path, source))?;
        check_kind(path, found.file_type())?;
        if self.mode != Mode::ReadOnly {
            if !self.locked_by_caller {
                lock(path, &file, FlockOperation::NonBlockingLockExclusive)?;
                refuse_locked_otherwise(path, &file)?;
            }
            if found.is_file() && is_loop_mounted(&found) {
                return Err(DeviceError::InUse {
                    path: path.to_owned(),
                });
            }
        } else if self.guarded && !self.locked_by_caller {
            lock(path, &file, FlockOperation::NonBlockingLockShared)?;
        }
        self.size_and_wrap(path, file, &found)
    }

    fn creates(&self) -> bool {
        matches!(self.mode, Mode::Create { .. } | Mode::CreateNew { .. })
    }

    fn open_file(&self, path: &Path) -> DeviceResult<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(self.mode != Mode::ReadOnly);
        match self.mode {
            Mode::ReadOnly => {}
            // Not truncated here: the file may be somebody else's until it is locked.
            Mode::Create { .. } => {
                options.create(true);
            }
            Mode::CreateNew { .. } => {
                options.create_new(true);
            }
            Mode::ReadWrite => {}
        }
        let writes_special = self.mode != Mode::ReadOnly
            && fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        if writes_special {
            // On a block special file, O_EXCL alone means: not while it is mounted.
            options
                .create(false)
                .custom_flags(OFlags::EXCL.bits() as i32);
        }
        options
            .open(path)
            .map_err(|source| match Errno::from_io_error(&source) {
                Some(Errno::BUSY) => DeviceError::InUse {
                    path: path.to_owned(),
                },
                _ => open_failed("open", path, source),
            })
    }

    fn size_and_wrap(&self, path: &Path, file: File, found: &Metadata) -> DeviceResult<FileDevice> {
        let block_special = found.file_type().is_block_device();
        let mut size = if block_special {
            seek(&file, SeekFrom::End(0)).map_err(|err| open_failed("size", path, err.into()))?
        } else {
            found.len()
        };
        if let Mode::Create { size: wanted } | Mode::CreateNew { size: wanted } = self.mode {
            if block_special && wanted > size {
                let path = path.to_owned();
                return Err(DeviceError::TooSmall {
                    path,
                    wanted,
                    available: size,
                });
            }
            if !block_special {
                let emptied = file.set_len(0).and_then(|()| file.set_len(wanted));
                emptied.map_err(|source| open_failed("resize", path, source))?;
                size = wanted;
            }
        }
        let logical_sector = if block_special {
            ioctl_blksszget(&file).map_err(|err| open_failed("size", path, err.into()))?
        } else {
            512
        };
        let direct = if self.direct {
            Some(DirectFile::open(path, &file, logical_sector)?)
        } else {
            None
        };
        let rings = backend::choose(
            self.backend,
            path,
            &file,
            direct.as_ref().map(DirectFile::file),
        )?;
        let block_size = u32::try_from(found.blksize()).unwrap_or(4096);
        let smallest = direct
            .as_ref()
            .map_or(4096, |direct| direct.align().max(4096) as u32);
        Ok(FileDevice {
            rings,
            path: path.to_owned(),
            file,
            direct,
            uncached: OnceLock::new(),
            size: AtomicU64::new(size),
            growth: Mutex::new(&GROWTH_CLASS, ()),
            writable: self.mode != Mode::ReadOnly,
            locked: !self.locked_by_caller && (self.guarded || self.mode != Mode::ReadOnly),
            block_special,
            logical_sector,
            preferred_io: block_size
                .checked_next_power_of_two()
                .unwrap_or(4096)
                .max(smallest),
        })
    }
}

pub(super) fn open_failed(op: &'static str, path: &Path, source: io::Error) -> DeviceError {
    DeviceError::Open {
        op,
        path: path.to_owned(),
        source,
    }
}

pub(super) fn check_kind(path: &Path, found: FileType) -> DeviceResult<()> {
    let kind = if found.is_file() || found.is_block_device() {
        return Ok(());
    } else if found.is_dir() {
        "a directory"
    } else if found.is_char_device() {
        "a character device"
    } else if found.is_fifo() {
        "a pipe"
    } else if found.is_socket() {
        "a socket"
    } else {
        "something else"
    };
    Err(DeviceError::NotADevice {
        path: path.to_owned(),
        kind,
    })
}

/// Refuses a file that another program has locked in the other way, by `fcntl(2)`, as virtual
/// machines lock their disks. The lock is only tried, as closing the file anywhere in this process
/// would drop it.
fn refuse_locked_otherwise(path: &Path, file: &File) -> DeviceResult<()> {
    if let Err(Errno::AGAIN | Errno::ACCESS) =
        fcntl_lock(file, FlockOperation::NonBlockingLockExclusive)
    {
        let path = path.to_owned();
        return Err(DeviceError::InUse { path });
    }
    // Where there was none to take, there is none to give back.
    let _ = fcntl_lock(file, FlockOperation::NonBlockingUnlock);
    Ok(())
}

/// Takes a lock that is held until the file is closed.
pub(super) fn lock(path: &Path, file: &File, how: FlockOperation) -> DeviceResult<()> {
    loop {
        return match flock(file, how) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => Err(DeviceError::InUse {
                path: path.to_owned(),
            }),
            // The lock is advisory; some network file systems have none to give.
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(err) => Err(open_failed("lock", path, err.into())),
        };
    }
}
