//! The two areas attributes are kept in.
//!
//! # Invariant
//! A [`XattrArea`] has been walked once to its end: every name, value and the terminator lie inside
//! it, no value overlaps the table of entries, and sizes are within the format's limits. Walking it
//! again cannot fail.

use super::hash::HashedValue;
use super::name::AttributeName;
use super::{BLOCK_HEADER_LEN, ENTRY_HEADER_LEN, INODE_HEADER_LEN, MAGIC, VALUE_MAX, hash, padded};
use crate::bytes::{le16, le32, put};
use crate::checksum::Crc32c;
use crate::error::{Expected, FormatError, FormatResult, Structure};
use crate::types::{Ino, Pblk};
use core::ops::Range;

/// What the file system says about attributes.
#[derive(Clone, Copy, Debug)]
pub struct XattrContext {
    /// Feature `ea_inode`: values may lie in inodes of their own.
    pub ea_inode: bool,
    /// Highest inode number of the file system.
    pub max_inode: Ino,
}

/// Where the value of an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// Here.
    Bytes(&'a [u8]),
    /// The content of an inode, which has `size` bytes.
    InInode {
        /// The inode.
        ino: Ino,
        /// Length of the value in bytes.
        size: u32,
    },
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// The name as stored.
    pub name: AttributeName<'a>,
    /// The value, or where it is.
    pub value: XattrValue<'a>,
    /// The stored hash of name and value; 0 if none.
    pub hash: u32,
    /// A value that is here with its padding to four bytes, which the hash covers as it is.
    padded: &'a [u8],
}

impl XattrEntry<'_> {
    /// Returns the length of the value in bytes.
    #[must_use]
    pub fn value_len(&self) -> usize {
        match self.value {
            XattrValue::Bytes(bytes) => bytes.len(),
            XattrValue::InInode { size, .. } => size as usize,
        }
    }

    /// Checks the stored hash of an entry whose value is here. An entry with its value elsewhere
    /// passes; check it with [`XattrEntry::verify_with_value_hash`].
    ///
    /// # Errors
    /// When the stored hash is neither 0 nor one of the two forms.
    pub fn verify_hash(&self) -> FormatResult<()> {
        match self.value {
            XattrValue::Bytes(_) => self.verify(HashedValue::Bytes(self.padded)),
            XattrValue::InInode { .. } => Ok(()),
        }
    }

    /// Checks the stored hash of an entry whose value lies in an inode and has this hash.
    ///
    /// # Errors
    /// When the stored hash is neither 0 nor one of the two forms.
    pub fn verify_with_value_hash(&self, value_hash: u32) -> FormatResult<()> {
        self.verify(HashedValue::InInode(value_hash))
    }

    fn verify(&self, value: HashedValue<'_>) -> FormatResult<()> {
        if hash::entry_hash_matches(self.hash, self.name.suffix, value) {
            return Ok(());
        }
        let right = u64::from(hash::entry_hash(self.name.suffix, value));
        Err(FormatError::new(
            Structure::Xattr,
            "hash",
            u64::from(self.hash),
            Expected::Exactly(right),
        ))
    }
}

/// The attributes of one area, checked.
#[derive(Clone, Copy, Debug)]
pub struct XattrArea<'a> {
    /// The bytes value offsets count from.
    base: &'a [u8],
    /// Where in `base` the first entry is.
    first: usize,
}

impl<'a> XattrArea<'a> {
    /// An area without attributes.
    pub const EMPTY: Self = XattrArea {
        base: &[],
        first: 0,
    };

    /// Reads the attributes kept in an inode: the bytes of its slot after the extra fields
    /// ([`Inode::xattr_region`](crate::inode::Inode::xattr_region)). Without the magic there are
    /// none.
    ///
    /// # Errors
    /// When an entry or a value does not lie where it may.
    pub fn in_inode(region: &'a [u8], context: &XattrContext) -> FormatResult<Self> {
        if region.len() < INODE_HEADER_LEN + 4 || le32(region, 0) != MAGIC {
            return Ok(Self::EMPTY);
        }
        let base = region.get(INODE_HEADER_LEN..).unwrap_or_default();
        Self { base, first: 0 }.checked(context)
    }

