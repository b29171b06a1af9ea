//! Extent tree nodes: headers, extents, index entries and tails.
//!
//! A file's tree starts in the 60 bytes of the inode's map and goes down at most [`MAX_DEPTH`]
//! levels of blocks. Every node is a 12-byte header and sorted 12-byte entries; a node in a block
//! ends with a checksum where the file system has metadata checksums.
//!
//! # Invariants
//!
//! - [`ExtentNode::parse`] looks at the header only: what it returns never reads outside its bytes.
//! - [`ExtentNode::validate`] checks every entry against the range of logical blocks the parent
//!   gave the node and the physical blocks of the file system. A node that passed has sorted
//!   entries that do not overlap and stay in range, so a search needs no further check *for that
//!   parent*.
//! - A node's depth is one less than its parent's, which bounds every walk even on a cyclic tree.
//!
//! Source: the kernel's `ext4/ifork` page.

use crate::checksum::Crc32c;
use crate::{BlockSize, Expected, FormatError, FormatResult, Lblk, Pblk, Structure};
use core::ops::Range;

/// Magic number of a node's header.
pub const MAGIC: u16 = 0xf30a;
/// Most levels of blocks below the root.
pub const MAX_DEPTH: u16 = 5;
/// Bytes of a node's header, and of each entry.
pub const ENTRY_BYTES: usize = 12;
/// Bytes of the checksum after the entries of a node in a block.
pub const TAIL_BYTES: usize = 4;
/// Bytes of the root, in the inode's map.
pub const ROOT_BYTES: usize = 60;
/// Entries the root holds.
pub const ROOT_CAPACITY: u16 = 4;
/// Most blocks in one written extent.
pub const MAX_WRITTEN_LEN: u32 = 1 << 15;
/// Most blocks in one unwritten extent.
pub const MAX_UNWRITTEN_LEN: u32 = MAX_WRITTEN_LEN - 1;
/// One past the largest logical block an extent may cover: Linux counts the blocks of a file in 32
/// bits, and so the last number is no block.
pub const LBLK_END: u64 = (1 << 32) - 1;

/// Returns the entries a node in a block holds.
#[must_use]
pub const fn block_capacity(block_size: BlockSize) -> u16 {
    ((block_size.len() - ENTRY_BYTES) / ENTRY_BYTES) as u16
}

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First logical block.
    pub lblk: Lblk,
    /// Number of blocks: 1 to [`MAX_WRITTEN_LEN`], or [`MAX_UNWRITTEN_LEN`] for an unwritten one.
    pub len: u32,
    /// First physical block.
    pub pblk: Pblk,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// One past the last logical block; 2^32 for an extent at the very end.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.lblk.get() as u64 + self.len as u64
    }

    const fn decode(entry: &[u8; ENTRY_BYTES]) -> Self {
        let [b0, b1, b2, b3, l0, l1, h0, h1, s0, s1, s2, s3] = *entry;
        let raw = u16::from_le_bytes([l0, l1]) as u32;
        let unwritten = raw > MAX_WRITTEN_LEN;
        Self {
            lblk: Lblk::new(u32::from_le_bytes([b0, b1, b2, b3])),
            len: if unwritten {
                raw - MAX_WRITTEN_LEN
            } else {
                raw
            },
            pblk: Pblk::new(u64::from_le_bytes([s0, s1, s2, s3, h0, h1, 0, 0])),
            unwritten,
        }
    }

    fn encode(&self) -> FormatResult<[u8; ENTRY_BYTES]> {
        let limit = if self.unwritten {
            MAX_UNWRITTEN_LEN
        } else {
            MAX_WRITTEN_LEN
        };
        if self.len == 0 || self.len > limit {
            let expected = Expected::Between(1, limit.into());
            return Err(wrong("len", self.len.into(), expected));
        }
        let raw = self.len + if self.unwritten { MAX_WRITTEN_LEN } else { 0 };
        let [b0, b1, b2, b3] = self.lblk.get().to_le_bytes();
        let [l0, l1] = (raw as u16).to_le_bytes();
        let [s0, s1, s2, s3, h0, h1] = encode_pblk("start", self.pblk)?;
        Ok([b0, b1, b2, b3, l0, l1, h0, h1, s0, s1, s2, s3])
    }
}

/// An entry of an inner node: the child that maps from `lblk` to the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexEntry {
    /// First logical block the child may map.
    pub lblk: Lblk,
    /// The block that holds the child.
    pub child: Pblk,
}

