//! Changes that are made as a whole, or not at all.
//!
//! The engine runs over a device that keeps what is written elsewhere, and closes the file system
//! there. What has changed then goes to the real device as one transaction of its log: a crash at
//! any moment leaves all of it, to be replayed by the next program that opens the image, or
//! nothing. Linux and e2fsck are such programs, too.
//!
//! Blocks that were free before need no log: nothing refers to them until the transaction is
//! committed, so they are written to their places first. What is left for the log is metadata, and
//! data that is overwritten in place. It has to fit into the log at once.
//!
//! # Order on the device
//!
//! 1. A log that waits is replayed, as by any opening for writing, and an empty log begins. The
//!    superblock that says that the log counts goes through the log by itself, as whenever a file
//!    system is opened for writing.
//! 2. Blocks that were free are written.
//! 3. One transaction is committed: everything else. Its first flush makes the blocks of step 2
//!    durable.
//! 4. It goes home, and the log is emptied as on closing.
//!
//! # Invariants
//! - Until the commit, nothing is written but the log, the mark that it counts, and free blocks.
//! - The superblock in the transaction says that the log counts: it is in the log while that is
//!   replayed.
//! - The blocks of the log itself are not part of the changes: the log that the engine wrote on the
//!   device in front is forgotten.

use super::open::read_superblock;
use super::torn;
use super::writable::{Found, start_log};
use crate::alloc::for_each_free_run;
use crate::fs::{Fs, MountOptions, SuperblockChoice};
use crate::volume::place;
use crate::{Error, Result, clock};
use extant_blockdev::{BlockDevice, CowDevice, SharedDevice};
use extant_format::features::{Compat, Incompat};
use extant_format::superblock::{SUPERBLOCK_LEN, Superblock};
use extant_format::{BlockSize, Pblk, Tid};
use extant_jbd2::{CommitTime, LogImage, LogTransaction, LogWriter};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// A file system open for changes that are made as a whole, or not at all: on the device when
/// [`Staged::commit`] returns, and nowhere before.
///
/// Dropping it forgets the changes.
#[derive(Debug)]
pub struct Staged {
    base: SharedDevice,
    front: Arc<CowDevice>,
    options: MountOptions,
    fs: Arc<Fs>,
}

/// What a commit of staged changes wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagedReport {
    /// Blocks that were free before and are written to their places.
    pub placed: u64,
    /// Blocks that went through the log.
    pub logged: u64,
}

impl Staged {
    /// Opens the file system on `base` for changes that are kept on `spool` until they are
    /// committed. `spool` reads as zeroes and has room for as much as `base`; it takes space for
    /// what is changed only.
    ///
    /// Nothing is written to `base`: a log that waits there is replayed in front.
    ///
    /// # Errors
    /// As for [`Fs::open`]; [`Error::NotAtOnce`] for a file system without a journal, or with the
    /// feature `mmp`.
    pub fn begin(base: SharedDevice, spool: SharedDevice, options: MountOptions) -> Result<Self> {
        check(&torn::find_superblock(&base, &options)?.superblock)?;
        let front = Arc::new(CowDevice::new(Arc::clone(&base), spool)?);
        let device: SharedDevice = Arc::<CowDevice>::clone(&front);
        let fs = Fs::open(device, options.clone())?;
        Ok(Self {
            base,
            front,
            options,
            fs,
        })
    }

