//! ext4 in user space, in the manner of [`std::fs`].
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! Open an image, a block device, a partition of either or any [`SharedDevice`], then use paths as
//! with the standard library. Nothing here needs root or a mount.
//!
//! [`Filesystem::open`] reads and never writes to the image: a journal that was not closed cleanly
//! is replayed into memory. [`Filesystem::open_writable`] changes the image through its journal: a
//! crash leaves what was there before a change or what is there after it. [`File::sync_all`] and
//! [`Filesystem::sync`] say from when on a change is durable.
//!
//! # Reading
//!
//! ```
//! use extant::Filesystem;
//! use std::io::Read;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! # Filesystem::format(&image, 16 << 20)?.write("/hostname", "box\n")?;
//! let fs = Filesystem::open(&image)?;
//! for entry in fs.read_dir("/")? {
//!     println!("{}", entry?.file_name().display());
//! }
//! let mut text = String::new();
//! fs.open_file("/hostname")?.read_to_string(&mut text)?;
//! assert_eq!(text, "box\n");
//! # Ok(())
//! # }
//! ```
//!
//! # Changing
//!
//! ```
//! use extant::Filesystem;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! # Filesystem::format(&image, 16 << 20)?.close()?;
//! let fs = Filesystem::open_writable(&image)?;
//! fs.create_dir_all("/etc/app.d")?;
//! fs.write("/etc/app.d/name", "first\n")?;
//! fs.rename("/etc/app.d/name", "/etc/app.d/id")?;
//! fs.open_file("/etc/app.d/id")?.sync_all()?; // Durable from here on.
//! fs.close()?;
//!
//! assert_eq!(Filesystem::open(&image)?.read_to_string("/etc/app.d/id")?, "first\n");
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! An [`Error`] names the path and the [`Cause`]. [`Error::errno`] gives the Linux error number, to
//! compare with those of [`errno`]; [`ImageError`] says more about a corrupt image or a failing
//! device.
//!
//! # Features
//!
//! | feature | default | meaning |
//! |---|---|---|
//! | `formats` | no | images in formats: qcow2, VHD, VMDK, Android sparse, compressed |
//! | `remote` | no | images behind HTTP and in object stores, by their URLs |
//! | `tls` | no | NBD through TLS |
//! | `io-uring` | no | direct transfers through io_uring, on Linux; without it each is a system call |
//! | `tracing` | no | what goes wrong where no call can say it, and what replay did, as events of the crate `tracing` |
//! | `mkfs` | no | making file systems: [`Filesystem::format`](crate::Filesystem), and the module `mkfs` |
//! | `mkfs-formats` | no | making them in formats of disks: the module `container` |
//! | `check` | no | checking and repairing: `Filesystem::check`, and the module `check` |
//! | `tar` | no | putting tar archives into a file system: the module `import`; taking them out ([`export::to_tar`]) needs no feature |
//! | `mend` | no | reading a damaged file system as a repair would leave it |
//! | `verity` | no | fs-verity: protecting files (`Filesystem::enable_verity`), and comparing content with its hashes (`File::fs_verity`, and `verify` when files are taken out) |
//! | `unstable` | no | the engine underneath: `Filesystem::engine`, `ImageError::engine` and the module `engine`; any version may change them |
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | `filesystem` | [`Filesystem`]: opening, and everything that starts with a path |
//! | `path` | from a path to an inode: symbolic links, `..`, limits |
//! | `file` | [`File`] |
//! | `read_dir` | [`ReadDir`]: one directory |
//! | `name_reader` | [`NameReader`]: many directories, by their inode numbers |
//! | `walk` | [`Walk`]: everything below a directory |
//! | `directories` | [`ListedDirectory`]: the directories of a tree, each with all that is in it |
//! | `copy` | copying a file inside a file system |
//! | `canonical` | paths without symbolic links, `.` and `..` |
//! | `glob` | [`Glob`]: paths that match a pattern |
//! | `format` | making file systems (feature `mkfs`) |
//! | `like` | [`Like`](crate::Like): an older image that a new one shall be like (feature `mkfs`) |
//! | `container` | making images in formats of disks (feature `mkfs-formats`) |
//! | `check` | checking and repairing them (feature `check`) |
//! | `import` | putting tar archives into a file system (feature `tar`) |
//! | `gather` | vectored transfers in few calls, for devices that have none |
//! | `into_device` | what can be taken for a device |
//! | `transaction` | [`Transaction`]: changes that are made as a whole, or not at all |
//! | `spool` | temporary files for what memory has no room for |
//! | `mend` | reading a damaged file system as a repair would leave it (feature `mend`) |
//! | `scouts` | threads that go ahead of a walk where the device is far |
//! | `metadata` | [`Metadata`] |
//! | [`device`] | what an implementation of [`BlockDevice`] is made of |
//! | `quota` | what users, groups and projects use and may use |
//! | `error` | [`Error`]: which path, and why |
//! | `verity` | comparing content with the hashes of fs-verity (feature `verity`) |
//! | `protect` | protecting files by fs-verity (feature `verity`) |
//! | [`errno`] | error numbers of Linux |
//! | [`export`] | taking many files out: to a directory (on Linux), or as a tar archive |
//! | [`compare`] | what differs between two trees |
//! | `sync` | making a directory of the host like one of an image, on Linux |
//!
//! # Paths
//!
//! Names in ext4 are bytes; paths are anything that is a [`Path`](std::path::Path). They are taken
//! from the root of the file system with or without a leading `/`. Symbolic links are resolved
//! inside the file system, at most 40 of them, and `..` never leaves its root.
//!
//! # Without files
//!
//! A file system may lie on anything that reads and writes bytes at offsets: the bytes of an image
//! in memory, or a [`BlockDevice`] of yours, which needs five methods.
//!
//! ```
//! use extant::{BlockDevice, DeviceResult, Filesystem, MemoryDevice, MountOptions};
//! use std::sync::Arc;
//!
//! /// Says what is read.
//! #[derive(Debug)]
//! struct Loud(MemoryDevice);
//!
//! impl BlockDevice for Loud {
//!     fn size(&self) -> u64 {
//!         self.0.size()
//!     }
//!     fn is_read_only(&self) -> bool {
//!         false
//!     }
//!     fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
//!         println!("{} bytes at {offset}", buf.len());
//!         self.0.read_at(offset, buf)
//!     }
//!     fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
//!         self.0.write_at(offset, buf)
//!     }
//!     fn flush(&self) -> DeviceResult<()> {
//!         self.0.flush()
//!     }
//! }
//!
//! # fn main() -> extant::Result<()> {
//! # let image = Arc::new(MemoryDevice::new(16 << 20));
//! # Filesystem::format_device(Arc::clone(&image))?.close()?;
//! # let image = extant::device::to_vec(&*image).expect("memory");
//! let device = Arc::new(Loud(MemoryDevice::from_image(&image)));
//! let fs = Filesystem::open_device(device, MountOptions::read_write())?;
//! fs.write("/hello", "world")?;
//! fs.close()?;
//!
//! // Bytes alone are a device too.
//! let image: Vec<u8> = image;
//! Filesystem::open_device(image, MountOptions::read_only())?;
//! # Ok(())
//! # }
//! ```
//!
//! Images behind HTTP and in object stores are opened by their URLs (feature `remote`).
//!
//! # From async code
//!
//! Calls return when their work is done, and may wait for the device. A program that has an
//! executor hands them to its threads for blocking work, such as `spawn_blocking` of tokio. A
//! [`Filesystem`] and a [`File`] are cheap to clone, and clones go with the task:
//!
//! ```ignore
//! let theirs = fs.clone();
//! let text = tokio::task::spawn_blocking(move || theirs.read_to_string("/etc/hostname")).await??;
//! ```
//!
//! What belongs together goes into one such task: a task for each small read costs more than the
//! read. Dropping the future does not stop the call. Several tasks may use one file system, and
//! run side by side as threads do. Dropping the last clone closes the file system, which writes:
//! do that in such a task too, by [`Filesystem::close`].
//!
//! # Threads
//!
//! Everything is `Send` and `Sync` and works through `&self`: share a [`Filesystem`] or clone it.
#![forbid(unsafe_code)]

