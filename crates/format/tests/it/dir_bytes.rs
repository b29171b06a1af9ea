//! Directory blocks made of arbitrary bytes: whatever they are, reading ends and does not panic.

use extant_format::checksum::Crc32c;
use extant_format::dir::{DirLayout, DxRoot, entries, entry, htree};
use extant_format::{BlockSize, Ino};

fn layout_from(bits: u8) -> DirLayout {
    DirLayout {
        block_size: BlockSize::from_log2(10 + u32::from(bits & 7) % 7).unwrap(),
        file_type: bits & 8 != 0,
        checksums: bits & 16 != 0,
        hash_in_entry: bits & 32 != 0,
        raw_names: bits & 64 != 0,
        max_inode: Ino::new(1000),
    }
}

#[test]
fn reading_any_bytes_as_a_directory_block_ends() {
    bolero::check!()
        .with_type::<(u8, Vec<u8>)>()
        .with_iterations(20_000)
        .for_each(|(bits, bytes)| {
            let layout = layout_from(*bits);
            let mut steps = 0;
            for entry in entries(bytes, &layout) {
                steps += 1;
                if let Ok(entry) = entry {
                    assert!(entry.offset + entry.rec_len <= bytes.len());
                    assert!(entry.name.len() <= entry::NAME_MAX);
                }
            }
            assert!(steps <= bytes.len() / 8 + 1);
            let _ = entry::verify_block_checksum(bytes, Crc32c::INIT);
        });
}

#[test]
fn reading_any_bytes_as_an_index_node_ends() {
    bolero::check!()
        .with_type::<(u8, u16, u16, u32, Vec<u8>)>()
        .with_iterations(20_000)
        .for_each(|(bits, limit, count, hash, bytes)| {
            let layout = layout_from(*bits);
            let bs = layout.block_size.len();
            // A whole block behind a plausible front, or hardly any input would get past it.
            let mut block = vec![0; bs];
            block[12..16].copy_from_slice(&2u32.to_le_bytes());
            block[4] = 12;
            block[6] = 1;
            block[8] = b'.';
            block[16..18].copy_from_slice(&((bs - 12) as u16).to_le_bytes());
            block[18] = 2;
            block[20..22].copy_from_slice(b"..");
            block[29] = 8;
            let limit = if limit % 2 == 0 {
                htree::root_limit(&layout) as u16
            } else {
                *limit
            };
            block[32..34].copy_from_slice(&limit.to_le_bytes());
            block[34..36].copy_from_slice(&count.to_le_bytes());
            let n = bytes.len().min(bs);
            let at = if bits & 128 != 0 { 36.min(bs - n) } else { 0 };
            block[at..at + n].copy_from_slice(&bytes[..n]);
            for block in [&block[..], bytes] {
                let _ = htree::verify_root_checksum(block, Crc32c::INIT);
                let _ = htree::verify_node_checksum(block, Crc32c::INIT);
                let parsed = DxRoot::parse(block, &layout, true).map(|root| root.entries);
                for entries in [parsed, htree::parse_node(block, &layout)] {
                    let Ok(entries) = entries else { continue };
                    assert!(entries.find(*hash) < entries.len());
                    assert_eq!(entries.iter().count(), entries.len());
                    assert_eq!(entries.get(entries.len()), None);
                }
            }
        });
}
