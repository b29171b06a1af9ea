//! Directories: lookup and listing.

use crate::support::Image;
use crate::walk::{Listed, at_path, list, list_children, list_from};
use extant_blockdev::{BlockDevice, FileDevice};
use extant_core::dir::{self, Cookie, lookup};
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode};
use extant_core::lifecycle::NewInode;
use extant_core::map::{Runs, Target};
use extant_core::{Error, Place, ops};
use extant_format::inode::{InodeFlags, Timestamp};
use extant_format::{Ino, Lblk};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, e2fsck, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;

fn name(i: usize) -> String {
    // Lengths from short to the longest, some with bytes above 127.
    let filler = ["", "-x", "é", "ÿþ", "_a_rather_long_tail_of_a_name"][i % 5];
    format!("file{i}{}", filler.repeat(i % 8))
}

fn plant_many(dir: &Path, count: usize) {
    for i in 0..count {
        std::fs::write(dir.join(name(i)), b"").unwrap();
    }
}

/// An image with a hashed directory `/many` of `count` files, made without the kernel.
fn hashed_image(options: &[&str], count: usize) -> Image {
    let options = [&["-N", "25000"], options].concat();
    let image = Image::make(64, &options, |tree| {
        let many = tree.join("many");
        std::fs::create_dir(&many).unwrap();
        plant_many(&many, count);
    });
    index_directories(&image);
    image
}

/// Gives every directory an index.
fn index_directories(image: &Image) {
    let output = e2fsck(&image.path(), &["-fyD"]);
    assert!(output.code <= 1, "{output}");
}

fn assert_lookups_agree(fs: &Fs, dir: &Inode, count: usize) {
    let listed = list_children(fs, dir);
    assert_eq!(listed.len(), count);
    let names: HashSet<_> = listed.iter().map(|l| l.name.clone()).collect();
    assert_eq!(names.len(), count);
    for Listed { name, ino, .. } in &listed {
        let found = lookup(fs, dir, name).unwrap();
        let shown = String::from_utf8_lossy(name);
        assert_eq!(found.map(|f| f.ino), Some(*ino), "{shown}");
    }
    for i in 0..count.min(2000) {
        assert_eq!(
            lookup(fs, dir, format!("absent{i}").as_bytes()).unwrap(),
            None
        );
    }
}

/// Where a block of a directory lies, in bytes.
fn byte_of_block(fs: &Fs, dir: &Inode, lblk: u64) -> u64 {
    let run = Runs::over(fs, dir, lblk..lblk + 1).next().unwrap().unwrap();
    match run.target {
        Target::Written(pblk) => fs.block_size().offset_of(pblk).unwrap(),
        _ => panic!("a hole"),
    }
}

fn overwrite(image: &Image, offset: u64, bytes: &[u8]) {
    let device = FileDevice::open(image.path()).unwrap();
    device.write_at(offset, bytes).unwrap();
    device.flush().unwrap();
}

#[test]
fn hashed_directories_answer_for_every_name() {
    for (options, count) in [
        (&["-t", "ext4", "-b", "1024"][..], 4000),
        (&["-t", "ext4", "-b", "4096"], 4000),
        (
            &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^filetype"],
            1500,
        ),
        (&["-t", "ext4", "-b", "65536"], 4000),
    ] {
        let image = hashed_image(options, count);
        let fs = image.open();
        let dir = at_path(&fs, "/many");
        assert!(dir.flags().contains(InodeFlags::INDEX), "{options:?}");
        assert_lookups_agree(&fs, &dir, count);
    }
}

