//! The disk in an Android sparse image, for reading.
//!
//! Fields are those of `libsparse/sparse_format.h` of Android. `extant-formats` reads and writes
//! such images too, on systems that have files; this reader needs none.
//!
//! # Invariants
//! The headers of all chunks are read when the image is opened, and at most [`MOST_RUNS`] runs are
//! kept of them.

use crate::failure::{Failure, Told};
use crate::mapped::{Map, Mapped, field, first};
use extant_blockdev::{BlockDevice, DeviceResult, SharedDevice};

/// Bytes of the header, and of that of a chunk, without what may follow.
const HEADER: usize = 28;
const CHUNK: usize = 12;

/// Most bytes of a block; programs make them of 4096.
const MOST_BLOCK: u32 = 64 << 20;

/// Most runs that are kept: some 24 MiB.
const MOST_RUNS: usize = 1 << 20;

/// What a chunk is.
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const NOTHING: u16 = 0xcac3;
const SUM: u16 = 0xcac4;

/// What blocks hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Bytes at this place of the file.
    At(u64),
    /// A word, over and over.
    Word([u8; 4]),
}

/// What the blocks from the first one up to the next run hold.
#[derive(Debug)]
struct Run {
    first: u32,
    content: Content,
}

#[derive(Debug)]
pub(crate) struct Chunks {
    block: u64,
    size: u64,
    runs: Vec<Run>,
}

fn damaged(why: String) -> Failure {
    Failure::damaged(format!("the Android sparse image is damaged: {why}"))
}

/// Opens the disk.
pub(crate) fn open(file: SharedDevice) -> Told<Mapped<Chunks>> {
    let mut header = [0; HEADER];
    if file.size() < HEADER as u64 {
        return Err(damaged(format!("it has {} bytes", file.size())));
    }
    file.read_at(0, &mut header)?;
    let short = |at| u16::from_le_bytes(field(&header, at));
    let long = |at| u32::from_le_bytes(field(&header, at));
    if short(4) != 1 {
        return Err(Failure::unsupported(format!(
            "this is an Android sparse image of the version {}, and 1 is known",
            short(4)
        )));
    }
    let (own, of_chunks, block) = (short(8), short(10), long(12));
    if usize::from(own) < HEADER || usize::from(of_chunks) < CHUNK {
        return Err(damaged(format!("headers of {own} and {of_chunks} bytes")));
    }
    if !(4..=MOST_BLOCK).contains(&block) || !block.is_multiple_of(4) {
        return Err(damaged(format!("its blocks have {block} bytes")));
    }
    let (blocks, chunks) = (long(16), long(20));
    let mut map = Chunks {
        block: block.into(),
        size: u64::from(block) * u64::from(blocks),
        runs: Vec::new(),
    };
    let (mut at, mut next) = (u64::from(own), 0);
    for number in 0..chunks {
        (at, next) = map.chunk(&*file, number, at, next, of_chunks.into())?;
        if next > blocks {
            let why = format!("chunk {number} ends behind the disk, which has {blocks} blocks");
            return Err(damaged(why));
        }
    }
    if next != blocks {
        let why = format!("its chunks have {next} blocks, and its header says {blocks}");
        return Err(damaged(why));
    }
    let size = map.size;
    Ok(Mapped::new(file, size, map))
}

impl Chunks {
    /// Reads the chunk at byte `at`, whose first block is `block`. Returns both for the next one.
    fn chunk(
        &mut self,
        file: &dyn BlockDevice,
        number: u32,
        at: u64,
        block: u32,
        header: u64,
    ) -> Told<(u64, u32)> {
        let data = at + header;
        if data > file.size() {
            return Err(damaged(format!("chunk {number} would be at byte {at}")));
        }
        let mut bytes = [0; CHUNK];
        file.read_at(at, &mut bytes)?;
        let kind = u16::from_le_bytes(field(&bytes, 0));
        let blocks = u32::from_le_bytes(field(&bytes, 4));
        let next = at + u64::from(u32::from_le_bytes(field(&bytes, 8)));
        let stored = match kind {
            RAW => u64::from(blocks) * self.block,
            FILL | SUM => 4,
            NOTHING => 0,
            _ => return Err(damaged(format!("chunk {number} has the type {kind:#06x}"))),
        };
        if next != data + stored || next > file.size() {
            let why = format!("chunk {number} of {blocks} blocks has another length than those");
            return Err(damaged(why));
        }
        let mut word = [0; 4];
        let content = match kind {
            SUM => return Ok((next, block)),
            RAW => Content::At(data),
            FILL => {
                file.read_at(data, &mut word)?;
                Content::Word(word)
            }
            _ => Content::Word(word),
        };
        let goes_on = matches!(content, Content::Word(_))
            && self.runs.last().is_some_and(|run| run.content == content);
        if blocks > 0 && !goes_on {
            if self.runs.len() >= MOST_RUNS {
                return Err(Failure::unsupported(format!(
                    "the Android sparse image has more than {MOST_RUNS} runs of blocks: expand it \
                     first"
                )));
            }
            self.runs.push(Run {
                first: block,
                content,
            });
        }
        Ok((next, block.saturating_add(blocks)))
    }
}

