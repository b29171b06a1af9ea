//! A disk that is compressed with gzip, read at random.
//!
//! Opening decompresses all of it once, which finds its size and whether its sums are right. What
//! the decoder knew is kept every few mebibytes, so that a read begins at the last of these places
//! before it.
//!
//! # Invariants
//! - At most [`MOST_MARKS`] places are kept, and as many as the budget of the file has room for.
//!   Where there are more, every second one goes and they become rarer, so that memory is bounded
//!   whatever a stream expands to.
//! - A stream that ends early, or whose length or sum is wrong, is not opened. Streams that follow
//!   each other are one; zeros may follow the last one.

use crate::budget::Share;
use crate::failure::{Failure, Told};
use crate::image::Progress;
use crc::{CRC_32_ISO_HDLC, Crc, Digest, Table};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_sync::{LockClass, Mutex, Rank};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_IGNORE_ADLER32,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use std::fmt;
use std::io;

/// Bytes that a stream refers back to, and of the buffer that has them.
const WINDOW: usize = 32 << 10;

/// Bytes that are read at once.
const INPUT: usize = 64 << 10;

/// Bytes between two places, at first.
const SPAN: u64 = 4 << 20;

/// Places that are kept: about 44 MiB.
const MOST_MARKS: usize = 1024;

/// Bytes of a place.
const MARK: usize = size_of::<Decoder>() + size_of::<DecompressorOxide>() + WINDOW;

/// Bytes that a disk may have: what a minute or two decompress.
const LARGEST: u64 = 64 << 30;

/// Bytes between two calls that say how far the work is.
const TOLD_EVERY: u64 = 8 << 20;

static SUM: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

static DECODER_CLASS: LockClass = LockClass::new("decoder of a gzip", Rank::Leaf);

/// The disk.
pub(crate) struct Gzip {
    inner: SharedDevice,
    size: u64,
    marks: Vec<Decoder>,
    /// The memory that they take.
    _share: Share,
    /// Where the last read ended. A read that goes on there goes on decompressing.
    last: Mutex<Option<Decoder>>,
}

/// A decoder between two bytes of the disk.
#[derive(Clone)]
struct Decoder {
    oxide: Box<DecompressorOxide>,
    window: Vec<u8>,
    /// Where in the window the next byte goes.
    at_window: usize,
    /// The byte of the compressed file that is read next.
    input: u64,
    /// The byte of the disk that comes next.
    output: u64,
}

/// What is read of the compressed file.
struct Input<'a> {
    device: &'a SharedDevice,
    bytes: Vec<u8>,
    /// Where `bytes` lie in the file.
    at: u64,
}

impl<'a> Input<'a> {
    fn new(device: &'a SharedDevice) -> Self {
        Self {
            device,
            bytes: Vec::new(),
            at: 0,
        }
    }

    /// Returns what comes at a byte, empty at the end only.
    fn from(&mut self, at: u64) -> DeviceResult<&[u8]> {
        let is_here = at >= self.at && at < self.at + self.bytes.len() as u64;
        if !is_here {
            let left = self.device.size().saturating_sub(at);
            self.bytes.resize(left.min(INPUT as u64) as usize, 0);
            self.at = at;
            self.device.read_at(at, &mut self.bytes)?;
        }
        Ok(self.bytes.get((at - self.at) as usize..).unwrap_or(&[]))
    }

    /// Returns the next byte and goes behind it.
    fn byte(&mut self, at: &mut u64) -> Told<u8> {
        let byte = *self.from(*at)?.first().ok_or_else(|| ends_early(*at))?;
        *at += 1;
        Ok(byte)
    }

    fn bytes<const N: usize>(&mut self, at: &mut u64) -> Told<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte(at)?;
        }
        Ok(bytes)
    }
}

fn ends_early(at: u64) -> Failure {
    Failure::damaged(format!("the gzip file ends early, after {at} bytes"))
}

