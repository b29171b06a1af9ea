//! What is told.

use crate::{DeviceNumber, Extent, FileFlags, FileType, Timestamp};
use std::ffi::OsString;
use std::path::PathBuf;

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// That which was named first.
    First,
    /// That which was named second.
    Second,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The path from the two starts on, with a `/` in front: the starts themselves are `/`.
    pub path: PathBuf,
    /// What differs there.
    pub what: What,
}

/// What differs. Pairs have the value of the first side first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// One side does not have it, nor what is below it.
    OnlyIn(Which, FileType),
    /// They are of two kinds. Nothing else is compared then, nor what is below.
    Kind(FileType, FileType),
    /// The bytes of a regular file.
    Content {
        /// Bytes of the files.
        sizes: (u64, u64),
        /// The first byte that differs; `None` where the sizes do, and nothing was read.
        at: Option<u64>,
    },
    /// Where a symbolic link leads.
    Target(Vec<u8>, Vec<u8>),
    /// Permissions.
    Mode(u16, u16),
    /// Owner and group.
    Owner((u32, u32), (u32, u32)),
    /// When the content was changed last.
    Time(Timestamp, Timestamp),
    /// An extended attribute, by its full name; `None` where a side does not have it.
    Xattr(OsString, Option<Vec<u8>>, Option<Vec<u8>>),
    /// Which earlier name, of those on both sides, stands for the same file; `None` for none.
    Link(Option<PathBuf>, Option<PathBuf>),
    /// The number of a device node.
    Device(DeviceNumber, DeviceNumber),
    /// The project.
    Project(u32, u32),
    /// The flags of `chattr` that were compared.
    Flags(FileFlags, FileFlags),
    /// The pieces of a regular file that only one of the two has there.
    Layout {
        /// Those of the first side.
        first: Vec<Extent>,
        /// Those of the second side.
        second: Vec<Extent>,
        /// Whether the content was found to be the same; `None` where it was not compared.
        is_same_content: Option<bool>,
    },
}