impl Map for Chunks {
    fn fill(&self, file: &dyn BlockDevice, at: u64, buf: &mut [u8]) -> DeviceResult<usize> {
        let block = at / self.block;
        let behind = |run: &Run| u64::from(run.first) > block;
        let next = self.runs.partition_point(|run| !behind(run));
        let start = |run: &Run| u64::from(run.first) * self.block;
        let end = self.runs.get(next).map_or(self.size, start);
        let run = next.checked_sub(1).and_then(|last| self.runs.get(last));
        let part = first(buf, end.saturating_sub(at));
        match run.map_or(Content::Word([0; 4]), |run| run.content) {
            Content::At(place) => {
                let within = at - run.map_or(0, start);
                file.read_at(place + within, part)?;
            }
            Content::Word(word) => {
                // Runs begin at a multiple of the word.
                let words = word.iter().cycle().skip((at % 4) as usize);
                part.iter_mut()
                    .zip(words)
                    .for_each(|(to, from)| *to = *from);
            }
        }
        Ok(part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::MemoryDevice;
    use std::sync::Arc;

    const BLOCK: usize = 4096;

    fn chunk(kind: u16, blocks: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0; 2]);
        bytes.extend(blocks.to_le_bytes());
        bytes.extend((CHUNK as u32 + data.len() as u32).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    fn image(blocks: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0x3a, 0xff, 0x26, 0xed, 1, 0, 0, 0, 28, 0, 12, 0];
        for word in [BLOCK as u32, blocks, chunks.len() as u32, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(chunks.concat());
        bytes
    }

    fn opened(bytes: &[u8]) -> Told<Mapped<Chunks>> {
        open(Arc::new(MemoryDevice::from_image(bytes)))
    }

    #[test]
    fn any_range_is_that_of_the_disk() {
        let raw: Vec<u8> = (0..3 * BLOCK).map(|at| (at / 7) as u8).collect();
        let chunks = [
            chunk(NOTHING, 1, &[]),
            chunk(RAW, 3, &raw),
            chunk(SUM, 0, &[1, 2, 3, 4]),
            chunk(FILL, 2, b"abcd"),
            chunk(NOTHING, 4, &[]),
        ];
        let disk = opened(&image(10, &chunks)).expect("sound");
        let mut expected = vec![0; BLOCK];
        expected.extend(&raw);
        expected.extend(b"abcd".repeat(2 * BLOCK / 4));
        expected.resize(10 * BLOCK, 0);
        assert_eq!(disk.size(), expected.len() as u64);
        for (at, len) in [
            (0, 10 * BLOCK),
            (BLOCK - 3, 9),
            (4 * BLOCK - 1, 7),
            (16_387, 20_000),
        ] {
            let mut buf = vec![1; len];
            disk.read_at(at as u64, &mut buf).expect("inside");
            assert!(buf == expected[at..at + len], "at {at}");
        }
    }

    #[test]
    fn damaged_images_are_refused() {
        let sound = image(
            3,
            &[chunk(RAW, 2, &[7; 2 * BLOCK]), chunk(FILL, 1, b"abcd")],
        );
        opened(&sound).expect("sound");
        for cut in [0, 20, 30, 5000, sound.len() - 1] {
            opened(&sound[..cut]).map(drop).expect_err("cut short");
        }
        // The version, sizes of headers, of a block, numbers, and a type and length of a chunk.
        for at in [4, 8, 10, 12, 16, 20, 28, 32, 36] {
            let mut wrong = sound.clone();
            wrong[at] ^= 0x81;
            opened(&wrong).map(drop).expect_err("damaged");
        }
    }
}
