//! Errors of the journal: what was found in which journal block.

use extant_blockdev::DeviceError;
use extant_format::{BlockSize, FormatError, Pblk, Tid};

/// Result of reading or writing the journal.
pub type JournalResult<T> = Result<T, JournalError>;

/// A journal that cannot be used, replayed or written. Block numbers count from the start of the
/// journal.
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
    /// The device that was given for the journal holds none that can be used.
    #[error("on the device that was given for it: {0}")]
    NoJournal(FormatError),
    /// The device that was given for the journal holds that of another file system.
    #[error(
        "this is the journal {}, that of the file system is {}",
        uuid(found),
        uuid(expected)
    )]
    OtherJournal {
        /// The UUID on the device.
        found: [u8; 16],
        /// The UUID that the file system names.
        expected: [u8; 16],
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
    /// There are fast commits after the last transaction, and what was asked for needs them
    /// replayed.
    #[error(
        "fast commits of transaction {tid} wait for replay up to journal block {block}; \
         open the file system for writing once to replay them"
    )]
    FastCommitPending {
        /// The transaction they stand for.
        tid: Tid,
        /// The journal block with the end of the last one.
        block: u32,
    },
    /// Fast commits wait for replay that use features this program does not know.
    #[error("fast commits wait for replay that use unknown features ({bits:#x})")]
    FastCommitFeatures {
        /// The features.
        bits: u32,
    },
    /// The device failed at a block outside the journal.
    #[error("replaying block {block}: {source}")]
    Home {
        /// The block of the file system.
        block: Pblk,
        /// What the device said.
        source: DeviceError,
    },
    /// The device failed to make replayed blocks durable.
    #[error("replaying the journal: {source}")]
    HomeFlush {
        /// What the device said.
        source: DeviceError,
    },
    /// An image in the log belongs into the log itself: replaying it would destroy what is being
    /// replayed.
    #[error("the journal holds an image of block {target}, which is part of the journal")]
    TargetInLog {
        /// Where the image belongs.
        target: Pblk,
    },
    /// The journal has features this program may not write.
    #[error("the journal may only be read: unknown read-only features {bits:#x}")]
    ReadOnlyFeatures {
        /// The features, as stored.
        bits: u32,
    },
    /// A transaction needs more blocks than the log has free.
    #[error("transaction {tid} needs {needed} blocks of the journal, {free} are free")]
    Full {
        /// The transaction.
        tid: Tid,
        /// Blocks it needs.
        needed: u32,
        /// Blocks that are free.
        free: u32,
    },
    /// A transaction was given out of turn.
    #[error("transaction {found} was given to the journal where {expected} is next")]
    OutOfTurn {
        /// The transaction given.
        found: Tid,
        /// The one whose turn it is.
        expected: Tid,
    },
    /// An image that is not one block long.
    #[error("the image of block {block} has {found} bytes, blocks have {expected}")]
    ImageSize {
        /// The block.
        block: Pblk,
        /// Bytes of the image.
        found: usize,
        /// Bytes of a block.
        expected: usize,
    },
    /// A record that cannot be encoded, such as a block number beyond the journal's tags.
    #[error("transaction {tid} cannot be written to the journal: {source}")]
    Encode {
        /// The transaction.
        tid: Tid,
        /// What does not fit.
        source: FormatError,
    },
    /// The log was not written any more after the device failed.
    #[error("the journal was stopped by an earlier error of the device")]
    Stopped,
}

/// In the form of RFC 9562.
fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
