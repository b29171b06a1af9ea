//! Records of the JBD2 journal, and of its fast-commit area.
//!
//! A journal is an array of blocks of the file-system block size:
//!
//! ```text
//! block 0        1 (first)                                   last          max_len
//! | superblock | log, used as a ring ........................ | fast commits |
//!               one transaction:  (descriptor data* | revoke)* commit
//! ```
//!
//! All numbers are big-endian, except inside the fast-commit area. What a block looks like
//! depends on the feature bits of the journal superblock; [`LogFormat`] carries that knowledge
//! from the superblock to every other record.
//!
//! | module | owns |
//! |---|---|
//! | `fields` | numbers at byte offsets |
//! | `superblock` | the journal superblock, its validation and where the log lies |
//! | `descriptor` | tags that say where the data blocks after them belong |
//! | `revoke` | blocks whose earlier images must not be replayed |
//! | `commit` | the end of a transaction |
//! | `fast_commit` | tag-length-value records of fast commits |
//!
//! Source: the kernel's `Documentation/filesystems/ext4/journal.rst`.

mod commit;
mod descriptor;
mod fast_commit;
mod fields;
mod revoke;
mod superblock;
#[cfg(test)]
mod tests;

pub use commit::{CommitBlock, TransactionCrc};
pub use descriptor::{DescriptorBlock, Tag, escape, needs_escape, restore_escaped};
pub use fast_commit::{
    DirEntryChange, FAST_COMMIT_TAG_LEN, FastCommitRecord, FastCommitRecords, encode_fast_commit,
};
pub use revoke::RevokeBlock;
pub use superblock::{CompatFeatures, IncompatFeatures, JournalSuperblock, LogArea};

use crate::checksum::Crc32c;
use crate::{BlockSize, Expected, FormatError, FormatResult, Structure, Tid};
use fields::{be32, put_be32};

/// The first four bytes of every record of the journal.
pub const MAGIC: u32 = 0xC03B_3998;

/// Bytes of the header that starts every record.
pub const HEADER_LEN: usize = 12;

/// Bytes of the checksum that ends descriptor and revoke blocks under checksums v2 and v3.
const TAIL_LEN: usize = 4;

/// Fewest blocks a journal may have, without its fast-commit area.
pub const MIN_BLOCKS: u32 = 1024;

/// What a journal record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// Tags for the data blocks that follow.
    Descriptor,
    /// The end of a transaction.
    Commit,
    /// A superblock without feature bits.
    SuperblockV1,
    /// A superblock with feature bits.
    SuperblockV2,
    /// A list of revoked blocks.
    Revoke,
}

impl BlockType {
    /// The type stored as `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    /// The number stored on disk.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

/// The header of a journal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the record is.
    pub block_type: BlockType,
    /// The transaction it belongs to.
    pub sequence: Tid,
}

impl Header {
    /// Reads the header at the start of `block`.
    ///
    /// # Errors
    /// A block without the magic (an ordinary data block, or one never written), or of a type
    /// that does not exist.
    pub fn parse(block: &[u8]) -> FormatResult<Self> {
        if block.len() < HEADER_LEN {
            return Err(FormatError::short(
                Structure::JournalBlock,
                block.len(),
                HEADER_LEN,
            ));
        }
        let magic = be32(block, 0);
        if magic != MAGIC {
            return Err(FormatError::new(
                Structure::JournalBlock,
                "magic",
                u64::from(magic),
                Expected::Exactly(u64::from(MAGIC)),
            ));
        }
        let raw = be32(block, 4);
        let block_type = BlockType::from_raw(raw).ok_or_else(|| {
            FormatError::new(
                Structure::JournalBlock,
                "blocktype",
                u64::from(raw),
                Expected::Between(1, 5),
            )
            .at(4)
        })?;
        Ok(Self {
            block_type,
            sequence: Tid::new(be32(block, 8)),
        })
    }

    /// Writes the header at the start of `block`; a block too short for it is left alone.
    pub fn encode(self, block: &mut [u8]) {
        put_be32(block, 0, MAGIC);
        put_be32(block, 4, self.block_type.raw());
        put_be32(block, 8, self.sequence.get());
    }
}

