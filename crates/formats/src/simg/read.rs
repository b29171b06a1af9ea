//! The disk in a sparse image, read at random.
//!
//! # Invariants
//! All chunk headers are read and checked when the image is opened, and an index of them is kept:
//! 16 bytes for each run of the same kind, at most [`MOST_RUNS`] of them. Nothing is written.

use super::NAME;
use super::header::{ChunkHeader, HEADER, Header, Kind};
use crate::FormatError;
use crate::mapped::{self, Part, Tables};
use extant_blockdev::{BlockDevice, Completion, DeviceError, DeviceResult, Request, SharedDevice};
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

/// Most runs that an index has.
const MOST_RUNS: usize = 1 << 22;

/// Bytes that are read at once to check sums.
const PIECE: usize = 1 << 20;

/// What a range of blocks holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Bytes at this offset of the image.
    At(u64),
    /// A word, over and over.
    Fill([u8; 4]),
}

const ZEROS: Content = Content::Fill([0; 4]);

/// Blocks from the first one up to the next run.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u32,
    content: Content,
}

/// A checksum of the first blocks of the disk.
#[derive(Debug, Clone, Copy)]
struct Sum {
    blocks: u32,
    crc: u32,
}

/// The disk.
#[derive(Debug)]
struct Sparse {
    inner: SharedDevice,
    block: u64,
    size: u64,
    runs: Vec<Run>,
    sums: Vec<Sum>,
}

/// Opens the disk.
pub(crate) fn open(device: SharedDevice) -> Result<SharedDevice, FormatError> {
    Ok(Arc::new(Sparse::open(device)?))
}

/// Reads the whole disk of a sparse image and compares it with the checksums among its chunks.
/// Returns how many there were.
///
/// # Errors
/// `Damaged` where the image or a checksum is wrong, `Device` when the device fails.
pub fn verify(device: SharedDevice) -> Result<usize, FormatError> {
    let disk = Sparse::open(device)?;
    let mut digest = super::sum::Sum::new();
    let mut at = 0;
    let mut piece = Vec::new();
    for sum in &disk.sums {
        let end = u64::from(sum.blocks) * disk.block;
        while at < end {
            let (range, content) = disk.run(at);
            let stop = range.end.min(end);
            if let Content::Fill(word) = content {
                // Blocks are whole words.
                digest.repeat(word, (stop - at) / 4);
                at = stop;
                continue;
            }
            piece.resize((stop - at).min(PIECE as u64) as usize, 0);
            disk.read_at(at, &mut piece)?;
            digest.update(&piece);
            at += piece.len() as u64;
        }
        let found = digest.finish();
        if found != sum.crc {
            return Err(disk.damaged(format!(
                "the checksum of its first {end} bytes is {:#010x}, and they give {found:#010x}",
                sum.crc
            )));
        }
    }
    Ok(disk.sums.len())
}

impl Sparse {
    fn open(inner: SharedDevice) -> Result<Self, FormatError> {
        let mut disk = Self {
            inner,
            block: 0,
            size: 0,
            runs: Vec::new(),
            sums: Vec::new(),
        };
        let end = disk.inner.size();
        let mut bytes = [0; HEADER];
        if end < HEADER as u64 {
            return Err(disk.damaged(format!("it has {end} bytes, fewer than a header")));
        }
        disk.inner.read_at(0, &mut bytes)?;
        let header = Header::parse(&bytes).map_err(|reason| disk.damaged(reason))?;
        disk.block = header.block_size().into();
        disk.size = disk.block * u64::from(header.blocks());
        let mut at = header.len();
        let mut block = 0;
        for number in 0..header.chunks() {
            (at, block) = disk.chunk(&header, number, at, block)?;
        }
        if block != header.blocks() {
            return Err(disk.damaged(format!(
                "its chunks have {block} blocks, and its header says {}",
                header.blocks()
            )));
        }
        Ok(disk)
    }