    /// Reads the attributes of a block. The checksum is not looked at; see
    /// [`verify_block_checksum`].
    ///
    /// # Errors
    /// When the header is not one, or an entry or a value does not lie where it may.
    pub fn in_block(block: &'a [u8], context: &XattrContext) -> FormatResult<Self> {
        XattrBlockHeader::parse(block)?;
        Self {
            base: block,
            first: BLOCK_HEADER_LEN,
        }
        .checked(context)
    }

    fn checked(self, context: &XattrContext) -> FormatResult<Self> {
        let broken = |field, at: usize, found: u64, expected| {
            Err(FormatError::new(Structure::Xattr, field, found, expected).at(at))
        };
        let end = self.base.len();
        // First the table of names, to know where it ends, then the values.
        let mut at = self.first;
        let table_end = loop {
            if at + 4 > end {
                return broken(
                    "entries",
                    at,
                    (end - self.first) as u64,
                    Expected::Said("a terminator inside the area"),
                );
            }
            if le32(self.base, at) == 0 {
                break at + 4;
            }
            let name_len = usize::from(self.base.get(at).copied().unwrap_or(0));
            let next = at + ENTRY_HEADER_LEN + padded(name_len);
            // The terminator of the table must still fit behind the entry.
            if next + 4 > end {
                let most = end.saturating_sub(at + ENTRY_HEADER_LEN + 4) as u64;
                return broken("name_len", at, name_len as u64, Expected::AtMost(most));
            }
            let name = self.base.get(at + ENTRY_HEADER_LEN..).unwrap_or_default();
            if name.iter().take(name_len).any(|&b| b == 0) {
                return broken("name", at, 0, Expected::Said("no zero byte in a name"));
            }
            at = next;
        };
        at = self.first;
        while at + 4 < table_end {
            let name_len = usize::from(self.base.get(at).copied().unwrap_or(0));
            let offset = usize::from(le16(self.base, at + 2));
            let ino = le32(self.base, at + 4);
            let size = le32(self.base, at + 8);
            if size > VALUE_MAX {
                return broken(
                    "value_size",
                    at,
                    u64::from(size),
                    Expected::AtMost(u64::from(VALUE_MAX)),
                );
            }
            if ino != 0 {
                let most = if context.ea_inode {
                    context.max_inode.get()
                } else {
                    0
                };
                if ino > most {
                    return broken(
                        "value_inum",
                        at,
                        u64::from(ino),
                        Expected::AtMost(u64::from(most)),
                    );
                }
            } else if size != 0 {
                if offset < table_end || offset > end {
                    return broken(
                        "value_offs",
                        at,
                        offset as u64,
                        Expected::Between(table_end as u64, end as u64),
                    );
                }
                if padded(size as usize) > end - offset {
                    let most = (end - offset) as u64;
                    return broken("value_size", at, u64::from(size), Expected::AtMost(most));
                }
            }
            at += ENTRY_HEADER_LEN + padded(name_len);
        }
        Ok(self)
    }