impl IndexEntry {
    const fn decode(entry: &[u8; ENTRY_BYTES]) -> Self {
        let [b0, b1, b2, b3, c0, c1, c2, c3, h0, h1, _, _] = *entry;
        Self {
            lblk: Lblk::new(u32::from_le_bytes([b0, b1, b2, b3])),
            child: Pblk::new(u64::from_le_bytes([c0, c1, c2, c3, h0, h1, 0, 0])),
        }
    }

    fn encode(&self) -> FormatResult<[u8; ENTRY_BYTES]> {
        let [b0, b1, b2, b3] = self.lblk.get().to_le_bytes();
        let [c0, c1, c2, c3, h0, h1] = encode_pblk("leaf", self.child)?;
        Ok([b0, b1, b2, b3, c0, c1, c2, c3, h0, h1, 0, 0])
    }
}

fn encode_pblk(field: &'static str, block: Pblk) -> FormatResult<[u8; 6]> {
    let [a, b, c, d, e, f, 0, 0] = block.get().to_le_bytes() else {
        return Err(wrong(field, block.get(), Expected::AtMost((1 << 48) - 1)));
    };
    Ok([a, b, c, d, e, f])
}

const fn wrong(field: &'static str, found: u64, expected: Expected) -> FormatError {
    FormatError::new(Structure::ExtentNode, field, found, expected)
}

/// The header of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtentHeader {
    /// Entries in use.
    pub entries: u16,
    /// Entries the node has room for.
    pub max: u16,
    /// Levels below this node; 0 for a node of extents.
    pub depth: u16,
    /// Generation of the tree (unused by Linux).
    pub generation: u32,
}

impl ExtentHeader {
    fn parse(bytes: &[u8]) -> FormatResult<Self> {
        let Some(&[m0, m1, e0, e1, x0, x1, d0, d1, g0, g1, g2, g3]) = bytes.first_chunk() else {
            return Err(FormatError::short(
                Structure::ExtentNode,
                bytes.len(),
                ENTRY_BYTES,
            ));
        };
        let magic = u16::from_le_bytes([m0, m1]);
        if magic != MAGIC {
            return Err(wrong(
                "magic",
                magic.into(),
                Expected::Exactly(MAGIC.into()),
            ));
        }
        let header = Self {
            entries: u16::from_le_bytes([e0, e1]),
            max: u16::from_le_bytes([x0, x1]),
            depth: u16::from_le_bytes([d0, d1]),
            generation: u32::from_le_bytes([g0, g1, g2, g3]),
        };
        let capacity = (bytes.len() / ENTRY_BYTES - 1) as u64;
        if header.max == 0 || u64::from(header.max) > capacity {
            let expected = Expected::Between(1, capacity);
            return Err(wrong("max", header.max.into(), expected));
        }
        if header.entries > header.max {
            let expected = Expected::AtMost(header.max.into());
            return Err(wrong("entries", header.entries.into(), expected));
        }
        if header.depth > MAX_DEPTH {
            let expected = Expected::AtMost(MAX_DEPTH.into());
            return Err(wrong("depth", header.depth.into(), expected));
        }
        Ok(header)
    }

    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let [m0, m1] = MAGIC.to_le_bytes();
        let [e0, e1] = self.entries.to_le_bytes();
        let [x0, x1] = self.max.to_le_bytes();
        let [d0, d1] = self.depth.to_le_bytes();
        let [g0, g1, g2, g3] = self.generation.to_le_bytes();
        [m0, m1, e0, e1, x0, x1, d0, d1, g0, g1, g2, g3]
    }
}

/// What a node's parent and file system say about it.
#[derive(Clone, Debug)]
pub struct NodeContext {
    /// Logical blocks the node may map: from the parent's entry to the one after it. For a root,
    /// `0..LBLK_END`.
    pub logical: Range<u64>,
    /// Physical blocks of the file system that data or nodes may use.
    pub physical: Range<u64>,
    /// The depth the node must have (one less than its parent's); `None` for a root.
    pub depth: Option<u16>,
}

impl NodeContext {
    /// Returns the context of a root.
    #[must_use]
    pub const fn root(physical: Range<u64>) -> Self {
        Self {
            logical: 0..LBLK_END,
            physical,
            depth: None,
        }
    }
}

