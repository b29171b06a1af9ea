//! The index of a hashed directory: a tree of (hash, block) pairs over the leaf blocks.
//!
//! ```text
//! root (block 0)            inner node                leaf
//! +----------------+        +----------------+        +----------------+
//! | "."   12 bytes |        | free record  8 |        | entries        |
//! | ".."  12 bytes |        +----------------+        | ...            |
//! | info   8 bytes |        | limit, count   |        | tail           |
//! +----------------+        | (-, block)     |        +----------------+
//! | limit, count   |        | (hash, block)  |
//! | (-, block)     |        | ...            |
//! | (hash, block)  |        | tail           |
//! | ... and a tail |        +----------------+
//! +----------------+
//! ```
//!
//! The first pair has no hash of its own (limit and count are stored in its place): it covers every
//! hash below the second pair's. A pair whose hash has the low bit set continues the run of equal
//! hashes that ends the pair before it.
//!
//! # Invariants
//! - Parsed nodes hold 1 to `limit` pairs, `limit` is what the block size gives, and all lie inside
//!   the block. Sortedness and block numbers are not promised: a search that follows a wrong pair
//!   ends in a block that fails its own checks, or finds nothing.

use crate::bytes::{le16, le32, put};
use crate::checksum::Crc32c;
use crate::dir::entry::{DirLayout, EntryType, NewEntry, min_rec_len, write_entry, write_free};
use crate::dir::hash::HashVersion;
use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::types::{Ino, Lblk};

/// Bytes of a pair.
pub const DX_ENTRY_LEN: usize = 8;
/// Bytes of the tail that holds an index node's checksum.
pub const DX_TAIL_LEN: usize = 8;
/// Bytes of the root's description, behind `.` and `..`.
pub const DX_ROOT_INFO_LEN: usize = 8;
/// Where the description lies in the root.
const INFO_AT: usize = 24;
/// Where the pairs of the root start.
const ROOT_ENTRIES_AT: usize = INFO_AT + DX_ROOT_INFO_LEN;
/// Where the pairs of an inner node start.
const NODE_ENTRIES_AT: usize = 8;
/// The bits of a pair's block number that are one.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// One pair of an index node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DxEntry {
    /// The lowest hash below this pair; the low bit says that names of the same hash also end the
    /// pair before. Zero for the first pair.
    pub hash: u32,
    /// The block of the directory it leads to: a leaf or an inner node.
    pub block: Lblk,
}

impl DxEntry {
    /// Returns whether names whose hash is `hash` go on below this pair, having begun in the one
    /// before.
    #[must_use]
    pub const fn continues(&self, hash: u32) -> bool {
        self.hash & !1 == hash & !1 && self.hash & 1 == 1
    }
}

/// Returns the most pairs an index root of this layout holds.
#[must_use]
pub fn root_limit(layout: &DirLayout) -> usize {
    let tail = if layout.checksums { DX_TAIL_LEN } else { 0 };
    (layout.block_size.len() - ROOT_ENTRIES_AT - tail) / DX_ENTRY_LEN
}

/// Returns the most pairs an inner node of this layout holds.
#[must_use]
pub fn node_limit(layout: &DirLayout) -> usize {
    let tail = if layout.checksums { DX_TAIL_LEN } else { 0 };
    // Room for the hash of the free record is left where entries carry one, although the pairs
    // still start at byte 8.
    (layout.block_size.len() - min_rec_len(0, layout.hash_in_entry) - tail) / DX_ENTRY_LEN
}

/// Returns the most levels of inner nodes between root and leaves: 2 with `large_dir`, else 1.
#[must_use]
pub const fn max_indirect_levels(large_dir: bool) -> u8 {
    if large_dir { 2 } else { 1 }
}

/// The pairs of an index node.
#[derive(Clone, Copy, Debug)]
pub struct DxEntries<'a> {
    /// Whole pairs; the first one's hash is limit and count.
    raw: &'a [u8],
}

