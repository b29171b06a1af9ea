//! Where chunks end: where the content says so, at the places where casync cuts as well, and with
//! usual sizes desync ([`ChunkSizes`]).
//!
//! A hash of the last 48 bytes (buzhash) says whether a chunk may end behind them: such a place is
//! a *mark*. It depends on these bytes alone, so marks are searched in many parts of an image at
//! once. A chunk ends at the first mark that does not make it too small, or where it would become
//! too large. That is decided from the front to the end, over marks only.
//!
//! # Sources
//! The chunker of casync (<https://github.com/systemd/casync>, `src/cachunker.c`) and of desync
//! (<https://github.com/folbricht/desync>, `chunker.go`, BSD licence): the window, the table, how
//! the average becomes a divisor, and what is compared with what. Divisibility by multiplication:
//! T. Granlund, P. Montgomery, Division by Invariant Integers using Multiplication, 1994.

use super::LARGEST;
use super::index::SMALLEST;
use crate::error::RemoteError;

/// Bytes that the hash is made of.
const WINDOW: usize = 48;

/// The largest average: the divisor is right up to there.
const LARGEST_AVERAGE: u64 = 4 << 20;

/// Sizes of chunks.
///
/// A store of casync shares chunks with images that were cut by the same sizes. So does one of
/// desync where the smallest size is at most 0.75 of the average and the largest at least 1.4 times
/// the average, but for the few chunks that casync lets end at exactly the smallest size. With
/// other sizes, three that are the same among them, desync cuts elsewhere: casync keeps the divisor
/// of the hash between the smallest and the largest size, and desync does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizes {
    pub(super) min: u64,
    pub(super) average: u64,
    pub(super) max: u64,
}

impl Default for ChunkSizes {
    /// Returns 16, 64 and 256 KiB, as casync and desync have them.
    fn default() -> Self {
        Self {
            min: 16 << 10,
            average: 64 << 10,
            max: 256 << 10,
        }
    }
}

impl ChunkSizes {
    /// Takes the smallest size, the average and the largest size, in bytes. The last chunk of an
    /// image may be smaller. Where all three are the same, all chunks have this size and lie at
    /// multiples of it.
    ///
    /// # Errors
    /// `BadSizes` where one is larger than the next, the smallest has less than 1 KiB, the average
    /// more than 4 MiB or the largest more than 16 MiB.
    pub fn new(min: u64, average: u64, max: u64) -> Result<Self, RemoteError> {
        let reason = if min > average || average > max {
            "the smallest size, the average and the largest size come in this order".to_owned()
        } else if min < SMALLEST {
            format!("the smallest size is {min} bytes, and {SMALLEST} are the least")
        } else if average > LARGEST_AVERAGE {
            format!("the average is {average} bytes, and {LARGEST_AVERAGE} are the most")
        } else if max > LARGEST {
            format!("the largest size is {max} bytes, and {LARGEST} are the most")
        } else {
            return Ok(Self { min, average, max });
        };
        Err(RemoteError::BadSizes { reason })
    }

    /// Takes the average, in bytes: the smallest size is a quarter of it, and the largest four
    /// times as much.
    ///
    /// # Errors
    /// As for [`ChunkSizes::new`].
    pub fn around(average: u64) -> Result<Self, RemoteError> {
        Self::new(average / 4, average, average.saturating_mul(4))
    }

    const fn is_fixed(self) -> bool {
        self.min == self.max
    }

    /// What a hash is divided by, so that chunks have the average. It is a fit for the sizes that
    /// [`ChunkSizes::around`] gives.
    fn divisor(self) -> u64 {
        let average = self.average as f64;
        let divisor = average / (-1.428_888_52e-7 * average + 1.332_375_15);
        (divisor as u64).clamp(self.min, self.max)
    }
}

/// Finds marks, and chooses ends of chunks among them.
#[derive(Debug)]
pub(super) struct Cutter {
    pub(super) sizes: ChunkSizes,
    /// Hashes one below its multiples are marks.
    divisor: Divisor,
}

impl Cutter {
    pub(super) fn new(sizes: ChunkSizes) -> Self {
        Self {
            sizes,
            divisor: Divisor::new(sizes.divisor()),
        }
    }

    fn is_mark(&self, hash: u32) -> bool {
        self.divisor.divides(u64::from(hash) + 1)
    }

    /// Whether zeroes that go on for long are cut into chunks of the largest size, as they are
    /// unless their hash is a mark.
    pub(super) fn leaves_zeroes(&self) -> bool {
        self.marks(&[0; WINDOW], 0).is_empty()
    }

