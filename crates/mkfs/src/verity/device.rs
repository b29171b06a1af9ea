//! dm-verity: what is asked for, where superblock and tree lie, what was made.

use super::HashAlgorithm;
use super::growth::WriteBlock;
use super::sealing::{Leaves, Sealing};
use crate::image::{BuildError, Report};
use crate::output::{Output, OutputError, Replaces};
use extant_blockdev::{BlockDevice, DeviceResult};
use extant_verity::dm::{BLOCK_SIZES, SALT_MAX, SUPERBLOCK_LEN, Superblock};
use extant_verity::{Algorithm, Digest};
use std::path::PathBuf;

/// Bytes of a block where none is asked for: what veritysetup takes, and a page of most machines.
const BLOCK_SIZE: u32 = 4096;

/// A hash tree for dm-verity, made in the same pass as the file system it protects.
///
/// Made with [`DmVerity::behind`] or [`DmVerity::apart`], changed field by field.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DmVerity {
    /// The hash function.
    pub algorithm: HashAlgorithm,
    /// What is hashed in front of each block, at most 256 bytes. If `None`, 32 bytes that follow
    /// from the UUID of the file system.
    pub salt: Option<Vec<u8>>,
    /// Bytes of a block of data. If `None`, a block of the file system, and at most 4096.
    pub data_block_size: Option<u32>,
    /// Bytes of a block of hashes.
    pub hash_block_size: u32,
    place: Place,
}

/// Where superblock and tree go.
#[derive(Clone, Debug)]
enum Place {
    /// Behind the file system, and with it within so many bytes.
    Behind { within: Option<u64> },
    /// Into a file of its own.
    Apart { path: PathBuf, replaces: Replaces },
}

impl DmVerity {
    fn at(place: Place) -> Self {
        Self {
            algorithm: HashAlgorithm::default(),
            salt: None,
            data_block_size: None,
            hash_block_size: BLOCK_SIZE,
            place,
        }
    }

    /// Puts superblock and tree behind the file system, whose size stays the one that is asked for.
    ///
    /// With `within`, file system and tree together take at most so many bytes, and the file system
    /// is made smaller where its size is fixed and does not leave room for the tree.
    #[must_use]
    pub fn behind(within: Option<u64>) -> Self {
        Self::at(Place::Behind { within })
    }

    /// Puts superblock and tree into a file that appears under the name `path` when the image is
    /// complete, and may take it from the file that `replaces` says.
    #[must_use]
    pub fn apart(path: PathBuf, replaces: Replaces) -> Self {
        Self::at(Place::Apart { path, replaces })
    }

    /// The bytes that file system and tree may take together, where there is a limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        match self.place {
            Place::Behind { within } => within,
            Place::Apart { .. } => None,
        }
    }
}

/// What a hash tree is that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DmVerityReport {
    /// The root hash: what the device is opened with.
    pub root_hash: Vec<u8>,
    /// What is hashed in front of each block.
    pub salt: Vec<u8>,
    /// Identity of the tree.
    pub uuid: [u8; 16],
    /// The hash function.
    pub algorithm: HashAlgorithm,
    /// Bytes of a block of data.
    pub data_block_size: u32,
    /// Blocks of data.
    pub data_blocks: u64,
    /// Bytes of a block of hashes.
    pub hash_block_size: u32,
    /// Byte of the image, or of the file apart, where the superblock of dm-verity is.
    pub hash_offset: u64,
    /// Bytes of the image, or of the file apart, up to the end of the tree.
    pub end: u64,
}

/// A hash tree that cannot be made as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DmVerityError {
    /// A block size that the format does not have.
    #[error("dm-verity has no {what} of {asked} bytes: use a power of two from 512 to 65536")]
    BlockSize {
        /// Which blocks.
        what: &'static str,
        /// The size in bytes.
        asked: u32,
    },
    /// The file system could not be mounted from the device.
    #[error(
        "a device of dm-verity with data blocks of {asked} bytes holds no file system with blocks of \
         {block_size} bytes: use data blocks of at most {block_size} bytes, or larger ones in the file \
         system"
    )]
    DataBlocks {
        /// The size in bytes.
        asked: u32,
        /// Bytes of a block of the file system.
        block_size: u32,
    },
    /// The salt is too long.
    #[error("a salt of dm-verity has at most 256 bytes, and this one has {found}")]
    Salt {
        /// Its length in bytes.
        found: usize,
    },
    /// An image that is made while it is read.
    #[error(
        "an image that is made when it is read cannot have a hash tree: all of it would be read"
    )]
    Served,
}

/// Superblock and tree of an image that is planned.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    superblock: Superblock,
    /// Bytes of the file system.
    data_len: u64,
    place: Place,
}

/// The file apart that a tree goes to.
pub(crate) struct Tail(Output);

impl Tail {
    /// The file, open.
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        self.0.device()
    }

    /// Gives the file its name.
    pub(crate) fn commit(self) -> Result<(), OutputError> {
        self.0.commit()
    }
}

