//! Where an image goes: a new file that appears under its name when it is complete, or a place
//! that exists (a block device, or a window of a whole-disk image).
//!
//! # Invariants
//! A file that something uses is not replaced: it is held from the beginning to the end.
//!
//! Until it is complete, a new file has no name (`O_TMPFILE`), so that nothing is left of it
//! however the process ends. Where the file system has no files without names, or `/proc` is not
//! there to give them one, the file has a hidden name beside the image's until then.

use crate::standing::unmark;
use extant_blockdev::{
    BlockDevice, DeviceError, DeviceResult, FileDevice, FileOptions, HeldFile, OpenSpec,
    SharedDevice, WindowDevice, hold_for_replacing,
};
use extant_sync::{CountedAtomicU32, RmwClass};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
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
    finish: Option<Finish>,
}

/// What the caller does with its device when all is written.
struct Finish(Box<dyn FnOnce() -> DeviceResult<()> + Send>);

impl fmt::Debug for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finish")
    }
}

#[derive(Debug)]
struct Pending {
    unfinished: Unfinished,
    path: PathBuf,
    mode: Option<fs::Permissions>,
    /// What has the name now.
    _held: Option<HeldFile>,
}

/// The file that becomes the image.
#[derive(Debug)]
enum Unfinished {
    /// It has no name and goes when it is closed.
    Unnamed(fs::File),
    /// It has this name.
    Named(PathBuf),
}

impl Output {
    /// Makes an image of `size` bytes that will be called `path`.
    ///
    /// A regular file under that name is replaced when the image is complete, its permissions
    /// kept; a block device is written in place.
    ///
    /// # Errors
    /// When the file cannot be made, when the one that has the name is in use, or the block device
    /// is too small.
    pub fn create(path: &Path, size: u64) -> Result<Self, OutputError> {
        Self::create_or_refuse(path, size, true)
    }

    /// Makes an image that will be called `path` and whose file is more than the bytes of a disk:
    /// `format` makes the disk out of a file without a byte, which grows, and that disk is written
    /// to. Otherwise as [`Output::create`].
    ///
    /// # Errors
    /// As for `create`, and what `format` gives; `NotAFile` for a block device.
    pub fn create_in_format(
        path: &Path,
        format: impl FnOnce(SharedDevice) -> Result<SharedDevice, OutputError>,
    ) -> Result<Self, OutputError> {
        let mut output = Self::create_or_refuse(path, 0, false)?;
        output.device = format(Arc::clone(&output.device))?;
        Ok(output)
    }

    fn create_or_refuse(path: &Path, size: u64, or_device: bool) -> Result<Self, OutputError> {
        // Through a symbolic link, the file it names is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mode = match fs::metadata(&path) {
            Ok(found) if found.file_type().is_block_device() && or_device => {
                return Self::on_block_device(&path, size);
            }
            Ok(found) if !found.is_file() => {
                return Err(OutputError::NotAFile { path });
            }
            Ok(found) => Some(found.permissions()),
            Err(_) => None,
        };
        Self::create_new(path, mode, size, true)
    }

    /// The whole of a block device, which may be larger.
    fn on_block_device(path: &Path, size: u64) -> Result<Self, OutputError> {
        let whole = OpenSpec::read_write(path).open()?;
        let device = WindowDevice::new(Arc::clone(&whole), 0, size)?;
        unmark(&*whole, size, false)?;
        Ok(Self {
            device: Arc::new(device),
            pending: None,
            zeroed: false,
            finish: None,
        })
    }

    /// A file that will be called `path`, without a name until then if `may_be_unnamed` and
    /// possible.
    fn create_new(
        path: PathBuf,
        mode: Option<fs::Permissions>,
        size: u64,
        may_be_unnamed: bool,
    ) -> Result<Self, OutputError> {
        let held = hold_for_replacing(&path)?;
        let unnamed = if may_be_unnamed {
            create_unnamed(&path)
        } else {
            None
        };
        let (unfinished, device) = match unnamed {
            Some((file, ours)) => {
                let device = FileOptions::create(size).adopt(ours, &path)?;
                (Unfinished::Unnamed(file), device)
            }
            None => {
                let (temporary, device) = create_beside(&path, size)?;
                (Unfinished::Named(temporary), device)
            }
        };
        Ok(Self {
            device: Arc::new(device),
            pending: Some(Pending {
                unfinished,
                path,
                mode,
                _held: held,
            }),
            zeroed: true,
            finish: None,
        })
    }

    /// Returns the first `size` bytes of a `window` of something that exists, which may end before
    /// the window does. A window that ends behind what exists has no end of its own: what lies at
    /// the end is left alone.
    ///
    /// # Errors
    /// When it cannot be opened for writing or has no room for so many bytes.
    pub fn in_place(path: &Path, window: &Range<u64>, size: u64) -> Result<Self, OutputError> {
        let whole = OpenSpec::read_write(path).open()?;
        let len = if window.end <= whole.size() {
            window.end.saturating_sub(window.start).max(size)
        } else {
            size
        };
        let place: SharedDevice = Arc::new(WindowDevice::new(whole, window.start, len)?);
        let device = WindowDevice::new(Arc::clone(&place), 0, size)?;
        unmark(&*place, size, true)?;
        Ok(Self {
            device: Arc::new(device),
            pending: None,
            zeroed: false,
            finish: None,
        })
    }

    /// Returns the first `size` bytes of a device that is open for writing, without the marks of
    /// what was there. `is_part` says that it is a part of a disk, whose end is no place for a
    /// GPT's backup.
    ///
    /// # Errors
    /// When it has no room for so many bytes, or fails.
    pub fn in_place_of(
        place: &SharedDevice,
        size: u64,
        is_part: bool,
    ) -> Result<Self, OutputError> {
        let device = WindowDevice::new(Arc::clone(place), 0, size)?;
        unmark(&**place, size, is_part)?;
        Ok(Self::on_device(Arc::new(device), false))
    }

    /// Makes a device of the caller's, as it is.
    #[must_use]
    pub fn on_device(device: SharedDevice, zeroed: bool) -> Self {
        Self {
            device,
            pending: None,
            zeroed,
            finish: None,
        }
    }

    /// Makes a device of the caller's, of which [`commit`](Self::commit) makes an image by
    /// `finish`, such as an object of a store that then gets its name. It is dropped without a call
    /// if the image is not made.
    #[must_use]
    pub fn on_unfinished(
        device: SharedDevice,
        zeroed: bool,
        finish: impl FnOnce() -> DeviceResult<()> + Send + 'static,
    ) -> Self {
        let mut output = Self::on_device(device, zeroed);
        output.finish = Some(Finish(Box::new(finish)));
        output
    }

    /// Returns the device to write to.
    #[must_use]
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Returns whether everything not written reads as zeros.
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
            pending.publish().map_err(|source| OutputError::Rename {
                path: pending.path.clone(),
                source,
            })?;
            sync_parent(&pending.path);
        }
        if let Some(finish) = self.finish.take() {
            (finish.0)()?;
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            pending.discard();
        }
    }
}

