//! dm-verity: the superblock, and where it and the tree are.
//!
//! The format is version 1 of "dm-verity" in the kernel's documentation
//! (`admin-guide/device-mapper/verity`) with the superblock of cryptsetup's wiki ("DMVerity"),
//! hash type 1: the salt is hashed in front of each block.

use crate::{Algorithm, Salted, Shape};

/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = 512;
/// The most bytes of a salt.
pub const SALT_MAX: usize = 256;
/// Block sizes that the format has, in bytes: powers of two.
pub const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 512..=65_536;

const SIGNATURE: [u8; 8] = *b"verity\0\0";
const VERSION: u32 = 1;
const HASH_TYPE: u32 = 1;

/// What was hashed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the tree.
    pub uuid: [u8; 16],
    /// The hash function.
    pub algorithm: Algorithm,
    /// Bytes of a block of data.
    pub data_block_size: u32,
    /// Bytes of a block of hashes.
    pub hash_block_size: u32,
    /// Blocks of data.
    pub data_blocks: u64,
    /// What is hashed in front of each block; at most [`SALT_MAX`] bytes.
    pub salt: Vec<u8>,
}

impl Superblock {
    /// Makes the bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut bytes = [0; SUPERBLOCK_LEN];
        let salt = &self.salt[..self.salt.len().min(SALT_MAX)];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &SIGNATURE);
        put(8, &VERSION.to_le_bytes());
        put(12, &HASH_TYPE.to_le_bytes());
        put(16, &self.uuid);
        put(32, self.algorithm.name().as_bytes());
        put(64, &self.data_block_size.to_le_bytes());
        put(68, &self.hash_block_size.to_le_bytes());
        put(72, &self.data_blocks.to_le_bytes());
        put(80, &(salt.len() as u16).to_le_bytes());
        put(88, salt);
        bytes
    }

    /// Reads the bytes of a superblock. `None` if they are not one of this version with a hash
    /// function, block sizes and a number of blocks that can be.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SUPERBLOCK_LEN)?;
        let number = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        if !bytes.starts_with(&SIGNATURE) || (number(8)?, number(12)?) != (VERSION, HASH_TYPE) {
            return None;
        }
        let name = bytes.get(32..64)?;
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| {
            let rest = name.strip_prefix(algorithm.name().as_bytes());
            rest.is_some_and(|rest| rest.iter().all(|&byte| byte == 0))
        })?;
        let size = |at: usize| {
            number(at).filter(|size| BLOCK_SIZES.contains(size) && size.is_power_of_two())
        };
        let salt_len = usize::from(u16::from_le_bytes(bytes.get(80..82)?.try_into().ok()?));
        Some(Self {
            uuid: bytes.get(16..32)?.try_into().ok()?,
            algorithm,
            data_block_size: size(64)?,
            hash_block_size: size(68)?,
            data_blocks: u64::from_le_bytes(bytes.get(72..80)?.try_into().ok()?),
            salt: bytes.get(88..88 + salt_len.min(SALT_MAX))?.to_vec(),
        })
    }

    /// Returns the shape of the tree.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let arity = self.algorithm.arity_log2(self.hash_block_size.ilog2());
        Shape::new(self.data_blocks, arity)
    }

    /// Returns what hashes blocks.
    #[must_use]
    pub fn salted(&self) -> Salted {
        Salted::new(self.algorithm, &self.salt)
    }

    /// Returns where the tree begins, in bytes from the beginning of the file or device with the
    /// superblock at byte `offset`: at the next block of hashes.
    #[must_use]
    pub fn tree_start(&self, offset: u64) -> u64 {
        let after = offset.saturating_add(SUPERBLOCK_LEN as u64);
        after.next_multiple_of(self.hash_block_size.into())
    }

    /// Returns where the tree ends.
    #[must_use]
    pub fn end(&self, offset: u64) -> u64 {
        let tree = self
            .shape()
            .blocks()
            .saturating_mul(self.hash_block_size.into());
        self.tree_start(offset).saturating_add(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            uuid: [7; 16],
            algorithm: Algorithm::Sha256,
            data_block_size: 4096,
            hash_block_size: 4096,
            data_blocks: 129,
            salt: vec![0xab; 32],
        }
    }

    #[test]
    fn fields_are_where_the_format_has_them() {
        let bytes = superblock().encode();
        assert_eq!(&bytes[..16], b"verity\0\0\x01\0\0\0\x01\0\0\0");
        assert_eq!(&bytes[32..39], b"sha256\0");
        assert_eq!(bytes[72..80], [129, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[80..88], [32, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[88..120], [0xab; 32]);
        assert!(bytes[120..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_was_encoded_is_decoded_and_nothing_else() {
        let bytes = superblock().encode();
        assert_eq!(Superblock::decode(&bytes), Some(superblock()));
        assert_eq!(Superblock::decode(&bytes[..511]), None);
        for at in [0, 8, 12, 35, 64, 69] {
            let mut other = bytes;
            other[at] ^= 0x55;
            assert_eq!(Superblock::decode(&other), None, "byte {at}");
        }
    }

    #[test]
    fn the_tree_begins_at_a_block_of_its_own() {
        let superblock = superblock();
        assert_eq!(superblock.tree_start(0), 4096);
        assert_eq!(superblock.end(0), 4096 + 3 * 4096);
        assert_eq!(superblock.tree_start(129 * 4096), 130 * 4096);
        assert_eq!(superblock.tree_start(5 * 1024), 2 * 4096);
        assert_eq!(superblock.tree_start(4096 - 512), 4096);
    }
}
