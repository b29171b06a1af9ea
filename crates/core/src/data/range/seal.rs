//! What fs-verity has behind the content of a file, and the flag that says so.
//!
//! # How a file is protected
//!
//! As under Linux ([ext4 and fs-verity](https://docs.kernel.org/filesystems/ext4/verity.html)).
//! The file is noted as an orphan. Blocks behind its end are reserved, hashes are written to them,
//! and they become data. The last handle sets the flag and takes the note back. So after a crash
//! that comes before, the next to open the file system truncates the file to its size, which gives
//! the blocks back.
//!
//! # Invariants
//!
//! - A file with blocks of hashes has the flag or is noted.
//! - Of the record the blocks and the flag change, and nothing else: neither size and times nor
//!   what programs lose when somebody writes them.

use crate::data::inline::outgrow_alone;
use crate::data::io::{size_limit, target_offset};
use crate::data::range::fallocate::reserve_behind;
use crate::data::range::truncate::{finish_truncate, unmap_from};
use crate::data::range::zeros::{has_data, zero_mapped};
use crate::data::reserve::preallocation;
use crate::data::stored::read::read_content;
use crate::data::writeback::{flusher, write_back};
use crate::fs::Fs;
use crate::inode::{FileType, Held, Inode};
use crate::map::{self, MapGuard, Mapping, Target};
use crate::meta::Seq;
use crate::{Error, Result};
use extant_format::Lblk;
use extant_format::features::RoCompat;
use extant_format::inode::InodeFlags;
use std::ops::Range;

/// Bytes of content that are read together.
const PIECE: u64 = 1 << 20;
/// Runs that one handle converts at most.
const MOST_RUNS: usize = 12;

/// Writes bytes from a byte of the file on, which lies in the room that [`Seal::begin`] asked for.
pub type WriteSeal<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

/// What fs-verity has behind the content of a file, while it is made of that content.
pub trait Seal {
    /// Begins, perhaps once more, with a file of `size` bytes. Returns the bytes of the file that
    /// the hashes and what describes them are going to fill, all of them: they begin behind the
    /// content, and begin and end with a block of the file system.
    fn begin(&mut self, size: u64) -> Range<u64>;

    /// Takes the next piece of the content, in order: a MiB, but for the last.
    ///
    /// # Errors
    /// What `write` says.
    fn take(&mut self, content: &[u8], write: &mut WriteSeal<'_>) -> Result<()>;

    /// Comes when all content was taken. Everything has been written when it returns.
    ///
    /// # Errors
    /// What `write` says.
    fn finish(&mut self, write: &mut WriteSeal<'_>) -> Result<()>;
}

/// Has fs-verity protect a regular file: what `seal` makes of its content is put behind it, and the
/// file gets the flag. Content that lies in the record moves to a block. Blocks that are reserved
/// behind the end are given back, and the last block of the content becomes zeros from there on. A
/// crash leaves the file protected or as it was.
///
/// Returns the transaction that turns the feature `verity` on, if that was off.
///
/// # Errors
/// [`Error::AlreadyProtected`]; [`Error::NotPermitted`] for what is immutable or append-only;
/// [`Error::IsADirectory`], [`Error::NotARegularFile`], [`Error::Encrypted`];
/// [`Error::Unsupported`] for a file that is mapped by indirect blocks or has the flag `DAX`, and
/// for a file system of the first revision; [`Error::FileTooLarge`], [`Error::NoSpace`],
/// [`Error::QuotaExceeded`]; [`Error::ReadOnly`]; [`Error::Corrupt`] when the map breaks the
/// format, [`Error::Device`] when the device fails.
pub(crate) fn seal(fs: &Fs, held: &Held, seal: &mut dyn Seal) -> Result<Option<Seq>> {
    fs.journal()?.check_open()?;
    let mut attempt = || {
        let _alone = held.op().write();
        seal_alone(fs, held, seal)
    };
    match attempt() {
        // What is promised to the data of other files for the worst case comes back when that is
        // written back.
        Err(Error::NoSpace) => {
            flusher::make_room(fs, held.live())?;
            attempt()
        }
        done => done,
    }
}

/// Refuses what fs-verity cannot protect, as Linux does.
fn check_sealable(fs: &Fs, image: &Inode) -> Result<()> {
    match image.file_type() {
        FileType::Regular if image.is_encrypted() => return Err(Error::Encrypted),
        FileType::Regular => {}
        FileType::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::NotARegularFile),
    }
    let flags = image.flags();
    if flags.contains(InodeFlags::VERITY) {
        return Err(Error::AlreadyProtected);
    }
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(Error::NotPermitted);
    }
    let missing = if fs.superblock().raw().rev_level.get() == 0 {
        "fs-verity in a file system of the first revision, which has no features"
    } else if flags.contains(InodeFlags::DAX) {
        "fs-verity for files that are to be used past memory (the flag x)"
    } else if !image.is_inline() && !flags.contains(InodeFlags::EXTENTS) {
        "fs-verity for files mapped by indirect blocks (the flag e gives them extents)"
    } else {
        return Ok(());
    };
    Err(Error::Unsupported {
        features: missing.to_owned(),
    })
}

