//! `convert`, and `mkfs` into formats of disk images: judged by the programs of those formats.

use crate::support::{Place, extant, extant_with};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::path::Path;

/// Formats, the extension that stands for each, and what `qemu-img` calls it.
const FORMATS: [(&str, &str, &str); 6] = [
    ("raw", "img", "raw"),
    ("qcow2", "qcow2", "qcow2"),
    ("vhd", "vhd", "vpc"),
    ("vhd-fixed", "vhdf", "vpc"),
    ("simg", "simg", ""),
    ("vmdk", "vmdk", "vmdk"),
];

/// A directory with files to make images from.
fn source(place: &Place) -> String {
    let dir = place.join("source");
    fs::create_dir_all(dir.join("a/b")).unwrap();
    let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(dir.join("a/large"), &text).unwrap();
    fs::write(dir.join("a/b/small"), "small\n").unwrap();
    let file = fs::File::create(dir.join("hole")).unwrap();
    file.set_len(9 << 20).unwrap();
    place.arg("source")
}

/// What other programs make a raw file of.
fn raw_by_others(place: &Place, image: &str, qemu: &str) -> String {
    let raw = place.arg("by-others.img");
    let _ = fs::remove_file(&raw);
    if qemu.is_empty() {
        tool("simg2img").args([image, &raw]).ok();
    } else {
        tool("qemu-img")
            .args(["convert", "-f", qemu, "-O", "raw", image, &raw])
            .ok();
    }
    raw
}

#[test]
fn mkfs_makes_images_of_every_format() {
    for (format, extension, qemu) in FORMATS {
        let place = Place::new();
        let source = source(&place);
        let image = place.arg(&format!("image.{extension}"));
        // The extension says it, but for a fixed VHD.
        let by_name = ["mkfs", &image, "--from", &source, "--size", "64M", "-q"];
        let run = if format == "vhd-fixed" {
            extant([&by_name[..], &["--format", format]].concat())
        } else {
            extant(by_name)
        };
        run.ok();
        if qemu == "qcow2" {
            tool("qemu-img").args(["check", "-f", qemu, &image]).ok();
        }
        let raw = raw_by_others(&place, &image, qemu);
        assert_clean(Path::new(&raw));
        let text = extant(["cat", &format!("{raw}:/a/b/small")]).ok().text();
        assert_eq!(text, "small\n", "{format}");
        let again = extant(["mkfs", &image, "--from", &source, "--size", "64M"]);
        if !["raw", "vhd-fixed"].contains(&format) {
            let said = again.fails(1).stderr;
            assert!(said.contains("--force"), "{format}: {said}");
        }
    }
}

#[test]
fn convert_goes_from_each_format_to_each() {
    let place = Place::new();
    let source = source(&place);
    let plain = place.arg("plain.img");
    extant(["mkfs", &plain, "--from", &source, "--size", "48M", "-q"]).ok();
    for (from, from_extension, _) in FORMATS {
        let first = place.arg(&format!("first.{from_extension}"));
        extant(["convert", &plain, &first, "--format", from, "-q"]).ok();
        for (to, to_extension, qemu) in FORMATS {
            let second = place.arg(&format!("second.{to_extension}"));
            let run = extant([
                "convert", &first, &second, "--format", to, "--json", "--force",
            ]);
            let made = run.ok().json();
            assert_eq!(made["source_format"], from);
            assert_eq!(made["format"], to);
            assert_eq!(made["size"], 48 << 20, "{from} to {to}");
            let raw = raw_by_others(&place, &second, qemu);
            tool("cmp").args([&raw, &plain]).ok();
        }
    }
    let mut names: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    // The source and the plain image; each format twice, a VMDK in two files; what others made.
    names.retain(|name| name.is_ok());
    assert_eq!(names.len(), 2 + 2 * 7 + 1, "{names:?}");
}

#[test]
fn holes_are_not_read_and_take_no_space() {
    let place = Place::new();
    let plain = place.arg("plain.img");
    fs::File::create(&plain).unwrap().set_len(4 << 30).unwrap();
    extant(["mkfs", &plain, "--size", "4G", "-q", "--force"]).ok();
    for to in ["qcow2", "vhd", "simg", "img"] {
        let target = place.arg(&format!("target.{to}"));
        let made = extant(["convert", &plain, &target, "--json"]).ok().json();
        let bytes = |key: &str| made[key].as_u64().unwrap();
        // 4 GiB of file system have some MiB of metadata; a block of a VHD has 2 MiB.
        assert!(bytes("allocated") < 300 << 20, "{made}");
        if to != "simg" {
            assert!(bytes("read") < 200 << 20, "{made}");
        }
        let back = place.arg("back.img");
        extant(["convert", &target, &back, "-q", "--force"]).ok();
        tool("cmp").args([&back, &plain]).ok();
    }
}

