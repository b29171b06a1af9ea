//! Holes punched into files, ranges made zeros, and ranges taken out or put in.
//!
//! Each of these has the file to itself: what is in memory only is on the device before, writeback
//! is kept away, and nobody uses an address of the file. Then what memory knows of the range is
//! forgotten and the map changes.
//!
//! # After a crash
//!
//! A part of a block that becomes zeros is written over, so a crash may leave any part of it as it
//! was. What is a change of the map alone is there or not, if few extents are concerned; more take
//! many transactions, and a crash leaves the last part of a hole (blocks go from the end of a range
//! on), or some of the extents moved and the others not, as under Linux. Ranges made zeros take two
//! transactions at least: one that makes blocks reserved ones, and one that reserves blocks for
//! holes and sets the size.

use crate::clock::now;
use crate::data::inline::outgrow_alone;
use crate::data::io::WriteOptions;
use crate::data::io::{blocks_of, check_changeable, check_content, size_limit};
use crate::data::range::fallocate::{FallocateMode, fallocate_alone};
use crate::data::range::zeros::zero_mapped;
use crate::data::reserve::preallocation;
use crate::data::times::stamp;
use crate::data::writeback::write_back;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Held, Inode};
use crate::map::{self, MapGuard, Mapping, Move, Target};
use crate::{Error, Result, xattr};
use extant_format::inode::InodeFlags;
use extant_format::{Lblk, Pblk};
use std::ops::Range;

/// Runs that one handle moves at most.
const MOST_RUNS: usize = 12;

/// One past the last block any file has.
const END: u64 = 1 << 32;

/// No blocks.
const NOTHING: Range<u64> = 0..0;

/// Makes a hole of the `len` bytes from byte `offset` on: they read as zeros, and whole blocks are
/// given back. The size stays.
///
/// # Errors
/// [`Error::InvalidInput`] for an empty range; [`Error::NoSpace`] when cutting an extent in two
/// takes a block more and none is free; those of [`fallocate`](crate::data::fallocate()) otherwise,
/// but for files mapped by indirect blocks.
pub fn punch_hole(
    fs: &Fs,
    held: &Held,
    offset: u64,
    len: u64,
    options: WriteOptions<'_>,
) -> Result<()> {
    let alone = held.op().write();
    let (image, range) = begin(fs, held, offset, len, options)?;
    // Past the end there is nothing that anybody could tell from a hole but blocks that were
    // reserved.
    let log2 = fs.block_size().log2();
    let range = range.start
        ..range
            .end
            .min(fs.block_size().blocks_for(image.size()).max(1) << log2);
    if range.start >= image.size() {
        return Ok(());
    }
    let _gone = held.pages().write();
    let _quiet = held.file_cache().map(|file| file.quiesce());
    forget(held, range.clone());
    preallocation::drop_all(fs.alloc()?, held.live());
    zero_edges(fs, held, &image, &range)?;
    let whole = whole_blocks(fs, &range);
    let mut end = whole.end;
    loop {
        let handle = fs.start(1 + map::remove_credits(&held.snapshot()))?;
        handle.touch_inode(held.live())?;
        let next = if whole.start < end {
            let guard = MapGuard::lock(held.live());
            map::remove_keeping(&handle, held.live(), &guard, whole.start..end, 1)?.next
        } else {
            None
        };
        stamp_now(&handle, held)?;
        match next {
            None => break,
            Some(next) => end = next.get().into(),
        }
    }
    drop(alone);
    Ok(())
}

