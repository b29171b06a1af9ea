//! Directories: lookup, listing, names coming and going.
//!
//! | file | owns |
//! |---|---|
//! | `ahead` | blocks of several directories, before these are listed |
//! | `block` | reading directory blocks: verified once per load, read ahead |
//! | `matching` | comparing names, case-insensitively where the directory asks for it |
//! | `lookup` | from a name to an inode number |
//! | `htree` | descending the index of a hashed directory |
//! | `readdir` | listing what does not change, in the order it is stored |
//! | `listing` | listing what may change meanwhile, by hash |
//! | `state` | the locks of a directory that is written to |
//! | `form` | which kinds of directory are written to, how their blocks are sealed |
//! | `insert` | a new name, wherever there is room for it |
//! | `room` | room for a name in a block that exists, and which names may take it |
//! | `grow` | a new name that needs new blocks |
//! | `growth` | new blocks: made up first, then allocated, mapped, published |
//! | `inline` | names in a directory that lies in its inode, and its way out of there |
//! | `convert` | from one block to an index |
//! | `index` | splitting a leaf and the nodes above |
//! | `split` | laying out entries anew: packed, or halved by hash |
//! | `remove` | names that go or come to stand for something else |
//!
//! # Locking
//!
//! See `DirState`: a block changes under the index shared and the lock of the leaf, names move
//! between blocks under the index exclusive and the inode's map lock. Lookups take neither, unless
//! names move meanwhile. Blocks never leave a directory while it lives.
//!
//! # Invariants
//!
//! - What is returned as a name has 1 to 255 bytes and, unless the directory is encrypted, none of
//!   them is 0 or `/`. Names of encrypted directories are the stored bytes.
//! - Work is bounded by the size of the file system: no directory can have more blocks than it.
//! - An index only ever shortens a search. If it is of an unknown kind or contradicts itself, all
//!   blocks are searched; what is wrong with a block that holds names is an error. Writing is
//!   different: a directory whose index is broken is not written to.
//! - A change that fails has changed nothing.
//! - Where listings go by position entries do not move.

mod ahead;
mod block;
mod convert;
mod form;
mod grow;
mod growth;
mod htree;
mod index;
mod inline;
mod insert;
mod listing;
mod lookup;
mod matching;
mod readdir;
mod remove;
mod room;
mod split;
mod state;

pub(crate) use ahead::read_ahead;
pub(crate) use grow::{init, init_credits};
pub(crate) use insert::{insert, insert_credits};
pub use listing::readdir_live;
pub(crate) use lookup::find;
pub use lookup::{lookup, parent};
pub(crate) use readdir::readdir_around;
pub use readdir::{Cookie, readdir};
pub(crate) use remove::{is_empty, remove, remove_credits, replace, set_parent};
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

#[cfg(test)]
mod tests;
