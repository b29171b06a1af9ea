//! Open files.

use crate::{Error, Extent, Metadata, Result};
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open file. Reading through [`Read`] and [`Seek`] uses a position of its own;
/// [`File::read_at`] does not, and works from many threads at once.
#[derive(Clone)]
pub struct File {
    fs: Arc<Fs>,
    inode: Arc<Inode>,
    path: PathBuf,
    position: u64,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("ino", &self.inode.ino())
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn new(fs: Arc<Fs>, inode: Arc<Inode>, path: PathBuf) -> Self {
        Self {
            fs,
            inode,
            path,
            position: 0,
        }
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads from byte `offset`. Returns how much was read: less than `buf` holds only at the end of
    /// the file, 0 past it. Holes read as zeros.
    ///
    /// # Errors
    /// When the content is encrypted, its map is corrupt, or the device fails.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        ops::read(&self.fs, &self.inode, offset, buf).map_err(|e| self.error(e))
    }

    /// What is known about the file besides its content.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata::of(&self.fs, &self.inode)
    }

    /// Where the file's content lies: its pieces that have blocks, ascending. What lies between
    /// them is a hole.
    ///
    /// Items are errors when the file's map is corrupt or the device fails.
    pub fn extents(&self) -> impl Iterator<Item = Result<Extent>> + '_ {
        ops::extents(&self.fs, &self.inode).map(|piece| piece.map_err(|e| self.error(e)))
    }

    fn error(&self, e: extant_core::Error) -> Error {
        Error::engine(&self.path, e)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(buf, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.inode.size().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "seek to a position before the start of the file",
            )
        })?;
        Ok(self.position)
    }
}