/// Protects a file as [`seal`] does. The caller holds `op` exclusively.
fn seal_alone(fs: &Fs, held: &Held, seal: &mut dyn Seal) -> Result<Option<Seq>> {
    check_sealable(fs, &held.snapshot())?;
    outgrow_alone(fs, held)?;
    // What is only in memory gets its blocks first: then nobody else changes the map.
    write_back(fs, held.live())?;
    if let Some(file) = held.file_cache() {
        file.set_tail(u64::MAX);
    }
    let image = held.snapshot();
    check_sealable(fs, &image)?;
    let room = Room::new(fs, &image, seal.begin(image.size()))?;
    {
        let handle = fs.start(fs.orphan_credits())?;
        fs.orphan_add(&handle, held.live())?;
    }
    let sealed = room
        .fill(fs, held, &image, seal)
        .and_then(|()| protect(fs, held));
    sealed.inspect_err(|_| {
        if let Err(e) = take_back(fs, held) {
            crate::event!(warn, inode = held.ino().get(), error = %e, "hashes behind a file stay");
        }
    })
}

/// Where the hashes of a file lie.
struct Room {
    /// Bytes of the file.
    bytes: Range<u64>,
    /// The blocks of these.
    blocks: Range<u64>,
    /// One past the last block of the content.
    content: u64,
}

impl Room {
    fn new(fs: &Fs, image: &Inode, bytes: Range<u64>) -> Result<Self> {
        let size = fs.block_size();
        let content = size.blocks_for(image.size());
        let blocks = bytes.start >> size.log2()..bytes.end >> size.log2();
        let is_whole = [bytes.start, bytes.end]
            .iter()
            .all(|byte| byte.is_multiple_of(size.bytes().into()));
        if bytes.end > size_limit(fs, image) {
            return Err(Error::FileTooLarge);
        }
        if !is_whole || blocks.is_empty() || blocks.start < content {
            return Err(Error::Internal("hashes that do not lie behind the content"));
        }
        Ok(Self {
            bytes,
            blocks,
            content,
        })
    }

