//! What is known about every inode, as one piece of memory.
//!
//! The memory is an array of records, which a buffer describes field by field
//! ([PEP 3118](https://peps.python.org/pep-3118)): NumPy makes a structured array of it without
//! copying.

use crate::call::outside_for_long;
use crate::error::Failure;
use crate::stat::rdev;
use crate::volume::Shared;
use extant::{Bulkstat, BulkstatWay, Metadata};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyKeyError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A time that is not known: what NumPy calls `NaT`.
const NO_TIME: i64 = i64::MIN;

/// What is known about one inode. Without holes, so that all bytes of it are something.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    ino: u32,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    flags: u32,
    size: u64,
    blocks: u64,
    atime: i64,
    mtime: i64,
    ctime: i64,
    btime: i64,
    atime_nsec: u32,
    mtime_nsec: u32,
    ctime_nsec: u32,
    btime_nsec: u32,
    rdev: u64,
    generation: u32,
    project: u32,
}

/// The fields in order, and what they are in the language of buffers and of NumPy.
const FIELDS: [(&CStr, &str, &str); 19] = [
    (c"I", "ino", "=u4"),
    (c"I", "mode", "=u4"),
    (c"I", "nlink", "=u4"),
    (c"I", "uid", "=u4"),
    (c"I", "gid", "=u4"),
    (c"I", "flags", "=u4"),
    (c"Q", "size", "=u8"),
    (c"Q", "blocks", "=u8"),
    (c"q", "atime", "=i8"),
    (c"q", "mtime", "=i8"),
    (c"q", "ctime", "=i8"),
    (c"q", "btime", "=i8"),
    (c"I", "atime_nsec", "=u4"),
    (c"I", "mtime_nsec", "=u4"),
    (c"I", "ctime_nsec", "=u4"),
    (c"I", "btime_nsec", "=u4"),
    (c"Q", "rdev", "=u8"),
    (c"I", "generation", "=u4"),
    (c"I", "project", "=u4"),
];

/// What one record is in the language of buffers.
const FORMAT: &CStr = c"T{\
    I:ino:I:mode:I:nlink:I:uid:I:gid:I:flags:Q:size:Q:blocks:q:atime:q:mtime:q:ctime:q:btime:\
    I:atime_nsec:I:mtime_nsec:I:ctime_nsec:I:btime_nsec:Q:rdev:I:generation:I:project:}";

const ITEM: usize = size_of::<Record>();

// Without holes.
const _: () = assert!(ITEM == 6 * 4 + 6 * 8 + 4 * 4 + 8 + 2 * 4);

impl Record {
    #[inline]
    fn new(found: &Metadata) -> Self {
        let (atime, mtime, ctime) = (found.atime(), found.mtime(), found.ctime());
        let btime = found.crtime();
        Self {
            ino: found.ino(),
            mode: found.mode().bits().into(),
            nlink: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            flags: found.flags(),
            size: found.len(),
            blocks: found.blocks(),
            atime: atime.secs,
            mtime: mtime.secs,
            ctime: ctime.secs,
            btime: btime.map_or(NO_TIME, |time| time.secs),
            atime_nsec: atime.nanos,
            mtime_nsec: mtime.nanos,
            ctime_nsec: ctime.nanos,
            btime_nsec: btime.map_or(0, |time| time.nanos),
            rdev: rdev(found.rdev()),
            generation: found.generation(),
            project: found.project().unwrap_or(0),
        }
    }
}

/// What is known about every inode: a read-only buffer of records.
#[pyclass(frozen, module = "extant", name = "Inodes")]
#[derive(Debug)]
pub(crate) struct Inodes {
    records: Vec<Record>,
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
    /// What could not be read: the inode is in the text.
    errors: Vec<String>,
}

/// Errors that are kept at most.
const ERRORS: usize = 1000;

/// Threads at most: more of them only wait for each other.
pub(crate) const MOST_THREADS: usize = 256;

