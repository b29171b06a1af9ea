//! A tree that is made of blocks in their order.

use crate::{Digest, Salted, Shape};

/// Blocks of a level that are written together.
const PIECE_BLOCKS: usize = 16;

/// Makes a tree of blocks of data that come from front to back.
///
/// Memory is 16 blocks of each level.
#[derive(Debug)]
pub struct Builder {
    shape: Shape,
    salted: Salted,
    block_len: usize,
    levels: Vec<Level>,
    root: Option<Digest>,
}

/// What of a level was not written.
#[derive(Debug, Default)]
struct Level {
    /// Whole blocks, and the hashes of one that is not full.
    bytes: Vec<u8>,
    /// The block that the first byte belongs to.
    block: u64,
}

impl Builder {
    /// Takes the shape of the tree, what hashes blocks, and the bytes of a block as a power of two.
    #[must_use]
    pub fn new(shape: Shape, salted: Salted, block_log2: u32) -> Self {
        let levels = (0..shape.levels()).map(|_| Level::default());
        Self {
            levels: levels.collect(),
            shape,
            salted,
            block_len: 1 << block_log2,
            root: None,
        }
    }

    /// Takes the next block of data, which is whole; `write` writes from a byte of the tree on.
    ///
    /// # Errors
    /// What `write` gives.
    pub fn push<E>(
        &mut self,
        block: &[u8],
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let digest = self.salted.hash(block);
        self.put(0, digest, &mut write)
    }

    /// Fills the last blocks up with zeros, and writes them. Returns the root hash; `None` if no
    /// block came.
    ///
    /// # Errors
    /// What `write` gives.
    pub fn finish<E>(
        &mut self,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Option<Digest>, E> {
        for number in 0..self.levels.len() {
            let level = &mut self.levels[number];
            let last = level.bytes.len() % self.block_len;
            if last > 0 {
                let whole = level.bytes.len() - last + self.block_len;
                level.bytes.resize(whole, 0);
                let digest = self.salted.hash(&level.bytes[whole - self.block_len..]);
                self.put(number + 1, digest, &mut write)?;
            }
            self.flush(number, &mut write)?;
        }
        Ok(self.root)
    }

    /// Puts a hash into a level, and that of a block which is full by that into the next one.
    fn put<E>(
        &mut self,
        mut number: usize,
        mut digest: Digest,
        write: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(level) = self.levels.get_mut(number) {
            level.bytes.extend_from_slice(digest.as_bytes());
            let len = level.bytes.len();
            if !len.is_multiple_of(self.block_len) {
                return Ok(());
            }
            digest = self.salted.hash(&level.bytes[len - self.block_len..]);
            if len == PIECE_BLOCKS * self.block_len {
                self.flush(number, write)?;
            }
            number += 1;
        }
        self.root = Some(digest);
        Ok(())
    }

    /// Writes the blocks of a level, which are whole.
    fn flush<E>(
        &mut self,
        number: usize,
        write: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.shape.start_of(number);
        let level = &mut self.levels[number];
        if level.bytes.is_empty() {
            return Ok(());
        }
        write((start + level.block) * self.block_len as u64, &level.bytes)?;
        level.block += (level.bytes.len() / self.block_len) as u64;
        level.bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Verifier};

    #[test]
    fn each_block_is_found_right_by_the_tree_that_is_made() {
        let salted = Salted::new(Algorithm::Sha256, b"salt");
        for count in [0_u64, 1, 2, 32, 33, 1024, 1025, 20_000] {
            let block = |n: u64| {
                let mut block = vec![3; 1024];
                block[..8].copy_from_slice(&n.to_le_bytes());
                block
            };
            let shape = Shape::new(count, 5);
            let mut tree = vec![0xee; (shape.blocks() * 1024) as usize];
            let mut written = 0;
            let mut write = |at: u64, bytes: &[u8]| -> Result<(), ()> {
                tree[at as usize..][..bytes.len()].copy_from_slice(bytes);
                written += bytes.len();
                Ok(())
            };
            let mut builder = Builder::new(shape.clone(), salted.clone(), 10);
            for n in 0..count {
                builder.push(&block(n), &mut write).unwrap();
            }
            let root = builder.finish(&mut write).unwrap();
            assert_eq!(written, tree.len(), "each block once");
            assert_eq!(root.is_none(), count == 0);
            let Some(root) = root else {
                continue;
            };
            let mut verifier = Verifier::new(shape, salted.clone(), 10, root);
            for n in 0..count {
                let read = |at: u64, to: &mut [u8]| -> Result<(), ()> {
                    to.copy_from_slice(&tree[at as usize..][..to.len()]);
                    Ok(())
                };
                verifier.check(n, &block(n), read).unwrap();
            }
        }
    }
}
