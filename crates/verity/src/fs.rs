//! fs-verity: the descriptor, and where ext4 keeps it and the tree.
//!
//! The formats are those of "fs-verity" (`filesystems/fsverity`) and of ext4's page on it
//! (`filesystems/ext4/verity`) in the kernel's documentation. A file's tree begins at the next
//! multiple of 64 KiB behind its content, level by level from the root. The descriptor follows at
//! the next block, and the last four bytes of the last block say how long it is.

use crate::{Algorithm, Digest, Salted, Shape};

/// Bytes of a descriptor without a signature.
pub const DESCRIPTOR_LEN: usize = 256;
/// The most bytes of a descriptor with its signature that Linux reads.
pub const DESCRIPTOR_MAX: u64 = 16_384;
/// The most bytes of a salt.
pub const SALT_MAX: usize = 32;
/// Block sizes that the format has, as powers of two.
pub const BLOCK_LOG2: std::ops::RangeInclusive<u32> = 10..=16;

/// What the tree of a file begins at a multiple of.
const METADATA_ALIGNMENT: u64 = 65_536;
/// Bytes of the descriptor's length behind it.
const LENGTH_LEN: u64 = 4;

/// What a file's tree is, and its root hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The hash function.
    pub algorithm: Algorithm,
    /// Bytes of a block, as a power of two.
    pub block_log2: u32,
    /// Bytes of the file.
    pub data_size: u64,
    /// The hash that all others lead to; zeros for an empty file.
    pub root_hash: Digest,
    /// What is hashed in front of each block; at most [`SALT_MAX`] bytes.
    pub salt: Vec<u8>,
}

/// Why bytes are no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// There are too few or too many.
    #[error("its descriptor cannot have {0} bytes")]
    Length(u64),
    /// Another version of the format.
    #[error("its descriptor has the unknown version {0}")]
    Version(u8),
    /// A hash function that is not known here.
    #[error("its hash function has the unknown number {0}")]
    Algorithm(u8),
    /// A block size that the format does not have.
    #[error("its blocks cannot have 2^{0} bytes")]
    BlockSize(u8),
    /// A salt that is too long.
    #[error("its salt cannot have {0} bytes")]
    Salt(u8),
    /// Bytes that must be zero are not.
    #[error("bytes of its descriptor that must be zero are not")]
    Reserved,
    /// The file has another size.
    #[error("its descriptor is that of a file of {0} bytes")]
    DataSize(u64),
    /// The signature and the descriptor are not as long as they say.
    #[error("its signature cannot have {0} bytes")]
    Signature(u32),
}

impl Descriptor {
    /// Makes the bytes, without a signature.
    #[must_use]
    pub fn encode(&self) -> [u8; DESCRIPTOR_LEN] {
        let mut bytes = [0; DESCRIPTOR_LEN];
        let salt = &self.salt[..self.salt.len().min(SALT_MAX)];
        bytes[0] = 1;
        bytes[1] = number(self.algorithm);
        bytes[2] = self.block_log2 as u8;
        bytes[3] = salt.len() as u8;
        bytes[8..16].copy_from_slice(&self.data_size.to_le_bytes());
        let hash = self.root_hash.as_bytes();
        bytes[16..16 + hash.len()].copy_from_slice(hash);
        bytes[80..80 + salt.len()].copy_from_slice(salt);
        bytes
    }

    /// Reads a descriptor with its signature, if it has one, of a file of `size` bytes.
    ///
    /// # Errors
    /// [`DescriptorError`] for what Linux refuses too, and for hash functions that are not known
    /// here.
    pub fn parse(bytes: &[u8], size: u64) -> Result<Self, DescriptorError> {
        let len = bytes.len() as u64;
        let Some(fixed) = bytes.get(..DESCRIPTOR_LEN) else {
            return Err(DescriptorError::Length(len));
        };
        if fixed[0] != 1 {
            return Err(DescriptorError::Version(fixed[0]));
        }
        let known = Algorithm::ALL.into_iter();
        let algorithm = known
            .into_iter()
            .find(|known| number(*known) == fixed[1])
            .ok_or(DescriptorError::Algorithm(fixed[1]))?;
        let block_log2 = u32::from(fixed[2]);
        if !BLOCK_LOG2.contains(&block_log2) {
            return Err(DescriptorError::BlockSize(fixed[2]));
        }
        let salt_len = usize::from(fixed[3]);
        if salt_len > SALT_MAX {
            return Err(DescriptorError::Salt(fixed[3]));
        }
        let signature = u32::from_le_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        if u64::from(signature) != len - DESCRIPTOR_LEN as u64 {
            return Err(DescriptorError::Signature(signature));
        }
        let mut data_size = [0; 8];
        data_size.copy_from_slice(&fixed[8..16]);
        let data_size = u64::from_le_bytes(data_size);
        if data_size != size {
            return Err(DescriptorError::DataSize(data_size));
        }
        if fixed[112..].iter().any(|&byte| byte != 0) {
            return Err(DescriptorError::Reserved);
        }
        let root_hash = fixed
            .get(16..16 + algorithm.digest_len())
            .and_then(Digest::of);
        Ok(Self {
            algorithm,
            block_log2,
            data_size,
            root_hash: root_hash.ok_or(DescriptorError::Length(len))?,
            salt: fixed[80..80 + salt_len].to_vec(),
        })
    }

