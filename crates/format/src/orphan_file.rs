//! Blocks of the orphan file.
//!
//! The file is preallocated and holds nothing but slots: an inode number that is an orphan
//! (unlinked but open, or being truncated), or zero. Each block ends with a magic and a checksum.
//! Source: the kernel's `Documentation/filesystems/ext4/orphan.rst`.

use crate::checksum::Crc32c;
use crate::{BlockSize, Expected, FormatError, FormatResult, Ino, Pblk, Structure};

/// The magic in front of the checksum of each block.
pub const MAGIC: u32 = 0x0B10_CA04;

const TAIL_LEN: usize = 8;

/// Slots in a block of `size`.
#[must_use]
pub const fn slots_per_block(size: BlockSize) -> usize {
    (size.len() - TAIL_LEN) / 4
}

/// Returns the checksum seed of one block: of the file system, the orphan file's inode number and
/// generation, and the block's own address.
#[must_use]
pub fn block_seed(fs_seed: Crc32c, ino: Ino, generation: u32, block: Pblk) -> Crc32c {
    fs_seed
        .update_u32(ino.get())
        .update_u32(generation)
        .update(&block.get().to_le_bytes())
}

/// A validated block of the orphan file.
#[derive(Clone, Copy, Debug)]
pub struct OrphanBlock<'a> {
    slots: &'a [u8],
}

impl<'a> OrphanBlock<'a> {
    /// Checks the magic and, if there is a `seed` from [`block_seed`], the checksum.
    ///
    /// # Errors
    /// A block of another size, a wrong magic or checksum.
    pub fn parse(block: &'a [u8], size: BlockSize, seed: Option<Crc32c>) -> FormatResult<Self> {
        if block.len() != size.len() {
            return Err(FormatError::short(
                Structure::OrphanFile,
                block.len(),
                size.len(),
            ));
        }
        let (slots, tail) = block.split_at(size.len() - TAIL_LEN);
        let magic = le32(tail, 0);
        if magic != MAGIC {
            return Err(FormatError::new(
                Structure::OrphanFile,
                "magic",
                u64::from(magic),
                Expected::Exactly(u64::from(MAGIC)),
            )
            .at(slots.len()));
        }
        if let Some(seed) = seed {
            let stored = le32(tail, 4);
            let computed = seed.update(slots).value();
            if stored != computed {
                return Err(
                    FormatError::checksum(Structure::OrphanFile, stored, computed)
                        .at(slots.len() + 4),
                );
            }
        }
        Ok(Self { slots })
    }

    /// Returns the orphans in the block with their slot numbers. Inode numbers are as stored;
    /// whether they exist is for the caller to check.
    pub fn orphans(&self) -> impl Iterator<Item = (usize, Ino)> + 'a {
        self.slots
            .chunks_exact(4)
            .map(|slot| le32(slot, 0))
            .enumerate()
            .filter(|(_, raw)| *raw != 0)
            .map(|(at, raw)| (at, Ino::new(raw)))
    }
}

/// Writes a whole block: `slots` in order (zero where free or missing), magic, checksum. Slots
/// that do not fit, and a `block` too short for the tail, are left out.
pub fn encode(slots: &[u32], block: &mut [u8], seed: Option<Crc32c>) {
    let Some(room) = block.len().checked_sub(TAIL_LEN) else {
        return;
    };
    let (body, tail) = block.split_at_mut(room);
    body.fill(0);
    tail.fill(0);
    for (to, slot) in body.chunks_exact_mut(4).zip(slots) {
        to.copy_from_slice(&slot.to_le_bytes());
    }
    let sum = seed.map_or(0, |seed| seed.update(body).value());
    for (to, word) in tail.chunks_exact_mut(4).zip([MAGIC, sum]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_read_back_as_written(
            slots in proptest::collection::vec(prop_oneof![Just(0), any::<u32>()], 0..=254),
            seed in any::<Option<u32>>(),
        ) {
            let seed = seed.map(Crc32c::seeded);
            let mut block = vec![0xaa; 1024];
            encode(&slots, &mut block, seed);
            let read = OrphanBlock::parse(&block, BlockSize::MIN, seed).unwrap();
            let want: Vec<_> = slots
                .iter()
                .enumerate()
                .filter(|(_, raw)| **raw != 0)
                .map(|(at, raw)| (at, Ino::new(*raw)))
                .collect();
            prop_assert_eq!(read.orphans().collect::<Vec<_>>(), want);
        }
    }

    #[test]
    fn a_block_moved_elsewhere_fails_its_checksum() {
        let fs = Crc32c::seeded(99);
        let mut block = vec![0; 4096];
        let here = block_seed(fs, Ino::new(12), 3, Pblk::new(500));
        let there = block_seed(fs, Ino::new(12), 3, Pblk::new(501));
        encode(&[13, 0, 14], &mut block, Some(here));
        assert!(OrphanBlock::parse(&block, BlockSize::K4, Some(here)).is_ok());
        assert!(OrphanBlock::parse(&block, BlockSize::K4, Some(there)).is_err());
        assert_eq!(slots_per_block(BlockSize::K4), 1022);
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = OrphanBlock::parse(bytes, BlockSize::MIN, None);
            let mut block = vec![0; 1024];
            for (to, from) in block.iter_mut().zip(bytes) {
                *to = *from;
            }
            block[1016..1020].copy_from_slice(&MAGIC.to_le_bytes());
            let read = OrphanBlock::parse(&block, BlockSize::MIN, None).unwrap();
            assert!(read.orphans().count() <= slots_per_block(BlockSize::MIN));
        });
    }
}
