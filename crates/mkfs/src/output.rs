//! Where an image goes: a new file that appears under its name when it is complete, or a place
//! that exists (a block device, or a window of a whole-disk image).

use extant_blockdev::{BlockDevice, DeviceError, FileDevice, FileOptions, OpenSpec, SharedDevice};
use extant_sync::{CountedAtomicU32, RmwClass};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An image being made.
///
/// Dropped before [`commit`](Self::commit), a new file is removed and what was under its name
/// stays as it was.
#[derive(Debug)]
pub struct Output {
    device: SharedDevice,
    pending: Option<Pending>,
    zeroed: bool,
}

#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    path: PathBuf,
    mode: Option<fs::Permissions>,
}

impl Output {
    /// An image of `size` bytes that will be called `path`.
    ///
    /// A regular file under that name is replaced when the image is complete, its permissions
    /// kept; a block device is written in place.
    ///
    /// # Errors
    /// When the file cannot be made, or the block device is too small.
    pub fn create(path: &Path, size: u64) -> Result<Self, OutputError> {
        // Through a symbolic link, the file it names is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mode = match fs::metadata(&path) {
            Ok(found) if found.file_type().is_block_device() => {
                return Self::in_place(&path, 0, size);
            }
            Ok(found) if !found.is_file() => {
                return Err(OutputError::NotAFile { path });
            }
            Ok(found) => Some(found.permissions()),
            Err(_) => None,
        };
        let (temporary, device) = create_beside(&path, size)?;
        Ok(Self {
            device: Arc::new(device),
            pending: Some(Pending {
                temporary,
                path,
                mode,
            }),
            zeroed: true,
        })
    }

    /// The window of `size` bytes at byte `offset` of something that exists.
    ///
    /// # Errors
    /// When it cannot be opened for writing or ends before the window does.
    pub fn in_place(path: &Path, offset: u64, size: u64) -> Result<Self, OutputError> {
        let device = OpenSpec::read_write(path)
            .offset(offset)
            .length(size)
            .open()?;
        Ok(Self {
            device,
            pending: None,
            zeroed: false,
        })
    }

    /// A device of the caller's, as it is.
    #[must_use]
    pub fn on_device(device: SharedDevice, zeroed: bool) -> Self {
        Self {
            device,
            pending: None,
            zeroed,
        }
    }

    /// The device to write to.
    #[must_use]
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Whether everything not written reads as zeros.
    #[must_use]
    pub fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// Makes what was written durable and gives the image its name.
    ///
    /// # Errors
    /// When the device cannot be flushed or the file cannot be renamed; the image then does not
    /// appear.
    pub fn commit(mut self) -> Result<(), OutputError> {
        self.device.flush()?;
        if let Some(pending) = self.pending.take() {
            let failed = |source: io::Error| {
                let _ = fs::remove_file(&pending.temporary);
                OutputError::Rename {
                    path: pending.path.clone(),
                    source,
                }
            };
            if let Some(mode) = pending.mode.clone() {
                fs::set_permissions(&pending.temporary, mode).map_err(failed)?;
            }
            fs::rename(&pending.temporary, &pending.path).map_err(failed)?;
            sync_parent(&pending.path);
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            let _ = fs::remove_file(&pending.temporary);
        }
    }
}

/// Makes the new name durable. The image itself is already; where a directory cannot be flushed,
/// a crash may bring back the old name, never half an image.
fn sync_parent(path: &Path) {
    if let Some(parent) = path.parent() {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        if let Ok(dir) = fs::File::open(parent) {
            let _ = dir.sync_all();
        }
    }
}

/// A new file beside the image, so that renaming stays on one file system. Nobody else's: not
/// that of another build of the same image, nor one left by a process that was killed.
fn create_beside(path: &Path, size: u64) -> Result<(PathBuf, FileDevice), DeviceError> {
    // Leftovers of a killed process with our number are few.
    const TRIES: u32 = 100;
    let mut tries = 1;
    loop {
        let temporary = temporary_name(path);
        match FileOptions::create_new(size).open(&temporary) {
            Ok(device) => return Ok((temporary, device)),
            Err(DeviceError::Open { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists && tries < TRIES =>
            {
                tries += 1;
            }
            Err(error) => {
                // Made but not given its size: the file system has no room or a smaller limit.
                let _ = fs::remove_file(&temporary);
                return Err(error);
            }
        }
    }
}

/// A hidden name that begins like the image's and has not been given out in this process.
fn temporary_name(path: &Path) -> PathBuf {
    // Names may have 255 bytes, and the rest needs some of them.
    const KEPT: usize = 200;
    static NAMES: RmwClass = RmwClass::new("temporary names");
    static NEXT: CountedAtomicU32 = CountedAtomicU32::new(&NAMES, 0);
    let own = path.file_name().unwrap_or_default().as_bytes();
    let mut name = OsString::from(".");
    name.push(OsStr::from_bytes(&own[..own.len().min(KEPT)]));
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".extant-{}-{n}.partial", std::process::id()));
    path.with_file_name(name)
}

/// An image that cannot be put where it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// Something that is neither a file nor a block device has the name.
    #[error("{} is neither a regular file nor a block device", path.display())]
    NotAFile {
        /// The name.
        path: PathBuf,
    },
    /// The complete image could not be given its name.
    #[error("the image is complete but cannot be renamed to {}: {source}", path.display())]
    Rename {
        /// The name.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
