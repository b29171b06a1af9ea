//! A transaction as blocks of the log.
//!
//! ```text
//! revoke*  (descriptor image*)*  commit
//! ```
//!
//! Images go to the device from where the caller keeps them; only those that must be escaped are
//! copied.

use crate::{JournalError, JournalResult};
use extant_blockdev::AlignedBuf;
use extant_format::jbd2::{
    DescriptorBlock, LogChecksum, LogFormat, RevokeBlock, Tag, TransactionCrc, escape, needs_escape,
};
use extant_format::{Pblk, Tid};

/// The new content of a block.
#[derive(Clone, Copy, Debug)]
pub struct LogImage<'a> {
    /// The block's home.
    pub block: Pblk,
    /// One block.
    pub bytes: &'a [u8],
}

/// A transaction to be appended to the log.
#[derive(Clone, Copy, Debug)]
pub struct LogTransaction<'a> {
    /// Its number: one more than that of the transaction before.
    pub tid: Tid,
    /// The blocks it changes, each of them once.
    pub images: &'a [LogImage<'a>],
    /// The blocks it freed whose earlier images must not be replayed. A block that is also in
    /// `images` would not be replayed either: to log it again is to take its revoke back.
    pub revokes: &'a [Pblk],
}

/// Blocks a transaction takes in a log of this format, its commit block included.
pub(super) fn blocks_needed(format: &LogFormat, images: usize, revokes: usize) -> u64 {
    let descriptors = images.div_ceil(DescriptorBlock::capacity(format));
    let revokes = revokes.div_ceil(RevokeBlock::capacity(format));
    (images as u64)
        .saturating_add(descriptors as u64)
        .saturating_add(revokes as u64)
        .saturating_add(1)
}

/// A block of the log.
pub(super) enum LogBlock<'a> {
    /// A record, or a copy of an image that had to be escaped. Aligned, so that the whole
    /// transaction can go to a direct device in one piece.
    Own(AlignedBuf),
    /// An image as the caller has it.
    Image(&'a [u8]),
}

impl LogBlock<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Image(bytes) => bytes,
        }
    }
}

/// A transaction without its commit block, in the order of the log.
pub(super) struct Encoded<'a> {
    pub(super) blocks: Vec<LogBlock<'a>>,
    /// For the commit block, where the format has a checksum there only.
    pub(super) crc: Option<u32>,
}

impl<'a> Encoded<'a> {
    /// # Errors
    /// An image that is not a block, a block number the format has no room for.
    pub(super) fn new(format: &LogFormat, tx: &LogTransaction<'a>) -> JournalResult<Self> {
        let tid = tx.tid;
        let encode = |source| JournalError::Encode { tid, source };
        let mut blocks = Vec::new();
        for revoked in tx.revokes.chunks(RevokeBlock::capacity(format)) {
            let record = RevokeBlock {
                sequence: tid,
                blocks: revoked.to_vec(),
            };
            let bytes = record.encode(format).map_err(encode)?;
            blocks.push(LogBlock::Own(AlignedBuf::copy_of(&bytes)));
        }
        let first_descriptor = blocks.len();
        for images in tx.images.chunks(DescriptorBlock::capacity(format)) {
            let mut tags = Vec::with_capacity(images.len());
            let mut data = Vec::with_capacity(images.len());
            for image in images {
                let (tag, block) = encode_image(format, tid, image)?;
                tags.push(tag);
                data.push(block);
            }
            let record = DescriptorBlock {
                sequence: tid,
                tags,
            };
            let bytes = record.encode(format).map_err(encode)?;
            blocks.push(LogBlock::Own(AlignedBuf::copy_of(&bytes)));
            blocks.append(&mut data);
        }
        let crc = (format.checksum == LogChecksum::CommitOnly).then(|| {
            let mut crc = TransactionCrc::new();
            for block in blocks.iter().skip(first_descriptor) {
                crc.update(block.bytes());
            }
            crc.value()
        });
        Ok(Self { blocks, crc })
    }
}

fn encode_image<'a>(
    format: &LogFormat,
    tid: Tid,
    image: &LogImage<'a>,
) -> JournalResult<(Tag, LogBlock<'a>)> {
    if image.bytes.len() != format.block_size.len() {
        return Err(JournalError::ImageSize {
            block: image.block,
            found: image.bytes.len(),
            expected: format.block_size.len(),
        });
    }
    let escaped = needs_escape(image.bytes);
    let block = if escaped {
        let mut copy = AlignedBuf::copy_of(image.bytes);
        escape(&mut copy);
        LogBlock::Own(copy)
    } else {
        LogBlock::Image(image.bytes)
    };
    let tag = Tag::new(format, tid, image.block, block.bytes(), escaped);
    Ok((tag, block))
}
