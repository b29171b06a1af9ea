//! The superblock of a device that holds a journal and no file system.
//!
//! It lies where that of a file system would, and has the feature `journal_dev`. Of its fields
//! those count that say how large the device is and which journal it holds. Source: the kernel's
//! `Documentation/filesystems/ext4/journal.rst`, "External Journal".

use super::{MAGIC, Superblock, error, features_of, verify_checksum};
use crate::features::Incompat;
use crate::{BlockSize, Expected, FormatResult};

/// What the superblock of an external journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalDevice {
    /// The name of the journal, which the file system that it belongs to has too.
    pub uuid: [u8; 16],
    /// Size of the blocks of the journal and of that file system.
    pub block_size: BlockSize,
    /// Blocks of the device.
    pub blocks: u64,
}

impl JournalDevice {
    /// Reads the superblock in the first 1024 of `bytes`.
    ///
    /// # Errors
    /// Anything but an external journal; a wrong checksum under `metadata_csum`.
    pub fn parse(bytes: &[u8]) -> FormatResult<Self> {
        let raw = Superblock::read_raw(bytes)?;
        if raw.magic.get() != MAGIC {
            return Err(error("magic", raw.magic, Expected::Exactly(MAGIC.into())));
        }
        let features = features_of(&raw);
        if !features.incompat.contains(Incompat::JOURNAL_DEV) {
            let expected = Expected::Said("an external journal, not a file system");
            return Err(error("feature_incompat", raw.feature_incompat, expected));
        }
        verify_checksum(&raw)?;
        let log = raw.log_block_size;
        let block_size = log.get().checked_add(10).and_then(BlockSize::from_log2);
        let high = if features.incompat.contains(Incompat::BIT64) {
            u64::from(raw.blocks_count_hi.get()) << 32
        } else {
            0
        };
        Ok(Self {
            uuid: raw.uuid,
            block_size: block_size
                .ok_or_else(|| error("log_block_size", log, Expected::AtMost(6)))?,
            blocks: high | u64::from(raw.blocks_count_lo.get()),
        })
    }
}