/// Returns whether few looks tell that a root holds extents in which nothing is wrong: what
/// [`ExtentNode::parse`] and [`ExtentNode::validate`] accept. False also of what takes more looks,
/// as a root of index entries does.
#[inline(always)]
#[must_use]
pub fn is_sound_leaf(root: &[u8; ROOT_BYTES], physical: &Range<u64>) -> bool {
    // The magic, the room that a root has, and no levels below; the entries in use lie between.
    const USUAL: u64 = MAGIC as u64 | (ROOT_CAPACITY as u64) << 32;
    const ENTRIES_AT: u32 = 16;
    const ENTRIES: u64 = 0xffff << ENTRIES_AT;
    let Some(head) = root.first_chunk() else {
        return false;
    };
    let head = u64::from_le_bytes(*head);
    let entries = (head & ENTRIES) >> ENTRIES_AT;
    if head & !ENTRIES != USUAL || entries > u64::from(ROOT_CAPACITY) {
        return false;
    }
    let (chunks, _) = root.as_chunks::<ENTRY_BYTES>();
    let mut free_from = 0;
    chunks.iter().skip(1).take(entries as usize).all(|entry| {
        let extent = Extent::decode(entry);
        let (first, start) = (u64::from(extent.lblk.get()), extent.pblk.get());
        let is_sound = extent.len != 0
            && first >= free_from
            && extent.end() <= LBLK_END
            && start >= physical.start
            && start + u64::from(extent.len) <= physical.end;
        free_from = extent.end();
        is_sound
    })
}

/// A node over its bytes: the 60 bytes of a root, or a block.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    header: ExtentHeader,
    entries: &'a [[u8; ENTRY_BYTES]],
}

impl<'a> ExtentNode<'a> {
    /// Reads the header. The entries are not looked at; see [`ExtentNode::validate`].
    ///
    /// # Errors
    /// When the magic, the depth or the counts are wrong.
    pub fn parse(bytes: &'a [u8]) -> FormatResult<Self> {
        let header = ExtentHeader::parse(bytes)?;
        let (chunks, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entries = chunks
            .get(1..=usize::from(header.entries))
            .ok_or_else(|| FormatError::short(Structure::ExtentNode, bytes.len(), ENTRY_BYTES))?;
        Ok(Self { header, entries })
    }

    /// Checks every entry: order, overlap, the logical range of the parent, the physical range of
    /// the file system, the depth.
    ///
    /// # Errors
    /// Names the first entry that breaks a rule.
    pub fn validate(&self, context: &NodeContext) -> FormatResult<()> {
        if let Some(depth) = context.depth {
            if self.header.depth != depth {
                let expected = Expected::Exactly(depth.into());
                return Err(wrong("depth", self.header.depth.into(), expected).at(6));
            }
            // Only a root may be empty: an empty child would make its parent's entry a lie.
            if self.header.entries == 0 {
                return Err(wrong("entries", 0, Expected::AtLeast(1)).at(2));
            }
        } else if self.header.depth > 0 && self.header.entries == 0 {
            return Err(wrong("entries", 0, Expected::AtLeast(1)).at(2));
        }
        if self.is_leaf() {
            self.validate_extents(context)
        } else {
            self.validate_index(context)
        }
    }

    /// Checks what the parent said about a node whose entries were validated before, perhaps under
    /// another parent: the depth, and that the entries lie in the parent's logical range.
    ///
    /// # Errors
    /// Names the entry that lies outside.
    pub fn fits(&self, context: &NodeContext) -> FormatResult<()> {
        if let Some(depth) = context.depth {
            if self.header.depth != depth {
                let expected = Expected::Exactly(depth.into());
                return Err(wrong("depth", self.header.depth.into(), expected).at(6));
            }
            if self.is_empty() {
                // An empty child would make its parent's entry a lie.
                return Err(wrong("entries", 0, Expected::AtLeast(1)).at(2));
            }
        }
        let (Some(first), Some(last)) = (
            self.first_block(0),
            self.index_entry(self.len().saturating_sub(1)),
        ) else {
            return Ok(());
        };
        let end = match self.extent(self.len() - 1) {
            Some(extent) if self.is_leaf() => extent.end(),
            _ => u64::from(last.lblk.get()) + 1,
        };
        let range = Expected::Between(context.logical.start, context.logical.end.saturating_sub(1));
        if u64::from(first.get()) < context.logical.start {
            return Err(wrong("block", first.get().into(), range).at(ENTRY_BYTES));
        }
        if end > context.logical.end {
            return Err(wrong("block", end - 1, range).at(ENTRY_BYTES * self.len()));
        }
        Ok(())
    }

    fn validate_extents(&self, context: &NodeContext) -> FormatResult<()> {
        let mut free_from = context.logical.start;
        for (i, extent) in self.extents().enumerate() {
            let at = ENTRY_BYTES * (i + 1);
            if extent.len == 0 {
                return Err(wrong("len", 0, Expected::AtLeast(1)).at(at + 4));
            }
            let first = u64::from(extent.lblk.get());
            if first < free_from || extent.end() > context.logical.end {
                let expected = Expected::Between(
                    free_from,
                    context.logical.end.saturating_sub(extent.len.into()),
                );
                return Err(wrong("block", first, expected).at(at));
            }
            let start = extent.pblk.get();
            // 48 bits and a length of 15: no overflow.
            if start < context.physical.start
                || start + u64::from(extent.len) > context.physical.end
            {
                let expected = Expected::Between(
                    context.physical.start,
                    context.physical.end.saturating_sub(extent.len.into()),
                );
                return Err(wrong("start", start, expected).at(at + 6));
            }
            free_from = extent.end();
        }
        Ok(())
    }

    fn validate_index(&self, context: &NodeContext) -> FormatResult<()> {
        let mut from = context.logical.start;
        for (i, entry) in self.index_entries().enumerate() {
            let at = ENTRY_BYTES * (i + 1);
            let first = u64::from(entry.lblk.get());
            if first < from || first >= context.logical.end {
                let expected = Expected::Between(from, context.logical.end.saturating_sub(1));
                return Err(wrong("block", first, expected).at(at));
            }
            if !context.physical.contains(&entry.child.get()) {
                let expected = Expected::Between(
                    context.physical.start,
                    context.physical.end.saturating_sub(1),
                );
                return Err(wrong("leaf", entry.child.get(), expected).at(at + 4));
            }
            from = first + 1;
        }
        Ok(())
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> ExtentHeader {
        self.header
    }

    /// Returns whether the node holds extents (rather than index entries).
    #[must_use]
    pub const fn is_leaf(&self) -> bool {
        self.header.depth == 0
    }

    /// Returns the number of entries in use.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the extent at `i`. Meaningful in leaves only.
    #[must_use]
    pub fn extent(&self, i: usize) -> Option<Extent> {
        self.entries.get(i).map(Extent::decode)
    }

    /// Returns the index entry at `i`. Meaningful in inner nodes only.
    #[must_use]
    pub fn index_entry(&self, i: usize) -> Option<IndexEntry> {
        self.entries.get(i).map(IndexEntry::decode)
    }

    /// Returns all extents. Meaningful in leaves only.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + use<'a> {
        self.entries.iter().map(Extent::decode)
    }

    /// Returns all index entries. Meaningful in inner nodes only.
    pub fn index_entries(&self) -> impl ExactSizeIterator<Item = IndexEntry> + use<'a> {
        self.entries.iter().map(IndexEntry::decode)
    }

