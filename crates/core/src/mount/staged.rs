//! Changes that are made as a whole, or not at all.
//!
//! The engine runs over a device that keeps what is written elsewhere, and closes the file system
//! there. What has changed then goes to the real device as one transaction of its log: a crash at
//! any moment leaves all of it, to be replayed by the next program that opens the image, or
//! nothing. Linux and e2fsck are such programs, too.
//!
//! Blocks that were free before need no log: nothing refers to them until the transaction is
//! committed, so they are written to their places first. What is left for the log is metadata, and
//! data that is overwritten in place.
//!
//! Where that does not fit into the log at once, there is none, or checksums start from something
//! else afterwards (Linux keeps what they start from over a replay), it waits in free blocks:
//! see [`waiting`](super::waiting).
//!
//! # Order on the device, by the log
//!
//! 1. A log that waits is replayed, as by any opening for writing, and an empty log begins. The
//!    superblock that says that the log counts goes through the log by itself, as whenever a file
//!    system is opened for writing, and then home.
//! 2. Blocks that were free are written.
//! 3. One transaction is committed: everything else. Its first flush makes durable what steps 1 and
//!    2 wrote elsewhere.
//! 4. It goes home. The superblock that says that the log does not count any more goes through the
//!    log: the first flush of that makes the rest durable at home, and the log begins with it then.
//! 5. That superblock goes home, is flushed, and the log is emptied as on closing.
//!
//! Where the log has no room for the marks beside the changes, it is emptied after steps 1 and 4.
//!
//! # Invariants
//! - Until the commit, nothing is written but the log, the mark that it counts, and free blocks.
//! - The superblock in the transaction says that the log counts: it is in the log while that is
//!   replayed.
//! - Each write asks before it is made whether the claim stands: the device is one that the claim
//!   [guards](Held::guard), where there is one.
//! - The blocks of the log itself are not part of the changes: a log that was replayed in front is
//!   empty there, and nothing is written to it. Nor is the block of multiple-mount protection: the
//!   real device is claimed from the beginning to the end, and the one in front is not.

use super::held::Held;
use super::open::read_superblock;
use super::torn;
use super::waiting::{self, Planned};
use super::writable::{Claims, Found, start_log};
use crate::alloc::for_each_free_run;
use crate::fs::{Fs, MountOptions, SuperblockChoice, Unclaimed, policy};
use crate::volume::place;
use crate::{Error, Result, clock};
use extant_blockdev::{BlockDevice, CowDevice, SharedDevice};
use extant_format::geometry::Geometry;
use extant_format::superblock::{SUPERBLOCK_LEN, Superblock};
use extant_format::waiting::Head;
use extant_format::{BlockSize, Group, Pblk, Tid};
use extant_jbd2::{CommitTime, LogImage, LogTransaction, LogWriter};
use std::ops::{Range, RangeInclusive};
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
    held: Held,
    /// A change of the closed file system failed: what there is now is not to be committed.
    is_lost: bool,
    /// Nothing is ever to be committed.
    is_rehearsal: bool,
}

/// What a commit of staged changes wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagedReport {
    /// Blocks that were free before and are written to their places.
    pub placed: u64,
    /// Blocks that went through the log.
    pub logged: u64,
    /// Blocks that were written to free blocks first, and then to their places.
    pub waited: u64,
}

impl Staged {
    /// Opens the file system on `base` for changes that are kept on `spool` until they are
    /// committed. `spool` reads as zeroes and has room for as much as `base`; it takes space for
    /// what is changed only.
    ///
    /// Nothing is written to `base`: a log that waits there is replayed in front. Two things are
    /// different. Changes that were made as a whole and wait to be put in place are, and with the
    /// feature `mmp` the file system is claimed until this is dropped.
    ///
    /// # Errors
    /// As for [`Fs::open`]; [`Error::ReadOnly`] if `options` do not say that it is written to;
    /// [`Error::NotAtOnce`] for a file system of revision 0, which has no features.
    pub fn begin(base: SharedDevice, spool: SharedDevice, options: MountOptions) -> Result<Self> {
        check_options(&options)?;
        let (found, _) = torn::find_settled(&base, &options, true)?;
        check_changeable(&found.superblock)?;
        let front = Arc::new(CowDevice::new(Arc::clone(&base), spool)?);
        let held = Held::take_behind(&base, &*front, &found.superblock)?;
        Self::opened(held.guard(base), front, options, held)
    }

