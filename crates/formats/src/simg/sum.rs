//! The checksum of a disk, whose long fills take no longer than short ones.

use super::CRC;

/// Numbers of words that a disk may have are below 2 to this power: 2^32 blocks of 2^26 bytes.
const POWERS: usize = 57;

/// A linear map of checksums: what becomes of each bit.
type Map = [u32; 32];

/// The checksum of what was taken so far.
pub(super) struct Sum {
    state: u32,
    /// For each power of two, what so many words of zeros do to a checksum.
    zeros: Vec<Map>,
}

impl Sum {
    pub(super) fn new() -> Self {
        let mut map: Map = std::array::from_fn(|bit| after(1 << bit, &[0; 4]));
        let mut zeros = Vec::with_capacity(POWERS);
        for _ in 0..POWERS {
            zeros.push(map);
            map = map.map(|column| apply(&map, column));
        }
        Self {
            state: u32::MAX,
            zeros,
        }
    }

    /// Takes bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.state = after(self.state, bytes);
    }

    /// Takes a word so many times, fewer than 2^57.
    pub(super) fn repeat(&mut self, word: [u8; 4], count: u64) {
        // What the words of each power of two add, and what they do to all before.
        let mut added = after(0, &word);
        for (power, map) in self.zeros.iter().enumerate() {
            if count >> power == 0 {
                break;
            }
            if count >> power & 1 != 0 {
                self.state = apply(map, self.state) ^ added;
            }
            added ^= apply(map, added);
        }
    }

    pub(super) fn finish(&self) -> u32 {
        !self.state
    }
}

/// The inner state of a checksum after more bytes.
fn after(state: u32, bytes: &[u8]) -> u32 {
    let mut digest = CRC.digest_with_initial(state.reverse_bits());
    digest.update(bytes);
    !digest.finalize()
}

fn apply(map: &Map, state: u32) -> u32 {
    let columns = map.iter().enumerate();
    columns.fold(0, |sum, (bit, column)| {
        sum ^ if state >> bit & 1 != 0 { *column } else { 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_give_what_their_bytes_give() {
        let mut sum = Sum::new();
        let mut all = Vec::new();
        for (n, count) in [0_u64, 1, 2, 3, 255, 256, 100_003].into_iter().enumerate() {
            let word = [n as u8, 0xa5, 7, 0x80];
            sum.update(b"between");
            all.extend_from_slice(b"between");
            sum.repeat(word, count);
            all.extend(word.repeat(count as usize));
            assert_eq!(sum.finish(), CRC.checksum(&all), "{count} words");
        }
    }
}
