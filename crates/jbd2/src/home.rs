//! Writing the images of a log to where they belong.
//!
//! The log itself stays as it is: until its superblock says that it is empty, which is the next
//! step of opening the file system for writing, a crash leaves a log that replays to the
//! same blocks again.

use crate::log::Log;
use crate::overlay::Image;
use crate::recovery::Recovery;
use crate::{JournalError, JournalResult, LogRun};
use extant_blockdev::{AlignedBuf, Request};
use extant_format::jbd2::restore_escaped;
use extant_format::{BlockSize, Pblk};

/// Most bytes read from the log before they are written home.
const BATCH_BYTES: usize = 1 << 20;
/// As many where each request takes a round trip: all of a batch are under way together.
const FAR_BATCH_BYTES: usize = 8 << 20;
/// Most blocks of one request there.
const FAR_BLOCKS: usize = 256;

/// What [`Recovery::write_home`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenHome {
    /// Blocks written.
    pub blocks: u64,
    /// Writes they took.
    pub writes: u64,
}

impl Recovery {
    /// Writes the newest image of every block home, in ascending order and large pieces, and
    /// flushes. `log` is the log this was recovered from, and is not changed: afterwards the
    /// caller empties it with [`LogWriter::start`](crate::LogWriter::start). A crash before that
    /// leaves a log that can be replayed anew.
    ///
    /// Whatever the caller has read from the device before may be out of date afterwards, the
    /// superblock of the file system included.
    ///
    /// # Errors
    /// An image that belongs into the log itself (nothing is written then), a device that fails.
    pub fn write_home(&self, log: &Log<'_>) -> JournalResult<WrittenHome> {
        self.refuse_targets_in(log)?;
        let size = log.superblock().block_size;
        let mut batch = Batch::new(log, size, self.blocks.len());
        for (home, image) in self.blocks.images() {
            if batch.is_full() {
                batch.write()?;
            }
            batch.images.push((home, image));
        }
        batch.write()?;
        log.device()
            .flush()
            .map_err(|source| JournalError::HomeFlush { source })?;
        Ok(batch.done)
    }

    fn refuse_targets_in(&self, log: &Log<'_>) -> JournalResult<()> {
        let places = log.map().places();
        for target in self.blocks.iter() {
            let after = places.partition_point(|(start, _)| *start <= target.get());
            let run = after.checked_sub(1).and_then(|at| places.get(at));
            if run.is_some_and(|(_, end)| target.get() < *end) {
                return Err(JournalError::TargetInLog { target });
            }
        }
        Ok(())
    }
}

/// Images on their way home.
struct Batch<'l> {
    log: &'l Log<'l>,
    size: BlockSize,
    images: Vec<(Pblk, Image)>,
    buf: AlignedBuf,
    /// The log by its place on the device, where requests are made together.
    runs: Vec<LogRun>,
    done: WrittenHome,
}

impl<'l> Batch<'l> {
    /// For so many images.
    fn new(log: &'l Log<'_>, size: BlockSize, images: usize) -> Self {
        // A whole buffer is a mebibyte of fresh memory, and most logs hold a few blocks.
        let bytes = if log.is_far() {
            FAR_BATCH_BYTES
        } else {
            BATCH_BYTES
        };
        let most = (bytes / size.len()).max(1);
        Self {
            log,
            size,
            images: Vec::new(),
            buf: AlignedBuf::zeroed(images.min(most) * size.len()),
            runs: if log.is_far() {
                log.map().by_place()
            } else {
                Vec::new()
            },
            done: WrittenHome::default(),
        }
    }

    fn is_full(&self) -> bool {
        (self.images.len() + 1) * self.size.len() > self.buf.len()
    }

    /// Reads the images from the log and writes them home.
    fn write(&mut self) -> JournalResult<()> {
        let images = std::mem::take(&mut self.images);
        if self.log.is_far() {
            self.read_together(&images)?;
        } else {
            self.transfer(
                &images,
                |image| image.1.at,
                |batch, offset, bytes| batch.log.device().read_at(offset, bytes),
            )?;
        }
        for ((_, image), bytes) in images
            .iter()
            .zip(self.buf.chunks_exact_mut(self.size.len()))
        {
            if image.escaped {
                restore_escaped(bytes);
            }
        }
        self.done.writes += if self.log.is_far() {
            self.write_together(&images)?
        } else {
            self.transfer(
                &images,
                |image| image.0,
                |batch, offset, bytes| batch.log.device().write_at(offset, bytes),
            )?
        };
        self.done.blocks += images.len() as u64;
        Ok(())
    }