    /// Returns the file system with the changes so far.
    #[must_use]
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Puts the changes onto the device: they are durable when this returns. A log that waits there
    /// is replayed first. The file system is closed; holds on it may still read.
    ///
    /// # Errors
    /// [`Error::TooManyChanges`] when what has to go through the log at once does not fit, what
    /// [`Fs::close`] says, and what the device says: nothing is changed then.
    /// [`Error::PerhapsMade`] when the device failed while the transaction was committed: all of
    /// them are in the log, or none. [`Error::NotHome`] when it failed after that: they are in the
    /// log, and the next opening for writing puts them in place.
    pub fn commit(self) -> Result<StagedReport> {
        self.fs.close()?;
        let found = torn::find_superblock(&self.base, &self.options)?;
        if found.torn.is_some() || found.superblock.needs_recovery() {
            Fs::open(Arc::clone(&self.base), self.options.clone())?.close()?;
        }
        let before = read_superblock(&self.base, SuperblockChoice::Primary)?;
        let Some(found) = Fs::find_journal(&self.base, &before, &self.options, false)? else {
            return Err(without_journal());
        };
        let changes = self.changes(&before, &found)?;
        if changes.are_none() {
            return Ok(StagedReport::default());
        }
        let device: SharedDevice = Arc::<CowDevice>::clone(&self.front);
        let after = read_superblock(&device, SuperblockChoice::Primary)?;
        let mut log = start_log(&self.base, &before, &found, None)?;
        let images = self.images(&changes, &after)?;
        let needed = log.needed(images.len(), 0);
        if needed > log.capacity() {
            return Err(too_many(needed.into(), log.capacity().into()));
        }
        let place = Place::new(&self.base, &before)?;
        place.mark(&mut log, &before, true)?;
        log.close().map_err(Error::log)?;
        for run in &changes.free {
            self.copy(run.clone(), before.block_size())?;
        }
        let tid = append(&mut log, &images)?;
        log.commit(tid, now())
            .map_err(|e| Error::PerhapsMade(Arc::new(Error::log(e))))?;
        let homed = (|| {
            for (block, bytes) in &images {
                self.base
                    .write_at(offset(before.block_size(), *block), bytes)?;
            }
            self.base.flush()?;
            log.set_tail(None).map_err(Error::log)?;
            place.mark(&mut log, &after, false)?;
            log.close().map_err(Error::log)
        })();
        homed.map_err(|e: Error| Error::NotHome(Arc::new(e)))?;
        Ok(StagedReport {
            placed: changes.free.iter().map(|run| run.end - run.start).sum(),
            logged: images.len() as u64,
        })
    }

    /// What differs between the two devices: blocks that were free before, and the others.
    fn changes(&self, before: &Superblock, found: &Found) -> Result<Changes> {
        let bytes = u64::from(before.block_size().bytes());
        let mut log: Vec<Range<u64>> = found.runs.iter().map(run_of).collect();
        log.sort_by_key(|run| run.start);
        let of_log = u64::from(found.runs.iter().map(|run| run.len).sum::<u32>());
        let reading = MountOptions::read_only();
        let base = Fs::open(Arc::clone(&self.base), reading)?;
        let mut free = Vec::new();
        for_each_free_run(base.volume(), None, |run| free.push(run))?;
        let mut changes = Changes::default();
        let (mut here, mut there) = (vec![0; bytes as usize], vec![0; bytes as usize]);
        let mut next = 0;
        for range in self.front.changed() {
            let first = (range.start / bytes).max(next);
            next = range.end.div_ceil(bytes).min(before.blocks_count());
            for block in first..next {
                if contains(&log, block) {
                    continue;
                }
                if contains(&free, block) {
                    changes.add_free(block);
                    continue;
                }
                self.front.read_at(block * bytes, &mut here)?;
                self.base.read_at(block * bytes, &mut there)?;
                if here == there {
                    continue;
                }
                if changes.used.len() as u64 >= of_log {
                    return Err(too_many(of_log + 1, of_log));
                } else {
                    changes.used.push(Pblk::new(block));
                }
            }
        }
        Ok(changes)
    }

    /// The content of the blocks that go through the log. The superblock is among them, as it is
    /// while the log counts.
    fn images(&self, changes: &Changes, after: &Superblock) -> Result<Vec<(Pblk, Box<[u8]>)>> {
        let size = after.block_size();
        let (home, at) = place(size);
        let mut marked = after.clone();
        marked.set_needs_recovery(true);
        let mut blocks = changes.used.clone();
        if let Err(index) = blocks.binary_search(&home) {
            blocks.insert(index, home);
        }
        let mut images = Vec::with_capacity(blocks.len());
        for block in blocks {
            let mut bytes = vec![0; size.len()].into_boxed_slice();
            self.front.read_at(offset(size, block), &mut bytes)?;
            if block == home {
                put_superblock(&mut bytes, at, &marked);
            }
            images.push((block, bytes));
        }
        Ok(images)
    }