/// What a step of a decoder came to.
enum Step<'a> {
    Bytes(&'a [u8]),
    End,
}

impl Decoder {
    fn new(input: u64, output: u64) -> Self {
        Self {
            oxide: Box::new(DecompressorOxide::new()),
            window: vec![0; WINDOW],
            at_window: 0,
            input,
            output,
        }
    }

    /// Decompresses some bytes, at most up to the end of the window.
    fn step(&mut self, input: &mut Input<'_>) -> Told<Step<'_>> {
        loop {
            let bytes = input.from(self.input)?;
            let has_more = if bytes.is_empty() {
                0
            } else {
                TINFL_FLAG_HAS_MORE_INPUT
            };
            let flags = TINFL_FLAG_IGNORE_ADLER32 | has_more;
            let (status, taken, given) = decompress(
                &mut self.oxide,
                bytes,
                &mut self.window,
                self.at_window,
                flags,
            );
            let from = self.at_window;
            self.input += taken as u64;
            self.output += given as u64;
            self.at_window = (from + given) % WINDOW;
            if given > 0 {
                let bytes = self.window.get(from..from + given);
                return Ok(Step::Bytes(bytes.unwrap_or(&[])));
            }
            match status {
                TINFLStatus::Done => return Ok(Step::End),
                TINFLStatus::NeedsMoreInput if taken > 0 => {}
                TINFLStatus::NeedsMoreInput | TINFLStatus::FailedCannotMakeProgress => {
                    return Err(ends_early(self.input));
                }
                _ => {
                    return Err(Failure::damaged(format!(
                        "the gzip file is damaged near its byte {}, after {} bytes of the disk",
                        self.input, self.output
                    )));
                }
            }
        }
    }
}

/// Reads the header of a stream, and goes behind it. Source: RFC 1952.
fn header(input: &mut Input<'_>, at: &mut u64) -> Told<()> {
    let start = *at;
    let bytes = input.bytes::<10>(at)?;
    let [0x1f, 0x8b, 8, flags, ..] = bytes else {
        return Err(Failure::damaged(format!(
            "what is at byte {start} of the gzip file is no stream of gzip"
        )));
    };
    if flags & 0xe0 != 0 {
        return Err(Failure::damaged(format!(
            "the stream at byte {start} of the gzip file has flags that are not known"
        )));
    }
    if flags & 4 != 0 {
        let len = u16::from_le_bytes(input.bytes(at)?);
        *at += u64::from(len);
    }
    // A name, and a comment, each up to a zero.
    for bit in [8, 16] {
        if flags & bit != 0 {
            while input.byte(at)? != 0 {}
        }
    }
    if flags & 2 != 0 {
        input.bytes::<2>(at)?;
    }
    Ok(())
}

/// Whether there is another stream, and not zeros up to the end or nothing.
fn has_more(input: &mut Input<'_>, mut at: u64) -> Told<bool> {
    loop {
        let bytes = input.from(at)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(true);
        }
        at += bytes.len() as u64;
    }
}

/// What the first look at all of it finds.
struct Scan {
    marks: Vec<Decoder>,
    share: Share,
    span: u64,
    told: u64,
}

impl Scan {
    fn mark(&mut self, decoder: &Decoder) -> Told<()> {
        let next = self.marks.last().map_or(0, |last| last.output + self.span);
        if decoder.output < next {
            return Ok(());
        }
        if self.marks.len() >= MOST_MARKS || !self.share.grow(MARK) {
            if self.marks.is_empty() {
                return Err(Failure::unsupported(
                    "there is no memory left for the gzip file, as the layers around it have taken \
                     all: decompress it first",
                ));
            }
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.share.shrink_to(self.marks.len() * MARK);
            self.span *= 2;
            return Ok(());
        }
        self.marks.push(decoder.clone());
        Ok(())
    }

