//! Building the two areas attributes are kept in, and deciding which attribute goes where.
//!
//! Entries are written from the front, values from the back, as the kernel does. Entries in an
//! inode have hash 0 unless their value lies in an inode; entries in a block are sorted and hashed.

use super::hash::{HashedValue, block_hash, entry_hash};
use super::name::{AttributeName, INLINE_DATA};
use super::read::block_checksum;
use super::{
    BLOCK_HEADER_LEN, ENTRY_HEADER_LEN, INODE_HEADER_LEN, MAGIC, NAME_MAX, VALUE_MAX, padded,
};
use crate::bytes::put;
use crate::checksum::Crc32c;
use crate::types::{Ino, Pblk};
use alloc::vec::Vec;

/// A value to be written.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// The value itself.
    Bytes(&'a [u8]),
    /// The value has been put into an inode of its own.
    InInode {
        /// The inode.
        ino: Ino,
        /// Length of the value in bytes.
        size: u32,
        /// [`value_hash`](super::hash::value_hash) of the value.
        hash: u32,
    },
}

/// An attribute to be written.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// The name.
    pub name: AttributeName<'a>,
    /// The value.
    pub value: NewValue<'a>,
}

impl Attribute<'_> {
    /// Returns the bytes the entry and a value kept beside it take.
    #[must_use]
    pub fn space(&self) -> usize {
        let value = match self.value {
            NewValue::Bytes(bytes) => padded(bytes.len()),
            NewValue::InInode { .. } => 0,
        };
        entry_space(self.name.suffix.len()) + value
    }
}

const fn entry_space(name_len: usize) -> usize {
    ENTRY_HEADER_LEN + padded(name_len)
}

