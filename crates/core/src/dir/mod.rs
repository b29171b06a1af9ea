//! Directories: lookup and listing.
//!
//! | file | owns |
//! |---|---|
//! | `block` | reading directory blocks: verified once per load, read ahead |
//! | `matching` | comparing names, case-insensitively where the directory asks for it |
//! | `lookup` | from a name to an inode number |
//! | `htree` | descending the index of a hashed directory |
//! | `readdir` | listing, resumable by cookie |
//!
//! # Invariants
//!
//! - What is returned as a name has 1 to 255 bytes and, unless the directory is encrypted, none of
//!   them is 0 or `/`. Names of encrypted directories are the stored bytes.
//! - Work is bounded by the size of the file system: no directory can have more blocks than it.
//! - An index only ever shortens a search. If it is of an unknown kind or contradicts itself, all
//!   blocks are searched; what is wrong with a block that holds names is an error.

mod block;
mod htree;
mod lookup;
mod matching;
mod readdir;
mod state;

pub(crate) use lookup::find;
pub use lookup::{lookup, parent};
pub use readdir::{Cookie, readdir};
pub(crate) use state::DirState;

use crate::inode::FileType;
use extant_format::Ino;

/// What a directory says about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The inode it stands for.
    pub ino: Ino,
    /// The type of that inode, or `None` where the file system does not record types in
    /// directories: the inode itself tells.
    pub file_type: Option<FileType>,
}

/// One name of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name, as stored.
    pub name: &'a [u8],
    /// The inode it stands for.
    pub ino: Ino,
    /// The type of that inode, if the directory records it.
    pub file_type: Option<FileType>,
    /// Where to go on after this entry.
    pub next: Cookie,
}