    /// Decompresses one stream, and goes behind it. Returns how long the disk is with it.
    fn stream(
        &mut self,
        input: &mut Input<'_>,
        at: &mut u64,
        output: u64,
        progress: &dyn Progress,
    ) -> Told<u64> {
        let mut decoder = Decoder::new(*at, output);
        let mut sum: Digest<'_, u32, Table<16>> = SUM.digest();
        loop {
            self.mark(&decoder)?;
            match decoder.step(input)? {
                Step::End => break,
                Step::Bytes(bytes) => sum.update(bytes),
            }
            if decoder.output > LARGEST {
                return Err(Failure::unsupported(format!(
                    "the gzip file holds a disk of more than {LARGEST} bytes: decompress it first"
                )));
            }
            if decoder.output - self.told >= TOLD_EVERY {
                self.told = decoder.output;
                progress.told("decompressing", decoder.input, input.device.size());
            }
        }
        *at = decoder.input;
        let expected = u32::from_le_bytes(input.bytes(at)?);
        let length = u32::from_le_bytes(input.bytes(at)?);
        let written = decoder.output - output;
        if sum.finalize() != expected || length != written as u32 {
            return Err(Failure::damaged(format!(
                "the gzip file is damaged: the checksum or the length of its stream that ends at \
                 byte {at} is wrong"
            )));
        }
        Ok(decoder.output)
    }
}

impl Gzip {
    pub(crate) fn open(inner: SharedDevice, progress: &dyn Progress, share: Share) -> Told<Self> {
        let mut scan = Scan {
            marks: Vec::new(),
            share,
            span: SPAN,
            told: 0,
        };
        let (mut at, mut size) = (0, 0);
        {
            let mut input = Input::new(&inner);
            loop {
                header(&mut input, &mut at)?;
                size = scan.stream(&mut input, &mut at, size, progress)?;
                if !has_more(&mut input, at)? {
                    break;
                }
            }
        }
        Ok(Self {
            inner,
            size,
            marks: scan.marks,
            _share: scan.share,
            last: Mutex::new(&DECODER_CLASS, None),
        })
    }

    /// Returns the decoder that is nearest before a byte of the disk.
    fn nearest(&self, at: u64) -> Option<Decoder> {
        let number = self.marks.partition_point(|mark| mark.output <= at);
        let mark = self.marks.get(number.checked_sub(1)?)?;
        match self.last.lock().take() {
            Some(last) if last.output <= at && last.output >= mark.output => Some(last),
            _ => Some(mark.clone()),
        }
    }

    fn fill(&self, offset: u64, buf: &mut [u8]) -> Told<()> {
        let Some(mut decoder) = self.nearest(offset) else {
            return Ok(());
        };
        let mut input = Input::new(&self.inner);
        let end = offset + buf.len() as u64;
        while decoder.output < end {
            let before = decoder.output;
            if let Step::Bytes(bytes) = decoder.step(&mut input)? {
                copy_overlap(before, bytes, offset, buf);
                continue;
            }
            // Behind the sum and the length the next stream begins.
            let mut at = decoder.input + 8;
            header(&mut input, &mut at)?;
            decoder = Decoder::new(at, decoder.output);
        }
        *self.last.lock() = Some(decoder);
        Ok(())
    }
}

/// Copies what of `bytes`, which begin at `at`, lies in `buf`, which begins at `offset`.
fn copy_overlap(at: u64, bytes: &[u8], offset: u64, buf: &mut [u8]) {
    let skipped = offset.saturating_sub(at).min(bytes.len() as u64) as usize;
    let to = at.saturating_sub(offset).min(buf.len() as u64) as usize;
    let from = bytes.get(skipped..).unwrap_or(&[]);
    let to = buf.get_mut(to..).unwrap_or_default();
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

impl fmt::Debug for Gzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gzip").field(&self.inner).finish()
    }
}

