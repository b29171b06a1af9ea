//! Damaged and malicious images: errors, never a panic, a hang or unbounded memory.

use crate::support::{Image, pattern};
use extant_blockdev::MemoryDevice;
use extant_core::data;
use extant_core::fs::{Fs, MountOptions};
use extant_format::indirect::{encode_pointers, encode_root};
use extant_format::inode::Inode as DiskInode;
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn plant(tree: &Path) {
    for i in 0..20 {
        std::fs::write(tree.join(format!("file{i}")), pattern(i, 2000)).unwrap();
    }
    let sparse = File::create(tree.join("sparse")).unwrap();
    for i in 0..200u64 {
        sparse.write_all_at(&pattern(i, 1024), i * 5000).unwrap();
    }
    symlink("x/".repeat(100), tree.join("slow")).unwrap();
}

/// Opens, counts, and reads everything by inode; every failure is fine.
fn exercise(image: &[u8]) {
    let device = Arc::new(MemoryDevice::from_image(image));
    let Ok(fs) = Fs::open(device, MountOptions::read_only().memory(1 << 20)) else {
        return;
    };
    let _ = fs.statfs();
    let mut buf = vec![0; 1 << 16];
    for (ino, inode) in fs.inodes().take(5000) {
        let Ok(inode) = inode else { continue };
        let _ = fs.inode(ino);
        let _ = fs.read_link(&inode);
        let _ = data::read_content(&fs, &inode, 0, &mut buf);
        let _ = data::read_content(&fs, &inode, inode.size().saturating_sub(100), &mut buf);
        let _ = data::extents(&fs, &inode).count();
        let _ = data::seek_hole(&fs, &inode, 0);
    }
}

#[test]
fn images_with_flipped_bytes_never_panic_or_hang() {
    let seed = seed_from_env("images_with_flipped_bytes_never_panic_or_hang");
    let mut rng = Rng::new(seed);
    let no_checksums = "^metadata_csum,^has_journal";
    let layouts: [&[&str]; 3] = [
        &["-t", "ext4", "-b", "1024", "-N", "64", "-O", no_checksums],
        &["-t", "ext2", "-b", "1024", "-N", "64"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "64",
            "-I",
            "512",
            "-O",
            "^metadata_csum,^has_journal,inline_data,bigalloc",
            "-C",
            "4096",
        ],
    ];
    let deadline = Instant::now() + Duration::from_secs(10);
    let images =
        layouts.map(|options| std::fs::read(Image::make(2, options, plant).path()).unwrap());
    // Superblock, descriptors, bitmaps and tables lie at the start.
    let mut done = 0;
    while done < 600 && Instant::now() < deadline {
        for image in &images {
            let mut image = image.clone();
            for _ in 0..rng.between(1, 40) {
                let at = match rng.below(4) {
                    0 => 1024 + rng.below(300),
                    1 => 2048 + rng.below(2048),
                    _ => rng.below(100 << 10),
                };
                let value = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff]);
                image[at as usize] = match rng.below(2) {
                    0 => value,
                    _ => image[at as usize] ^ (1 << rng.below(8)),
                };
            }
            exercise(&image);
            done += 1;
        }
    }
    assert!(done >= 100, "only {done} images in 10 s, seed {seed}");
}

#[test]
fn a_map_that_repeats_its_blocks_is_refused_and_not_followed_for_ever() {
    let image = Image::make(1, &["-t", "ext2", "-b", "1024", "-N", "64"], |tree| {
        std::fs::write(tree.join("file"), pattern(1, 400_000)).unwrap();
    });
    let ino = image.ino("/file");
    let fs = image.open();
    let (block, offset) = fs.locate_inode(ino).unwrap();
    let mut bytes = std::fs::read(image.path()).unwrap();
    let at = block.get() as usize * 1024 + offset;
    let context = fs.inode_context(ino);
    let mut inode = DiskInode::parse(&bytes[at..], &context).unwrap();
    // One pointer block, whose pointers all lead back to itself, at every level.
    let evil = inode.map[48..52]
        .try_into()
        .map(u32::from_le_bytes)
        .unwrap();
    encode_pointers(&mut bytes[evil as usize * 1024..][..1024], &[evil; 256]);
    inode.map = encode_root(&[evil; 15]);
    inode.size = 16 << 30;
    let slot = &mut bytes[at..at + usize::from(context.inode_size)];
    inode.encode(slot, &context).unwrap();
    let fs = Fs::open(
        Arc::new(MemoryDevice::from_image(&bytes)),
        MountOptions::read_only(),
    )
    .unwrap();
    let error = data::extents(&fs, &fs.inode(ino).unwrap())
        .find_map(Result::err)
        .unwrap();
    assert_eq!(
        error.to_string(),
        format!("inode {ino} is corrupt: inode: mapped blocks is 1025, expected at most 1024")
    );
}
