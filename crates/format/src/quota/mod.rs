//! Quota files: what users, groups and projects use and may use.
//!
//! A file is made of blocks of 1 KiB, whatever the block size of the file system. Block 0 is a
//! header. Block 1 is the root of a tree over the bytes of an id, the most significant first; each
//! node is 256 block numbers, and those of the fourth level lead to *leaves*, which hold up to
//! fourteen entries, of any ids. There are two lists: of blocks that are not used, and of leaves
//! with room.
//!
//! | file | owns |
//! |---|---|
//! | `entry` | [`QuotaEntry`]: one id, its use and its limits |
//! | `leaf` | blocks of entries |
//! | `tree` | looking up and listing |
//! | `edit` | setting and removing entries |
//!
//! Source: the formats `vfsv1` and "quota tree" as quotactl(2) and the quota tools' `quotadoc`
//! describe them, and files that Linux and `mke2fs` made.

mod edit;
mod entry;
mod leaf;
#[cfg(test)]
mod tests;
mod tree;

pub use edit::{Edit, EditedBlocks};
pub use entry::QuotaEntry;
pub use leaf::ENTRIES_PER_LEAF;
pub use tree::{QuotaBlocks, find, for_each};

use crate::bytes::{le32, put};
use crate::{Expected, FormatError, FormatResult, Structure};

/// Bytes of a block of a quota file.
pub const BLOCK_LEN: usize = 1024;

/// A block of a quota file.
pub type QuotaBlock = [u8; BLOCK_LEN];

/// The block of the tree's root.
const ROOT: u32 = 1;
/// Levels of nodes above the leaves.
const DEPTH: u32 = 4;
const VERSION: u32 = 1;
const INFO_LEN: usize = 32;

/// The owners that a quota file counts the use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaKind {
    /// Of users, by owner.
    User,
    /// Of groups.
    Group,
    /// Of projects.
    Project,
}

impl QuotaKind {
    /// All, in the order of the superblock's fields.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// The first four bytes of its file.
    #[must_use]
    pub const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }

    /// As people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }
}

/// The header of a quota file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaInfo {
    /// The kind of owners that it is about.
    pub kind: QuotaKind,
    /// Seconds for which the soft limit of space may be exceeded.
    pub space_grace: u32,
    /// Seconds for which the soft limit of inodes may be exceeded.
    pub inode_grace: u32,
    /// As stored; no flag is in use.
    pub flags: u32,
    /// Blocks of the file, those not used included.
    blocks: u32,
    /// The first block that is not used, 0 if all are.
    free_block: u32,
    /// The first leaf with room, 0 if none has any.
    free_entry: u32,
}

impl QuotaInfo {
    /// A week, which Linux allows unless told otherwise.
    pub const GRACE: u32 = 7 * 24 * 3600;

    /// The header of a file without entries: it and the root, both otherwise zero.
    #[must_use]
    pub const fn empty(kind: QuotaKind) -> Self {
        Self {
            kind,
            space_grace: Self::GRACE,
            inode_grace: Self::GRACE,
            flags: 0,
            blocks: ROOT + 1,
            free_block: 0,
            free_entry: 0,
        }
    }

    /// Reads the header at the start of `block`. `file_len` is the length of the whole file in
    /// bytes.
    ///
    /// # Errors
    /// A wrong magic or version, more blocks than the file has, lists that begin outside of it.
    pub fn parse(block: &[u8], kind: QuotaKind, file_len: u64) -> FormatResult<Self> {
        if block.len() < INFO_LEN {
            return Err(FormatError::short(Structure::Quota, block.len(), INFO_LEN));
        }
        let exactly = |field, at, wanted: u32| {
            let found = le32(block, at);
            if found == wanted {
                Ok(())
            } else {
                Err(FormatError::new(
                    Structure::Quota,
                    field,
                    u64::from(found),
                    Expected::Exactly(u64::from(wanted)),
                )
                .at(at))
            }
        };
        exactly("magic", 0, kind.magic())?;
        exactly("version", 4, VERSION)?;
        let blocks = le32(block, 20);
        let most = file_len / BLOCK_LEN as u64;
        if blocks <= ROOT || u64::from(blocks) > most {
            let expected = Expected::Between(u64::from(ROOT) + 1, most);
            let found = u64::from(blocks);
            return Err(FormatError::new(Structure::Quota, "blocks", found, expected).at(20));
        }
        let info = Self {
            kind,
            space_grace: le32(block, 8),
            inode_grace: le32(block, 12),
            flags: le32(block, 16),
            blocks,
            free_block: le32(block, 24),
            free_entry: le32(block, 28),
        };
        info.check_link("free_blk", info.free_block, 24)?;
        info.check_link("free_entry", info.free_entry, 28)?;
        Ok(info)
    }

    /// Writes the header to the start of `block`.
    pub fn encode(&self, block: &mut QuotaBlock) {
        let words = [
            self.kind.magic(),
            VERSION,
            self.space_grace,
            self.inode_grace,
            self.flags,
            self.blocks,
            self.free_block,
            self.free_entry,
        ];
        for (i, word) in words.into_iter().enumerate() {
            put(block, i * 4, &word.to_le_bytes());
        }
    }

    /// Length of the file in bytes, blocks that are not used included.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        u64::from(self.blocks) * BLOCK_LEN as u64
    }

    /// Refuses a number that is neither 0 nor a block after the root.
    fn check_link(&self, field: &'static str, block: u32, at: usize) -> FormatResult<()> {
        if block == 0 {
            return Ok(());
        }
        self.check_block(field, block, at)
    }

    /// Refuses a number that is no block after the root.
    fn check_block(&self, field: &'static str, block: u32, at: usize) -> FormatResult<()> {
        if block > ROOT && block < self.blocks {
            return Ok(());
        }
        let expected = if self.blocks > ROOT + 1 {
            Expected::Between(u64::from(ROOT) + 1, u64::from(self.blocks) - 1)
        } else {
            Expected::Exactly(0)
        };
        Err(FormatError::new(Structure::Quota, field, u64::from(block), expected).at(at))
    }
}

/// The byte of a node of `level` (0 is the root) where the number of the block below it lies that
/// leads to `id`.
const fn reference_at(id: u32, level: u32) -> usize {
    ((id >> (8 * (DEPTH - 1 - level))) & 0xff) as usize * 4
}
