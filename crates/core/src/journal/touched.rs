//! What a transaction has changed.

use crate::inode::LiveInode;
use crate::meta::BlockRef;
use extant_format::{Group, Pblk};
use std::sync::Arc;

/// Objects registered in the running transaction by the threads of one CPU shard. Commit takes the
/// lists of all shards when the gate is closed and drained.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Blocks whose newest image is in the metadata cache.
    pub(crate) blocks: Vec<Pblk>,
    /// Inodes, each with the block of the inode table that holds it, which stays in memory so.
    pub(crate) inodes: Vec<(Arc<LiveInode>, BlockRef)>,
    /// Groups: descriptor and both bitmaps.
    pub(crate) groups: Vec<Group>,
    /// Blocks of the orphan file, by index.
    pub(crate) orphan_blocks: Vec<u32>,
    /// Whether the superblock changed.
    pub(crate) superblock: bool,
    /// Blocks that no longer are metadata: their images, in this transaction and in the log, are void.
    pub(crate) revoked: Vec<Pblk>,
}