impl<'a> DxEntries<'a> {
    fn parse(block: &'a [u8], at: usize, limit: usize) -> FormatResult<Self> {
        let stored = le16(block, at);
        let count = usize::from(le16(block, at + 2));
        if usize::from(stored) != limit {
            let expected = Expected::Exactly(limit as u64);
            return Err(FormatError::new(
                Structure::DirIndex,
                "limit",
                u64::from(stored),
                expected,
            )
            .at(at));
        }
        let raw = (1..=limit)
            .contains(&count)
            .then(|| block.get(at..)?.get(..count * DX_ENTRY_LEN))
            .flatten();
        match raw {
            Some(raw) => Ok(Self { raw }),
            None => Err(FormatError::new(
                Structure::DirIndex,
                "count",
                count as u64,
                Expected::Between(1, limit as u64),
            )
            .at(at + 2)),
        }
    }

    /// Returns the number of pairs, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a node is never empty")]
    pub fn len(&self) -> usize {
        self.raw.len() / DX_ENTRY_LEN
    }

    /// Returns the pair at `index`, or `None` past the last.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<DxEntry> {
        if index >= self.len() {
            return None;
        }
        let at = index * DX_ENTRY_LEN;
        Some(DxEntry {
            hash: if index == 0 { 0 } else { le32(self.raw, at) },
            block: Lblk::new(le32(self.raw, at + 4) & BLOCK_MASK),
        })
    }

    /// Returns all pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = DxEntry> + 'a {
        let this = *self;
        (0..this.len()).filter_map(move |index| this.get(index))
    }

    /// Returns the index of the pair to follow for `hash`: the last one whose hash is not greater.
    ///
    /// Names of one hash may go on in later pairs: see [`DxEntry::continues`].
    #[must_use]
    pub fn find(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if le32(self.raw, middle * DX_ENTRY_LEN) > hash {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }
}

/// The root of the index, block 0 of a hashed directory.
#[derive(Clone, Copy, Debug)]
pub struct DxRoot<'a> {
    /// The hash function as stored, without regard to the superblock's signedness flags.
    pub hash_version: HashVersion,
    /// Levels of inner nodes between the root and the leaves.
    pub indirect_levels: u8,
    /// The directory's parent, from `..`.
    pub parent: Ino,
    /// The pairs.
    pub entries: DxEntries<'a>,
}

impl<'a> DxRoot<'a> {
    /// Reads the root of a hashed directory from its block 0. The checksum is not looked at; see
    /// [`verify_root_checksum`].
    ///
    /// # Errors
    /// When `.` or `..` are not where a root has them, the description is of an unknown kind, the
    /// tree is deeper than the file system allows, or the number of pairs is impossible.
    pub fn parse(block: &'a [u8], layout: &DirLayout, large_dir: bool) -> FormatResult<Self> {
        let broken = |field, at: usize, found: u64, expected| {
            Err(FormatError::new(Structure::DirIndex, field, found, expected).at(at))
        };
        let bs = layout.block_size.len();
        if block.len() != bs {
            return Err(FormatError::short(Structure::DirIndex, block.len(), bs));
        }
        let dot_len = le16(block, 4);
        if dot_len != 12 || block.get(6) != Some(&1) || block.get(8) != Some(&b'.') {
            return broken("dot", 4, u64::from(dot_len), Expected::Exactly(12));
        }
        let dotdot_len = le16(block, 16);
        let whole = usize::from(dotdot_len) == bs - 12;
        if !whole || block.get(18) != Some(&2) || block.get(20..22) != Some(b"..") {
            let expected = Expected::Exactly(bs as u64 - 12);
            return broken("dotdot", 16, u64::from(dotdot_len), expected);
        }
        let reserved = le32(block, INFO_AT);
        if reserved != 0 {
            return broken(
                "reserved_zero",
                INFO_AT,
                u64::from(reserved),
                Expected::Exactly(0),
            );
        }
        let [version, info_length, levels, flags] = le32(block, INFO_AT + 4).to_le_bytes();
        if usize::from(info_length) != DX_ROOT_INFO_LEN {
            return broken(
                "info_length",
                INFO_AT + 5,
                u64::from(info_length),
                Expected::Exactly(DX_ROOT_INFO_LEN as u64),
            );
        }
        let deepest = max_indirect_levels(large_dir);
        if levels > deepest {
            return broken(
                "indirect_levels",
                INFO_AT + 6,
                u64::from(levels),
                Expected::AtMost(u64::from(deepest)),
            );
        }
        if flags & 1 != 0 {
            return broken(
                "unused_flags",
                INFO_AT + 7,
                u64::from(flags),
                Expected::Exactly(0),
            );
        }
        let hash_version = HashVersion::from_raw(version).map_err(|e| e.at(INFO_AT + 4))?;
        Ok(Self {
            hash_version,
            indirect_levels: levels,
            parent: Ino::new(le32(block, 12)),
            entries: DxEntries::parse(block, ROOT_ENTRIES_AT, root_limit(layout))?,
        })
    }
}