    /// Returns the attributes in the order they are stored.
    #[must_use]
    pub fn iter(&self) -> XattrEntries<'a> {
        XattrEntries {
            base: self.base,
            at: self.first,
        }
    }

    /// Returns the attribute of this name, if it is here.
    #[must_use]
    pub fn find(&self, name: &AttributeName<'_>) -> Option<XattrEntry<'a>> {
        self.iter().find(|entry| entry.name == *name)
    }

    /// Returns where in `region`, which the area was read from, the value of this attribute lies;
    /// `None` if it is not there, or empty.
    #[must_use]
    pub fn position(&self, region: &[u8], name: &AttributeName<'_>) -> Option<Range<usize>> {
        let XattrValue::Bytes(value) = self.find(name)?.value else {
            return None;
        };
        let start = value.as_ptr().addr().checked_sub(region.as_ptr().addr())?;
        let range = start..start.checked_add(value.len())?;
        (!value.is_empty() && range.end <= region.len()).then_some(range)
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// Iterator over the attributes of an area.
#[derive(Clone, Debug)]
pub struct XattrEntries<'a> {
    base: &'a [u8],
    at: usize,
}

impl<'a> Iterator for XattrEntries<'a> {
    type Item = XattrEntry<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.base.get(self.at..)?;
        let header = entry.get(..ENTRY_HEADER_LEN)?;
        if le32(header, 0) == 0 {
            return None;
        }
        let name_len = usize::from(header[0]);
        let suffix = entry.get(ENTRY_HEADER_LEN..)?.get(..name_len)?;
        let size = le32(header, 8);
        let mut with_padding: &[u8] = &[];
        let value = match le32(header, 4) {
            0 if size == 0 => XattrValue::Bytes(&[]),
            0 => {
                let from = usize::from(le16(header, 2));
                with_padding = self.base.get(from..)?.get(..padded(size as usize))?;
                XattrValue::Bytes(with_padding.get(..size as usize)?)
            }
            ino => XattrValue::InInode {
                ino: Ino::new(ino),
                size,
            },
        };
        self.at += ENTRY_HEADER_LEN + padded(name_len);
        Some(XattrEntry {
            name: AttributeName {
                index: header[1],
                suffix,
            },
            value,
            hash: le32(header, 12),
            padded: with_padding,
        })
    }
}

impl core::iter::FusedIterator for XattrEntries<'_> {}

/// The header of an attribute block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrBlockHeader {
    /// How many inodes share the block.
    pub ref_count: u32,
    /// [`block_hash`](super::hash::block_hash) of the entries, by which equal blocks are found.
    pub hash: u32,
    /// The stored checksum.
    pub checksum: u32,
}

impl XattrBlockHeader {
    /// Reads the header of an attribute block.
    ///
    /// # Errors
    /// When the block is short, the magic is wrong, or the attributes claim more than one block.
    pub fn parse(block: &[u8]) -> FormatResult<Self> {
        if block.len() < BLOCK_HEADER_LEN + 4 {
            let needed = BLOCK_HEADER_LEN + 4;
            return Err(FormatError::short(
                Structure::XattrBlock,
                block.len(),
                needed,
            ));
        }
        for (field, at, right) in [("magic", 0, MAGIC), ("blocks", 8, 1)] {
            let found = le32(block, at);
            if found != right {
                let expected = Expected::Exactly(u64::from(right));
                return Err(FormatError::new(
                    Structure::XattrBlock,
                    field,
                    u64::from(found),
                    expected,
                )
                .at(at));
            }
        }
        Ok(Self {
            ref_count: le32(block, 4),
            hash: le32(block, 12),
            checksum: le32(block, 16),
        })
    }

    /// Writes how many inodes share the block into `block`, which has such a header already. The
    /// checksum is stored apart.
    pub fn store_ref_count(&self, block: &mut [u8]) {
        put(block, 4, &self.ref_count.to_le_bytes());
    }
}

/// Writes the checksum that an attribute block has at `pblk`.
pub fn seal_block(block: &mut [u8], fs_seed: Crc32c, pblk: Pblk) {
    let sum = block_checksum(block, fs_seed, pblk);
    put(block, 16, &sum.to_le_bytes());
}

/// Returns the checksum of an attribute block at `pblk`, its own field taken as zero.
#[must_use]
pub fn block_checksum(block: &[u8], fs_seed: Crc32c, pblk: Pblk) -> u32 {
    const FIELD: usize = 16;
    fs_seed
        .update(&pblk.get().to_le_bytes())
        .update(block.get(..FIELD).unwrap_or_default())
        .update_u32(0)
        .update(block.get(FIELD + 4..).unwrap_or_default())
        .value()
}

/// Checks the checksum of an attribute block, of a file system with `metadata_csum`.
///
/// # Errors
/// When the stored checksum differs.
pub fn verify_block_checksum(block: &[u8], fs_seed: Crc32c, pblk: Pblk) -> FormatResult<()> {
    let stored = le32(block, 16);
    let computed = block_checksum(block, fs_seed, pblk);
    if stored == computed {
        Ok(())
    } else {
        Err(FormatError::checksum(
            Structure::XattrBlock,
            stored,
            computed,
        ))
    }
}
