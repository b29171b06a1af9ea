//! What a transaction has changed.

use crate::inode::RegisteredInode;
use extant_format::{Group, Pblk};

/// Objects registered in the running transaction by the threads of one CPU shard. Commit takes the
/// lists of all shards when the gate is closed and drained.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Blocks whose newest image is in the metadata cache.
    pub(crate) blocks: Vec<Pblk>,
    /// Inodes.
    pub(crate) inodes: Vec<RegisteredInode>,
    /// Groups: descriptor and both bitmaps.
    pub(crate) groups: Vec<Group>,
    /// Blocks of the orphan file, by index.
    pub(crate) orphan_blocks: Vec<u32>,
    /// Whether the superblock changed.
    pub(crate) superblock: bool,
    /// Blocks that no longer are metadata: their images, in this transaction and in the log, are void.
    pub(crate) revoked: Vec<Pblk>,
}

impl Touched {
    /// Whether nothing is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
            && self.inodes.is_empty()
            && self.groups.is_empty()
            && self.orphan_blocks.is_empty()
            && !self.superblock
            && self.revoked.is_empty()
    }

    /// Takes all that `other` holds but its inodes, of which there may be many: those are returned.
    pub(crate) fn append(&mut self, other: &mut Self) -> Vec<RegisteredInode> {
        self.blocks.append(&mut other.blocks);
        self.groups.append(&mut other.groups);
        self.orphan_blocks.append(&mut other.orphan_blocks);
        self.superblock |= std::mem::take(&mut other.superblock);
        self.revoked.append(&mut other.revoked);
        std::mem::take(&mut other.inodes)
    }
}