/// Reads an inner node. The checksum is not looked at; see [`verify_node_checksum`].
///
/// # Errors
/// When the free record in front is not one, or the number of pairs is impossible.
pub fn parse_node<'a>(block: &'a [u8], layout: &DirLayout) -> FormatResult<DxEntries<'a>> {
    let bs = layout.block_size.len();
    if block.len() != bs {
        return Err(FormatError::short(Structure::DirIndex, block.len(), bs));
    }
    if !is_node(block, layout) {
        return Err(FormatError::new(
            Structure::DirIndex,
            "fake_rec_len",
            u64::from(le16(block, 4)),
            Expected::Said("one free record over the whole block"),
        )
        .at(4));
    }
    DxEntries::parse(block, NODE_ENTRIES_AT, node_limit(layout))
}

/// Returns whether block 0 of a directory looks like an index root: `.`, `..` over all the rest,
/// and a description where it should be. A plain block with checksums never does, its tail is a
/// record of its own.
#[must_use]
pub fn is_root(block: &[u8], layout: &DirLayout) -> bool {
    let dot = le16(block, 4) == 12 && block.get(6) == Some(&1) && block.get(8) == Some(&b'.');
    let dotdot_len = usize::from(le16(block, 16));
    dot && dotdot_len == layout.block_size.len() - 12 && le32(block, INFO_AT) == 0
}

/// Returns whether a block of a hashed directory, other than block 0, looks like an inner node: one
/// free record that spans the whole block. A leaf with checksums never does, its tail is a record
/// of its own.
#[must_use]
pub fn is_node(block: &[u8], layout: &DirLayout) -> bool {
    let raw = le16(block, 4);
    let bs = layout.block_size.len();
    let whole = usize::from(raw) == bs || (bs == 65_536 && (raw == 0 || raw == u16::MAX));
    le32(block, 0) == 0 && whole
}

fn node_checksum(block: &[u8], entries_at: usize, inode_seed: Crc32c) -> Option<(u32, u32)> {
    let limit = usize::from(le16(block, entries_at));
    let count = usize::from(le16(block, entries_at + 2));
    let tail_at = entries_at + limit * DX_ENTRY_LEN;
    let tail = block.get(tail_at..)?.get(..DX_TAIL_LEN)?;
    if count > limit {
        return None;
    }
    let covered = block.get(..entries_at + count * DX_ENTRY_LEN)?;
    let computed = inode_seed
        .update(covered)
        .update(tail.get(..4)?)
        .update_u32(0)
        .value();
    Some((le32(tail, 4), computed))
}