    /// Returns the marks in bytes that begin at byte `start` of an image, in ascending order: of
    /// windows that lie in them as a whole.
    pub(super) fn marks(&self, bytes: &[u8], start: u64) -> Vec<u64> {
        let mut marks = Vec::new();
        let Some((window, entering)) = bytes.split_at_checked(WINDOW) else {
            return marks;
        };
        if self.sizes.is_fixed() {
            return marks;
        }
        let mut hash = window.iter().fold(0_u32, |hash, &byte| {
            hash.rotate_left(1) ^ TABLE[usize::from(byte)]
        });
        let mut at = start + WINDOW as u64;
        if self.is_mark(hash) {
            marks.push(at);
        }
        for (&leaving, &entering) in bytes.iter().zip(entering) {
            hash =
                hash.rotate_left(1) ^ LEAVING[usize::from(leaving)] ^ TABLE[usize::from(entering)];
            at += 1;
            if self.is_mark(hash) {
                marks.push(at);
            }
        }
        marks
    }

    /// Returns the marks of windows that begin before place `seam` of the bytes and end behind it.
    pub(super) fn marks_over(&self, bytes: &[u8], seam: usize, start: u64) -> Vec<u64> {
        let around = seam.saturating_sub(WINDOW - 1)..(seam + WINDOW - 1).min(bytes.len());
        self.marks(&bytes[around.clone()], start + around.start as u64)
    }

    /// Returns where chunks end. The first one begins at byte `start`; all marks between there and
    /// byte `known` are given, in ascending order. `is_all` says that the image ends at `known`. An
    /// end that depends on what follows is left out.
    pub(super) fn ends(&self, start: u64, known: u64, is_all: bool, marks: &[u64]) -> Vec<u64> {
        let mut ends = Vec::new();
        let mut marks = marks.iter().copied().peekable();
        let mut start = start;
        while start < known {
            let (first, last) = (start + self.sizes.min, start + self.sizes.max);
            while marks.next_if(|&mark| mark < first).is_some() {}
            let end = match marks.peek() {
                Some(&mark) if mark <= last => mark,
                _ if last <= known => last,
                _ if is_all => known,
                _ => break,
            };
            ends.push(end);
            start = end;
        }
        ends
    }
}

/// Says whether numbers are multiples of another one, without division.
#[derive(Debug)]
struct Divisor {
    /// Of the divisor's odd part, modulo 2⁶⁴.
    inverse: u64,
    /// The divisor's twos.
    twos: u32,
    /// The largest quotient that there is.
    most: u64,
}

impl Divisor {
    fn new(divisor: u64) -> Self {
        let twos = divisor.trailing_zeros();
        let odd = divisor >> twos;
        // An odd number is its own inverse in three bits, and each step doubles them.
        let inverse = (0..5).fold(odd, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)))
        });
        Self {
            inverse,
            twos,
            most: u64::MAX / divisor,
        }
    }

    fn divides(&self, number: u64) -> bool {
        number.wrapping_mul(self.inverse).rotate_right(self.twos) <= self.most
    }
}

