//! Images of `mkfs`, read here and by the crate `extant`.

use crate::failure::NOT_EXT4;
use crate::walk::{Next, Walk};
use crate::{Image, NUMBERS, Told};
use extant::Filesystem;
use extant_blockdev::{MemoryDevice, SharedDevice};
use extant_format::errno::{EBADMSG, EISDIR, ELOOP, ENOENT, ENOTDIR, EUCLEAN};
use extant_mkfs::source::{SourceOptions, read_source};
use extant_mkfs::{BuildOptions, FormatOptions, Headroom, Silent, Size};
use extant_testkit::tool::tool;
use serde_json::Value;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// An image of a small tree with something of each kind.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path().join("tree");
    let etc = tree.join("etc/deep");
    fs::create_dir_all(&etc).expect("made");
    fs::write(tree.join("etc/hostname"), "box\n").expect("written");
    fs::hard_link(tree.join("etc/hostname"), tree.join("name")).expect("linked");
    fs::write(etc.join("n\u{e4}me \u{1f4be} \"\\"), vec![7; 100_000]).expect("written");
    let bytes = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(tree.join(bytes), "latin").expect("written");
    fs::write(tree.join("x".repeat(240)), "long").expect("written");
    symlink("../hostname", etc.join("link")).expect("linked");
    symlink("loop", tree.join("loop")).expect("linked");
    symlink("/etc", tree.join("absolute")).expect("linked");
    let mut holes = fs::File::create(tree.join("holes")).expect("made");
    holes.seek(SeekFrom::Start(3 << 20)).expect("sought");
    holes.write_all(&[9; 5000]).expect("written");
    holes.set_len(9 << 20).expect("longer");
    let mut large = fs::File::create(tree.join("large")).expect("made");
    let piece: Vec<u8> = (0..5 << 20).map(|at: u32| (at >> 9) as u8 | 1).collect();
    large.write_all(&piece).expect("written");
    for number in 0..300 {
        fs::write(etc.join(format!("file {number}")), "").expect("written");
    }
    let path = dir.path().join("disk.img");
    let tree = read_source(&tree, SourceOptions::default()).expect("a tree");
    let format = FormatOptions::new(0, 1_700_000_000);
    let options = BuildOptions::new(format, Size::Auto(Headroom::Percent(20.0)));
    extant_mkfs::build(Some(&tree), &path, None, &options, &Silent).expect("an image");
    fs::read(&path).expect("readable")
});

fn device(bytes: &[u8]) -> SharedDevice {
    Arc::new(MemoryDevice::from_image(bytes))
}

fn open(bytes: &[u8]) -> Told<Image> {
    Image::open(device(bytes), None, &())
}

fn image() -> Image {
    open(&IMAGE).expect("ext4")
}

fn filesystem() -> Filesystem {
    Filesystem::open_device(device(&IMAGE), extant::MountOptions::read_only()).expect("ext4")
}

fn archive(image: &Image, path: &str) -> (Vec<u8>, Vec<String>) {
    let mut tar = image.tar(path.as_bytes()).expect("begun");
    let mut bytes = Vec::new();
    while let Some(piece) = image.tar_piece(&mut tar).expect("a piece") {
        bytes.extend(piece);
    }
    (bytes, tar.problems().to_vec())
}

#[test]
fn what_is_listed_is_what_the_library_lists() {
    let (image, fs) = (image(), filesystem());
    let mut count = 0;
    for entry in fs.walk("/").expect("a walk") {
        let entry = entry.expect("sound");
        let path = entry.path_bytes();
        let found = entry.metadata();
        let numbers = image.stat(path, false).expect("there");
        assert_eq!(numbers[0], f64::from(found.ino()));
        assert_eq!(numbers[1], f64::from(found.mode().bits()));
        assert_eq!(numbers[4], found.len() as f64);
        assert_eq!(numbers[7], found.mtime().secs as f64);
        assert_eq!(numbers[8], f64::from(found.mtime().nanos));
        count += 1;
        if found.is_symlink() {
            assert_eq!(image.link(path).ok(), entry.read_link().ok());
        }
        if !found.is_dir() {
            continue;
        }
        let whole = image.list(path, true).expect("listed");
        let mut names: Vec<Vec<u8>> = fs
            .read_dir(Path::new(std::ffi::OsStr::from_bytes(path)))
            .expect("listed")
            .map(|entry| entry.expect("sound").file_name().as_bytes().to_vec())
            .collect();
        names.sort();
        let listed: Vec<&[u8]> = whole.names.split(|&byte| byte == 0).collect();
        assert_eq!(listed.len(), names.len() + 1);
        assert!(names.iter().zip(&listed).all(|(one, other)| one == other));
        assert_eq!(whole.numbers.len(), names.len() * NUMBERS);
        assert_eq!(whole.problems(), "[]");
        let short = image.list(path, false).expect("listed");
        for (short, whole) in short.numbers.chunks(2).zip(whole.numbers.chunks(NUMBERS)) {
            assert_eq!(short[0], whole[0]);
            assert_eq!(short[1] as u32, whole[1] as u32 & 0o170_000);
        }
    }
    assert!(count > 300, "{count} files");
}

