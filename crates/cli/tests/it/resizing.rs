//! `extant resize`, judged by e2fsck and the kernel.

use crate::support::{Place, copy_of, extant, faithful, seen_by_linux, small_plan};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs_write, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::Compare;
use rustix::fs::XattrFlags;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Options of mke2fs, MiB before, MiB after.
type Case<'a> = (&'a [&'a str], u64, u64);

/// Places for descriptors: reserved ones, all of these, more than these, none; with and without
/// checksums; backups in every group, in some and in two.
const LARGER: &[Case<'_>] = &[
    (&["-t", "ext4", "-b", "4096"], 40, 600),
    (&["-t", "ext4", "-b", "1024"], 20, 250),
    (&["-t", "ext4", "-b", "1024"], 20, 31),
    (&["-t", "ext2", "-b", "1024"], 10, 55),
    (&["-t", "ext3", "-b", "2048"], 20, 300),
    (
        &["-b", "1024", "-E", "resize=200000", "-t", "ext4"],
        20,
        500,
    ),
    (
        &["-b", "1024", "-O", "^resize_inode", "-t", "ext4"],
        20,
        400,
    ),
    (
        &["-b", "1024", "-O", "meta_bg,^resize_inode", "-t", "ext4"],
        20,
        500,
    ),
    (
        &[
            "-b",
            "1024",
            "-O",
            "^sparse_super,^resize_inode",
            "-t",
            "ext4",
        ],
        20,
        300,
    ),
    (
        &["-b", "1024", "-O", "sparse_super2", "-t", "ext4"],
        40,
        500,
    ),
    (
        &[
            "-b",
            "1024",
            "-O",
            "^flex_bg,^64bit,^metadata_csum",
            "-t",
            "ext4",
        ],
        20,
        200,
    ),
    (
        &["-b", "4096", "-O", "bigalloc", "-C", "65536", "-t", "ext4"],
        40,
        500,
    ),
    (&["-b", "1024", "-g", "1024", "-t", "ext4"], 20, 120),
];

fn made(place: &Place, options: &[&str], mib: u64) -> String {
    let image = place.join("image");
    mke2fs(&image, mib * MIB, options);
    let arg = image.display().to_string();
    let from = place.planted("source", &small_plan());
    extant(["cp", "-a", &from, &format!("{arg}:/tree")]).ok();
    assert_clean(&image);
    arg
}

#[test]
fn a_larger_file_system_is_sound_and_has_what_it_had() {
    require!(Root, LoopDevices, KernelExt4);
    for (options, before, after) in LARGER {
        let place = Place::new();
        let image = made(&place, options, *before);
        let path = Path::new(&image);
        let was = seen_by_linux(&image);
        let size = format!("{after}M");
        let args = ["resize", "--json", &image, &size];
        let said = extant(args).ok().json();
        let name = format!("{options:?} {before} {after}");
        let blocks: u64 = dumpe2fs_header(path).field("Block count").parse().unwrap();
        assert_eq!(said["blocks"].as_u64(), Some(blocks), "{name}");
        let bytes = blocks * said["block_size"].as_u64().unwrap();
        assert!(
            bytes <= after * MIB && bytes > (after - 9) * MIB,
            "{name}: {bytes}"
        );
        assert_clean(path);
        extant(["check", &image]).ok();

        was.assert_same(&seen_by_linux(&image), &Compare::same_image());
        let mount = KernelMount::mount(path, Mode::ReadWrite, "");
        fs::write(mount.path().join("large"), vec![7; (3 * MIB) as usize]).unwrap();
        for i in 0..300 {
            fs::create_dir(mount.path().join(format!("dir{i}"))).unwrap();
        }
        mount.unmount();
        assert_clean(path);
        extant(["rm", "-r", &format!("{image}:/tree")]).ok();
        assert_clean(path);
    }
}

#[test]
fn it_can_be_taken_back() {
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^resize_inode"],
    ] {
        let place = Place::new();
        let image = made(&place, options, 20);
        let before = fs::read(&image).unwrap();
        let undo = place.arg("undo");
        extant(["resize", "--undo", &undo, &image, "100M"]).ok();
        assert_eq!(fs::metadata(&image).unwrap().len(), 100 * MIB);
        extant(["repair", "--revert", &undo, &image]).ok();
        let after = fs::read(&image).unwrap();
        assert!(after.get(..before.len()) == Some(&before[..]));
        assert_clean(Path::new(&image));
    }
}