fn verify_checksum(block: &[u8], entries_at: usize, inode_seed: Crc32c) -> FormatResult<()> {
    match node_checksum(block, entries_at, inode_seed) {
        Some((stored, computed)) if stored == computed => Ok(()),
        Some((stored, computed)) => {
            Err(FormatError::checksum(Structure::DirIndex, stored, computed))
        }
        None => Err(FormatError::new(
            Structure::DirIndex,
            "limit",
            u64::from(le16(block, entries_at)),
            Expected::Said("room for a checksum behind the pairs"),
        )
        .at(entries_at)),
    }
}

/// Checks the checksum of an index root, of a file system with `metadata_csum`.
///
/// # Errors
/// When the tail is missing or the stored checksum differs.
pub fn verify_root_checksum(block: &[u8], inode_seed: Crc32c) -> FormatResult<()> {
    verify_checksum(block, ROOT_ENTRIES_AT, inode_seed)
}

/// Checks the checksum of an inner node, of a file system with `metadata_csum`.
///
/// # Errors
/// When the tail is missing or the stored checksum differs.
pub fn verify_node_checksum(block: &[u8], inode_seed: Crc32c) -> FormatResult<()> {
    verify_checksum(block, NODE_ENTRIES_AT, inode_seed)
}

fn write_checksum(block: &mut [u8], entries_at: usize, inode_seed: Crc32c) {
    let tail_at = entries_at + usize::from(le16(block, entries_at)) * DX_ENTRY_LEN;
    if let Some((_, checksum)) = node_checksum(block, entries_at, inode_seed) {
        put(block, tail_at + 4, &checksum.to_le_bytes());
    }
}

/// Stores the checksum of an index root, of a file system with `metadata_csum`. Changes nothing in
/// a block whose tail would lie outside it.
pub fn write_root_checksum(block: &mut [u8], inode_seed: Crc32c) {
    write_checksum(block, ROOT_ENTRIES_AT, inode_seed);
}

/// Stores the checksum of an inner node, of a file system with `metadata_csum`. Changes nothing in
/// a block whose tail would lie outside it.
pub fn write_node_checksum(block: &mut [u8], inode_seed: Crc32c) {
    write_checksum(block, NODE_ENTRIES_AT, inode_seed);
}

/// Which of the two forms an index node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DxKind {
    /// The root, in block 0.
    Root,
    /// A node between root and leaves.
    Inner,
}

impl DxKind {
    /// Returns the most pairs a node of this form and layout holds.
    #[must_use]
    pub fn limit(self, layout: &DirLayout) -> usize {
        match self {
            Self::Root => root_limit(layout),
            Self::Inner => node_limit(layout),
        }
    }

    const fn entries_at(self) -> usize {
        match self {
            Self::Root => ROOT_ENTRIES_AT,
            Self::Inner => NODE_ENTRIES_AT,
        }
    }
}

/// Replaces the pairs of an index node; the rest of it, its checksum among it, stays as it is. The
/// hash of the first pair is not stored.
///
/// Returns `false`, having changed nothing, if `block` is not one block long or the number of pairs
/// is not 1 to the limit.
#[must_use]
pub fn replace_pairs(
    block: &mut [u8],
    layout: &DirLayout,
    kind: DxKind,
    entries: &[DxEntry],
) -> bool {
    let limit = kind.limit(layout);
    if block.len() != layout.block_size.len() || entries.is_empty() || entries.len() > limit {
        return false;
    }
    put_pairs(block, kind.entries_at(), limit, entries);
    true
}

/// Sets how many levels of inner nodes an index root says there are.
pub fn set_indirect_levels(root: &mut [u8], levels: u8) {
    put(root, INFO_AT + 6, &[levels]);
}

/// Sets the parent that an index root names in `..`.
pub fn set_parent(root: &mut [u8], parent: Ino) {
    put(root, 12, &parent.get().to_le_bytes());
}

/// What an index root says besides its pairs.
#[derive(Clone, Copy, Debug)]
pub struct DxRootInfo {
    /// The directory itself.
    pub ino: Ino,
    /// Its parent.
    pub parent: Ino,
    /// The hash function; stored in its signed form.
    pub hash_version: HashVersion,
    /// Levels of inner nodes between the root and the leaves.
    pub indirect_levels: u8,
}

