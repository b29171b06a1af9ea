//! Directory blocks, their indexes, and attributes.

use crate::{sized, split};
use extant_format::acl::Acl;
use extant_format::checksum::Crc32c;
use extant_format::dir::{DirLayout, DxRoot, edit, entries, entry, htree};
use extant_format::xattr::{self, XattrArea, XattrBlockHeader, XattrContext, XattrValue};
use extant_format::{BlockSize, Ino, NAME_MAX, Pblk};

const MAX_INODE: Ino = Ino::new(1000);

fn layout_from(bits: u8) -> DirLayout {
    DirLayout {
        block_size: BlockSize::from_log2(10 + u32::from(bits & 7) % 7).expect("1 to 64 KiB"),
        file_type: bits & 8 != 0,
        checksums: bits & 16 != 0,
        hash_in_entry: bits & 32 != 0,
        raw_names: bits & 64 != 0,
        max_inode: MAX_INODE,
    }
}

/// A directory block: listed, searched, and changed as far as it is sound.
pub fn directory_block(input: &[u8]) -> bool {
    let Some(([bits], bytes)) = split(input) else {
        return false;
    };
    let layout = layout_from(bits);
    let mut block = sized(bytes, layout.block_size.len());
    let _ = entry::verify_block_checksum(&block, Crc32c::INIT);
    let mut steps = 0;
    let mut first = None;
    let mut is_sound = true;
    for found in entries(&block, &layout) {
        steps += 1;
        match found {
            Ok(found) => {
                assert!(found.offset + found.rec_len <= block.len());
                assert!(found.name.len() <= NAME_MAX);
                first.get_or_insert_with(|| found.name.to_vec());
            }
            Err(_) => is_sound = false,
        }
    }
    assert!(steps <= block.len() / 8 + 1);
    let name = first.unwrap_or_else(|| b"name".to_vec());
    if let Ok(Some(spot)) = edit::find(&block, &layout, &name) {
        edit::remove(&mut block, &layout, &spot);
    }
    let new = entry::NewEntry::new(Ino::new(12), b"new", entry::EntryType::Regular);
    let need = layout.min_rec_len(b"new");
    if let Ok(Some(room)) = edit::find_room(&block, &layout, need) {
        assert!(edit::insert(&mut block, &layout, &room, &new));
        if is_sound {
            let found = edit::find(&block, &layout, b"new");
            assert!(found.is_ok_and(|found| found.is_some()), "it is not there");
        }
    }
    is_sound
}

/// A node of a directory's index, taken for the root and for one below.
pub fn index_node(input: &[u8]) -> bool {
    let Some(([bits, a, b, c, d], bytes)) = split(input) else {
        return false;
    };
    let hash = u32::from_le_bytes([a, b, c, d]);
    let layout = layout_from(bits);
    let block = sized(bytes, layout.block_size.len());
    let _ = htree::verify_root_checksum(&block, Crc32c::INIT);
    let _ = htree::verify_node_checksum(&block, Crc32c::INIT);
    let _ = (
        htree::is_root(&block, &layout),
        htree::is_node(&block, &layout),
    );
    let root = DxRoot::parse(&block, &layout, bits & 0x80 != 0);
    let node = htree::parse_node(&block, &layout);
    let is_valid = root.is_ok() || node.is_ok();
    for pairs in [root.map(|root| root.entries), node].into_iter().flatten() {
        assert_eq!(pairs.iter().count(), pairs.len());
        let at = pairs.find(hash);
        assert!(at < pairs.len() && pairs.get(at).is_some());
        assert!(at == 0 || pairs.get(at).is_some_and(|pair| pair.hash <= hash));
    }
    is_valid
}

fn check_area(area: &XattrArea<'_>, context: &XattrContext, len: usize) -> bool {
    let mut steps = 0;
    for entry in area.iter() {
        steps += 1;
        let _ = (entry.verify_hash(), entry.verify_with_value_hash(7));
        let _ = xattr::full_name(&entry.name);
        assert!(entry.name.suffix.len() <= NAME_MAX);
        if let XattrValue::InInode { ino, .. } = entry.value {
            assert!(context.ea_inode && ino <= context.max_inode);
        }
        assert!(area.find(&entry.name).is_some());
    }
    assert!(steps <= len / 16 + 1);
    steps > 0
}

fn context_from(bits: u8) -> XattrContext {
    XattrContext {
        ea_inode: bits & 1 != 0,
        max_inode: MAX_INODE,
    }
}

/// Attributes behind the fields of an inode.
pub fn attributes_in_inode(input: &[u8]) -> bool {
    let Some(([bits], region)) = split(input) else {
        return false;
    };
    let context = context_from(bits);
    let area = XattrArea::in_inode(region, &context);
    area.is_ok_and(|area| check_area(&area, &context, region.len()))
}

/// A block of attributes.
pub fn attribute_block(input: &[u8]) -> bool {
    let Some(([bits], block)) = split(input) else {
        return false;
    };
    let context = context_from(bits);
    let _ = XattrBlockHeader::parse(block);
    let _ = xattr::verify_block_checksum(block, Crc32c::INIT, Pblk::new(7));
    let area = XattrArea::in_block(block, &context);
    area.is_ok_and(|area| check_area(&area, &context, block.len()))
}

/// An access control list, as stored and as the system calls have it.
pub fn access_control_list(input: &[u8]) -> bool {
    let mut is_valid = false;
    for found in [Acl::decode_disk(input), Acl::decode_syscall(input)] {
        let Ok(acl) = found else {
            continue;
        };
        is_valid = true;
        let stored = Acl::decode_disk(&acl.encode_disk());
        assert_eq!(stored.expect("what was written is valid"), acl);
        let called = Acl::decode_syscall(&acl.encode_syscall());
        assert_eq!(called.expect("what was written is valid"), acl);
    }
    is_valid
}
