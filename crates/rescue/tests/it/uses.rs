//! What blocks are used for, beside `debugfs`.

use crate::support::Image;
use extant_format::{Ino, Pblk};
use extant_rescue::Use;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::dumpe2fs_header;
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The owner of each of these blocks, as `icheck` has it.
fn icheck(image: &Path, blocks: &[u64]) -> BTreeMap<u64, u32> {
    let request = |some: &[u64]| {
        let numbers: Vec<_> = some.iter().map(u64::to_string).collect();
        format!("icheck {}\n", numbers.join(" "))
    };
    let script: String = blocks.chunks(500).map(request).collect();
    let told = tool("debugfs").args(["-f", "-"]).arg(image).input(script);
    let told = told.ok().text();
    let pairs = told.lines().filter_map(|line| line.split_once('\t'));
    let numbers = pairs.filter_map(|(block, ino)| Some((block.parse().ok()?, ino.parse().ok()?)));
    numbers.collect()
}

/// The inode that owns a block for `icheck`, which takes what is kept for descriptors for the
/// resize inode's.
fn owner(of: &Use) -> Option<Ino> {
    match of {
        Use::Journal => Some(Ino::JOURNAL),
        Use::Resize | Use::ReservedDescriptors => Some(Ino::RESIZE),
        of => of.ino(),
    }
}

#[test]
fn every_block_belongs_to_the_inode_that_icheck_finds() {
    require!(KernelExt4);
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "^extents,^64bit"],
    ] {
        let image = Image::new(24 << 20, options);
        let mount = KernelMount::mount(&image.path, Mode::ReadWrite, "");
        for n in 0..60_usize {
            let dir = mount.join(format!("dir{}", n % 3));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file{n}")), vec![n as u8; 5000 * n]).unwrap();
        }
        for n in 0..20 {
            fs::remove_file(mount.join(format!("dir0/file{}", n * 3))).unwrap();
        }
        mount.unmount();
        let all: Vec<u64> = (0..dumpe2fs_header(&image.path).number("Block count")).collect();
        let theirs = icheck(&image.path, &all);
        let blocks: Vec<Pblk> = all.iter().map(|&block| Pblk::new(block)).collect();
        let ours = image.rescue().uses(&blocks).unwrap();
        let mut owned = 0;
        for found in &ours {
            let (block, of) = (found.block.get(), &found.used_for);
            let owner = owner(of).map(Ino::get);
            assert_eq!(
                owner,
                theirs.get(&block).copied(),
                "{options:?}: {block} {of:?}"
            );
            owned += usize::from(owner.is_some());
            if let Use::Data { ino, .. } = of {
                let request = format!("ncheck {}", ino.get());
                // Asking for each block would take long.
                if block % 97 == 0 {
                    let path = String::from_utf8(found.path.clone().unwrap()).unwrap();
                    let told = extant_testkit::oracle::debugfs(&image.path, &request);
                    assert!(told.ends_with(&format!("\t{path}\n")), "{path}: {told}");
                }
            }
        }
        assert!(owned > 900, "{options:?}: {owned}");
        let superblock = usize::from(all.len() > 10_000);
        assert_eq!(ours[superblock].used_for, Use::Superblock, "{options:?}");
    }
}

#[test]
fn blocks_that_nothing_owns_and_that_are_outside_are_told_apart() {
    let image = Image::new(8 << 20, &["-t", "ext4", "-b", "1024"]);
    let blocks = [8191, 8192, u64::MAX].map(Pblk::new);
    let uses = image.rescue().uses(&blocks).unwrap();
    let told: Vec<_> = uses.iter().map(|found| found.used_for).collect();
    assert_eq!(told, [Use::Unowned, Use::Outside, Use::Outside]);
}
