//! What `statfs` tells.

use extant_format::BlockSize;

/// Space and inodes of a file system, as `statfs` reports them. Counts are in blocks of
/// `block_size`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatFs {
    /// The block size.
    pub block_size: BlockSize,
    /// Blocks that files could use: all but the fixed metadata.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that unprivileged users may take.
    pub available: u64,
    /// Free blocks that privileged users may take: all but a few that maps may need.
    pub available_to_root: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Longest name of a directory entry, in bytes.
    pub name_len: u32,
    /// The UUID.
    pub uuid: [u8; 16],
}
