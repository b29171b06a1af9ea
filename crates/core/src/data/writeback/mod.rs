//! Writing what is dirty of a file to the device, and mapping it.
//!
//! # How
//!
//! 1. Dirty blocks become blocks under writeback, folio by folio, ascending.
//! 2. Where they lie is looked up; what lies nowhere gets its place, all of it together where that
//!    is possible.
//! 3. They are written, with transfers as large as places allow, several at once where the device
//!    is quicker so, and that is complete.
//! 4. One handle, or as many as its room demands, makes the places the file's, maps them and moves
//!    the size of the record.
//!
//! So no transaction maps what is not on the device. Ascending order and step 4 keep the size of
//! the record behind what is written, but for holes.
//!
//! # Invariants
//!
//! - One thread at a time writes a file back (`writing`), and nobody takes blocks away meanwhile.
//!   So what was looked up in step 2 is so in step 4, as long as all else that maps blocks keeps
//!   writeback away too.
//! - A block under writeback may be written to by users: then it is dirty besides, and written
//!   again later.
//! - What could not be written, or mapped, is dirty again.

pub(super) mod durable;
pub(super) mod flusher;
mod offload;
mod reserved;
mod send;
mod small_files;

use crate::alloc::{FileRequest, Taken};
use crate::data::cache::FileCache;
use crate::data::cache::folio::{FOLIO_LOG2, Folio, mask, rows};
use crate::data::io::{FileIo, WriteIo};
use crate::data::reserve::preallocation;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use crate::map::{self, MapGuard, NewRuns, NodeSpace, Target};
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_format::{Lblk, Pblk};
use extant_sync::{Rank, debug_assert_no_locks_at_or_above};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows of blocks that are written back together at most.
const MOST_ROWS: usize = 8192;
/// Bytes that are written back together at most.
const MOST_BYTES: u64 = 64 << 20;

/// Writes to the device what is dirty of a file, and maps it. What becomes dirty meanwhile may or
/// may not be among it.
///
/// # Errors
/// [`Error::Device`] when the device fails, [`Error::NoSpace`] when there is no room after all;
/// what stopped the journal. What was not written stays in memory, dirty, and every open file hears
/// of the failure.
pub(crate) fn write_back(fs: &Fs, live: &Arc<LiveInode>) -> Result<()> {
    let Some(cache) = live.file_cache() else {
        return Ok(());
    };
    debug_assert_no_locks_at_or_above(Rank::Writeback);
    if !fs.data().is_write_back() {
        // Data is there already.
        let _alone = cache.quiesce();
        if let Err(e) = crate::data::direct::dax::persist(fs, cache) {
            cache.failures.note(&e);
            return Err(e);
        }
        return FileIo::new(fs, live).store_time();
    }
    let _alone = cache.quiesce();
    write_back_quiet(fs, live, cache)
}

/// Writes back what is dirty of a file, as [`write_back`] does. The caller keeps others from
/// writing it back.
pub(super) fn write_back_quiet(
    fs: &Fs,
    live: &Arc<LiveInode>,
    cache: &Arc<FileCache>,
) -> Result<()> {
    if cache.is_deleting() {
        return Ok(());
    }
    let Ok(io) = WriteIo::new(fs, live) else {
        debug_assert!(!cache.dirty.has_any(), "nobody writes");
        return Ok(());
    };
    let mut written = io.write_dirty();
    // What stood in the way has been dealt with: reserved space in which there was no room for more
    // extents. Each time there is less of it.
    while matches!(written, Err(Error::NoSpace)) && io.has_converted.take() {
        written = io.write_dirty();
    }
    let written = written
        .and_then(|()| io.store_size())
        .and_then(|()| io.store_time());
    written.inspect_err(|error| {
        cache.failures.note(error);
        cache.list(live);
    })
}

/// A row of blocks and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritebackRun {
    pub(super) lblk: u64,
    pub(super) len: u32,
    pub(super) pblk: Pblk,
    pub(super) kind: WritebackState,
    /// How many leaves of the tree were met before.
    pub(super) leaf: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WritebackState {
    /// Holds data.
    Written,
    /// The file's, and never written.
    Unwritten,
    /// Just taken.
    New,
    /// Chosen by the write.
    Placed,
    /// In the cluster of blocks that have their place.
    Joined,
}

