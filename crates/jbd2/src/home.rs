//! Writing the images of a log to where they belong.
//!
//! The log itself stays as it is: until its superblock says that it is empty, which is the next
//! step of opening the file system for writing, a crash leaves a log that replays to the
//! same blocks again.

use crate::log::Log;
use crate::overlay::Image;
use crate::recovery::Recovery;
use crate::{JournalError, JournalResult};
use extant_blockdev::AlignedBuf;
use extant_format::jbd2::restore_escaped;
use extant_format::{BlockSize, Pblk};

/// Most bytes read from the log before they are written home.
const BATCH_BYTES: usize = 1 << 20;

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
    done: WrittenHome,
}

impl<'l> Batch<'l> {
    /// For so many images.
    fn new(log: &'l Log<'_>, size: BlockSize, images: usize) -> Self {
        // A whole buffer is a mebibyte of fresh memory, and most logs hold a few blocks.
        let most = (BATCH_BYTES / size.len()).max(1);
        Self {
            log,
            size,
            images: Vec::new(),
            buf: AlignedBuf::zeroed(images.min(most) * size.len()),
            done: WrittenHome::default(),
        }
    }

    fn is_full(&self) -> bool {
        (self.images.len() + 1) * self.size.len() > self.buf.len()
    }

    /// Reads the images from the log and writes them home.
    fn write(&mut self) -> JournalResult<()> {
        let images = std::mem::take(&mut self.images);
        self.transfer(
            &images,
            |image| image.1.at,
            |batch, offset, bytes| batch.log.device().read_at(offset, bytes),
        )?;
        for ((_, image), bytes) in images
            .iter()
            .zip(self.buf.chunks_exact_mut(self.size.len()))
        {
            if image.escaped {
                restore_escaped(bytes);
            }
        }
        self.done.writes += self.transfer(
            &images,
            |image| image.0,
            |batch, offset, bytes| batch.log.device().write_at(offset, bytes),
        )?;
        self.done.blocks += images.len() as u64;
        Ok(())
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