    /// Returns the position of the last entry at or before `lblk`, or `None` when all come after
    /// it.
    #[must_use]
    pub fn search(&self, lblk: Lblk) -> Option<usize> {
        let after = self.entries.partition_point(|entry| {
            let [b0, b1, b2, b3, ..] = *entry;
            u32::from_le_bytes([b0, b1, b2, b3]) <= lblk.get()
        });
        after.checked_sub(1)
    }

    /// Returns the first logical block of the entry at `i`, in leaves and inner nodes alike.
    #[must_use]
    pub fn first_block(&self, i: usize) -> Option<Lblk> {
        self.index_entry(i).map(|entry| entry.lblk)
    }

    /// Returns the context of the child at `i`, whose parent was validated under `context`.
    #[must_use]
    pub fn child_context(&self, i: usize, context: &NodeContext) -> Option<NodeContext> {
        let from = self.first_block(i)?;
        let end = match self.first_block(i + 1) {
            Some(next) => u64::from(next.get()).min(context.logical.end),
            None => context.logical.end,
        };
        Some(NodeContext {
            logical: u64::from(from.get())..end,
            physical: context.physical.clone(),
            depth: Some(self.header.depth.checked_sub(1)?),
        })
    }
}

/// Where the checksum of a node in a block lies: after the room for all its entries.
fn tail_at(bytes: &[u8]) -> FormatResult<usize> {
    let header = ExtentHeader::parse(bytes)?;
    let at = ENTRY_BYTES * (usize::from(header.max) + 1);
    if at + TAIL_BYTES > bytes.len() {
        return Err(FormatError::short(
            Structure::ExtentNode,
            bytes.len(),
            at + TAIL_BYTES,
        ));
    }
    Ok(at)
}

