//! File content made from seeds.

use std::ops::Range;

use crate::tree::{ContentHasher, Digest};

/// The content of a file: its size and where there is data; the rest is holes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Bytes from the first to the end of file.
    pub size: u64,
    /// The data, ascending and disjoint.
    pub pieces: Vec<Piece>,
}

/// A run of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies, in bytes.
    pub range: Range<u64>,
    /// What its bytes are made from; 0 makes zeros that are written, not a hole.
    pub seed: u64,
}

impl Content {
    /// Nothing.
    pub fn empty() -> Content {
        Content::default()
    }

    /// `size` bytes of data made from `seed` (0: zeros).
    pub fn filled(seed: u64, size: u64) -> Content {
        let whole = Piece {
            range: 0..size,
            seed,
        };
        Content {
            size,
            pieces: if size == 0 { Vec::new() } else { vec![whole] },
        }
    }

    /// `size` bytes with data made from `seed` in the given places (start and length in bytes,
    /// ascending and disjoint) and holes between.
    ///
    /// # Panics
    ///
    /// When the places overlap, are out of order or pass the end.
    pub fn sparse(seed: u64, size: u64, places: impl IntoIterator<Item = (u64, u64)>) -> Content {
        let mut end = 0;
        let pieces = places.into_iter().map(|(start, len)| {
            assert!(
                end <= start && start + len <= size,
                "{start}+{len} after {end} in {size}"
            );
            end = start + len;
            Piece {
                range: start..end,
                seed,
            }
        });
        Content {
            pieces: pieces.collect(),
            size,
        }
    }

    /// Returns where there is data, in bytes: pieces that touch are joined.
    pub fn data_map(&self) -> Vec<Range<u64>> {
        let mut map: Vec<Range<u64>> = Vec::new();
        for piece in self.pieces.iter().filter(|p| !p.range.is_empty()) {
            match map.last_mut() {
                Some(last) if last.end == piece.range.start => last.end = piece.range.end,
                _ => map.push(piece.range.clone()),
            }
        }
        map
    }

    /// Calls `take` with every byte of every piece, in order, as (offset, bytes).
    ///
    /// # Errors
    ///
    /// What `take` returned.
    pub fn for_each_chunk<E>(
        &self,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; 64 << 10];
        for piece in &self.pieces {
            let mut at = piece.range.start;
            while at < piece.range.end {
                let n = buffer.len().min((piece.range.end - at) as usize);
                fill(piece.seed, at, &mut buffer[..n]);
                take(at, &buffer[..n])?;
                at += n as u64;
            }
        }
        Ok(())
    }

    /// Returns the whole content, holes as zeros; for small files.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        let Ok(()) = self.for_each_chunk::<std::convert::Infallible>(|at, chunk| {
            bytes[at as usize..at as usize + chunk.len()].copy_from_slice(chunk);
            Ok(())
        });
        bytes
    }

    /// Returns the digest a reader of this content gets.
    pub fn digest(&self) -> Digest {
        let mut hasher = ContentHasher::new();
        let mut position = 0;
        let Ok(()) = self.for_each_chunk::<std::convert::Infallible>(|at, chunk| {
            hasher.skip(at - position);
            hasher.write(chunk);
            position = at + chunk.len() as u64;
            Ok(())
        });
        hasher.skip(self.size - position);
        hasher.finish()
    }
}

/// The bytes that `seed` has at `offset`: the same however the range is cut.
fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    if seed == 0 {
        return bytes.fill(0);
    }
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = word(seed, at / 8).to_le_bytes();
        let skip = (at % 8) as usize;
        let n = rest.len().min(8 - skip);
        let (now, later) = rest.split_at_mut(n);
        now.copy_from_slice(&word[skip..skip + n]);
        at += n as u64;
        rest = later;
    }
}

fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // Never a zero byte in front: a file of one byte is not all zeros.
    z ^ (z >> 27) | 1
}
