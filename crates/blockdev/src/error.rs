//! Errors of devices: one sentence each, with the place and the numbers that explain it.

use crate::errno::{self, of};
use std::io;
use std::path::PathBuf;

/// Result of a device operation.
pub type DeviceResult<T> = Result<T, DeviceError>;

/// A device operation that failed: what was tried, where, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system refused or broke the operation.
    #[error("cannot {op} {len} bytes at offset {offset} of {device}: {source}")]
    Io {
        /// The operation, as a verb (`read`, `write`, `flush`).
        op: &'static str,
        /// Name of the device.
        device: String,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The range does not lie on the device.
    #[error("cannot {op} {len} bytes at offset {offset} of {device}, which ends at byte {size}")]
    OutOfRange {
        /// The operation, as a verb.
        op: &'static str,
        /// Name of the device.
        device: String,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// A file ended before the size it had when it was opened.
    #[error(
        "{device} shrank while it was in use: it had {size} bytes when it was opened, \
         but nothing could be read at offset {offset}"
    )]
    Shrunk {
        /// Name of the device.
        device: String,
        /// Byte offset at which the data ended.
        offset: u64,
        /// Size in bytes that the device should have.
        size: u64,
    },
    /// A write to a device that was opened for reading.
    #[error("{device} is open for reading only")]
    ReadOnly {
        /// Name of the device.
        device: String,
    },
    /// The file could not be opened, locked or sized.
    #[error("cannot {op} {}: {source}", path.display())]
    Open {
        /// What was tried, as a verb (`open`, `lock`, `resize`).
        op: &'static str,
        /// The path given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path names something that cannot hold blocks.
    #[error("{} is {kind}, not a regular file or a block device", path.display())]
    NotADevice {
        /// The path given.
        path: PathBuf,
        /// What it is, with its article (`a directory`).
        kind: &'static str,
    },
    /// Somebody else has the device open for writing, or it is mounted.
    #[error("{} is in use: another program has it open for writing or mounted", path.display())]
    InUse {
        /// The path given.
        path: PathBuf,
    },
    /// A server does not give an export, or not in the way that is asked for.
    #[error("cannot use {device}: {reason}")]
    Export {
        /// The address of the export.
        device: String,
        /// Why, as a clause.
        reason: String,
        /// The error number that tells about the same.
        errno: i32,
    },
    /// A loop device stands on the file.
    #[error(
        "{} is in use: the loop device {device} stands on it (losetup -d {device} detaches it)",
        path.display()
    )]
    Attached {
        /// The path given.
        path: PathBuf,
        /// The path of the loop device.
        device: String,
    },
    /// A block device cannot grow to the size asked for.
    #[error("{} holds {available} bytes, fewer than the {wanted} bytes asked for", path.display())]
    TooSmall {
        /// The path given.
        path: PathBuf,
        /// Size asked for, in bytes.
        wanted: u64,
        /// Size of the device, in bytes.
        available: u64,
    },
    /// The file cannot be read and written past the page cache.
    #[error("direct I/O is not possible on {}: {reason}", path.display())]
    NoDirectIo {
        /// The path given.
        path: PathBuf,
        /// Why, as a clause.
        reason: String,
    },
    /// A window that does not lie on its device.
    #[error(
        "{what} covers {len} bytes from offset {offset}, but {device} ends at byte {size}: \
         the image is cut short or the numbers are wrong"
    )]
    BadWindow {
        /// What wants the window (`the window`, `partition 2`).
        what: String,
        /// Name of the device underneath.
        device: String,
        /// First byte of the window.
        offset: u64,
        /// Length of the window in bytes.
        len: u64,
        /// Size of the device underneath in bytes.
        size: u64,
    },
    /// An offset and a partition were both given.
    #[error(
        "both partition {partition} and offset {offset} were given: only one can say where the file system starts"
    )]
    TwoPlaces {
        /// The partition number given.
        partition: u32,
        /// The byte offset given.
        offset: u64,
    },
    /// There is neither a GPT nor an MBR on the device.
    #[error("{device} has no partition table: neither a GPT nor an MBR was found")]
    NoPartitionTable {
        /// Name of the device.
        device: String,
    },
    /// The partition table is damaged.
    #[error("the {table} partition table of {device} is damaged: {reason}")]
    BadPartitionTable {
        /// Name of the device.
        device: String,
        /// `GPT` or `MBR`.
        table: &'static str,
        /// What was found and what was expected.
        reason: String,
    },
    /// The partition asked for does not exist.
    #[error("{device} has no partition {wanted}: {present}")]
    NoSuchPartition {
        /// Name of the device.
        device: String,
        /// The partition number asked for.
        wanted: u32,
        /// The partitions that exist, as a clause.
        present: String,
    },
    /// What is there cannot be opened, or not in the way asked for.
    #[error("{place}: {reason}")]
    Refused {
        /// The path or address given.
        place: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The request was never started, because one before it in the batch failed.
    #[error("not done, because an earlier request of the same batch failed")]
    Cancelled,
}

impl DeviceError {
    /// Returns the one error number that tells a POSIX program the same, for example `EIO`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io { source, .. } | Self::Open { source, .. } => of(source),
            Self::Export { errno, .. } => *errno,
            Self::OutOfRange { .. } | Self::Shrunk { .. } | Self::Cancelled => errno::IO,
            Self::ReadOnly { .. } => errno::ROFS,
            Self::NotADevice {
                kind: "a directory",
                ..
            } => errno::ISDIR,
            Self::NotADevice { .. } => errno::NOTBLK,
            Self::InUse { .. } | Self::Attached { .. } => errno::BUSY,
            Self::TooSmall { .. } => errno::NOSPC,
            Self::NoDirectIo { .. } | Self::Refused { .. } => errno::OPNOTSUPP,
            Self::BadWindow { .. } | Self::TwoPlaces { .. } | Self::BadPartitionTable { .. } => {
                errno::INVAL
            }
            Self::NoPartitionTable { .. } | Self::NoSuchPartition { .. } => errno::NXIO,
        }
    }
}