impl WritebackRun {
    pub(super) fn end(&self) -> u64 {
        self.lblk + u64::from(self.len)
    }
}

/// What is written back together.
#[derive(Debug, Default)]
pub(super) struct Batch<'f> {
    /// Blocks by folio.
    blocks: Vec<(u32, u64)>,
    /// How many of them were delayed.
    delayed: u32,
    pub(super) pieces: Vec<WritebackRun>,
    /// The places of new pieces, in their order; those for which promises were used up with the
    /// first logical cluster.
    pub(super) taken: VecDeque<(Taken<'f>, Option<u32>)>,
}

/// Blocks that are about to be mapped, and whose they are again if they are not.
struct Given<'f> {
    taken: Taken<'f>,
    origin: Origin,
}

enum Origin {
    /// The promises of logical clusters from this one on.
    Promise(u32),
    /// The places that a write chose for logical blocks from this one on.
    Write(u32),
    /// What was free.
    Space,
}

/// What became of pieces that were to be mapped.
pub(super) struct Mapped<'f> {
    /// How many of their blocks were delayed.
    delayed: u32,
    /// Promises for nodes that are left.
    nodes: u32,
    /// What was not mapped.
    left: Vec<Given<'f>>,
    result: Result<()>,
}

impl FileIo<'_> {
    /// Moves the size of the record to where the file ends, once nothing is dirty: what a writer
    /// wrote may have been mapped before the file was longer for it.
    pub(super) fn store_size(&self) -> Result<()> {
        let size = self.live.live_size();
        if size <= self.live.snapshot().size() || self.cache.dirty.has_any() {
            return Ok(());
        }
        let handle = self.fs.start(1)?;
        self.live.update(&handle, |inode| {
            let disk = inode.disk_mut();
            disk.size = disk.size.max(size);
        })
    }

    /// Stores the time of the last write, if no handle did so on the way.
    pub(super) fn store_time(&self) -> Result<()> {
        if self.cache.has_time() {
            let handle = self.fs.start(1)?;
            self.live.update(&handle, |_| ())?;
        }
        Ok(())
    }
}