/// Returns the bytes these attributes take in an inode, magic and terminator included; 0 if there
/// are none.
#[must_use]
pub fn space_in_inode(attributes: &[Attribute<'_>]) -> usize {
    space(attributes, INODE_HEADER_LEN)
}

/// Returns the bytes these attributes take in a block, header and terminator included; 0 if there
/// are none.
#[must_use]
pub fn space_in_block(attributes: &[Attribute<'_>]) -> usize {
    space(attributes, BLOCK_HEADER_LEN)
}

fn space(attributes: &[Attribute<'_>], header: usize) -> usize {
    if attributes.is_empty() {
        return 0;
    }
    attributes
        .iter()
        .fold(header + 4, |sum, a| sum.saturating_add(a.space()))
}

/// Writes attributes into an inode: `region` is its slot after the extra fields. All of the region
/// is written; without attributes it becomes zeros.
///
/// Returns `false`, having written nothing, if they do not fit or a name is longer than 255 bytes.
#[must_use]
pub fn encode_in_inode(region: &mut [u8], attributes: &[Attribute<'_>]) -> bool {
    if space_in_inode(attributes) > region.len() || !names_fit(attributes) {
        return false;
    }
    region.fill(0);
    if attributes.is_empty() {
        return true;
    }
    put(region, 0, &MAGIC.to_le_bytes());
    if let Some(area) = region.get_mut(INODE_HEADER_LEN..) {
        encode_entries(area, 0, attributes.iter(), |a| match a.value {
            NewValue::Bytes(_) => 0,
            NewValue::InInode { hash, .. } => entry_hash(a.name.suffix, HashedValue::InInode(hash)),
        });
    }
    true
}

/// Writes a whole attribute block, entries sorted and hashed, shared by `ref_count` inodes.
///
/// `checksum` is the file system's seed and the block's own address, `None` without
/// `metadata_csum`.
///
/// Returns `false`, having written nothing, if the attributes do not fit or a name is longer than
/// 255 bytes.
#[must_use]
pub fn encode_block(
    block: &mut [u8],
    attributes: &[Attribute<'_>],
    ref_count: u32,
    checksum: Option<(Crc32c, Pblk)>,
) -> bool {
    let fits = space_in_block(attributes).max(BLOCK_HEADER_LEN + 4) <= block.len();
    if !fits || !names_fit(attributes) {
        return false;
    }
    block.fill(0);
    let mut sorted: Vec<&Attribute<'_>> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.name.block_order(&b.name));
    let hash_of = |a: &Attribute<'_>| {
        let value = match a.value {
            NewValue::Bytes(bytes) => HashedValue::Bytes(bytes),
            NewValue::InInode { hash, .. } => HashedValue::InInode(hash),
        };
        entry_hash(a.name.suffix, value)
    };
    encode_entries(block, BLOCK_HEADER_LEN, sorted.iter().copied(), hash_of);
    put(block, 0, &MAGIC.to_le_bytes());
    put(block, 4, &ref_count.to_le_bytes());
    put(block, 8, &1u32.to_le_bytes());
    let hash = block_hash(sorted.iter().map(|a| hash_of(a)));
    put(block, 12, &hash.to_le_bytes());
    if let Some((fs_seed, pblk)) = checksum {
        let checksum = block_checksum(block, fs_seed, pblk);
        put(block, 16, &checksum.to_le_bytes());
    }
    true
}

fn names_fit(attributes: &[Attribute<'_>]) -> bool {
    attributes.iter().all(|a| a.name.suffix.len() <= NAME_MAX)
}

/// Writes entries from `first` on and values from the end of `area`, which has room for all.
fn encode_entries<'a>(
    area: &mut [u8],
    first: usize,
    attributes: impl Iterator<Item = &'a Attribute<'a>>,
    hash_of: impl Fn(&Attribute<'_>) -> u32,
) {
    let mut at = first;
    let mut values_at = area.len() & !3;
    for attribute in attributes {
        let AttributeName { index, suffix } = attribute.name;
        let (offset, ino, size) = match attribute.value {
            NewValue::Bytes([]) => (0, 0, 0),
            NewValue::Bytes(bytes) => {
                values_at = values_at.saturating_sub(padded(bytes.len()));
                put(area, values_at, bytes);
                (values_at as u16, 0, bytes.len() as u32)
            }
            NewValue::InInode { ino, size, .. } => (0, ino.get(), size),
        };
        put(area, at, &[suffix.len() as u8, index]);
        put(area, at + 2, &offset.to_le_bytes());
        put(area, at + 4, &ino.to_le_bytes());
        put(area, at + 8, &size.to_le_bytes());
        put(area, at + 12, &hash_of(attribute).to_le_bytes());
        put(area, at + ENTRY_HEADER_LEN, suffix);
        at += entry_space(suffix.len());
    }
}

/// Where each attribute of an inode goes; the numbers are indexes into the list given to [`place`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Entries kept in the inode.
    pub in_inode: Vec<usize>,
    /// Entries kept in the block.
    pub in_block: Vec<usize>,
    /// Entries, already in one of the lists above, whose value goes to an inode of its own.
    pub own_inode: Vec<usize>,
}

/// Decides where attributes go: the small ones into the inode, the others into the block, and the
/// values of the largest into inodes of their own where that is needed and `ea_inode` allows it.
///
/// `attributes` are names and value lengths; `inode_room` the bytes of the inode after its extra
/// fields, `block_len` the block size. The answer does not depend on the order of the list. `None`
/// if there is no way to fit them.
#[must_use]
pub fn place(
    attributes: &[(AttributeName<'_>, usize)],
    inode_room: usize,
    block_len: usize,
    ea_inode: bool,
) -> Option<Placement> {
    let mut inode_room = inode_room.saturating_sub(INODE_HEADER_LEN + 4);
    let block_room = block_len.saturating_sub(BLOCK_HEADER_LEN + 4);
    let mut placement = Placement::default();
    // Inline data can be nowhere else; then the smallest first, so that most need no block.
    let mut order: Vec<usize> = (0..attributes.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&attributes[a], &attributes[b]);
        let key = |x: &(AttributeName<'_>, usize)| {
            let beside = entry_space(x.0.suffix.len()).saturating_add(padded(x.1));
            (x.0 != INLINE_DATA, beside)
        };
        key(a).cmp(&key(b)).then_with(|| a.0.block_order(&b.0))
    });
    let mut in_block_len = 0usize;
    for &i in &order {
        let (name, value_len) = &attributes[i];
        if name.suffix.len() > NAME_MAX || *value_len > VALUE_MAX as usize {
            return None;
        }
        let entry = entry_space(name.suffix.len());
        let mut len = entry + padded(*value_len);
        if len > inode_room && len > block_room {
            // Fits nowhere as a whole.
            if !ea_inode || *name == INLINE_DATA {
                return None;
            }
            placement.own_inode.push(i);
            len = entry;
        }
        if len <= inode_room {
            inode_room -= len;
            placement.in_inode.push(i);
        } else if *name == INLINE_DATA {
            return None;
        } else {
            in_block_len += len;
            placement.in_block.push(i);
        }
    }
    // The list is in ascending order of size: the largest values leave the block first.
    for &i in placement.in_block.iter().rev() {
        if in_block_len <= block_room {
            break;
        }
        if !ea_inode {
            return None;
        }
        if !placement.own_inode.contains(&i) {
            placement.own_inode.push(i);
            in_block_len -= padded(attributes[i].1);
        }
    }
    if in_block_len > block_room {
        return None;
    }
    placement.in_inode.sort_unstable();
    placement.in_block.sort_unstable();
    placement.own_inode.sort_unstable();
    Some(placement)
}

#[cfg(test)]
mod tests {
    use super::super::name::{SECURITY, USER};
    use super::super::read::{XattrArea, XattrContext, XattrValue, verify_block_checksum};
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const CONTEXT: XattrContext = XattrContext {
        ea_inode: true,
        max_inode: Ino::new(u32::MAX),
    };

    type Owned = (u8, Vec<u8>, Result<Vec<u8>, (u32, u32, u32)>);

    fn any_attributes() -> impl Strategy<Value = Vec<Owned>> {
        let byte = any::<u8>().prop_filter("in a name", |b| *b != 0);
        let value = prop_oneof![
            3 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Ok),
            1 => (1u32.., 0..VALUE_MAX, any::<u32>()).prop_map(Err),
        ];
        prop::collection::vec((1u8..10, prop::collection::vec(byte, 0..30), value), 0..12).prop_map(
            |mut list| {
                list.sort_by(|a, b| (a.0, a.1.len(), &a.1).cmp(&(b.0, b.1.len(), &b.1)));
                list.dedup_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
                list
            },
        )
    }

    fn borrowed(list: &[Owned]) -> Vec<Attribute<'_>> {
        list.iter()
            .map(|(index, suffix, value)| Attribute {
                name: AttributeName {
                    index: *index,
                    suffix,
                },
                value: match value {
                    Ok(bytes) => NewValue::Bytes(bytes),
                    Err((ino, size, hash)) => NewValue::InInode {
                        ino: Ino::new(*ino),
                        size: *size,
                        hash: *hash,
                    },
                },
            })
            .collect()
    }

    fn assert_same(area: &XattrArea<'_>, wrote: &[Attribute<'_>]) {
        let read: Vec<_> = area.iter().collect();
        assert_eq!(read.len(), wrote.len());
        for (read, wrote) in read.iter().zip(wrote) {
            assert_eq!(read.name, wrote.name);
            match wrote.value {
                NewValue::Bytes(bytes) => {
                    assert_eq!(read.value, XattrValue::Bytes(bytes));
                    read.verify_hash().unwrap();
                }
                NewValue::InInode { ino, size, hash } => {
                    assert_eq!(read.value, XattrValue::InInode { ino, size });
                    read.verify_with_value_hash(hash).unwrap();
                }
            }
            assert_eq!(area.find(&wrote.name).as_ref(), Some(read));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(list in any_attributes(), seed: u32, pblk: u64) {
            let attributes = borrowed(&list);
            let mut region = vec![0xaa; space_in_inode(&attributes) + 8];
            prop_assert!(encode_in_inode(&mut region, &attributes));
            assert_same(&XattrArea::in_inode(&region, &CONTEXT).unwrap(), &attributes);

            let mut block = vec![0xaa; 4096];
            let checksum = (Crc32c::seeded(seed), Pblk::new(pblk));
            let fits = space_in_block(&attributes) <= 4096;
            prop_assert_eq!(encode_block(&mut block, &attributes, 1, Some(checksum)), fits);
            if fits {
                assert_same(&XattrArea::in_block(&block, &CONTEXT).unwrap(), &attributes);
                verify_block_checksum(&block, checksum.0, checksum.1).unwrap();
                block[200] ^= 4;
                prop_assert!(verify_block_checksum(&block, checksum.0, checksum.1).is_err());
            }
        }

        #[test]
        fn what_is_placed_fits(
            list in any_attributes(),
            lens in prop::collection::vec(0usize..6000, 12),
            inode_room in 0usize..500,
            ea_inode: bool,
        ) {
            let sizes: Vec<_> = borrowed(&list).iter().zip(&lens).map(|(a, &l)| (a.name, l)).collect();
            let placed = place(&sizes, inode_room, 4096, ea_inode);
            if ea_inode {
                prop_assert!(placed.is_some());
            }
            let Some(placed) = placed else { return Ok(()) };
            let values: Vec<_> = lens.iter().map(|&l| vec![1u8; l]).collect();
            let attribute = |&i: &usize| Attribute {
                name: sizes[i].0,
                value: if placed.own_inode.contains(&i) {
                    NewValue::InInode { ino: Ino::new(12), size: lens[i] as u32, hash: 1 }
                } else {
                    NewValue::Bytes(&values[i])
                },
            };
            let inside: Vec<_> = placed.in_inode.iter().map(attribute).collect();
            let outside: Vec<_> = placed.in_block.iter().map(attribute).collect();
            prop_assert_eq!(inside.len() + outside.len(), sizes.len());
            prop_assert!(encode_in_inode(&mut vec![0; inode_room], &inside));
            prop_assert!(encode_block(&mut vec![0; 4096], &outside, 1, None));
        }
    }

    #[test]
    fn inline_data_stays_in_the_inode_and_a_label_needs_no_block() {
        let label = AttributeName {
            index: SECURITY,
            suffix: b"selinux",
        };
        let big = AttributeName {
            index: USER,
            suffix: b"big",
        };
        let list = [(big, 300), (label, 30), (INLINE_DATA, 40)];
        let placed = place(&list, 140, 4096, false).unwrap();
        assert_eq!(placed.in_inode, [1, 2]);
        assert_eq!(placed.in_block, [0]);
        assert_eq!(place(&list, 40, 4096, true), None);
    }

    #[test]
    fn a_value_over_the_table_of_names_is_corrupt() {
        let attributes = [Attribute {
            name: AttributeName {
                index: USER,
                suffix: b"name",
            },
            value: NewValue::Bytes(b"value"),
        }];
        let mut region = vec![0; 96];
        assert!(encode_in_inode(&mut region, &attributes));
        region[6..8].copy_from_slice(&8u16.to_le_bytes());
        let error = XattrArea::in_inode(&region, &CONTEXT).unwrap_err();
        assert_eq!(error.field, "value_offs");
        region[6..8].copy_from_slice(&90u16.to_le_bytes());
        let error = XattrArea::in_inode(&region, &CONTEXT).unwrap_err();
        assert_eq!(error.field, "value_size");
    }
}
