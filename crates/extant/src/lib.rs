//! ext4 in user space, in the manner of [`std::fs`].
//!
//! Open an image, a partition of a disk image or any [`SharedDevice`], then use paths as you would
//! with the standard library. Nothing here needs root or a mount. [`Filesystem::open`] never writes to the image;
//! [`Filesystem::open_writable`] changes it through its journal.
//!
//! ```no_run
//! use extant::Filesystem;
//! use std::io::Read;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = Filesystem::open("rootfs.img")?;
//! for entry in fs.read_dir("/etc")? {
//!     println!("{}", entry?.file_name().display());
//! }
//! let mut text = String::new();
//! fs.open_file("/etc/hostname")?.read_to_string(&mut text)?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `filesystem` | [`Filesystem`]: opening, and everything that starts with a path |
//! | `path` | from a path to an inode: symbolic links, `..`, limits |
//! | `file` | [`File`] |
//! | `read_dir` | [`ReadDir`]: one directory |
//! | `walk` | [`Walk`]: everything below a directory |
//! | `metadata` | [`Metadata`] |
//! | `quota` | what users, groups and projects use and may use |
//! | `error` | [`Error`]: which path, and why |
//! | [`export`] | taking many files out: to a directory, or as a tar archive |
//!
//! # Paths
//!
//! Names in ext4 are bytes; paths are anything that is a [`Path`](std::path::Path). They are taken
//! from the root of the file system with or without a leading `/`. Symbolic links are resolved
//! inside the file system, at most 40 of them, and `..` never leaves its root.
//!
//! # Threads
//!
//! Everything is `Send` and `Sync` and works through `&self`: share a [`Filesystem`] or clone it.
#![forbid(unsafe_code)]

mod attributes;
mod bulkstat;
mod change;
mod error;
pub mod export;
mod file;
mod filesystem;
mod metadata;
mod mount;
mod open_options;
mod path;
mod quiet;
mod quota;
mod read_dir;
mod remove;
mod walk;

pub use error::{Cause, Error, Escaped, Result};
pub use extant_blockdev::{Backend, OpenSpec, SharedDevice};
pub use extant_core::fs::{
    AccessTimes, JournalChoice, MountOptions, Notice, StatFs, SuperblockChoice,
};
pub use extant_core::inode::{Bulkstat, BulkstatWay, DeviceNumber, FileType, Mode, Timestamp};
pub use extant_core::ops::{
    AclKind, Caller, EXECUTE, Piece as Extent, READ, RenameFlags, SetXattr, WRITE, Wanted,
};
pub use extant_core::quota::{Enforced, Grace, Limits, Quota, QuotaChange, QuotaKind, SideChange};
pub use extant_format::acl::{Acl, AclEntry, AclWho};
pub use extant_format::inode::InodeFlags as FileFlags;
pub use file::File;
pub use filesystem::Filesystem;
pub use metadata::Metadata;
pub use open_options::OpenOptions;
pub use quiet::Frozen;
pub use read_dir::{DirEntry, ReadDir};
pub use walk::{Walk, WalkEntry};

// The example that people see first must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
