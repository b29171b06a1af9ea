//! Whether blocks are those that a root hash was made of.

use crate::{Digest, Salted, Shape};

/// Compares blocks of data with the hashes of a tree.
///
/// Blocks of hashes that were found to be right are kept, one of each level: reading from front to
/// back looks at each once.
#[derive(Debug)]
pub struct Verifier {
    shape: Shape,
    salted: Salted,
    block_log2: u32,
    root: Digest,
    /// For each level, the block that was last found to be right.
    known: Vec<Option<(u64, Vec<u8>)>>,
}

/// Why a block of data is not what it was.
#[derive(Debug, PartialEq, Eq)]
pub enum WalkError<E> {
    /// A block of hashes could not be read.
    Read(E),
    /// Its hash is another one.
    Data {
        /// The hash of the block.
        found: Box<Digest>,
        /// The hash in the tree.
        expected: Box<Digest>,
    },
    /// The hash of a block of hashes is another one.
    Tree {
        /// The level of that block, 0 for hashes of data.
        level: usize,
        /// Its number in the level.
        block: u64,
    },
    /// There is no such block of data.
    Beyond,
}

impl Verifier {
    /// Takes the shape of a tree with blocks of `1 << block_log2` bytes, what hashes blocks, and
    /// the root hash.
    #[must_use]
    pub fn new(shape: Shape, salted: Salted, block_log2: u32, root: Digest) -> Self {
        let levels = shape.levels();
        Self {
            shape,
            salted,
            block_log2,
            root,
            known: (0..levels).map(|_| None).collect(),
        }
    }

    /// Returns the bytes of a block, as a power of two.
    #[must_use]
    pub const fn block_log2(&self) -> u32 {
        self.block_log2
    }

    /// Compares block `index` of the data, which is whole, with the tree; `read` reads from a byte
    /// of the tree on.
    ///
    /// # Errors
    /// [`WalkError`]; what `read` gives among it.
    pub fn check<E>(
        &mut self,
        index: u64,
        block: &[u8],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), WalkError<E>> {
        if index >= self.shape.leaves() {
            return Err(WalkError::Beyond);
        }
        let expected = self.expected(0, index, &mut read)?;
        let found = self.salted.hash(block);
        if found != expected {
            let (found, expected) = (Box::new(found), Box::new(expected));
            return Err(WalkError::Data { found, expected });
        }
        Ok(())
    }

    /// The hash that a level has of the block `index` below it.
    fn expected<E>(
        &mut self,
        level: usize,
        index: u64,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Digest, WalkError<E>> {
        if level >= self.shape.levels() {
            return Ok(self.root);
        }
        let block = index / self.shape.arity();
        if !matches!(&self.known[level], Some((known, _)) if *known == block) {
            let expected = self.expected(level + 1, block, read)?;
            let mut bytes = vec![0; 1 << self.block_log2];
            let at = self.shape.start_of(level) + block;
            read(at << self.block_log2, &mut bytes).map_err(WalkError::Read)?;
            if self.salted.hash(&bytes) != expected {
                return Err(WalkError::Tree { level, block });
            }
            self.known[level] = Some((block, bytes));
        }
        let len = self.salted.algorithm().digest_len();
        let at = (index % self.shape.arity()) as usize * len;
        self.known[level]
            .as_ref()
            .and_then(|(_, bytes)| bytes.get(at..at + len))
            .and_then(Digest::of)
            .ok_or(WalkError::Tree { level, block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    /// The tree of blocks, level by level from the root, and the root hash.
    fn tree(blocks: &[Vec<u8>], salted: &Salted, shape: &Shape) -> (Vec<u8>, Digest) {
        let mut hashes: Vec<Digest> = blocks.iter().map(|block| salted.hash(block)).collect();
        let mut levels = Vec::new();
        for level in 0..shape.levels() {
            let mut bytes = Vec::new();
            for part in hashes.chunks(shape.arity() as usize) {
                let mut block: Vec<u8> = part.iter().flat_map(|h| h.as_bytes().to_vec()).collect();
                block.resize(1024, 0);
                bytes.extend(block);
            }
            assert_eq!(bytes.len() as u64, shape.blocks_of(level) << 10);
            hashes = bytes.chunks(1024).map(|block| salted.hash(block)).collect();
            levels.push(bytes);
        }
        levels.reverse();
        (levels.concat(), hashes[0])
    }

    #[test]
    fn what_was_hashed_is_found_right_and_each_change_is_found() {
        let salted = Salted::new(Algorithm::Sha256, b"salt");
        for count in [1_u64, 2, 32, 33, 1500] {
            let blocks: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8 ^ 3; 1024]).collect();
            let shape = Shape::new(count, 5);
            let (bytes, root) = tree(&blocks, &salted, &shape);
            let fresh = || Verifier::new(shape.clone(), salted.clone(), 10, root);
            let read = |from: &[u8], at: u64, to: &mut [u8]| -> Result<(), ()> {
                to.copy_from_slice(&from[at as usize..][..to.len()]);
                Ok(())
            };
            let mut all = fresh();
            for (index, block) in blocks.iter().enumerate() {
                let good = |at, to: &mut [u8]| read(&bytes, at, to);
                all.check(index as u64, block, good).unwrap();
                let mut bad = block.clone();
                bad[1000] ^= 1;
                let wrong = fresh().check(index as u64, &bad, good).unwrap_err();
                assert!(matches!(wrong, WalkError::Data { .. }));
            }
            let none = fresh().check(count, &blocks[0], |_, _| Ok::<(), ()>(()));
            assert_eq!(none, Err(WalkError::Beyond));
            for at in (0..bytes.len()).step_by(1024) {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                let mut verifier = fresh();
                let found = (0..count).any(|index| {
                    let block = &blocks[index as usize];
                    let read = |at, to: &mut [u8]| read(&bad, at, to);
                    verifier.check(index, block, read).is_err()
                });
                assert!(found, "{count} blocks, byte {at}");
            }
        }
    }
}
