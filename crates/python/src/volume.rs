//! An open file system: opening, closing, and everything that starts with a path.

use crate::ahead::{Ahead, Desk};
use crate::call::{Busy, let_go, outside, process};
use crate::error::{Failure, of_image};
use crate::file::{RawFile, Slot, not_negative};
use crate::inodes::Inodes;
use crate::names::{ScanDir, listdir};
use crate::path::{ImagePath, give};
use crate::source::{OpenImage, Part, Source};
use crate::stat::Stat;
use crate::walk::Walk;
use crate::{change, inodes};
use extant::mend::{MendOptions, mend};
use extant::{Filesystem, MountOptions, OpenOptions, Transaction};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How many open files are kept before those are looked for that have gone.
const SWEEP: usize = 64;

/// A file system, as all that came of it share it.
#[derive(Debug)]
pub(crate) struct Shared {
    open: Mutex<Open>,
    /// What tells its device from others, where that is a Python file.
    python: Option<usize>,
    is_writable: bool,
    is_remote: bool,
    /// The process that opened it.
    process: u32,
}

#[derive(Debug)]
struct Open {
    fs: Option<Filesystem>,
    transaction: Option<Transaction>,
    files: Vec<Weak<Slot>>,
    sweep_at: usize,
    /// What reads ahead of walks.
    walks: Vec<Weak<Desk>>,
}

/// What is let go of when a file system closes, files first.
struct Closing {
    files: Vec<Arc<Slot>>,
    walks: Vec<Arc<Desk>>,
    fs: Option<Filesystem>,
    transaction: Option<Transaction>,
}

impl Shared {
    fn new(
        fs: Filesystem,
        transaction: Option<Transaction>,
        python: Option<usize>,
        is_writable: bool,
        is_remote: bool,
    ) -> Self {
        Self {
            open: Mutex::new(Open {
                fs: Some(fs),
                transaction,
                files: Vec::new(),
                sweep_at: SWEEP,
                walks: Vec::new(),
            }),
            python,
            is_writable,
            is_remote,
            process: process(),
        }
    }

    /// The file system, to be used and dropped without the GIL.
    pub(crate) fn fs(&self) -> PyResult<Filesystem> {
        self.check_reentry()?;
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || PyValueError::new_err("I/O operation on a closed file system");
        open.fs.clone().ok_or_else(closed)
    }

    pub(crate) fn check_reentry(&self) -> PyResult<()> {
        if self.is_foreign() {
            return Err(PyRuntimeError::new_err(
                "the file system is open for writing in the process that opened it, of which this \
                 one was forked: open the image here when it is closed there",
            ));
        }
        if self.is_remote && self.is_copy() {
            return Err(PyRuntimeError::new_err(
                "the connection to the image is that of the process that opened it, of which this \
                 one was forked: open the image here",
            ));
        }
        self.python.map_or(Ok(()), Busy::refuse)
    }