impl Pending {
    /// Gives the image its name. On failure it is gone.
    fn publish(&self) -> io::Result<()> {
        let named = match &self.unfinished {
            Unfinished::Unnamed(file) => self.name_unnamed(file),
            Unfinished::Named(temporary) => match &self.mode {
                Some(mode) => fs::set_permissions(temporary, mode.clone()),
                None => Ok(()),
            }
            .and_then(|()| fs::rename(temporary, &self.path)),
        };
        named.inspect_err(|_| self.discard())
    }

    fn name_unnamed(&self, file: &fs::File) -> io::Result<()> {
        // Further tries are for hidden names that killed processes left.
        const TRIES: u32 = 100;
        if let Some(mode) = &self.mode {
            file.set_permissions(mode.clone())?;
        }
        match link(file, &self.path) {
            Err(Errno::EXIST) => {}
            done => return Ok(done?),
        }
        // A link replaces nothing, a rename does: a moment under a hidden name, complete.
        let mut tries = 1;
        let temporary = loop {
            let temporary = temporary_name(&self.path);
            match link(file, &temporary) {
                Ok(()) => break temporary,
                Err(Errno::EXIST) if tries < TRIES => tries += 1,
                Err(e) => return Err(e.into()),
            }
        };
        fs::rename(&temporary, &self.path).inspect_err(|_| {
            // The first failure is the one to tell.
            let _ = fs::remove_file(&temporary);
        })
    }

    fn discard(&self) {
        if let Unfinished::Named(temporary) = &self.unfinished {
            // Nobody is left to tell, and the name says what it is.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Where an open file can be reached by path.
fn proc_path(fd: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

fn link(file: &fs::File, path: &Path) -> Result<(), Errno> {
    let from = proc_path(file.as_raw_fd());
    linkat(CWD, &from, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// A file without a name in the directory of `path`, twice; `None` where that cannot be had (the
/// reason, if it is one for named files as well, shows when one is made).
fn create_unnamed(path: &Path) -> Option<(fs::File, fs::File)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let fd = rustix::fs::open(directory_of(path), flags, mode).ok()?;
    let file = fs::File::from(fd);
    fs::metadata(proc_path(file.as_raw_fd())).ok()?;
    let again = file.try_clone().ok()?;
    Some((file, again))
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the new name durable. The image itself is already; where a directory cannot be flushed,
/// a crash may bring back the old name, never half an image.
fn sync_parent(path: &Path) {
    if let Ok(dir) = fs::File::open(directory_of(path)) {
        let _ = dir.sync_all();
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
                return Err(match error {
                    DeviceError::Open { op, source, .. } => DeviceError::Open {
                        op,
                        path: path.to_owned(),
                        source,
                    },
                    other => other,
                });
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
    /// The image cannot have the format that was asked for.
    #[error("{0}")]
    Format(Box<dyn std::error::Error + Send + Sync>),
    /// The complete image could not be given its name.
    #[error("the image is complete but cannot be named {}: {source}", path.display())]
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(dir).expect("a directory");
        entries.map(|e| e.expect("an entry").file_name()).collect()
    }

    #[test]
    fn an_image_replaces_the_old_one_when_it_is_complete_with_and_without_a_name_before() {
        for unnamed in [true, false] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("image");
            let make = |mode| Output::create_new(path.clone(), mode, 8192, unnamed).expect("room");
            drop(make(None));
            assert!(names(dir.path()).is_empty());
            make(None).commit().expect("a new name");
            fs::write(&path, "old").expect("a file");
            drop(make(None));
            assert_eq!(fs::read(&path).expect("the old file"), b"old");
            let mode = Some(fs::Permissions::from_mode(0o640));
            make(mode).commit().expect("the old name");
            assert_eq!(fs::read(&path).expect("the image"), [0; 8192]);
            let found = fs::metadata(&path).expect("the image");
            assert_eq!(found.permissions().mode() & 0o777, 0o640);
            assert_eq!(names(dir.path()), ["image"]);
        }
    }

    #[test]
    fn until_it_is_complete_it_has_no_name_where_that_can_be() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let output = Output::create(&dir.path().join("image"), 8192).expect("room");
        assert!(names(dir.path()).is_empty());
        drop(output);
    }
}