    /// Reads the chunk at byte `at`, whose first block is `block`; returns both for the next.
    fn chunk(
        &mut self,
        header: &Header,
        number: u32,
        at: u64,
        block: u32,
    ) -> Result<(u64, u32), FormatError> {
        let wrong = |disk: &Self, what: String| Err(disk.damaged(format!("chunk {number} {what}")));
        let end = self.inner.size();
        let data = at + header.chunk_header_len();
        if data > end {
            return wrong(
                self,
                format!("would be at byte {at}, and the file ends at {end}"),
            );
        }
        let mut bytes = [0; size_of::<ChunkHeader>()];
        self.inner.read_at(at, &mut bytes)?;
        let chunk: ChunkHeader = zerocopy::transmute!(bytes);
        let Some(kind) = Kind::from_number(chunk.kind_number()) else {
            return wrong(self, format!("has the type {:#06x}", chunk.kind_number()));
        };
        let blocks = chunk.blocks();
        let expected = match kind {
            Kind::Raw => u64::from(blocks) * self.block,
            Kind::Fill | Kind::Crc32 => 4,
            Kind::DontCare => 0,
        };
        let next = at + u64::from(chunk.total());
        if next != data + expected || next > end {
            return wrong(
                self,
                format!(
                    "has {} bytes and {blocks} blocks, which is not possible at byte {at} of {end}",
                    chunk.total()
                ),
            );
        }
        let mut word = [0; 4];
        if expected == 4 && kind != Kind::Raw {
            self.inner.read_at(data, &mut word)?;
        }
        let content = match kind {
            Kind::Raw => Content::At(data),
            Kind::Fill => Content::Fill(word),
            Kind::DontCare => ZEROS,
            Kind::Crc32 => {
                self.sums.push(Sum {
                    blocks: block,
                    crc: u32::from_le_bytes(word),
                });
                self.check_count(self.sums.len())?;
                return Ok((next, block));
            }
        };
        let last = block.checked_add(blocks).filter(|&b| b <= header.blocks());
        let Some(last) = last else {
            return wrong(
                self,
                format!("ends behind the disk, which has {} blocks", header.blocks()),
            );
        };
        let goes_on = matches!(content, Content::Fill(_))
            && self.runs.last().is_some_and(|run| run.content == content);
        if blocks > 0 && !goes_on {
            self.runs.push(Run {
                first: block,
                content,
            });
            self.check_count(self.runs.len())?;
        }
        Ok((next, last))
    }

    fn check_count(&self, count: usize) -> Result<(), FormatError> {
        if count <= MOST_RUNS {
            return Ok(());
        }
        Err(FormatError::TooLarge {
            what: format!("the index of {}", self.inner.name()),
            size: (count * size_of::<Run>()) as u64,
            limit: (MOST_RUNS * size_of::<Run>()) as u64,
        })
    }

    fn damaged(&self, reason: String) -> FormatError {
        FormatError::Damaged {
            device: self.inner.name(),
            format: NAME,
            reason,
        }
    }

    /// The run that byte `at` of the disk lies in: where it begins and ends, and what it holds.
    fn run(&self, at: u64) -> (Range<u64>, Content) {
        let block = at / self.block;
        let next = self
            .runs
            .partition_point(|run| u64::from(run.first) <= block);
        let start = |run: &Run| u64::from(run.first) * self.block;
        let end = self.runs.get(next).map_or(self.size, start);
        // The first run begins at the first block.
        let run = &self.runs[next - 1];
        (start(run)..end, run.content)
    }
}

impl BlockDevice for Sparse {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        if let Some(done) = mapped::read(self, &*self.inner, offset, buf, || self) {
            return done;
        }
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (range, content) = self.run(at);
            let len = (range.end - at).min(rest.len() as u64) as usize;
            let (part, after) = rest.split_at_mut(len);
            match content {
                Content::At(place) => self.inner.read_at(place + (at - range.start), part)?,
                ZEROS => part.fill(0),
                Content::Fill(word) => {
                    // Runs begin at a multiple of the word.
                    for (byte, place) in part.iter_mut().zip(at..) {
                        *byte = word[(place % 4) as usize];
                    }
                }
            }
            rest = after;
            at += len as u64;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        mapped::read_vectored(self, &*self.inner, offset, bufs)
    }

    fn submit(&self, batch: Vec<Request>) -> Completion {
        mapped::submit(self, &*self.inner, batch, || self)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn is_served(&self) -> bool {
        self.inner.is_served()
    }

    fn next_data(&self, from: u64, end: u64) -> DeviceResult<Option<Range<u64>>> {
        let end = end.min(self.size);
        let mut at = from;
        while at < end {
            let (range, content) = self.run(at);
            if content != ZEROS {
                return Ok(Some(at..range.end.min(end)));
            }
            at = range.end;
        }
        Ok(None)
    }
}

impl Tables for &Sparse {
    fn find(&self, offset: u64, len: u64, _: bool) -> (Part, u64) {
        let (range, content) = self.run(offset);
        let part = match content {
            Content::At(place) => Part::Below(place + (offset - range.start)),
            ZEROS => Part::Zeros,
            Content::Fill(_) => Part::Other,
        };
        (part, len.min(range.end - offset))
    }

    /// Nothing is ever written.
    fn settle(&self) -> DeviceResult<()> {
        Ok(())
    }
}