/// Verifies the checksum of a node in a block. `inode_seed` is the file system's seed continued
/// over inode number and generation.
///
/// # Errors
/// When the header is unreadable or the checksum wrong.
pub fn verify_checksum(block: &[u8], inode_seed: Crc32c) -> FormatResult<()> {
    let at = tail_at(block)?;
    let (covered, rest) = block.split_at(at);
    let stored = rest.first_chunk().copied().map_or(0, u32::from_le_bytes);
    let computed = inode_seed.update(covered).value();
    if stored == computed {
        Ok(())
    } else {
        Err(FormatError::checksum(Structure::ExtentNode, stored, computed).at(at))
    }
}

/// Stores the checksum of a node in a block.
///
/// # Errors
/// When the header is unreadable.
pub fn store_checksum(block: &mut [u8], inode_seed: Crc32c) -> FormatResult<()> {
    let at = tail_at(block)?;
    let (covered, rest) = block.split_at_mut(at);
    let value = inode_seed.update(covered).value();
    if let Some(tail) = rest.first_chunk_mut::<TAIL_BYTES>() {
        *tail = value.to_le_bytes();
    }
    Ok(())
}

/// Entries to build a node from.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// Extents: a leaf.
    Extents(&'a [Extent]),
    /// Index entries: an inner node of this depth (1 to [`MAX_DEPTH`]).
    Index(u16, &'a [IndexEntry]),
}

/// Builds a node in `bytes`: [`ROOT_BYTES`] of an inode's map, or a whole block. Room that is not
/// used becomes zero; the checksum is stored apart.
///
/// # Errors
/// When the entries do not fit, or one of them cannot be represented.
pub fn build_node(bytes: &mut [u8], entries: Entries<'_>) -> FormatResult<()> {
    let capacity = (bytes.len() / ENTRY_BYTES).saturating_sub(1);
    let (depth, count) = match entries {
        Entries::Extents(extents) => (0, extents.len()),
        Entries::Index(depth, index) => (depth, index.len()),
    };
    if count > capacity {
        let expected = Expected::AtMost(capacity as u64);
        return Err(wrong("entries", count as u64, expected));
    }
    if depth > MAX_DEPTH {
        return Err(wrong(
            "depth",
            depth.into(),
            Expected::AtMost(MAX_DEPTH.into()),
        ));
    }
    bytes.fill(0);
    let (chunks, _) = bytes.as_chunks_mut::<ENTRY_BYTES>();
    let Some((first, rest)) = chunks.split_first_mut() else {
        return Err(FormatError::short(Structure::ExtentNode, 0, ENTRY_BYTES));
    };
    *first = ExtentHeader {
        entries: count as u16,
        max: capacity as u16,
        depth,
        generation: 0,
    }
    .encode();
    match entries {
        Entries::Extents(extents) => {
            for (to, extent) in rest.iter_mut().zip(extents) {
                *to = extent.encode()?;
            }
        }
        Entries::Index(_, index) => {
            for (to, entry) in rest.iter_mut().zip(index) {
                *to = entry.encode()?;
            }
        }
    }
    Ok(())
}

/// Puts `new` in the place of the extents at positions `replaced` of a leaf, of which there may be
/// none. Room that is not used any more becomes zero; the checksum is stored apart.
///
/// # Errors
/// When the header is unreadable or not that of a leaf with these positions, when there is no room,
/// or one of `new` cannot be represented. What the leaf holds is of no use then.
pub fn put_extents(bytes: &mut [u8], replaced: Range<usize>, new: &[Extent]) -> FormatResult<()> {
    let mut header = ExtentHeader::parse(bytes)?;
    if header.depth != 0 {
        return Err(wrong("depth", header.depth.into(), Expected::Exactly(0)));
    }
    let before = usize::from(header.entries);
    let count = replaced.len();
    if replaced.start + count > before {
        let expected = Expected::AtMost(before as u64);
        return Err(wrong("entries", replaced.end as u64, expected));
    }
    let after = before - count + new.len();
    if after > usize::from(header.max) {
        let expected = Expected::AtMost(header.max.into());
        return Err(wrong("entries", after as u64, expected));
    }
    header.entries = after as u16;
    let (chunks, _) = bytes.as_chunks_mut::<ENTRY_BYTES>();
    let Some((first, entries)) = chunks.split_first_mut() else {
        return Err(FormatError::short(Structure::ExtentNode, 0, ENTRY_BYTES));
    };
    *first = header.encode();
    // The header's room is what the bytes have, at most.
    let rest = replaced.start + count..before;
    entries.copy_within(rest, replaced.start + new.len());
    for (to, extent) in entries[replaced.start..].iter_mut().zip(new) {
        *to = extent.encode()?;
    }
    if after < before {
        entries[after..before].fill([0; ENTRY_BYTES]);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