/// MiB after; none for as small as possible.
const SMALLER: &[(&[&str], u64, Option<u64>)] = &[
    (&["-t", "ext4", "-b", "1024"], 120, Some(40)),
    (&["-t", "ext4", "-b", "4096"], 300, None),
    (&["-t", "ext2", "-b", "1024"], 80, None),
    (&["-t", "ext3", "-b", "1024"], 80, Some(50)),
    (
        &[
            "-b",
            "1024",
            "-O",
            "meta_bg,^resize_inode,^flex_bg",
            "-t",
            "ext4",
        ],
        150,
        None,
    ),
    (
        &["-b", "1024", "-O", "sparse_super2,^flex_bg", "-t", "ext4"],
        120,
        None,
    ),
    (
        &[
            "-b",
            "1024",
            "-O",
            "inline_data,ea_inode,orphan_file,^flex_bg",
            "-t",
            "ext4",
        ],
        120,
        None,
    ),
    (
        &[
            "-b",
            "4096",
            "-O",
            "bigalloc,^has_journal",
            "-C",
            "16384",
            "-t",
            "ext4",
        ],
        300,
        None,
    ),
];

/// Fills an image so that something lies in all groups, and leaves holes in the first ones.
fn spread(image: &Path) {
    let mount = KernelMount::mount(image, Mode::ReadWrite, "");
    let at = |name: String| mount.path().join(name);
    fs::write(at("early".to_owned()), vec![1; 6 << 20]).unwrap();
    for i in 0..16u8 {
        let dir = at(format!("dir{i}"));
        fs::create_dir(&dir).unwrap();
        for j in 0..30u8 {
            let file = dir.join(format!("a file with a name of some length {j}"));
            fs::write(&file, vec![i ^ j; usize::from(j) * 100]).unwrap();
        }
        let large = dir.join("large");
        fs::write(&large, vec![i; 300_000]).unwrap();
        let value = vec![i; 700];
        rustix::fs::setxattr(&large, "user.value", &value, XattrFlags::empty()).unwrap();
        fs::hard_link(&large, at(format!("link{i}"))).unwrap();
        symlink(
            format!("dir{i}/{}", "long".repeat(30)),
            at(format!("symlink{i}")),
        )
        .unwrap();
        // Many extents, and so a map in blocks of its own.
        let holes = fs::File::create(dir.join("holes")).unwrap();
        for k in 0..40 {
            holes.write_all_at(&[i; 100], k * 20_000).unwrap();
        }
        fs::create_dir_all(dir.join("below/and below")).unwrap();
    }
    fs::remove_file(at("early".to_owned())).unwrap();
    mount.unmount();
}

#[test]
fn a_smaller_file_system_is_sound_and_has_what_it_had() {
    require!(Root, LoopDevices, KernelExt4);
    for (options, before, after) in SMALLER {
        let name = format!("{options:?} {before} {after:?}");
        let place = Place::new();
        let image = place.arg("image");
        let path = Path::new(&image);
        mke2fs(path, before * MIB, options);
        spread(path);
        let was = seen_by_linux(&image);
        let size = after.map_or("--minimum".to_owned(), |mib| format!("{mib}M"));
        let said = extant(["resize", "--json", &image, &size]).ok().json();
        let blocks = said["blocks"].as_u64().unwrap();
        let bytes = blocks * said["block_size"].as_u64().unwrap();
        assert!(bytes <= after.unwrap_or(75) * MIB, "{name}: {bytes} bytes");
        assert_eq!(fs::metadata(path).unwrap().len(), bytes, "{name}");
        assert_clean(path);
        extant(["check", &image]).ok();
        was.assert_same(&seen_by_linux(&image), &faithful());

        // It lives on, and grows again.
        extant(["rm", "-r", &format!("{image}:/dir3")]).ok();
        extant(["resize", &image, "90M"]).ok();
        let mount = KernelMount::mount(path, Mode::ReadWrite, "");
        fs::write(mount.path().join("more"), vec![7; 5 << 20]).unwrap();
        mount.unmount();
        assert_clean(path);
    }
}

