//! One POSIX operation per file.
//!
//! Operations take a mounted file system and inodes, never paths, and never touch raw bytes: they
//! check what POSIX asks for and call into the rooms.
//!
//! Adapters go through this door for everything they do to an inode; besides, they need [`Fs`] to
//! open and ask about the whole, and [`inode`] for what an inode is. Operations that ask for no
//! checks beyond those of a room are the room's own, named here.
//!
//! | operation | of POSIX or Linux |
//! |---|---|
//! | [`lookup`] | one step of a path |
//! | [`stat`], [`stat_of`] | `stat` |
//! | [`read`], [`stream`] | `pread`, copying a file out |
//! | [`seek_data`], [`seek_hole`], [`extents`] | `lseek`, `FIEMAP` |
//! | [`readdir`] | `getdents`, by cookie |
//! | [`readlink`] | `readlink` |
//! | [`getxattr`], [`listxattr`], [`for_each_xattr`], [`acl`] | attributes |
//!
//! [`Fs`]: crate::fs::Fs
//! [`inode`]: crate::inode

mod getxattr;
mod listxattr;
mod lookup;
mod read;
mod readdir;
mod readlink;
mod stat;

pub use crate::data::{Piece, Sink, extents, seek_data, seek_hole, stream};
pub use crate::dir::{Cookie, Entry};
pub use crate::xattr::{AclKind, acl, for_each as for_each_xattr};
pub use getxattr::getxattr;
pub use listxattr::listxattr;
pub use lookup::lookup;
pub use read::read;
pub use readdir::readdir;
pub use readlink::readlink;
pub use stat::{stat, stat_of};
