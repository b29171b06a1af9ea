//! The hashes a hashed directory is sorted by.
//!
//! Three functions (legacy, half MD4, TEA), each in two forms because the first implementation
//! took name bytes as C `char`, whose sign depends on the machine: the superblock's flags say which
//! form a file system uses. SipHash (encrypted and casefolded directories) needs the directory's
//! key; it is recognised here and never computed.
//!
//! Source: the kernel's `directory` page ("Hash Tree Directories") and the MD4 (RFC 1320) and TEA
//! (Wheeler and Needham, 1994) papers.

use crate::dir::casefold;
use crate::error::{Expected, FormatError, FormatResult, Structure};

/// A hash function and the signedness of the name's bytes; the numbers are those of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HashVersion {
    /// The original hash, bytes signed.
    Legacy = 0,
    /// Half MD4, bytes signed.
    HalfMd4 = 1,
    /// TEA, bytes signed.
    Tea = 2,
    /// The original hash, bytes unsigned.
    LegacyUnsigned = 3,
    /// Half MD4, bytes unsigned.
    HalfMd4Unsigned = 4,
    /// TEA, bytes unsigned.
    TeaUnsigned = 5,
    /// SipHash-2-4 with the directory's key.
    SipHash = 6,
}

impl HashVersion {
    /// Returns the version a number stands for.
    ///
    /// # Errors
    /// For an unknown number.
    pub const fn from_raw(raw: u8) -> FormatResult<Self> {
        Ok(match raw {
            0 => Self::Legacy,
            1 => Self::HalfMd4,
            2 => Self::Tea,
            3 => Self::LegacyUnsigned,
            4 => Self::HalfMd4Unsigned,
            5 => Self::TeaUnsigned,
            6 => Self::SipHash,
            _ => {
                return Err(FormatError::new(
                    Structure::DirIndex,
                    "hash_version",
                    raw as u64,
                    Expected::AtMost(6),
                ));
            }
        })
    }

    /// Returns the number of this version. Index roots and the superblock store the signed forms'
    /// numbers only; see [`HashVersion::stored`].
    #[must_use]
    pub const fn raw(self) -> u8 {
        self as u8
    }

    /// Returns the version to compute with: a stored version, made unsigned where the superblock's
    /// flags say that names hash as unsigned bytes.
    #[must_use]
    pub const fn with_signedness(self, unsigned: bool) -> Self {
        match (self, unsigned) {
            (Self::Legacy, true) => Self::LegacyUnsigned,
            (Self::HalfMd4, true) => Self::HalfMd4Unsigned,
            (Self::Tea, true) => Self::TeaUnsigned,
            (other, _) => other,
        }
    }

    /// Returns the form stored in an index root: the signed one.
    #[must_use]
    pub const fn stored(self) -> Self {
        match self {
            Self::LegacyUnsigned => Self::Legacy,
            Self::HalfMd4Unsigned => Self::HalfMd4,
            Self::TeaUnsigned => Self::Tea,
            other => other,
        }
    }

    const fn is_unsigned(self) -> bool {
        matches!(
            self,
            Self::LegacyUnsigned | Self::HalfMd4Unsigned | Self::TeaUnsigned
        )
    }
}

/// The hash of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// What the index sorts by. Always even (the index uses the low bit to mark a hash continued in
    /// the next block) and never the end-of-directory value.
    pub major: u32,
    /// Orders names of equal `major` in a listing; not stored in the index.
    pub minor: u32,
}

/// The largest 31-bit position, which a directory stream keeps for "end"; no name may hash to it.
const END_OF_DIRECTORY: u32 = 0x7fff_ffff;

/// The state of half MD4 and TEA where the file system has no seed of its own.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Hashes names of one directory.
#[derive(Clone, Copy, Debug)]
pub struct NameHasher {
    version: HashVersion,
    seed: [u32; 4],
    casefold: bool,
}

