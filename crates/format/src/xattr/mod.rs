//! Extended attributes: in the inode, in a block, in inodes of their own.
//!
//! | module | owns |
//! |---|---|
//! | [`name`] | full names and their stored form: an index for the prefix, and the rest |
//! | [`read`] | the two areas attributes are kept in, checked once and then walked freely |
//! | [`encode`] | building both areas, and deciding which attribute goes where |
//! | [`hash`] | hashes of entries, blocks and values |
//! | [`ea_inode`] | what an inode that holds a value keeps in its time fields |
//!
//! ```text
//! in the inode, after the extra fields         in a block of its own
//! +-------+---------------------------+        +----------------+------------------------+
//! | magic | entries ... 0 ... values  |        | header, 32 B   | entries ... 0 ... vals |
//! +-------+---------------------------+        +----------------+------------------------+
//!         ^ value offsets count from here      ^ value offsets count from here
//! ```
//!
//! Source: "Extended Attributes" in the kernel's `ext4/attributes` page.

pub mod ea_inode;
pub mod encode;
pub mod hash;
pub mod name;
pub mod read;

pub use ea_inode::EaInode;
pub use encode::{
    Attribute, NewValue, Placement, encode_block, encode_in_inode, place, space_in_block,
    space_in_inode,
};
pub use hash::{entry_hash, entry_hash_matches, value_hash};
pub use name::{AttributeName, full_name, split_name};
pub use read::{
    XattrArea, XattrBlockHeader, XattrContext, XattrEntry, XattrValue, seal_block,
    verify_block_checksum,
};

/// The magic number of both areas.
pub const MAGIC: u32 = 0xea02_0000;
/// Bytes of the magic in front of the entries of an inode.
pub const INODE_HEADER_LEN: usize = 4;
/// Bytes of the header of an attribute block.
pub const BLOCK_HEADER_LEN: usize = 32;
/// Bytes of an entry before its name.
pub const ENTRY_HEADER_LEN: usize = 16;
/// Longest name without its prefix, in bytes.
pub use crate::types::NAME_MAX;
/// Longest value the format allows, in bytes (Linux lets programs set 64 KiB).
pub const VALUE_MAX: u32 = 1 << 24;

/// `len` rounded up to the four bytes names and values are padded to.
pub(crate) const fn padded(len: usize) -> usize {
    len.saturating_add(3) & !3
}
