//! The ext4 engine, by inode.
//!
//! Adapters open an [`fs::Fs`], hold [`inode::Inode`]s and do everything to them through [`ops`].
//! The other rooms are open to tests, to benchmarks and to tools that look at the structure itself.
//! Those below [`fs`] are the crate `extant-store`, which knows no files; they are shown here too.
//!
//! | room | owns |
//! |---|---|
//! | [`error`] | the one error: evidence, errno, a sentence |
//! | [`clock`] | the time of day |
//! | `event` | what is told while it runs |
//! | `mutants` | mistakes that a test must find |
//! | `meta` | the metadata block cache, numbers of transactions, seals |
//! | `volume` | what is true of an open image |
//! | `journal` | handles, transactions, commit and checkpoint, log items |
//! | `alloc` | blocks and inodes: the two bitmaps, take, commit, give back |
//! | `fs` | the file system as a whole: options, the gate of changes, handles |
//! | `inode` | inodes: loading, the live table, bulkstat |
//! | `map` | mapping logical to physical blocks: extent trees and indirect maps |
//! | `quota` | what users, groups and projects use and may use |
//! | `xattr` | extended attributes and access control lists |
//! | `dir` | directories: lookup, insertion, removal, listing, the hash index |
//! | `names` | the name cache, and the locks of names |
//! | `data` | file data |
//! | `lifecycle` | the life of inodes: creation, deletion, orphans after a crash |
//! | [`ops`] | the door: one POSIX operation per file |
//! | `mount` | the way from a device to a file system, and back |
//!
//! From `meta` to `mount` that is their order: a room names and calls what is below it.
#![forbid(unsafe_code)]

pub mod data;
pub mod dir;
pub mod fs;
pub mod inode;
pub mod lifecycle;
pub mod map;
pub mod mount;
mod names;
pub mod ops;
pub mod quota;
pub mod xattr;

#[cfg(test)]
mod store_tests;

#[cfg(feature = "mutants")]
pub use extant_store::mutants;
#[cfg(not(feature = "mutants"))]
use extant_store::mutants;
pub use extant_store::{alloc, clock, error, event, journal, meta, volume};

pub use error::{Error, InPlace, Place, Result};
