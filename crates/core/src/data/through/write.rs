//! Writing a range of a file to the device at once.
//!
//! # How a write reaches the device
//!
//! Bytes inside the file whose blocks hold data already are overwritten where they are, by any
//! number of threads at once. Everything else changes the map or the size, alone: blocks are taken
//! in the allocator, the data is written to them, and only then one handle makes them the file's
//! and moves the size. So no crash shows what the blocks held before, and a write that fails gives
//! them back.
//!
//! # Invariants
//!
//! - The size never passes bytes that were not written or made zeros on the device: what a block
//!   holds past the old end of the file may be anything.
//! - A block that becomes the file's has all its bytes written: those that the caller did not give
//!   are zeros.

use crate::alloc::{Request, Taken};
use crate::clock::now;
use crate::data::io::{
    Position, WriteOptions, blocks_of, check_writable, device_offset, image_outside, target_offset,
    within_limit,
};
use crate::data::range::zeros::{ZEROS, zero_mapped};
use crate::data::times;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::map::{self, MapGuard, Mapping, NewRuns, Placer, Target};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result, xattr};
use extant_format::inode::InodeFlags;
use extant_format::{Lblk, Pblk};
use extant_sync::pin;
use std::io::IoSlice;
use std::ops::Range;

/// Bytes that one handle maps at most.
const CHUNK: u64 = 8 << 20;
/// Runs that one handle maps at most.
const MOST_RUNS: usize = 12;

