//! What is recognised by its marks: files that others' tools made, and bytes as the formats say.

use extant_blockdev::content::{LastingMark, lasting_marks};
use extant_blockdev::{BlockDevice, Content, FileOptions, MemoryDevice};
use extant_testkit::lasting_marks::lasting_marks as testkit_marks;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::fs;
use std::path::{Path, PathBuf};

/// The content of a file.
fn recognised(path: &Path) -> Content {
    Content::on(&FileOptions::read_only().open(path).expect("a file")).expect("readable")
}

struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("tree")).expect("room");
        fs::write(dir.path().join("tree/file"), "content\n".repeat(1000)).expect("room");
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sparse(&self, name: &str, size: u64) -> PathBuf {
        let file = fs::File::create(self.at(name)).expect("room");
        file.set_len(size).expect("room");
        self.at(name)
    }

    /// Runs a program that makes `name`, and says what that is.
    fn made(&self, name: &str, program: &str, args: &[&str]) -> Content {
        let args = args
            .iter()
            .map(|arg| arg.replace("@", &format!("{}/", self.dir.path().display())));
        tool(program).args(args).ok();
        recognised(&self.at(name))
    }

    /// What a program writes to its standard output.
    fn written(&self, program: &str, args: &[&str]) -> Content {
        let bytes = tool(program)
            .args(args)
            .arg(self.at("tree/file"))
            .ok()
            .stdout;
        fs::write(self.at("written"), bytes).expect("room");
        recognised(&self.at("written"))
    }
}

#[test]
fn what_file_system_tools_make_is_recognised() {
    let room = Room::new();
    let image = room.sparse("image", 8 << 20);
    let mke2fs = |kind: &str| {
        tool("mke2fs")
            .args(["-q", "-F", "-t", kind])
            .arg(&image)
            .ok();
        recognised(&image)
    };
    assert_eq!(mke2fs("ext2"), Content::Ext2);
    assert_eq!(mke2fs("ext3"), Content::Ext3);
    assert_eq!(mke2fs("ext4"), Content::Ext4);
    tool("mke2fs")
        .args(["-q", "-F", "-O", "journal_dev"])
        .arg(&image)
        .ok();
    assert_eq!(recognised(&image), Content::ExtJournal);
    room.sparse("swap", 8 << 20);
    assert_eq!(room.made("swap", "mkswap", &["@swap"]), Content::Swap);
    room.sparse("swap", 8 << 20);
    assert_eq!(
        room.made("swap", "mkswap", &["-p", "65536", "@swap"]),
        Content::Swap
    );
    assert_eq!(
        room.made("squash", "mksquashfs", &["@tree", "@squash", "-quiet"]),
        Content::Squashfs
    );
}

#[test]
fn disk_images_are_recognised() {
    let room = Room::new();
    for (format, expected) in [
        ("qcow2", Content::Qcow),
        ("qcow", Content::Qcow),
        ("qed", Content::Qed),
        ("vdi", Content::Vdi),
        ("vpc", Content::Vhd),
        ("vpc -o subformat=fixed", Content::Vhd),
        ("vhdx", Content::Vhdx),
        ("vmdk", Content::Vmdk),
        ("vmdk -o subformat=monolithicFlat", Content::VmdkDescriptor),
        ("parallels", Content::Parallels),
        ("raw", Content::Zeros),
    ] {
        let mut args = vec!["create", "-q", "-f"];
        args.extend(format.split(' '));
        args.extend(["@disk", "4M"]);
        assert_eq!(room.made("disk", "qemu-img", &args), expected, "{format}");
        assert_eq!(
            expected
                .advice()
                .is_some_and(|advice| advice.contains("qemu-img convert")),
            expected != Content::Zeros
        );
    }
}

#[test]
fn what_devices_and_phones_start_from_is_recognised() {
    let with = |at: usize, mark: &[u8]| {
        let mut bytes = vec![0; 256 << 10];
        bytes[at..at + mark.len()].copy_from_slice(mark);
        // Nothing but the mark: the rest is not zeros.
        bytes[5000] |= 1;
        Content::on(&MemoryDevice::from_image(&bytes)).expect("readable")
    };
    let bcachefs = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    for (at, mark, expected) in [
        (0, &b"ANDROID!"[..], Content::AndroidBoot),
        (0, b"VNDRBOOT", Content::AndroidBoot),
        (4096, b"gDla", Content::AndroidSuper),
        (0, b"CrAU", Content::AndroidUpdate),
        (0, b"\x27\x05\x19\x56", Content::BootImage),
        (0, b"\xd0\x0d\xfe\xed", Content::DeviceTree),
        (0, b"UBI#", Content::Ubi),
        (0, b"\x31\x18\x10\x06", Content::Ubifs),
        (0, b"\x85\x19\x03\x20", Content::Jffs2),
        (4120, bcachefs, Content::Bcachefs),
        (16_404, b"\0\0\0\x07version", Content::Zfs),
        (0x1_0000, b"\x01\x16\x19\x70", Content::Gfs2),
        (4096, b"OCFSV2", Content::Ocfs2),
    ] {
        assert_eq!(with(at, mark), expected);
        assert!(expected.advice().is_some(), "{expected}");
    }
    let room = Room::new();
    room.sparse("minix", 1 << 20);
    for version in ["-1", "-2", "-3"] {
        let made = room.made("minix", "mkfs.minix", &[version, "@minix"]);
        assert_eq!(made, Content::Minix, "{version}");
    }
}