/// Makes the `len` bytes from byte `offset` on zeros, and sees to it that writing there takes no
/// space: whole blocks become reserved ones. The file grows if it ends before, unless `keep_size`.
///
/// # Errors
/// As for [`fallocate`](crate::data::fallocate()).
pub fn zero_range(
    fs: &Fs,
    held: &Held,
    offset: u64,
    len: u64,
    keep_size: bool,
    options: WriteOptions<'_>,
) -> Result<()> {
    let _alone = held.op().write();
    let (image, range) = begin(fs, held, offset, len, options)?;
    check_extents(&image)?;
    {
        let _gone = held.pages().write();
        let _quiet = held.file_cache().map(|file| file.quiesce());
        forget(held, range.clone());
        zero_edges(fs, held, &image, &range)?;
        let whole = whole_blocks(fs, &range);
        // Those that are reserved already lie between the others, and are mapped again with them.
        let runs = extents_of(fs, &image, whole)?;
        for part in runs.chunks(most_runs(fs, &image)?) {
            let moves: Vec<Move> = part.iter().filter_map(|run| moved(run, 0, true)).collect();
            move_runs(fs, held, part, &moves)?;
        }
    }
    fallocate_alone(fs, held, offset, len, FallocateMode { keep_size }, options)
}

/// Takes the `len` bytes from byte `offset` on out of a file: what follows moves up, and the file
/// is shorter by as much. Both must be multiples of the block size, with `bigalloc` of the cluster
/// size.
///
/// # Errors
/// [`Error::InvalidInput`] when they are not, or the range reaches to the end of the file; those of
/// [`fallocate`](crate::data::fallocate()) otherwise.
pub fn collapse_range(
    fs: &Fs,
    held: &Held,
    offset: u64,
    len: u64,
    options: WriteOptions<'_>,
) -> Result<()> {
    let _alone = held.op().write();
    let (image, range) = begin(fs, held, offset, len, options)?;
    check_extents(&image)?;
    check_aligned(fs, &range)?;
    if range.end >= image.size() {
        return Err(Error::InvalidInput(
            "a range taken out of a file ends before the file does",
        ));
    }
    let _gone = held.pages().write();
    let _quiet = held.file_cache().map(|file| file.quiesce());
    forget_from(fs, held, range.start)?;
    preallocation::drop_all(fs.alloc()?, held.live());
    let whole = whole_blocks(fs, &range);
    let blocks = whole.end - whole.start;
    let size = image.size() - len;
    let shorten = |inode: &mut Inode| {
        let disk = inode.disk_mut();
        disk.size = size;
        stamp(disk, now(), WriteOptions::default());
    };
    let doomed = extents_of(fs, &image, whole.clone())?;
    let after = runs_after(fs, &image, whole.end)?;
    let moves = |runs: &[Mapping]| -> Vec<Move> {
        let up = |run| moved(run, -(blocks as i64), is_unwritten(run));
        runs.iter().filter_map(up).collect()
    };
    // What one handle can do is done by one, so that a crash leaves all or nothing, and a failure
    // nothing.
    let runs = doomed.len() + after.len();
    let credits = move_credits(&image, runs) + map::GROUP * groups_of(fs, &doomed);
    if runs <= MOST_RUNS && credits <= most_credits(fs)? {
        return with_room(fs, || {
            let handle = fs.start(credits)?;
            change_map(&handle, held, &whole, &after, &moves(&after), &shorten)
        });
    }
    let parts = parts_of(fs, &image, &after)?;
    let mut end = whole.end;
    while whole.start < end {
        end = with_room(fs, || {
            let handle = fs.start(1 + map::remove_credits(&held.snapshot()))?;
            let guard = MapGuard::lock(held.live());
            let range = whole.start..end;
            let removed = map::remove_keeping(&handle, held.live(), &guard, range, 1)?;
            Ok(removed.next.map_or(whole.start, |next| next.get().into()))
        })?;
    }
    for part in parts {
        move_runs(fs, held, part, &moves(part))?;
    }
    let handle = fs.start(1)?;
    held.live().update(&handle, shorten)
}