impl<'f> WriteIo<'f> {
    /// Writes all that is dirty, batch by batch.
    fn write_dirty(&self) -> Result<()> {
        let dirty = self.cache.dirty.take();
        let mut rest = &dirty[..];
        while !rest.is_empty() {
            let mut batch = Batch::default();
            rest = self.collect(rest, &mut batch);
            if let Err(e) = self.write_batch(&mut batch) {
                self.restore(&batch);
                self.cache.dirty.put_back(rest);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Puts dirty blocks of some of `folios` under writeback. Returns the folios that are left.
    pub(super) fn collect<'d>(&self, folios: &'d [u32], batch: &mut Batch<'f>) -> &'d [u32] {
        let (mut count, mut bytes) = (0, 0_u64);
        for (i, &index) in folios.iter().enumerate() {
            if count >= MOST_ROWS || bytes >= MOST_BYTES {
                return &folios[i..];
            }
            let Some(folio) = self.cache.index.load(index) else {
                continue;
            };
            let mut state = folio.write();
            let blocks = std::mem::take(&mut state.dirty);
            if blocks == 0 {
                continue;
            }
            debug_assert!(state.writeback == 0, "one writeback at a time");
            state.writeback = blocks;
            batch.delayed += (state.delayed & blocks).count_ones();
            drop(state);
            batch.blocks.push((index, blocks));
            let here = u64::from(blocks.count_ones()) << self.log2;
            self.cache.caches.count_dirty(-(here as i64));
            bytes += here;
            count += rows(blocks).count();
        }
        &[]
    }

    /// Gives up what was not written, or not mapped, of `batch`: it is dirty again.
    pub(super) fn give_up(&self, batch: &mut Batch<'f>) {
        self.keep_promises(batch);
        self.restore(batch);
    }

    /// Makes dirty again what is still under writeback.
    fn restore(&self, batch: &Batch<'f>) {
        for &(index, blocks) in &batch.blocks {
            let Some(folio) = self.cache.index.load(index) else {
                continue;
            };
            let mut state = folio.write();
            let left = state.writeback & blocks;
            state.writeback &= !left;
            if left != 0 {
                self.set_dirty(&folio, &mut state, left);
            }
        }
    }

    fn write_batch(&self, batch: &mut Batch<'f>) -> Result<()> {
        let short = match self.plan(batch) {
            Ok(()) => None,
            Err(e) => {
                if batch.pieces.is_empty() || !matches!(e, Error::NoSpace) {
                    self.keep_promises(batch);
                    return Err(e);
                }
                Some(e)
            }
        };
        let pieces = std::mem::take(&mut batch.pieces);
        let done = if is_on(Mutant::DataAfterMapping) {
            let mapped = self.map(batch, &pieces);
            let mapped = mapped.and_then(|()| self.fs.commit(self.live.last_seq()));
            mapped.and_then(|()| self.write_pieces(&pieces))
        } else {
            let mut kinds = pieces.iter().map(|piece| piece.kind);
            let settled = if kinds.all(|kind| kind == WritebackState::Written) {
                // The change that made it data has committed that.
                Ok(())
            } else {
                self.cache.commit_detached(self.fs)
            };
            let written = settled.and_then(|()| self.write_pieces(&pieces));
            written.and_then(|()| self.map(batch, &pieces))
        };
        if done.is_err() {
            self.keep_promises(batch);
        }
        done?;
        match short {
            Some(e) => Err(e),
            None => {
                self.release_rest(batch);
                Ok(())
            }
        }
    }

    /// Gives back what was promised for blocks that turned out to have a place.
    pub(super) fn release_rest(&self, batch: &mut Batch<'f>) {
        if batch.delayed > 0 {
            self.cache
                .release_reservation(self.fs, self.alloc, self.live, batch.delayed, 0, 0);
            batch.delayed = 0;
        }
    }

    /// Gives places back that were taken on promises, and keeps the promises.
    fn keep_promises(&self, batch: &mut Batch<'f>) {
        for (taken, promise) in batch.taken.drain(..) {
            let origin = promise.map_or(Origin::Space, Origin::Promise);
            self.give_back(Given { taken, origin });
        }
    }

    /// Gives blocks back so that nobody else gets what the file has been promised.
    fn give_back(&self, given: Given<'f>) {
        let Given { taken, origin } = given;
        match origin {
            Origin::Promise(first) => {
                let clusters = first..first + taken.clusters();
                taken.into_promise();
                if !self.fs.cluster_size().is_block() {
                    self.cache.unclaim(self.alloc, clusters);
                }
            }
            Origin::Write(lblk) => {
                let (pblk, len) = taken.into_raw();
                if !self.cache.placed.add(self.fs, lblk, pblk, len) {
                    drop(Taken::from_raw(self.alloc, pblk, len));
                }
            }
            Origin::Space => drop(taken),
        }
    }

    /// Finds out where the blocks of `batch` lie, and takes places for those that lie nowhere.
    ///
    /// # Errors
    /// What looking them up says. [`Error::NoSpace`] when there were not enough places: the pieces
    /// that are there by then can be written.
    pub(super) fn plan(&self, batch: &mut Batch<'f>) -> Result<()> {
        let ranges = self.ranges(&batch.blocks);
        // Nobody else changes the map now.
        let runs = map::stable(self.live, |image| map::runs_of_all(self.fs, image, &ranges))?;
        let mut wanted = 0_u64;
        for (run, leaf) in runs {
            let piece = |lblk, len, pblk, kind| WritebackRun {
                lblk,
                len,
                pblk,
                kind,
                leaf,
            };
            let lblk = u64::from(run.lblk.get());
            // Within a batch.
            let len = run.len as u32;
            match run.target {
                Target::Written(pblk) => {
                    batch
                        .pieces
                        .push(piece(lblk, len, pblk, WritebackState::Written))
                }
                Target::Unwritten(pblk) => {
                    batch
                        .pieces
                        .push(piece(lblk, len, pblk, WritebackState::Unwritten));
                }
                Target::Hole => {
                    let mut at = 0;
                    while at < len {
                        let first = lblk + u64::from(at);
                        let (kind, pblk, here) = match self.cache.placed.at(first as u32) {
                            Ok((pblk, here)) => (WritebackState::Placed, pblk, here),
                            Err(gap) => (WritebackState::New, Pblk::default(), gap),
                        };
                        let here = here.min(len - at);
                        batch.pieces.push(piece(first, here, pblk, kind));
                        if kind == WritebackState::New {
                            wanted += u64::from(here);
                        }
                        at += here;
                    }
                }
            }
        }
        if self.fs.cluster_size().is_block() {
            self.take_places(batch, wanted)
        } else {
            self.place_in_clusters(batch)
        }
    }

    /// Returns the blocks as ranges of the file.
    fn ranges(&self, blocks: &[(u32, u64)]) -> Vec<Range<u64>> {
        let mut all: Vec<Range<u64>> = Vec::new();
        for &(index, bits) in blocks {
            let first = u64::from(index) << (FOLIO_LOG2 - self.log2);
            for row in rows(bits) {
                let row = first + u64::from(row.start)..first + u64::from(row.end);
                match all.last_mut() {
                    Some(last) if last.end == row.start => last.end = row.end,
                    _ => all.push(row),
                }
            }
        }
        all
    }

    /// Takes `wanted` blocks and gives them to the new pieces in order.
    fn take_places(&self, batch: &mut Batch<'f>, mut wanted: u64) -> Result<()> {
        if wanted == 0 {
            return Ok(());
        }
        let pieces = std::mem::take(&mut batch.pieces);
        let scattered = pieces
            .iter()
            .filter(|p| p.kind == WritebackState::New)
            .count()
            > 1;
        let size = self.live.live_size();
        // Otherwise those that are delayed have their places.
        let mut promised = if self.fs.data().has_delayed_allocation() {
            batch.delayed
        } else {
            0
        };
        // What is left of the last run that was taken.
        let mut run = (Pblk::default(), 0_u32);
        for mut piece in pieces {
            if piece.kind != WritebackState::New {
                batch.pieces.push(piece);
                continue;
            }
            while piece.len > 0 {
                if run.1 == 0 {
                    let len = u32::try_from(wanted).unwrap_or(u32::MAX);
                    let reserved = promised > 0;
                    let ask = FileRequest {
                        lblk: Lblk::new(piece.lblk as u32),
                        len: if reserved { len.min(promised) } else { len },
                        size,
                        reserved,
                        no_prealloc: scattered,
                        // The write was let in, for whichever user.
                        privileged: true,
                    };
                    let taken = preallocation::take_for(self.fs, self.live, &ask)?;
                    run = (taken.start(), taken.len());
                    wanted = wanted.saturating_sub(run.1.into());
                    if reserved {
                        promised -= run.1.min(promised);
                    }
                    self.cache.caches.count_places(false, run.1.into());
                    let promise = reserved.then_some(piece.lblk as u32);
                    batch.taken.push_back((taken, promise));
                }
                let here = piece.len.min(run.1);
                batch.pieces.push(WritebackRun {
                    len: here,
                    pblk: run.0,
                    ..piece
                });
                piece.lblk += u64::from(here);
                piece.len -= here;
                run = (Pblk::new(run.0.get() + u64::from(here)), run.1 - here);
            }
        }
        Ok(())
    }

    /// Writes pieces to where they lie.
    fn write_pieces(&self, pieces: &[WritebackRun]) -> Result<()> {
        if pieces.is_empty() {
            return Ok(());
        }
        let failures = self.fs.flush_failures();
        send::Sender::new(self.fs, self.cache).send(pieces, self.log2)?;
        self.live.note_data(self.fs, failures);
        Ok(())
    }

    /// Makes written pieces the file's.
    fn map(&self, batch: &mut Batch<'f>, pieces: &[WritebackRun]) -> Result<()> {
        let mut rest = pieces;
        while !rest.is_empty() {
            let image = self.live.snapshot();
            let (count, credits) = self.fitting(&image, rest)?;
            let (now, after) = rest.split_at(count);
            let end = now.last().map_or(0, |piece| piece.end() << self.log2);
            let size = end.min(self.live.live_size()).max(image.size());
            let changes = now
                .iter()
                .any(|piece| piece.kind != WritebackState::Written);
            if changes {
                let mapped = self.map_some(batch, now, size, credits);
                if matches!(mapped, Err(Error::NoSpace)) && self.convert_whole(now)? {
                    self.has_converted.set(true);
                }
                mapped?;
            } else if size > image.size() {
                let handle = self.fs.start(1)?;
                self.live.update(&handle, |inode| {
                    let disk = inode.disk_mut();
                    disk.size = disk.size.max(size);
                })?;
            }
            self.finish(now);
            rest = after;
        }
        Ok(())
    }

    /// Returns how many of `pieces` one handle can map, and with how many credits.
    pub(super) fn fitting(&self, image: &Inode, pieces: &[WritebackRun]) -> Result<(usize, u32)> {
        let most = self.fs.journal()?.max_credits() / 2;
        let geometry = self.fs.geometry();
        let group = |pblk| geometry.bitmap_position(pblk).ok().map(|(group, _)| group);
        let first = pieces.first().map_or(0, |piece| piece.leaf);
        let mut new = NewRuns::default();
        let mut last = None;
        let mut credits = 1;
        for (i, piece) in pieces.iter().enumerate() {
            if piece.kind != WritebackState::Written {
                new.runs += 1;
                new.blocks += piece.len;
            }
            if matches!(piece.kind, WritebackState::New | WritebackState::Placed)
                && group(piece.pblk) != last
            {
                last = group(piece.pblk);
                new.groups += 1;
            }
            new.leaves = new.runs.min(piece.leaf - first + 1);
            let needed = map::insert_many_credits(self.fs, image, new);
            if i > 0 && needed > most {
                return Ok((i, credits));
            }
            credits = needed;
        }
        Ok((pieces.len(), credits))
    }

    fn map_some(
        &self,
        batch: &mut Batch<'f>,
        pieces: &[WritebackRun],
        size: u64,
        credits: u32,
    ) -> Result<()> {
        let handle = self.fs.start(credits)?;
        let mapped = self.map_under(&handle, batch, pieces, size);
        drop(handle);
        self.mapped(batch, pieces, mapped)
    }

    /// Maps pieces under a handle, and moves the size of the record to `size` if that is more. What
    /// comes of it goes to [`mapped`](Self::mapped) when there is no handle any more.
    pub(super) fn map_under(
        &self,
        handle: &Handle<'f>,
        batch: &mut Batch<'f>,
        pieces: &[WritebackRun],
        size: u64,
    ) -> Mapped<'f> {
        let (given, delayed) = self.places_of(batch, pieces);
        // The nodes were promised along with the blocks.
        let space = NodeSpace::finishing(self.cache.take_nodes());
        let (mut taken, origins): (Vec<_>, Vec<_>) = given
            .into_iter()
            .map(|given| (given.taken, given.origin))
            .unzip();
        let version = self.live.map_version();
        let before = version.load(Ordering::Acquire);
        let known = self.cache.map_hint.end(before);
        let edit = |tree: &mut map::Tree<'f>| {
            for piece in pieces {
                let lblk = Lblk::new(piece.lblk as u32);
                match piece.kind {
                    WritebackState::Written => {}
                    WritebackState::Unwritten => tree.convert(&(piece.lblk..piece.end()))?,
                    WritebackState::New | WritebackState::Placed | WritebackState::Joined => {
                        tree.insert(lblk, piece.pblk, piece.len, false)?;
                    }
                }
            }
            Ok(())
        };
        let also = |inode: &mut Inode| {
            let disk = inode.disk_mut();
            disk.size = disk.size.max(size);
        };
        let result = {
            let guard = MapGuard::lock(self.live);
            map::change_paid(handle, self.live, &guard, &mut taken, edit, also, &space)
        };
        if let (Ok(()), Some(known)) = (&result, known)
            && version.load(Ordering::Acquire) == before + 2
        {
            let end = pieces.last().map_or(0, WritebackRun::end);
            self.cache.map_hint.set_end(before + 2, known.max(end));
        }
        Mapped {
            delayed,
            nodes: space.promised(),
            left: taken
                .into_iter()
                .zip(origins)
                .map(|(taken, origin)| Given { taken, origin })
                .collect(),
            result,
        }
    }

    /// Settles the promises of pieces that were mapped, or were not.
    pub(super) fn mapped(
        &self,
        batch: &mut Batch<'f>,
        pieces: &[WritebackRun],
        mapped: Mapped<'f>,
    ) -> Result<()> {
        let Mapped {
            mut delayed,
            nodes,
            left,
            result,
        } = mapped;
        if !self.fs.cluster_size().is_block() {
            // Promises of clusters do not tell.
            delayed = self.delayed_in(pieces);
        }
        if result.is_err() {
            // Blocks become promises as they go back: nobody can come between.
            left.into_iter().for_each(|given| self.give_back(given));
            self.cache
                .release_reservation(self.fs, self.alloc, self.live, 0, 0, nodes);
            return result;
        }
        if !self.fs.cluster_size().is_block() {
            for piece in pieces {
                self.cache.give_up_promises(
                    self.fs,
                    self.alloc,
                    self.live.ino(),
                    self.clusters_of(piece),
                );
            }
        }
        self.cache
            .release_reservation(self.fs, self.alloc, self.live, delayed, delayed, nodes);
        batch.delayed = batch.delayed.saturating_sub(delayed);
        Ok(())
    }

    /// Takes out the places of new pieces, and says how many of them were delayed.
    fn places_of(&self, batch: &mut Batch<'f>, pieces: &[WritebackRun]) -> (Vec<Given<'f>>, u32) {
        let size = self.fs.cluster_size();
        let mut places = Vec::new();
        let (mut left, mut placed_blocks) = (0, 0);
        for piece in pieces {
            let lblk = piece.lblk as u32;
            match piece.kind {
                WritebackState::New => left += size.touched(lblk, piece.len).len() as u32,
                WritebackState::Placed => {
                    let placed = self.cache.placed.take(size, lblk, piece.len.into());
                    places.extend(placed.into_iter().map(|(lblk, pblk, len)| Given {
                        taken: Taken::from_raw(self.alloc, pblk, len),
                        origin: Origin::Write(lblk),
                    }));
                    placed_blocks += piece.len;
                }
                WritebackState::Written | WritebackState::Unwritten | WritebackState::Joined => {}
            }
        }
        let mut used = 0;
        while left > 0
            && let Some((first, promise)) = batch.taken.front_mut()
        {
            let some = first.split_front(left);
            left -= some.clusters();
            let origin = match promise {
                Some(logical) => {
                    used += some.clusters();
                    *logical += some.clusters();
                    Origin::Promise(*logical - some.clusters())
                }
                None => Origin::Space,
            };
            places.push(Given {
                taken: some,
                origin,
            });
            if first.is_empty() {
                batch.taken.pop_front();
            }
        }
        let settled = used + placed_blocks.min(batch.delayed - used.min(batch.delayed));
        (places, settled)
    }

    /// Ends the writeback of pieces that are mapped.
    pub(super) fn finish(&self, pieces: &[WritebackRun]) {
        for piece in pieces {
            self.for_each_part(piece, |folio, blocks| {
                let mut state = folio.write();
                state.writeback &= !blocks;
                state.delayed &= !blocks;
                state.unwritten &= !blocks;
                state.mapped |= blocks;
            });
        }
    }

    pub(super) fn for_each_part(&self, piece: &WritebackRun, mut visit: impl FnMut(&Folio, u64)) {
        let per_folio = 1_u64 << (FOLIO_LOG2 - self.log2);
        let mut at = piece.lblk;
        while at < piece.end() {
            let folio = self.cache.index.load((at / per_folio) as u32);
            let from = at % per_folio;
            let to = per_folio.min(from + (piece.end() - at));
            if let Some(folio) = folio {
                visit(&folio, mask(from as u32..to as u32));
            }
            at += to - from;
        }
    }
}

#[cfg(test)]
mod tests;
