//! Open files.

use crate::{Error, Extent, Filesystem, Metadata, OpenOptions, Result, Timestamp};
use extant_core::fs::{Fs, OpenForWriting};
use extant_core::inode::{Held, Inode};
use extant_core::ops::{self, ErrorMark, OpContext};
use extant_sync::atomic::Ordering;
use extant_sync::{CountedAtomicU64, RmwClass};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open file. [`Read`], [`Write`] and [`Seek`] use a position of its own; [`File::read_at`] and
/// [`File::write_at`] do not, and work from many threads at once.
///
/// `&File` reads, writes and seeks too, from many threads at once: each byte is read once then, and
/// each write has a place of its own. A clone has a position of its own, which begins where that of
/// the file is.
///
/// The file stays while it is open, also when its last name is removed.
pub struct File {
    // Before the mount: giving up the last hold may have work to do there.
    held: Arc<Open>,
    path: PathBuf,
    position: CountedAtomicU64,
    access: Access,
}

static POSITION: RmwClass = RmwClass::new("file position");

impl Clone for File {
    fn clone(&self) -> Self {
        Self {
            held: Arc::clone(&self.held),
            path: self.path.clone(),
            position: CountedAtomicU64::new(&POSITION, self.position()),
            access: self.access,
        }
    }
}

/// What an open file keeps.
struct Open {
    held: Option<Held>,
    /// What it was told about failures of writing back.
    mark: ErrorMark,
    /// For callers that may write it.
    _writing: Option<OpenForWriting>,
    fs: Filesystem,
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        if let Err(e) = ops::release(self.fs.fs(), held) {
            extant_core::event!(warn, "a file without names was not deleted: {e}");
        }
    }
}

/// What the file was opened for.
#[derive(Clone, Copy, Debug)]
struct Access {
    read: bool,
    write: bool,
    append: bool,
    direct: bool,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("ino", &self.inode().ino())
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn new(
        fs: Filesystem,
        held: Held,
        path: PathBuf,
        options: &OpenOptions,
        writing: Option<OpenForWriting>,
    ) -> Self {
        Self {
            held: Arc::new(Open {
                mark: ErrorMark::new(&held),
                held: Some(held),
                _writing: writing,
                fs,
            }),
            path,
            position: CountedAtomicU64::new(&POSITION, 0),
            access: Access {
                read: options.read,
                write: options.writes(),
                append: options.append,
                direct: options.direct,
            },
        }
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        self.held.fs.fs()
    }

