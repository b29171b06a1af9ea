//! Indirect block maps of ext2 and ext3.
//!
//! The map inside the inode is fifteen 32-bit pointers: twelve direct blocks, then a block of
//! pointers, a block of such blocks, and a third level. A pointer of 0 is a hole, at any level.
//!
//! Source: the kernel's `ext4/ifork` page, "Direct/Indirect Block Addressing".

use crate::inode::MAP_BYTES;
use crate::{BlockSize, Expected, FormatError, FormatResult, Lblk, Pblk, Structure};
use core::ops::Range;

/// Direct pointers in the inode.
pub const DIRECT: u32 = 12;
/// Pointers in the inode: the direct ones and one per level.
pub const ROOT_POINTERS: usize = MAP_BYTES / POINTER_BYTES;
/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 4;
/// Levels of pointer blocks at most.
pub const MAX_LEVELS: usize = 3;

/// Pointers in a block.
#[must_use]
pub const fn pointers_per_block(block_size: BlockSize) -> u32 {
    block_size.bytes() / POINTER_BYTES as u32
}

/// One past the last logical block an indirect map reaches (at most 2^32).
#[must_use]
pub const fn blocks_reached(block_size: BlockSize) -> u64 {
    let n = pointers_per_block(block_size) as u64;
    let all = DIRECT as u64 + n + n * n + n * n * n;
    if all < 1 << 32 { all } else { 1 << 32 }
}

/// The way from the inode to a logical block: the pointer in the inode, then one in each level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndirectPath {
    offsets: [u32; MAX_LEVELS + 1],
    levels: u8,
}

impl IndirectPath {
    /// Returns the way to `lblk`, or `None` past the reach of the map.
    #[must_use]
    pub const fn to(lblk: Lblk, block_size: BlockSize) -> Option<Self> {
        let log2 = block_size.log2() - 2;
        let n = 1u64 << log2;
        let mask = n - 1;
        let mut left = lblk.get() as u64;
        if left < DIRECT as u64 {
            return Some(Self {
                offsets: [left as u32, 0, 0, 0],
                levels: 0,
            });
        }
        left -= DIRECT as u64;
        if left < n {
            return Some(Self {
                offsets: [DIRECT, left as u32, 0, 0],
                levels: 1,
            });
        }
        left -= n;
        if left < n * n {
            return Some(Self {
                offsets: [DIRECT + 1, (left >> log2) as u32, (left & mask) as u32, 0],
                levels: 2,
            });
        }
        left -= n * n;
        if left >= n * n * n {
            return None;
        }
        Some(Self {
            offsets: [
                DIRECT + 2,
                (left >> (2 * log2)) as u32,
                ((left >> log2) & mask) as u32,
                (left & mask) as u32,
            ],
            levels: 3,
        })
    }

    /// Returns the position of the pointer in the inode.
    #[must_use]
    pub const fn root(&self) -> usize {
        self.offsets[0] as usize
    }

    /// Positions of the pointers in each pointer block on the way, outermost first; empty for a
    /// direct block.
    #[must_use]
    pub fn steps(&self) -> &[u32] {
        self.offsets
            .get(1..=usize::from(self.levels))
            .unwrap_or(&[])
    }

    /// Returns the number of pointer blocks on the way: 0 to 3.
    #[must_use]
    pub const fn levels(&self) -> usize {
        self.levels as usize
    }

    /// Returns the logical blocks that a hole at `step` covers from this path's block on, the block
    /// itself included: to the end of what the missing pointer would map. Step 0 is the pointer in
    /// the inode.
    #[must_use]
    pub fn hole_len(&self, step: usize, block_size: BlockSize) -> u64 {
        let log2 = block_size.log2() - 2;
        let below = self.levels().saturating_sub(step) as u32;
        let span = 1u64 << (log2 * below);
        let into = self
            .steps()
            .iter()
            .skip(step)
            .fold(0u64, |sum, &offset| (sum << log2) | u64::from(offset));
        span.saturating_sub(into).max(1)
    }
}

/// Returns the pointers in an inode's map.
#[must_use]
pub fn root_pointers(map: &[u8; MAP_BYTES]) -> [u32; ROOT_POINTERS] {
    let mut pointers = [0; ROOT_POINTERS];
    let (chunks, _) = map.as_chunks::<POINTER_BYTES>();
    for (to, from) in pointers.iter_mut().zip(chunks) {
        *to = u32::from_le_bytes(*from);
    }
    pointers
}

/// Returns an inode's map made of pointers.
#[must_use]
pub fn encode_root(pointers: &[u32; ROOT_POINTERS]) -> [u8; MAP_BYTES] {
    let mut map = [0; MAP_BYTES];
    encode_pointers(&mut map, pointers);
    map
}

/// Writes pointers to the start of a pointer block; the rest of it stays.
pub fn encode_pointers(block: &mut [u8], pointers: &[u32]) {
    let (chunks, _) = block.as_chunks_mut::<POINTER_BYTES>();
    for (to, from) in chunks.iter_mut().zip(pointers) {
        *to = from.to_le_bytes();
    }
}

