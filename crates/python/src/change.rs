//! What needs more than a call of the engine: times, owners, nodes, attributes.

use crate::buffer::Memory;
use crate::error::Failure;
use crate::path::{ImagePath, give};
use crate::volume::Volume;
use extant::{DeviceNumber, FileType, Filesystem, Mode, SetXattr, Timestamp, errno};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// `setxattr(2)`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// Symbolic links that are followed one after the other, as many as in a path.
const LINKS: usize = 40;

/// Where a path leads to: what the last name is a link to, as a path. For calls of the library that
/// do not follow it.
fn followed(fs: &Filesystem, path: &Path, follow: bool) -> Result<PathBuf, Failure> {
    let mut path = path.to_owned();
    for _ in 0..=LINKS {
        if !follow || !fs.symlink_metadata(&path)?.is_symlink() {
            return Ok(path);
        }
        let target = fs.read_link(&path)?;
        // A `..` in the target is of the directory that the link is in, so names are only put
        // behind each other.
        let mut text = path.as_os_str().as_bytes();
        while let [rest @ .., b'/'] = text {
            text = rest;
        }
        let end = text.iter().rposition(|byte| *byte == b'/');
        let mut dir = text
            .get(..end.map_or(0, |at| at + 1))
            .unwrap_or_default()
            .to_vec();
        if target.is_absolute() {
            dir.clear();
        }
        dir.extend_from_slice(target.as_os_str().as_bytes());
        path = PathBuf::from(OsString::from_vec(dir));
    }
    Err(Failure {
        errno: errno::ELOOP,
        path: Some(path.as_os_str().as_bytes().to_vec()),
        ..Failure::invalid("too many symbolic links")
    })
}

/// Whether an error says that there is no such file, and not that it cannot be found out.
pub(crate) fn is_absence(errno: i32) -> bool {
    matches!(
        errno,
        errno::ENOENT | errno::ENOTDIR | errno::ELOOP | errno::ENAMETOOLONG
    )
}

