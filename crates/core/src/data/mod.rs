//! File data.
//!
//! | file | owns |
//! |---|---|
//! | `read` | reading a range into the caller's buffer |
//! | `seek` | where data and holes begin, and where data lies on the device |
//! | `blocks` | blocks of directories and other metadata files, through the cache |
//! | `inline` | content inside the inode |
//! | `stream` | reading a whole file in order, holes kept apart |
//!
//! # Invariants
//!
//! - A read never passes the end of the file and never leaves a byte of the buffer it reports
//!   as read without its value: holes and unwritten blocks are zeros.
//! - File data goes from the device straight to the caller's buffer. Nothing is locked.

mod blocks;
mod inline;
mod read;
mod seek;
mod stream;

pub use read::{read_at, read_content};
pub use seek::{Piece, extents, seek_data, seek_hole};
pub use stream::{Sink, stream};