/// Puts a hole of `len` bytes into a file at byte `offset`: what was there moves back, and the file
/// is longer by as much. Both must be multiples of the block size, with `bigalloc` of the cluster
/// size.
///
/// # Errors
/// [`Error::InvalidInput`] when they are not, or the file ends before `offset`;
/// [`Error::FileTooLarge`]; those of [`fallocate`](crate::data::fallocate()) otherwise.
pub fn insert_range(
    fs: &Fs,
    held: &Held,
    offset: u64,
    len: u64,
    options: WriteOptions<'_>,
) -> Result<()> {
    let _alone = held.op().write();
    let (image, range) = begin(fs, held, offset, len, options)?;
    check_extents(&image)?;
    check_aligned(fs, &range)?;
    let limit = size_limit(fs, &image);
    if image
        .size()
        .checked_add(len)
        .is_none_or(|size| size > limit)
    {
        return Err(Error::FileTooLarge);
    }
    if offset >= image.size() {
        return Err(Error::InvalidInput(
            "a hole is put into a file before its end",
        ));
    }
    let _gone = held.pages().write();
    let _quiet = held.file_cache().map(|file| file.quiesce());
    forget_from(fs, held, range.start)?;
    preallocation::drop_all(fs.alloc()?, held.live());
    let whole = whole_blocks(fs, &range);
    let blocks = whole.end - whole.start;
    let after = runs_after(fs, &image, whole.start)?;
    // Blocks reserved behind the end move, too.
    if after.last().is_some_and(|run| run.end() + blocks >= END) {
        return Err(Error::FileTooLarge);
    }
    let size = image.size() + len;
    let lengthen = |inode: &mut Inode| {
        let disk = inode.disk_mut();
        disk.size = size;
        stamp(disk, now(), WriteOptions::default());
    };
    let moves = |runs: &[Mapping]| -> Vec<Move> {
        let back = |run| moved(run, blocks as i64, is_unwritten(run));
        runs.iter().filter_map(back).collect()
    };
    let credits = move_credits(&image, after.len());
    if after.len() <= MOST_RUNS && credits <= most_credits(fs)? {
        return with_room(fs, || {
            let handle = fs.start(credits)?;
            change_map(&handle, held, &NOTHING, &after, &moves(&after), &lengthen)
        });
    }
    let parts = parts_of(fs, &image, &after)?;
    // The size first: nothing may lie past it that is data. What it passes before it has moved may
    // hold anything.
    let failures = fs.flush_failures();
    zero_mapped(fs, &image, image.size()..size)?;
    held.note_data(fs, failures);
    let handle = fs.start(1)?;
    held.live().update(&handle, lengthen)?;
    drop(handle);
    // The last ones first, so that there always is room.
    for part in parts.into_iter().rev() {
        move_runs(fs, held, part, &moves(part))?;
    }
    Ok(())
}

/// Returns what all have in common before they begin: everything in memory is on the device.
/// Returns the image as it is then, and the range. `op` is held exclusively.
fn begin(
    fs: &Fs,
    held: &Held,
    offset: u64,
    len: u64,
    options: WriteOptions<'_>,
) -> Result<(std::sync::Arc<Inode>, Range<u64>)> {
    fs.journal()?.check_open()?;
    let image = held.snapshot();
    check_changeable(&image)?;
    if len == 0 {
        return Err(Error::InvalidInput("an empty range"));
    }
    let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
    check_content(&image)?;
    outgrow_alone(fs, held)?;
    write_back(fs, held.live())?;
    if let Some(file) = held.file_cache() {
        file.set_tail(u64::MAX);
    }
    let image = held.snapshot();
    if end > size_limit(fs, &image) {
        return Err(Error::FileTooLarge);
    }
    // As under Linux before it is asked whether the range fits the file.
    xattr::take_away(fs, held, options.actor)?;
    Ok((held.snapshot(), offset..end))
}

fn check_extents(image: &Inode) -> Result<()> {
    if image.flags().contains(InodeFlags::EXTENTS) {
        Ok(())
    } else {
        Err(Error::Unsupported {
            features: "moving and reserving blocks of files mapped by indirect blocks".to_owned(),
        })
    }
}

fn check_aligned(fs: &Fs, range: &Range<u64>) -> Result<()> {
    let mask = (1 << (fs.block_size().log2() + fs.cluster_size().bits())) - 1;
    match (range.start | range.end) & mask {
        0 => Ok(()),
        _ if fs.cluster_size().is_block() => Err(Error::InvalidInput(
            "offset and length must be multiples of the block size",
        )),
        _ => Err(Error::InvalidInput(
            "offset and length must be multiples of the cluster size",
        )),
    }
}