#[test]
fn every_hash_function_is_followed() {
    for algorithm in ["legacy", "half_md4", "tea"] {
        for signedness in ["signed_directory_hash", "unsigned_directory_hash"] {
            let image = Image::make(64, &["-t", "ext4", "-b", "1024"], |tree| {
                let many = tree.join("many");
                std::fs::create_dir(&many).unwrap();
                plant_many(&many, 1500);
            });
            tool("tune2fs")
                .args(["-E", &format!("hash_alg={algorithm}")])
                .arg(image.path())
                .ok();
            // Bit 0 of the superblock's flags is signed, bit 1 unsigned.
            let flags = if signedness == "signed_directory_hash" {
                1
            } else {
                2
            };
            debugfs_write(&image.path(), &[&format!("set_super_value flags {flags}")]);
            index_directories(&image);
            let fs = image.open();
            let dir = at_path(&fs, "/many");
            assert!(dir.flags().contains(InodeFlags::INDEX));
            // With a scan as the way out of a useless index, only counting reads would tell: a
            // damaged leaf that the index does not lead to does.
            let damaged = break_last_leaf(&image, &fs, &dir);
            assert_index_is_used(&image, &damaged, algorithm);
        }
    }
}

/// Zeroes the last leaf of a hashed directory. Returns the names in all others.
fn break_last_leaf(image: &Image, fs: &Fs, dir: &Inode) -> Vec<Listed> {
    let bs = u64::from(fs.block_size().bytes());
    let listed = list_children(fs, dir);
    // The last block may be one of the index.
    let last = (listed[listed.len() - 1].next.to_raw() - 1) / bs;
    let others: Vec<_> = listed
        .into_iter()
        .filter(|l| (l.next.to_raw() - 1) / bs != last)
        .collect();
    overwrite(image, byte_of_block(fs, dir, last), &vec![0; bs as usize]);
    others
}

fn assert_index_is_used(image: &Image, others: &[Listed], what: &str) {
    let fs = image.open();
    let dir = at_path(&fs, "/many");
    assert!(list_from(&fs, &dir, Cookie::START).is_err());
    assert!(!others.is_empty());
    for Listed { name, ino, .. } in others {
        let found = lookup(&fs, &dir, name).unwrap();
        assert_eq!(found.map(|f| f.ino), Some(*ino), "{what}");
    }
    // A name that is not there can only be reported absent, without an error, if its leaf alone is
    // read: most names lead to a sound one.
    let absent = (0..200)
        .filter(|i| matches!(lookup(&fs, &dir, format!("no{i}").as_bytes()), Ok(None)))
        .count();
    assert!(absent > 150, "{what}: {absent} of 200");
}

#[test]
fn a_lookup_reads_one_leaf_and_leaves_the_others_alone() {
    let image = hashed_image(&["-t", "ext4", "-b", "1024"], 2500);
    let fs = image.open();
    let others = break_last_leaf(&image, &fs, &at_path(&fs, "/many"));
    assert_index_is_used(&image, &others, "2500 files");
}