    /// Opens the file system on `base` for changes that are never committed: to see what would come
    /// of them. `spool` is that of [`Staged::begin`].
    ///
    /// Nothing at all is written to `base`: changes that wait to be put in place are shown there.
    /// With the feature `mmp` the file system is not claimed. Where somebody else has claimed it,
    /// that is told as by [`Staged::begin`], and after as long a wait.
    ///
    /// # Errors
    /// As for [`Staged::begin`].
    pub fn rehearse(
        mut base: SharedDevice,
        spool: SharedDevice,
        options: MountOptions,
    ) -> Result<Self> {
        check_options(&options)?;
        let (found, claim) = match torn::find_superblock(&base, &options) {
            Ok(found) => {
                let claim = Unclaimed::watch(&base, &found.superblock, std::thread::sleep)?;
                (found, claim)
            }
            Err(e) => {
                let claim = waiting::unclaimed(&base)?;
                base = waiting::in_front(&base)?.ok_or(e)?;
                (torn::find_superblock(&base, &options)?, claim)
            }
        };
        check_changeable(&found.superblock)?;
        let front = Arc::new(CowDevice::new(Arc::clone(&base), spool)?);
        if let Some(claim) = claim {
            claim.hide(&*front)?;
        }
        let mut rehearsal = Self::opened(base, front, options, Held::NONE)?;
        rehearsal.is_rehearsal = true;
        Ok(rehearsal)
    }

    fn opened(
        base: SharedDevice,
        front: Arc<CowDevice>,
        options: MountOptions,
        held: Held,
    ) -> Result<Self> {
        let device: SharedDevice = Arc::<CowDevice>::clone(&front);
        let fs = Fs::open_writable(device, &options, Claims::HeldInFront)?;
        Ok(Self {
            base,
            front,
            options,
            fs,
            held,
            is_lost: false,
            is_rehearsal: false,
        })
    }

    /// Closes the file system, has `change` change the device as it is with the changes so far,
    /// and opens it again.
    ///
    /// # Errors
    /// What `change` says, [`Fs::close`] and [`Fs::open`]. Nothing can be committed after that.
    pub fn change_closed<E: From<Error>>(
        &mut self,
        change: impl FnOnce(&SharedDevice) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.is_lost = true;
        self.fs.close()?;
        let device: SharedDevice = Arc::<CowDevice>::clone(&self.front);
        change(&device)?;
        self.fs = Fs::open_writable(device, &self.options, Claims::HeldInFront)?;
        self.is_lost = false;
        Ok(())
    }

    /// Has `change` make further changes, all of them or none: if it fails, there is what was there
    /// before. They are kept on `spool` meanwhile, which is as that of [`Staged::begin`]. `change`
    /// is given what it changes, which cannot be committed by itself, and returns it.
    ///
    /// The file system is closed for that and opened again. What was opened before can be read on,
    /// and changed no more.
    ///
    /// # Errors
    /// What `change` says, [`Fs::close`] and [`Fs::open`]. Where the file system cannot be closed
    /// or opened again, nothing can be committed after that.
    pub fn attempt<T, E: From<Error>>(
        &mut self,
        spool: SharedDevice,
        change: impl FnOnce(Self) -> std::result::Result<(T, Self), E>,
    ) -> std::result::Result<T, E> {
        let was_lost = std::mem::replace(&mut self.is_lost, true);
        if was_lost {
            return Err(half_way().into());
        }
        self.fs.close()?;
        // The room that a failed one took is free when this returns.
        let done = match self.on_trial(spool, change) {
            Ok((done, trial)) => {
                for range in trial.front.changed() {
                    copy(&*trial.front, &*self.front, range)?;
                }
                Ok(done)
            }
            Err(e) => Err(e),
        };
        let device: SharedDevice = Arc::<CowDevice>::clone(&self.front);
        self.fs = Fs::open_writable(device, &self.options, Claims::HeldInFront)?;
        self.is_lost = false;
        done
    }

    /// What `change` has made lies in front of these changes, closed.
    fn on_trial<T, E: From<Error>>(
        &self,
        spool: SharedDevice,
        change: impl FnOnce(Self) -> std::result::Result<(T, Self), E>,
    ) -> std::result::Result<(T, Self), E> {
        let below: SharedDevice = Arc::<CowDevice>::clone(&self.front);
        let front = CowDevice::new(Arc::clone(&below), spool).map_err(Error::from)?;
        let mut trial = Self::opened(below, Arc::new(front), self.options.clone(), Held::NONE)?;
        trial.is_rehearsal = true;
        let (done, trial) = change(trial)?;
        // What went on after a failure half-way is none.
        if trial.is_lost {
            return Err(half_way().into());
        }
        trial.fs.close()?;
        Ok((done, trial))
    }