pub(crate) fn access(
    volume: &Volume,
    py: Python<'_>,
    path: &ImagePath,
    mode: u8,
    follow: bool,
) -> PyResult<bool> {
    let is_writable = !volume.shared.is_still();
    volume.do_with(py, |fs| {
        if !follow
            && let Ok(found) = fs.symlink_metadata(path.as_path())
            && found.is_symlink()
        {
            // Everybody may do everything with a link that its file system allows.
            return Ok(mode & 2 == 0 || is_writable);
        }
        let root = fs.on_behalf_of(extant::Caller::new(0, 0));
        match root.access(path.as_path(), mode) {
            Ok(()) => Ok(true),
            Err(e)
                if matches!(e.errno(), errno::EACCES | errno::EROFS) || is_absence(e.errno()) =>
            {
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    })
}

pub(crate) fn chmod(
    volume: &Volume,
    py: Python<'_>,
    path: &ImagePath,
    mode: i32,
    follow: bool,
) -> PyResult<()> {
    volume.do_with(py, |fs| {
        if !follow && fs.symlink_metadata(path.as_path())?.is_symlink() {
            return Err(Failure {
                errno: errno::EOPNOTSUPP,
                path: Some(path.bytes().to_vec()),
                ..Failure::invalid("symbolic links have no permissions")
            });
        }
        Ok(fs.set_permissions(path.as_path(), permissions(mode))?)
    })
}

/// The permissions in a mode: what else is in it is left out, as the system does.
pub(crate) fn permissions(mode: i32) -> u16 {
    (mode & 0o7777) as u16
}

/// Another name for a file; for what a symbolic link leads to if that is asked for.
pub(crate) fn link(
    volume: &Volume,
    py: Python<'_>,
    src: &ImagePath,
    dst: &ImagePath,
    follow: bool,
) -> PyResult<()> {
    volume.between(py, src, dst, |fs| {
        let from = followed(fs, src.as_path(), follow)?;
        Ok(fs.hard_link(from, dst.as_path())?)
    })
}

pub(crate) fn mknod(
    volume: &Volume,
    py: Python<'_>,
    path: &ImagePath,
    mode: u32,
    device: u64,
) -> PyResult<()> {
    let bits = u16::try_from(mode).map_err(|_| PyValueError::new_err("the mode is too large"))?;
    let mode = Mode::from_bits(bits);
    let file_type = if bits & 0o170_000 == 0 {
        Some(FileType::Regular)
    } else {
        mode.file_type()
    };
    let Some(file_type) = file_type else {
        return Err(PyValueError::new_err("the mode names no type of files"));
    };
    let number = DeviceNumber {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    };
    volume.do_with(py, |fs| {
        Ok(fs.create_special(path.as_path(), file_type, number, mode.permissions())?)
    })
}

pub(crate) fn chown(
    volume: &Volume,
    py: Python<'_>,
    path: &ImagePath,
    uid: i64,
    gid: i64,
    follow: bool,
) -> PyResult<()> {
    let id = |id: i64| match id {
        -1 => Ok(None),
        id => u32::try_from(id)
            .map(Some)
            .map_err(|_| PyOverflowError::new_err("an owner is a number of 32 bits, or -1")),
    };
    let (uid, gid) = (id(uid)?, id(gid)?);
    volume.do_with(py, |fs| {
        let path = followed(fs, path.as_path(), follow)?;
        Ok(fs.set_owner(path, uid, gid)?)
    })
}

pub(crate) fn utime(
    volume: &Volume,
    py: Python<'_>,
    path: &ImagePath,
    times: Option<(f64, f64)>,
    ns: Option<(i128, i128)>,
    follow: bool,
) -> PyResult<()> {
    let times = match (times, ns) {
        (Some(_), Some(_)) => {
            return Err(PyValueError::new_err(
                "utime: you may specify either 'times' or 'ns' but not both",
            ));
        }
        (Some((accessed, modified)), None) => Some((of_seconds(accessed)?, of_seconds(modified)?)),
        (None, Some((accessed, modified))) => {
            Some((of_nanoseconds(accessed)?, of_nanoseconds(modified)?))
        }
        (None, None) => None,
    };
    volume.do_with(py, |fs| {
        let path = followed(fs, path.as_path(), follow)?;
        match times {
            Some((accessed, modified)) => fs.set_times(path, Some(accessed), Some(modified))?,
            None => fs.touch(path)?,
        }
        Ok(())
    })
}

fn of_seconds(seconds: f64) -> PyResult<Timestamp> {
    // Down to a nanosecond, as `os.utime` does.
    let whole = seconds.floor();
    if !whole.is_finite() || whole.abs() > 1e15 {
        return Err(PyOverflowError::new_err("the time is out of range"));
    }
    let nanos = ((seconds - whole) * 1e9).floor().clamp(0.0, 999_999_999.0);
    in_range(whole as i64, nanos as u32)
}

fn of_nanoseconds(ns: i128) -> PyResult<Timestamp> {
    let secs = i64::try_from(ns.div_euclid(1_000_000_000))
        .map_err(|_| PyOverflowError::new_err("the time is out of range"))?;
    in_range(secs, ns.rem_euclid(1_000_000_000) as u32)
}

fn in_range(secs: i64, nanos: u32) -> PyResult<Timestamp> {
    let time = Timestamp { secs, nanos };
    if !(Timestamp::MIN.secs..=Timestamp::MAX.secs).contains(&secs) {
        return Err(PyOverflowError::new_err(
            "ext4 keeps times from 1901 to 2446",
        ));
    }
    Ok(time)
}

pub(crate) fn listxattr(
    volume: &Volume,
    py: Python<'_>,
    path: &ImagePath,
    follow: bool,
) -> PyResult<Py<PyList>> {
    let names = volume.do_with(py, |fs| {
        let path = followed(fs, path.as_path(), follow)?;
        Ok(fs.list_xattrs(path)?)
    })?;
    let list = PyList::empty(py);
    for name in names {
        // As `os.listxattr`: text, whatever the path was.
        list.append(give(py, name.as_bytes(), false)?)?;
    }
    Ok(list.unbind())
}

fn attribute(name: &ImagePath) -> &OsStr {
    OsStr::from_bytes(name.bytes())
}

fn missing(path: &ImagePath) -> Failure {
    Failure {
        errno: errno::ENODATA,
        path: Some(path.bytes().to_vec()),
        ..Failure::invalid("there is no such attribute")
    }
}

pub(crate) fn getxattr<'py>(
    volume: &Volume,
    py: Python<'py>,
    path: &ImagePath,
    name: &ImagePath,
    follow: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let value = volume.do_with(py, |fs| {
        let at = followed(fs, path.as_path(), follow)?;
        fs.get_xattr(at, attribute(name))?
            .ok_or_else(|| missing(path))
    })?;
    Ok(PyBytes::new(py, &value))
}

pub(crate) fn setxattr(
    volume: &Volume,
    py: Python<'_>,
    (path, follow): (&ImagePath, bool),
    name: &ImagePath,
    value: &Bound<'_, PyAny>,
    flags: u32,
) -> PyResult<()> {
    let condition = match flags {
        0 => SetXattr::Any,
        XATTR_CREATE => SetXattr::Create,
        XATTR_REPLACE => SetXattr::Replace,
        _ => {
            return Err(PyValueError::new_err(
                "flags are 0, XATTR_CREATE or XATTR_REPLACE",
            ));
        }
    };
    let memory = Memory::reading(value)?;
    let bytes = memory.bytes();
    volume.do_with(py, |fs| {
        let path = followed(fs, path.as_path(), follow)?;
        Ok(fs.set_xattr_if(path, attribute(name), bytes, condition)?)
    })
}

pub(crate) fn removexattr(
    volume: &Volume,
    py: Python<'_>,
    path: &ImagePath,
    name: &ImagePath,
    follow: bool,
) -> PyResult<()> {
    volume.do_with(py, |fs| {
        let path = followed(fs, path.as_path(), follow)?;
        Ok(fs.remove_xattr(path, attribute(name))?)
    })
}
