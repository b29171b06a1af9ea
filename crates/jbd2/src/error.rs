//! Errors of the journal: what was found in which journal block.

use extant_blockdev::DeviceError;
use extant_format::{BlockSize, FormatError, Pblk, Tid};

/// Result of reading the journal.
pub type JournalResult<T> = Result<T, JournalError>;

/// A journal that cannot be used or replayed. Block numbers count from the start of the journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The device failed.
    #[error("journal block {block}: {source}")]
    Device {
        /// The journal block.
        block: u32,
        /// What the device said.
        source: DeviceError,
    },
    /// The journal superblock is not sound.
    #[error(transparent)]
    Superblock(#[from] FormatError),
    /// The journal has blocks of another size than the file system.
    #[error("the journal has blocks of {journal} bytes, the file system of {filesystem}")]
    BlockSize {
        /// In the journal superblock.
        journal: BlockSize,
        /// Of the file system.
        filesystem: BlockSize,
    },
    /// The blocks of the journal inode do not form one range from block 0.
    #[error("journal block {block} is not mapped, or mapped twice")]
    Mapping {
        /// The first such block.
        block: u32,
    },
    /// The journal inode has fewer blocks than its superblock says.
    #[error("the journal is {mapped} blocks long, its superblock says {needed}")]
    TooShort {
        /// Blocks of the inode.
        mapped: u32,
        /// Blocks by the superblock.
        needed: u32,
    },
    /// A record of a committed transaction is damaged.
    #[error("journal block {block} of transaction {tid}: {source}")]
    Corrupt {
        /// The journal block.
        block: u32,
        /// The transaction.
        tid: Tid,
        /// What is wrong.
        source: FormatError,
    },
    /// A commit block is damaged although the log goes on after it.
    #[error(
        "journal block {block}: the commit of transaction {tid} is damaged ({source}), \
         but the log goes on after it"
    )]
    DamagedCommit {
        /// The journal block.
        block: u32,
        /// The transaction.
        tid: Tid,
        /// What is wrong.
        source: FormatError,
    },
    /// A block in the log belongs outside the file system.
    #[error(
        "journal block {block} of transaction {tid} belongs to block {target}, \
         but the file system has {limit} blocks"
    )]
    Target {
        /// The journal block with the tag.
        block: u32,
        /// The transaction.
        tid: Tid,
        /// Where the tag points.
        target: Pblk,
        /// Blocks of the file system.
        limit: u64,
    },
    /// There are fast commits after the last transaction, which cannot be replayed yet.
    #[error(
        "fast commits of transaction {tid} wait for replay in journal block {block}; \
         replay them under Linux first: mount the file system once, or run e2fsck on it"
    )]
    FastCommitPending {
        /// The transaction they stand for.
        tid: Tid,
        /// The journal block with the end of the first fast commit.
        block: u32,
    },
}
