//! What cannot be placed.

use crate::maps::MapError;
use extant_format::FormatError;
use std::path::PathBuf;

/// Result of placing.
pub type PlaceResult<T> = Result<T, PlaceError>;

/// A source that does not fit the file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The image is too small.
    #[error(
        "no space left in the image: {used} blocks are placed and {more} more do not fit; \
         ask for a larger --size, or --size auto"
    )]
    NoSpace {
        /// Allocation units in use.
        used: u64,
        /// Units asked for.
        more: u64,
    },
    /// Too few inodes.
    #[error(
        "the source needs {needed} inodes and the image has {available}; ask for more with --inodes, or --size auto"
    )]
    NoInodes {
        /// Inodes the source needs, reserved ones included.
        needed: u64,
        /// Inodes of the image.
        available: u64,
    },
    /// More names for a file than ext4 counts.
    #[error("{} has {found} names, ext4 allows {limit}", path.display())]
    TooManyLinks {
        /// The file.
        path: PathBuf,
        /// Its names.
        found: u32,
        /// The limit.
        limit: u32,
    },
    /// More subdirectories than can be counted.
    #[error(
        "{} has {found} links from its subdirectories, {limit} are allowed without the feature dir_nlink",
        path.display()
    )]
    TooManySubdirectories {
        /// The directory.
        path: PathBuf,
        /// Its link count.
        found: u32,
        /// The limit.
        limit: u32,
    },
    /// A directory beyond the reach of its index.
    #[error(
        "the directory of inode {ino} holds {names} names, more than its index can reach; use --features large_dir"
    )]
    DirectoryTooLarge {
        /// The directory.
        ino: u32,
        /// Its names.
        names: u64,
    },
    /// A file longer than a file may be.
    #[error(
        "{} is {found} bytes long, the image's files may have {limit}; use a larger block size{}",
        path.display(),
        if *indirect { ", or the feature extent" } else { "" }
    )]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
        /// Whether files are mapped by indirect maps, which reach less far.
        indirect: bool,
    },
    /// Something else has the name of the directory that a check puts its finds into.
    #[error(
        "{} of the source is not a directory, as a file system's must be; exclude or rename it",
        path.display()
    )]
    LostAndFound {
        /// The file.
        path: PathBuf,
    },
    /// A file beyond what its map can reach.
    #[error(
        "block {block} of a file is beyond the {reach} blocks its map can reach; use a larger block size or the feature extent"
    )]
    Unmappable {
        /// The logical block.
        block: u64,
        /// Blocks that can be reached.
        reach: u64,
    },
    /// A block number too large for an indirect map.
    #[error(
        "block {block} of the image cannot be named in an indirect map, which has 32 bits; use the feature extent"
    )]
    BeyondIndirect {
        /// The physical block.
        block: u64,
    },
    /// A symbolic link longer than a block.
    #[error("the target of {} is {found} bytes long, at most {limit} fit", path.display())]
    SymlinkTooLong {
        /// The link.
        path: PathBuf,
        /// Length of its target.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A device number the format cannot hold.
    #[error("the device number {major}:{minor} of {} does not fit ext4, which has 12 and 20 bits", path.display())]
    DeviceNumber {
        /// The device.
        path: PathBuf,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// An extended attribute that ext4 cannot hold.
    #[error("the extended attribute {name} of {} cannot be stored: {reason}", path.display())]
    Xattr {
        /// The file.
        path: PathBuf,
        /// The attribute.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A number that does not fit the format.
    #[error("{0}")]
    Format(#[from] FormatError),
}

impl From<MapError> for PlaceError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Unmappable { block, reach } => Self::Unmappable { block, reach },
            MapError::BeyondIndirect { block } => Self::BeyondIndirect { block },
            MapError::Format(error) => Self::Format(error),
        }
    }
}
