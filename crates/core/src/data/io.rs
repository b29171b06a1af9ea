//! What reading and writing by any way have in common: options, limits, and a file with its cache.

use crate::alloc::Alloc;
use crate::data::cache::FileCache;
use crate::fs::Fs;
use crate::inode::{Actor, FileType, Held, Inode, LiveInode};
use crate::map::Target;
use crate::{Error, Result};
use extant_format::features::RoCompat;
use extant_format::inode::InodeFlags;
use extant_format::{Pblk, indirect};
use extant_sync::pin;
use std::cell::Cell;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// How content is changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions<'a> {
    /// The origin of the change: it decides which privileges programs lose by it.
    pub actor: Actor<'a>,
}

/// A file whose data is in memory.
pub(super) struct FileIo<'a> {
    pub(super) fs: &'a Fs,
    pub(super) live: &'a Arc<LiveInode>,
    pub(super) cache: &'a Arc<FileCache>,
    /// Binary logarithm of the bytes of a block.
    pub(super) log2: u32,
    /// Writeback made data of reserved space because there was no room for the map of parts of it.
    pub(super) has_converted: Cell<bool>,
}

impl<'a> FileIo<'a> {
    pub(super) fn new(fs: &'a Fs, live: &'a Arc<LiveInode>) -> Self {
        Self {
            fs,
            live,
            cache: live.file_cache_in(fs),
            log2: fs.block_size().log2(),
            has_converted: Cell::new(false),
        }
    }
}

/// A file whose data in memory changes, or goes to the device: its file system is open for writing.
pub(super) struct WriteIo<'a> {
    io: FileIo<'a>,
    /// Where its blocks come from, and go back to.
    pub(super) alloc: &'a Alloc,
}

impl<'a> WriteIo<'a> {
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    #[inline]
    pub(super) fn new(fs: &'a Fs, live: &'a Arc<LiveInode>) -> Result<Self> {
        Ok(Self::with(fs, fs.alloc()?, live))
    }

    /// For a caller that knows the allocator of `fs`.
    #[inline]
    pub(super) fn with(fs: &'a Fs, alloc: &'a Alloc, live: &'a Arc<LiveInode>) -> Self {
        let io = FileIo::new(fs, live);
        Self { io, alloc }
    }
}

impl<'a> Deref for WriteIo<'a> {
    type Target = FileIo<'a>;

    #[inline]
    fn deref(&self) -> &FileIo<'a> {
        &self.io
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    Byte(u64),
    End,
}

/// Tells whether the content of a file lies in its record.
///
/// # Errors
/// When it is no regular file, or its content can be read by nobody without a key.
pub(super) fn is_inline_file(held: &Held) -> Result<bool> {
    let guard = pin();
    let image = held.image(&guard);
    match image.file_type() {
        FileType::Regular if image.is_encrypted() => Err(Error::Encrypted),
        FileType::Regular => Ok(image.is_inline()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::NotARegularFile),
    }
}

/// Returns how many of `len` bytes from byte `offset` on lie inside a file, as its users see it.
#[inline]
pub(super) fn inside_file(live: &LiveInode, offset: u64, len: usize) -> usize {
    let left = live.live_size().saturating_sub(offset);
    usize::try_from(left).unwrap_or(usize::MAX).min(len)
}

/// Refuses what has no content that can be written where it lies.
pub(super) fn check_writable(image: &Inode) -> Result<()> {
    check_changeable(image)?;
    if image.is_inline() {
        Err(Error::Internal("a write inside an inode"))
    } else {
        Ok(())
    }
}

/// Returns the record of a file whose flags say that its content lies outside its inode, without a
/// lock. A change that moves it there shows the flags before the record: its end is waited for.
pub(super) fn image_outside(held: &Held) -> Arc<Inode> {
    let image = held.snapshot();
    if !image.is_inline() {
        return image;
    }
    drop(held.op().read());
    held.snapshot()
}

/// Refuses what has no content that can be changed, wherever that lies.
pub(super) fn check_changeable(image: &Inode) -> Result<()> {
    match image.file_type() {
        FileType::Regular if image.is_encrypted() => Err(Error::Encrypted),
        FileType::Regular
            if image
                .flags()
                .intersects(InodeFlags::VERITY | InodeFlags::IMMUTABLE) =>
        {
            Err(Error::NotPermitted)
        }
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::NotARegularFile),
    }
}

/// Refuses to change what a file has by now if it may only grow.
pub(super) fn check_content(image: &Inode) -> Result<()> {
    if image.flags().contains(InodeFlags::APPEND) {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}

/// One past the last byte that a file can have.
pub(super) fn size_limit(fs: &Fs, image: &Inode) -> u64 {
    let block_size = fs.block_size();
    let blocks = if image.flags().contains(InodeFlags::EXTENTS) {
        u32::MAX.into()
    } else {
        indirect::blocks_reached(block_size).min(most_charged(fs))
    };
    (blocks << block_size.log2()).min(i64::MAX as u64)
}

/// Blocks of a file mapped by indirect blocks that can be charged to it along with those of
/// pointers.
fn most_charged(fs: &Fs) -> u64 {
    if fs.superblock().has_ro_compat(RoCompat::HUGE_FILE) {
        return u64::MAX;
    }
    let all = u64::from(u32::MAX) >> (fs.block_size().log2() - 9);
    let per_block = u64::from(indirect::pointers_per_block(fs.block_size()));
    // On each level, and the last ones that are not full.
    let pointers = all / per_block + all / per_block / per_block + 4;
    all - pointers
}

/// Returns the part of `buf` that a file can have at `offset`.
pub(super) fn within_limit<'b>(
    fs: &Fs,
    image: &Inode,
    offset: u64,
    buf: &'b [u8],
) -> Result<&'b [u8]> {
    let room = size_limit(fs, image).saturating_sub(offset);
    if room == 0 && !buf.is_empty() {
        return Err(Error::FileTooLarge);
    }
    let len = usize::try_from(room).unwrap_or(usize::MAX).min(buf.len());
    Ok(buf.get(..len).unwrap_or(buf))
}

/// Returns the blocks that `range`, in bytes, touches.
pub(super) fn blocks_of(fs: &Fs, range: &Range<u64>) -> Range<u64> {
    range.start >> fs.block_size().log2()..fs.block_size().blocks_for(range.end)
}

/// Returns the byte of the device `skip` bytes past the start of `target`.
pub(super) fn target_offset(fs: &Fs, target: Target, skip: u64) -> Result<u64> {
    match target.pblk() {
        Some(pblk) => device_offset(fs, pblk, skip),
        None => Err(Error::InvalidInput("a write to blocks without a place")),
    }
}

/// Returns the byte of the device `skip` bytes past the start of a physical block.
pub(super) fn device_offset(fs: &Fs, pblk: Pblk, skip: u64) -> Result<u64> {
    let start = fs.block_size().offset_of(pblk);
    match start.and_then(|start| start.checked_add(skip)) {
        Some(offset) => Ok(offset),
        None => Err(Error::InvalidInput("a position past the end of any device")),
    }
}
