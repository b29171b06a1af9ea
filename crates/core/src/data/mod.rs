//! File data.
//!
//! | file | owns |
//! |---|---|
//! | `read` | reading a range into the caller's buffer |
//! | `seek` | where data and holes begin, and where data lies on the device |
//! | `blocks` | blocks of directories and other metadata files, through the cache |
//! | `inline` | content inside the inode |
//! | `stream` | reading a whole file in order, holes kept apart |
//! | `live` | reading files that may change |
//! | `write` | writing a range |
//! | `fallocate` | reserving blocks for a range |
//! | `truncate` | setting the size, freeing blocks |
//! | `durable` | writing back, throwing away, `fsync` |
//! | `times` | times that writes leave behind |
//! | `transfer` | making zeros on the device |
//!
//! # Invariants
//!
//! - A read never passes the end of the file and never leaves a byte of the buffer it reports
//!   as read without its value: holes and unwritten blocks are zeros.
//! - File data goes from the device straight to the caller's buffer, and from there to the device
//!   before a write returns.
//! - Images of inodes are read without a lock; files that may change under `pages`, held shared.

mod blocks;
mod durable;
mod fallocate;
mod inline;
mod live;
mod read;
mod seek;
mod stream;
mod times;
mod transfer;
mod truncate;
mod write;

pub(crate) use durable::fsync;
pub use durable::{invalidate, writeback};
pub use fallocate::{FallocateMode, fallocate};
pub use live::{allocated_live, extents_live, read_live, seek_data_live, seek_hole_live};
pub use read::{read_at, read_content};
pub use seek::{Piece, allocated, extents, seek_data, seek_hole};
pub use stream::{Sink, stream, stream_live};
pub use times::now;
pub(crate) use truncate::finish_truncate;
pub use truncate::{truncate, truncate_with};
pub use write::{WriteOptions, append, write_at, write_with};