/// How the journal protects its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogChecksum {
    /// Not at all.
    None,
    /// One CRC32 over the descriptors and data of a transaction, in its commit block
    /// (`checksum` of the compatible features).
    CommitOnly,
    /// CRC32C on every record, and 16 bits of one per data block.
    V2,
    /// CRC32C on every record, and a full one per data block.
    V3,
}

/// Everything the superblock decides about the shape of the other records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// Size of a journal block.
    pub block_size: BlockSize,
    /// Whether block numbers have 64 bits.
    pub wide: bool,
    /// How blocks are protected.
    pub checksum: LogChecksum,
    /// UUID of the journal: the seed of its checksums, and part of the first tag of a descriptor.
    pub uuid: [u8; 16],
}

impl LogFormat {
    /// Whether records and data blocks carry CRC32C.
    #[must_use]
    pub const fn has_block_checksums(&self) -> bool {
        matches!(self.checksum, LogChecksum::V2 | LogChecksum::V3)
    }

    /// Bytes of a tag, without the UUID that may follow it.
    #[must_use]
    pub const fn tag_len(&self) -> usize {
        match (self.checksum, self.wide) {
            (LogChecksum::V3, _) => 16,
            // Two unused bytes: the 16-bit checksum lives in what was the upper half of the flags.
            (LogChecksum::V2, true) => 14,
            (LogChecksum::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// The checksum of a data block of transaction `sequence`, over the bytes as they lie in the
    /// log (that is, after escaping).
    #[must_use]
    pub fn data_checksum(&self, sequence: Tid, data: &[u8]) -> u32 {
        self.seed()
            .update(&sequence.get().to_be_bytes())
            .update(data)
            .value()
    }

    /// Bytes a record may use in its block, in front of the checksum.
    #[must_use]
    const fn usable_len(&self) -> usize {
        if self.has_block_checksums() {
            self.block_size.len() - TAIL_LEN
        } else {
            self.block_size.len()
        }
    }

    /// State after the UUID.
    fn seed(&self) -> Crc32c {
        Crc32c::INIT.update(&self.uuid)
    }

    /// Checksum of a record whose own checksum is the 32 bits at `at`.
    fn record_checksum(&self, block: &[u8], at: usize) -> u32 {
        let before = block.get(..at).unwrap_or(block);
        let after = block.get(at + 4..).unwrap_or(&[]);
        self.seed()
            .update(before)
            .update(&[0; 4])
            .update(after)
            .value()
    }

    /// Checks the length of a block, its header, and the checksum in its last four bytes.
    fn check_block(&self, block: &[u8], expected: BlockType) -> FormatResult<Header> {
        let len = self.block_size.len();
        if block.len() != len {
            return Err(FormatError::short(
                Structure::JournalBlock,
                block.len(),
                len,
            ));
        }
        let header = Header::parse(block)?;
        if header.block_type != expected {
            return Err(FormatError::new(
                Structure::JournalBlock,
                "blocktype",
                u64::from(header.block_type.raw()),
                Expected::Exactly(u64::from(expected.raw())),
            )
            .at(4));
        }
        Ok(header)
    }

    /// Checks the checksum in the last four bytes of a descriptor or revoke block.
    fn check_tail(&self, block: &[u8]) -> FormatResult<()> {
        if !self.has_block_checksums() {
            return Ok(());
        }
        let at = self.usable_len();
        let stored = be32(block, at);
        let computed = self.record_checksum(block, at);
        if stored != computed {
            return Err(FormatError::checksum(Structure::JournalBlock, stored, computed).at(at));
        }
        Ok(())
    }

    /// Writes the checksum into the last four bytes of a descriptor or revoke block.
    fn seal_tail(&self, block: &mut [u8]) {
        if self.has_block_checksums() {
            let at = self.usable_len();
            put_be32(block, at, 0);
            let sum = self.record_checksum(block, at);
            put_be32(block, at, sum);
        }
    }
}
