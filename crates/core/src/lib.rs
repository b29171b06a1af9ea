//! The ext4 engine, by inode.
//!
//! | room | owns |
//! |---|---|
//! | [`error`] | the one error: evidence, errno, a sentence |
//! | `fs` | mount, state and statfs |
//! | `meta` | the metadata block cache |
//! | `inode` | inodes: loading, the live table, bulkstat |
//! | `map` | mapping logical to physical blocks: extent trees and indirect maps |
//! | `data` | file data |
//! | `dir` | directories: lookup and listing |
//! | `xattr` | extended attributes and access control lists |
//! | `ops` | one POSIX operation per file |
#![forbid(unsafe_code)]

pub mod data;
pub mod dir;
pub mod error;
pub mod fs;
pub mod inode;
pub mod map;
pub mod meta;
pub mod ops;
pub mod xattr;

pub use error::{Error, InPlace, Place, Result};