    /// Where in the log a block of the device lies.
    fn in_log(&self, at: Pblk) -> Option<u32> {
        let after = self.runs.partition_point(|run| run.start <= at);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let step = u32::try_from(at.get() - run.start.get()).ok()?;
        run.first.checked_add(step).filter(|_| step < run.len)
    }

    /// Fills the buffer with the images: from what was read ahead of the log, and the others with
    /// one batch of reads.
    fn read_together(&mut self, images: &[(Pblk, Image)]) -> JournalResult<()> {
        let mut buf = std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
        let mut missing = Vec::new();
        let parts = images.iter().zip(buf.chunks_exact_mut(self.size.len()));
        for ((home, image), bytes) in parts {
            let kept = self.in_log(image.at);
            if !kept.is_some_and(|block| self.log.copy_kept(block, bytes)) {
                missing.push((*home, image.at, bytes));
            }
        }
        let request = |(_, at, bytes): &(Pblk, Pblk, &mut [u8])| {
            Request::read(self.size.offset_of(*at).unwrap_or(u64::MAX), bytes.len())
        };
        let requests = missing.iter().map(request).collect();
        let done = self.log.device().submit(requests).wait();
        let mut result = Ok(());
        for ((block, _, to), done) in missing.into_iter().zip(done) {
            match done.result.map(|()| done.request.into_read_buf()) {
                Ok(Some(bytes)) => to.copy_from_slice(&bytes),
                Ok(None) => {}
                Err(source) => result = result.and(Err(JournalError::Home { block, source })),
            }
        }
        self.buf = buf;
        result
    }

    /// Writes the images home from the buffer with one batch, those that lie side by side with one
    /// request. Returns how many requests that were.
    fn write_together(&self, images: &[(Pblk, Image)]) -> JournalResult<u64> {
        let side_by_side = |a: &(Pblk, Image), b: &(Pblk, Image)| a.0.checked_add(1) == Some(b.0);
        let groups = images.chunk_by(side_by_side);
        let groups = groups.flat_map(|group| group.chunks(FAR_BLOCKS));
        let mut rest: &[u8] = &self.buf;
        let mut requests = Vec::new();
        let mut firsts = Vec::new();
        for group in groups {
            let Some((first, _)) = group.first() else {
                continue;
            };
            let (part, after) = rest.split_at(group.len() * self.size.len());
            rest = after;
            let offset = self.size.offset_of(*first).unwrap_or(u64::MAX);
            requests.push(Request::write(offset, AlignedBuf::copy_of(part)));
            firsts.push(*first);
        }
        let done = self.log.device().submit(requests).wait();
        for (block, done) in firsts.iter().zip(done) {
            let block = *block;
            let failed = |source| JournalError::Home { block, source };
            done.result.map_err(failed)?;
        }
        Ok(firsts.len() as u64)
    }

    /// Moves the images between the buffer and `place` of each of them, with one call for those
    /// whose places lie side by side. Returns the number of calls.
    fn transfer(
        &mut self,
        images: &[(Pblk, Image)],
        place: impl Fn(&(Pblk, Image)) -> Pblk,
        io: impl Fn(&Self, u64, &mut [u8]) -> extant_blockdev::DeviceResult<()>,
    ) -> JournalResult<u64> {
        let mut buf = std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
        let mut rest: &mut [u8] = &mut buf;
        let mut calls = 0;
        let side_by_side =
            |a: &(Pblk, Image), b: &(Pblk, Image)| place(a).checked_add(1) == Some(place(b));
        let mut result = Ok(());
        for group in images.chunk_by(side_by_side) {
            let Some(first) = group.first() else { continue };
            let (part, after) = rest.split_at_mut(group.len() * self.size.len());
            rest = after;
            let offset = self.size.offset_of(place(first)).unwrap_or(u64::MAX);
            calls += 1;
            if let Err(source) = io(self, offset, part) {
                let block = first.0;
                result = Err(JournalError::Home { block, source });
                break;
            }
        }
        self.buf = buf;
        result.map(|()| calls)
    }
}
