//! Making a sparse image of a disk, in one go.
//!
//! Threads read pieces and find out what their blocks are; the caller's thread puts the results in
//! order and writes them.
//!
//! A block whose bytes are one word over and over becomes part of a fill, zeros and holes too: an
//! image that is written over what a partition held before leaves nothing of that where zeros
//! should be. Only where the caller allows it, holes become chunks of which nothing is said.

use super::header::{CHUNK, ChunkHeader, HEADER, Header, Kind};
use super::{CRC, NAME};
use crate::FormatError;
use crate::copy::{CopyProgress, in_order, written_behind};
use extant_blockdev::{BlockDevice, DeviceResult};
use std::num::NonZero;
use zerocopy::IntoBytes;

/// Most data of a chunk of bytes, whose length has 32 bits.
const MOST_RAW: u64 = 256 << 20;

/// Most bytes of a block.
const LARGEST: u64 = 1 << 20;

/// Bytes that are read at once: few enough to stay in a processor's cache until they are written.
const PIECE: u64 = 256 << 10;

/// How to write a sparse image. Made with `default()`, changed field by field.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WriteHow {
    /// Bytes of a block: a multiple of 4.
    pub block_size: u32,
    /// Whether a checksum of all blocks stands at the end.
    pub crc: bool,
    /// Whether holes of the disk need not become zeros when the image is written somewhere.
    pub holes_dont_care: bool,
    /// Threads that read; one for each processor if `None`.
    pub threads: Option<NonZero<usize>>,
}

impl Default for WriteHow {
    fn default() -> Self {
        Self {
            block_size: 4096,
            crc: false,
            holes_dont_care: false,
            threads: None,
        }
    }
}

/// Blocks of a piece that become one chunk, or part of one.
#[derive(Debug, Clone, Copy)]
struct Found {
    what: What,
    blocks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Raw,
    Fill(u32),
    DontCare,
}

/// Writes the disk `from` as a sparse image to `to`, which is empty and grows. The last block is
/// filled up with zeros.
///
/// # Errors
/// `BadSize` for a disk of more than 2³² blocks or a wrong size of blocks; `Device` when a device
/// fails.
pub fn write(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    how: &WriteHow,
    progress: &dyn CopyProgress,
) -> Result<(), FormatError> {
    let block = u64::from(how.block_size);
    let size = from.size();
    let bad = |reason| FormatError::BadSize {
        format: NAME,
        size,
        reason,
    };
    if block == 0 || !block.is_multiple_of(4) || block > LARGEST {
        return Err(bad("blocks have 4 bytes to 1 MiB, and a multiple of 4"));
    }
    let blocks = u32::try_from(size.div_ceil(block))
        .map_err(|_| bad("it has at most 2^32 - 1 blocks: take larger ones"))?;
    let piece = PIECE.max(block) / block * block;
    let mut writer = Writer {
        to,
        block,
        at: HEADER as u64,
        open: None,
        chunks: 0,
        digest: how.crc.then(|| CRC.digest()),
        zeros: vec![0; block as usize],
    };
    let look = |buf: &[u8]| classify(buf, block as usize);
    let hole = if how.holes_dont_care {
        What::DontCare
    } else {
        What::Fill(0)
    };
    written_behind(to, |written| {
        in_order(from, piece, block, how.threads, look, |range, data| {
            progress.advance(range.end - range.start);
            let before = writer.at;
            match data {
                Some((buf, found)) => {
                    let mut rest = buf;
                    for run in found {
                        let (part, after) = rest.split_at(run.blocks as usize * block as usize);
                        writer.add(run.what, run.blocks, part)?;
                        rest = after;
                    }
                }
                None => {
                    let mut left = (range.end - range.start).div_ceil(block);
                    while left > 0 {
                        let part = left.min(u32::MAX.into()) as u32;
                        writer.add(hole, part, &[])?;
                        left -= u64::from(part);
                    }
                }
            }
            written(writer.at - before)
        })
    })?;
    writer.finish(how.block_size, blocks)?;
    Ok(())
}

/// What the blocks of a piece are.
fn classify(buf: &[u8], block: usize) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for bytes in buf.chunks(block) {
        let word = bytes
            .first_chunk()
            .map_or(0, |word| u32::from_le_bytes(*word));
        // All words are the first one if each is the one before it.
        let what = if bytes[4..] == bytes[..bytes.len() - 4] {
            What::Fill(word)
        } else {
            What::Raw
        };
        match found.last_mut() {
            Some(last) if last.what == what => last.blocks += 1,
            _ => found.push(Found { what, blocks: 1 }),
        }
    }
    found
}

/// A chunk that may get more blocks.
struct Open {
    what: What,
    blocks: u32,
    /// Where its header will be.
    at: u64,
}

struct Writer<'a> {
    to: &'a dyn BlockDevice,
    block: u64,
    /// Where the next byte goes.
    at: u64,
    open: Option<Open>,
    chunks: u32,
    digest: Option<crc::Digest<'static, u32, crc::Table<16>>>,
    zeros: Vec<u8>,
}

impl Writer<'_> {
    fn add(&mut self, what: What, blocks: u32, bytes: &[u8]) -> DeviceResult<()> {
        if let Some(digest) = &mut self.digest {
            if bytes.is_empty() {
                for _ in 0..blocks {
                    digest.update(&self.zeros);
                }
            } else {
                digest.update(bytes);
            }
        }
        let most = if what == What::Raw {
            (MOST_RAW / self.block) as u32
        } else {
            u32::MAX
        };
        let goes_on = self.open.as_ref().is_some_and(|open| {
            open.what == what && open.blocks.checked_add(blocks).is_some_and(|b| b <= most)
        });
        if !goes_on {
            self.close()?;
            self.open = Some(Open {
                what,
                blocks: 0,
                at: self.at,
            });
            self.at += CHUNK as u64;
        }
        if let Some(open) = &mut self.open {
            open.blocks += blocks;
        }
        if what == What::Raw {
            self.put(bytes)?;
        }
        Ok(())
    }

    /// Writes bytes behind the last ones.
    fn put(&mut self, bytes: &[u8]) -> DeviceResult<()> {
        self.to.write_growing_at(self.at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn close(&mut self) -> DeviceResult<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let (kind, data) = match open.what {
            What::Raw => (Kind::Raw, (u64::from(open.blocks) * self.block) as u32),
            What::Fill(_) => (Kind::Fill, 4),
            What::DontCare => (Kind::DontCare, 0),
        };
        if let What::Fill(word) = open.what {
            self.put(&word.to_le_bytes())?;
        }
        let header = ChunkHeader::new(kind, open.blocks, data);
        self.to.write_growing_at(open.at, header.as_bytes())?;
        self.chunks += 1;
        Ok(())
    }

    fn finish(mut self, block_size: u32, blocks: u32) -> DeviceResult<()> {
        self.close()?;
        if let Some(digest) = self.digest.take() {
            let header = ChunkHeader::new(Kind::Crc32, 0, 4);
            self.put(header.as_bytes())?;
            self.put(&digest.finalize().to_le_bytes())?;
            self.chunks += 1;
        }
        let header = Header::new(block_size, blocks, self.chunks);
        self.to.write_growing_at(0, header.as_bytes())
    }
}
