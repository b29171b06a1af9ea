//! Positioned transfers, as each system has them.

use std::fs::File;
use std::io;

/// A file that is read and written at places that each transfer names.
#[derive(Debug)]
pub(super) struct Positioned(File);

impl Positioned {
    pub(super) fn new(file: File) -> Self {
        Self(file)
    }

    /// Returns the file, for what is done to it as a whole.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

#[cfg(unix)]
impl Positioned {
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buf, offset)
    }

    pub(super) fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(&self.0, buf, offset)
    }
}

/// The file's own position moves too, which means nothing here.
#[cfg(windows)]
impl Positioned {
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.0, buf, offset)
    }

    pub(super) fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.0, buf, offset)
    }
}

/// There are no files, as in WebAssembly alone: programs bring devices of their own.
#[cfg(not(any(unix, windows)))]
impl Positioned {
    pub(super) fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn write_at(&self, _offset: u64, _buf: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