    /// Copies a run of blocks to the real device.
    fn copy(&self, run: Range<u64>, size: BlockSize) -> Result<()> {
        let bytes = u64::from(size.bytes());
        let mut rest = run.start * bytes..run.end * bytes;
        let mut buf = vec![0; PIECE.min(rest.end - rest.start) as usize];
        while !rest.is_empty() {
            let len = PIECE.min(rest.end - rest.start);
            let buf = &mut buf[..len as usize];
            self.front.read_at(rest.start, buf)?;
            self.base.write_at(rest.start, buf)?;
            rest.start += len;
        }
        Ok(())
    }
}

/// Blocks that differ, ascending.
#[derive(Debug, Default)]
struct Changes {
    free: Vec<Range<u64>>,
    used: Vec<Pblk>,
}

impl Changes {
    fn are_none(&self) -> bool {
        self.free.is_empty() && self.used.is_empty()
    }

    fn add_free(&mut self, block: u64) {
        match self.free.last_mut() {
            Some(last) if last.end == block => last.end += 1,
            _ => self.free.push(block..block + 1),
        }
    }
}

/// The block of the superblock on a device, and what else is in it.
#[derive(Debug)]
struct Place<'a> {
    device: &'a SharedDevice,
    block: Pblk,
    at: usize,
    offset: u64,
    around: Box<[u8]>,
}

impl<'a> Place<'a> {
    fn new(device: &'a SharedDevice, superblock: &Superblock) -> Result<Self> {
        let size = superblock.block_size();
        let (block, at) = place(size);
        let offset = offset(size, block);
        let mut around = vec![0; size.len()].into_boxed_slice();
        device.read_at(offset, &mut around)?;
        Ok(Self {
            device,
            block,
            at,
            offset,
            around,
        })
    }

    /// Says whether the log counts: by a transaction of its own, so that a write of which a crash
    /// leaves one half can be made whole, and then at home. Both are durable on return.
    fn mark(&self, log: &mut LogWriter, superblock: &Superblock, counts: bool) -> Result<()> {
        let mut marked = superblock.clone();
        marked.set_needs_recovery(counts);
        let mut bytes = self.around.clone();
        put_superblock(&mut bytes, self.at, &marked);
        let images = [(self.block, bytes)];
        let tid = append(log, &images)?;
        log.commit(tid, now()).map_err(Error::log)?;
        self.device.write_at(self.offset, &images[0].1)?;
        self.device.flush()?;
        Ok(())
    }
}

/// Writes blocks into the log as the next transaction, which is not committed by that.
fn append(log: &mut LogWriter, blocks: &[(Pblk, Box<[u8]>)]) -> Result<Tid> {
    let tid = log.next_tid();
    let images: Vec<LogImage<'_>> = blocks
        .iter()
        .map(|(block, bytes)| LogImage {
            block: *block,
            bytes,
        })
        .collect();
    let transaction = LogTransaction {
        tid,
        images: &images,
        revokes: &[],
    };
    log.append(&transaction).map_err(Error::log)?;
    Ok(tid)
}

fn now() -> CommitTime {
    let now = clock::now();
    CommitTime {
        seconds: u64::try_from(now.secs).unwrap_or(0),
        nanoseconds: now.nanos,
    }
}

fn put_superblock(block: &mut [u8], at: usize, superblock: &Superblock) {
    if let Some(place) = block.get_mut(at..at + SUPERBLOCK_LEN) {
        place.copy_from_slice(&superblock.encode());
    }
}

fn offset(size: BlockSize, block: Pblk) -> u64 {
    size.offset_of(block).unwrap_or(u64::MAX)
}

fn run_of(run: &extant_jbd2::LogRun) -> Range<u64> {
    run.start.get()..run.start.get() + u64::from(run.len)
}

/// Whether one of these runs, which are in order, has the block.
fn contains(runs: &[Range<u64>], block: u64) -> bool {
    let at = runs.partition_point(|run| run.end <= block);
    runs.get(at).is_some_and(|run| run.start <= block)
}

/// Refuses what cannot be changed as a whole.
fn check(superblock: &Superblock) -> Result<()> {
    if !superblock.has_compat(Compat::HAS_JOURNAL) {
        return Err(without_journal());
    }
    if superblock.has_incompat(Incompat::MMP) {
        return Err(Error::NotAtOnce("the file system has the feature mmp"));
    }
    Ok(())
}

fn without_journal() -> Error {
    Error::NotAtOnce("the file system has no journal")
}

fn too_many(needed: u64, capacity: u64) -> Error {
    Error::TooManyChanges { needed, capacity }
}