    /// Whether this process has but a copy of what another writes to.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_writable && self.is_copy()
    }

    /// Whether another process opened it. Its threads may have had locks when this one was forked,
    /// which nobody gives back here.
    pub(crate) fn is_copy(&self) -> bool {
        self.process != process()
    }

    /// Refuses what [`fs`](Self::fs) refuses, for a call that has what it needs already.
    pub(crate) fn check_open(&self) -> PyResult<()> {
        self.check_reentry()?;
        if self.is_closed() {
            return Err(PyValueError::new_err(
                "I/O operation on a closed file system",
            ));
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.fs.is_none()
    }

    /// Keeps an open file, to be closed with the file system.
    pub(crate) fn keep(&self, slot: &Arc<Slot>) -> PyResult<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.fs.is_none() {
            let text = "I/O operation on a closed file system";
            return Err(PyValueError::new_err(text));
        }
        if open.files.len() >= open.sweep_at {
            open.files.retain(|file| file.strong_count() > 0);
            open.sweep_at = open.files.len() * 2 + SWEEP;
        }
        open.files.push(Arc::downgrade(slot));
        Ok(())
    }

    /// Whether nobody can change it through this: a number stays that of one file.
    pub(crate) fn is_still(&self) -> bool {
        !self.is_writable
    }

    /// Begins to read ahead of a walk, where nobody can change what is read, and no Python has to
    /// run for it.
    pub(crate) fn read_ahead(&self, fs: &Filesystem) -> Option<Ahead> {
        if self.is_writable || self.python.is_some() {
            return None;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.fs.as_ref()?;
        let ahead = Ahead::begin(fs.clone())?;
        open.walks.retain(|walk| walk.strong_count() > 0);
        open.walks.push(Arc::downgrade(ahead.desk()));
        Some(ahead)
    }

    fn take(&self) -> Closing {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        Closing {
            files: open
                .files
                .drain(..)
                .filter_map(|file| file.upgrade())
                .collect(),
            walks: open.walks.drain(..).filter_map(|w| w.upgrade()).collect(),
            fs: open.fs.take(),
            transaction: open.transaction.take(),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let closing = self.take();
        if closing.fs.is_none() {
            return;
        }
        if self.is_copy() {
            closing.forget();
            return;
        }
        let_go(Unclosed(Some(closing)));
    }
}

/// What was dropped and not closed.
struct Unclosed(Option<Closing>);

impl Drop for Unclosed {
    fn drop(&mut self) {
        // Nobody is left to hear of an error: a program that wants to know closes.
        if let Some(closing) = self.0.take() {
            let _ = closing.end(false);
        }
    }
}

impl Closing {
    /// Leaves all of it as it is: to close it is for another process.
    fn forget(self) {
        let _ = ManuallyDrop::new(self);
    }

    /// Closes files, then the file system; with `commit` changes of a transaction are made first.
    fn end(self, commit: bool) -> extant::Result<Option<extant::Committed>> {
        for walk in self.walks {
            walk.end();
        }
        for file in self.files {
            drop(file.take());
        }
        match self.transaction {
            Some(transaction) => {
                drop(self.fs);
                if commit {
                    return transaction.commit().map(Some);
                }
                drop(transaction);
                Ok(None)
            }
            None => self.fs.map_or(Ok(()), Filesystem::close).map(|()| None),
        }
    }
}

/// An open ext2, ext3 or ext4 file system.
#[pyclass(frozen, subclass, weakref, module = "extant._native")]
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) shared: Arc<Shared>,
    name: String,
    notices: Vec<String>,
}

impl Volume {
    fn mend(image: &OpenImage) -> Result<Filesystem, Failure> {
        let mended = mend(&image.device, &MendOptions::default())?;
        Ok(Filesystem::on_mended(&mended, MountOptions::read_only())?)
    }

    fn open(
        image: OpenImage,
        is_writable: bool,
        mends: bool,
        as_whole: bool,
    ) -> Result<(Filesystem, Option<Transaction>), Failure> {
        let opened = if as_whole {
            let options = MountOptions::read_write();
            Transaction::open_device(Arc::clone(&image.device), &image.name, options)
                .map(|transaction| (transaction.filesystem().clone(), Some(transaction)))
                .map_err(Failure::from)
        } else if mends {
            Self::mend(&image).map(|fs| (fs, None))
        } else {
            let options = if is_writable {
                MountOptions::read_write()
            } else {
                MountOptions::read_only()
            };
            Filesystem::open_device(Arc::clone(&image.device), options)
                .map(|fs| (fs, None))
                .map_err(Failure::from)
        };
        opened.map_err(|e| of_image(e, &image.name))
    }