/// Looks at every inode of a file system.
pub(crate) fn bulkstat(
    py: Python<'_>,
    shared: &Arc<Shared>,
    threads: usize,
    cached: bool,
) -> PyResult<Inodes> {
    let fs = shared.fs()?;
    let way = if cached {
        BulkstatWay::Cache
    } else {
        BulkstatWay::Tables
    };
    let stopped = AtomicBool::new(false);
    let states = outside_for_long(
        py,
        || stopped.store(true, Ordering::Relaxed),
        || {
            let count = fs.statfs().map_or(0, |all| all.inodes - all.free_inodes);
            let threads = match threads {
                0 => std::thread::available_parallelism().map_or(1, usize::from),
                some => some.min(MOST_THREADS),
            };
            let share = usize::try_from(count).unwrap_or(0) / threads.max(1);
            let states = fs.bulkstat_fold(
                Bulkstat::new(way, threads),
                || (Vec::with_capacity(share), Vec::new()),
                |(records, errors), found| match found {
                    _ if stopped.load(Ordering::Relaxed) => {}
                    Ok(found) => records.push(Record::new(&found)),
                    Err(e) if errors.len() < ERRORS => errors.push(e.to_string()),
                    Err(_) => {}
                },
            );
            drop(fs);
            let total = states.iter().map(|(records, _)| records.len()).sum();
            let (mut all, mut errors) = (Vec::new(), Vec::new());
            for (records, more) in states {
                if all.is_empty() {
                    all = records;
                    all.reserve_exact(usize::saturating_sub(total, all.len()));
                } else {
                    all.extend_from_slice(&records);
                }
                errors.extend(more);
            }
            Ok::<_, Failure>((all, errors))
        },
    );
    let (records, errors) = states?;
    Ok(Inodes {
        shape: [ffi::Py_ssize_t::try_from(records.len())?],
        strides: [ffi::Py_ssize_t::try_from(ITEM)?],
        records,
        errors,
    })
}

#[pymethods]
impl Inodes {
    fn __len__(&self) -> usize {
        self.records.len()
    }

    /// What could not be read, as sentences: at most the first 1,000 of each thread.
    #[getter]
    fn errors(&self) -> Vec<String> {
        self.errors.clone()
    }

    /// The names and types of the fields, as `numpy.dtype` takes them.
    #[classattr]
    fn dtype(py: Python<'_>) -> PyResult<Py<PyList>> {
        let fields = FIELDS.map(|(_, name, numpy)| (name, numpy));
        Ok(PyList::new(py, fields)?.unbind())
    }

    /// One field of all inodes as a buffer, such as `memoryview(inodes["size"])`, or all fields of
    /// one inode as a `dict`.
    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Ok(name) = key.extract::<&str>() {
            let mut offset = 0;
            for (format, field, _) in FIELDS {
                let size = size_of_format(format);
                if field == name {
                    let column = Column {
                        inodes: slf.clone().unbind(),
                        format,
                        offset,
                        size,
                    };
                    return Ok(Bound::new(py, column)?.into_any());
                }
                offset += size;
            }
            return Err(PyKeyError::new_err(name.to_owned()));
        }
        let inodes = slf.get();
        let index: isize = key.extract()?;
        let at = usize::try_from(if index < 0 {
            index + inodes.records.len() as isize
        } else {
            index
        });
        let record = at.ok().and_then(|at| inodes.records.get(at));
        let Some(record) = record else {
            return Err(PyIndexError::new_err("index out of range"));
        };
        record.as_dict(py).map(Bound::into_any)
    }

    fn __repr__(&self) -> String {
        format!("<extant.Inodes of {} inodes>", self.records.len())
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let inodes = slf.get();
        let exported = Exported {
            start: inodes.records.as_ptr().cast(),
            len: inodes.records.len() * ITEM,
            item: ITEM,
            format: FORMAT,
            shape: &inodes.shape,
            strides: &inodes.strides,
            is_contiguous: true,
        };
        // SAFETY: Python gives a description to be filled, or null. What is exported belongs to the
        // object, is never changed, and stays as long as the description refers to the object.
        unsafe { exported.fill(slf.as_any(), view, flags) }
    }
}

