//! Open files, below the classes of `io`.

use crate::buffer::Memory;
use crate::call::{let_go, outside, process};
use crate::error::Failure;
use crate::path::ImagePath;
use crate::stat::Stat;
use crate::volume::Shared;
use extant::{File, OpenOptions};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are read before it is looked for signals.
const PIECE: usize = 16 << 20;

/// `lseek(2)`.
const SEEK_SET: i32 = 0;
const SEEK_CUR: i32 = 1;
const SEEK_END: i32 = 2;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// A length or an offset, which is not negative.
pub(crate) fn not_negative(number: i64) -> Result<u64, Failure> {
    u64::try_from(number).map_err(|_| Failure::invalid("Invalid argument"))
}

fn number(py: Python<'_>, number: i64) -> PyResult<u64> {
    not_negative(number).map_err(|e| e.raise(py))
}

/// An open file as long as neither it nor its file system is closed.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<Arc<File>>>);

impl Slot {
    /// Takes the file out. It is to be dropped without the GIL.
    pub(crate) fn take(&self) -> Option<Arc<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn file(&self) -> Option<Arc<File>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// An open file with a position: what `io.RawIOBase` asks for.
#[pyclass(frozen, module = "extant._native")]
#[derive(Debug)]
pub(crate) struct RawFile {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    /// Held while it is in use, without the GIL.
    position: Mutex<u64>,
    is_appending: bool,
    /// The process that opened it.
    process: u32,
}

impl RawFile {
    pub(crate) fn open(
        py: Python<'_>,
        shared: &Arc<Shared>,
        path: &ImagePath,
        options: &OpenOptions,
        is_appending: bool,
    ) -> PyResult<Self> {
        let fs = shared.fs()?;
        let file = outside(py, move || {
            let file = options.open(&fs, path.as_path())?;
            let end = if is_appending {
                file.metadata().len()
            } else {
                0
            };
            Ok::<_, extant::Error>((Arc::new(file), end))
        });
        let (file, end) = file?;
        let slot = Arc::new(Slot(Mutex::new(Some(file))));
        if let Err(e) = shared.keep(&slot) {
            // Closed in between.
            let_go(slot.take());
            return Err(e);
        }
        Ok(Self {
            shared: Arc::clone(shared),
            slot,
            position: Mutex::new(end),
            is_appending,
            process: process(),
        })
    }

    fn file(&self) -> PyResult<Arc<File>> {
        self.shared.check_reentry()?;
        match self.slot.file() {
            Some(file) => Ok(file),
            None if self.shared.is_closed() => Err(PyValueError::new_err(
                "I/O operation on a closed file system",
            )),
            None => Err(PyValueError::new_err("I/O operation on closed file.")),
        }
    }

    /// Does something at the position, and moves it as far as that says.
    fn at_position<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&File, &mut u64) -> extant::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file()?;
        outside(py, move || {
            let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
            work(&file, &mut position)
        })
    }

    /// Reads up to `len` bytes.
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        len: usize,
        offset: Option<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut done = 0;
        let bytes = PyBytes::new_with(py, len, |buf| {
            while done < buf.len() {
                let end = buf.len().min(done + PIECE);
                let Some(piece) = buf.get_mut(done..end) else {
                    break;
                };
                let read = match offset {
                    Some(offset) => {
                        let (file, at) = (self.file()?, offset.saturating_add(done as u64));
                        outside(py, move || file.read_at(piece, at))?
                    }
                    None => self.at_position(py, |file, position| {
                        let read = file.read_at(piece, *position)?;
                        *position += read as u64;
                        Ok(read)
                    })?,
                };
                done += read;
                py.check_signals()?;
                if read == 0 {
                    break;
                }
            }
            Ok(())
        })?;
        if done < len {
            return Ok(PyBytes::new(
                py,
                bytes.as_bytes().get(..done).unwrap_or_default(),
            ));
        }
        Ok(bytes)
    }

    /// How much there is from an offset on.
    fn rest(&self, py: Python<'_>, offset: Option<u64>) -> PyResult<usize> {
        let rest = self.at_position(py, |file, position| {
            let at = offset.unwrap_or(*position);
            Ok(file.metadata().len().saturating_sub(at))
        })?;
        usize::try_from(rest).map_err(|_| PyOverflowError::new_err("the file is too large"))
    }
}