impl Plan {
    /// Plans a tree over a file system of `blocks` blocks of `block_size` bytes.
    pub(crate) fn new(
        asked: &DmVerity,
        uuid: [u8; 16],
        block_size: u32,
        blocks: u64,
    ) -> Result<Self, DmVerityError> {
        let data_block_size = asked
            .data_block_size
            .unwrap_or_else(|| block_size.min(BLOCK_SIZE));
        for (what, asked) in [
            ("data blocks", data_block_size),
            ("hash blocks", asked.hash_block_size),
        ] {
            if !asked.is_power_of_two() || !BLOCK_SIZES.contains(&asked) {
                return Err(DmVerityError::BlockSize { what, asked });
            }
        }
        if data_block_size > block_size {
            let asked = data_block_size;
            return Err(DmVerityError::DataBlocks { asked, block_size });
        }
        let found = asked.salt.as_ref().map_or(0, Vec::len);
        if found > SALT_MAX {
            return Err(DmVerityError::Salt { found });
        }
        let data_len = blocks * u64::from(block_size);
        let salt = asked.salt.clone();
        Ok(Self {
            superblock: Superblock {
                uuid: derived_uuid(uuid),
                algorithm: asked.algorithm,
                data_block_size,
                hash_block_size: asked.hash_block_size,
                data_blocks: data_len / u64::from(data_block_size),
                salt: salt.unwrap_or_else(|| derive(b"salt", uuid).as_bytes().to_vec()),
            },
            data_len,
            place: asked.place.clone(),
        })
    }

    /// Byte of the image, or of the file apart, where the superblock is.
    fn offset(&self) -> u64 {
        match self.place {
            Place::Behind { .. } => self.data_len,
            Place::Apart { .. } => 0,
        }
    }

    /// Bytes of the image with its tree, where that lies behind; `alone` without one.
    pub(crate) fn image_len(&self, alone: u64) -> u64 {
        match self.place {
            Place::Behind { .. } => self.superblock.end(self.data_len),
            Place::Apart { .. } => alone,
        }
    }

    /// Makes the file apart, if the tree goes to one.
    pub(crate) fn tail(&self) -> Result<Option<Tail>, OutputError> {
        let Place::Apart { path, replaces } = &self.place else {
            return Ok(None);
        };
        let output = Output::create_over(path, self.superblock.end(0), *replaces)?;
        Ok(Some(Tail(output)))
    }

    /// Has `write` write the file system to a device, and hashes what it writes.
    pub(crate) fn seal(
        &self,
        output: &Output,
        tail: Option<&Tail>,
        write: impl FnOnce(&dyn BlockDevice) -> Result<Report, BuildError>,
    ) -> Result<Report, BuildError> {
        let below = output.device();
        let target = tail.map_or(below, Tail::device);
        let put = |block: u64, bytes: &[u8]| self.put_block(target, block, bytes);
        let leaves = self.leaves(&put);
        let sealing = Sealing::new(below, output.is_zeroed(), &leaves);
        let mut report = write(&sealing)?;
        let root = sealing.finish(&leaves).map_err(write_error)?;
        self.put_superblock(target).map_err(write_error)?;
        report.dm_verity = Some(self.report(root.as_ref()));
        Ok(report)
    }

    /// What is hashed, and what writes the blocks of the tree.
    pub(super) fn leaves<'d>(&self, write: WriteBlock<'d>) -> Leaves<'d> {
        let superblock = &self.superblock;
        Leaves {
            len: self.data_len,
            block_log2: superblock.data_block_size.ilog2(),
            shape: superblock.shape(),
            salted: superblock.salted(),
            hash_block_len: superblock.hash_block_size as usize,
            write,
        }
    }

    /// Writes a block of the tree, by its number from the beginning of the tree.
    pub(super) fn put_block(
        &self,
        target: &dyn BlockDevice,
        block: u64,
        bytes: &[u8],
    ) -> DeviceResult<()> {
        let start = self.superblock.tree_start(self.offset());
        let at = start + block * u64::from(self.superblock.hash_block_size);
        target.write_at(at, bytes)
    }

    /// Writes the superblock of the tree.
    pub(super) fn put_superblock(&self, target: &dyn BlockDevice) -> DeviceResult<()> {
        // What is between superblock and tree is zeros, whatever was there.
        let start = self.superblock.tree_start(self.offset());
        let mut head = vec![0; (start - self.offset()) as usize];
        head[..SUPERBLOCK_LEN].copy_from_slice(&self.superblock.encode());
        target.write_at(self.offset(), &head)
    }

    pub(super) fn report(&self, root_hash: Option<&Digest>) -> DmVerityReport {
        let superblock = &self.superblock;
        DmVerityReport {
            root_hash: root_hash.map_or(&[][..], Digest::as_bytes).to_vec(),
            salt: superblock.salt.clone(),
            uuid: superblock.uuid,
            algorithm: superblock.algorithm,
            data_block_size: superblock.data_block_size,
            data_blocks: superblock.data_blocks,
            hash_block_size: superblock.hash_block_size,
            hash_offset: self.offset(),
            end: superblock.end(self.offset()),
        }
    }
}

pub(super) fn write_error(error: extant_blockdev::DeviceError) -> BuildError {
    BuildError::Write(error.into())
}

/// 32 bytes that follow from the UUID of a file system, and are others for each purpose.
fn derive(purpose: &[u8], uuid: [u8; 16]) -> Digest {
    let mut material = b"extant dm-verity ".to_vec();
    material.extend_from_slice(purpose);
    material.push(b' ');
    material.extend_from_slice(&uuid);
    Algorithm::Sha256.hash(&material)
}

/// The UUID of the tree.
fn derived_uuid(uuid: [u8; 16]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&derive(b"uuid", uuid).as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .into_bytes()
}