/// Writes a whole index root with its checksum. The hash of the first pair is not stored.
///
/// Returns `false` if `block` is not one block long or the number of pairs is not 1 to
/// [`root_limit`].
#[must_use]
pub fn encode_root(
    block: &mut [u8],
    layout: &DirLayout,
    info: &DxRootInfo,
    entries: &[DxEntry],
    inode_seed: Crc32c,
) -> bool {
    let limit = root_limit(layout);
    let bs = layout.block_size.len();
    if block.len() != bs || entries.is_empty() || entries.len() > limit {
        return false;
    }
    block.fill(0);
    let dot = NewEntry::new(info.ino, b".", EntryType::Directory);
    let dotdot = NewEntry::new(info.parent, b"..", EntryType::Directory);
    if !write_entry(block, 0, layout, 12, &dot) || !write_entry(block, 12, layout, bs - 12, &dotdot)
    {
        return false;
    }
    let description = [
        info.hash_version.stored().raw(),
        DX_ROOT_INFO_LEN as u8,
        info.indirect_levels,
        0,
    ];
    put(block, INFO_AT + 4, &description);
    encode_pairs(block, layout, ROOT_ENTRIES_AT, limit, entries, inode_seed);
    true
}

/// Writes a whole inner node with its checksum. The hash of the first pair is not stored.
///
/// Returns `false` if `block` is not one block long or the number of pairs is not 1 to
/// [`node_limit`].
#[must_use]
pub fn encode_node(
    block: &mut [u8],
    layout: &DirLayout,
    entries: &[DxEntry],
    inode_seed: Crc32c,
) -> bool {
    let limit = node_limit(layout);
    if block.len() != layout.block_size.len() || entries.is_empty() || entries.len() > limit {
        return false;
    }
    block.fill(0);
    write_free(block, 0, layout, layout.block_size.len());
    encode_pairs(block, layout, NODE_ENTRIES_AT, limit, entries, inode_seed);
    true
}

fn encode_pairs(
    block: &mut [u8],
    layout: &DirLayout,
    entries_at: usize,
    limit: usize,
    entries: &[DxEntry],
    inode_seed: Crc32c,
) {
    put_pairs(block, entries_at, limit, entries);
    if layout.checksums {
        write_checksum(block, entries_at, inode_seed);
    }
}

