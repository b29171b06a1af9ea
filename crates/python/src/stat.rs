//! What is known about a file, with the names of `os.stat_result`.

use extant::{DeviceNumber, FileType, Metadata, Mode, Timestamp};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

/// What is known about a file besides its content.
#[pyclass(frozen, eq, hash, module = "extant", name = "Stat")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Stat {
    numbers: Numbers,
    times: Times,
    more: More,
}

/// Mode, inode number, names, owner, group, size, blocks, size of a block, and device.
type Numbers = (u16, u32, u32, u32, u32, u64, u64, u32, u64);

/// A time in seconds and nanoseconds.
type Time = (i64, u32);

/// Last access, change of the content, change of the inode, and creation.
type Times = (Time, Time, Time, Option<Time>);

/// Flags, generation and project.
type More = (u32, u32, Option<u32>);

impl Stat {
    pub(crate) fn new(found: &Metadata) -> Self {
        let time = |time: Timestamp| (time.secs, time.nanos);
        Self {
            numbers: (
                found.mode().bits(),
                found.ino(),
                found.nlink(),
                found.uid(),
                found.gid(),
                found.len(),
                found.blocks(),
                found.blksize(),
                rdev(found.rdev()),
            ),
            times: (
                time(found.atime()),
                time(found.mtime()),
                time(found.ctime()),
                found.crtime().map(time),
            ),
            more: (found.flags(), found.generation(), found.project()),
        }
    }

    /// The type of the file.
    pub(crate) fn file_type(&self) -> Option<FileType> {
        Mode::from_bits(self.numbers.0).file_type()
    }
}

/// The number of a device as `os.makedev` gives it.
pub(crate) fn rdev(device: Option<DeviceNumber>) -> u64 {
    let Some(device) = device else { return 0 };
    rustix::fs::makedev(device.major, device.minor)
}

/// Seconds as a float, as `os.stat_result` has them.
fn seconds((secs, nanos): Time) -> f64 {
    // Of 34 bits of seconds all are kept.
    secs as f64 + f64::from(nanos) * 1e-9
}

/// Nanoseconds, which may be more than 64 bits hold.
fn nanoseconds((secs, nanos): Time) -> i128 {
    i128::from(secs) * 1_000_000_000 + i128::from(nanos)
}

#[pymethods]
impl Stat {
    /// One that was pickled.
    #[staticmethod]
    fn _of(numbers: Numbers, times: Times, more: More) -> Self {
        Self {
            numbers,
            times,
            more,
        }
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Numbers, Times, More))> {
        let of = py.get_type::<Self>().getattr("_of")?;
        Ok((of, (self.numbers, self.times, self.more)))
    }

    /// File type and permissions.
    #[getter]
    fn st_mode(&self) -> u16 {
        self.numbers.0
    }

    /// The inode number.
    #[getter]
    fn st_ino(&self) -> u32 {
        self.numbers.1
    }

    /// 0: a file system in an image has no device number.
    #[getter]
    fn st_dev(&self) -> u32 {
        0
    }

    /// How many names the file has.
    #[getter]
    fn st_nlink(&self) -> u32 {
        self.numbers.2
    }

    /// The owner.
    #[getter]
    fn st_uid(&self) -> u32 {
        self.numbers.3
    }

    /// The group.
    #[getter]
    fn st_gid(&self) -> u32 {
        self.numbers.4
    }

    /// Bytes of the content.
    #[getter]
    fn st_size(&self) -> u64 {
        self.numbers.5
    }

    /// Space in use, in units of 512 bytes.
    #[getter]
    fn st_blocks(&self) -> u64 {
        self.numbers.6
    }

    /// Bytes of a block.
    #[getter]
    fn st_blksize(&self) -> u32 {
        self.numbers.7
    }

    /// The number of a device node, 0 for anything else.
    #[getter]
    fn st_rdev(&self) -> u64 {
        self.numbers.8
    }

    /// The last access, in seconds.
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.times.0)
    }

    /// The last change of the content, in seconds.
    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.times.1)
    }

    /// The last change of the inode, in seconds.
    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.times.2)
    }

    /// The creation, in seconds, where the inode has room for it.
    #[getter]
    fn st_birthtime(&self) -> Option<f64> {
        self.times.3.map(seconds)
    }

    /// The last access, in nanoseconds.
    #[getter]
    fn st_atime_ns(&self) -> i128 {
        nanoseconds(self.times.0)
    }

    /// The last change of the content, in nanoseconds.
    #[getter]
    fn st_mtime_ns(&self) -> i128 {
        nanoseconds(self.times.1)
    }

    /// The last change of the inode, in nanoseconds.
    #[getter]
    fn st_ctime_ns(&self) -> i128 {
        nanoseconds(self.times.2)
    }

    /// The creation, in nanoseconds, where the inode has room for it.
    #[getter]
    fn st_birthtime_ns(&self) -> Option<i128> {
        self.times.3.map(nanoseconds)
    }

    /// The inode flags, as the bits of `chattr`.
    #[getter]
    fn st_flags(&self) -> u32 {
        self.more.0
    }

    /// The generation, which tells reuses of an inode number apart.
    #[getter]
    fn st_gen(&self) -> u32 {
        self.more.1
    }

    /// The project, where the inode has room for it.
    #[getter]
    fn st_project(&self) -> Option<u32> {
        self.more.2
    }

    fn __len__(&self) -> usize {
        10
    }

    /// The ten items of `os.stat_result`, with whole seconds.
    fn __getitem__(&self, index: isize) -> PyResult<i128> {
        let at = if index < 0 { index + 10 } else { index };
        Ok(match at {
            0 => self.st_mode().into(),
            1 => self.st_ino().into(),
            2 => self.st_dev().into(),
            3 => self.st_nlink().into(),
            4 => self.st_uid().into(),
            5 => self.st_gid().into(),
            6 => self.st_size().into(),
            7 => self.times.0.0.into(),
            8 => self.times.1.0.into(),
            9 => self.times.2.0.into(),
            _ => return Err(PyIndexError::new_err("tuple index out of range")),
        })
    }

    fn __repr__(&self) -> String {
        format!(
            "extant.Stat(st_mode={:#o}, st_ino={}, st_nlink={}, st_uid={}, st_gid={}, st_size={}, \
             st_mtime={})",
            self.st_mode(),
            self.st_ino(),
            self.st_nlink(),
            self.st_uid(),
            self.st_gid(),
            self.st_size(),
            self.st_mtime(),
        )
    }
}
