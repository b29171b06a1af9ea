//! Opening files: what may be a device, in which mode, and alone.

use super::direct::DirectFile;
use super::mounted::is_loop_mounted;
use super::{FileDevice, GROWTH_CLASS, backend};
use crate::file::FileOptions;
use crate::file::options::Mode;
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

impl FileDevice {
    /// What [`FileOptions::open`] does on Linux.
    pub(in crate::file) fn open_with(choice: &FileOptions, path: &Path) -> DeviceResult<Self> {
        // Looked at before opening, because opening a pipe would wait for its other end.
        match fs::metadata(path) {
            Ok(found) => check_kind(path, found.file_type())?,
            Err(err) if err.kind() == io::ErrorKind::NotFound && choice.creates() => {}
            Err(source) => return Err(open_failed("open", path, source)),
        }
        let file = Self::open_as(choice, path)?;
        let opened = Self::adopt_with(choice, file, path);
        if opened.is_err() && matches!(choice.mode, Mode::CreateNew { .. }) {
            // Nothing but an empty file of our own making is left behind; a failure to remove
            // it is less telling than the first error.
            let _ = fs::remove_file(path);
        }
        opened
    }

    /// What [`FileOptions::adopt`] does on Linux.
    pub(in crate::file) fn adopt_with(
        choice: &FileOptions,
        file: File,
        path: &Path,
    ) -> DeviceResult<Self> {
        let found = file
            .metadata()
            .map_err(|source| open_failed("open", path, source))?;
        check_kind(path, found.file_type())?;
        if choice.mode != Mode::ReadOnly {
            if !choice.locked_by_caller {
                lock(path, &file, FlockOperation::NonBlockingLockExclusive)?;
                refuse_locked_otherwise(path, &file)?;
            }
            // One without a name can not be found behind a device.
            if found.is_file() && found.nlink() > 0 && is_loop_mounted(&found) {
                return Err(DeviceError::InUse {
                    path: path.to_owned(),
                });
            }
        } else if choice.guarded && !choice.locked_by_caller {
            lock(path, &file, FlockOperation::NonBlockingLockShared)?;
        }
        Self::size_and_wrap(choice, path, file, &found)
    }

    fn open_as(choice: &FileOptions, path: &Path) -> DeviceResult<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(choice.mode != Mode::ReadOnly);
        match choice.mode {
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
        let writes_special = choice.mode != Mode::ReadOnly
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

    fn size_and_wrap(
        choice: &FileOptions,
        path: &Path,
        file: File,
        found: &Metadata,
    ) -> DeviceResult<Self> {
        let block_special = found.file_type().is_block_device();
        let mut size = if block_special {
            seek(&file, SeekFrom::End(0)).map_err(|err| open_failed("size", path, err.into()))?
        } else {
            found.len()
        };
        if let Mode::Create { size: wanted } | Mode::CreateNew { size: wanted } = choice.mode {
            if block_special && wanted > size {
                let path = path.to_owned();
                return Err(DeviceError::TooSmall {
                    path,
                    wanted,
                    available: size,
                });
            }
            if !block_special {
                // One that is empty is left so: ext4 writes all of a file to the disk when it is
                // closed that was cut to nothing, though it has no name and nobody will read it
                // again.
                // Asked now that it is locked: another program may have filled it until then.
                let sized = file.metadata().and_then(|now| {
                    if now.len() > 0 {
                        file.set_len(0)?;
                    }
                    file.set_len(wanted)
                });
                sized.map_err(|source| open_failed("resize", path, source))?;
                size = wanted;
            }
        }
        let logical_sector = if block_special {
            ioctl_blksszget(&file).map_err(|err| open_failed("size", path, err.into()))?
        } else {
            512
        };
        let direct = if choice.direct {
            Some(DirectFile::open(path, &file, logical_sector)?)
        } else {
            None
        };
        let rings = backend::choose(
            choice.backend,
            path,
            &file,
            direct.as_ref().map(DirectFile::file),
        )?;
        let block_size = u32::try_from(found.blksize()).unwrap_or(4096);
        let smallest = direct
            .as_ref()
            .map_or(4096, |direct| direct.align().max(4096) as u32);
        Ok(Self {
            rings,
            path: path.to_owned(),
            file,
            direct,
            uncached: OnceLock::new(),
            size: AtomicU64::new(size),
            growth: Mutex::new(&GROWTH_CLASS, ()),
            writable: choice.mode != Mode::ReadOnly,
            locked: !choice.locked_by_caller && (choice.guarded || choice.mode != Mode::ReadOnly),
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
