//! Which way the content of a file takes: chosen once for each operation.
//!
//! | way | chosen where | implemented in |
//! |---|---|---|
//! | [`Inline`](Way::Inline) | the content lies in the inode | `inline` |
//! | [`Dax`](Way::Dax) | the device is memory | `direct/dax` |
//! | [`Direct`](Way::Direct) | the caller asks to go past memory, and writes wait there | `direct/mod` |
//! | [`Buffered`](Way::Buffered) | writes wait in memory | `buffered` |
//! | [`Through`](Way::Through) | each write goes to the device at once | `through` |
//!
//! What is most frequent is tried before a way is chosen: bytes that memory has already, rows of
//! blocks that are known.

use crate::Result;
use crate::data::buffered::{self, fast_path};
use crate::data::direct::{self, dax};
use crate::data::inline;
use crate::data::io::{Position, WriteOptions, is_inline_file};
use crate::data::through;
use crate::fs::{DataMode, Fs};
use crate::inode::Held;

/// The way between a caller and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum Way {
    /// The content lies in the inode: each change is one of the record.
    Inline,
    /// The device is memory, to and from which bytes are copied.
    Dax,
    /// Past the memory of the file, which agrees with the device.
    Direct,
    /// Through the memory of the file, which is written back later.
    Buffered,
    /// To the device at once; memory has nothing of the file.
    Through,
}

/// What an operation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The usual way of the file system.
    Usual,
    /// Past memory where there is any in between.
    PastMemory,
}

impl Way {
    /// Returns the usual way of content outside inodes, which is the same for all files of a file
    /// system.
    pub(in crate::data) fn usual(is_dax: bool, mode: DataMode) -> Self {
        match mode {
            _ if is_dax => Self::Dax,
            DataMode::Delayed | DataMode::Placed => Self::Buffered,
            DataMode::Through => Self::Through,
        }
    }

    /// Returns the way of an operation on a file.
    #[inline]
    fn of(fs: &Fs, is_inline: bool, access: Access) -> Self {
        match (fs.data().way(), access) {
            _ if is_inline => Self::Inline,
            (Self::Buffered, Access::PastMemory) => Self::Direct,
            (way, _) => way,
        }
    }
}

/// Reads from byte `offset` of a regular file that others may change meanwhile. Returns how much
/// was read: less than the buffer holds only at the end of the file, 0 past it.
///
/// Bytes that are being overwritten at the same time may be old or new, each by itself.
///
/// # Errors
/// As for [`read_at`](crate::data::read_at).
pub fn read_live(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let done = match fs.data().way() {
        Way::Dax => dax::read_known_row(fs, held, offset, buf)?,
        _ => fast_path::read(fs, held, offset, buf),
    };
    match done {
        Some(len) => Ok(len),
        None => read(fs, held, offset, buf, Access::Usual),
    }
}

/// Reads from byte `offset` of a regular file past memory. Returns how much was read: less than the
/// buffer holds only at the end of the file, 0 past it.
///
/// # Errors
/// [`Misaligned`](crate::Error::Misaligned) unless `offset` and the length of `buf` are multiples
/// of a sector of the device; as for [`read_live`].
pub fn read_direct(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    direct::check_aligned(fs, offset, buf.len())?;
    let done = match fs.data().way() {
        Way::Dax => dax::read_known_row(fs, held, offset, buf)?,
        _ => direct::read_bypassed(fs, held, offset, buf)?,
    };
    match done {
        Some(len) => Ok(len),
        None => read(fs, held, offset, buf, Access::PastMemory),
    }
}

fn read(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8], access: Access) -> Result<usize> {
    loop {
        return match Way::of(fs, is_inline_file(held)?, access) {
            Way::Inline => match inline::read(fs, held, offset, buf)? {
                Some(len) => Ok(len),
                // It has outgrown the inode since, for ever.
                None => continue,
            },
            Way::Dax => dax::read(fs, held, offset, buf),
            Way::Direct => direct::read(fs, held, offset, buf),
            Way::Buffered => buffered::read::read(fs, held.live(), offset, buf),
            Way::Through => through::read::read(fs, held, offset, buf),
        };
    }
}