#[test]
fn a_smaller_file_system_can_be_made_as_it_was() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let image = place.arg("image");
    let path = Path::new(&image);
    mke2fs(
        path,
        120 * MIB,
        &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"],
    );
    spread(path);
    let was = seen_by_linux(&image);
    let undo = place.arg("undo");
    extant(["resize", "-M", "--undo", &undo, &image]).ok();
    assert_clean(path);
    assert_eq!(fs::metadata(path).unwrap().len(), 120 * MIB);
    extant(["repair", "--revert", &undo, &image]).ok();
    assert_clean(path);
    was.assert_same(&seen_by_linux(&image), &Compare::same_image());

    let before = fs::read(path).unwrap();
    let run = extant(["resize", &image, "8M"]).fails(8);
    assert!(run.stderr.contains("does not fit"), "{}", run.stderr);
    assert!(fs::read(path).unwrap() == before);
    // Numbers that keys may come from stay.
    debugfs_write(path, &["feature stable_inodes"]);
    let run = extant(["resize", &image, "60M"]).fails(8);
    assert!(run.stderr.contains("stable_inodes"), "{}", run.stderr);
    let said = extant(["resize", "--json", "--minimum", &image])
        .ok()
        .json();
    assert!(said["blocks"].as_u64().unwrap() > 61_440);
    assert_clean(path);
    was.assert_same(&seen_by_linux(&image), &faithful());
}

#[test]
fn others_can_make_it_larger_still() {
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        // Not sparse_super2: resize2fs 1.47.0 frees a block too many behind the copy that it moves.
        &["-t", "ext4", "-b", "1024", "-O", "^resize_inode"],
    ] {
        let place = Place::new();
        let image = made(&place, options, 20);
        for mib in [60, 130, 250] {
            extant(["resize", &image, &format!("{mib}M")]).ok();
            assert_clean(Path::new(&image));
        }
        let file = fs::File::options().write(true).open(&image).unwrap();
        file.set_len(300 * MIB).unwrap();
        tool("resize2fs").arg("-f").arg(&image).ok();
        assert_clean(Path::new(&image));
        extant(["resize", &image, "400M"]).ok();
        assert_clean(Path::new(&image));
        extant(["check", &image]).ok();
    }
}

#[test]
fn without_a_size_it_fills_its_place() {
    let place = Place::new();
    let image = made(&place, &["-t", "ext4", "-b", "1024"], 20);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(50 * MIB).unwrap();
    let said = extant(["resize", &image]).ok().text();
    assert_eq!(said, "51200 blocks of 1024 bytes, before 20480\n");
    let again = extant(["resize", &image]).ok().text();
    assert_eq!(again, "51200 blocks of 1024 bytes, before 51200\n");
    assert_clean(Path::new(&image));
}

#[test]
fn what_cannot_be_resized_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    let base = made(&place, &["-t", "ext4", "-b", "1024", "-O", "^64bit"], 20);
    let damaged = copy_of(&base, &place.arg("damaged"));
    debugfs_write(Path::new(&damaged), &["set_inode_field <2> links_count 9"]);
    let offset = copy_of(&base, &place.arg("offset"));
    for (args, why) in [
        (&["resize", &base, "8T"][..], "without the feature 64bit"),
        (&["resize", &damaged, "40M"], "it is not sound"),
        (&["resize", "--offset", "0", &offset, "40M"], "40960"),
        (&["resize", &base, "40K"], "no file system"),
    ] {
        let image = Path::new(args.iter().rev().nth(1).unwrap());
        let before = fs::read(image).unwrap();
        let run = extant(args).fails(8);
        assert!(
            run.stderr.contains(why) || run.stderr.contains("the file system needs"),
            "{}",
            run.stderr
        );
        assert!(fs::read(image).unwrap() == before, "{args:?}");
    }
    extant(["resize", &base, "many"]).fails(16);
}