    /// Returns the digest of the file, as `fsverity digest` and `fsverity measure` show it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.algorithm.hash(&self.encode())
    }

    /// Returns the shape of the tree.
    #[must_use]
    pub fn shape(&self) -> Shape {
        shape(self.algorithm, self.block_log2, self.data_size)
    }

    /// Returns what hashes blocks: with the salt in front, filled up with zeros to what the
    /// function takes at a time.
    #[must_use]
    pub fn salted(&self) -> Salted {
        salted(self.algorithm, &self.salt)
    }
}

/// Returns the shape of the tree of a file of `size` bytes.
#[must_use]
pub fn shape(algorithm: Algorithm, block_log2: u32, size: u64) -> Shape {
    let blocks = size.div_ceil(1 << block_log2);
    Shape::new(blocks, algorithm.arity_log2(block_log2))
}

/// Returns what hashes the blocks of a file with this salt.
#[must_use]
pub fn salted(algorithm: Algorithm, salt: &[u8]) -> Salted {
    let mut prefix = salt.to_vec();
    prefix.resize(salt.len().next_multiple_of(algorithm.input_len()), 0);
    Salted::new(algorithm, &prefix)
}

/// Returns where the tree of a file of `size` bytes begins, in bytes of the file.
#[must_use]
pub const fn tree_start(size: u64) -> u64 {
    size.saturating_add(METADATA_ALIGNMENT - 1) / METADATA_ALIGNMENT * METADATA_ALIGNMENT
}

/// Where the descriptor of a file is that is `len` bytes long, and where its length is written:
/// bytes of the file, in a file system with blocks of `1 << fs_block_log2` bytes, behind a tree of
/// `tree_len` bytes.
#[must_use]
pub const fn descriptor_place(
    size: u64,
    tree_len: u64,
    len: u64,
    fs_block_log2: u32,
) -> (u64, u64) {
    let block = 1 << fs_block_log2;
    let start = tree_start(size).saturating_add(tree_len).div_ceil(block) << fs_block_log2;
    let end = (start + len + LENGTH_LEN).div_ceil(block) << fs_block_log2;
    (start, end - LENGTH_LEN)
}

/// Returns where the descriptor of a file begins whose last mapped byte is before `end`, and which
/// is as long as the last four bytes say; `None` where there is no room for it.
#[must_use]
pub const fn descriptor_start(size: u64, end: u64, len: u64, fs_block_log2: u32) -> Option<u64> {
    let at = match end.checked_sub(LENGTH_LEN) {
        Some(at) => at,
        None => return None,
    };
    match at.checked_sub(len) {
        Some(start) => {
            let start = start >> fs_block_log2 << fs_block_log2;
            if start >= tree_start(size) {
                Some(start)
            } else {
                None
            }
        }
        None => None,
    }
}

/// The number that descriptors have for a function.
const fn number(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Sha256 => 1,
        Algorithm::Sha512 => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor {
            algorithm: Algorithm::Sha256,
            block_log2: 12,
            data_size: 5,
            root_hash: Algorithm::Sha256.hash(b"x"),
            salt: b"salt".to_vec(),
        }
    }

    #[test]
    fn a_descriptor_comes_back_and_a_changed_one_does_not() {
        let bytes = descriptor().encode();
        assert_eq!(Descriptor::parse(&bytes, 5), Ok(descriptor()));
        assert_eq!(
            Descriptor::parse(&bytes, 6),
            Err(DescriptorError::DataSize(5))
        );
        for (at, value, error) in [
            (0, 2, DescriptorError::Version(2)),
            (1, 9, DescriptorError::Algorithm(9)),
            (2, 9, DescriptorError::BlockSize(9)),
            (3, 33, DescriptorError::Salt(33)),
            (4, 1, DescriptorError::Signature(1)),
            (200, 1, DescriptorError::Reserved),
        ] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert_eq!(Descriptor::parse(&wrong, 5), Err(error));
        }
        assert_eq!(
            Descriptor::parse(&bytes[..255], 5),
            Err(DescriptorError::Length(255))
        );
    }

    #[test]
    fn the_descriptor_follows_the_tree_and_its_length_ends_the_last_block() {
        assert_eq!(tree_start(0), 0);
        assert_eq!(tree_start(1), 65_536);
        assert_eq!(tree_start(65_536), 65_536);
        assert_eq!(descriptor_place(1, 0, 256, 12), (65_536, 65_536 + 4092));
        assert_eq!(
            descriptor_place(1, 1024, 256, 12),
            (65_536 + 4096, 65_536 + 8188)
        );
        assert_eq!(descriptor_start(1, 65_536 + 8192, 256, 12), Some(69_632));
        assert_eq!(descriptor_start(1, 65_536, 256, 12), None);
        assert_eq!(descriptor_start(1, 2, 256, 12), None);
    }

    #[test]
    fn a_salt_is_filled_up_to_what_the_function_takes() {
        let salted = salted(Algorithm::Sha256, b"salt");
        let mut whole = [0; 64 + 3];
        whole[..4].copy_from_slice(b"salt");
        whole[64..].copy_from_slice(b"abc");
        assert_eq!(salted.hash(b"abc"), Algorithm::Sha256.hash(&whole));
        assert_eq!(
            super::salted(Algorithm::Sha256, b"").hash(b"abc"),
            Algorithm::Sha256.hash(b"abc")
        );
    }
}