/// What a byte adds to the hash when it enters the window.
const TABLE: [u32; 256] = [
    0x458be752, 0xc10748cc, 0xfbbcdbb8, 0x6ded5b68, 0xb10a82b5, 0x20d75648, 0xdfc5665f, 0xa8428801,
    0x7ebf5191, 0x841135c7, 0x65cc53b3, 0x280a597c, 0x16f60255, 0xc78cbc3e, 0x294415f5, 0xb938d494,
    0xec85c4e6, 0xb7d33edc, 0xe549b544, 0xfdeda5aa, 0x882bf287, 0x3116737c, 0x05569956, 0xe8cc1f68,
    0x0806ac5e, 0x22a14443, 0x15297e10, 0x50d090e7, 0x4ba60f6f, 0xefd9f1a7, 0x5c5c885c, 0x82482f93,
    0x9bfd7c64, 0x0b3e7276, 0xf2688e77, 0x8fad8abc, 0xb0509568, 0xf1ada29f, 0xa53efdfe, 0xcb2b1d00,
    0xf2a9e986, 0x6463432b, 0x95094051, 0x5a223ad2, 0x9be8401b, 0x61e579cb, 0x1a556a14, 0x5840fdc2,
    0x9261ddf6, 0xcde002bb, 0x52432bb0, 0xbf17373e, 0x7b7c222f, 0x2955ed16, 0x9f10ca59, 0xe840c4c9,
    0xccabd806, 0x14543f34, 0x1462417a, 0x0d4a1f9c, 0x087ed925, 0xd7f8f24c, 0x7338c425, 0xcf86c8f5,
    0xb19165cd, 0x9891c393, 0x325384ac, 0x0308459d, 0x86141d7e, 0xc922116a, 0xe2ffa6b6, 0x53f52aed,
    0x2cd86197, 0xf5b9f498, 0xbf319c8f, 0xe0411fae, 0x977eb18c, 0xd8770976, 0x9833466a, 0xc674df7f,
    0x8c297d45, 0x8ca48d26, 0xc49ed8e2, 0x7344f874, 0x556f79c7, 0x6b25eaed, 0xa03e2b42, 0xf68f66a4,
    0x8e8b09a2, 0xf2e0e62a, 0x0d3a9806, 0x9729e493, 0x8c72b0fc, 0x160b94f6, 0x450e4d3d, 0x7a320e85,
    0xbef8f0e1, 0x21d73653, 0x4e3d977a, 0x1e7b3929, 0x1cc6c719, 0xbe478d53, 0x8d752809, 0xe6d8c2c6,
    0x275f0892, 0xc8acc273, 0x4cc21580, 0xecc4a617, 0xf5f7be70, 0xe795248a, 0x375a2fe9, 0x425570b6,
    0x8898dcf8, 0xdc2d97c4, 0x0106114b, 0x364dc22f, 0x1e0cad1f, 0xbe63803c, 0x5f69fac2, 0x4d5afa6f,
    0x1bc0dfb5, 0xfb273589, 0x0ea47f7b, 0x3c1c2b50, 0x21b2a932, 0x6b1223fd, 0x2fe706a8, 0xf9bd6ce2,
    0xa268e64e, 0xe987f486, 0x3eacf563, 0x1ca2018c, 0x65e18228, 0x2207360a, 0x57cf1715, 0x34c37d2b,
    0x1f8f3cde, 0x93b657cf, 0x31a019fd, 0xe69eb729, 0x8bca7b9b, 0x4c9d5bed, 0x277ebeaf, 0xe0d8f8ae,
    0xd150821c, 0x31381871, 0xafc3f1b0, 0x927db328, 0xe95effac, 0x305a47bd, 0x426ba35b, 0x1233af3f,
    0x686a5b83, 0x50e072e5, 0xd9d3bb2a, 0x8befc475, 0x487f0de6, 0xc88dff89, 0xbd664d5e, 0x971b5d18,
    0x63b14847, 0xd7d3c1ce, 0x7f583cf3, 0x72cbcb09, 0xc0d0a81c, 0x7fa3429b, 0xe9158a1b, 0x225ea19a,
    0xd8ca9ea3, 0xc763b282, 0xbb0c6341, 0x020b8293, 0xd4cd299d, 0x58cfa7f8, 0x91b4ee53, 0x37e4d140,
    0x95ec764c, 0x30f76b06, 0x5ee68d24, 0x679c8661, 0xa41979c2, 0xf2b61284, 0x4fac1475, 0x0adb49f9,
    0x19727a23, 0x15a7e374, 0xc43a18d5, 0x3fb1aa73, 0x342fc615, 0x924c0793, 0xbee2d7f0, 0x8a279de9,
    0x4aa2d70c, 0xe24dd37f, 0xbe862c0b, 0x177c22c2, 0x5388e5ee, 0xcd8a7510, 0xf901b4fd, 0xdbc13dbc,
    0x6c0bae5b, 0x64efe8c7, 0x48b02079, 0x80331a49, 0xca3d8ae6, 0xf3546190, 0xfed7108b, 0xc49b941b,
    0x32baf4a9, 0xeb833a4a, 0x88a3f1a5, 0x3a91ce0a, 0x3cc27da1, 0x7112e684, 0x4a3096b1, 0x3794574c,
    0xa3c8b6f3, 0x1d213941, 0x6e0a2e00, 0x233479f1, 0x0f4cd82f, 0x6093edd2, 0x5d7d209e, 0x464fe319,
    0xd4dcac9e, 0x0db845cb, 0xfb5e4bc3, 0xe0256ce1, 0x09fb4ed1, 0x0914be1e, 0xa5bdb2c3, 0xc6eb57bb,
    0x30320350, 0x3f397e91, 0xa67791bc, 0x86bc0e2c, 0xefa0a7e2, 0xe9ff7543, 0xe733612c, 0xd185897b,
    0x329e5388, 0x91dd236b, 0x2ecb0d93, 0xf4d82a3d, 0x35b5c03f, 0xe4e606f0, 0x05b21843, 0x37b45964,
    0x5eff22f4, 0x6027f4cc, 0x77178b3c, 0xae507131, 0x7bf7cabc, 0xf9c18d66, 0x593ade65, 0xd95ddf11,
];

/// What is left of a byte in the hash when it leaves the window.
const LEAVING: [u32; 256] = {
    let mut leaving = TABLE;
    let mut n = 0;
    while n < leaving.len() {
        leaving[n] = leaving[n].rotate_left(WINDOW as u32);
        n += 1;
    }
    leaving
};