#[test]
fn compressed_images_and_partitions_are_sources() {
    let place = Place::new();
    let source = source(&place);
    let plain = place.arg("plain.img");
    extant(["mkfs", &plain, "--from", &source, "--size", "16M", "-q"]).ok();
    tool("xz").args(["-k", &plain]).ok();
    let target = place.arg("target.qcow2");
    let packed = format!("{plain}.xz");
    let made = extant(["convert", &packed, &target, "--json"]).ok().json();
    assert_eq!(made["source_format"], "xz");
    tool("gzip").args(["-k", &target]).ok();
    let back = place.arg("back.img");
    extant(["convert", &format!("{target}.gz"), &back, "-q"]).ok();
    tool("cmp").args([&back, &plain]).ok();

    let disk = place.arg("disk.img");
    fs::File::create(&disk).unwrap().set_len(40 << 20).unwrap();
    tool("sgdisk").args(["-n", "1:2048:+20M", &disk]).ok();
    extant(["mkfs", &disk, "--partition", "1", "--from", &source, "-q"]).ok();
    let part = place.arg("part.vhd");
    extant(["convert", &disk, &part, "--partition", "1", "-q"]).ok();
    let raw = raw_by_others(&place, &part, "vpc");
    assert_clean(Path::new(&raw));
}

#[test]
fn what_cannot_be_done_is_refused_and_nothing_is_left() {
    let place = Place::new();
    let plain = place.arg("plain.img");
    extant(["mkfs", &plain, "--size", "8M", "-q"]).ok();
    let text = place.arg("text.qcow2");
    fs::write(&text, "precious\n").unwrap();
    let said = extant(["convert", &plain, &text]).fails(1).stderr;
    assert!(said.contains("--force"), "{said}");
    assert_eq!(fs::read(&text).unwrap(), b"precious\n");
    extant(["convert", &plain, &plain]).fails(2);
    extant(["convert", &plain, &place.arg("x.img.gz")]).fails(2);
    extant(["convert", &plain, &place.arg("x"), "--format", "vdi"]).fails(2);
    extant(["convert", &plain, &place.arg("x"), "--crc"]).fails(2);
    extant(["convert", &plain, "-"]).fails(2);
    extant(["convert", "--as-is", &plain, &place.arg("x")]).fails(2);
    extant(["mkfs", &place.arg("x.qcow2")]).fails(2);
    let missing = extant(["convert", &place.arg("missing"), &place.arg("x")]);
    missing.fails(1);

    // A source that is damaged far behind leaves no target.
    let image = place.arg("image.simg");
    extant(["convert", &plain, &image, "--crc", "-q"]).ok();
    let mut bytes = fs::read(&image).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&image, bytes).unwrap();
    let said = extant(["convert", &image, &place.arg("x")]).fails(1).stderr;
    assert!(said.contains("checksum"), "{said}");
    assert!(!place.join("x").exists());
}

#[test]
fn the_same_disk_gives_the_same_image_if_asked() {
    let place = Place::new();
    let plain = place.arg("plain.img");
    extant(["mkfs", &plain, "--size", "8M", "-q"]).ok();
    for extension in ["vhd", "simg", "vmdk"] {
        let (a, b) = (
            place.arg(&format!("a.{extension}")),
            place.arg(&format!("b.{extension}")),
        );
        for image in [&a, &b] {
            extant_with(["convert", &plain, image, "-q", "--threads", "1"], |c| {
                c.env("SOURCE_DATE_EPOCH", "1700000000");
            })
            .ok();
        }
        let text = |path: &str| fs::read(path).unwrap();
        let same = if extension == "vmdk" {
            let a = String::from_utf8(text(&a))
                .unwrap()
                .replace("a-flat", "b-flat");
            a.into_bytes() == text(&b)
        } else {
            text(&a) == text(&b)
        };
        assert!(same, "{extension}");
    }
}

#[test]
fn a_disk_is_not_overwritten_with_itself_under_another_name() {
    require!(Root, LoopDevices);
    let place = Place::new();
    let disk = place.join("disk");
    mke2fs(&disk, 16 << 20, &["-t", "ext4"]);
    let before = std::fs::read(&disk).unwrap();
    let device = LoopDevice::attach(&disk, Access::ReadWrite).unwrap();
    let number = std::os::unix::fs::MetadataExt::rdev(&device.path().metadata().unwrap());
    let other = place.join("node");
    let kind = rustix::fs::FileType::BlockDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &other, kind, 0o600.into(), number).unwrap();
    let (from, to) = (device.path().display().to_string(), place.arg("node"));
    let run = extant(["convert", "--force", &from, &to]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("same disk"), "{}", run.stderr);
    drop(device);
    assert!(std::fs::read(&disk).unwrap() == before);
}