#[test]
fn partition_tables_are_recognised_also_by_their_backup_alone() {
    let room = Room::new();
    let disk = room.sparse("disk", 8 << 20);
    let mut record = vec![0; 8 << 20];
    // Sectors 2,048 to 10,239, for Linux.
    record[446..462].copy_from_slice(b"\0\x20\x21\0\x83\xa2\x22\0\0\x08\0\0\0\x20\0\0");
    record[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&disk, &record).expect("room");
    assert_eq!(recognised(&disk), Content::Mbr);
    fs::write(&disk, vec![0; 8 << 20]).expect("room");
    tool("sgdisk").args(["-n", "1:2048:+2M"]).arg(&disk).ok();
    assert_eq!(recognised(&disk), Content::Gpt);
    let device = FileOptions::read_write().open(&disk).expect("a file");
    let backup = LastingMark {
        content: Content::Gpt,
        bytes: (8 << 20) - 512..8 << 20,
    };
    assert_eq!(lasting_marks(&device).expect("readable"), [backup]);
    BlockDevice::write_at(&device, 0, &[0; 1 << 20]).expect("writable");
    assert_eq!(Content::on(&device).expect("readable"), Content::Gpt);
    drop(device);
    tool("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&disk)
        .arg("4M")
        .ok();
    assert_eq!(
        recognised(&disk),
        Content::Ext4,
        "what is at the front counts for more"
    );
}

#[test]
fn what_casync_makes_is_recognised() {
    let room = Room::new();
    for (name, source, expected) in [
        ("image.caibx", "@tree/file", Content::ChunkIndex),
        ("tree.caidx", "@tree", Content::ChunkIndex),
        ("tree.catar", "@tree", Content::Catar),
    ] {
        let (store, to) = ("--store=@default.castr", format!("@{name}"));
        let made = room.made(name, "casync", &["make", store, &to, source]);
        assert_eq!(made, expected, "{name}");
        assert!(expected.advice().is_some(), "{expected}");
    }
}

#[test]
fn archives_and_compressed_files_are_recognised() {
    let room = Room::new();
    for format in ["ustar", "pax", "gnu", "v7"] {
        let args = ["--format", format, "-cf", "@tar", "-C", "@tree", "file"];
        assert_eq!(room.made("tar", "tar", &args), Content::Tar, "{format}");
    }
    for (format, expected) in [
        ("newc", Content::Cpio),
        ("odc", Content::Cpio),
        ("bin", Content::Cpio),
        ("zip", Content::Zip),
        ("7zip", Content::SevenZip),
        ("xar", Content::Xar),
        ("iso9660", Content::Iso9660),
    ] {
        let args = ["--format", format, "-cf", "@archive", "-C", "@tree", "file"];
        assert_eq!(room.made("archive", "bsdtar", &args), expected, "{format}");
    }
    for (program, args, expected) in [
        ("gzip", &["-c"][..], Content::Gzip),
        ("bzip2", &["-c"], Content::Bzip2),
        ("xz", &["-c"], Content::Xz),
        ("xz", &["-c", "--format=lzma"], Content::Lzma),
        ("zstd", &["-qc"], Content::Zstd),
        ("lz4", &["-qc"], Content::Lz4),
        ("lz4", &["-qlc"], Content::Lz4),
    ] {
        assert_eq!(room.written(program, args), expected, "{program} {args:?}");
    }
}

/// Marks of formats whose tools are not everywhere: offset and bytes, as their specifications give
/// them.
#[test]
fn marks_that_specifications_give_are_recognised() {
    let mut exfat = b"\xeb\x76\x90EXFAT   ".to_vec();
    exfat.resize(510, 0);
    exfat.extend([0x55, 0xaa]);
    let mut fat = b"\xeb\x3c\x90mkfs.fat\0\x02\x04\x01\0\x02".to_vec();
    fat.resize(510, 0);
    fat.extend([0x55, 0xaa]);
    let cases: [(usize, &[u8], Content); 16] = [
        (0, b"XFSB\0\0\x10\0", Content::Xfs),
        (65_600, b"_BHRfS_M", Content::Btrfs),
        (1024, &0xf2f5_2010_u32.to_le_bytes(), Content::F2fs),
        (0, &exfat, Content::ExFat),
        (0, &fat, Content::Fat),
        (0, b"\xebR\x90NTFS    ", Content::Ntfs),
        (32, b"NXSB", Content::Apfs),
        (1024, b"H+\0\x04", Content::HfsPlus),
        (1024, &0xe0f5_e1e2_u32.to_le_bytes(), Content::Erofs),
        (0, b"LUKS\xba\xbe\0\x02", Content::Luks),
        (
            512,
            b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001",
            Content::Lvm2,
        ),
        (4096, &0xa92b_4efc_u32.to_le_bytes(), Content::LinuxRaid),
        (0, &0xed26_ff3a_u32.to_le_bytes(), Content::AndroidSparse),
        ((1 << 20) - 512, b"koly\0\0\0\x04", Content::Dmg),
        (
            (1 << 20) - 8192,
            b"\xfc\x4e\x2b\xa9\x01\0\0\0",
            Content::LinuxRaid,
        ),
        (0, b"\x7fELF\x02", Content::Elf),
    ];
    for (at, mark, expected) in cases {
        let mut bytes = vec![0; 1 << 20];
        bytes[at..at + mark.len()].copy_from_slice(mark);
        let device = MemoryDevice::from_image(&bytes);
        assert_eq!(Content::on(&device).expect("readable"), expected);
    }
}

#[test]
fn what_has_no_mark_is_empty_zeros_text_or_unknown() {
    let of = |bytes: &[u8]| Content::on(&MemoryDevice::from_image(bytes)).expect("readable");
    assert_eq!(of(b""), Content::Empty);
    assert_eq!(of(&[0; 100]), Content::Zeros);
    assert_eq!(of(&[0; 200_000]), Content::Zeros);
    assert_eq!(of("Grüße\n".as_bytes()), Content::Text);
    assert_eq!(of("ü".repeat(100_001).as_bytes()), Content::Text);
    assert_eq!(of(&[1, 0, 2, 0]), Content::Unknown);
    let mut device = vec![0; 200_000];
    device[199_999] = 1;
    assert_eq!(of(&device), Content::Unknown);
}

#[test]
fn noise_of_any_length_is_no_format() {
    let seed = seed_from_env("noise");
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for _ in 0..200 {
        let mut noise = vec![0; rng.below(80_000) as usize + 600];
        rng.fill(&mut noise);
        // Marks of two and three bytes are there by chance now and then.
        noise[..2].copy_from_slice(&[0xff, 0xfe]);
        noise[510] = 0;
        assert_eq!(
            Content::of(&noise, &noise, noise.len() as u64),
            Content::Unknown
        );
        for len in [0, 1, 3, 19, 21, 511, 513] {
            let _ = Content::of(&noise[..len], &[], len as u64);
        }
    }
}

#[test]
fn marks_that_outlast_a_file_system_at_the_front_are_found_where_wipefs_finds_them() {
    let room = Room::new();
    // The end of a device is the end of no unit of theirs.
    for size in [80 << 20, (80 << 20) + 12_800] {
        assert_eq!(size % 512, 0);
        for (i, lasting) in testkit_marks(size).into_iter().enumerate() {
            let name = format!("{i}, {} on {size} bytes", lasting.wipefs);
            let disk = room.sparse("disk", size);
            let device = FileOptions::read_write().open(&disk).expect("a file");
            assert_eq!(lasting_marks(&device).expect("readable"), [], "{name}");
            for (at, bytes) in &lasting.places {
                device.write_at(*at, bytes).expect("writable");
            }
            let said = || {
                tool("wipefs")
                    .args(["-n", "-O", "TYPE"])
                    .arg(&disk)
                    .ok()
                    .text()
            };
            assert!(said().contains(lasting.wipefs), "{name}: {}", said());
            let marks = lasting_marks(&device).expect("readable");
            assert_eq!(marks.len(), lasting.places.len(), "{name}: {marks:?}");
            for mark in &marks {
                assert_ne!(mark.content, Content::Gpt, "{name}");
                let len = mark.bytes.end - mark.bytes.start;
                device.zero(mark.bytes.start, len).expect("writable");
            }
            assert_eq!(said().trim(), "", "{name}");
        }
    }
}