/// Returns the pointer at `i` of a pointer block (or of the map in the inode), 0 past its end.
#[must_use]
pub fn pointer(block: &[u8], i: usize) -> u32 {
    let (chunks, _) = block.as_chunks::<POINTER_BYTES>();
    chunks.get(i).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// Returns all pointers of a pointer block (or of the map in the inode).
pub fn pointers(block: &[u8]) -> impl ExactSizeIterator<Item = u32> + '_ {
    let (chunks, _) = block.as_chunks::<POINTER_BYTES>();
    chunks.iter().map(|chunk| u32::from_le_bytes(*chunk))
}

/// Takes a pointer for a block: `None` for a hole.
///
/// # Errors
/// When the block lies outside `physical`, the blocks of the file system.
pub fn check_pointer(pointer: u32, at: usize, physical: &Range<u64>) -> FormatResult<Option<Pblk>> {
    let block = u64::from(pointer);
    if block == 0 {
        Ok(None)
    } else if physical.contains(&block) {
        Ok(Some(Pblk::new(block)))
    } else {
        Err(FormatError::new(
            Structure::IndirectBlock,
            "pointer",
            block,
            Expected::Between(physical.start, physical.end.saturating_sub(1)),
        )
        .at(at.saturating_mul(POINTER_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn the_borders_between_levels_lie_where_the_format_puts_them() {
        let path = |lblk| IndirectPath::to(Lblk::new(lblk), BlockSize::MIN).unwrap();
        let parts = |lblk| (path(lblk).root(), path(lblk).steps().to_vec());
        assert_eq!(parts(11), (11, Vec::new()));
        assert_eq!(parts(12), (12, Vec::from([0])));
        assert_eq!(parts(267), (12, Vec::from([255])));
        assert_eq!(parts(268), (13, Vec::from([0, 0])));
        assert_eq!(parts(65_803), (13, Vec::from([255, 255])));
        assert_eq!(parts(65_804), (14, Vec::from([0, 0, 0])));
        let end = blocks_reached(BlockSize::MIN) as u32;
        assert_eq!(parts(end - 1), (14, Vec::from([255, 255, 255])));
        assert_eq!(IndirectPath::to(Lblk::new(end), BlockSize::MIN), None);
        assert!(IndirectPath::to(Lblk::new(u32::MAX), BlockSize::MAX).is_some());
    }

    #[test]
    fn holes_reach_to_the_end_of_what_the_missing_pointer_maps() {
        let path = IndirectPath::to(Lblk::new(268 + 256 + 3), BlockSize::MIN).unwrap();
        assert_eq!(path.steps(), [1, 3]);
        assert_eq!(path.hole_len(0, BlockSize::MIN), 65_536 - 259);
        assert_eq!(path.hole_len(1, BlockSize::MIN), 253);
        assert_eq!(path.hole_len(2, BlockSize::MIN), 1);
    }

    proptest! {
        #[test]
        fn a_path_adds_up_to_its_block(lblk in any::<u32>(), log2 in 10u32..=16) {
            let block_size = BlockSize::from_log2(log2).unwrap();
            let n = u64::from(pointers_per_block(block_size));
            match IndirectPath::to(Lblk::new(lblk), block_size) {
                None => prop_assert!(u64::from(lblk) >= blocks_reached(block_size)),
                Some(path) => {
                    let base = match path.levels() {
                        0 => path.root() as u64,
                        1 => u64::from(DIRECT),
                        2 => u64::from(DIRECT) + n,
                        _ => u64::from(DIRECT) + n + n * n,
                    };
                    let into = path.steps().iter().fold(0, |sum, &offset| sum * n + u64::from(offset));
                    prop_assert_eq!(base + into, u64::from(lblk));
                }
            }
        }

        #[test]
        fn pointers_survive_encoding(raw in proptest::array::uniform15(any::<u32>())) {
            let map = encode_root(&raw);
            prop_assert_eq!(root_pointers(&map), raw);
            prop_assert_eq!(pointers(&map).collect::<Vec<_>>(), raw.to_vec());
            prop_assert_eq!(pointer(&map, 14), raw[14]);
        }
    }

    #[test]
    fn pointers_outside_the_file_system_are_refused() {
        assert_eq!(check_pointer(0, 0, &(1..100)), Ok(None));
        assert_eq!(check_pointer(99, 0, &(1..100)), Ok(Some(Pblk::new(99))));
        let error = check_pointer(100, 3, &(1..100)).unwrap_err();
        assert_eq!(error.at, Some(12));
    }

    #[test]
    fn any_bytes_are_a_map_or_an_error() {
        bolero::check!()
            .with_type::<(Vec<u8>, u32, u64, u64)>()
            .for_each(|(block, lblk, from, to)| {
                let physical = *from.min(to)..*from.max(to);
                for (at, pointer) in pointers(block).enumerate() {
                    let _ = check_pointer(pointer, at, &physical);
                }
                let _ = pointer(block, *lblk as usize);
                for size in [BlockSize::MIN, BlockSize::K4, BlockSize::MAX] {
                    if let Some(path) = IndirectPath::to(Lblk::new(*lblk), size) {
                        assert_eq!(path.steps().len(), path.levels());
                        for step in 0..=path.levels() {
                            let _ = path.hole_len(step, size);
                        }
                    }
                }
            });
    }
}