#[test]
fn what_grew_with_meta_bg_becomes_small_again() {
    let place = Place::new();
    let image = place.join("fs.img");
    mke2fs(
        &image,
        100 * MIB,
        &["-t", "ext4", "-b", "1024", "-O", "^resize_inode"],
    );
    let image = image.display().to_string();
    extant(["cp", "-a", "/etc/passwd", &format!("{image}:/")]).ok();
    // More descriptors than fit their blocks: those of the new groups lie with them.
    for size in ["826M", "29M", "300M", "140M", "20M"] {
        extant(["resize", &image, size]).ok();
        assert_clean(Path::new(&image));
    }
    let found = extant(["cat", &format!("{image}:/passwd")]).ok().stdout;
    assert_eq!(found, fs::read("/etc/passwd").unwrap());
}

#[test]
fn the_least_size_is_reached_in_one_go() {
    let place = Place::new();
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-b", "4096", "-O", "^resize_inode"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let image = place.join("fs.img");
        let _ = fs::remove_file(&image);
        mke2fs(&image, 200 * MIB, options);
        let image = image.display().to_string();
        let large = place.join("large");
        fs::write(&large, vec![3; 9 << 20]).unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            let to = format!("{image}:/{name}");
            extant(["cp", &large.display().to_string(), &to]).ok();
        }
        // What is left lies far behind.
        for name in ["a", "b", "c", "d"] {
            extant(["rm", &format!("{image}:/{name}")]).ok();
        }
        extant(["resize", "--minimum", &image]).ok();
        assert_clean(Path::new(&image));
        let first = fs::metadata(&image).unwrap().len();
        let said = extant(["resize", "--json", "--minimum", &image])
            .ok()
            .json();
        assert_eq!(said["blocks"], said["blocks_before"], "{options:?}");
        assert_eq!(fs::metadata(&image).unwrap().len(), first);
        assert!(first < 40 << 20, "{options:?}: {first}");
    }
}

#[test]
fn the_least_size_is_said_before_it_is_made() {
    require!(Root, LoopDevices, KernelExt4);
    for (options, before, _) in SMALLER {
        let place = Place::new();
        let image = place.arg("image");
        let path = Path::new(&image);
        mke2fs(path, before * MIB, options);
        spread(path);
        let bytes = fs::read(path).unwrap();
        let text = tool("resize2fs").arg("-P").arg(path).ok().text();
        let theirs: u64 = text.rsplit(": ").next().unwrap().trim().parse().unwrap();
        let said = extant(["resize", "--print-minimum", "--json", &image])
            .ok()
            .json();
        assert!(fs::read(path).unwrap() == bytes, "{options:?}");
        let text = extant(["resize", "-P", &image]).ok().text();
        let [minimum, block_size, blocks] =
            ["minimum", "block_size", "blocks"].map(|name| said[name].as_u64().unwrap());
        assert_eq!(
            text,
            format!("{minimum} blocks of {block_size} bytes, now {blocks}\n")
        );
        let made = extant(["resize", "--minimum", "--json", &image])
            .ok()
            .json();
        assert_eq!(made["blocks"].as_u64(), Some(minimum), "{options:?}");
        assert_eq!(made["blocks_before"].as_u64(), Some(blocks));
        assert_clean(path);
        // Theirs is an estimate with something to spare; tables that stay keep ours from less.
        println!("{options:?}: {minimum} blocks, resize2fs -P {theirs}");
        assert!(minimum <= theirs + theirs / 20, "{options:?}: {theirs}");
    }
}