#[test]
fn a_broken_index_is_ignored_and_a_broken_leaf_is_named() {
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let image = hashed_image(&options, 1500);
    let root = {
        let fs = image.open();
        byte_of_block(&fs, &at_path(&fs, "/many"), 0)
    };
    // An unknown hash; then a root whose pairs lead nowhere; then too many levels.
    for (at, bytes) in [(28, &[77][..]), (36, &[0xff; 60]), (30, &[9])] {
        let image_bytes = std::fs::read(image.path()).unwrap();
        overwrite(&image, root + at, bytes);
        let fs = image.open();
        assert_lookups_agree(&fs, &at_path(&fs, "/many"), 1500);
        std::fs::write(image.path(), image_bytes).unwrap();
    }
    let fs = image.open();
    let dir = at_path(&fs, "/many");
    let leaf = byte_of_block(&fs, &dir, 3);
    overwrite(&image, leaf + 4, &[3, 0]);
    let fs = image.open();
    let dir = at_path(&fs, "/many");
    let error = list_from(&fs, &dir, Cookie::START).unwrap_err();
    match error {
        Error::Corrupt { place, source } => {
            assert_eq!(place, Place::FileBlock(dir.ino(), Lblk::new(3)));
            assert_eq!(source.field, "rec_len");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-O", "inline_data", "-I", "512"],
    ] {
        let image = Image::make(16, options, |tree| {
            plant_many(tree, 300);
            let few = tree.join("few");
            std::fs::create_dir(&few).unwrap();
            plant_many(&few, 7);
        });
        let fs = image.open();
        for path in ["/", "/few"] {
            let dir = at_path(&fs, path);
            let all = list(&fs, &dir);
            let mut cookie = Cookie::START;
            let mut one_by_one = Vec::new();
            loop {
                let step = dir::readdir(&fs, &dir, cookie, |entry| {
                    ControlFlow::Break((entry.name.to_vec(), entry.next))
                });
                let Some((name, next)) = step.unwrap() else {
                    break;
                };
                assert!(next > cookie);
                cookie = Cookie::from_raw(next.to_raw());
                one_by_one.push(name);
            }
            let names: Vec<_> = all.iter().map(|l| l.name.clone()).collect();
            assert_eq!(names, one_by_one, "{options:?} {path}");
            // Any number is a safe cookie.
            for raw in (0..3000).chain([u64::MAX, u64::MAX / 2, 1 << 40]) {
                let rest = list_from(&fs, &dir, Cookie::from_raw(raw)).unwrap();
                assert!(all.ends_with(&rest), "{raw}");
            }
        }
    }
}

#[test]
fn inline_directories_list_and_look_up() {
    require!(LoopDevices, KernelExt4);
    let image = Image::make(
        16,
        &["-t", "ext4", "-O", "inline_data", "-I", "1024"],
        |_| (),
    );
    let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
    for count in [0, 1, 3, 20, 40] {
        let dir = mount.join(format!("d{count}"));
        std::fs::create_dir(&dir).unwrap();
        plant_many(&dir, count);
    }
    mount.unmount();
    let fs = image.open();
    let mut inline = 0;
    for count in [0, 1, 3, 20, 40] {
        let dir = at_path(&fs, &format!("/d{count}"));
        inline += usize::from(dir.is_inline());
        assert_lookups_agree(&fs, &dir, count);
        let all = list(&fs, &dir);
        assert_eq!((all[0].name.as_slice(), all[0].ino), (&b"."[..], dir.ino()));
        assert_eq!(
            (all[1].name.as_slice(), all[1].ino),
            (&b".."[..], Ino::ROOT)
        );
        let parent = lookup(&fs, &dir, b"..").unwrap().unwrap();
        assert_eq!(parent.ino, Ino::ROOT);
    }
    assert!(inline >= 3);
}

#[test]
fn files_whose_data_lies_in_their_inode_have_the_sectors_that_linux_tells() {
    use std::os::unix::fs::MetadataExt;
    require!(LoopDevices, KernelExt4);
    let options = ["-t", "ext4", "-O", "inline_data", "-I", "1024"];
    let image = Image::make(16, &options, |_| ());
    let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
    let sizes = [0, 1, 60, 511, 512, 513, 700, 5000];
    for size in sizes {
        std::fs::write(mount.join(format!("f{size}")), vec![7; size]).unwrap();
    }
    mount.unmount();
    let mount = KernelMount::mount(&image.path(), Mode::ReadOnly, "");
    let told = sizes.map(|size| mount.join(format!("f{size}")).metadata().unwrap().blocks());
    mount.unmount();
    let fs = image.open();
    let mut inline = 0;
    for (size, told) in sizes.into_iter().zip(told) {
        let file = at_path(&fs, &format!("/f{size}"));
        inline += usize::from(file.is_inline());
        assert_eq!(ops::stat(&fs, &file).sectors, told, "{size} bytes");
    }
    assert!(inline >= 6, "{inline}");
}

#[test]
fn casefolded_directories_find_names_in_any_case() {
    require!(LoopDevices, KernelExt4);
    let image = Image::make(1, &["-t", "ext2"], |_| ());
    std::fs::remove_file(image.path()).unwrap();
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "casefold",
        "-E",
        "encoding=utf8",
    ];
    mke2fs(&image.path(), 32 << 20, &options);
    let mount = match KernelMount::try_mount(&image.path(), Mode::ReadWrite, "") {
        Ok(mount) => mount,
        Err(error) => {
            eprintln!("SKIPPED: needs a kernel with casefold ({error}): casefolded directories");
            return;
        }
    };
    let dir = mount.join("fold");
    std::fs::create_dir(&dir).unwrap();
    tool("chattr").arg("+F").arg(&dir).ok();
    for i in 0..1000 {
        std::fs::write(dir.join(format!("Straße-ÀÉ-{i}")), b"").unwrap();
    }
    mount.unmount();
    let fs = image.open();
    let dir = at_path(&fs, "/fold");
    assert!(
        dir.flags()
            .contains(InodeFlags::INDEX | InodeFlags::CASEFOLD)
    );
    for i in 0..1000 {
        let exact = lookup(&fs, &dir, format!("Straße-ÀÉ-{i}").as_bytes()).unwrap();
        let folded = lookup(&fs, &dir, format!("STRASSE-a\u{300}é-{i}").as_bytes()).unwrap();
        assert!(exact.is_some());
        assert_eq!(exact, folded);
    }
    assert_eq!(lookup(&fs, &dir, b"strasse").unwrap(), None);
    assert_eq!(lookup(&fs, &dir, b"\xff\xfe").unwrap(), None);
}

