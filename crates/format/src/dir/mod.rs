//! Directory blocks: entries, tails, the hashed index and its hashes.
//!
//! | module | owns |
//! |---|---|
//! | [`entry`] | the records of a directory block, their checksum tail, building a block |
//! | [`edit`] | entries coming and going in a block |
//! | [`htree`] | the index of a hashed directory: root and inner nodes |
//! | [`hash`] | the hashes the index is sorted by |
//! | [`casefold`] | case-insensitive names |
//! | `unicode_12_1` | the code points that such names may have |
//!
//! A hashed directory is still a list of directory blocks: its index nodes read as blocks without
//! names, so a reader that ignores the index sees every entry by walking all blocks in order.
//!
//! Source: the kernel's `directory` page.

pub mod casefold;
pub mod edit;
pub mod entry;
pub mod hash;
pub mod htree;
#[cfg(feature = "casefold")]
mod unicode_12_1;

pub use casefold::{fold_name, names_equal_folded};
pub use entry::{
    DirBlockBuilder, DirEntries, DirEntry, DirLayout, EntryHash, EntryType, NewEntry, entries,
    min_rec_len, verify_block_checksum,
};
pub use hash::{HashVersion, NameHash, NameHasher};
pub use htree::{DxEntries, DxEntry, DxRoot};

use crate::checksum::Crc32c;
use crate::types::Ino;

/// Returns the checksum state every checksum of an inode's own blocks starts from: the file
/// system's seed, then the inode number, then its generation.
#[must_use]
pub fn inode_checksum_seed(fs_seed: Crc32c, ino: Ino, generation: u32) -> Crc32c {
    fs_seed.update_u32(ino.get()).update_u32(generation)
}
