//! Writing many small files back together.
//!
//! Small files that are written one after the other get blocks side by side, so their content goes
//! to the device in one transfer, and one handle maps all of it. Steps and order are those of
//! [writeback](crate::data::writeback).
//!
//! # Locking
//!
//! Writeback of all the files is kept away meanwhile. The locks for that are only tried: a file
//! that somebody else writes back, or that meets any difficulty, is left to be written back by
//! itself.

use crate::Result;
use crate::alloc::Alloc;
use crate::data::cache::FileCache;
use crate::data::cache::folio::FOLIO_LOG2;
use crate::data::io::WriteIo;
use crate::data::io::device_offset;
use crate::data::writeback::{Batch, Mapped, WritebackRun, WritebackState, write_back};
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::LiveInode;
use crate::journal::Journal;
use crate::map;
use crate::mutants::{Mutant, is_on};
use extant_blockdev::Request;
use extant_sync::MutexGuard;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Files that are written back together at most.
const MOST_FILES: usize = 512;
/// Bytes of them, but for the last, and where each request takes a round trip: there are more
/// threads then.
const MOST_BYTES: usize = 2 << 20;
const MOST_FAR_BYTES: usize = 1 << 20;
/// Folios of a small file. Where each request takes a round trip a copy in memory costs less than
/// waiting for each file that is larger.
const MOST_FOLIOS: u32 = 1;
const MOST_FAR_FOLIOS: u32 = 8;

/// Writes back files, small ones together. Each is noted as off the list of dirty files; those that
/// are dirty afterwards are put back.
///
/// # Errors
/// The first of what went wrong; all files are tried.
pub(in crate::data) fn write_back_files(fs: &Fs, files: &[Arc<LiveInode>]) -> Result<()> {
    let mut result = Ok(());
    let mut rest = files;
    // Content of small files on its way to the device.
    let mut content = Vec::new();
    while !rest.is_empty() {
        let mut gathering = Gathering::new(fs, &mut content)?;
        let (count, alone) = gathering.fill(rest);
        let (now, after) = rest.split_at(count);
        let alone: Vec<_> = alone.into_iter().chain(gathering.write()).collect();
        for live in alone {
            result = result.and(write_back(fs, &live));
        }
        for live in now {
            if let Some(file) = live.file_cache()
                && file.is_dirty()
                && !file.is_deleting()
            {
                // Written to meanwhile, or it failed.
                file.list(live);
            }
        }
        rest = after;
    }
    result
}

/// A small file that is being written back.
struct Member<'f> {
    io: WriteIo<'f>,
    batch: Batch<'f>,
    pieces: Vec<WritebackRun>,
    /// Those to map it, without the groups of its blocks if it is simple: if its record has room
    /// for its map.
    credits: u32,
    is_simple: bool,
    _alone: MutexGuard<'f, ()>,
}

/// Where a piece goes, and where its content is.
struct Segment {
    to: u64,
    content: Range<usize>,
}

/// Small files that are being written back together.
struct Gathering<'f, 'c> {
    fs: &'f Fs,
    alloc: &'f Alloc,
    journal: &'f Journal,
    members: Vec<Member<'f>>,
    content: &'c mut Vec<u8>,
    segments: Vec<Segment>,
}