impl Record {
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let narrow = [
            ("ino", self.ino),
            ("mode", self.mode),
            ("nlink", self.nlink),
            ("uid", self.uid),
            ("gid", self.gid),
            ("flags", self.flags),
            ("atime_nsec", self.atime_nsec),
            ("mtime_nsec", self.mtime_nsec),
            ("ctime_nsec", self.ctime_nsec),
            ("btime_nsec", self.btime_nsec),
            ("generation", self.generation),
            ("project", self.project),
        ];
        for (name, value) in narrow {
            dict.set_item(name, value)?;
        }
        for (name, value) in [
            ("size", self.size),
            ("blocks", self.blocks),
            ("rdev", self.rdev),
        ] {
            dict.set_item(name, value)?;
        }
        for (name, value) in [
            ("atime", self.atime),
            ("mtime", self.mtime),
            ("ctime", self.ctime),
            ("btime", self.btime),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}

fn size_of_format(format: &CStr) -> usize {
    if format == c"I" { 4 } else { 8 }
}

/// One field of all inodes: a buffer whose items lie a record apart.
#[pyclass(frozen, module = "extant._native")]
#[derive(Debug)]
pub(crate) struct Column {
    inodes: Py<Inodes>,
    format: &'static CStr,
    /// Of the field in a record.
    offset: usize,
    size: usize,
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.inodes.get().records.len()
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let column = slf.get();
        let inodes = column.inodes.get();
        let exported = Exported {
            start: inodes
                .records
                .as_ptr()
                .cast::<u8>()
                .wrapping_add(column.offset),
            len: inodes.records.len() * column.size,
            item: column.size,
            format: column.format,
            shape: &inodes.shape,
            strides: &inodes.strides,
            is_contiguous: inodes.records.len() < 2,
        };
        // SAFETY: as for `Inodes`, which the column keeps.
        unsafe { exported.fill(slf.as_any(), view, flags) }
    }
}

/// Memory that is shown to Python for reading.
struct Exported<'a> {
    start: *const u8,
    len: usize,
    item: usize,
    format: &'static CStr,
    shape: &'a [ffi::Py_ssize_t; 1],
    strides: &'a [ffi::Py_ssize_t; 1],
    is_contiguous: bool,
}

impl Exported<'_> {
    /// Fills the description of a buffer of `owner`.
    ///
    /// # Safety
    /// `view` is null or may be written to; the memory and the slices belong to `owner` and stay as
    /// they are as long as it lives.
    unsafe fn fill(
        self,
        owner: &Bound<'_, PyAny>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let has = |flag: c_int| flags & flag == flag;
        if view.is_null() {
            return Err(PyBufferError::new_err("no view was given"));
        }
        let contiguous = [
            ffi::PyBUF_C_CONTIGUOUS,
            ffi::PyBUF_F_CONTIGUOUS,
            ffi::PyBUF_ANY_CONTIGUOUS,
        ];
        let needs_contiguous = !has(ffi::PyBUF_STRIDES) || contiguous.into_iter().any(has);
        let refused = if has(ffi::PyBUF_WRITABLE) {
            Some("what is known about inodes is read only")
        } else if needs_contiguous && !self.is_contiguous {
            Some("the items of a field are not contiguous")
        } else {
            None
        };
        if let Some(refused) = refused {
            // SAFETY: not null, and may be written to.
            unsafe { (*view).obj = std::ptr::null_mut() };
            return Err(PyBufferError::new_err(refused));
        }
        let (len, item) = (
            ffi::Py_ssize_t::try_from(self.len)?,
            ffi::Py_ssize_t::try_from(self.item)?,
        );
        let or_null = |wanted: bool, slice: &[ffi::Py_ssize_t; 1]| {
            if wanted {
                slice.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            }
        };
        // SAFETY: not null, and may be written to. The pointers are to what stays as long as the
        // owner, to which the description gets a reference.
        unsafe {
            (*view).buf = self.start.cast_mut().cast::<c_void>();
            (*view).len = len;
            (*view).itemsize = item;
            (*view).readonly = 1;
            (*view).ndim = 1;
            (*view).format = if has(ffi::PyBUF_FORMAT) {
                self.format.as_ptr().cast::<c_char>().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).shape = or_null(has(ffi::PyBUF_ND), self.shape);
            (*view).strides = or_null(has(ffi::PyBUF_STRIDES), self.strides);
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = owner.clone().into_ptr();
        }
        Ok(())
    }
}