#[pymethods]
impl RawFile {
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut memory = Memory::writing(buffer)?;
        let read = {
            let bytes = memory.bytes_mut();
            self.at_position(py, |file, position| {
                let read = file.read_at(bytes, *position)?;
                *position += read as u64;
                Ok(read)
            })
        };
        drop(memory);
        read
    }

    /// Reads up to `size` bytes, or all that follow.
    #[pyo3(signature = (size=-1, /))]
    fn read<'py>(&self, py: Python<'py>, size: isize) -> PyResult<Bound<'py, PyBytes>> {
        let rest = self.rest(py, None)?;
        let len = usize::try_from(size).map_or(rest, |size| size.min(rest));
        self.read_bytes(py, len, None)
    }

    /// Reads up to `size` bytes from byte `offset`, and leaves the position alone.
    fn pread<'py>(&self, py: Python<'py>, size: i64, offset: i64) -> PyResult<Bound<'py, PyBytes>> {
        let (size, offset) = (number(py, size)?, number(py, offset)?);
        let rest = self.rest(py, Some(offset))?;
        let len = usize::try_from(size).map_or(rest, |size| size.min(rest));
        self.read_bytes(py, len, Some(offset))
    }

    /// Reads into a buffer from byte `offset`, and leaves the position alone.
    fn preadinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: i64) -> PyResult<usize> {
        let offset = number(py, offset)?;
        let mut memory = Memory::writing(buffer)?;
        let read = {
            let (file, bytes) = (self.file()?, memory.bytes_mut());
            outside(py, move || file.read_at(bytes, offset))
        };
        drop(memory);
        read
    }

    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let memory = Memory::reading(data)?;
        let bytes = memory.bytes();
        let is_appending = self.is_appending;
        self.at_position(py, |file, position| {
            if is_appending {
                let (at, written) = file.append(bytes)?;
                *position = at + written as u64;
                return Ok(written);
            }
            let written = file.write_at(bytes, *position)?;
            *position += written as u64;
            Ok(written)
        })
    }

    /// Writes at byte `offset`, and leaves the position alone.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: i64) -> PyResult<usize> {
        let offset = number(py, offset)?;
        let memory = Memory::reading(data)?;
        let (file, bytes) = (self.file()?, memory.bytes());
        outside(py, move || file.write_at(bytes, offset))
    }

    #[pyo3(signature = (offset, whence=0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        if !(SEEK_SET..=SEEK_HOLE).contains(&whence) {
            return Err(PyValueError::new_err(format!(
                "invalid whence ({whence}, should be 0, 1, 2, os.SEEK_DATA or os.SEEK_HOLE)"
            )));
        }
        let file = self.file()?;
        outside(py, move || {
            let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
            let base = match whence {
                SEEK_CUR => *position,
                SEEK_END => file.metadata().len(),
                _ => 0,
            };
            let Some(mut to) = base.checked_add_signed(offset) else {
                return Err(Failure::invalid("Invalid argument"));
            };
            if matches!(whence, SEEK_DATA | SEEK_HOLE) {
                let found = if whence == SEEK_DATA {
                    file.seek_data(to)?
                } else {
                    file.seek_hole(to)?
                };
                to = found.ok_or_else(|| Failure {
                    errno: extant::errno::ENXIO,
                    ..Failure::invalid("No such device or address")
                })?;
            }
            *position = to;
            Ok(to)
        })
    }

    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.at_position(py, |_, position| Ok(*position))
    }

    /// Makes the file `size` bytes long; as long as its position says without that.
    #[pyo3(signature = (size=None, /))]
    fn truncate(&self, py: Python<'_>, size: Option<i64>) -> PyResult<u64> {
        let size = size.map(|size| number(py, size)).transpose()?;
        self.at_position(py, |file, position| {
            let size = size.unwrap_or(*position);
            file.set_len(size)?;
            Ok(size)
        })
    }

    /// Makes what was written durable (`fsync`); with `data_only` without the times (`fdatasync`).
    #[pyo3(signature = (data_only=false))]
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        let file = self.file()?;
        outside(py, move || {
            if data_only {
                file.sync_data()
            } else {
                file.sync_all()
            }
        })
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        let file = self.file()?;
        outside(py, move || {
            Ok::<_, extant::Error>(Stat::new(&file.metadata()))
        })
    }

    /// Reserves blocks, `len` bytes from `offset` on (`posix_fallocate`).
    fn allocate(&self, py: Python<'_>, offset: i64, len: i64) -> PyResult<()> {
        let (offset, len) = (number(py, offset)?, number(py, len)?);
        let file = self.file()?;
        outside(py, move || file.allocate(offset, len))
    }

    /// Makes a hole of `len` bytes from `offset` on.
    fn punch_hole(&self, py: Python<'_>, offset: i64, len: i64) -> PyResult<()> {
        let (offset, len) = (number(py, offset)?, number(py, len)?);
        let file = self.file()?;
        outside(py, move || file.punch_hole(offset, len))
    }

    /// Where the content lies: offset in the file, length, offset on the device, and whether it was
    /// only reserved.
    #[expect(clippy::type_complexity, reason = "what Python gets as tuples")]
    fn extents(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, Option<u64>, bool)>> {
        let file = self.file()?;
        outside(py, move || {
            let extents = file.extents()?;
            let extents = extents
                .iter()
                .map(|e| (e.offset, e.len, e.device_offset, e.unwritten));
            Ok::<_, extant::Error>(extents.collect())
        })
    }

    /// Whether it is closed, or its file system is.
    #[getter]
    fn closed(&self) -> bool {
        self.slot.file().is_none()
    }

    fn close(&self) {
        self.release();
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        self.release();
    }
}

impl RawFile {
    /// Closes it, or leaves it as it is to the process that opened it.
    fn release(&self) {
        let Some(file) = self.slot.take() else { return };
        if self.process != process() {
            // Of a file that has no name any more the other process takes the blocks back.
            let _ = ManuallyDrop::new(file);
        } else {
            let_go(file);
        }
    }

    /// Reads all of it, and closes it.
    pub(crate) fn whole<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let rest = self.rest(py, None)?;
        let bytes = self.read_bytes(py, rest, None);
        self.close();
        bytes
    }
}
