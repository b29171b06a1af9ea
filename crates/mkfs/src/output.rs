//! Where an image goes: a new file that appears under its name when it is complete, or a place
//! that exists (a block device, or a window of a whole-disk image).
//!
//! # Invariants
//! A file that something uses is not replaced: it is held from the beginning to the end. Nor is one
//! that took the name meanwhile: what nobody has looked at is left as it is ([`Replaces`]).
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
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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

/// Which file an image may take the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaces {
    /// None: the name is free, and has to be so in the end.
    Nothing,
    /// The one with these numbers of device and inode.
    File(u64, u64),
    /// Whichever has the name in the end, unless it is in use.
    Anything,
}

impl Replaces {
    /// Returns what has the name now, and nothing else.
    #[must_use]
    pub fn what_is_at(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(found) => Self::File(found.dev(), found.ino()),
            Err(_) => Self::Nothing,
        }
    }

    fn allows(self, id: (u64, u64)) -> bool {
        match self {
            Self::Nothing => false,
            Self::File(device, inode) => (device, inode) == id,
            Self::Anything => true,
        }
    }
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
    /// What had the name in the beginning.
    held: Option<HeldFile>,
    replaces: Replaces,
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
    /// A regular file that has the name now is replaced when the image is complete, its permissions
    /// kept; a block device is written in place.
    ///
    /// # Errors
    /// When the file cannot be made, when the one that has the name is in use, or the block device
    /// is too small.
    pub fn create(path: &Path, size: u64) -> Result<Self, OutputError> {
        Self::create_over(path, size, Replaces::what_is_at(path))
    }

    /// Makes an image of `size` bytes that will be called `path`, and that replaces what the caller
    /// has looked at. Otherwise as [`Output::create`].
    ///
    /// # Errors
    /// As for `create`; `Appeared` when another file has the name.
    pub fn create_over(path: &Path, size: u64, replaces: Replaces) -> Result<Self, OutputError> {
        Self::create_or_refuse(path, size, replaces, true)
    }

    /// Makes an image that will be called `path` and whose file is more than the bytes of a disk:
    /// `format` makes the disk out of a file without a byte, which grows, and that disk is written
    /// to. Otherwise as [`Output::create_over`].
    ///
    /// # Errors
    /// As for `create_over`, and what `format` gives; `NotAFile` for a block device.
    pub fn create_in_format(
        path: &Path,
        replaces: Replaces,
        format: impl FnOnce(SharedDevice) -> Result<SharedDevice, OutputError>,
    ) -> Result<Self, OutputError> {
        let mut output = Self::create_or_refuse(path, 0, replaces, false)?;
        output.device = format(Arc::clone(&output.device))?;
        Ok(output)
    }

    fn create_or_refuse(
        path: &Path,
        size: u64,
        replaces: Replaces,
        or_device: bool,
    ) -> Result<Self, OutputError> {
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
        Self::create_new(path, mode, size, replaces, true)
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
        replaces: Replaces,
        may_be_unnamed: bool,
    ) -> Result<Self, OutputError> {
        let held = hold_for_replacing(&path)?;
        if held
            .as_ref()
            .is_some_and(|held| !replaces.allows(held.id()))
        {
            return Err(OutputError::Appeared { path });
        }
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
                held,
                replaces,
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

    /// Puts a device over the one that is written to, such as one that counts what is written.
    #[must_use]
    pub fn over(mut self, over: impl FnOnce(SharedDevice) -> SharedDevice) -> Self {
        self.device = over(Arc::clone(&self.device));
        self
    }

    /// Returns whether everything not written reads as zeros.
    #[must_use]
    pub fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// Makes what was written durable and gives the image its name.
    ///
    /// # Errors
    /// When the device cannot be flushed or the file cannot be renamed; `Appeared` when another
    /// file took the name. The image then does not appear.
    pub fn commit(mut self) -> Result<(), OutputError> {
        self.device.flush()?;
        if let Some(pending) = self.pending.take() {
            pending.publish()?;
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
    fn publish(&self) -> Result<(), OutputError> {
        let named = match &self.unfinished {
            Unfinished::Unnamed(file) => self.name_unnamed(file),
            Unfinished::Named(temporary) => self.rename_named(temporary),
        };
        named
            .inspect_err(|why| {
                if why.leaves_the_image() {
                    self.discard();
                }
            })
            .map_err(|why| match why {
                NotNamed::Appeared => OutputError::Appeared {
                    path: self.path.clone(),
                },
                NotNamed::Kept(kept) => OutputError::Kept {
                    path: self.path.clone(),
                    kept,
                },
                NotNamed::Device(error) => OutputError::Device(error),
                NotNamed::System(source) => OutputError::Rename {
                    path: self.path.clone(),
                    source,
                },
            })
    }

    fn name_unnamed(&self, file: &fs::File) -> Result<(), NotNamed> {
        // Further tries are for hidden names that killed processes left.
        const TRIES: u32 = 100;
        if let Some(mode) = &self.mode {
            file.set_permissions(mode.clone())?;
        }
        match link(file, &self.path) {
            Err(Errno::EXIST) if self.may_replace() => {}
            Err(Errno::EXIST) => return Err(NotNamed::Appeared),
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
        self.replace_by(&temporary).inspect_err(|why| {
            if why.leaves_the_image() {
                // The first failure is the one to tell.
                let _ = fs::remove_file(&temporary);
            }
        })
    }

    fn rename_named(&self, temporary: &Path) -> Result<(), NotNamed> {
        if let Some(mode) = &self.mode {
            fs::set_permissions(temporary, mode.clone())?;
        }
        match rename_to_free(temporary, &self.path) {
            Err(Errno::EXIST) if self.may_replace() => self.replace_by(temporary),
            Err(Errno::EXIST) => Err(NotNamed::Appeared),
            done => Ok(done?),
        }
    }

    /// Whether there is a file that the image may replace.
    fn may_replace(&self) -> bool {
        self.held.is_some() || self.replaces == Replaces::Anything
    }

    /// Gives the name to a file that is called otherwise, and away from the one that may lose it.
    fn replace_by(&self, temporary: &Path) -> Result<(), NotNamed> {
        let held = self.held.as_ref().map(HeldFile::id);
        if self.replaces == Replaces::Anything {
            // Another one than in the beginning may be in use.
            let other = id_of(&self.path).filter(|id| Some(*id) != held);
            let _other = match other {
                Some(_) => hold_for_replacing(&self.path).map_err(NotNamed::Device)?,
                None => None,
            };
            return Ok(fs::rename(temporary, &self.path)?);
        }
        let image = id_of(temporary);
        // Exchanged, nothing is lost before it is known what had the name.
        match rename_with(temporary, &self.path, RenameFlags::EXCHANGE) {
            Ok(()) if id_of(temporary) == held => Ok(fs::remove_file(temporary)?),
            Ok(()) => Err(self.give_back(temporary, image)),
            Err(Errno::NOENT) => match rename_to_free(temporary, &self.path) {
                Err(Errno::EXIST) => Err(NotNamed::Appeared),
                done => Ok(done?),
            },
            // The file system has no such thing.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                if id_of(&self.path).is_some_and(|id| Some(id) != held) {
                    return Err(NotNamed::Appeared);
                }
                Ok(fs::rename(temporary, &self.path)?)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Gives its name back to a file that an exchange brought under the name of the image, and
    /// says what is under that name then.
    fn give_back(&self, temporary: &Path, image: Option<(u64, u64)>) -> NotNamed {
        #[cfg(test)]
        tests::meanwhile();
        match rename_with(temporary, &self.path, RenameFlags::EXCHANGE) {
            Ok(()) if id_of(temporary) == image => NotNamed::Appeared,
            // Yet another file took the name from the image.
            Ok(()) => NotNamed::Kept(temporary.to_owned()),
            // Nothing has the name any more, or the file system fails.
            Err(_) => match rename_to_free(temporary, &self.path) {
                Ok(()) => NotNamed::Appeared,
                Err(_) => NotNamed::Kept(temporary.to_owned()),
            },
        }
    }

    fn discard(&self) {
        if let Unfinished::Named(temporary) = &self.unfinished {
            // Nobody is left to tell, and the name says what it is.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Why an image does not get its name.
enum NotNamed {
    /// Another file has it.
    Appeared,
    /// Another file had it, and this is what it, or one that came after it, is called now.
    Kept(PathBuf),
    /// The file that has it is in use.
    Device(DeviceError),
    /// What the system said.
    System(io::Error),
}

impl NotNamed {
    /// Whether the hidden name is still that of the image, or of nothing.
    fn leaves_the_image(&self) -> bool {
        !matches!(self, Self::Kept(_))
    }
}

impl From<io::Error> for NotNamed {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for NotNamed {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Device and inode number of what has a name, which may be a symbolic link.
fn id_of(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Renames with flags, where that is heard: a program that pretends owners (`pseudo`) keeps account
/// of names, has no such calls, and ends what it finds under a name that it has not given.
fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    if extant_host::is_pretended() {
        return Err(Errno::NOSYS);
    }
    renameat_with(CWD, from, CWD, to, flags)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Renames a file, and replaces nothing: `EXIST` where something has the name.
fn rename_to_free(from: &Path, to: &Path) -> Result<(), Errno> {
    match rename_with(from, to, RenameFlags::NOREPLACE) {
        // The file system has no such thing: a link replaces nothing either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        done => return done,
    }
    match fs::hard_link(from, to).map_err(errno) {
        Ok(()) => {
            // Under its name it is; a second one that stays says what it is.
            let _ = fs::remove_file(from);
            Ok(())
        }
        // Nor has it links.
        Err(Errno::PERM | Errno::OPNOTSUPP) if id_of(to).is_none() => {
            fs::rename(from, to).map_err(errno)
        }
        Err(Errno::PERM | Errno::OPNOTSUPP) => Err(Errno::EXIST),
        Err(e) => Err(e),
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
    /// Another file has the name than the one that was looked at, or one where there was none.
    #[error(
        "{} became the name of another file while the image was made: that file was left as it is, \
         and nothing is lost but the new image. Make it again, by another name or with --force",
        path.display()
    )]
    Appeared {
        /// The name.
        path: PathBuf,
    },
    /// Other files took the name while the image was made, and one of them has lost its name.
    #[error(
        "{} became the name of other files while the image was made: one of them is kept as {}. \
         Give it the name that it should have, and make the image again by another name",
        path.display(),
        kept.display()
    )]
    Kept {
        /// The name.
        path: PathBuf,
        /// What the file is called now.
        kept: PathBuf,
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
mod tests;
