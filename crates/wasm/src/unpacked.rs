//! A disk that is compressed with Zstandard or xz, decompressed into memory.
//!
//! Their decoders cannot be kept in the middle of a stream, so that a read would begin at its
//! start. Zeros take no memory.
//!
//! # Invariants
//! - What is kept of the data comes out of the budget of the file, and at most [`LARGEST`]
//!   bytes are decompressed.
//! - A stream that ends early, goes on with something else, or whose sum is wrong, is not opened.
//!   Streams that follow each other are one.

use crate::budget::{self, Share};
use crate::failure::{Failure, Told};
use crate::image::Progress;
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of a piece of the disk that is kept, or is zeros.
const PIECE: usize = 64 << 10;

/// Bytes that a disk may have: what some minutes decompress.
const LARGEST: u64 = 64 << 30;

/// Bytes between two calls that say how far the work is.
const TOLD_EVERY: u64 = 8 << 20;

/// Bytes of the file that are read at once.
const INPUT: usize = 64 << 10;

/// The largest window of Zstandard: what its own tool takes without being asked.
const ZSTD_WINDOW: u64 = 128 << 20;

/// Most memory for a decoder of xz, in KiB; the highest of its tool's presets takes 65 MiB.
const XZ_MEMORY: u32 = 128 << 10;

/// How a disk is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Zstd,
    Xz,
}

impl Packing {
    fn name(self) -> &'static str {
        match self {
            Self::Zstd => "Zstandard",
            Self::Xz => "xz",
        }
    }
}

/// The disk.
struct Unpacked {
    name: String,
    size: u64,
    pieces: Vec<Option<Box<[u8]>>>,
    /// The memory that they take.
    share: Share,
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unpacked").field(&self.name).finish()
    }
}

/// What is read of the compressed file.
struct Input {
    device: SharedDevice,
    bytes: Vec<u8>,
    used: usize,
    /// The byte of the file behind `bytes`.
    at: u64,
    /// How much of the file was used.
    taken: Rc<Cell<u64>>,
}

impl Input {
    /// Returns what comes next, empty at the end only.
    fn rest(&mut self) -> io::Result<&[u8]> {
        if self.used >= self.bytes.len() {
            let left = self.device.size().saturating_sub(self.at);
            self.bytes.resize(left.min(INPUT as u64) as usize, 0);
            let read = self.device.read_at(self.at, &mut self.bytes);
            read.map_err(io::Error::other)?;
            self.at += self.bytes.len() as u64;
            self.used = 0;
        }
        Ok(self.bytes.get(self.used..).unwrap_or_default())
    }

    /// Passes over bytes, as many as there are.
    fn skip(&mut self, mut len: usize) -> io::Result<()> {
        while len > 0 {
            let some = self.rest()?.len().min(len);
            if some == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.used += some;
            len -= some;
        }
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.rest()?;
        let len = rest.len().min(buf.len());
        let (now, _) = buf.split_at_mut(len);
        now.copy_from_slice(rest.get(..len).unwrap_or_default());
        self.used += len;
        self.taken.set(self.taken.get() + len as u64);
        Ok(len)
    }
}

/// Opens the disk.
pub(crate) fn open(
    file: SharedDevice,
    packing: Packing,
    progress: &dyn Progress,
    share: Share,
) -> Told<SharedDevice> {
    let taken = Rc::new(Cell::new(0));
    let input = Input {
        device: Arc::clone(&file),
        bytes: Vec::new(),
        used: 0,
        at: 0,
        taken: Rc::clone(&taken),
    };
    let mut store = Store {
        disk: Unpacked {
            name: file.name(),
            size: 0,
            pieces: Vec::new(),
            share,
        },
        told: 0,
        packing,
    };
    let told = |done: u64| progress.told("decompressing", done, file.size());
    match packing {
        Packing::Zstd => store.take_zstd(input, &taken, &told)?,
        Packing::Xz => {
            let mut decoder = XzReader::new_mem_limit(input, true, XZ_MEMORY);
            store.take(&mut decoder, &taken, &told)?;
        }
    }
    Ok(Arc::new(store.disk))
}

/// A disk that is being decompressed.
struct Store {
    disk: Unpacked,
    told: u64,
    packing: Packing,
}

