//! Revoke blocks.

use super::fields::{be32, be64, put_be32, put_be64};
use super::{BlockType, HEADER_LEN, Header, LogFormat};
use crate::{Expected, FormatError, FormatResult, Pblk, Structure, Tid};
use alloc::vec;
use alloc::vec::Vec;

/// Header and count.
const RECORDS_AT: usize = HEADER_LEN + 4;

/// A revoke block: images of these blocks from this transaction and earlier ones are not
/// replayed, because the blocks were freed and may hold file data now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeBlock {
    /// The transaction.
    pub sequence: Tid,
    /// The revoked blocks.
    pub blocks: Vec<Pblk>,
}

impl RevokeBlock {
    /// Returns the number of records that fit one block.
    #[must_use]
    pub const fn capacity(format: &LogFormat) -> usize {
        (format.usable_len() - RECORDS_AT) / record_len(format)
    }

    /// Reads a revoke block, checking its checksum.
    ///
    /// # Errors
    /// Not a revoke block, a checksum mismatch, a count outside the block.
    pub fn parse(block: &[u8], format: &LogFormat) -> FormatResult<Self> {
        let header = format.check_block(block, BlockType::Revoke)?;
        format.check_tail(block)?;
        let used = be32(block, HEADER_LEN) as usize;
        if !(RECORDS_AT..=format.usable_len()).contains(&used) {
            return Err(FormatError::new(
                Structure::JournalBlock,
                "count",
                used as u64,
                Expected::Between(RECORDS_AT as u64, format.usable_len() as u64),
            )
            .at(HEADER_LEN));
        }
        let records = block.get(RECORDS_AT..used).unwrap_or(&[]);
        let blocks = records
            .chunks_exact(record_len(format))
            .map(|record| {
                Pblk::new(if format.wide {
                    be64(record, 0)
                } else {
                    u64::from(be32(record, 0))
                })
            })
            .collect();
        Ok(Self {
            sequence: header.sequence,
            blocks,
        })
    }

    /// Writes the block, checksum included.
    ///
    /// # Errors
    /// More records than fit, or a block number that needs the `64bit` feature.
    pub fn encode(&self, format: &LogFormat) -> FormatResult<Vec<u8>> {
        let capacity = Self::capacity(format);
        if self.blocks.len() > capacity {
            return Err(FormatError::new(
                Structure::JournalBlock,
                "count",
                self.blocks.len() as u64,
                Expected::AtMost(capacity as u64),
            ));
        }
        let mut block = vec![0; format.block_size.len()];
        Header {
            block_type: BlockType::Revoke,
            sequence: self.sequence,
        }
        .encode(&mut block);
        let len = record_len(format);
        put_be32(
            &mut block,
            HEADER_LEN,
            (RECORDS_AT + self.blocks.len() * len) as u32,
        );
        for (i, revoked) in self.blocks.iter().enumerate() {
            let at = RECORDS_AT + i * len;
            let number = revoked.get();
            if format.wide {
                put_be64(&mut block, at, number);
            } else if let Ok(short) = u32::try_from(number) {
                put_be32(&mut block, at, short);
            } else {
                return Err(FormatError::new(
                    Structure::JournalBlock,
                    "revoked block",
                    number,
                    Expected::AtMost(u64::from(u32::MAX)),
                )
                .at(at));
            }
        }
        format.seal_tail(&mut block);
        Ok(block)
    }
}

const fn record_len(format: &LogFormat) -> usize {
    if format.wide { 8 } else { 4 }
}