    /// The engine, and the caller that the file was opened for.
    fn by(&self) -> OpContext<'_> {
        self.held.fs.by()
    }

    pub(crate) fn held(&self) -> &Held {
        self.held.held.as_ref().expect("taken out by drop only")
    }

    fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Moves the position, if it is still the same. Returns whether it was.
    fn advance(&self, from: u64, to: u64) -> bool {
        self.position
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn inode(&self) -> Arc<Inode> {
        self.held().view()
    }

    /// Returns the path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads from byte `offset`. Returns how much was read: less than `buf` holds only at the end
    /// of the file, 0 past it. Holes read as zeros.
    ///
    /// # Errors
    /// When the file was not opened for reading, the content is encrypted, its map is corrupt, or
    /// the device fails; when it was opened for direct I/O and `offset` or the length of `buf` is
    /// no multiple of a sector.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if !self.access.read {
            return Err(self.error(extant_core::Error::BadHandle("reading")));
        }
        let read = if !self.access.direct {
            ops::pread(self.fs(), self.held(), offset, buf)
        } else {
            ops::pread_direct(self.fs(), self.held(), offset, buf)
        };
        read.map_err(|e| self.error(e))
    }

    /// Writes at byte `offset`, or at the end of the file if it was opened for appending. Returns
    /// how much was written: less than all of `buf` only when space ran out on the way. A gap
    /// before `offset` reads as zeros and takes no space.
    ///
    /// # Errors
    /// When the file was not opened for writing, no space is left, the file would be too large, its
    /// map is corrupt, or the device fails; when it was opened for direct I/O and `offset` or the
    /// length of `buf` is no multiple of a sector.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        if self.access.append {
            return self.append(buf).map(|(_, written)| written);
        }
        self.check_writable()?;
        let written = if !self.access.direct {
            ops::pwrite(self.by(), self.held(), offset, buf)
        } else {
            ops::pwrite_direct(self.by(), self.held(), offset, buf)
        };
        written.map_err(|e| self.error(e))
    }

    /// Writes all of `buf` at byte `offset`.
    ///
    /// # Errors
    /// As for [`File::write_at`], also when space runs out on the way.
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            done += self.write_at(rest, offset.saturating_add(done as u64))?;
        }
        Ok(())
    }

    /// Writes at the end of the file, wherever that is by now: of many threads that append each
    /// gets a place of its own. Returns the offset and how much was written.
    ///
    /// # Errors
    /// As for [`File::write_at`].
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.check_writable()?;
        let appended = if !self.access.direct {
            ops::append(self.by(), self.held(), buf)
        } else {
            ops::append_direct(self.by(), self.held(), buf)
        };
        appended.map_err(|e| self.error(e))
    }

    /// Makes the file `size` bytes long: what was there beyond is gone, what comes in addition
    /// reads as zeros and takes no space.
    ///
    /// # Errors
    /// As for [`File::write_at`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.check_writable()?;
        ops::ftruncate(self.by(), self.held(), size).map_err(|e| self.error(e))
    }

    /// Reserves blocks for `len` bytes from `offset` on, so that writing them does not run out of
    /// space. Where there was nothing the file reads as zeros, as before; it grows if it ends
    /// before the range does. What `fallocate` does.
    ///
    /// # Errors
    /// When the file was not opened for writing, no space is left (what was reserved until then
    /// stays), the range is empty, the file would be too large or is mapped by indirect blocks, its
    /// map is corrupt, or the device fails.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.reserve(offset, len, false)
    }

    /// Takes blocks as [`File::allocate`] does without changing the file's length: they may lie
    /// behind its end.
    ///
    /// # Errors
    /// As for [`File::allocate`].
    pub fn allocate_keep_size(&self, offset: u64, len: u64) -> Result<()> {
        self.reserve(offset, len, true)
    }

    fn reserve(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.check_writable()?;
        let mode = ops::FallocateMode { keep_size };
        ops::fallocate(self.by(), self.held(), offset, len, mode).map_err(|e| self.error(e))
    }

    /// Makes a hole of `len` bytes from `offset` on: they read as zeros, and whole blocks are given
    /// back. The length of the file stays.
    ///
    /// # Errors
    /// When the file was not opened for writing, the range is empty, the map is corrupt, or the
    /// device fails.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        ops::punch_hole(self.by(), self.held(), offset, len).map_err(|e| self.error(e))
    }

    /// Makes `len` bytes from `offset` on zeros, whose space stays reserved; the file grows if it
    /// ends before the range does.
    ///
    /// # Errors
    /// As for [`File::allocate`].
    pub fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        ops::zero_range(self.by(), self.held(), offset, len, false).map_err(|e| self.error(e))
    }

    /// Makes zeros of a range as [`File::zero_range`] does, without changing the file's length.
    ///
    /// # Errors
    /// As for [`File::allocate`].
    pub fn zero_range_keep_size(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        ops::zero_range(self.by(), self.held(), offset, len, true).map_err(|e| self.error(e))
    }

    /// Takes `len` bytes from `offset` on out of the file: what follows moves up, without being
    /// copied. Both must be multiples of the block size, and the range must end before the file
    /// does.
    ///
    /// # Errors
    /// When that is not so; as for [`File::allocate`].
    pub fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        ops::collapse_range(self.by(), self.held(), offset, len).map_err(|e| self.error(e))
    }

    /// Puts a hole of `len` bytes into the file at `offset`: what was there moves back, without
    /// being copied. Both must be multiples of the block size, and `offset` must lie inside the
    /// file.
    ///
    /// # Errors
    /// When that is not so, or the file would be too large; as for [`File::allocate`].
    pub fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        ops::insert_range(self.by(), self.held(), offset, len).map_err(|e| self.error(e))
    }

    /// Copies up to `len` bytes from `offset` of this file to `to_offset` of another one of the
    /// same file system, or of this one where the ranges do not overlap. Holes are not written.
    /// Returns how much was copied: less than `len` only at the end of this file.
    ///
    /// # Errors
    /// As for [`File::read_at`] and [`File::write_at`]; when `to` was opened for appending, or lies
    /// on another file system.
    pub fn copy_range(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        if !Arc::ptr_eq(self.fs(), to.fs()) {
            return Err(to.error(extant_core::Error::OtherFileSystem));
        }
        if !self.access.read {
            return Err(self.error(extant_core::Error::BadHandle("reading")));
        }
        to.check_writable()?;
        if to.access.append {
            return Err(to.error(extant_core::Error::BadHandle(
                "writing anywhere but at the end",
            )));
        }
        let (from, into) = ((self.held(), offset), (to.held(), to_offset));
        ops::copy_range(to.by(), from, into, len).map_err(|e| to.error(e))
    }

    /// Returns the first byte at or after `offset` that was written (`SEEK_DATA`); `None` when
    /// there is none. Blocks that are only reserved count as holes.
    ///
    /// # Errors
    /// When the file's map is corrupt or the device fails.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        ops::seek_data_live(self.fs(), self.held(), offset).map_err(|e| self.error(e))
    }

    /// Returns the first byte at or after `offset` that lies in a hole (`SEEK_HOLE`); the end of
    /// the file counts as one. `None` when `offset` is past the end.
    ///
    /// # Errors
    /// When the file's map is corrupt or the device fails.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        ops::seek_hole_live(self.fs(), self.held(), offset).map_err(|e| self.error(e))
    }

    /// Makes durable what was written to the file, and what is known about it. Returns when it
    /// would survive a crash: at once where the image was opened for reading.
    ///
    /// # Errors
    /// When the device fails, or no space is left after all: what was written since the last
    /// success may be lost. A failure in the background is told here, once to each open file and
    /// its clones.
    pub fn sync_all(&self) -> Result<()> {
        ops::fsync_file(self.fs(), self.held(), &self.held.mark).map_err(|e| self.error(e))
    }

    /// Makes durable what was written to the file and what is needed to read it back, but perhaps
    /// not its times.
    ///
    /// # Errors
    /// As for [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        ops::fdatasync_file(self.fs(), self.held(), &self.held.mark).map_err(|e| self.error(e))
    }

    /// Sets the permissions, with set-user-ID, set-group-ID and sticky bit.
    ///
    /// # Errors
    /// When the caller does not own the file, or the file system is open for reading only.
    pub fn set_permissions(&self, permissions: u16) -> Result<()> {
        ops::chmod(self.by(), self.held(), permissions).map_err(|e| self.error(e))
    }

    /// Sets the times of last access and last change of the content; `None` leaves what is.
    ///
    /// # Errors
    /// As for [`File::set_permissions`].
    pub fn set_times(
        &self,
        accessed: Option<Timestamp>,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        ops::utimens(self.by(), self.held(), accessed, modified).map_err(|e| self.error(e))
    }

    /// Returns what is known about the file besides its content.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata::of(self.fs(), &self.inode())
    }

    /// Returns where the file's content lies: its pieces that have blocks, ascending, also those
    /// reserved behind its end. What lies between them is a hole.
    ///
    /// # Errors
    /// When the file's map is corrupt or the device fails.
    pub fn extents(&self) -> Result<Vec<Extent>> {
        ops::allocated_live(self.fs(), self.held()).map_err(|e| self.error(e))
    }

    fn check_writable(&self) -> Result<()> {
        if self.access.write {
            Ok(())
        } else {
            Err(self.error(extant_core::Error::BadHandle("writing")))
        }
    }

    fn error(&self, e: extant_core::Error) -> Error {
        Error::engine(&self.path, e)
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let at = self.position();
            let read = self.read_at(buf, at)?;
            // What another thread has read meanwhile is its own.
            if self.advance(at, at + read as u64) {
                return Ok(read);
            }
        }
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.access.append {
            let (at, written) = self.append(buf)?;
            self.position.store(at + written as u64, Ordering::Release);
            return Ok(written);
        }
        // The place is taken first, so that no other thread writes there.
        let (at, end) = loop {
            let at = self.position();
            let end = at.saturating_add(buf.len() as u64);
            if self.advance(at, end) {
                break (at, end);
            }
        };
        let written = self.write_at(buf, at);
        let done = at + written.as_ref().map_or(0, |written| *written as u64);
        if done != end {
            // Unless another thread went on behind it.
            self.advance(end, done);
        }
        Ok(written?)
    }

    /// Does nothing: nothing is kept back here. [`File::sync_all`] makes what was written durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        loop {
            let at = self.position();
            let position = match to {
                SeekFrom::Start(offset) => Some(offset),
                SeekFrom::End(offset) => self.inode().size().checked_add_signed(offset),
                SeekFrom::Current(offset) => at.checked_add_signed(offset),
            };
            let position = position.ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "seek to a position before the start of the file",
                )
            })?;
            if self.advance(at, position) {
                return Ok(position);
            }
        }
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    /// Does nothing: nothing is kept back here. [`File::sync_all`] makes what was written durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
