//! Devices that are Python objects: seekable binary files.
//!
//! Such a file has one position, so one transfer at a time is under way. The lock is taken without
//! the GIL and before it, and so is never waited for by a thread that has the GIL.

use crate::buffer::Memory;
use crate::call::{Busy, keep};
use extant::device::{read_gathered, write_gathered};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult};
use pyo3::exceptions::{PyException, PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Mutex, PoisonError};

/// Bytes of one transfer at most.
const PIECE: usize = 1 << 20;

/// How often a transfer begins anew after Ctrl-C and the like, which shall end the call and not
/// break a change in the middle of it.
const INTERRUPTIONS: usize = 8;

/// A Python file as a device.
pub(crate) struct PythonFile {
    file: Py<PyAny>,
    size: u64,
    is_read_only: bool,
    name: String,
    /// Held while the file's position is in use; whether what is written is known to go there.
    position: Mutex<bool>,
}

impl fmt::Debug for PythonFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonFile")
            .field("name", &self.name)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl PythonFile {
    /// Takes a file. What it cannot do is found out now, as far as it says so.
    pub(crate) fn new(file: &Bound<'_, PyAny>, is_writable: bool) -> PyResult<Self> {
        let needs = |asked: &str, what: &str| -> PyResult<()> {
            if file.hasattr(asked)? && !file.call_method0(asked)?.is_truthy()? {
                let text = format!("the file that the image lies on is not {what}");
                return Err(PyErr::new::<PyOSError, _>((extant::errno::EINVAL, text)));
            }
            Ok(())
        };
        let io = file.py().import("io")?;
        if file.is_instance(&io.getattr("TextIOBase")?)? {
            return Err(PyTypeError::new_err(
                "the file that the image lies on is open as text: open it with a \"b\" in the mode",
            ));
        }
        needs("readable", "open for reading")?;
        needs("seekable", "seekable")?;
        if is_writable {
            needs("writable", "open for writing")?;
            if appends(file) {
                return Err(appending("the file that the image lies on"));
            }
        }
        let size = end(file)?;
        let name = file.getattr("name").ok();
        let name = name.and_then(|name| name.str().ok());
        let name = name.map_or_else(|| "the file object".to_owned(), |name| name.to_string());
        Ok(Self {
            file: file.clone().unbind(),
            size,
            is_read_only: !is_writable,
            name,
            position: Mutex::new(false),
        })
    }

    /// What tells it from other devices of this process.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn transfer(
        &self,
        op: &'static str,
        offset: u64,
        len: usize,
        mut work: impl FnMut(Python<'_>, &Bound<'_, PyAny>, &mut bool) -> PyResult<()>,
    ) -> DeviceResult<()> {
        let mut held = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let done = Python::try_attach(|py| {
            let _busy = Busy::with(self.id());
            for _ in 0..INTERRUPTIONS {
                match work(py, self.file.bind(py), &mut held) {
                    Err(e) if !e.is_instance_of::<PyException>(py) => keep(py, e),
                    done => return done.map_err(|e| failed(py, e)),
                }
            }
            Err(io::Error::from(io::ErrorKind::Interrupted))
        });
        drop(held);
        let gone = || Err(io::Error::other("the Python interpreter has ended"));
        done.unwrap_or_else(gone).map_err(|source| DeviceError::Io {
            op,
            device: self.name.clone(),
            offset,
            len: len as u64,
            source,
        })
    }
}

/// How long a file is.
fn end(file: &Bound<'_, PyAny>) -> PyResult<u64> {
    file.call_method1("seek", (0, 2))?;
    file.call_method0("tell")?.extract()
}

/// Whether all that is written goes to the end of a file, as far as that can be asked.
fn appends(file: &Bound<'_, PyAny>) -> bool {
    let is_append =
        |mode: &str| mode.contains('a') && mode.bytes().all(|letter| b"arwxbt+".contains(&letter));
    let mode = file.getattr("mode").ok();
    if mode.is_some_and(|mode| mode.extract::<&str>().is_ok_and(is_append)) {
        return true;
    }
    let flags = || -> PyResult<bool> {
        let number = file.call_method0("fileno")?;
        let fcntl = file.py().import("fcntl")?;
        let flags = fcntl.call_method1("fcntl", (number, fcntl.getattr("F_GETFL")?))?;
        let append = file.py().import("os")?.getattr("O_APPEND")?;
        flags.bitand(append)?.is_truthy()
    };
    // What has no descriptor is asked by its first write.
    flags().unwrap_or(false)
}

fn appending(name: &str) -> PyErr {
    let text = format!("{name} is open for appending: open it with the mode \"r+b\"");
    PyErr::new::<PyOSError, _>((extant::errno::EINVAL, text))
}

/// Keeps an exception, and says what it is to the engine.
fn failed(py: Python<'_>, e: PyErr) -> io::Error {
    let errno = e.value(py).getattr("errno").and_then(|n| n.extract());
    let source = match errno {
        Ok(errno) if errno > 0 => io::Error::from_raw_os_error(errno),
        _ => io::Error::other(e.to_string()),
    };
    keep(py, e);
    source
}

impl BlockDevice for PythonFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let len = buf.len();
        self.transfer("read", offset, len, |_, file, _| {
            file.call_method1("seek", (offset,))?;
            let mut rest = &mut *buf;
            while !rest.is_empty() {
                let wanted = rest.len().min(PIECE);
                let read = file.call_method1("read", (wanted,))?;
                let read = Memory::reading(&read)?;
                let read = read.bytes();
                if read.is_empty() || read.len() > wanted {
                    let text = format!("read() gave {} bytes of {wanted}", read.len());
                    return Err(PyErr::new::<PyOSError, _>((extant::errno::EIO, text)));
                }
                let (now, later) = rest.split_at_mut(read.len());
                now.copy_from_slice(read);
                rest = later;
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        self.transfer("write", offset, buf.len(), |py, file, is_known| {
            let size = if *is_known { 0 } else { end(file)? };
            file.call_method1("seek", (offset,))?;
            let mut rest = buf;
            while !rest.is_empty() {
                let (now, _) = rest.split_at(rest.len().min(PIECE));
                let written = file.call_method1("write", (PyBytes::new(py, now),))?;
                let written = written.extract::<Option<usize>>()?.unwrap_or(0);
                if written == 0 || written > now.len() {
                    let text = format!("write() took {written} bytes of {}", now.len());
                    return Err(PyErr::new::<PyOSError, _>((extant::errno::EIO, text)));
                }
                rest = rest.get(written..).unwrap_or_default();
            }
            if !*is_known {
                // A wrapper around a file that appends does not say so.
                file.call_method0("flush")?;
                if end(file)? != size {
                    return Err(appending(&self.name));
                }
                *is_known = true;
            }
            Ok(())
        })
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        read_gathered(self, offset, bufs, PIECE)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        write_gathered(self, offset, bufs, PIECE)
    }

    fn flush(&self) -> DeviceResult<()> {
        if self.is_read_only {
            return Ok(());
        }
        self.transfer("flush", 0, 0, |py, file, _| {
            file.call_method0("flush")?;
            // What has a descriptor can be made durable, and the promise is that it is.
            match file.call_method0("fileno") {
                Ok(number) => {
                    py.import("os")?.call_method1("fsync", (number,))?;
                    Ok(())
                }
                Err(_) => Ok(()),
            }
        })
    }
}
