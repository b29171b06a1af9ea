//! Setting the size of a file, both ways, and taking blocks away.

use crate::clock::now;
use crate::data::cache::FileCache;
use crate::data::cache::folio::{FOLIO_BYTES, mask_of_bytes};
use crate::data::inline::{outgrow_alone, replace, resized_alone};
use crate::data::io::WriteOptions;
use crate::data::io::{check_changeable, check_content, size_limit};
use crate::data::range::zeros::{has_data, zero_mapped};
use crate::data::reserve::clusters::{cuts_cluster, promise_cut};
use crate::data::reserve::preallocation;
use crate::data::times::stamp;
use crate::data::writeback::write_back;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Held, Inode, LiveInode};
use crate::map::{self, MapGuard};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result, xattr};
use extant_format::Lblk;
use extant_format::inode::InodeFlags;
use std::ops::Range;
use std::sync::Arc;

/// One past the last block any file has.
const END: u64 = 1 << 32;

/// Sets the size of a regular file. What is cut off is gone; what is added reads as zeros and takes
/// no space.
///
/// # Errors
/// [`Error::IsADirectory`], [`Error::NotARegularFile`], [`Error::FileTooLarge`],
/// [`Error::ReadOnly`], [`Error::Unsupported`]; [`Error::Corrupt`] when the map breaks the format,
/// [`Error::Device`] when the device fails. After an error the size may have been set already, and
/// blocks past it may still be the file's; they are freed when it is opened for writing again.
pub fn truncate(fs: &Fs, held: &Held, size: u64) -> Result<()> {
    truncate_with(fs, held, size, WriteOptions::default())
}

/// Cuts or extends a file as [`truncate`] does, in a certain way.
///
/// # Errors
/// As for [`truncate`].
pub fn truncate_with(fs: &Fs, held: &Held, size: u64, options: WriteOptions<'_>) -> Result<()> {
    let _alone = held.op().write();
    check_content(&held.snapshot())?;
    set_size_alone(fs, held, size, options)
}

/// Makes a regular file `size` bytes long if it is shorter, as [`truncate`] does, and leaves it
/// alone otherwise, also when somebody else has just made it longer.
///
/// # Errors
/// As for [`truncate`].
pub fn grow(fs: &Fs, held: &Held, size: u64, options: WriteOptions<'_>) -> Result<()> {
    let _alone = held.op().write();
    if held.live_size() < size {
        set_size_alone(fs, held, size, options)
    } else {
        Ok(())
    }
}

/// Sets the size, in bytes, as [`truncate`] does. The caller holds `op` exclusively.
fn set_size_alone(fs: &Fs, held: &Held, size: u64, options: WriteOptions<'_>) -> Result<()> {
    // Bytes become zeros, in memory and on the device, before a handle would find this.
    fs.journal()?.check_open()?;
    // Whatever refuses comes before what cannot be taken back.
    check_changeable(&held.snapshot())?;
    let inline = resized_alone(fs, held, size)?;
    if inline.is_none() {
        outgrow_alone(fs, held)?;
    }
    let mut image = held.snapshot();
    if size > size_limit(fs, &image) {
        return Err(Error::FileTooLarge);
    }
    xattr::take_away(fs, held, options.actor)?;
    if let Some(content) = inline {
        return replace(fs, held, &content, options);
    }
    if size > image.size() && held.live_size() > image.size() {
        // So that the size of the record never passes what memory has of the last block and the
        // device has not.
        write_back(fs, held.live())?;
        image = held.snapshot();
    }
    let live_size = held.live_size();
    if size < live_size || (size == live_size && reserves_behind(fs, &image)) {
        if cuts_cluster(fs, size)
            && let Err(e) = write_back(fs, held.live())
        {
            // What it keeps of the cluster may lose its place along with what goes.
            promise_cut(fs, held, size).map_err(|_| e)?;
        }
        return shrink(fs, held, size, options);
    }
    if size > image.size() {
        let _stay = held.pages().read();
        let _quiet = held.file_cache().map(|file| file.quiesce());
        // Its map stands still only now.
        let image = held.snapshot();
        let failures = fs.flush_failures();
        zero_mapped(fs, &image, image.size()..size)?;
        held.note_data(fs, failures);
        if let Some(file) = held.file_cache() {
            file.set_tail(u64::MAX);
        }
    }
    let handle = fs.start(1)?;
    set_size(&handle, held.live(), size, options)
}

/// Tells whether blocks are reserved behind the end of a file: as under Linux they go when its size
/// is set, even to what it is.
fn reserves_behind(fs: &Fs, image: &Inode) -> bool {
    let end = fs.block_size().blocks_for(image.size());
    // Indirect blocks reserve nothing.
    image.flags().contains(InodeFlags::EXTENTS)
        && map::mapped_end(fs, image).is_ok_and(|mapped| mapped > end)
}

fn set_size(
    handle: &Handle<'_>,
    live: &Arc<LiveInode>,
    size: u64,
    options: WriteOptions<'_>,
) -> Result<()> {
    let time = now();
    live.update(handle, |inode| {
        let disk = inode.disk_mut();
        disk.size = size;
        stamp(disk, time, options);
    })
}