impl<'f, 'c> Gathering<'f, 'c> {
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) when the file system is open for reading only.
    fn new(fs: &'f Fs, content: &'c mut Vec<u8>) -> Result<Self> {
        content.clear();
        Ok(Self {
            fs,
            alloc: fs.alloc()?,
            journal: fs.journal()?,
            members: Vec::new(),
            content,
            segments: Vec::new(),
        })
    }

    /// Takes in files from the front of `files`. Returns of how many it has seen to, and which of
    /// these are to be written back by themselves.
    fn fill(&mut self, files: &'f [Arc<LiveInode>]) -> (usize, Vec<Arc<LiveInode>>) {
        let most_bytes = if self.fs.device().in_flight() > 1 {
            MOST_FAR_BYTES
        } else {
            MOST_BYTES
        };
        let mut alone = Vec::new();
        for (i, live) in files.iter().enumerate() {
            if self.members.len() >= MOST_FILES || self.content.len() >= most_bytes {
                return (i, alone);
            }
            let Some(cache) = live.file_cache() else {
                continue;
            };
            cache.dirty.unlist();
            if !self.take_in(live, cache) {
                alone.push(Arc::clone(live));
            }
        }
        (files.len(), alone)
    }

    /// Takes in a file, if it is small and nothing stands in the way.
    fn take_in(&mut self, live: &'f Arc<LiveInode>, cache: &'f Arc<FileCache>) -> bool {
        if !self.fs.data().is_write_back() || is_on(Mutant::DataAfterMapping) {
            return false;
        }
        let Some(alone) = cache.try_quiesce() else {
            return false;
        };
        if cache.is_deleting() {
            return true;
        }
        // Otherwise its transfers are large enough, or it is full of holes.
        let most_folios = if self.fs.device().in_flight() > 1 {
            MOST_FAR_FOLIOS
        } else {
            MOST_FOLIOS
        };
        if !cache.dirty.is_below(most_folios) || cache.has_detached() {
            return false;
        }
        let io = WriteIo::with(self.fs, self.alloc, live);
        let mut batch = Batch::default();
        let dirty = cache.dirty.take();
        // More may have come since the look.
        cache.dirty.put_back(io.collect(&dirty, &mut batch));
        let before = (self.segments.len(), self.content.len());
        let planned = io.plan(&mut batch).and_then(|()| {
            self.copy(&io, &batch.pieces)?;
            io.fitting(&live.snapshot(), &batch.pieces)
        });
        let Some((_, credits)) = planned
            .ok()
            .filter(|(count, _)| *count == batch.pieces.len())
        else {
            self.segments.truncate(before.0);
            self.content.truncate(before.1);
            io.give_up(&mut batch);
            return false;
        };
        let pieces = std::mem::take(&mut batch.pieces);
        let is_simple = map::stays_in_record(&live.snapshot(), pieces.len() as u32);
        self.members.push(Member {
            io,
            batch,
            pieces,
            credits: if is_simple { 1 } else { credits },
            is_simple,
            _alone: alone,
        });
        true
    }

    /// Copies what goes to the device, each folio of one moment.
    fn copy(&mut self, io: &WriteIo<'_>, pieces: &[WritebackRun]) -> Result<()> {
        for piece in pieces {
            let mut to = device_offset(self.fs, piece.pblk, 0)?;
            io.for_each_part(piece, |folio, blocks| {
                let start = (blocks.trailing_zeros() as usize) << io.log2;
                let len = (blocks.count_ones() as usize) << io.log2;
                debug_assert!(start + len <= 1 << FOLIO_LOG2, "inside a folio");
                let from = self.content.len();
                for slice in folio.read().slices(start..start + len) {
                    self.content.extend_from_slice(slice);
                }
                let content = from..self.content.len();
                self.segments.push(Segment { to, content });
                to += len as u64;
            });
        }
        Ok(())
    }

    /// Writes the content to the device and maps it. Returns the files that are to be written back
    /// by themselves.
    fn write(mut self) -> Vec<Arc<LiveInode>> {
        let failures = self.fs.flush_failures();
        if self.transfer().is_err() {
            // Which of them it concerns turns out when each is written by itself.
            return self
                .members
                .drain(..)
                .map(|member| member.give_up())
                .collect();
        }
        let mut rest = std::mem::take(&mut self.members);
        for member in &rest {
            if !member.pieces.is_empty() {
                member.io.live.note_data(self.fs, failures);
            }
        }
        let mut alone = Vec::new();
        while !rest.is_empty() {
            let (count, credits) = fitting(self.fs, self.journal, &rest);
            let after = rest.split_off(count);
            match self.fs.start(credits) {
                Ok(handle) => alone.extend(map_all(handle, rest)),
                Err(_) => alone.extend(rest.into_iter().map(|member| member.give_up())),
            }
            rest = after;
        }
        alone
    }

    /// Writes segments, those side by side on the device at once; all of them are under way
    /// together where each request takes a round trip.
    fn transfer(&mut self) -> Result<()> {
        self.segments.sort_unstable_by_key(|segment| segment.to);
        let is_far = self.fs.device().in_flight() > 1;
        let mut requests = Vec::new();
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        let (mut start, mut end) = (0, 0);
        // Side by side in memory too.
        let mut run = 0..0;
        for segment in &self.segments {
            let here = segment.content.clone();
            let follows = segment.to == end && !run.is_empty();
            if follows && run.end == here.start {
                run.end = here.end;
            } else {
                if !run.is_empty() {
                    slices.push(IoSlice::new(&self.content[run]));
                }
                if !follows {
                    self.transfer_slices(start, &mut slices, is_far.then_some(&mut requests))?;
                    start = segment.to;
                }
                run = here.clone();
            }
            end = segment.to + here.len() as u64;
        }
        if !run.is_empty() {
            slices.push(IoSlice::new(&self.content[run]));
        }
        self.transfer_slices(start, &mut slices, is_far.then_some(&mut requests))?;
        if !requests.is_empty() {
            self.fs.device().submit(requests).wait_all()?;
        }
        Ok(())
    }

    /// Writes slices, or adds a request for them to `later`.
    fn transfer_slices(
        &self,
        to: u64,
        slices: &mut Vec<IoSlice<'_>>,
        later: Option<&mut Vec<Request>>,
    ) -> Result<()> {
        match (&slices[..], later) {
            ([], _) => {}
            (some, Some(later)) => later.push(Request::write_copy(to, some)),
            ([one], None) => self.fs.device().write_at(to, one)?,
            (many, None) => self.fs.device().write_vectored_at(to, many)?,
        }
        slices.clear();
        Ok(())
    }
}