    /// Gives the file its hashes. It is noted as an orphan.
    fn fill(&self, fs: &Fs, held: &Held, image: &Inode, seal: &mut dyn Seal) -> Result<()> {
        if map::mapped_end(fs, image)? > self.content {
            // Behind the last hash there may be nothing, by which the last one is found.
            let _gone = held.pages().write();
            let _quiet = held.file_cache().map(|file| file.quiesce());
            drop_kept(fs, held, self.content)?;
            unmap_from(fs, held.live(), self.content, 0, |_| Ok(()))?;
        }
        reserve_behind(fs, held, self.blocks.clone())?;
        // Nodes of the map as it was may hold something else now.
        let image = held.snapshot();
        let runs = map::runs_of(fs, &image, self.blocks.clone())?;
        {
            let _stay = held.pages().read();
            let failures = fs.flush_failures();
            self.clear_tail(fs, &image)?;
            self.write(fs, &image, &runs, seal)?;
            held.note_data(fs, failures);
        }
        let reserved = |run: &&Mapping| matches!(run.target, Target::Unwritten(_));
        let reserved: Vec<&Mapping> = runs.iter().filter(reserved).collect();
        for some in reserved.chunks(MOST_RUNS) {
            let credits = map::insert_credits(&held.snapshot(), some.len() as u32);
            let handle = fs.start(credits)?;
            let guard = MapGuard::lock(held.live());
            let edit = |tree: &mut map::Tree<'_>| {
                let mut blocks = some.iter().map(|run| run.lblk.get().into()..run.end());
                blocks.try_for_each(|blocks| tree.convert(&blocks))
            };
            map::change(&handle, held.live(), &guard, Vec::new(), edit, |_| ())?;
        }
        Ok(())
    }

    /// Makes zeros of what the last block of the content has behind the end of the file, which
    /// hashes take for zeros, and Linux as it is.
    fn clear_tail(&self, fs: &Fs, image: &Inode) -> Result<()> {
        let tail = image.size()..self.content << fs.block_size().log2();
        if has_data(fs, image, tail.clone())? {
            zero_mapped(fs, image, tail)?;
        }
        Ok(())
    }

    /// Reads the content, and writes what is made of it to `runs`.
    fn write(&self, fs: &Fs, image: &Inode, runs: &[Mapping], seal: &mut dyn Seal) -> Result<()> {
        let mut write = |offset, bytes: &[u8]| self.write_at(fs, runs, offset, bytes);
        let mut piece = vec![0; image.size().min(PIECE) as usize];
        let mut at = 0;
        while at < image.size() {
            let len = (image.size() - at).min(PIECE) as usize;
            let piece = &mut piece[..len];
            // The device has all of it.
            if read_content(fs, image, at, piece)? < len {
                return Err(Error::Internal("content that ends before the file"));
            }
            seal.take(piece, &mut write)?;
            at += len as u64;
        }
        seal.finish(&mut write)
    }

    fn write_at(&self, fs: &Fs, runs: &[Mapping], offset: u64, bytes: &[u8]) -> Result<()> {
        let outside = Error::Internal("hashes outside the room for them");
        if offset < self.bytes.start {
            return Err(outside);
        }
        let log2 = fs.block_size().log2();
        let (mut at, mut rest) = (offset, bytes);
        let first = runs.partition_point(|run| run.end() << log2 <= at);
        for run in &runs[first..] {
            if rest.is_empty() {
                break;
            }
            let left = (run.end() << log2) - at;
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(len);
            let start = u64::from(run.lblk.get()) << log2;
            let to = target_offset(fs, run.target, at - start)?;
            fs.device().write_at(to, now)?;
            at += len as u64;
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(outside)
        }
    }
}

/// Sets the flag of a file that has its hashes, and takes the note back. Returns the transaction if
/// it turns the feature on.
fn protect(fs: &Fs, held: &Held) -> Result<Option<Seq>> {
    let live = held.live();
    // Nobody writes it any more.
    preallocation::drop_all(fs.alloc()?, live);
    let handle = fs.start(2 + fs.orphan_credits())?;
    handle.touch_inode(live)?;
    fs.orphan_remove(&handle, live)?;
    let is_first = fs.super_state()?.note_ro_compat(RoCompat::VERITY);
    live.note_datasync(&handle);
    live.update(&handle, |image| {
        image.disk_mut().flags |= InodeFlags::VERITY;
    })?;
    Ok(is_first.then(|| handle.seq()))
}

/// Gives back what a file has behind its content, which makes it no orphan any more.
fn take_back(fs: &Fs, held: &Held) -> Result<()> {
    let _gone = held.pages().write();
    let _quiet = held.file_cache().map(|file| file.quiesce());
    let content = fs.block_size().blocks_for(held.snapshot().size());
    drop_kept(fs, held, content)?;
    finish_truncate(fs, held.live())
}

/// Gives back what the allocator keeps for a file from a logical block on.
fn drop_kept(fs: &Fs, held: &Held, first: u64) -> Result<()> {
    let first = Lblk::new(u32::try_from(first).unwrap_or(u32::MAX));
    preallocation::drop_from(fs.alloc()?, held.live(), first);
    Ok(())
}