#[test]
fn names_of_encrypted_directories_are_the_stored_bytes() {
    let image = Image::make(8, &["-t", "ext4", "-O", "encrypt"], |tree| {
        std::fs::create_dir(tree.join("secret")).unwrap();
        std::fs::write(tree.join("secret/abcdefghijklmnop"), b"").unwrap();
    });
    let flags = InodeFlags::EXTENTS | InodeFlags::ENCRYPT;
    let request = format!("set_inode_field /secret flags {:#x}", flags.bits());
    debugfs_write(&image.path(), &[&request]);
    // A slash inside the stored name, which only ciphertext may have; the checksum with it.
    let fs = image.open();
    let dir = at_path(&fs, "/secret");
    let stored = list_children(&fs, &dir);
    assert_eq!(stored[0].name, b"abcdefghijklmnop");
    let found = lookup(&fs, &dir, b"abcdefghijklmnop").unwrap().unwrap();
    assert_eq!(found.ino, stored[0].ino);
}

#[test]
fn what_cannot_be_looked_up_is_refused() {
    let image = Image::make(8, &["-t", "ext4"], |tree| {
        std::fs::write(tree.join("file"), b"").unwrap();
    });
    let fs = image.open();
    let root = at_path(&fs, "/");
    let file = at_path(&fs, "/file");
    assert!(matches!(
        lookup(&fs, &file, b"x"),
        Err(Error::NotADirectory)
    ));
    assert!(matches!(
        list_from(&fs, &file, Cookie::START),
        Err(Error::NotADirectory)
    ));
    assert!(matches!(
        lookup(&fs, &root, &[b'x'; 256]),
        Err(Error::NameTooLong)
    ));
    assert_eq!(lookup(&fs, &root, b"").unwrap(), None);
    assert_eq!(lookup(&fs, &root, &[b'x'; 255]).unwrap(), None);
    assert_eq!(lookup(&fs, &root, b"..").unwrap().unwrap().ino, Ino::ROOT);
}

#[test]
fn nothing_moves_into_what_was_removed_with_all_above_it() {
    let image = Image::make(8, &["-t", "ext4"], |_| ());
    let fs = image.open_writable();
    let root = fs.hold(Ino::ROOT).unwrap();
    let dir = NewInode::new(FileType::Directory, 0o755, Timestamp::default());
    let above = ops::mkdir(&*fs, &root, b"above", &dir).unwrap();
    let gone = ops::mkdir(&*fs, &above, b"gone", &dir).unwrap();
    for name in [b"one", b"two"] {
        ops::mkdir(&*fs, &root, name, &dir).unwrap();
    }
    ops::rmdir(&*fs, &above, b"gone").unwrap();
    ops::rmdir(&*fs, &root, b"above").unwrap();
    // A thread that was on the way there still has the lower one.
    ops::release(&fs, above).unwrap();
    let into = |name: &[u8]| ops::rename(&*fs, &root, name, &gone, b"name");
    for done in [
        into(b"one"),
        ops::exchange(&*fs, (&root, b"one"), (&gone, b"two")),
    ] {
        assert!(matches!(done, Err(Error::NotFound)), "{done:?}");
    }
    drop((root, gone));
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}
