//! The index of an image in chunks: a head, a table of ends and digests, and a tail. All numbers
//! are little-endian (the format is that of casync, `.caibx`).

use super::LARGEST;
use sha2::{Digest, Sha256, Sha512_256};

const HEAD: u64 = 0x9682_4d9c_7b12_9ff9;
const TABLE: u64 = 0xe75b_9e11_2f17_417d;
const TAIL: u64 = 0x4b4f_050e_5549_ecd1;
/// Feature: digests are SHA-512/256, and SHA-256 without it.
const SHA512_256: u64 = 1 << 61;
/// Features that casync notes in each index. They say how archives of directories are made: files
/// with the flag `nodump` are left out, and those that a `.caexclude` names.
const OF_ARCHIVES: u64 = 1 << 63 | 1 << 60;
/// The smallest chunk but the last, in bytes: an index of tiny ones takes much memory for little.
pub(super) const SMALLEST: u64 = 1024;
const HEAD_BYTES: usize = 48;
const ITEM: usize = 40;

/// A digest of a chunk.
pub(super) type Id = [u8; 32];

/// How chunks are digested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Sha256,
    Sha512_256,
}

impl Algorithm {
    pub(super) fn digest(self, bytes: &[u8]) -> Id {
        match self {
            Self::Sha256 => Sha256::digest(bytes).into(),
            Self::Sha512_256 => Sha512_256::digest(bytes).into(),
        }
    }
}

/// The chunks of an image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) algorithm: Algorithm,
    /// Smallest, average and largest size of chunks, as the maker chose them, in bytes.
    pub(super) sizes: [u64; 3],
    /// Where each chunk ends, in bytes, and its digest.
    pub(super) chunks: Vec<(u64, Id)>,
}

impl Index {
    /// Reads an index. The error is a clause.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let short = || "it is cut short".to_owned();
        if number(8).ok_or_else(short)? != HEAD {
            return Err("it is no index of casync (.caibx)".to_owned());
        }
        if number(0) != Some(HEAD_BYTES as u64) {
            return Err("its head has another size".to_owned());
        }
        let flags = number(16).ok_or_else(short)?;
        let mut sizes = [0; 3];
        for (n, size) in sizes.iter_mut().enumerate() {
            *size = number(24 + n * 8).ok_or_else(short)?;
        }
        let largest = sizes[2];
        if largest == 0 || largest > LARGEST {
            return Err(format!(
                "its chunks may have {largest} bytes; up to {LARGEST} are read"
            ));
        }
        if number(HEAD_BYTES) != Some(u64::MAX) || number(HEAD_BYTES + 8) != Some(TABLE) {
            return Err("it has no table of chunks".to_owned());
        }
        let table = HEAD_BYTES + 16;
        let rest = bytes.len().checked_sub(table + ITEM).ok_or_else(short)?;
        if !rest.is_multiple_of(ITEM) {
            return Err(short());
        }
        let tail = table + rest;
        let table_bytes = (bytes.len() - HEAD_BYTES) as u64;
        let expected = [0, 0, HEAD_BYTES as u64, table_bytes, TAIL];
        if (0..5).any(|n| number(tail + n * 8) != Some(expected[n])) {
            return Err("its tail is damaged".to_owned());
        }
        let smallest = sizes[0].max(SMALLEST);
        let number = rest / ITEM;
        let mut chunks = Vec::with_capacity(number);
        let mut start = 0;
        for item in bytes[table..tail].chunks_exact(ITEM) {
            let (end, id) = item.split_at(8);
            let end = u64::from_le_bytes(end.try_into().map_err(|_| short())?);
            if end <= start || end - start > largest {
                return Err(format!(
                    "chunk {} ends at byte {end}, after one that ends at byte {start}",
                    chunks.len()
                ));
            }
            if end - start < smallest && chunks.len() + 1 < number {
                return Err(format!(
                    "chunk {} has {} bytes; all but the last have at least {smallest}",
                    chunks.len(),
                    end - start
                ));
            }
            chunks.push((end, id.try_into().map_err(|_| short())?));
            start = end;
        }
        let algorithm = if flags & SHA512_256 != 0 {
            Algorithm::Sha512_256
        } else {
            Algorithm::Sha256
        };
        Ok(Self {
            algorithm,
            sizes,
            chunks,
        })
    }

    /// Size of the image in bytes.
    pub(super) fn size(&self) -> u64 {
        self.chunks.last().map_or(0, |(end, _)| *end)
    }

    /// The bytes of a chunk.
    pub(super) fn range(&self, number: usize) -> std::ops::Range<u64> {
        let start = number
            .checked_sub(1)
            .map_or(0, |before| self.chunks[before].0);
        start..self.chunks[number].0
    }

    /// The chunk that has a byte of the image.
    pub(super) fn chunk_at(&self, at: u64) -> usize {
        self.chunks.partition_point(|(end, _)| *end <= at)
    }
}

