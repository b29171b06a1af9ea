//! Commit blocks.

use super::fields::{array, be32, be64, put, put_be32, put_be64};
use super::{BlockType, Header, LogChecksum, LogFormat};
use crate::{Expected, FormatError, FormatResult, Structure, Tid};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use crc::{CRC_32_MPEG_2, Crc, Digest, Table};

const CHECKSUM_AT: usize = 0x10;
/// Bytes of the record; the rest of its block is zero.
const RECORD_LEN: usize = 0x3C;
const CRC32_TYPE: u8 = 1;
const CRC32_LEN: u8 = 4;

/// A commit block: everything of its transaction before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// The transaction.
    pub sequence: Tid,
    /// Seconds since the epoch when it was committed.
    pub seconds: u64,
    /// Nanoseconds within that second.
    pub nanoseconds: u32,
    /// CRC32 of the transaction's descriptors and data; only with [`LogChecksum::CommitOnly`],
    /// and even then `None` where the writer left it out.
    pub transaction_crc: Option<u32>,
}

impl CommitBlock {
    /// Reads a commit block without judging its checksum: recovery needs the time of a commit
    /// block whose checksum is wrong.
    ///
    /// # Errors
    /// Not a commit block; under [`LogChecksum::CommitOnly`], a checksum of another kind.
    pub fn read(block: &[u8], format: &LogFormat) -> FormatResult<Self> {
        let header = format.check_block(block, BlockType::Commit)?;
        let [kind, len] = array(block, 0x0C).unwrap_or_default();
        let stored = be32(block, CHECKSUM_AT);
        let transaction_crc = match format.checksum {
            LogChecksum::CommitOnly if (kind, len, stored) == (0, 0, 0) => None,
            LogChecksum::CommitOnly if (kind, len) == (CRC32_TYPE, CRC32_LEN) => Some(stored),
            LogChecksum::CommitOnly => {
                return Err(FormatError::new(
                    Structure::JournalBlock,
                    "chksum_type",
                    u64::from(kind),
                    Expected::Exactly(u64::from(CRC32_TYPE)),
                )
                .at(0x0C));
            }
            _ => None,
        };
        Ok(Self {
            sequence: header.sequence,
            seconds: be64(block, 0x30),
            nanoseconds: be32(block, 0x38),
            transaction_crc,
        })
    }

    /// Checks the checksum a commit block has of itself under v2 and v3.
    ///
    /// # Errors
    /// A checksum mismatch.
    pub fn verify(block: &[u8], format: &LogFormat) -> FormatResult<()> {
        if !format.has_block_checksums() {
            return Ok(());
        }
        let stored = be32(block, CHECKSUM_AT);
        let computed = format.record_checksum(block, CHECKSUM_AT);
        if stored == computed {
            return Ok(());
        }
        // Some kernels left stale bytes after the record, which the checksum does not cover.
        let mut clean = vec![0; format.block_size.len()];
        put(&mut clean, 0, block.get(..RECORD_LEN).unwrap_or(&[]));
        if stored == format.record_checksum(&clean, CHECKSUM_AT) {
            return Ok(());
        }
        Err(FormatError::checksum(Structure::JournalBlock, stored, computed).at(CHECKSUM_AT))
    }

    /// Writes the block, checksum included.
    #[must_use]
    pub fn encode(&self, format: &LogFormat) -> Vec<u8> {
        let mut block = vec![0; format.block_size.len()];
        Header {
            block_type: BlockType::Commit,
            sequence: self.sequence,
        }
        .encode(&mut block);
        put_be64(&mut block, 0x30, self.seconds);
        put_be32(&mut block, 0x38, self.nanoseconds);
        if let (LogChecksum::CommitOnly, Some(crc)) = (format.checksum, self.transaction_crc) {
            put(&mut block, 0x0C, &[CRC32_TYPE, CRC32_LEN]);
            put_be32(&mut block, CHECKSUM_AT, crc);
        }
        if format.has_block_checksums() {
            let sum = format.record_checksum(&block, CHECKSUM_AT);
            put_be32(&mut block, CHECKSUM_AT, sum);
        }
        block
    }
}

static CRC32: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_MPEG_2);

/// The CRC32 (most significant bit first, no final inversion) over the descriptor and data blocks
/// of one transaction, in log order; revoke blocks are left out.
#[derive(Clone)]
pub struct TransactionCrc(Digest<'static, u32, Table<1>>);

impl TransactionCrc {
    /// Before the first block.
    #[must_use]
    pub fn new() -> Self {
        Self(CRC32.digest())
    }

    /// Adds a block as it lies in the log.
    pub fn update(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    /// Returns the value stored in the commit block.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0.finalize()
    }
}

impl Default for TransactionCrc {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TransactionCrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionCrc")
    }
}