/// Returns the blocks that lie in a range as a whole.
fn whole_blocks(fs: &Fs, range: &Range<u64>) -> Range<u64> {
    let log2 = fs.block_size().log2();
    let first = fs.block_size().blocks_for(range.start);
    first..(range.end >> log2).max(first)
}

/// Makes zeros of the parts of a range that are less than a block.
fn zero_edges(fs: &Fs, held: &Held, image: &Inode, range: &Range<u64>) -> Result<()> {
    let log2 = fs.block_size().log2();
    let whole = whole_blocks(fs, range);
    let failures = fs.flush_failures();
    let head = range.start..range.end.min(whole.start << log2);
    let tail = range.start.max(whole.end << log2)..range.end;
    for edge in [head, tail] {
        if !edge.is_empty() {
            debug_assert!(blocks_of(fs, &edge).count() == 1, "less than a block");
            zero_mapped(fs, image, edge)?;
            held.note_data(fs, failures);
        }
    }
    Ok(())
}

/// Has memory forget what it knows of a range, all of which is on the device.
fn forget(held: &Held, range: Range<u64>) {
    if let Some(file) = held.file_cache() {
        file.invalidate(&range);
    }
}

fn forget_from(fs: &Fs, held: &Held, offset: u64) -> Result<()> {
    if let Some(file) = held.file_cache() {
        // The size of the record is all of it by now.
        file.set_extended(0);
        let first = offset >> fs.block_size().log2();
        file.cut(fs, fs.alloc()?, held, offset, first);
    }
    Ok(())
}

/// Returns the runs from block `first` on that are no holes. What lies in the last cluster of one
/// that ends within it is apart.
fn runs_after(fs: &Fs, image: &Inode, first: u64) -> Result<Vec<Mapping>> {
    let end = map::mapped_end(fs, image)?;
    let extents = extents_of(fs, image, first..end)?;
    let size = fs.cluster_size();
    if size.is_block() {
        return Ok(extents);
    }
    let mut runs = Vec::with_capacity(extents.len());
    for mut run in extents {
        let start = run.lblk.get();
        let last = run.end() - u64::from(size.inside(run.end() as u32));
        if let Some(whole) = last.checked_sub(start.into()).filter(|&whole| whole > 0)
            && whole < run.len
        {
            runs.push(Mapping { len: whole, ..run });
            run = Mapping {
                lblk: Lblk::new(last as u32),
                len: run.len - whole,
                target: run.target.advanced(whole),
            };
        }
        runs.push(run);
    }
    Ok(runs)
}

/// Returns the extents of a range of a file mapped by extents, cut to it. They are not joined, so
/// that each lies in one leaf.
fn extents_of(fs: &Fs, image: &Inode, range: Range<u64>) -> Result<Vec<Mapping>> {
    let mut extents = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let Ok(lblk) = u32::try_from(at) else { break };
        let mut run = map::lookup(fs, image, Lblk::new(lblk))?;
        run.len = run.len.min(range.end - at).max(1);
        at += run.len;
        if run.target != Target::Hole {
            extents.push(run);
        }
    }
    Ok(extents)
}

fn is_unwritten(run: &Mapping) -> bool {
    matches!(run.target, Target::Unwritten(_))
}

/// Returns a run so many blocks further on, written or not. `None` for holes.
fn moved(run: &Mapping, by: i64, unwritten: bool) -> Option<Move> {
    let at = u64::from(run.lblk.get()).checked_add_signed(by)?;
    let pblk: Pblk = run.target.pblk()?;
    Some(Move {
        lblk: Lblk::new(u32::try_from(at).ok()?),
        pblk,
        len: u32::try_from(run.len).ok()?,
        unwritten,
    })
}

/// Credits for moving `runs` runs, each of which may lie in a leaf of its own that becomes empty.
fn move_credits(image: &Inode, runs: usize) -> u32 {
    let runs = runs as u32;
    map::insert_credits(image, 2 * runs) + 4 * (runs + 2) + 1
}

