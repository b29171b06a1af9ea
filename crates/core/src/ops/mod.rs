//! One POSIX operation per file.
//!
//! Operations take a mounted file system and inodes, never paths, and never touch raw bytes: they
//! check what POSIX asks for and call into the rooms.

mod read;
mod readlink;
mod stat;

pub use read::read;
pub use readlink::readlink;
pub use stat::stat;