#[test]
fn an_archive_has_the_bytes_of_the_library() {
    let (image, fs) = (image(), filesystem());
    for path in ["/", "/etc", "/etc/hostname", "/holes", "/etc/deep/link"] {
        let mut expected = Vec::new();
        extant::export::to_tar(&fs, path, &mut expected, None).expect("archived");
        let (bytes, problems) = archive(&image, path);
        assert!(bytes == expected, "the archives of {path} differ");
        assert!(problems.is_empty(), "{problems:?}");
    }
}

#[test]
fn files_are_read_and_links_followed() {
    let image = image();
    let found = image.stat(b"/absolute/deep/link", true).expect("there");
    let mut buf = [0; 10];
    let read = image.read(found[0] as u32, 0, &mut buf);
    assert_eq!((read, &buf[..4]), (Ok(4), &b"box\n"[..]));
    let errno = |found: Told<[f64; NUMBERS]>| found.expect_err("refused").errno;
    assert_eq!(errno(image.stat(b"/none", true)), ENOENT);
    assert_eq!(errno(image.stat(b"", true)), ENOENT);
    assert_eq!(errno(image.stat(b"/loop", true)), ELOOP);
    assert_eq!(errno(image.stat(b"/name/", true)), ENOTDIR);
    assert_eq!(
        image.stat(b"/../..//./name/../name", true).map(drop),
        Err(crate::Failure {
            errno: ENOTDIR,
            text: "not a directory".to_owned(),
        })
    );
    image
        .stat(b"/../..//./absolute/../name", true)
        .expect("there");
    assert_eq!(
        image.list(b"/name", false).expect_err("a file").errno,
        ENOTDIR
    );
    assert_eq!(
        image.read(2, 0, &mut buf).expect_err("a directory").errno,
        EISDIR
    );
    image
        .read(4_000_000, 0, &mut buf)
        .expect_err("no such inode");
    image
        .read(7, 0, &mut buf)
        .expect_err("an inode without a name");
}

#[test]
fn a_check_and_a_picture_see_the_whole_image() {
    let image = image();
    let checked: Value = serde_json::from_str(&image.check(&()).expect("a verdict")).expect("JSON");
    assert_eq!(
        (&checked["clean"], &checked["errors"]),
        (&true.into(), &0.into())
    );
    let about: Value = serde_json::from_str(&image.about().expect("told")).expect("JSON");
    for cells in [1, 7, 1000] {
        let picture = image.picture(cells).expect("drawn");
        assert!(picture.len() <= 3 * cells as usize);
        let sum = |kind| picture.chunks(3).map(|cell| cell[kind]).sum::<f64>();
        assert_eq!(Some(sum(2)), about["free"].as_f64());
        assert_eq!(Some(sum(0) + sum(1) + sum(2)), about["blocks"].as_f64());
        assert!(sum(0) > 0.0 && sum(1) > 100.0);
    }
}