#[cfg(test)]
mod tests {
    use super::{ChunkSizes, Cutter, Divisor, TABLE, WINDOW};

    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// Marks as the definition has them, each from its own 48 bytes.
    fn defined(cutter: &Cutter, bytes: &[u8]) -> Vec<u64> {
        let divisor = cutter.sizes.divisor();
        let ends = WINDOW..=bytes.len();
        ends.filter(|&end| {
            let window = bytes[end - WINDOW..end].iter().enumerate();
            let hash = window.fold(0, |hash, (n, &byte)| {
                hash ^ TABLE[usize::from(byte)].rotate_left((WINDOW - 1 - n) as u32)
            });
            u64::from(hash) % divisor == divisor - 1
        })
        .map(|end| end as u64)
        .collect()
    }

    #[test]
    fn divisibility_is_that_of_division() {
        for divisor in [1, 2, 3, 6, 1024, 4096, 12_288, 49_535, 65_536, 16 << 20] {
            let quick = Divisor::new(divisor);
            let near = (0..40).flat_map(|n| {
                let multiple = n * 104_729 * divisor;
                [multiple.saturating_sub(1), multiple, multiple + 1]
            });
            for number in near.chain(0..3000).chain([1 << 32, (1 << 32) - 1]) {
                assert_eq!(
                    quick.divides(number),
                    number % divisor == 0,
                    "{number} by {divisor}"
                );
            }
        }
    }

    #[test]
    fn marks_are_found_whole_and_in_parts() {
        let sizes = ChunkSizes::new(1024, 2048, 8192).unwrap();
        let cutter = Cutter::new(sizes);
        let bytes = bytes(300_000);
        let marks = cutter.marks(&bytes, 0);
        assert_eq!(marks, defined(&cutter, &bytes));
        assert!(marks.len() > 100, "{} marks", marks.len());
        for part in [20, 47, 48, 49, 95, 4096, 100_000] {
            let mut found = Vec::new();
            for (n, piece) in bytes.chunks(part).enumerate() {
                found.extend(cutter.marks(piece, (n * part) as u64));
            }
            if part >= WINDOW {
                // A window lies over one seam at the most.
                for seam in (part..bytes.len()).step_by(part) {
                    found.extend(cutter.marks_over(&bytes, seam, 0));
                }
                found.sort_unstable();
                assert_eq!(found, marks, "parts of {part} bytes");
            } else {
                assert!(found.is_empty());
            }
        }
        assert!(cutter.marks(&bytes[..WINDOW - 1], 0).is_empty());
    }

    #[test]
    fn chunks_end_at_marks_and_between_the_limits() {
        let cutter = Cutter::new(ChunkSizes::new(1024, 4096, 8192).unwrap());
        let ends = |known, is_all, marks: &[u64]| cutter.ends(0, known, is_all, marks);
        // Too early; just at the smallest size; too late.
        assert!(ends(2000, false, &[1023]).is_empty());
        assert_eq!(ends(2000, false, &[1023, 1024]), [1024]);
        assert_eq!(ends(20_000, false, &[8192]), [8192, 16_384]);
        assert_eq!(ends(20_000, false, &[8193]), [8192, 16_384]);
        assert_eq!(ends(20_000, true, &[9215]), [8192, 16_384, 20_000]);
        assert_eq!(ends(20_000, true, &[9216]), [8192, 9216, 17_408, 20_000]);
        // A mark of one chunk is none of the next.
        assert_eq!(ends(9000, true, &[1500, 2000, 3000]), [1500, 3000, 9000]);
        assert!(ends(0, true, &[]).is_empty());
        assert_eq!(ends(7, true, &[]), [7]);
        let fixed = Cutter::new(ChunkSizes::new(4096, 4096, 4096).unwrap());
        assert!(fixed.marks(&bytes(100_000), 0).is_empty());
        assert_eq!(fixed.ends(0, 9000, true, &[]), [4096, 8192, 9000]);
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        let kib = |n: u64| n << 10;
        for (min, average, max) in [
            (kib(2), kib(1), kib(4)),
            (kib(1), kib(8), kib(4)),
            (1023, kib(4), kib(8)),
            (kib(4), kib(4096) + 1, kib(8192)),
            (kib(4), kib(64), kib(16_384) + 1),
        ] {
            assert!(ChunkSizes::new(min, average, max).is_err());
        }
        assert!(ChunkSizes::around(4095).is_err());
        assert!(ChunkSizes::around(u64::MAX).is_err());
        assert_eq!(ChunkSizes::around(kib(64)).unwrap(), ChunkSizes::default());
        assert!(ChunkSizes::around(kib(4096)).is_ok());
        assert_eq!(ChunkSizes::default().divisor(), 49_535);
        assert!(Cutter::new(ChunkSizes::default()).leaves_zeroes());
    }
}
