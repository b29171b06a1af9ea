//! Undo files of changes that are not known before they are made.
//!
//! A repair is worked out first, and its undo file holds all of it (`repair::undo`). Other commands
//! change an image as they go. What they write goes through a device that keeps what was there
//! first ([`KeepingDevice`]), in a file of this format.
//!
//! | module | owns |
//! |---|---|
//! | `batch` | batches of records, written and read |
//! | `keep` | the device that keeps |
//! | `sums` | sums by which contents are told apart |
//! | `revert` | what was there, put back |
//! | `half_way` | the mark of an image of which a part is put back |
//!
//! All numbers are little-endian. A file is a page of 4 KiB, and batches that begin at multiples of
//! 4 KiB. Blocks have 4 KiB, counted from the start of the device; the last one may be shorter.
//!
//! | bytes | page |
//! |---|---|
//! | 0..8 | `EXTUNDO6` |
//! | 8..16 | size of the device in bytes |
//! | 16..32 | UUID of the file system before |
//! | 32..40 | number of the file, which its batches repeat |
//! | 40..44 | CRC32C of what is before |
//!
//! | bytes | batch |
//! |---|---|
//! | 0..8 | `EXTBATCH` |
//! | 8..16 | number of the file |
//! | 16..24 | number of the batch, from 0 on |
//! | 24..28 | length of the records |
//! | 28..32 | kind: 1 what was there, 2 sums, 3 the end |
//! | 32..36 | CRC32C of the records |
//! | 36..40 | CRC32C of what is before |
//! | 40.. | records |
//!
//! | bytes | record of what was there |
//! |---|---|
//! | 0..8 | byte where it begins |
//! | 8..16 | how many bytes |
//! | 16..20 | 0: they follow; 1: they were zeros; 2: sums follow of what a block may become |
//! | 20..24 | 0 |
//!
//! These sums are of each sector, of 512 bytes.
//!
//! | bytes | record of sums |
//! |---|---|
//! | 0..8 | byte where it begins |
//! | 8..12 | how many blocks |
//! | 12.. | the sum of each block after the changes |
//!
//! A sum of what a block or a sector becomes is the first 8 bytes of its SHA-256. In `EXTUNDO5`,
//! which is read as well, it is a CRC32C: that of a block that ends with a CRC32C of its own is the
//! same whatever is in it. What is in the file itself has a CRC32C against damage.
//!
//! The end holds the number of blocks that were kept. A file without it is of a command that was
//! cut off.
//!
//! # Invariants
//! - A block is kept once, before its first change, and a batch is durable before any block in it
//!   is written.
//! - A batch is put only once the one before it is durable: a loss of power cuts off the end alone.
//! - The block with the superblock is in the first batch, and noted before each write of it. So a
//!   file without an end still tells whether the image was opened by somebody else since. It is
//!   noted sector by sector: a write of it may have arrived in part.

mod batch;
pub(crate) mod half_way;
mod keep;
mod revert;
mod sums;

pub use keep::KeepingDevice;
pub(crate) use revert::{is_of_this_kind, revert};
pub(crate) use sums::{SECTOR, Sums};

use extant_format::checksum::Crc32c;
use extant_format::superblock::SUPERBLOCK_OFFSET;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// The block that holds the primary superblock.
const PRIMARY: u64 = SUPERBLOCK_OFFSET / BLOCK;
/// Most bytes that one record holds.
const RECORD_MAX: u64 = 1 << 20;

/// The sum by which damage of the file itself is found.
fn sum(bytes: &[u8]) -> u32 {
    Crc32c::INIT.update(bytes).value()
}

/// The bytes of some blocks of a device that has `size` of them.
fn bytes_of(blocks: std::ops::Range<u64>, size: u64) -> std::ops::Range<u64> {
    blocks.start * BLOCK..(blocks.end * BLOCK).min(size)
}
