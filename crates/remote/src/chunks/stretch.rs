//! What is read of an image at a time: stretches, one after the other, each of which begins with a
//! chunk.
//!
//! # Invariants
//! - Two stretches are in memory at the most: one is read while chunks are made of the other.
//! - A hole that is large is not read.

use super::cut::Cutter;
use extant_blockdev::{BlockDevice, DeviceResult};

/// Bytes that are read for a stretch, besides those that the one before has left.
const STRETCH: u64 = 32 << 20;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Bytes of an image from the beginning of a chunk on.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    /// Where it begins in the image.
    start: u64,
    bytes: Vec<u8>,
    /// Bytes at the front that were read with the stretch before, and have been searched for marks.
    held: usize,
    /// In ascending order, as far as is known.
    marks: Vec<u64>,
}

/// A part of a stretch that is to be read.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    start: u64,
    bytes: &'a mut [u8],
}

/// What comes behind a stretch.
#[derive(Debug)]
pub(super) struct Following {
    /// Chunks of zeroes in front of it, all of the largest size. The first begins where the chunks
    /// of the stretch before end.
    pub(super) holes: u64,
    /// The next stretch, of which nothing is read yet.
    pub(super) stretch: Stretch,
}

impl Stretch {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The ends of its chunks; what is behind the last of them belongs to the next stretch.
    pub(super) fn ends(&self, cutter: &Cutter, size: u64) -> Vec<u64> {
        cutter.ends(self.start, self.end(), self.end() == size, &self.marks)
    }

    /// The bytes of its chunks, which end at `ends`.
    pub(super) fn chunks<'a>(&'a self, ends: &[u64]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = &self.bytes[..];
        let mut start = self.start;
        ends.iter().map(move |&end| {
            let (chunk, behind) = rest.split_at((end - start) as usize);
            (rest, start) = (behind, end);
            chunk
        })
    }

    /// Makes room for what follows the chunks that end at `ends`.
    pub(super) fn following(
        &self,
        image: &dyn BlockDevice,
        cutter: &Cutter,
        ends: &[u64],
    ) -> DeviceResult<Following> {
        let size = image.size();
        let largest = cutter.sizes.max;
        let start = ends.last().copied().unwrap_or(self.start);
        let holes = if start < size && cutter.leaves_zeroes() {
            let data = image.next_data(start, size)?;
            (data.map_or(size, |data| data.start) - start) / largest
        } else {
            0
        };
        let mut stretch = Self {
            start: start + holes * largest,
            ..Self::default()
        };
        // What was read of a hole is no loss.
        if holes == 0 {
            stretch.bytes = self.bytes[(start - self.start) as usize..].to_vec();
            let marks = self.marks.iter().copied();
            stretch.marks = marks.filter(|&mark| mark > start).collect();
            stretch.held = stretch.bytes.len();
        }
        let new = STRETCH.min(size - stretch.end());
        stretch.bytes.resize(stretch.held + new as usize, 0);
        Ok(Following { holes, stretch })
    }

    /// What is to be read.
    pub(super) fn pieces(&mut self) -> impl ExactSizeIterator<Item = Piece<'_>> {
        let from = self.start + self.held as u64;
        let pieces = self.bytes[self.held..].chunks_mut(PIECE).enumerate();
        pieces.map(move |(n, bytes)| Piece {
            start: from + (n * PIECE) as u64,
            bytes,
        })
    }

    /// Notes the marks of pieces that were read, and those between pieces.
    pub(super) fn note(&mut self, marks: Vec<u64>, cutter: &Cutter) {
        self.marks.extend(marks);
        for seam in (self.held..self.bytes.len()).step_by(PIECE) {
            let over = cutter.marks_over(&self.bytes, seam, self.start);
            self.marks.extend(over);
        }
        self.marks.sort_unstable();
        self.held = self.bytes.len();
    }
}

impl Piece<'_> {
    /// Reads the piece, and returns its marks.
    pub(super) fn read(self, image: &dyn BlockDevice, cutter: &Cutter) -> DeviceResult<Vec<u64>> {
        let end = self.start + self.bytes.len() as u64;
        if image.next_data(self.start, end)?.is_some() {
            image.read_at(self.start, self.bytes)?;
        } else if cutter.leaves_zeroes() {
            return Ok(Vec::new());
        }
        Ok(cutter.marks(self.bytes, self.start))
    }
}
