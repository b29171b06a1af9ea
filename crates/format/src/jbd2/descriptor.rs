//! Descriptor blocks and the tags in them.

use super::fields::{be16, be32, put, put_be16, put_be32};
use super::{BlockType, HEADER_LEN, Header, LogChecksum, LogFormat, MAGIC};
use crate::{Expected, FormatError, FormatResult, Pblk, Structure, Tid};
use alloc::vec;
use alloc::vec::Vec;

const FLAG_ESCAPE: u32 = 1;
const FLAG_SAME_UUID: u32 = 2;
const FLAG_DELETED: u32 = 4;
const FLAG_LAST_TAG: u32 = 8;
const UUID_LEN: usize = 16;

/// Where one data block of the log belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block's home.
    pub block: Pblk,
    /// The first four bytes were the journal's magic and lie in the log as zeros.
    pub escaped: bool,
    /// The block was deleted by the transaction (written by nobody; kept for completeness).
    pub deleted: bool,
    /// Checksum of the data: 32 bits in v3, the low 16 in v2, zero otherwise.
    pub checksum: u32,
}

impl Tag {
    /// Makes a tag for `data`, which becomes block `block`; `data` is as it lies in the log,
    /// `escaped` says whether [`escape`] changed it.
    #[must_use]
    pub fn new(format: &LogFormat, sequence: Tid, block: Pblk, data: &[u8], escaped: bool) -> Self {
        let sum = || format.data_checksum(sequence, data);
        Self {
            block,
            escaped,
            deleted: false,
            checksum: match format.checksum {
                LogChecksum::V3 => sum(),
                LogChecksum::V2 => sum() & 0xffff,
                LogChecksum::None | LogChecksum::CommitOnly => 0,
            },
        }
    }

    /// Checks `data`, as it lies in the log, against the checksum of the tag.
    ///
    /// # Errors
    /// A checksum mismatch.
    pub fn verify(&self, format: &LogFormat, sequence: Tid, data: &[u8]) -> FormatResult<()> {
        let computed = match format.checksum {
            LogChecksum::V3 => format.data_checksum(sequence, data),
            LogChecksum::V2 => format.data_checksum(sequence, data) & 0xffff,
            LogChecksum::None | LogChecksum::CommitOnly => return Ok(()),
        };
        if self.checksum != computed {
            return Err(FormatError::checksum(
                Structure::JournalBlock,
                self.checksum,
                computed,
            ));
        }
        Ok(())
    }
}

/// Returns whether a data block must be escaped: its first four bytes would make it look like a
/// record.
#[must_use]
pub fn needs_escape(data: &[u8]) -> bool {
    be32(data, 0) == MAGIC
}

/// Takes the magic out of a data block that goes into the log.
pub fn escape(data: &mut [u8]) {
    put_be32(data, 0, 0);
}

/// Puts the magic back into a data block that was escaped.
pub fn restore_escaped(data: &mut [u8]) {
    put_be32(data, 0, MAGIC);
}

/// A descriptor block: one tag for each of the data blocks that follow it in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorBlock {
    /// The transaction.
    pub sequence: Tid,
    /// In the order of the data blocks.
    pub tags: Vec<Tag>,
}

impl DescriptorBlock {
    /// Returns the number of tags that fit one block written by [`DescriptorBlock::encode`].
    #[must_use]
    pub const fn capacity(format: &LogFormat) -> usize {
        (format.usable_len() - HEADER_LEN - UUID_LEN) / format.tag_len()
    }

    /// Reads a descriptor block, checking its checksum.
    ///
    /// # Errors
    /// Not a descriptor block, or a checksum mismatch.
    pub fn parse(block: &[u8], format: &LogFormat) -> FormatResult<Self> {
        let header = format.check_block(block, BlockType::Descriptor)?;
        format.check_tail(block)?;
        Ok(Self {
            sequence: header.sequence,
            tags: Self::read_tags(block, format),
        })
    }

