//! A digest of file content that does not see holes.

/// Content is hashed in pieces of this many bytes; pieces of zeros are left out.
const PIECE: usize = 4096;

/// Digest of a file's content and size. Not cryptographic: it tells honest mistakes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

/// Computes a [`Digest`] from content in order, in pieces of any size.
///
/// Each aligned 4 KiB piece with a byte that is not zero is hashed together with its place, so a
/// hole skipped and zeros written give the same digest.
#[derive(Debug)]
pub struct ContentHasher {
    position: u64,
    state: u64,
    partial: Box<[u8; PIECE]>,
    partial_used: bool,
}

impl Default for ContentHasher {
    fn default() -> ContentHasher {
        ContentHasher::new()
    }
}

impl ContentHasher {
    /// Starts at byte 0.
    pub fn new() -> ContentHasher {
        ContentHasher {
            position: 0,
            state: 0x243f_6a88_85a3_08d3,
            partial: Box::new([0; PIECE]),
            partial_used: false,
        }
    }

    /// Takes the next bytes.
    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let start = (self.position % PIECE as u64) as usize;
            let n = bytes.len().min(PIECE - start);
            let (now, rest) = bytes.split_at(n);
            if n == PIECE {
                self.piece(now.try_into().expect("a whole piece"));
            } else {
                self.partial[start..start + n].copy_from_slice(now);
                self.partial_used = true;
                if start + n == PIECE {
                    self.flush_partial();
                }
            }
            self.position += n as u64;
            bytes = rest;
        }
    }

    /// Takes `count` zero bytes without looking at them.
    pub fn skip(&mut self, count: u64) {
        let end = self.position + count;
        if end / PIECE as u64 != self.position / PIECE as u64 {
            self.flush_partial();
        }
        self.position = end;
    }

    /// Returns the digest of everything given, its length included.
    pub fn finish(mut self) -> Digest {
        self.flush_partial();
        Digest(mix(self.state ^ self.position))
    }

    /// Hashes the piece under construction; `position` is still inside it.
    fn flush_partial(&mut self) {
        if self.partial_used {
            let piece = std::mem::replace(&mut self.partial, Box::new([0; PIECE]));
            self.piece(&piece);
            self.partial_used = false;
        }
    }

    fn piece(&mut self, piece: &[u8; PIECE]) {
        let mut words = piece
            .chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes")));
        let mut hash = mix(self.position / PIECE as u64);
        let mut any = 0;
        for word in &mut words {
            any |= word;
            hash = (hash ^ word)
                .wrapping_mul(0x9fb2_1c65_1e98_df25)
                .rotate_left(23);
        }
        if any != 0 {
            self.state = mix(self.state ^ hash);
        }
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_of(parts: &[&[u8]]) -> Digest {
        let mut hasher = ContentHasher::new();
        parts.iter().for_each(|p| hasher.write(p));
        hasher.finish()
    }

    #[test]
    fn pieces_of_any_size_give_one_digest() {
        let mut data = vec![0u8; 50_000];
        crate::rng::Rng::new(3).fill(&mut data);
        let whole = digest_of(&[&data]);
        for step in [1, 7, 4095, 4096, 4097, 30_000] {
            let parts: Vec<&[u8]> = data.chunks(step).collect();
            assert_eq!(digest_of(&parts), whole, "in steps of {step}");
        }
    }

    #[test]
    fn holes_and_zeros_are_the_same() {
        for (head, hole, tail) in [(0, 9000, 1), (4096, 4096, 10), (5, 20_000, 0), (100, 50, 3)] {
            let mut plain = vec![1u8; head];
            plain.extend(vec![0; hole]);
            plain.extend(vec![2u8; tail]);
            let mut hasher = ContentHasher::new();
            hasher.write(&plain[..head]);
            hasher.skip(hole as u64);
            hasher.write(&plain[head + hole..]);
            assert_eq!(
                hasher.finish(),
                digest_of(&[&plain]),
                "{head} {hole} {tail}"
            );
        }
    }

    #[test]
    fn size_place_and_content_all_matter() {
        assert_ne!(digest_of(&[b"\0"]), digest_of(&[b""]));
        assert_ne!(digest_of(&[b"a\0"]), digest_of(&[b"a"]));
        assert_ne!(digest_of(&[b"ab"]), digest_of(&[b"ba"]));
        let (mut first, mut second) = (vec![0u8; 8192], vec![0u8; 8192]);
        first[0] = 1;
        second[4096] = 1;
        assert_ne!(digest_of(&[&first]), digest_of(&[&second]));
    }
}
