//! Attribute areas and inline content made of arbitrary bytes.

use extant_format::dir::DirLayout;
use extant_format::inline_data::{InlineData, InlineDir};
use extant_format::xattr::{self, XattrArea, XattrContext, XattrValue};
use extant_format::{BlockSize, Ino};

#[test]
fn reading_any_bytes_as_attributes_ends() {
    bolero::check!()
        .with_type::<(bool, u8, Vec<u8>)>()
        .with_iterations(20_000)
        .for_each(|(ea_inode, tame, bytes)| {
            let context = XattrContext {
                ea_inode: *ea_inode,
                max_inode: Ino::new(200),
            };
            let mut bytes = bytes.clone();
            // Small numbers get further into the walk than random ones.
            if tame % 2 == 0 {
                for b in &mut bytes {
                    *b &= tame >> 1;
                }
            }
            let mut region = xattr::MAGIC.to_le_bytes().to_vec();
            region.extend_from_slice(&bytes);
            let mut block = region.clone();
            block.splice(4..4, [1, 0, 0, 0, 1, 0, 0, 0].into_iter().chain([0; 20]));
            let areas = [
                XattrArea::in_inode(&region, &context),
                XattrArea::in_block(&block, &context),
            ];
            for area in areas.into_iter().flatten() {
                let mut steps = 0;
                for entry in area.iter() {
                    steps += 1;
                    let _ = (entry.verify_hash(), entry.verify_with_value_hash(7));
                    let _ = xattr::full_name(&entry.name);
                    if let XattrValue::InInode { ino, .. } = entry.value {
                        assert!(*ea_inode && ino.get() <= 200);
                    }
                }
                assert!(steps <= block.len() / 16 + 1);
            }
        });
}

#[test]
fn reading_any_bytes_as_an_inline_directory_ends() {
    bolero::check!()
        .with_type::<(Vec<u8>, Vec<u8>, u16)>()
        .with_iterations(20_000)
        .for_each(|(front, rest, size)| {
            let mut map = [0; 60];
            let n = front.len().min(60);
            map[..n].copy_from_slice(&front[..n]);
            map[0] |= 1;
            let data = InlineData::new(&map, rest, (*size).into());
            let Ok(dir) = InlineDir::new(&data, Ino::new(u32::MAX)) else {
                return;
            };
            let layout = DirLayout {
                block_size: BlockSize::K4,
                file_type: true,
                checksums: true,
                hash_in_entry: false,
                raw_names: false,
                max_inode: Ino::new(u32::MAX),
            };
            assert!(dir.entries(&layout).count() <= (60 + rest.len()) / 8 + 2);
        });
}