/// Returns how many of `members` one handle can map, at least one, and with how many credits.
fn fitting(fs: &Fs, journal: &Journal, members: &[Member<'_>]) -> (usize, u32) {
    let most = journal.max_credits() / 2;
    // The groups that the blocks of all of them come from.
    let mut groups = BTreeSet::new();
    let mut credits = 0;
    for (i, member) in members.iter().enumerate() {
        let mut own = member.credits;
        for piece in &member.pieces {
            let group = fs.geometry().group_of_block(piece.pblk).unwrap_or_default();
            if member.is_simple && groups.insert(group) {
                own += map::GROUP;
            }
        }
        if i > 0 && credits + own > most {
            return (i, credits);
        }
        credits += own;
    }
    (members.len(), credits)
}

/// Maps what was written of `members` under one handle, and stores their sizes and times. Returns
/// the files that are to be written back by themselves.
fn map_all<'f>(handle: Handle<'f>, mut members: Vec<Member<'f>>) -> Vec<Arc<LiveInode>> {
    let mapped: Vec<_> = members.iter_mut().map(|m| m.map(&handle)).collect();
    drop(handle);
    let mut alone = Vec::new();
    for (mut member, mapped) in members.into_iter().zip(mapped) {
        let io = &member.io;
        let done = mapped.and_then(|mapped| match mapped {
            Some(mapped) => io.mapped(&mut member.batch, &member.pieces, mapped),
            None => Ok(()),
        });
        if done.is_err() {
            alone.push(member.give_up());
            continue;
        }
        io.finish(&member.pieces);
        io.release_rest(&mut member.batch);
        if io.store_size().and_then(|()| io.store_time()).is_err() {
            alone.push(Arc::clone(io.live));
        }
    }
    alone
}

impl<'f> Member<'f> {
    fn map(&mut self, handle: &Handle<'f>) -> Result<Option<Mapped<'f>>> {
        let io = &self.io;
        let end = self.pieces.last().map_or(0, WritebackRun::end) << io.log2;
        let recorded = io.live.snapshot().size();
        let size = end.min(io.live.live_size()).max(recorded);
        if self
            .pieces
            .iter()
            .any(|piece| piece.kind != WritebackState::Written)
        {
            return Ok(Some(io.map_under(
                handle,
                &mut self.batch,
                &self.pieces,
                size,
            )));
        }
        if size > recorded || io.cache.has_time() {
            io.live.update(handle, |inode| {
                let disk = inode.disk_mut();
                disk.size = disk.size.max(size);
            })?;
        }
        Ok(None)
    }

    /// Makes what was not written, or not mapped, dirty again.
    fn give_up(mut self) -> Arc<LiveInode> {
        self.io.give_up(&mut self.batch);
        Arc::clone(self.io.live)
    }
}