fn put_pairs(block: &mut [u8], entries_at: usize, limit: usize, entries: &[DxEntry]) {
    for (index, entry) in entries.iter().enumerate() {
        let at = entries_at + index * DX_ENTRY_LEN;
        put(block, at, &entry.hash.to_le_bytes());
        put(
            block,
            at + 4,
            &(entry.block.get() & BLOCK_MASK).to_le_bytes(),
        );
    }
    put(block, entries_at, &(limit as u16).to_le_bytes());
    put(block, entries_at + 2, &(entries.len() as u16).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::entry;
    use crate::types::BlockSize;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn layout(log2: u32, checksums: bool, hash_in_entry: bool) -> DirLayout {
        DirLayout {
            block_size: BlockSize::from_log2(log2).unwrap(),
            file_type: true,
            checksums,
            hash_in_entry,
            raw_names: hash_in_entry,
            max_inode: Ino::new(u32::MAX),
        }
    }

    #[test]
    fn limits_are_those_of_the_format() {
        assert_eq!(root_limit(&layout(12, true, false)), 507);
        assert_eq!(node_limit(&layout(12, true, false)), 510);
        assert_eq!(root_limit(&layout(12, false, false)), 508);
        assert_eq!(node_limit(&layout(12, false, false)), 511);
        assert_eq!(root_limit(&layout(10, true, false)), 123);
        assert_eq!(node_limit(&layout(10, true, true)), 125);
    }

    #[test]
    fn index_nodes_read_as_directory_blocks_without_names() {
        let layout = layout(12, true, false);
        let pairs = [DxEntry {
            hash: 0,
            block: Lblk::new(1),
        }];
        let mut block = vec![0; 4096];
        assert!(encode_node(&mut block, &layout, &pairs, Crc32c::INIT));
        assert!(is_node(&block, &layout));
        assert!(entry::entries(&block, &layout).all(|e| e.unwrap().ino.is_none()));
        let info = DxRootInfo {
            ino: Ino::new(12),
            parent: Ino::ROOT,
            hash_version: HashVersion::HalfMd4Unsigned,
            indirect_levels: 0,
        };
        assert!(encode_root(
            &mut block,
            &layout,
            &info,
            &pairs,
            Crc32c::INIT
        ));
        let names: Vec<_> = entry::entries(&block, &layout)
            .map(|e| e.unwrap().name)
            .collect();
        assert_eq!(names, [&b"."[..], b".."]);
    }

    proptest! {
        #[test]
        fn nodes_read_back_and_are_searched_like_a_sorted_list(
            mut hashes in prop::collection::vec(any::<u32>(), 1..120),
            wanted in prop::collection::vec(any::<u32>(), 20),
            log2 in 10u32..=16,
            checksums: bool,
            hash_in_entry: bool,
            seed: u32,
            levels in 0u8..=2,
            version in 0u8..=6,
        ) {
            let layout = layout(log2, checksums, hash_in_entry);
            let seed = Crc32c::seeded(seed);
            hashes.sort_unstable();
            hashes[0] = 0;
            let pairs: Vec<_> = hashes.iter().enumerate()
                .map(|(i, &hash)| DxEntry { hash, block: Lblk::new(i as u32 + 1) })
                .collect();
            let mut node = vec![0xee; layout.block_size.len()];
            prop_assert!(encode_node(&mut node, &layout, &pairs, seed));
            let mut root = vec![0xee; layout.block_size.len()];
            let info = DxRootInfo {
                ino: Ino::new(11), parent: Ino::new(77),
                hash_version: HashVersion::from_raw(version).unwrap(), indirect_levels: levels,
            };
            prop_assert!(encode_root(&mut root, &layout, &info, &pairs, seed));
            if checksums {
                verify_node_checksum(&node, seed).unwrap();
                verify_root_checksum(&root, seed).unwrap();
            }
            // Edited in place they are what they would be if written at once.
            let fewer = &pairs[..pairs.len().div_ceil(2)];
            for (kind, whole) in [(DxKind::Root, &root), (DxKind::Inner, &node)] {
                let mut edited = whole.clone();
                prop_assert!(replace_pairs(&mut edited, &layout, kind, fewer));
                prop_assert!(replace_pairs(&mut edited, &layout, kind, &pairs));
                if checksums {
                    let store = match kind {
                        DxKind::Root => write_root_checksum,
                        DxKind::Inner => write_node_checksum,
                    };
                    store(&mut edited, seed);
                }
                prop_assert_eq!(&edited, whole);
            }
            let parsed_root = DxRoot::parse(&root, &layout, true).unwrap();
            prop_assert_eq!(parsed_root.parent, info.parent);
            prop_assert_eq!(parsed_root.indirect_levels, levels);
            prop_assert_eq!(parsed_root.hash_version, info.hash_version.stored());
            prop_assert_eq!(DxRoot::parse(&root, &layout, false).is_ok(), levels < 2);
            for parsed in [parse_node(&node, &layout).unwrap(), parsed_root.entries] {
                prop_assert_eq!(parsed.iter().collect::<Vec<_>>(), pairs.clone());
                for &hash in wanted.iter().chain(&hashes) {
                    let expected = hashes.iter().rposition(|&h| h <= hash).unwrap();
                    prop_assert_eq!(parsed.find(hash), expected);
                }
            }
        }
    }
}
