//! How many levels a tree has, and where the blocks of each are.

/// The shape of a tree of hashes.
///
/// Level 0 has the hashes of the data, each level above it those of the one below. The blocks of
/// the highest level, which is one block, come first, and those of level 0 last. A tree over one
/// block of data has no levels: the hash of that block is the root hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    leaves: u64,
    arity_log2: u32,
    /// Blocks of each level.
    levels: Vec<u64>,
}

impl Shape {
    /// Takes the number of data blocks, and how many hashes a block has as a power of two, which is
    /// at least 1.
    #[must_use]
    pub fn new(leaves: u64, arity_log2: u32) -> Self {
        let arity_log2 = arity_log2.max(1);
        let mut levels = Vec::new();
        let mut below = leaves;
        while below > 1 {
            below = below.div_ceil(1 << arity_log2);
            levels.push(below);
        }
        Self {
            leaves,
            arity_log2,
            levels,
        }
    }

    /// Returns the number of data blocks.
    #[must_use]
    pub const fn leaves(&self) -> u64 {
        self.leaves
    }

    /// Returns the number of levels.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Returns how many hashes a block has.
    #[must_use]
    pub const fn arity(&self) -> u64 {
        1 << self.arity_log2
    }

    /// Returns the number of blocks of a level.
    #[must_use]
    pub fn blocks_of(&self, level: usize) -> u64 {
        self.levels.get(level).copied().unwrap_or(0)
    }

    /// Returns the number of blocks of all levels.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.levels.iter().sum()
    }

    /// Returns where a level begins, in blocks from the beginning of the tree.
    #[must_use]
    pub fn start_of(&self, level: usize) -> u64 {
        self.levels.iter().skip(level + 1).sum()
    }

    /// Returns how many hashes a block of a level has in use.
    #[must_use]
    pub fn children_of(&self, level: usize, block: u64) -> u64 {
        let below = match level {
            0 => self.leaves,
            above => self.blocks_of(above - 1),
        };
        below
            .saturating_sub(block << self.arity_log2)
            .min(self.arity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_grow_until_one_block_is_left() {
        let blocks = |leaves| {
            let shape = Shape::new(leaves, 7);
            (0..shape.levels())
                .map(|level| shape.blocks_of(level))
                .collect::<Vec<_>>()
        };
        assert_eq!(blocks(0), [0; 0]);
        assert_eq!(blocks(1), [0; 0]);
        assert_eq!(blocks(2), [1]);
        assert_eq!(blocks(128), [1]);
        assert_eq!(blocks(129), [2, 1]);
        assert_eq!(blocks(128 * 128 + 1), [129, 2, 1]);
    }

    #[test]
    fn the_root_lies_first_and_the_last_block_is_not_full() {
        let shape = Shape::new(128 * 128 + 1, 7);
        assert_eq!(shape.blocks(), 132);
        assert_eq!(
            [shape.start_of(2), shape.start_of(1), shape.start_of(0)],
            [0, 1, 3]
        );
        assert_eq!(shape.children_of(0, 127), 128);
        assert_eq!(shape.children_of(0, 128), 1);
        assert_eq!(shape.children_of(1, 1), 1);
        assert_eq!(shape.children_of(2, 0), 2);
        assert_eq!(shape.children_of(0, 129), 0);
    }
}