/// Makes a file shorter. `op` is held exclusively.
fn shrink(fs: &Fs, held: &Held, size: u64, options: WriteOptions<'_>) -> Result<()> {
    // Nobody reads or writes the blocks that go, nor the bytes that become zeros.
    let _gone = held.pages().write();
    let live = held.live();
    let alloc = fs.alloc()?;
    let first = fs.block_size().blocks_for(size);
    // Nor are they written back.
    let _quiet = held.file_cache().map(|file| file.quiesce());
    let image = &*held.snapshot();
    let tail = size..(first << fs.block_size().log2()).min(image.size());
    let known = held
        .file_cache()
        .and_then(|file| has_stored(file, &tail, fs.block_size().log2()));
    if let Some(file) = held.file_cache() {
        file.set_extended(0);
        if size == 0 {
            file.set_replaced();
        }
        file.cut(fs, alloc, live, size, first);
    }
    preallocation::drop_from(
        alloc,
        live,
        Lblk::new(u32::try_from(first).unwrap_or(u32::MAX)),
    );
    let stale = known.map_or_else(|| has_data(fs, image, tail.clone()), Ok)?;
    if stale && !fs.data().is_write_back() {
        // As an orphan the file is seen to after a crash. Only when the new size is durable may
        // what lies past it go: a crash must not leave the old size and zeros where data was.
        let handle = fs.start(1 + fs.orphan_credits())?;
        fs.orphan_add(&handle, live)?;
        set_size(&handle, live, size, options)?;
        let seq = handle.seq();
        drop(handle);
        if !is_on(Mutant::TailZeroedTooEarly) {
            fs.commit(seq)?;
        }
        return finish_truncate(fs, live);
    }
    if stale && !is_on(Mutant::TailNotZeroed) {
        // Otherwise what is in the last block is promised no more than if it had been written to.
        let failures = fs.flush_failures();
        zero_mapped(fs, image, tail)?;
        live.note_data(fs, failures);
    }
    // The note comes first, so that whatever happens on the way is seen to after a crash.
    let keep = fs.orphan_credits();
    // A map that is broken is met when it is changed.
    let only_size = map::mapped_end(fs, image).is_ok_and(|end| end <= first);
    let credits = if only_size {
        0
    } else {
        map::remove_credits(image)
    };
    let handle = fs.start(1 + credits + keep)?;
    fs.orphan_add(&handle, live)?;
    set_size(&handle, live, size, options)?;
    if only_size {
        return fs.orphan_remove(&handle, live);
    }
    let guard = MapGuard::lock(live);
    let removed = map::remove_keeping(&handle, live, &guard, first..END, keep);
    drop(guard);
    match removed {
        Ok(removed) if removed.next.is_none() => fs.orphan_remove(&handle, live),
        // The rest takes more handles, or failed.
        unfinished => {
            drop(handle);
            let _ = unfinished?;
            finish_truncate(fs, live)
        }
    }
}

/// Tells whether anything but zeros is on the device in `range`, in bytes of the file and within a
/// block, if that can be said without looking there.
fn has_stored(file: &FileCache, range: &Range<u64>, log2: u32) -> Option<bool> {
    if range.is_empty() {
        return Some(false);
    }
    let folio = file.folio_if_any(range.start)?;
    let state = folio.read();
    let start = range.start as usize & (FOLIO_BYTES - 1);
    let bytes = start..start + (range.end - range.start) as usize;
    let block = mask_of_bytes(&bytes, log2);
    let newer = state.dirty | state.delayed | state.writeback;
    let known = state.uptodate & block == block && newer & block == 0;
    known.then(|| state.has_data(bytes))
}

/// Brings an orphan that has names to the end of its truncation: bytes past its size become zeros
/// on the device, blocks past it are freed, and it is no orphan any more.
///
/// The caller holds the inode's `op` and `pages` locks exclusively, or is recovery, which is alone.
///
/// # Errors
/// When the map breaks the format or the device fails. It still is an orphan then.
pub(crate) fn finish_truncate(fs: &Fs, live: &Arc<LiveInode>) -> Result<()> {
    let image = live.snapshot();
    let size = image.size();
    let first = fs.block_size().blocks_for(size);
    let tail = size..first << fs.block_size().log2();
    // Without a key the last block of what is encrypted stays as it is, as under Linux: all of it
    // is needed to read any.
    if !image.is_encrypted() && has_data(fs, &image, tail.clone())? && !is_on(Mutant::TailNotZeroed)
    {
        let failures = fs.flush_failures();
        zero_mapped(fs, &image, tail)?;
        live.note_data(fs, failures);
    }
    let last = |handle: &Handle<'_>| fs.orphan_remove(handle, live);
    unmap_from(fs, live, first, fs.orphan_credits(), last)
}

/// Frees all blocks of a file from logical block `first` on, with as many handles as that takes.
/// The last one calls `last`, which may use `credits` of its own.
///
/// If it takes several, the inode must be an orphan already, so that a crash in between is seen to.
/// The caller sees to it that nobody uses the blocks.
///
/// # Errors
/// As for [`map::remove_keeping`], and what `last` says.
pub(crate) fn unmap_from<'f, R>(
    fs: &'f Fs,
    live: &Arc<LiveInode>,
    first: u64,
    credits: u32,
    last: impl FnOnce(&Handle<'f>) -> Result<R>,
) -> Result<R> {
    let mut end = END;
    loop {
        let handle = fs.start(map::remove_credits(&live.snapshot()) + credits)?;
        let guard = MapGuard::lock(live);
        let removed = map::remove_keeping(&handle, live, &guard, first..end, credits)?;
        drop(guard);
        match removed.next {
            None => return last(&handle),
            Some(next) => end = next.get().into(),
        }
    }
}
