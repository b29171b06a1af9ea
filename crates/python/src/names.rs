//! Listing directories: names, and what `os.scandir` gives.

use crate::call::outside;
use crate::path::{ImagePath, give, join};
use crate::stat::Stat;
use crate::volume::Shared;
use extant::{FileType, Filesystem};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The names of a directory, in the order they are stored in, in two pieces of memory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    entries: Vec<Named>,
}

/// One name, the type of its file where the directory says it, and its inode.
#[derive(Clone, Copy, Debug)]
struct Named {
    end: usize,
    ino: u32,
    file_type: Option<FileType>,
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) ino: u32,
    pub(crate) file_type: Option<FileType>,
}

impl Names {
    /// Reads a directory.
    pub(crate) fn read(fs: &Filesystem, path: &Path) -> extant::Result<Self> {
        let mut names = Self::default();
        fs.for_each_name(path, |name, ino, file_type| {
            names.push(name, ino, file_type);
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    /// Makes room for the names of another directory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Adds a name.
    pub(crate) fn push(&mut self, name: &[u8], ino: u32, file_type: Option<FileType>) {
        self.bytes.extend_from_slice(name);
        self.entries.push(Named {
            end: self.bytes.len(),
            ino,
            file_type,
        });
    }

    /// How many bytes of memory it has.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Named>()
    }

    pub(crate) fn get(&self, index: usize) -> Option<Name<'_>> {
        let entry = self.entries.get(index)?;
        let before = index.checked_sub(1).and_then(|at| self.entries.get(at));
        Some(Name {
            bytes: self.bytes.get(before.map_or(0, |e| e.end)..entry.end)?,
            ino: entry.ino,
            file_type: entry.file_type,
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Name<'_>> {
        let mut start = 0;
        self.entries.iter().filter_map(move |entry| {
            let name = self.bytes.get(start..entry.end);
            start = entry.end;
            name.map(|bytes| Name {
                bytes,
                ino: entry.ino,
                file_type: entry.file_type,
            })
        })
    }
}

/// `os.listdir`.
pub(crate) fn listdir<'py>(
    py: Python<'py>,
    shared: &Arc<Shared>,
    path: &ImagePath,
) -> PyResult<Bound<'py, PyList>> {
    let fs = shared.fs()?;
    let names = outside(py, move || Names::read(&fs, path.as_path()))?;
    let list = PyList::empty(py);
    for name in names.iter() {
        list.append(path.give(py, name.bytes)?)?;
    }
    Ok(list)
}

/// What `scandir` gives: an iterator of entries, and a context manager.
#[pyclass(frozen, module = "extant._native")]
#[derive(Debug)]
pub(crate) struct ScanDir {
    shared: Arc<Shared>,
    dir: Arc<ImagePath>,
    names: Mutex<(Option<Arc<Names>>, usize)>,
}

impl ScanDir {
    pub(crate) fn new(py: Python<'_>, shared: &Arc<Shared>, path: ImagePath) -> PyResult<Self> {
        let fs = shared.fs()?;
        let names = {
            let path = path.as_path();
            outside(py, move || Names::read(&fs, path))
        };
        Ok(Self {
            shared: Arc::clone(shared),
            names: Mutex::new((Some(Arc::new(names?)), 0)),
            dir: Arc::new(path),
        })
    }
}

#[pymethods]
impl ScanDir {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<DirEntry>> {
        self.shared.check_open()?;
        let mut state = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (names, next) = &mut *state;
        let Some(name) = names.as_ref().and_then(|names| names.get(*next)) else {
            *names = None;
            return Ok(None);
        };
        *next += 1;
        Ok(Some(DirEntry {
            name: self.dir.give(py, name.bytes)?.unbind(),
            path: join(self.dir.bytes(), name.bytes),
            is_bytes: self.dir.is_bytes,
            ino: name.ino,
            file_type: name.file_type,
            shared: Arc::clone(&self.shared),
        }))
    }

    /// Lets go of the names that are left.
    fn close(&self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }
}

/// One name of a directory, as `os.DirEntry`.
#[pyclass(frozen, module = "extant")]
#[derive(Debug)]
pub(crate) struct DirEntry {
    name: Py<PyAny>,
    path: Vec<u8>,
    is_bytes: bool,
    ino: u32,
    file_type: Option<FileType>,
    shared: Arc<Shared>,
}

impl DirEntry {
    fn look(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Stat> {
        let fs = self.shared.fs()?;
        let path =
            Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&self.path));
        outside(py, move || {
            if follow_symlinks {
                fs.metadata(path)
            } else {
                fs.symlink_metadata(path)
            }
            .map(|found| Stat::new(&found))
        })
    }

    /// Whether it is of this type; what is not there is of none.
    fn is(&self, py: Python<'_>, wanted: FileType, follow_symlinks: bool) -> PyResult<bool> {
        match self.file_type {
            Some(FileType::Symlink) if follow_symlinks => {}
            Some(found) => return Ok(found == wanted),
            None => {}
        }
        match self.look(py, follow_symlinks) {
            Ok(stat) => Ok(stat.file_type() == Some(wanted)),
            Err(e) if e.is_instance_of::<pyo3::exceptions::PyFileNotFoundError>(py) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[pymethods]
impl DirEntry {
    /// The name.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// The path: that of the directory, and the name.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        give(py, &self.path, self.is_bytes)
    }

    fn __image_path__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.path(py)
    }

    /// The inode number.
    fn inode(&self) -> u32 {
        self.ino
    }

    /// Whether it is a directory.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Directory, follow_symlinks)
    }

    /// Whether it is a regular file.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Regular, follow_symlinks)
    }

    /// Whether it is a symbolic link.
    fn is_symlink(&self, py: Python<'_>) -> PyResult<bool> {
        self.is(py, FileType::Symlink, false)
    }

    /// What is known about the file.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Stat> {
        self.look(py, follow_symlinks)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<DirEntry {}>", self.name.bind(py).repr()?))
    }
}