mod attributes;
mod bulkstat;
mod canonical;
mod change;
#[cfg(feature = "check")]
pub mod check;
pub mod compare;
#[cfg(feature = "mkfs-formats")]
pub mod container;
mod copy;
pub mod device;
mod directories;
mod error;
pub mod export;
mod file;
mod filesystem;
#[cfg(feature = "mkfs")]
mod format;
mod freeze;
mod gather;
mod glob;
#[cfg(feature = "tar")]
pub mod import;
mod into_device;
#[cfg(feature = "mkfs")]
mod like;
#[cfg(feature = "mend")]
pub mod mend;
mod metadata;
mod mount;
mod name_reader;
mod open_options;
mod path;
#[cfg(feature = "verity")]
mod protect;
mod quota;
mod read_dir;
mod remove;
mod scouts;
mod spool;
#[cfg(target_os = "linux")]
pub mod sync;
mod transaction;
#[cfg(feature = "verity")]
mod verity;
mod walk;

pub use directories::{ListedDirectory, ListedFile};
pub use error::{Cause, Error, Escaped, ImageError, Result};
pub use extant_blockdev::{
    Backend, BlockDevice, Content, DeviceError, DeviceResult, MemoryDevice, OpenSpec, SharedDevice,
};
#[cfg(feature = "unstable")]
pub use extant_core as engine;
pub use extant_core::Place;
pub use extant_core::fs::{
    AccessTimes, DataMode, JournalChoice, MountOptions, Notice, StatFs, SuperblockChoice,
};
pub use extant_core::inode::{Bulkstat, BulkstatWay, DeviceNumber, FileType, Mode, Timestamp};
pub use extant_core::ops::{
    AclKind, Caller, EXECUTE, Extent, READ, RenameFlags, SetXattr, WRITE, Wanted,
};
pub use extant_core::quota::{Enforced, Grace, Limits, Quota, QuotaChange, QuotaKind, SideChange};
pub use extant_format::acl::{Acl, AclEntry, AclWho};
pub use extant_format::errno;
pub use extant_format::inode::InodeFlags as FileFlags;
pub use extant_format::superblock::{ErrorRecord, ErrorsBehaviour};
pub use extant_format::{
    BlockSize, Expected, FormatError, FormatResult, Group, Ino, Lblk, Pblk, Structure, Tid,
};
pub use extant_image as image;
/// Making file systems, empty ones and filled (feature `mkfs`).
#[cfg(feature = "mkfs")]
pub use extant_mkfs as mkfs;
#[cfg(feature = "verity")]
/// A hash function of fs-verity.
pub use extant_verity::Algorithm as HashAlgorithm;
pub use file::File;
pub use filesystem::Filesystem;
pub use freeze::Frozen;
pub use glob::Glob;
#[cfg(feature = "mkfs")]
pub use like::Like;
pub use metadata::Metadata;
pub use name_reader::NameReader;
pub use open_options::OpenOptions;
#[cfg(feature = "verity")]
pub use protect::FsVerityOptions;
pub use read_dir::{DirEntry, ReadDir};
pub use transaction::{Committed, Transaction};
#[cfg(feature = "verity")]
pub use verity::FsVerityFile;
pub use walk::{Walk, WalkEntry};

// The example that people see first must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