#[test]
fn a_partition_is_found_and_anything_else_is_told() {
    let sectors = IMAGE.len().div_ceil(512) as u32;
    let mut disk = vec![0; 1 << 20];
    disk.extend_from_slice(&IMAGE);
    disk.resize(disk.len().next_multiple_of(512), 0);
    for (entry, start, len) in [(446, 2047_u32, 1_u32), (462, 2048, sectors)] {
        disk[entry + 4] = 0x83;
        disk[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        disk[entry + 12..entry + 16].copy_from_slice(&len.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let image = open(&disk).expect("a partition");
    let about: Value = serde_json::from_str(&image.about().expect("told")).expect("JSON");
    assert_eq!(about["partition"], 2);
    assert_eq!(about["partitions"][1]["holds"], "an ext4 file system");
    let chosen = |number| Image::open(device(&disk), Some(number), &());
    chosen(2).expect("the second");
    assert_eq!(chosen(1).expect_err("nothing there").errno, NOT_EXT4);
    let none = chosen(3).expect_err("there is none");
    assert!(none.text.contains('3'), "{none}");
    for nothing in [
        vec![],
        vec![0; 100],
        vec![0xaa; 1 << 20],
        b"%PDF-1.4".to_vec(),
    ] {
        assert_eq!(open(&nothing).expect_err("no ext4").errno, NOT_EXT4);
    }
}

/// A qcow2 image of a disk: each cluster as it is, as zeros, or compressed.
fn qcow2(disk: &[u8], compress: bool) -> Vec<u8> {
    const CLUSTER: usize = 4096;
    let clusters = disk.len().div_ceil(CLUSTER);
    let tables = clusters.div_ceil(CLUSTER / 8);
    let mut file = vec![0; CLUSTER * (2 + tables)];
    file[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    file[20..24].copy_from_slice(&12_u32.to_be_bytes());
    file[24..32].copy_from_slice(&(disk.len() as u64).to_be_bytes());
    file[36..40].copy_from_slice(&(tables as u32).to_be_bytes());
    file[40..48].copy_from_slice(&(CLUSTER as u64).to_be_bytes());
    file[100..104].copy_from_slice(&104_u32.to_be_bytes());
    for table in 0..tables {
        let (entry, at) = (CLUSTER + table * 8, CLUSTER * (2 + table));
        file[entry..entry + 8].copy_from_slice(&(at as u64).to_be_bytes());
    }
    for (number, cluster) in disk.chunks(CLUSTER).enumerate() {
        if cluster.iter().all(|&byte| byte == 0) {
            continue;
        }
        let mut cluster = cluster.to_vec();
        cluster.resize(CLUSTER, 0);
        let packed = miniz_oxide::deflate::compress_to_vec(&cluster, 6);
        let entry = if compress && packed.len() < CLUSTER - 512 {
            let at = file.len() as u64;
            let sectors = (at % 512 + packed.len() as u64 - 1) / 512;
            file.extend(packed);
            1 << 62 | sectors << 58 | at
        } else {
            file.resize(file.len().next_multiple_of(CLUSTER), 0);
            let at = file.len() as u64;
            file.extend(cluster);
            1 << 63 | at
        };
        let place = CLUSTER * 2 + number * 8;
        file[place..place + 8].copy_from_slice(&entry.to_be_bytes());
    }
    file
}

#[test]
fn formats_hold_the_same_files() {
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    gzip.extend(miniz_oxide::deflate::compress_to_vec(&IMAGE, 1));
    let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(&IMAGE);
    gzip.extend(sum.to_le_bytes());
    gzip.extend((IMAGE.len() as u32).to_le_bytes());
    let (expected, _) = archive(&image(), "/");
    for (file, formats) in [
        (qcow2(&IMAGE, false), "[\"qcow2\"]"),
        (qcow2(&IMAGE, true), "[\"qcow2\"]"),
        (gzip, "[\"gzip\"]"),
    ] {
        let image = open(&file).expect("ext4");
        let about: Value = serde_json::from_str(&image.about().expect("told")).expect("JSON");
        assert_eq!(about["formats"].to_string(), formats);
        assert!(archive(&image, "/").0 == expected, "in {formats}");
    }
}

#[test]
fn qcow2_images_that_cannot_be_read_are_refused() {
    let sound = qcow2(&IMAGE[..1 << 20], false);
    for (at, value) in [
        (7, 9),
        (8, 1),
        (23, 40),
        (24, 1),
        (35, 1),
        (39, 0),
        (40, 1),
        (79, 4),
    ] {
        let mut wrong = sound.clone();
        wrong[at] = value;
        let failure = open(&wrong).expect_err("refused");
        assert!(failure.errno != NOT_EXT4, "byte {at}: {failure}");
    }
    open(&sound[..80]).expect_err("cut short");
}

/// Does everything to an image, whatever comes of it.
fn try_everything(image: &Image) {
    let _ = image.about();
    let _ = image.picture(100);
    let _ = image.check(&());
    let mut dirs = vec![b"/".to_vec()];
    for _ in 0..50 {
        let Some(dir) = dirs.pop() else { break };
        let Ok(listing) = image.list(&dir, true) else {
            continue;
        };
        let names = listing.names.split(|&byte| byte == 0);
        for (name, numbers) in names.zip(listing.numbers.chunks(NUMBERS)) {
            let path = [&dir, name, b"/"].concat();
            let _ = image.link(path.trim_ascii_end().strip_suffix(b"/").unwrap_or(b""));
            let _ = image.read(numbers[0] as u32, 0, &mut [0; 5000]);
            dirs.push(path);
        }
    }
    if let Ok(mut tar) = image.tar(b"/") {
        while let Ok(Some(_)) = image.tar_piece(&mut tar) {}
    }
}

#[test]
fn damaged_images_give_errors() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let mut opened = 0;
    for round in 0..24 {
        let mut wrong = IMAGE.clone();
        // Where the structure lies, and of that the first blocks more than others.
        let end = if round % 2 == 0 { 300_000 } else { 60_000 };
        for _ in 0..=round * 4 {
            let at = 1024 + random(end);
            wrong[at] = random(256) as u8;
        }
        if let Ok(image) = open(&wrong) {
            opened += 1;
            try_everything(&image);
        }
    }
    assert!(opened > 0, "no image opened");
    let cut = open(&IMAGE[..IMAGE.len() / 2]).expect("the first half");
    try_everything(&cut);
    let mut wrong = IMAGE.clone();
    wrong[1024 + 24] = 77;
    let failure = open(&wrong).expect_err("an impossible block size");
    assert!(matches!(failure.errno, EBADMSG | EUCLEAN), "{failure}");
}

/// What QEMU makes of the image in a format.
fn by_qemu(format: &str, options: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let (from, to) = (dir.path().join("raw"), dir.path().join("made"));
    fs::write(&from, &*IMAGE).expect("written");
    tool("qemu-img")
        .args(["convert", "-f", "raw", "-O", format, "-o", options])
        .args([&from, &to])
        .ok();
    fs::read(&to).expect("made")
}

#[test]
fn disks_in_formats_hold_the_same_files() {
    let expected = archive(&image(), "/");
    for (format, options, name) in [
        ("vpc", "subformat=dynamic,force_size=on", "vhd"),
        ("vpc", "subformat=fixed,force_size=on", "vhd-fixed"),
        ("vmdk", "subformat=monolithicSparse", "vmdk-sparse"),
        ("vmdk", "subformat=streamOptimized", "vmdk-sparse"),
    ] {
        let bytes = by_qemu(format, options);
        let image = open(&bytes).expect(options);
        let about: Value = serde_json::from_str(&image.about().expect("told")).expect("JSON");
        assert_eq!(about["formats"], serde_json::json!([name]), "{options}");
        assert!(archive(&image, "/") == expected, "{options}");
        // Whatever is changed ends in an answer; some of it is noticed.
        let mut refused = 0;
        for at in 0..600 {
            let mut wrong = bytes.clone();
            let from_end = at % 3 == 2;
            let place = if from_end {
                wrong.len() - 1 - at
            } else {
                at * 7
            };
            wrong[place] ^= 0x55;
            match open(&wrong) {
                Err(_) => refused += 1,
                Ok(image) => drop(image.list(b"/", true)),
            }
        }
        assert!(refused > 4, "{options}: {refused}");
    }
}

#[test]
fn disks_of_several_files_are_refused() {
    let split = by_qemu("vmdk", "subformat=monolithicFlat");
    let refused = open(&split).map(drop).expect_err("a description");
    assert!(refused.text.contains("another file"), "{refused}");
    let mut child = by_qemu("vmdk", "subformat=monolithicSparse");
    let cid = child
        .windows(19)
        .position(|some| some == b"parentCID=ffffffff\n");
    child[cid.expect("a description") + 10] = b'7';
    let refused = open(&child).map(drop).expect_err("a child");
    assert!(refused.text.contains("stands on another"), "{refused}");
}

#[test]
fn names_on_the_way_of_a_walk_are_bounded() {
    let image = image();
    let root = image.fs().inode(extant_format::Ino::ROOT).expect("a root");
    let mut walk = Walk::bounded(root, 0);
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    while let Some(next) = walk.next(image.fs()) {
        match next {
            Next::File(path, _) => files.push(path),
            Next::Problem(path, why) => problems.push((path, why)),
        }
    }
    // The root and what is in it, and no more.
    assert!(files.iter().all(|path| !path.contains(&b'/')), "{files:?}");
    assert!(files.len() > 5);
    let entered: Vec<&[u8]> = problems.iter().map(|(path, _)| &**path).collect();
    assert_eq!(entered, [&b"etc"[..], b"lost+found"]);
}