impl NameHasher {
    /// Makes a hasher of the given version with the superblock's hash seed; a seed of zeros means
    /// the default one.
    ///
    /// # Errors
    /// For [`HashVersion::SipHash`], which needs a key.
    pub fn new(version: HashVersion, seed: [u32; 4]) -> FormatResult<Self> {
        if version == HashVersion::SipHash {
            return Err(FormatError::new(
                Structure::DirIndex,
                "hash_version",
                u64::from(version.raw()),
                Expected::Said("a hash that needs no encryption key"),
            ));
        }
        let seed = if seed == [0; 4] { DEFAULT_SEED } else { seed };
        Ok(Self {
            version,
            seed,
            casefold: false,
        })
    }

    /// Makes the hasher one of a casefolded directory: names are folded first. A name that is not
    /// valid Unicode hashes as its bytes, as the kernel does outside strict mode.
    ///
    /// Without the crate's `casefold` feature only ASCII names can be folded; see
    /// [`casefold::fold_name`].
    #[must_use]
    pub const fn casefolded(mut self, casefold: bool) -> Self {
        self.casefold = casefold;
        self
    }

    /// Returns the version this hasher computes.
    #[must_use]
    pub const fn version(&self) -> HashVersion {
        self.version
    }

    /// Returns the hash of `name`.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        if self.casefold
            && let Some(folded) = casefold::fold_name(name)
        {
            return self.hash_bytes(&folded);
        }
        self.hash_bytes(name)
    }

    fn hash_bytes(&self, name: &[u8]) -> NameHash {
        let unsigned = self.version.is_unsigned();
        let (major, minor) = match self.version {
            HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, unsigned), 0),
            HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
                let mut state = self.seed;
                for_each_chunk(name, 32, |rest| {
                    half_md4(&mut state, &pack::<8>(rest, unsigned));
                });
                (state[1], state[2])
            }
            HashVersion::Tea | HashVersion::TeaUnsigned => {
                let mut state = self.seed;
                for_each_chunk(name, 16, |rest| tea(&mut state, &pack::<4>(rest, unsigned)));
                (state[0], state[1])
            }
            // Refused by `new`.
            HashVersion::SipHash => (0, 0),
        };
        let even = major & !1;
        let major = if even == END_OF_DIRECTORY << 1 {
            (END_OF_DIRECTORY - 1) << 1
        } else {
            even
        };
        NameHash { major, minor }
    }
}

/// Calls `f` with what is left of `name` at each step of `chunk` bytes: the padding of a chunk
/// depends on the whole remaining length.
fn for_each_chunk(name: &[u8], chunk: usize, mut f: impl FnMut(&[u8])) {
    let mut rest = name;
    while !rest.is_empty() {
        f(rest);
        rest = rest.get(chunk..).unwrap_or_default();
    }
}

/// A byte as the C `char` it was hashed as, widened to 32 bits.
#[inline]
fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned {
        u32::from(byte)
    } else {
        byte as i8 as i32 as u32
    }
}

/// Packs up to `4 * N` bytes into words, big end first, padded with the low byte of the remaining
/// length repeated.
fn pack<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let len = rest.len() as u32;
    let half = len | (len << 8);
    let pad = half | (half << 16);
    let mut words = [pad; N];
    let (whole, end) = rest.as_chunks::<4>();
    for (word, bytes) in words.iter_mut().zip(whole) {
        *word = if unsigned || bytes.is_ascii() {
            // No byte has a sign to carry into the ones before it.
            u32::from_be_bytes(*bytes)
        } else {
            append(pad, bytes, unsigned)
        };
    }
    if let Some(word) = words.get_mut(whole.len()) {
        *word = append(pad, end, unsigned);
    }
    words
}

/// A word with these bytes pushed in at its low end.
fn append(word: u32, bytes: &[u8], unsigned: bool) -> u32 {
    bytes.iter().fold(word, |word, &byte| {
        widen(byte, unsigned).wrapping_add(word << 8)
    })
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let mut newer: u32 = 0x12a3_fe2d;
    let mut older: u32 = 0x37ab_e8f9;
    for &byte in name {
        let mixed = newer ^ widen(byte, unsigned).wrapping_mul(7_152_373);
        let mut next = older.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        older = newer;
        newer = next;
    }
    newer << 1
}

