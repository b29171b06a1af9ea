//! Blocks and inodes: who has which, and who may have the next.
//!
//! | file | owns |
//! |---|---|
//! | `request` | what is asked for, and what was taken |
//!
//! # Two bitmaps
//!
//! The *disk bitmap* of a group says what the inodes on the device own. It changes only under a
//! handle and is all that commit encodes. The *allocator bitmap* says what may be handed out: the
//! disk bitmap, and besides what is taken for data still on its way, and what was freed by a
//! transaction that has not committed. It is never encoded.
//!
//! So blocks go through three steps: [`Alloc::take`] marks them in the allocator bitmap, without a
//! handle; [`Alloc::commit`] marks them in the disk bitmap, under the handle that also maps them; or
//! they are given back when the [`Taken`] is dropped. Freed blocks leave the disk bitmap at once and
//! the allocator bitmap after the commit.

mod request;

pub use request::{Request, Taken};

/// The allocator of a file system open for writing.
#[derive(Debug)]
pub struct Alloc {}
