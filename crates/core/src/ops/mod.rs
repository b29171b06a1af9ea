//! One POSIX operation per file.
//!
//! Operations take a mounted file system and inodes, never paths, and never touch raw bytes: they
//! check what POSIX asks for and call into the rooms.

mod getxattr;
mod listxattr;
mod lookup;
mod read;
mod readdir;
mod readlink;
mod stat;

pub use getxattr::getxattr;
pub use listxattr::listxattr;
pub use lookup::lookup;
pub use read::read;
pub use readdir::readdir;
pub use readlink::readlink;
pub use stat::{stat, stat_of};