/// The compression of MD4 cut down to eight input words and eight steps per round.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    /// Four steps, after which the four words have their roles again.
    #[inline(always)]
    fn steps(
        [mut a, mut b, mut c, mut d]: [u32; 4],
        f: impl Fn(u32, u32, u32) -> u32,
        words: [u32; 4],
        shifts: [u32; 4],
    ) -> [u32; 4] {
        let step = |sum: u32, f: u32, word: u32, shift: u32| {
            sum.wrapping_add(f).wrapping_add(word).rotate_left(shift)
        };
        a = step(a, f(b, c, d), words[0], shifts[0]);
        d = step(d, f(a, b, c), words[1], shifts[1]);
        c = step(c, f(d, a, b), words[2], shifts[2]);
        b = step(b, f(c, d, a), words[3], shifts[3]);
        [a, b, c, d]
    }
    let [i0, i1, i2, i3, i4, i5, i6, i7] = *input;
    let mut x = *state;
    let choose = |b: u32, c: u32, d: u32| d ^ (b & (c ^ d));
    x = steps(x, choose, [i0, i1, i2, i3], [3, 7, 11, 19]);
    x = steps(x, choose, [i4, i5, i6, i7], [3, 7, 11, 19]);
    let majority =
        |b: u32, c: u32, d: u32| (b & c).wrapping_add((b ^ c) & d).wrapping_add(0x5a82_7999);
    x = steps(x, majority, [i1, i3, i5, i7], [3, 5, 9, 13]);
    x = steps(x, majority, [i0, i2, i4, i6], [3, 5, 9, 13]);
    let parity = |b: u32, c: u32, d: u32| (b ^ c ^ d).wrapping_add(0x6ed9_eba1);
    x = steps(x, parity, [i3, i7, i2, i6], [3, 9, 11, 15]);
    x = steps(x, parity, [i1, i5, i0, i4], [3, 9, 11, 15]);
    for (word, add) in state.iter_mut().zip(x) {
        *word = word.wrapping_add(add);
    }
}

/// Sixteen rounds of TEA, the input as key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let [mut x, mut y, ..] = *state;
    let mut sum: u32 = 0;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(
            (y << 4).wrapping_add(key[0]) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(key[1]),
        );
        y = y.wrapping_add(
            (x << 4).wrapping_add(key[2]) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(key[3]),
        );
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(version: HashVersion, name: &[u8]) -> (u32, u32) {
        let hash = NameHasher::new(version, [0; 4]).unwrap().hash(name);
        (hash.major, hash.minor)
    }

    // The values are what debugfs 1.47 prints for these names.
    #[test]
    fn published_names_hash_to_known_values() {
        let name = "abé".as_bytes();
        assert_eq!(hash(HashVersion::Legacy, name), (0x26fb_9f78, 0));
        assert_eq!(hash(HashVersion::HalfMd4, name), (0xe4d5_a6b0, 0x413e_6314));
        assert_eq!(hash(HashVersion::Tea, name), (0xc964_a8d8, 0xa065_59aa));
        assert_eq!(hash(HashVersion::LegacyUnsigned, name), (0xcd8f_937a, 0));
        assert_eq!(
            hash(HashVersion::HalfMd4Unsigned, name),
            (0x09f3_b938, 0x5619_0e88)
        );
        assert_eq!(
            hash(HashVersion::TeaUnsigned, name),
            (0x1346_ebc0, 0x0dfc_e3ad)
        );
    }

    #[test]
    fn siphash_is_recognised_and_refused() {
        assert_eq!(HashVersion::from_raw(6), Ok(HashVersion::SipHash));
        assert!(NameHasher::new(HashVersion::SipHash, [0; 4]).is_err());
        assert!(HashVersion::from_raw(7).is_err());
    }

    #[test]
    fn signedness_is_undone_by_the_stored_form() {
        for raw in 0..=6 {
            let version = HashVersion::from_raw(raw).unwrap();
            assert_eq!(version.stored().with_signedness(false), version.stored());
            assert_eq!(version.with_signedness(true).stored(), version.stored());
        }
    }
}