    /// Returns the file system with the changes so far.
    #[must_use]
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Returns the size of the device, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.base.size()
    }

    /// Puts the changes onto the device: they are durable when this returns. A log that waits there
    /// is replayed first. The file system is closed; holds on it may still read.
    ///
    /// # Errors
    /// [`Error::TooManyChanges`] when what is changed in place fits neither into the log at once
    /// nor into free blocks, what [`Fs::close`] says, and what the device says: nothing is changed
    /// then. [`Error::PerhapsMade`] when the device failed while the changes were committed: all of
    /// them are made, or none. [`Error::NotHome`] when it failed after that: they are in the log,
    /// or in free blocks, and the next opening for writing puts them in place.
    /// [`Error::ReadOnly`] after [`Staged::rehearse`].
    pub fn commit(mut self) -> Result<StagedReport> {
        if self.is_rehearsal {
            return Err(Error::ReadOnly);
        }
        if self.is_lost {
            return Err(half_way());
        }
        let committed = self.commit_guarded();
        committed.map_err(|e| match e {
            e @ (Error::PerhapsMade(_) | Error::NotHome(_)) => e,
            e => self.held.why(e, |e| e),
        })
    }

    fn commit_guarded(&mut self) -> Result<StagedReport> {
        self.fs.close()?;
        // What another host has in its log by now is not to be replayed.
        self.held.check()?;
        let found = torn::find_superblock(&self.base, &self.options)?;
        if found.torn.is_some() || found.superblock.needs_recovery() {
            let base = Arc::clone(&self.base);
            Fs::open_writable(base, &self.options, Claims::Held)?.close()?;
        }
        let before = read_superblock(&self.base, SuperblockChoice::Primary)?;
        let found = Fs::find_journal(&self.base, &before, &self.options, false)?;
        let changes = self.changes(&before, found.as_ref())?;
        if changes.are_none() {
            return Ok(StagedReport::default());
        }
        let device: SharedDevice = Arc::<CowDevice>::clone(&self.front);
        let after = read_superblock(&device, SuperblockChoice::Primary)?;
        let by_log = match found {
            Some(found) if !is_sealed_anew(&before, &after) => {
                self.by_log(&before, &after, &found, &changes)?
            }
            _ => None,
        };
        match by_log {
            Some(report) => Ok(report),
            None => self.by_waiting(&before, &after, &changes, &device),
        }
    }

    /// Commits the changes as one transaction of the log; `None` if they do not fit into it.
    fn by_log(
        &self,
        before: &Superblock,
        after: &Superblock,
        found: &Found,
        changes: &Changes,
    ) -> Result<Option<StagedReport>> {
        if changes.used.len() as u64 > blocks_of(found) {
            return Ok(None);
        }
        let mut log = start_log(&self.base, before, found, None)?;
        // The superblock is one of them, or one more.
        let own = place(before.block_size()).0;
        let count = changes.used.len() + usize::from(changes.used.binary_search(&own).is_err());
        let needed = log.needed(count, 0);
        if needed > log.capacity() {
            return Ok(None);
        }
        // Whether the marks lie in the log beside the changes, which saves the device flushes.
        let is_roomy = needed.saturating_add(2 * log.needed(1, 0)) <= log.capacity();
        let images = self.images(changes, after)?;
        let place = Place::new(&self.base, before)?;
        place.mark(&mut log, before, true)?;
        if !is_roomy {
            self.base.flush()?;
            log.close().map_err(Error::log)?;
        }
        for run in &changes.free {
            self.copy(run.clone(), before.block_size())?;
        }
        let tid = append(&mut log, &images)?;
        // Its first flush makes the mark durable at home, too.
        log.commit(tid, now()).map_err(|e| {
            let perhaps = |e| Error::PerhapsMade(Arc::new(e));
            self.held.why(Error::log(e), perhaps)
        })?;
        let homed = (|| {
            for (block, bytes) in &images {
                self.base
                    .write_at(offset(before.block_size(), *block), bytes)?;
            }
            if !is_roomy {
                self.base.flush()?;
                log.set_tail(None).map_err(Error::log)?;
            }
            // The first flush of its commit makes what is at home durable, before the tail moves.
            place.mark(&mut log, after, false)?;
            self.base.flush()?;
            log.close().map_err(Error::log)
        })();
        homed.map_err(|e: Error| Error::NotHome(Arc::new(e)))?;
        Ok(Some(StagedReport {
            placed: changes.free.iter().map(|run| run.end - run.start).sum(),
            logged: images.len() as u64,
            waited: 0,
        }))
    }

    /// Commits the changes by way of blocks that are free before and afterwards.
    fn by_waiting(
        &mut self,
        before: &Superblock,
        after: &Superblock,
        changes: &Changes,
        device: &SharedDevice,
    ) -> Result<StagedReport> {
        let (was_free, is_free) = (free_runs(&self.base)?, free_runs(device)?);
        // What was written and is free again does not matter any more.
        let placed = without(&changes.free, &is_free);
        let room = without(&common(&was_free, &is_free), &changes.free);
        let mut blocks = changes.used.clone();
        let own = place(before.block_size()).0;
        if let Err(index) = blocks.binary_search(&own) {
            blocks.insert(index, own);
        }
        let (base, front) = (Arc::clone(&self.base), Arc::clone(&self.front));
        let planned = Planned {
            device: &base,
            front: &*front,
            before,
            after,
            blocks: &blocks,
            room: &room,
        };
        planned.check_room()?;
        for run in &placed {
            self.copy(run.clone(), before.block_size())?;
        }
        planned.make(&mut self.held)?;
        Ok(StagedReport {
            placed: placed.iter().map(|run| run.end - run.start).sum(),
            logged: 0,
            waited: blocks.len() as u64,
        })
    }

    /// What differs between the two devices: blocks that were free before, and the others.
    fn changes(&self, before: &Superblock, found: Option<&Found>) -> Result<Changes> {
        let bytes = u64::from(before.block_size().bytes());
        let runs = found.map_or(&[][..], |found| &found.runs);
        let mut log: Vec<Range<u64>> = runs.iter().map(run_of).collect();
        log.sort_by_key(|run| run.start);
        let mmp = before.mmp_block().map(Pblk::get);
        let changed = self.front.changed();
        let geometry = Geometry::new(before);
        let mut groups: Vec<RangeInclusive<Group>> = Vec::new();
        for range in &changed {
            let group = |byte: u64| geometry.group_of_block(Pblk::new(byte / bytes));
            let last = (range.end - 1).min(before.blocks_count() * bytes - 1);
            // The first blocks of small ones are in no group, and never free.
            if let Ok(last) = group(last) {
                groups.push(group(range.start).unwrap_or(Group::new(0))..=last);
            }
        }
        let is_wanted = |group: Group| {
            let at = groups.partition_point(|groups| *groups.end() < group);
            groups.get(at).is_some_and(|groups| groups.contains(&group))
        };
        let free = match found.and_then(|found| found.seen.as_ref()) {
            Some(seen) => free_in(seen, is_wanted)?,
            None => {
                let base = Arc::clone(&self.base);
                let fs = Fs::open(base, MountOptions::read_only())?;
                free_in(&fs, is_wanted)?
            }
        };
        let mut changes = Changes::default();
        let (mut here, mut there) = (vec![0; bytes as usize], vec![0; bytes as usize]);
        let mut next = 0;
        for range in changed {
            let first = (range.start / bytes).max(next);
            next = range.end.div_ceil(bytes).min(before.blocks_count());
            for block in first..next {
                if contains(&log, block) || mmp == Some(block) {
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
                if changes.used.len() as u64 >= Head::MAX_COUNT {
                    return Err(Error::TooManyChanges {
                        needed: Head::MAX_COUNT + 1,
                        capacity: Head::MAX_COUNT,
                    });
                }
                changes.used.push(Pblk::new(block));
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

/// Copies a range of bytes from one device to another.
fn copy(from: &dyn BlockDevice, to: &dyn BlockDevice, mut rest: Range<u64>) -> Result<()> {
    let mut buf = vec![0; PIECE.min(rest.end - rest.start) as usize];
    while !rest.is_empty() {
        let buf = &mut buf[..PIECE.min(rest.end - rest.start) as usize];
        from.read_at(rest.start, buf)?;
        to.write_at(rest.start, buf)?;
        rest.start += buf.len() as u64;
    }
    Ok(())
}

fn half_way() -> Error {
    Error::NotAtOnce("one of the changes failed half-way")
}

fn check_options(options: &MountOptions) -> Result<()> {
    if options.read_only {
        return Err(Error::ReadOnly);
    }
    if options.dax {
        let reason = "direct access (dax) to changes that are made as a whole";
        return Err(Error::InvalidInput(reason));
    }
    Ok(())
}

/// Refuses a file system that cannot be changed as a whole.
fn check_changeable(superblock: &Superblock) -> Result<()> {
    policy::check_writable(superblock.features())?;
    if superblock.raw().rev_level.get() == 0 {
        return Err(Error::NotAtOnce(
            "the file system has revision 0 of the format (single commands can change it)",
        ));
    }
    Ok(())
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
    /// leaves one half can be made whole, and then at home. The transaction is durable on return
    /// and the first one of the log; at home it is durable after the next flush.
    fn mark(&self, log: &mut LogWriter, superblock: &Superblock, counts: bool) -> Result<()> {
        let mut marked = superblock.clone();
        marked.set_needs_recovery(counts);
        let mut bytes = self.around.clone();
        put_superblock(&mut bytes, self.at, &marked);
        let images = [(self.block, bytes)];
        let tid = append(log, &images)?;
        // What came before is at home, and with the first flush of the commit durable there.
        log.queue_tail(None).map_err(Error::log)?;
        log.commit(tid, now()).map_err(Error::log)?;
        self.device.write_at(self.offset, &images[0].1)?;
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

/// Blocks of a log.
fn blocks_of(found: &Found) -> u64 {
    found.runs.iter().map(|run| u64::from(run.len)).sum()
}

/// Whether checksums start from something else afterwards.
fn is_sealed_anew(before: &Superblock, after: &Superblock) -> bool {
    let metadata = |superblock: &Superblock| {
        superblock
            .has_metadata_csum()
            .then(|| superblock.checksum_seed())
    };
    metadata(before) != metadata(after) || before.desc_checksum() != after.desc_checksum()
}

/// The blocks that are free on a device, in ascending order.
fn free_runs(device: &SharedDevice) -> Result<Vec<Range<u64>>> {
    let fs = Fs::open(Arc::clone(device), MountOptions::read_only())?;
    free_in(&fs, |_| true)
}

/// The blocks that are free in the groups of a file system that are `wanted`, in ascending order.
fn free_in(fs: &Fs, wanted: impl Fn(Group) -> bool) -> Result<Vec<Range<u64>>> {
    let mut free: Vec<Range<u64>> = Vec::new();
    for_each_free_run(fs.volume(), None, wanted, |run| match free.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => free.push(run),
    })?;
    Ok(free)
}

/// What is in both of two lists of runs, which are in order.
fn common(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut rest = other;
    for run in one {
        while let Some((first, others)) = rest.split_first() {
            if first.end <= run.start {
                rest = others;
                continue;
            }
            let both = first.start.max(run.start)..first.end.min(run.end);
            if both.is_empty() {
                break;
            }
            found.push(both);
            if first.end > run.end {
                break;
            }
            rest = others;
        }
    }
    found
}

/// What is in the first of two lists of runs, which are in order, and not in the second.
fn without(runs: &[Range<u64>], taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    for run in runs {
        let mut start = run.start;
        let from = taken.partition_point(|other| other.end <= run.start);
        for other in taken.iter().skip(from) {
            if other.start >= run.end {
                break;
            }
            if other.start > start {
                found.push(start..other.start);
            }
            start = start.max(other.end);
        }
        if start < run.end {
            found.push(start..run.end);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};

    /// Runs of numbers below 200, as they are and as a set.
    fn random(rng: &mut Rng) -> (Vec<Range<u64>>, Vec<bool>) {
        let mut set = vec![false; 200];
        let mut runs = Vec::new();
        let mut at = 0;
        loop {
            let start = at + rng.below(8);
            let end = start + 1 + rng.below(8);
            if end > 200 {
                return (runs, set);
            }
            runs.push(start..end);
            (start..end).for_each(|number| set[number as usize] = true);
            at = end + 1;
        }
    }

    fn as_set(runs: &[Range<u64>]) -> Vec<bool> {
        let mut set = vec![false; 200];
        let mut at = 0;
        for run in runs {
            assert!(at <= run.start && run.start < run.end, "{runs:?}");
            run.clone().for_each(|number| set[number as usize] = true);
            at = run.end;
        }
        set
    }

    #[test]
    fn runs_are_compared_as_sets() {
        let mut rng = Rng::new(seed_from_env("runs as sets"));
        for _ in 0..2000 {
            let ((one, one_set), (other, other_set)) = (random(&mut rng), random(&mut rng));
            let sets = || one_set.iter().zip(&other_set);
            let both: Vec<bool> = sets().map(|(one, other)| *one && *other).collect();
            let first: Vec<bool> = sets().map(|(one, other)| *one && !*other).collect();
            assert_eq!(as_set(&common(&one, &other)), both, "{one:?} {other:?}");
            assert_eq!(as_set(&without(&one, &other)), first, "{one:?} {other:?}");
        }
    }
}