impl BlockDevice for Gzip {
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
        self.fill(offset, buf).map_err(|why| DeviceError::Io {
            op: "decompress",
            device: self.name(),
            offset,
            len: buf.len() as u64,
            source: io::Error::other(why.text),
        })
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
    use crate::budget::{self, Budget};
    use extant_blockdev::MemoryDevice;
    use miniz_oxide::deflate::compress_to_vec;
    use std::sync::Arc;

    /// A stream with a name and an extra field.
    pub(crate) fn stream(content: &[u8]) -> Vec<u8> {
        let mut file = vec![0x1f, 0x8b, 8, 4 | 8, 0, 0, 0, 0, 0, 3, 2, 0, 7, 7];
        file.extend_from_slice(b"disk.img\0");
        file.extend(compress_to_vec(content, 1));
        file.extend(SUM.checksum(content).to_le_bytes());
        file.extend((content.len() as u32).to_le_bytes());
        file
    }

    fn open(file: &[u8]) -> Told<Gzip> {
        let share = Budget::new(budget::MOST).share();
        Gzip::open(Arc::new(MemoryDevice::from_image(file)), &(), share)
    }

    fn content(len: usize) -> Vec<u8> {
        let word = |at: usize| ((at / 3).wrapping_mul(2_654_435_761) >> 13) as u8;
        (0..len)
            .map(|at| if at / 70_000 % 2 == 0 { 0 } else { word(at) })
            .collect()
    }

    #[test]
    fn any_range_of_streams_in_a_row_is_that_of_the_disk() {
        let disk = content(11 << 20);
        let (first, second) = disk.split_at(5 << 20);
        let mut file = stream(first);
        file.extend(stream(second));
        file.extend([0; 1000]);
        let gzip = open(&file).expect("sound");
        assert_eq!(gzip.size(), disk.len() as u64);
        assert!(gzip.marks.len() > 2, "{} places", gzip.marks.len());
        for at in [
            10 << 20,
            0,
            4096,
            5 << 20,
            (5 << 20) - 100,
            4 << 20,
            disk.len() - 5000,
        ] {
            let mut buf = vec![0; 5000];
            gzip.read_at(at as u64, &mut buf).expect("inside");
            assert!(buf == disk[at..at + 5000], "at {at}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = stream(&content(300_000));
        open(&file).expect("sound");
        for cut in [0, 5, 12, 20, 100, file.len() - 9, file.len() - 1] {
            open(&file[..cut]).map(|_| ()).expect_err("cut short");
        }
        for at in [0, 2, 3, 400, 3000, file.len() - 1, file.len() - 6] {
            let mut wrong = file.clone();
            wrong[at] ^= 0xe1;
            open(&wrong).map(|_| ()).expect_err("damaged");
        }
        let mut more = file;
        more.extend(b"more");
        open(&more).map(|_| ()).expect_err("not a stream");
    }

    #[test]
    fn few_places_are_kept_of_a_long_stream() {
        few_are_kept(&Budget::new(budget::MOST), MOST_MARKS);
        few_are_kept(&Budget::new(10 * MARK + 1), 10);
        let file = stream(&content(100));
        let file: SharedDevice = Arc::new(MemoryDevice::from_image(&file));
        let none = Budget::new(MARK - 1).share();
        let refused = Gzip::open(file, &(), none).map(drop);
        assert!(
            refused
                .expect_err("no memory")
                .text
                .contains("no memory left")
        );
    }

    fn few_are_kept(budget: &Budget, most: usize) {
        let mut scan = Scan {
            marks: Vec::new(),
            share: budget.share(),
            span: 1,
            told: 0,
        };
        let mut decoder = Decoder::new(0, 0);
        decoder.window = Vec::new();
        for output in 0..10 * MOST_MARKS as u64 {
            decoder.output = output;
            scan.mark(&decoder).expect("room for one");
        }
        assert!(scan.marks.len() <= most && scan.share.bytes() == scan.marks.len() * MARK);
        assert_eq!(scan.marks.first().map(|mark| mark.output), Some(0));
    }
}
