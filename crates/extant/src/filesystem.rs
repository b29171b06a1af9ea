//! Opening file systems, and everything that starts with a path.

use crate::device::IntoDevice;
use crate::mount::Mount;
use crate::path::{LastLink, resolve, resolve_with};
use crate::{Error, File, Metadata, MountOptions, OpenOptions, OpenSpec, ReadDir, Result, Walk};
use extant_blockdev::{DeviceError, DeviceResult, SharedDevice};
use extant_core::Error as EngineError;
use extant_core::fs::{Fs, Notice, OpenForWriting, StatFs};
use extant_core::inode::{Held, Inode};
use extant_core::ops::{self, Caller, OpContext, OpenFor};
use extant_image::{How, ImageLocation};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open ext2, ext3 or ext4 file system.
///
/// Clones share it. Any number of threads may use it at once. Everything is allowed, whatever modes
/// and access control lists say, but for what is done [for a caller](Self::on_behalf_of).
#[derive(Clone, Debug)]
pub struct Filesystem {
    mount: Arc<Mount>,
    caller: Option<Arc<Caller>>,
}

impl Filesystem {
    /// Opens the image or block device at `path` for reading. What is written like an address, or
    /// has a partition behind a `#`, is read as [`ImageLocation::parse`] reads it.
    ///
    /// A journal that was not closed cleanly is replayed into memory; the image is not touched.
    ///
    /// # Errors
    /// When the file cannot be opened, is no ext2, ext3 or ext4 file system, is corrupt, or uses
    /// features this crate does not read (named by the error).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_text(path.as_ref(), &How::reading(), MountOptions::read_only())
    }

    /// Opens the image or block device at `path` for reading and writing. Addresses and partitions
    /// are read as in [`Filesystem::open`].
    ///
    /// A journal that was not closed cleanly is replayed first, and files that a crash left without
    /// names or half truncated are dealt with. Nobody else can open the image for writing
    /// meanwhile.
    ///
    /// # Errors
    /// As for [`Filesystem::open`]; when the image is in use, cannot be written, or has features
    /// that this crate reads but does not write (named by the error).
    pub fn open_writable(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_text(path.as_ref(), &How::writing(), MountOptions::read_write())
    }

    fn open_text(text: &Path, how: &How, options: MountOptions) -> Result<Self> {
        let location = ImageLocation::parse(text)
            .map_err(|e| Error::engine(PathBuf::new(), DeviceError::from(e).into()))?;
        Self::open_location(&location, how, options)
    }

    /// Opens the file system at a location: for reading, or for writing if both `how` and `options`
    /// say so.
    ///
    /// # Errors
    /// As for [`Filesystem::open`] and [`Filesystem::open_writable`].
    pub fn open_location(
        location: &ImageLocation,
        how: &How,
        options: MountOptions,
    ) -> Result<Self> {
        Self::on_device(location.open(how), Path::new(&location.name()), options)
    }

    /// Opens the file system at an offset or in a partition of a file: for reading, or for writing
    /// if both `spec` and `options` say so.
    ///
    /// # Errors
    /// As for [`Filesystem::open`] and [`Filesystem::open_writable`].
    pub fn open_spec(spec: &OpenSpec, options: MountOptions) -> Result<Self> {
        Self::on_device(spec.open(), spec.path(), options)
    }

    fn on_device(
        device: DeviceResult<SharedDevice>,
        name: &Path,
        options: MountOptions,
    ) -> Result<Self> {
        let opened = device
            .map_err(EngineError::from)
            .and_then(|device| Fs::open(device, options));
        match opened {
            Ok(fs) => Ok(Self::mounted(fs)),
            // Errors of devices name the device themselves.
            Err(e @ EngineError::Device(_)) => Err(Error::engine(PathBuf::new(), e)),
            Err(e) => Err(Error::engine(name, e)),
        }
    }

    /// Opens the file system on a device: one of yours (any [`BlockDevice`](crate::BlockDevice)),
    /// or the bytes of an image in memory.
    ///
    /// ```
    /// use extant::{Filesystem, MountOptions};
    ///
    /// let bytes: Vec<u8> = vec![0; 1 << 20];
    /// let refused = Filesystem::open_device(bytes, MountOptions::read_only()).unwrap_err();
    /// assert!(refused.to_string().contains("no ext"));
    /// ```
    ///
    /// # Errors
    /// As for [`Filesystem::open`].
    pub fn open_device(device: impl IntoDevice, options: MountOptions) -> Result<Self> {
        match Fs::open(device.into_device(), options) {
            Ok(fs) => Ok(Self::mounted(fs)),
            Err(e) => Err(Error::engine(PathBuf::new(), e)),
        }
    }

    /// Returns what a user should know about this file system although it opened, the most
    /// important first: errors it remembers, a journal that was replayed or ignored.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        self.fs().notices()
    }

    /// Gives the file system as a caller uses it: what the caller may not do is refused, with the
    /// error that Linux has for it, what the caller makes belongs to the caller, and space that the
    /// superblock reserves for others is not given out.
    ///
    /// This is for a program that serves users, and no boundary within it: code that has the value
    /// may close the file system for all, and can act for anybody.
    ///
    /// ```no_run
    /// use extant::{Caller, Filesystem};
    ///
    /// # fn main() -> extant::Result<()> {
    /// let fs = Filesystem::open_writable("disk.img")?;
    /// let theirs = fs.on_behalf_of(Caller::new(1000, 1000).groups([27]).umask(0o022));
    /// theirs.write("/home/user/notes", "mine")?;
    /// assert!(theirs.remove_file("/etc/passwd").is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_behalf_of(&self, caller: Caller) -> Self {
        Self {
            mount: Arc::clone(&self.mount),
            caller: Some(Arc::new(caller)),
        }
    }

    /// Returns the caller that this acts for, if there is one.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_deref()
    }

    /// Returns the engine underneath, which works by inode. Without the feature `unstable` there is
    /// no such method.
    #[cfg(feature = "unstable")]
    #[must_use]
    pub fn engine(&self) -> &Arc<Fs> {
        self.fs()
    }

    /// Opens a regular file for reading. Symbolic links are followed. [`OpenOptions`] opens files
    /// for writing.
    ///
    /// # Errors
    /// When there is no such file, or it is a directory, device, pipe or socket.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Returns the whole content of a regular file, which must fit into memory.
    ///
    /// # Errors
    /// As for [`Filesystem::open_file`], and when reading fails.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let too_large = || {
            let reason = "the file is too large to be read into memory at once";
            Error::engine(file.path(), EngineError::InvalidInput(reason))
        };
        let len = usize::try_from(file.metadata().len()).map_err(|_| too_large())?;
        let mut content = Vec::new();
        content.try_reserve_exact(len).map_err(|_| too_large())?;
        content.resize(len, 0);
        let read = file.read_at(&mut content, 0)?;
        content.truncate(read);
        Ok(content)
    }

    /// Returns the whole content of a regular file, which must be UTF-8.
    ///
    /// # Errors
    /// As for [`Filesystem::read`], and when the content is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?)
            .map_err(|_| Error::engine(path, EngineError::InvalidInput("the text is not UTF-8")))
    }

    /// Returns the entries of a directory, without `.` and `..`. Symbolic links are followed.
    ///
    /// # Errors
    /// When there is no such directory. Items are errors when it is corrupt.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let held = self.hold(path, LastLink::Follow)?;
        let dir = ReadDir::new(self, held.clone(), path)?;
        self.check_open(&held, path, OpenFor::reading())?;
        Ok(dir)
    }

    /// Returns everything at and below `path`, which is not followed if it is a symbolic link.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let path = path.as_ref();
        let inode = self.inode(path, LastLink::Keep)?;
        Ok(Walk::new(self.clone(), path.to_owned(), inode))
    }

    /// Returns what is known about a file. Symbolic links are followed.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), LastLink::Follow)
    }

    /// Returns what is known about a file. A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), LastLink::Keep)
    }

    /// Returns whether there is a file at `path`. Symbolic links are followed.
    ///
    /// # Errors
    /// When that cannot be said, because something on the way is corrupt or unreadable.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match resolve(self.by(), bytes(path.as_ref()), LastLink::Follow) {
            Ok(_) => Ok(true),
            Err(EngineError::NotFound | EngineError::NotADirectory | EngineError::NameTooLong) => {
                Ok(false)
            }
            Err(e) => Err(Error::engine(path.as_ref(), e)),
        }
    }

    /// Returns whether there is a file at `path`, as [`Filesystem::exists`] does, by the name that
    /// [`Path::try_exists`] has.
    ///
    /// # Errors
    /// As for [`Filesystem::exists`].
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.exists(path)
    }

    /// Returns the target of a symbolic link, as stored.
    ///
    /// # Errors
    /// When there is no such file, or it is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let held = self.hold(path, LastLink::Keep)?;
        let target =
            ops::readlink(self.fs(), &held.snapshot()).map_err(|e| Error::engine(path, e))?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Returns the names and values of all extended attributes, access control lists included (in
    /// the form of the system calls). A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// When there is no such file, or the attributes are corrupt.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<(OsString, Vec<u8>)>> {
        let path = path.as_ref();
        let held = self.hold(path, LastLink::Keep)?;
        let mut all = Vec::new();
        ops::for_each_xattr_live(self.by(), &held, |name, value| {
            all.push((OsString::from_vec(name.to_vec()), value.to_vec()));
            std::ops::ControlFlow::<()>::Continue(())
        })
        .map_err(|e| Error::engine(path, e))?;
        Ok(all)
    }

    /// Returns the names of all extended attributes. A symbolic link at the end of the path is not
    /// followed.
    ///
    /// # Errors
    /// As for [`Filesystem::xattrs`].
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        let held = self.hold(path, LastLink::Keep)?;
        let names = ops::listxattr_live(self.by(), &held).map_err(|e| Error::engine(path, e))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Returns the value of one extended attribute, by full name (`user.origin`), or `None` if the
    /// file does not have it. A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As for [`Filesystem::xattrs`].
    pub fn get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        let held = self.hold(path, LastLink::Keep)?;
        match ops::getxattr_live(self.by(), &held, name.as_ref().as_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(EngineError::NoAttribute) => Ok(None),
            Err(e) => Err(Error::engine(path, e)),
        }
    }

    /// Returns the space and inodes.
    ///
    /// # Errors
    /// When group descriptors are corrupt.
    pub fn statfs(&self) -> Result<StatFs> {
        self.fs()
            .statfs()
            .map_err(|e| Error::engine(PathBuf::new(), e))
    }

    pub(crate) fn inode(&self, path: &Path, last: LastLink) -> Result<Arc<Inode>> {
        Ok(self.hold(path, last)?.snapshot())
    }

    fn metadata_of(&self, path: &Path, last: LastLink) -> Result<Metadata> {
        resolve_with(self.by(), bytes(path), last, |inode| {
            Metadata::of(self.fs(), inode)
        })
        .map_err(|e| Error::engine(path, e))
    }

    pub(crate) fn mounted(fs: Arc<Fs>) -> Self {
        Self {
            mount: Arc::new(Mount::new(fs)),
            caller: None,
        }
    }

    #[cfg(feature = "mend")]
    pub(crate) fn of_mount(mount: Mount) -> Self {
        Self {
            mount: Arc::new(mount),
            caller: None,
        }
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        self.mount.fs()
    }

    pub(crate) fn mount(&self) -> &Mount {
        &self.mount
    }

    /// The engine, and the caller that it is used for.
    pub(crate) fn by(&self) -> OpContext<'_> {
        OpContext::new(self.fs(), self.caller())
    }

    /// Refuses to open what the caller may not open for that.
    pub(crate) fn check_open(&self, held: &Held, path: &Path, wanted: OpenFor) -> Result<()> {
        ops::open(self.by(), held, wanted).map_err(|e| Error::engine(path, e))
    }

    /// Refuses callers that may not see everything.
    pub(crate) fn check_sees_all(&self, path: &Path) -> Result<()> {
        match self.caller() {
            Some(caller) if caller.uid != 0 => Err(Error::engine(path, EngineError::NotPermitted)),
            _ => Ok(()),
        }
    }

    pub(crate) fn file(
        &self,
        held: Held,
        path: &Path,
        options: &OpenOptions,
        writing: Option<OpenForWriting>,
    ) -> File {
        File::new(self.clone(), held, path.to_owned(), options, writing)
    }
}

pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