    /// Reads the tags without looking at the checksum, as far as they make sense. A scan that
    /// found a bad checksum still has to know how many data blocks to step over.
    #[must_use]
    pub fn read_tags(block: &[u8], format: &LogFormat) -> Vec<Tag> {
        let tag_len = format.tag_len();
        let end = format.usable_len().min(block.len());
        let mut tags = Vec::new();
        let mut at = HEADER_LEN;
        while at + tag_len <= end {
            let (tag, flags) = read_tag(block, at, format);
            tags.push(tag);
            at += tag_len;
            if flags & FLAG_SAME_UUID == 0 {
                at += UUID_LEN;
            }
            if flags & FLAG_LAST_TAG != 0 {
                break;
            }
        }
        tags
    }

    /// Writes the block, checksum included.
    ///
    /// # Errors
    /// No tags, more than fit, or a block number that needs the `64bit` feature.
    pub fn encode(&self, format: &LogFormat) -> FormatResult<Vec<u8>> {
        let capacity = Self::capacity(format);
        if self.tags.is_empty() || self.tags.len() > capacity {
            return Err(FormatError::new(
                Structure::JournalBlock,
                "tags",
                self.tags.len() as u64,
                Expected::Between(1, capacity as u64),
            ));
        }
        let mut block = vec![0; format.block_size.len()];
        Header {
            block_type: BlockType::Descriptor,
            sequence: self.sequence,
        }
        .encode(&mut block);
        let mut at = HEADER_LEN;
        for (i, tag) in self.tags.iter().enumerate() {
            let mut flags = 0;
            if i > 0 {
                flags |= FLAG_SAME_UUID;
            }
            if i + 1 == self.tags.len() {
                flags |= FLAG_LAST_TAG;
            }
            write_tag(&mut block, at, format, tag, flags)?;
            at += format.tag_len();
            if i == 0 {
                put(&mut block, at, &format.uuid);
                at += UUID_LEN;
            }
        }
        format.seal_tail(&mut block);
        Ok(block)
    }
}

fn read_tag(block: &[u8], at: usize, format: &LogFormat) -> (Tag, u32) {
    let low = be32(block, at);
    let v3 = format.checksum == LogChecksum::V3;
    let (flags, checksum) = if v3 {
        (be32(block, at + 4), be32(block, at + 12))
    } else if format.checksum == LogChecksum::V2 {
        (
            u32::from(be16(block, at + 6)),
            u32::from(be16(block, at + 4)),
        )
    } else {
        (u32::from(be16(block, at + 6)), 0)
    };
    let high = if format.wide { be32(block, at + 8) } else { 0 };
    let tag = Tag {
        block: Pblk::new(u64::from(high) << 32 | u64::from(low)),
        escaped: flags & FLAG_ESCAPE != 0,
        deleted: flags & FLAG_DELETED != 0,
        checksum,
    };
    (tag, flags)
}

fn write_tag(
    block: &mut [u8],
    at: usize,
    format: &LogFormat,
    tag: &Tag,
    mut flags: u32,
) -> FormatResult<()> {
    let number = tag.block.get();
    if !format.wide && number > u64::from(u32::MAX) {
        return Err(FormatError::new(
            Structure::JournalBlock,
            "blocknr",
            number,
            Expected::AtMost(u64::from(u32::MAX)),
        )
        .at(at));
    }
    if tag.escaped {
        flags |= FLAG_ESCAPE;
    }
    if tag.deleted {
        flags |= FLAG_DELETED;
    }
    put_be32(block, at, number as u32);
    match format.checksum {
        LogChecksum::V3 => {
            put_be32(block, at + 4, flags);
            put_be32(block, at + 8, (number >> 32) as u32);
            put_be32(block, at + 12, tag.checksum);
            return Ok(());
        }
        LogChecksum::V2 => put_be16(block, at + 4, tag.checksum as u16),
        LogChecksum::None | LogChecksum::CommitOnly => {}
    }
    put_be16(block, at + 6, flags as u16);
    if format.wide {
        put_be32(block, at + 8, (number >> 32) as u32);
    }
    Ok(())
}