/// Writes `buf` at byte `offset` of a regular file, which grows if it ends before. Returns how much
/// was written: less than all only when something failed after a part was written, such as space
/// that ran out.
///
/// # Errors
/// When nothing was written: [`Error::IsADirectory`] or [`Error::NotARegularFile`] for anything but
/// a regular file, [`Error::FileTooLarge`] past what the map can reach, [`Error::NoSpace`],
/// [`Error::ReadOnly`], [`Error::Unsupported`] for files whose map this engine does not change,
/// [`Error::Corrupt`] when the map breaks the format, [`Error::Device`] when the device fails.
///
/// [`Error::IsADirectory`]: crate::Error::IsADirectory
/// [`Error::NotARegularFile`]: crate::Error::NotARegularFile
/// [`Error::FileTooLarge`]: crate::Error::FileTooLarge
/// [`Error::NoSpace`]: crate::Error::NoSpace
/// [`Error::ReadOnly`]: crate::Error::ReadOnly
/// [`Error::Unsupported`]: crate::Error::Unsupported
/// [`Error::Corrupt`]: crate::Error::Corrupt
/// [`Error::Device`]: crate::Error::Device
pub fn write_at(fs: &Fs, held: &Held, offset: u64, buf: &[u8]) -> Result<usize> {
    write_with(fs, held, offset, buf, WriteOptions::default())
}

/// Writes as [`write_at`] does, in a certain way.
///
/// # Errors
/// As for [`write_at`].
pub fn write_with(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<usize> {
    fs.journal()?.check_open()?;
    if fs.data().way() == Way::Dax
        && let Some(written) = dax::write_known_row(fs, held, offset, buf, options)?
    {
        return Ok(written);
    }
    let to = Position::Byte(offset);
    write(fs, held, to, buf, options, Access::Usual).map(|(_, written)| written)
}

/// Writes `buf` at the end of a regular file, wherever that is when no other write is under way.
/// Returns where that was, and how much was written.
///
/// # Errors
/// As for [`write_at`].
pub fn append(fs: &Fs, held: &Held, buf: &[u8], options: WriteOptions<'_>) -> Result<(u64, usize)> {
    fs.journal()?.check_open()?;
    write(fs, held, Position::End, buf, options, Access::Usual)
}

/// Writes `buf` at byte `offset` of a regular file, past memory; the file grows if it ends before.
/// Returns how much was written.
///
/// # Errors
/// [`Misaligned`](crate::Error::Misaligned) unless `offset` and the length of `buf` are multiples
/// of a sector of the device; as for [`write_at`].
pub fn write_direct(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<usize> {
    // Overwriting takes no handle, which would find this.
    fs.journal()?.check_open()?;
    direct::check_aligned(fs, offset, buf.len())?;
    let done = match fs.data().way() {
        Way::Dax => dax::write_known_row(fs, held, offset, buf, options)?,
        _ => direct::write_bypassed(fs, held, offset, buf, options)?,
    };
    if let Some(written) = done {
        return Ok(written);
    }
    let to = Position::Byte(offset);
    write(fs, held, to, buf, options, Access::PastMemory).map(|(_, written)| written)
}

/// Writes `buf` at the end of a regular file, past memory. Returns where that was, and how much was
/// written.
///
/// # Errors
/// As for [`write_direct`]; [`Misaligned`](crate::Error::Misaligned) also when the file does not
/// end at a sector.
pub fn append_direct(
    fs: &Fs,
    held: &Held,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<(u64, usize)> {
    fs.journal()?.check_open()?;
    direct::check_aligned(fs, 0, buf.len())?;
    write(fs, held, Position::End, buf, options, Access::PastMemory)
}

// Into each of its callers, for which most of this is known.
#[inline(always)]
fn write(
    fs: &Fs,
    held: &Held,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
    access: Access,
) -> Result<(u64, usize)> {
    loop {
        return match Way::of(fs, held.is_inline(), access) {
            Way::Inline if access == Access::PastMemory => {
                inline::outgrow(fs, held)?;
                continue;
            }
            Way::Inline => match inline::write(fs, held, to, buf, options)? {
                Some(done) => Ok(done),
                // It has outgrown the inode, for ever.
                None => continue,
            },
            Way::Dax => dax::write(fs, held, to, buf, options),
            Way::Direct => direct::write(fs, held, to, buf, options),
            Way::Buffered => buffered::write(fs, held, to, buf, options),
            Way::Through => through::write::write(fs, held, to, buf, options),
        };
    }
}
