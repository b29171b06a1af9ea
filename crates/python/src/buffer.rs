//! Memory of Python objects that data is read into and written from.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::slice;

/// The memory of an object, which stays where it is and as long as it is meanwhile.
pub(crate) struct Memory(Box<ffi::Py_buffer>);

// SAFETY: the buffer's description is only read, and what it points to may be used by any thread as
// long as the buffer is not released. That is done with the GIL.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes memory to read from.
    pub(crate) fn reading(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(object, ffi::PyBUF_SIMPLE)
    }

    /// Takes memory to write to.
    pub(crate) fn writing(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(object, ffi::PyBUF_WRITABLE)
    }

    fn new(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut buffer = Box::new(MaybeUninit::<ffi::Py_buffer>::zeroed());
        // SAFETY: the object lives, and the pointer is to a description that is ours. Where the
        // call succeeds it has filled the description.
        let done = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), buffer.as_mut_ptr(), flags) };
        if done != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: filled by the call above; all zeros is a value of each of its fields.
        let memory = Self(unsafe { buffer.assume_init() });
        if memory.0.len < 0 || (memory.0.buf.is_null() && memory.0.len > 0) {
            return Err(PyBufferError::new_err("the buffer has no memory"));
        }
        Ok(memory)
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.0.len.unsigned_abs()
    }

    /// The bytes, to be read.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: a simple buffer is contiguous, its memory has `len` bytes and stays until it is
        // released. What other threads of the program write there meanwhile is their mistake, as
        // with write(2): the bytes are copied and never relied upon.
        unsafe { slice::from_raw_parts(self.0.buf.cast::<u8>(), self.len()) }
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: as for `bytes`; the memory was asked for to be written to.
        unsafe { slice::from_raw_parts_mut(self.0.buf.cast::<u8>(), self.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: filled by the object, released once, with the GIL.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
        });
    }
}