    /// Does something with the file system.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Filesystem) -> extant::Result<T> + Send,
    ) -> PyResult<T> {
        let fs = self.shared.fs()?;
        outside(py, move || work(&fs))
    }
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (image, *, writable=false, partition=None, offset=None, length=None,
                        image_format=None, mend=false, transaction=false))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        image: &Bound<'_, PyAny>,
        writable: bool,
        partition: Option<&Bound<'_, PyAny>>,
        offset: Option<u64>,
        length: Option<u64>,
        image_format: Option<&str>,
        mend: bool,
        transaction: bool,
    ) -> PyResult<Self> {
        let py = image.py();
        if mend && (writable || transaction) {
            return Err(PyValueError::new_err(
                "mend is for reading: extant.repair mends an image for good",
            ));
        }
        let is_writable = writable || transaction;
        let part = Part::new(is_writable, partition, offset, length, image_format)?;
        let image = Source::new(image, is_writable)?.open(py, part)?;
        let (name, python, is_remote) = (image.name.clone(), image.python, image.is_remote);
        let opened = outside(py, move || {
            let (fs, transaction) = Self::open(image, is_writable, mend, transaction)?;
            let notices: Vec<String> = fs.notices().iter().map(ToString::to_string).collect();
            Ok::<_, Failure>((fs, transaction, notices))
        });
        let (fs, transaction, notices) = opened?;
        Ok(Self {
            shared: Arc::new(Shared::new(fs, transaction, python, is_writable, is_remote)),
            name: name.to_string_lossy().into_owned(),
            notices,
        })
    }

    /// What the image is called.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What should be known about the file system although it opened, as sentences.
    #[getter]
    fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Whether this process was forked from that which writes to it.
    #[getter]
    fn is_foreign(&self) -> bool {
        self.shared.is_foreign()
    }

    /// Whether this process was forked from that which opened it.
    #[getter]
    fn is_copy(&self) -> bool {
        self.shared.is_copy()
    }

    /// Whether it was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.shared.is_writable
    }

    /// Closes the file system and its files. Everything is durable then, and the image is clean.
    /// What a transaction did is forgotten unless it was committed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.shared.is_copy() {
            self.shared.take().forget();
            return Ok(());
        }
        self.shared.check_reentry()?;
        let closing = self.shared.take();
        outside(py, move || closing.end(false)).map(drop)
    }

    /// Makes the changes of a transaction, and closes it.
    fn commit(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        drop(self.shared.fs()?);
        let closing = self.shared.take();
        if closing.transaction.is_none() {
            let shared = Arc::clone(&self.shared);
            let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.fs = closing.fs;
            open.files = closing.files.iter().map(Arc::downgrade).collect();
            open.walks = closing.walks.iter().map(Arc::downgrade).collect();
            return Err(PyValueError::new_err(
                "only what extant.transaction opened is committed",
            ));
        }
        let done = outside(py, move || closing.end(true))?;
        Ok(done.map_or((0, 0, 0), |done| {
            (done.new_blocks, done.journaled_blocks, done.waited_blocks)
        }))
    }

    /// Makes everything durable that was done before.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Filesystem::sync)
    }

    /// Opens a file without buffers.
    #[pyo3(signature = (path, *, read, write, append, truncate, create, create_new, mode=0o644))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn open_raw(
        &self,
        py: Python<'_>,
        path: ImagePath,
        read: bool,
        write: bool,
        append: bool,
        truncate: bool,
        create: bool,
        create_new: bool,
        mode: i32,
    ) -> PyResult<RawFile> {
        let mut options = OpenOptions::new();
        options
            .read(read)
            .write(write)
            .append(append)
            .truncate(truncate)
            .create(create)
            .create_new(create_new)
            .mode(change::permissions(mode));
        RawFile::open(py, &self.shared, &path, &options, append)
    }

    /// The names of a directory, in the order they are stored in.
    #[pyo3(signature = (path=ImagePath::root()))]
    fn listdir<'py>(&self, py: Python<'py>, path: ImagePath) -> PyResult<Bound<'py, PyList>> {
        listdir(py, &self.shared, &path)
    }

    /// The entries of a directory.
    #[pyo3(signature = (path=ImagePath::root()))]
    fn scandir(&self, py: Python<'_>, path: ImagePath) -> PyResult<ScanDir> {
        ScanDir::new(py, &self.shared, path)
    }

    /// Everything below a directory, as `os.walk` gives it.
    #[pyo3(signature = (top=ImagePath::root(), topdown=true, onerror=None, followlinks=false))]
    fn walk(
        &self,
        top: ImagePath,
        topdown: bool,
        onerror: Option<Py<PyAny>>,
        followlinks: bool,
    ) -> PyResult<Walk> {
        drop(self.shared.fs()?);
        Ok(Walk::new(&self.shared, &top, topdown, followlinks, onerror))
    }

    /// What is known about a file.
    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, path: ImagePath, follow_symlinks: bool) -> PyResult<Stat> {
        self.with(py, |fs| {
            if follow_symlinks {
                fs.metadata(path.as_path())
            } else {
                fs.symlink_metadata(path.as_path())
            }
            .map(|found| Stat::new(&found))
        })
    }

    /// What is known about a file, or a symbolic link itself.
    fn lstat(&self, py: Python<'_>, path: ImagePath) -> PyResult<Stat> {
        self.stat(py, path, false)
    }

    /// Whether there is a file; symbolic links are followed.
    fn exists(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<bool> {
        let path: ImagePath = match path.extract() {
            Ok(path) => path,
            // No file has a null byte in its name.
            Err(e) if e.is_instance_of::<PyValueError>(py) => {
                return self.shared.check_open().map(|()| false);
            }
            Err(e) => return Err(e),
        };
        self.with(py, |fs| match fs.exists(path.as_path()) {
            Err(e) if change::is_absence(e.errno()) => Ok(false),
            found => found,
        })
    }

    /// The target of a symbolic link.
    fn readlink<'py>(&self, py: Python<'py>, path: ImagePath) -> PyResult<Bound<'py, PyAny>> {
        let target = self.with(py, |fs| fs.read_link(path.as_path()))?;
        path.give(py, target.as_os_str().as_bytes())
    }

    /// The whole content of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: ImagePath) -> PyResult<Bound<'py, PyBytes>> {
        let mut options = OpenOptions::new();
        options.read(true);
        RawFile::open(py, &self.shared, &path, &options, false)?.whole(py)
    }

    /// Checks what users may do with a file: always as user 0, to whom nothing is refused but to
    /// execute what nobody may.
    #[pyo3(signature = (path, mode, *, follow_symlinks=true))]
    fn access(
        &self,
        py: Python<'_>,
        path: ImagePath,
        mode: u8,
        follow_symlinks: bool,
    ) -> PyResult<bool> {
        if mode > 7 {
            return Err(PyValueError::new_err(
                "a mode is made of R_OK, W_OK and X_OK",
            ));
        }
        change::access(self, py, &path, mode, follow_symlinks)
    }

    /// Makes a directory.
    #[pyo3(signature = (path, mode=0o755))]
    fn mkdir(&self, py: Python<'_>, path: ImagePath, mode: i32) -> PyResult<()> {
        let mode = change::permissions(mode);
        self.with(py, |fs| fs.create_dir_with(path.as_path(), mode))
    }

    /// Removes a file that is no directory.
    fn remove(&self, py: Python<'_>, path: ImagePath) -> PyResult<()> {
        self.with(py, |fs| fs.remove_file(path.as_path()))
    }

    /// Removes a file that is no directory.
    fn unlink(&self, py: Python<'_>, path: ImagePath) -> PyResult<()> {
        self.remove(py, path)
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: ImagePath) -> PyResult<()> {
        self.with(py, |fs| fs.remove_dir(path.as_path()))
    }

    /// Moves a file; what is there is replaced, as on Linux.
    fn rename(&self, py: Python<'_>, src: ImagePath, dst: ImagePath) -> PyResult<()> {
        self.between(py, &src, &dst, |fs| {
            Ok(fs.rename(src.as_path(), dst.as_path())?)
        })
    }

    /// Moves a file; what is there is replaced.
    fn replace(&self, py: Python<'_>, src: ImagePath, dst: ImagePath) -> PyResult<()> {
        self.rename(py, src, dst)
    }

    /// Lets two names stand for each other's files.
    fn exchange(&self, py: Python<'_>, one: ImagePath, other: ImagePath) -> PyResult<()> {
        self.between(py, &one, &other, |fs| {
            Ok(fs.exchange(one.as_path(), other.as_path())?)
        })
    }

    /// Gives a file another name. A symbolic link is not followed unless that is asked for.
    #[pyo3(signature = (src, dst, *, follow_symlinks=false))]
    fn link(
        &self,
        py: Python<'_>,
        src: ImagePath,
        dst: ImagePath,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        change::link(self, py, &src, &dst, follow_symlinks)
    }

    /// Makes a symbolic link at `dst` that points to `src`.
    #[pyo3(signature = (src, dst, target_is_directory=false))]
    fn symlink(
        &self,
        py: Python<'_>,
        src: ImagePath,
        dst: ImagePath,
        target_is_directory: bool,
    ) -> PyResult<()> {
        // Links of Windows alone are of two kinds.
        let _ = target_is_directory;
        self.between(py, &src, &dst, |fs| {
            Ok(fs.symlink(src.as_path(), dst.as_path())?)
        })
    }

    /// Makes a device node, pipe, socket or regular file: its type is part of `mode`.
    #[pyo3(signature = (path, mode=0o600, device=0))]
    fn mknod(&self, py: Python<'_>, path: ImagePath, mode: u32, device: u64) -> PyResult<()> {
        change::mknod(self, py, &path, mode, device)
    }

    /// Sets the permissions.
    #[pyo3(signature = (path, mode, *, follow_symlinks=true))]
    fn chmod(
        &self,
        py: Python<'_>,
        path: ImagePath,
        mode: i32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        change::chmod(self, py, &path, mode, follow_symlinks)
    }

    /// Sets owner and group; -1 leaves what is.
    #[pyo3(signature = (path, uid, gid, *, follow_symlinks=true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: ImagePath,
        uid: i64,
        gid: i64,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        change::chown(self, py, &path, uid, gid, follow_symlinks)
    }

    /// Sets owner and group of a symbolic link itself.
    fn lchown(&self, py: Python<'_>, path: ImagePath, uid: i64, gid: i64) -> PyResult<()> {
        self.chown(py, path, uid, gid, false)
    }

    /// Sets the times of last access and change; to now without any.
    #[pyo3(signature = (path, times=None, *, ns=None, follow_symlinks=true))]
    fn utime(
        &self,
        py: Python<'_>,
        path: ImagePath,
        times: Option<(f64, f64)>,
        ns: Option<(i128, i128)>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        change::utime(self, py, &path, times, ns, follow_symlinks)
    }

    /// Makes a file `length` bytes long.
    fn truncate(&self, py: Python<'_>, path: ImagePath, length: i64) -> PyResult<()> {
        self.do_with(py, |fs| {
            let length = not_negative(length).map_err(|e| of_image(e, path.as_path()))?;
            Ok(fs.set_len(path.as_path(), length)?)
        })
    }

    /// The names of extended attributes.
    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn listxattr(
        &self,
        py: Python<'_>,
        path: ImagePath,
        follow_symlinks: bool,
    ) -> PyResult<Py<PyList>> {
        change::listxattr(self, py, &path, follow_symlinks)
    }

    /// The value of an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks=true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: ImagePath,
        attribute: ImagePath,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        change::getxattr(self, py, &path, &attribute, follow_symlinks)
    }

    /// Gives an extended attribute a value.
    #[pyo3(signature = (path, attribute, value, flags=0, *, follow_symlinks=true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: ImagePath,
        attribute: ImagePath,
        value: &Bound<'_, PyAny>,
        flags: u32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        change::setxattr(self, py, (&path, follow_symlinks), &attribute, value, flags)
    }

    /// Removes an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks=true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: ImagePath,
        attribute: ImagePath,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        change::removexattr(self, py, &path, &attribute, follow_symlinks)
    }

    /// The space and inodes, by the names of `os.statvfs_result` and more.
    fn statvfs_fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.with(py, Filesystem::statfs)?;
        let fields = PyDict::new(py);
        for (name, value) in [
            ("f_bsize", u64::from(found.block_size.bytes())),
            ("f_frsize", u64::from(found.block_size.bytes())),
            ("f_blocks", found.blocks),
            ("f_bfree", found.free),
            ("f_bavail", found.available),
            ("f_files", found.inodes),
            ("f_ffree", found.free_inodes),
            ("f_favail", found.free_inodes),
            ("f_namemax", u64::from(found.name_len)),
            ("directories", found.directories),
        ] {
            fields.set_item(name, value)?;
        }
        fields.set_item("uuid", give(py, &found.uuid, true)?)?;
        Ok(fields)
    }

    /// What is known about every inode, from so many threads, or one for each processor.
    #[pyo3(signature = (*, threads=0, cached=false))]
    fn bulkstat(&self, py: Python<'_>, threads: usize, cached: bool) -> PyResult<Inodes> {
        inodes::bulkstat(py, &self.shared, threads, cached)
    }

    fn __repr__(&self) -> String {
        let state = if self.shared.is_closed() {
            "closed"
        } else if self.shared.is_writable {
            "open for writing"
        } else {
            "open for reading"
        };
        format!("<extant.Filesystem {:?}, {state}>", self.name)
    }
}

impl Volume {
    /// Does something that has two paths.
    pub(crate) fn between(
        &self,
        py: Python<'_>,
        one: &ImagePath,
        other: &ImagePath,
        work: impl FnOnce(&Filesystem) -> Result<(), Failure> + Send,
    ) -> PyResult<()> {
        self.do_with(py, |fs| work(fs).map_err(|e| e.between(one, other)))
    }

    /// Does something with the file system, for other files of this crate.
    pub(crate) fn do_with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Filesystem) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let fs = self.shared.fs()?;
        outside(py, move || work(&fs))
    }
}
