//! Sums by which contents are told apart.

use extant_format::checksum::Crc32c;
use sha2::{Digest, Sha256};

/// Bytes that a device writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// How contents are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// CRC32C, which older undo files have. A block that ends with a CRC32C of its own has the same
    /// one whatever is in it.
    Crc32c,
    /// The first bytes of SHA-256, which nothing on the disk is a part of.
    Sha256,
}

impl Sums {
    /// Bytes of a sum.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Sha256 => 8,
        }
    }

    /// Puts the sum of a content behind others.
    pub(crate) fn push(self, content: &[u8], sums: &mut Vec<u8>) {
        match self {
            Self::Crc32c => {
                let sum = Crc32c::INIT.update(content).value();
                sums.extend_from_slice(&sum.to_le_bytes());
            }
            Self::Sha256 => sums.extend(Sha256::digest(content).into_iter().take(self.len())),
        }
    }

    /// Returns the sums of the sectors of a block, one behind the other.
    pub(crate) fn of_sectors(self, block: &[u8]) -> Vec<u8> {
        let mut sums = Vec::with_capacity(block.len().div_ceil(SECTOR) * self.len());
        for sector in block.chunks(SECTOR) {
            self.push(sector, &mut sums);
        }
        sums
    }

    /// Returns whether a content has this sum.
    pub(crate) fn is_of(self, content: &[u8], sum: &[u8]) -> bool {
        let mut own = Vec::with_capacity(self.len());
        self.push(content, &mut own);
        own == sum
    }

    /// Returns whether each sector of a block is one of those that it may hold: of whole contents,
    /// or by sums as [`Sums::of_sectors`] has them. Of a write that was torn some sectors arrived.
    pub(crate) fn know_by_sectors(self, now: &[u8], contents: &[&[u8]], sums: &[&[u8]]) -> bool {
        now.chunks(SECTOR).enumerate().all(|(i, sector)| {
            let at = i * SECTOR;
            let is_of = |content: &&[u8]| content.get(at..at + sector.len()) == Some(sector);
            if contents.iter().any(is_of) {
                return true;
            }
            let mut own = Vec::with_capacity(self.len());
            self.push(sector, &mut own);
            let place = i * self.len()..(i + 1) * self.len();
            sums.iter()
                .any(|sums| sums.get(place.clone()) == Some(&own[..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that ends with the CRC32C of what is before, as the superblock does.
    fn sealed(first: u8) -> Vec<u8> {
        let mut block = vec![7; 1020];
        if let Some(byte) = block.get_mut(600) {
            *byte = first;
        }
        let sum = Crc32c::INIT.update(&block).value();
        block.extend_from_slice(&sum.to_le_bytes());
        block
    }

    #[test]
    fn blocks_that_end_with_their_own_crc32c_are_told_apart() {
        let (one, other) = (sealed(1), sealed(2));
        let sums_of = |sums: Sums, block: &[u8]| {
            let mut own = Vec::new();
            sums.push(block, &mut own);
            (own, sums.of_sectors(block))
        };
        // Why older files do not tell them apart, neither whole nor by sectors.
        assert_eq!(sums_of(Sums::Crc32c, &one), sums_of(Sums::Crc32c, &other));
        let (one, other) = (sums_of(Sums::Sha256, &one), sums_of(Sums::Sha256, &other));
        assert_ne!(one.0, other.0);
        assert_eq!(one.1[..8], other.1[..8], "the first sector is the same");
        assert_ne!(one.1[8..], other.1[8..]);
    }
}