/// Returns how many groups runs lie in, at most.
fn groups_of(fs: &Fs, runs: &[Mapping]) -> u32 {
    let per_group = u64::from(fs.geometry().blocks_per_group()).max(1);
    let groups = runs.iter().map(|run| run.len / per_group + 2).sum::<u64>();
    u32::try_from(groups).unwrap_or(u32::MAX / 8)
}

/// Credits that one handle gets at most.
fn most_credits(fs: &Fs) -> Result<u32> {
    Ok(fs.journal()?.max_credits())
}

/// Returns how many runs of a file one handle moves: few where the journal is small.
fn most_runs(fs: &Fs, image: &Inode) -> Result<usize> {
    let limit = most_credits(fs)?;
    // While they move, the tree may get a level more.
    let fits = |&runs: &usize| move_credits(image, runs) + 2 <= limit;
    Ok((1..=MOST_RUNS).rev().find(fits).unwrap_or(1))
}

/// Runs of a file, in parts that one handle each moves: what lies in one cluster moves together, so
/// that after a crash it belongs to one place of the file.
///
/// # Errors
/// [`Error::Unsupported`] when there are so many runs in a cluster that no handle can do that.
fn parts_of<'r>(fs: &Fs, image: &Inode, runs: &'r [Mapping]) -> Result<Vec<&'r [Mapping]>> {
    let (size, most) = (fs.cluster_size(), most_runs(fs, image)?);
    if size.is_block() {
        return Ok(runs.chunks(most).collect());
    }
    let together = |a: &Mapping, b: &Mapping| {
        // A run is shorter than a file.
        size.logical((a.end() - 1) as u32) == size.logical(b.lblk.get())
    };
    let mut parts = Vec::new();
    let mut from = 0;
    let mut at = 0;
    for group in runs.chunk_by(together) {
        if at > from && at + group.len() - from > most {
            parts.extend(runs.get(from..at));
            from = at;
        }
        at += group.len();
        if group.len() > most && move_credits(image, group.len()) + 2 > most_credits(fs)? {
            return Err(Error::Unsupported {
                features: "moving a cluster in so many pieces".to_owned(),
            });
        }
    }
    parts.extend(runs.get(from..at).filter(|part| !part.is_empty()));
    Ok(parts)
}

/// Runs one step, and once more when there may be space that there was not. No handle is open, and
/// no map locked.
fn with_room<R>(fs: &Fs, mut step: impl FnMut() -> Result<R>) -> Result<R> {
    match step() {
        Err(Error::NoSpace) => {
            if fs.alloc()?.discard_preallocations(1) == 0 && fs.is_space_pending() {
                fs.commit(fs.journal()?.running())?;
            }
            step()
        }
        done => done,
    }
}

/// Maps `runs`, and all between them, as `moves` say, with a handle of its own.
fn move_runs(fs: &Fs, held: &Held, runs: &[Mapping], moves: &[Move]) -> Result<()> {
    with_room(fs, || {
        let handle = fs.start(move_credits(&held.snapshot(), runs.len()))?;
        change_map(&handle, held, &NOTHING, runs, moves, &|_| ())
    })
}

/// Frees what is mapped in `free`, in blocks, and maps `runs`, and all between them, as `moves`
/// say.
fn change_map(
    handle: &Handle<'_>,
    held: &Held,
    free: &Range<u64>,
    runs: &[Mapping],
    moves: &[Move],
    also: &dyn Fn(&mut Inode),
) -> Result<()> {
    let guard = MapGuard::lock(held.live());
    let range = match (runs.first(), runs.last()) {
        (Some(first), Some(last)) => u64::from(first.lblk.get())..last.end(),
        _ => NOTHING,
    };
    map::change(
        handle,
        held.live(),
        &guard,
        Vec::new(),
        |tree| tree.remap(free, &range, moves),
        also,
    )
}

fn stamp_now(handle: &Handle<'_>, held: &Held) -> Result<()> {
    let time = now();
    held.live().update(handle, |inode| {
        stamp(inode.disk_mut(), time, WriteOptions::default());
    })
}