/// Writes to a regular file whose content lies outside its inode. Returns where, and how much.
///
/// # Errors
/// As for [`write_at`](crate::data::write_at).
pub(in crate::data) fn write(
    fs: &Fs,
    held: &Held,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<(u64, usize)> {
    if let Position::Byte(offset) = to {
        let image = image_outside(held);
        check_writable(&image)?;
        let buf = within_limit(fs, &image, offset, buf)?;
        if buf.is_empty() {
            return Ok((offset, 0));
        }
        if let Some(written) = overwrite(fs, held, offset, buf, options)? {
            return Ok((offset, written));
        }
    }
    let _alone = held.op().write();
    let image = held.snapshot();
    check_writable(&image)?;
    let offset = match to {
        Position::Byte(offset) => offset,
        Position::End => image.size(),
    };
    let buf = within_limit(fs, &image, offset, buf)?;
    if buf.is_empty() {
        return Ok((offset, 0));
    }
    xattr::take_away(fs, held, options.actor)?;
    let written = write_alone(fs, held, offset, buf, options, Pages::Ours)?;
    Ok((offset, written))
}

/// Overwrites, if every block of the range lies inside the file and holds data, and nothing is
/// taken away with that. `None` otherwise; nothing was done then.
fn overwrite(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<Option<usize>> {
    let _shared = held.op().read();
    // It may have become immutable since.
    check_writable(held.image(&pin()))?;
    if xattr::loses(held, options.actor) {
        return Ok(None);
    }
    let _stay = held.pages().read();
    let bytes = offset..offset.saturating_add(buf.len() as u64);
    let (image, runs) = map::runs_live(fs, held, |image| {
        if bytes.end <= image.size() {
            blocks_of(fs, &bytes)
        } else {
            0..0
        }
    })?;
    let is_data = |run: &Mapping| matches!(run.target, Target::Written(_));
    if bytes.end > image.size() || !runs.iter().all(is_data) {
        return Ok(None);
    }
    times::note_write(fs, held, options)?;
    let failures = fs.flush_failures();
    let mut done = 0;
    for run in &runs {
        let left = &buf[done..];
        let at = bytes.start + done as u64;
        let start = u64::from(run.lblk.get()) << fs.block_size().log2();
        let run_end = run.end() << fs.block_size().log2();
        let len = usize::try_from(run_end.saturating_sub(at)).unwrap_or(usize::MAX);
        let now = &left[..len.min(left.len())];
        let written = target_offset(fs, run.target, at.saturating_sub(start))
            .and_then(|to| Ok(fs.device().write_at(to, now)?));
        match written {
            Ok(()) => done += now.len(),
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    held.note_data(fs, failures);
    Ok(Some(done))
}

/// The holder of the inode's `pages` lock while blocks are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum Pages {
    /// The write does, part by part.
    Ours,
    /// The caller has.
    Callers,
}

/// Writes with the inode's `op` lock held exclusively.
pub(in crate::data) fn write_alone(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
    pages: Pages,
) -> Result<usize> {
    let mut done = 0;
    let mut may_retry = true;
    while let Some(left) = buf.get(done..).filter(|left| !left.is_empty()) {
        let at = offset + done as u64;
        let len = usize::try_from(CHUNK - at % CHUNK).unwrap_or(usize::MAX);
        let chunk = &left[..len.min(left.len())];
        let before = fs.durable();
        let written = {
            let _stay = (pages == Pages::Ours).then(|| held.pages().read());
            write_chunk(fs, held, at, chunk, options)
        };
        match written {
            Ok(written) => done += written,
            // What was freed comes back with the commit: that of somebody else meanwhile, or ours.
            Err(Error::NoSpace) if may_retry && fs.durable() > before => may_retry = false,
            Err(Error::NoSpace) if may_retry && fs.is_space_pending() => {
                may_retry = false;
                // Also after a part was written: a journal that has stopped is no lack of space.
                fs.commit(fs.journal()?.running())?;
            }
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// A run of blocks that a write goes to.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct WriteRun {
    lblk: Lblk,
    len: u32,
    pblk: Pblk,
    kind: RunState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum RunState {
    /// Holds data.
    Written,
    /// The file's, and never written.
    Unwritten,
    /// Just taken.
    New,
}

impl WriteRun {
    fn end(&self) -> u64 {
        u64::from(self.lblk.get()) + u64::from(self.len)
    }
}

/// Writes a first part of `data`, at least one byte, and maps it with one handle. `pages` is held
/// shared.
fn write_chunk(
    fs: &Fs,
    held: &Held,
    at: u64,
    data: &[u8],
    options: WriteOptions<'_>,
) -> Result<usize> {
    let log2 = fs.block_size().log2();
    // Only holders of `op` change map and size.
    let image = held.snapshot();
    if let Some(file) = held.file_cache() {
        file.commit_detached(fs)?;
    }
    let bytes = at..at + data.len() as u64;
    let (pieces, taken) = prepare(fs, &image, blocks_of(fs, &bytes))?;
    let covered = pieces.last().map_or(at, |piece| piece.end() << log2);
    let bytes = at..bytes.end.min(covered);
    let data = data
        .get(..(bytes.end.saturating_sub(at)) as usize)
        .unwrap_or(data);
    let failures = fs.flush_failures();
    if at > image.size() && !is_on(Mutant::TailNotZeroed) {
        zero_mapped(fs, &image, image.size()..at)?;
    }
    if is_on(Mutant::DataAfterMapping) {
        finish(fs, held, &image, &pieces, taken, bytes.end, options)?;
        fs.commit(held.last_seq())?;
        write_runs(fs, &pieces, &bytes, data)?;
        held.note_data(fs, failures);
        return Ok(data.len());
    }
    write_runs(fs, &pieces, &bytes, data)?;
    held.note_data(fs, failures);
    let in_place = pieces
        .iter()
        .take_while(|piece| piece.kind == RunState::Written)
        .count();
    let (in_place, _) = pieces.split_at(in_place);
    let mut end = bytes.end;
    match (
        finish(fs, held, &image, &pieces, taken, end, options),
        in_place.last(),
    ) {
        // No room for the map, but what came before has been overwritten.
        (Err(Error::NoSpace | Error::QuotaExceeded), Some(last)) => {
            end = end.min(last.end() << log2);
            finish(fs, held, &image, in_place, Vec::new(), end, options)?;
        }
        (finished, _) => finished?,
    }
    Ok((end - at) as usize)
}

/// Finds out where the blocks of `range` lie and takes those that lie nowhere, up to [`MOST_RUNS`]
/// changes of the map. Covers at least the first block. What is overwritten in place comes before
/// what changes the map: if that fails, nothing behind it has changed.
fn prepare<'f>(
    fs: &'f Fs,
    image: &Inode,
    range: Range<u64>,
) -> Result<(Vec<WriteRun>, Vec<Taken<'f>>)> {
    let mut pieces: Vec<WriteRun> = Vec::new();
    let mut taken = Vec::new();
    let mut placer = Placer::new(fs);
    let mut changes = 0;
    for run in map::runs_of(fs, image, range.clone())? {
        let kind = match run.target {
            Target::Written(_) if changes > 0 => break,
            Target::Written(pblk) => {
                pieces.push(run_at(&run, pblk, RunState::Written));
                continue;
            }
            Target::Unwritten(pblk) => {
                pieces.push(run_at(&run, pblk, RunState::Unwritten));
                changes += 1;
                RunState::Unwritten
            }
            Target::Hole => RunState::New,
        };
        let mut next = u64::from(run.lblk.get());
        while kind == RunState::New && next < run.end() && changes < MOST_RUNS {
            let left = u32::try_from(run.end() - next).unwrap_or(u32::MAX);
            let given = placer.given(next as u32, |logical| map::cluster_of(fs, image, logical))?;
            if let Some((pblk, here)) = given {
                let len = here.min(left);
                pieces.push(WriteRun {
                    lblk: Lblk::new(next as u32),
                    len,
                    pblk,
                    kind,
                });
                next += u64::from(len);
                changes += 1;
                continue;
            }
            let goal = match pieces.last() {
                Some(before) => Pblk::new(before.pblk.get().saturating_add(before.len.into())),
                None => goal(fs, image, next)?,
            };
            let left = match fs.admissible(image, left, &taken) {
                Ok(left) => left,
                Err(Error::QuotaExceeded) if !pieces.is_empty() => return Ok((pieces, taken)),
                Err(e) => return Err(e),
            };
            let request = Request {
                goal,
                len: (placer.contiguous_len(next as u32, left))
                    .saturating_add(fs.cluster_size().inside(next as u32)),
                min: 1,
                below_32_bits: !image.flags().contains(InodeFlags::EXTENTS),
                privileged: false,
            };
            let got = match fs.alloc()?.take_blocks(&request) {
                Ok(got) => got,
                Err(Error::NoSpace) if !pieces.is_empty() => return Ok((pieces, taken)),
                Err(e) => return Err(e),
            };
            let (pblk, here) = placer.give(next as u32, got.start(), got.clusters());
            let len = here.min(left);
            pieces.push(WriteRun {
                lblk: Lblk::new(next as u32),
                len,
                pblk,
                kind,
            });
            next += u64::from(len);
            taken.push(got);
            changes += 1;
        }
        if changes >= MOST_RUNS {
            break;
        }
    }
    Ok((pieces, taken))
}

pub(in crate::data) fn run_at(run: &Mapping, pblk: Pblk, kind: RunState) -> WriteRun {
    WriteRun {
        lblk: run.lblk,
        // A chunk is far shorter.
        len: u32::try_from(run.len).unwrap_or(u32::MAX),
        pblk,
        kind,
    }
}

/// Returns where a new block of the file should lie: behind the block before it, or near the inode.
fn goal(fs: &Fs, image: &Inode, lblk: u64) -> Result<Pblk> {
    if let Some(before) = lblk.checked_sub(1).and_then(|b| u32::try_from(b).ok())
        && let Some(pblk) = map::lookup(fs, image, Lblk::new(before))?.target.pblk()
    {
        return Ok(Pblk::new(pblk.get().saturating_add(1)));
    }
    let geometry = fs.geometry();
    Ok(geometry
        .locate_inode(image.ino())
        .and_then(|at| geometry.group_first_block(at.group))
        .unwrap_or_default())
}

/// Writes `data`, which are the bytes `bytes` of the file, to `pieces`, and zeros to the rest of
/// those that hold no data yet. Pieces side by side on the device are written at once.
pub(in crate::data) fn write_runs(
    fs: &Fs,
    pieces: &[WriteRun],
    bytes: &Range<u64>,
    data: &[u8],
) -> Result<()> {
    let log2 = fs.block_size().log2();
    let mut rest = data;
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    // Where on the device the slices go, and where they end.
    let mut to = 0..0;
    for piece in pieces {
        let start = u64::from(piece.lblk.get()) << log2;
        let end = piece.end() << log2;
        let own = bytes.start.max(start)..bytes.end.min(end);
        let (now, after) = rest.split_at((own.end.saturating_sub(own.start)) as usize);
        rest = after;
        let (front, back) = match piece.kind {
            RunState::Written => (0, 0),
            // Less than a block each: a piece begins and ends with a block of the range.
            RunState::Unwritten | RunState::New => (own.start - start, end - own.end),
        };
        let skip = own.start - start - front;
        let offset = device_offset(fs, piece.pblk, skip)?;
        if offset != to.end && !slices.is_empty() {
            fs.device().write_vectored_at(to.start, &slices)?;
            slices.clear();
        }
        if slices.is_empty() {
            to = offset..offset;
        }
        for part in [&ZEROS[..front as usize], now, &ZEROS[..back as usize]] {
            if !part.is_empty() {
                slices.push(IoSlice::new(part));
                to.end += part.len() as u64;
            }
        }
    }
    if !slices.is_empty() {
        fs.device().write_vectored_at(to.start, &slices)?;
    }
    Ok(())
}

/// Makes what was written the file's, up to byte `end`.
fn finish<'f>(
    fs: &'f Fs,
    held: &Held,
    image: &Inode,
    pieces: &[WriteRun],
    taken: Vec<Taken<'f>>,
    end: u64,
    options: WriteOptions<'_>,
) -> Result<()> {
    let changed = pieces
        .iter()
        .filter(|piece| piece.kind != RunState::Written);
    let runs = changed.clone().count() as u32;
    let time = now();
    let also = |inode: &mut Inode| {
        let disk = inode.disk_mut();
        disk.size = disk.size.max(end);
        times::stamp(disk, time, options);
    };
    if runs == 0 {
        let handle = fs.start(1)?;
        return held.live().update(&handle, also);
    }
    let new = NewRuns {
        runs,
        leaves: runs,
        groups: runs,
        blocks: changed.clone().map(|piece| piece.len).sum(),
    };
    let credits = map::insert_many_credits(fs, image, new).max(map::insert_credits(image, runs));
    let handle = fs.start(credits)?;
    let guard = MapGuard::lock(held.live());
    let edit = |tree: &mut map::Tree<'_>| {
        for piece in changed {
            match piece.kind {
                RunState::New => tree.insert(piece.lblk, piece.pblk, piece.len, false)?,
                _ => tree.convert(&(piece.lblk.get().into()..piece.end()))?,
            }
        }
        Ok(())
    };
    map::change(&handle, held.live(), &guard, taken, edit, also)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write_at;
    use crate::fs::{DataMode, MountOptions};
    use crate::inode::FileType;
    use crate::ops;
    use extant_blockdev::MemoryDevice;
    use extant_format::Ino;
    use extant_testkit::crash::Content;
    use extant_testkit::oracle::mke2fs;
    use std::sync::Arc;
    use std::time::Duration;

    /// Makes the file immutable while a writer waits for its lock, which is held here.
    fn make_immutable(fs: &Fs, held: &Held) {
        std::thread::sleep(Duration::from_millis(100));
        let handle = fs.start(1).unwrap();
        let live = held.live();
        live.update(&handle, |inode| {
            inode.disk_mut().flags |= InodeFlags::IMMUTABLE
        })
        .unwrap();
    }

    #[test]
    fn who_waited_while_the_file_became_immutable_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let image = temp.path().join("image");
        mke2fs(&image, 16 << 20, &["-t", "ext4"]);
        let options = MountOptions::read_write()
            .background(false)
            .data_mode(DataMode::Through);
        let fs = Fs::open(Content::of_file(&image).open(), options).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        let make = |name: &str| {
            let new = crate::lifecycle::NewInode::new(FileType::Regular, 0o600, now());
            let held = ops::create(&fs, &root, name.as_bytes(), &new).unwrap();
            assert_eq!(write_at(&fs, &held, 0, &[1; 8192]).unwrap(), 8192);
            held
        };
        // The first bytes of a file are overwritten by any number at once, what makes it longer is
        // written alone.
        for (name, alone, at) in [("over", true, 0), ("behind", false, 8192)] {
            let held = make(name);
            let refused = std::thread::scope(|scope| {
                let exclusive = alone.then(|| held.op().write());
                let shared = (!alone).then(|| held.op().read());
                let writer = scope.spawn(|| write_at(&fs, &held, at, &[2; 4096]));
                make_immutable(&fs, &held);
                drop((exclusive, shared));
                writer.join().unwrap()
            });
            assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
            let mut found = vec![0; 20_000];
            assert_eq!(
                crate::data::read_live(&fs, &held, 0, &mut found).unwrap(),
                8192
            );
            assert!(found[..8192].iter().all(|byte| *byte == 1), "{name}");
        }
    }
    #[test]
    fn a_write_beside_content_that_leaves_its_inode_waits_for_that() {
        for (mode, dax) in [
            (DataMode::Through, false),
            (DataMode::Delayed, false),
            (DataMode::Delayed, true),
        ] {
            let temp = tempfile::tempdir().unwrap();
            let image = temp.path().join("image");
            mke2fs(&image, 16 << 20, &["-t", "ext4", "-O", "inline_data"]);
            let options = MountOptions::read_write().background(false);
            let options = options.data_mode(mode).dax(dax);
            let image: Arc<[u8]> = std::fs::read(&image).unwrap().into();
            let device = Arc::new(MemoryDevice::from_image(&image));
            let fs = Fs::open(device, options).unwrap();
            let root = fs.hold(Ino::ROOT).unwrap();
            for past_memory in [false, true] {
                let new = crate::lifecycle::NewInode::new(FileType::Regular, 0o600, now());
                let name = format!("f{past_memory}");
                let held = ops::create(&fs, &root, name.as_bytes(), &new).unwrap();
                assert_eq!(write_at(&fs, &held, 0, &[1; 40]).unwrap(), 40);
                assert!(held.is_inline());
                let (at, len) = if past_memory { (0, 4096) } else { (8, 8) };
                let block = extant_blockdev::AlignedBuf::copy_of(&vec![2; len]);
                let written = std::thread::scope(|scope| {
                    let alone = held.op().write();
                    let flags = held.snapshot().flags();
                    held.live().show_flags(flags - InodeFlags::INLINE_DATA);
                    let writer = scope.spawn(|| {
                        let options = WriteOptions::default();
                        if past_memory {
                            crate::data::write_direct(&fs, &held, at, &block, options)
                        } else {
                            write_at(&fs, &held, at, &block)
                        }
                    });
                    std::thread::sleep(Duration::from_millis(50));
                    crate::data::inline::outgrow_alone(&fs, &held).unwrap();
                    drop(alone);
                    writer.join().unwrap()
                });
                assert_eq!(written.unwrap(), len);
                let mut found = vec![0; len];
                let got = crate::data::read_live(&fs, &held, at, &mut found).unwrap();
                assert_eq!((got, &found), (len, &vec![2; len]));
            }
        }
    }
}