/// The bytes in front of the table, and the head of the table.
pub(super) fn head(algorithm: Algorithm, sizes: [u64; 3]) -> Vec<u8> {
    let flags = match algorithm {
        Algorithm::Sha256 => OF_ARCHIVES,
        Algorithm::Sha512_256 => OF_ARCHIVES | SHA512_256,
    };
    let [min, average, max] = sizes;
    let head = HEAD_BYTES as u64;
    numbers(&[head, HEAD, flags, min, average, max, u64::MAX, TABLE])
}

/// The bytes of a chunk in the table.
pub(super) fn item(end: u64, id: &Id) -> Vec<u8> {
    let mut item = numbers(&[end]);
    item.extend_from_slice(id);
    item
}

/// The bytes behind the last of `chunks` chunks.
pub(super) fn tail(chunks: u64) -> Vec<u8> {
    let table_bytes = 16 + (chunks + 1) * ITEM as u64;
    numbers(&[0, 0, HEAD_BYTES as u64, table_bytes, TAIL])
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Index, head, item, tail};

    fn write(index: &Index) -> Vec<u8> {
        let mut bytes = head(index.algorithm, index.sizes);
        bytes.extend(index.chunks.iter().flat_map(|(end, id)| item(*end, id)));
        bytes.extend(tail(index.chunks.len() as u64));
        bytes
    }

    fn index() -> Index {
        Index {
            algorithm: Algorithm::Sha512_256,
            sizes: [1400, 2000, 5000],
            chunks: vec![(1500, [1; 32]), (6500, [2; 32]), (6501, [3; 32])],
        }
    }

    #[test]
    fn what_is_written_is_read_and_places_are_found() {
        let index = index();
        assert_eq!(Index::read(&write(&index)).unwrap(), index);
        assert_eq!(index.size(), 6501);
        assert_eq!(index.range(1), 1500..6500);
        for (at, chunk) in [(0, 0), (1499, 0), (1500, 1), (6499, 1), (6500, 2)] {
            assert_eq!(index.chunk_at(at), chunk);
        }
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let good = write(&index());
        for len in 0..good.len() {
            assert!(Index::read(&good[..len]).is_err(), "{len} bytes");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                if let Ok(read) = Index::read(&bad) {
                    assert!(read.size() <= 6500 + 5000);
                }
            }
        }
        let mut bad = index();
        bad.chunks[2].0 = 7000;
        bad.chunks[1].0 = 1500;
        assert!(Index::read(&write(&bad)).is_err(), "an empty chunk");
        bad.chunks[1].0 = 6501;
        assert!(Index::read(&write(&bad)).is_err(), "a chunk too large");
        for (min, first) in [(1400, 1399), (1, 1023), (0, 1)] {
            let mut bad = index();
            bad.sizes[0] = min;
            bad.chunks[0].0 = 2000;
            assert!(Index::read(&write(&bad)).is_ok());
            bad.chunks[1].0 = first + 4000;
            bad.chunks[0].0 = first;
            assert!(Index::read(&write(&bad)).is_err(), "{first} bytes");
        }
    }
}
