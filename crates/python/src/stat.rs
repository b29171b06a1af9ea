//! What is known about a file, with the names of `os.stat_result`.

use extant::{DeviceNumber, Metadata, Timestamp};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

/// What is known about a file besides its content.
#[pyclass(frozen, eq, module = "extant", name = "Stat")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat(pub(crate) Metadata);

/// The number of a device as `os.makedev` gives it.
pub(crate) fn rdev(device: Option<DeviceNumber>) -> u64 {
    let Some(device) = device else { return 0 };
    rustix::fs::makedev(device.major, device.minor)
}

/// Seconds as a float, as `os.stat_result` has them.
fn seconds(time: Timestamp) -> f64 {
    // Of 34 bits of seconds all are kept.
    time.secs as f64 + f64::from(time.nanos) * 1e-9
}

/// Nanoseconds, which may be more than 64 bits hold.
fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

#[pymethods]
impl Stat {
    /// File type and permissions.
    #[getter]
    fn st_mode(&self) -> u16 {
        self.0.mode().bits()
    }

    /// The inode number.
    #[getter]
    fn st_ino(&self) -> u32 {
        self.0.ino()
    }

    /// 0: a file system in an image has no device number.
    #[getter]
    fn st_dev(&self) -> u32 {
        0
    }

    /// How many names the file has.
    #[getter]
    fn st_nlink(&self) -> u32 {
        self.0.nlink()
    }

    /// The owner.
    #[getter]
    fn st_uid(&self) -> u32 {
        self.0.uid()
    }

    /// The group.
    #[getter]
    fn st_gid(&self) -> u32 {
        self.0.gid()
    }

    /// Bytes of the content.
    #[getter]
    fn st_size(&self) -> u64 {
        self.0.len()
    }

    /// Space in use, in units of 512 bytes.
    #[getter]
    fn st_blocks(&self) -> u64 {
        self.0.blocks()
    }

    /// Bytes of a block.
    #[getter]
    fn st_blksize(&self) -> u32 {
        self.0.blksize()
    }

    /// The number of a device node, 0 for anything else.
    #[getter]
    fn st_rdev(&self) -> u64 {
        rdev(self.0.rdev())
    }

    /// The last access, in seconds.
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.0.atime())
    }

    /// The last change of the content, in seconds.
    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.0.mtime())
    }

    /// The last change of the inode, in seconds.
    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.0.ctime())
    }

    /// The creation, in seconds, where the inode has room for it.
    #[getter]
    fn st_birthtime(&self) -> Option<f64> {
        self.0.crtime().map(seconds)
    }

    /// The last access, in nanoseconds.
    #[getter]
    fn st_atime_ns(&self) -> i128 {
        nanoseconds(self.0.atime())
    }

    /// The last change of the content, in nanoseconds.
    #[getter]
    fn st_mtime_ns(&self) -> i128 {
        nanoseconds(self.0.mtime())
    }

    /// The last change of the inode, in nanoseconds.
    #[getter]
    fn st_ctime_ns(&self) -> i128 {
        nanoseconds(self.0.ctime())
    }

    /// The creation, in nanoseconds, where the inode has room for it.
    #[getter]
    fn st_birthtime_ns(&self) -> Option<i128> {
        self.0.crtime().map(nanoseconds)
    }

    /// The inode flags, as the bits of `chattr`.
    #[getter]
    fn st_flags(&self) -> u32 {
        self.0.flags()
    }

    /// The generation, which tells reuses of an inode number apart.
    #[getter]
    fn st_gen(&self) -> u32 {
        self.0.generation()
    }

    /// The project, where the inode has room for it.
    #[getter]
    fn st_project(&self) -> Option<u32> {
        self.0.project()
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
            7 => self.0.atime().secs.into(),
            8 => self.0.mtime().secs.into(),
            9 => self.0.ctime().secs.into(),
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