impl Store {
    fn damaged(&self, why: &dyn fmt::Display) -> Failure {
        Failure::damaged(format!(
            "the {} file is damaged, after {} bytes of the disk: {why}",
            self.packing.name(),
            self.disk.size
        ))
    }

    /// Takes all frames of Zstandard.
    fn take_zstd(&mut self, mut input: Input, taken: &Cell<u64>, told: &dyn Fn(u64)) -> Told<()> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW);
        while !input.rest().map_err(|e| self.damaged(&e))?.is_empty() {
            let mut frame = match StreamingDecoder::new_with_decoder(&mut input, &mut decoder) {
                Ok(frame) => frame,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = input.skip(length as usize);
                    skipped.map_err(|e| self.damaged(&e))?;
                    continue;
                }
                Err(e) => return Err(self.damaged(&e)),
            };
            self.take(&mut frame, taken, told)?;
            let stated = decoder.get_checksum_from_data();
            if stated.is_some() && stated != decoder.get_calculated_checksum() {
                return Err(self.damaged(&"the checksum of a frame is wrong"));
            }
        }
        Ok(())
    }

    /// Takes all that a decoder gives.
    fn take(&mut self, decoder: &mut dyn Read, taken: &Cell<u64>, told: &dyn Fn(u64)) -> Told<()> {
        let mut piece = vec![0; PIECE];
        loop {
            // Pieces are filled, also where one ends with a stream.
            let kept = (self.disk.size % PIECE as u64) as usize;
            let room = piece.get_mut(kept..).unwrap_or_default();
            let read = decoder.read(room).map_err(|e| self.damaged(&e))?;
            if read == 0 {
                return Ok(());
            }
            self.put(kept, piece.get(kept..kept + read).unwrap_or_default())?;
            if self.disk.size - self.told >= TOLD_EVERY {
                self.told = self.disk.size;
                told(taken.get());
            }
        }
    }

    /// Puts bytes behind the disk, of whose last piece there are `kept` already.
    fn put(&mut self, kept: usize, bytes: &[u8]) -> Told<()> {
        self.disk.size += bytes.len() as u64;
        if self.disk.size > LARGEST {
            return Err(Failure::unsupported(format!(
                "the {} file holds a disk of more than {LARGEST} bytes: decompress it first",
                self.packing.name()
            )));
        }
        if kept == 0 {
            self.disk.pieces.push(None);
        }
        let Some(last) = self.disk.pieces.last_mut() else {
            return Ok(());
        };
        if last.is_none() {
            if bytes.iter().all(|&byte| byte == 0) {
                return Ok(());
            }
            if !self.disk.share.grow(PIECE) {
                return Err(Failure::unsupported(format!(
                    "the {} file holds more data than there is memory for, of which all layers of a \
                     file have {} bytes together: decompress it first",
                    self.packing.name(),
                    budget::MOST
                )));
            }
            *last = Some(vec![0; PIECE].into_boxed_slice());
        }
        let room = last.as_mut().and_then(|last| last.get_mut(kept..));
        let room = room.unwrap_or_default().iter_mut();
        room.zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

impl BlockDevice for Unpacked {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let within = (at % PIECE as u64) as usize;
            let len = (PIECE - within).min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            let piece = self.pieces.get((at / PIECE as u64) as usize);
            match piece.and_then(Option::as_ref) {
                Some(piece) => {
                    now.copy_from_slice(piece.get(within..within + len).unwrap_or_default())
                }
                None => now.fill(0),
            }
            (at, rest) = (at + len as u64, later);
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::disk;
    use extant_blockdev::MemoryDevice;
    use std::io::Write;

    fn disk() -> Vec<u8> {
        let word = |at: usize| ((at / 3).wrapping_mul(2_654_435_761) >> 13) as u8;
        (0..700_000)
            .map(|at| if at / 200_000 == 1 { 0 } else { word(at) })
            .collect()
    }

    /// A file of two streams, or frames, with one to pass over between them for Zstandard.
    fn packed(packing: Packing, disk: &[u8]) -> Vec<u8> {
        let (one, other) = disk.split_at(disk.len() / 2 + 11);
        let pack = |bytes: &[u8]| match packing {
            Packing::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
                encoder.include_checksum(true).expect("known");
                encoder.write_all(bytes).expect("packed");
                encoder.finish().expect("packed")
            }
            Packing::Xz => {
                let mut packed = Vec::new();
                let mut encoder = liblzma::read::XzEncoder::new(bytes, 1);
                encoder.read_to_end(&mut packed).expect("packed");
                packed
            }
        };
        let between = match packing {
            Packing::Zstd => &[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..],
            Packing::Xz => &[],
        };
        [&pack(one)[..], between, &pack(other)].concat()
    }

    fn opened(file: &[u8], packing: Packing) -> Told<SharedDevice> {
        let share = Budget::new(budget::MOST).share();
        open(
            Arc::new(MemoryDevice::from_image(file)),
            packing,
            &(),
            share,
        )
    }

    #[test]
    fn any_range_of_streams_in_a_row_is_that_of_the_disk() {
        let expected = disk();
        for packing in [Packing::Zstd, Packing::Xz] {
            let disk = opened(&packed(packing, &expected), packing).expect("sound");
            assert_eq!(disk.size(), expected.len() as u64);
            for (at, len) in [(0, expected.len()), (65_530, 20), (350_000, 300_000)] {
                let mut buf = vec![1; len];
                disk.read_at(at as u64, &mut buf).expect("inside");
                assert!(buf == expected[at..at + len], "{packing:?} at {at}");
            }
        }
    }

    #[test]
    fn zeros_take_no_memory() {
        let budget = Budget::new(2 * PIECE);
        let mut store = Store {
            disk: Unpacked {
                name: String::new(),
                size: 0,
                pieces: Vec::new(),
                share: budget.share(),
            },
            told: 0,
            packing: Packing::Xz,
        };
        let mut zeros = io::repeat(0).take(100 * PIECE as u64 + 7);
        store
            .take(&mut zeros, &Cell::new(0), &|_| ())
            .expect("taken");
        assert_eq!(
            (store.disk.share.bytes(), store.disk.pieces.len()),
            (0, 101)
        );
        let mut ones = io::repeat(1).take(3);
        store
            .take(&mut ones, &Cell::new(0), &|_| ())
            .expect("taken");
        let mut last = [9; 10];
        store
            .disk
            .read_at(100 * PIECE as u64, &mut last)
            .expect("inside");
        assert_eq!(
            (store.disk.share.bytes(), last),
            (PIECE, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1])
        );
        let mut more = io::repeat(1).take(2 * PIECE as u64);
        let told = store.take(&mut more, &Cell::new(0), &|_| ());
        assert!(
            told.expect_err("too much")
                .text
                .contains("decompress it first")
        );
    }

    #[test]
    fn layers_in_each_other_have_one_budget() {
        let mut state = 1_u64;
        let content: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(16 * PIECE)
        .collect();
        let zstd = packed(Packing::Zstd, &content);
        let both = packed(Packing::Xz, &zstd);
        let open = |file: &[u8], pieces: usize| {
            let file = Arc::new(MemoryDevice::from_image(file));
            disk::open_within(file, None, &(), &Budget::new(pieces * PIECE))
        };
        // Each by itself has enough, and the two together have not.
        assert_eq!(open(&zstd, 20).expect("one layer").formats, ["zstd"]);
        let refused = open(&both, 20).map(drop).expect_err("two layers");
        assert!(refused.text.contains("all layers"), "{refused}");
        let disk = open(&both, 40).expect("two layers");
        assert_eq!(disk.formats, ["xz", "zstd"]);
        let mut found = vec![0; content.len()];
        disk.device.read_at(0, &mut found).expect("inside");
        assert!(found == content);
    }

    #[test]
    fn damaged_files_are_refused() {
        for packing in [Packing::Zstd, Packing::Xz] {
            let sound = packed(packing, &disk()[..200_000]);
            opened(&sound, packing).expect("sound");
            for cut in [3, 20, sound.len() / 3, sound.len() - 1] {
                opened(&sound[..cut], packing)
                    .map(drop)
                    .expect_err("cut short");
            }
            for at in [1, sound.len() / 4, sound.len() / 3, sound.len() - 2] {
                let mut wrong = sound.clone();
                wrong[at] ^= 0x41;
                opened(&wrong, packing).map(drop).expect_err("damaged");
            }
            let more = [&sound[..], b"more"].concat();
            opened(&more, packing).map(drop).expect_err("not a stream");
        }
    }
}
