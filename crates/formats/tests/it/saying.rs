//! What a disk is, where a guest has written marks of formats to it; and what somebody says it is.

use crate::support::{assert_same, disk, file, new_file, patches, raw, run};
use extant_blockdev::{MemoryDevice, SharedDevice};
use extant_formats::{
    CreateHow, Format, FormatError, OpenHow, copy, create, open, recognise, simg,
};
use extant_testkit::oracle::mke2fs;
use extant_testkit::rng::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SIZE: u64 = 8 << 20;

/// Marks that a guest can write into the boot sector of its disk.
fn marks() -> Vec<(Format, Vec<u8>)> {
    let mut vhd = b"conectix".to_vec();
    vhd.resize(400, 1);
    vec![
        (Format::Qcow2, qcow2_header(16)),
        (Format::VmdkSparse, b"KDMV\x01\0\0\0".to_vec()),
        (Format::Vmdk, b"# Disk DescriptorFile\nversion=1\n".to_vec()),
        (Format::Simg, vec![0x3a, 0xff, 0x26, 0xed, 1, 0, 0, 0]),
        (Format::Vhd, vhd),
        (Format::Gzip, vec![0x1f, 0x8b, 8, 0, 0]),
        (Format::Zstd, vec![0x28, 0xb5, 0x2f, 0xfd, 0]),
        (Format::Zstd, vec![0x50, 0x2a, 0x4d, 0x18, 0]),
        (Format::Xz, b"\xfd7zXZ\0\0".to_vec()),
    ]
}

/// The header of a qcow2 with clusters of this power of two.
fn qcow2_header(cluster_bits: u32) -> Vec<u8> {
    let mut header = b"QFI\xfb\0\0\0\x03".to_vec();
    header.resize(104, 0);
    header[20..24].copy_from_slice(&cluster_bits.to_be_bytes());
    header[24..32].copy_from_slice(&SIZE.to_be_bytes());
    header
}

fn memory(bytes: &[u8]) -> SharedDevice {
    Arc::new(MemoryDevice::from_image(bytes))
}

/// Disks that say what they are behind the boot sector's code: with a GPT, with an MBR, and a file
/// system of its own.
fn disks(dir: &Path) -> Vec<PathBuf> {
    let path = |name: &str| dir.join(name);
    for name in ["gpt", "mbr"] {
        fs::File::create(path(name))
            .and_then(|file| file.set_len(SIZE))
            .expect("a file");
    }
    run("sgdisk -n 1:2048:+2M {}", &[&path("gpt")]);
    let mut bytes = fs::read(path("mbr")).expect("a file");
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 16, 0, 0]);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(path("mbr"), bytes).expect("room");
    for kind in ["ext2", "ext4"] {
        mke2fs(&path(kind), SIZE, &["-t", kind]);
    }
    ["gpt", "mbr", "ext2", "ext4"].map(path).to_vec()
}

#[test]
fn a_mark_in_front_of_a_disk_is_not_believed_and_the_way_out_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    for path in disks(dir.path()) {
        let plain = fs::read(&path).expect("a disk");
        assert_eq!(recognise(&*memory(&plain)).expect("a disk"), None);
        for (format, mark) in marks() {
            let mut bytes = plain.clone();
            bytes[..mark.len()].copy_from_slice(&mark);
            let device = memory(&bytes);
            let error = recognise(&*device).expect_err("two marks").to_string();
            let mut advice = "--image-format raw".to_owned();
            if Format::SAID.contains(&format) {
                advice.push_str(" or --image-format ");
                advice.push_str(format.word());
            }
            assert!(error.ends_with(&advice), "{}: {error}", path.display());
            assert!(error.contains(format.name()), "{error}");
            // What is said is taken, where there is a mark of it.
            assert_eq!(Format::Raw.on(&*device).expect("raw"), Format::Raw);
            assert_eq!(format.on(&*device).expect("the mark"), format);
            let others = Format::SAID.into_iter().skip(1);
            for other in others.filter(|other| *other != format) {
                let error = other.on(&*device).expect_err("no mark");
                assert!(matches!(error, FormatError::NotAsSaid { .. }), "{error}");
            }
        }
    }
}

#[test]
fn images_whose_disks_have_tables_and_file_systems_are_known_by_their_marks() {
    let dir = tempfile::tempdir().expect("a directory");
    for path in disks(dir.path()) {
        let name = path.display();
        let image = dir.path().join("image");
        for format in [Format::Qcow2, Format::Vhd, Format::VhdFixed] {
            let _ = fs::remove_file(&image);
            let device = create(new_file(&image), format, SIZE, &CreateHow::default());
            let device = device.expect("room");
            copy(&*file(&path), &*device, None, &()).expect("a copy");
            device.flush().expect("a flush");
            drop(device);
            let seen = recognise(&*file(&image)).expect("one format");
            assert_eq!(seen, Some(format), "{name}");
        }
        for (line, format) in [
            ("qemu-img convert -f raw -O qcow2 {} {}", Format::Qcow2),
            (
                "qemu-img convert -f raw -O qcow2 -o cluster_size=512 {} {}",
                Format::Qcow2,
            ),
            ("qemu-img convert -f raw -O vpc {} {}", Format::Vhd),
            ("qemu-img convert -f raw -O vmdk {} {}", Format::VmdkSparse),
            ("img2simg {} {}", Format::Simg),
        ] {
            let _ = fs::remove_file(&image);
            run(line, &[&path, &image]);
            let seen = recognise(&*file(&image)).expect("one format");
            assert_eq!(seen, Some(format), "{name}: {line}");
        }
        let _ = fs::remove_file(&image);
        let to = new_file(&image);
        let how = simg::WriteHow::default();
        simg::write(&*file(&path), &*to, &how, &()).expect("an image");
        drop(to);
        assert_eq!(
            recognise(&*file(&image)).expect("one format"),
            Some(Format::Simg)
        );
        for (program, extension, format) in [
            ("gzip -k {}", "gz", Format::Gzip),
            ("zstd -q -k {}", "zst", Format::Zstd),
            ("xz -k {}", "xz", Format::Xz),
        ] {
            run(program, &[&path]);
            let mut packed = path.clone().into_os_string();
            packed.push(format!(".{extension}"));
            let seen = recognise(&*file(Path::new(&packed))).expect("one format");
            assert_eq!(seen, Some(format), "{name}");
        }
    }
}

#[test]
fn the_footer_of_a_fixed_vhd_goes_before_what_its_guest_wrote() {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, plain) = (dir.path().join("image"), dir.path().join("plain"));
    let mut rng = Rng::new(3);
    let mut with_copy = marks();
    // The whole front of a dynamic VHD of another disk.
    let other = dir.path().join("other");
    let how = CreateHow::default();
    let device = create(new_file(&other), Format::Vhd, SIZE, &how).expect("room");
    device.flush().expect("a flush");
    drop(device);
    with_copy.push((Format::Vhd, fs::read(&other).expect("a file")));
    for (format, mark) in with_copy {
        let _ = (fs::remove_file(&image), fs::remove_file(&plain));
        raw(&plain, SIZE, &patches(&mut rng, SIZE, 5));
        let mut bytes = fs::read(&plain).expect("a file");
        bytes[..mark.len()].copy_from_slice(&mark);
        fs::write(&plain, bytes).expect("room");
        let device = create(new_file(&image), Format::VhdFixed, SIZE, &how).expect("room");
        copy(&*file(&plain), &*device, None, &()).expect("a copy");
        device.flush().expect("a flush");
        drop(device);
        let seen = recognise(&*file(&image)).expect("one format");
        assert_eq!(seen, Some(Format::VhdFixed), "{format:?}");
        assert_same(&*disk(&image), &*file(&plain), format.name());
        // QEMU believes a copy of a footer in front.
        if format != Format::Vhd {
            run("qemu-img compare -f vpc -F raw {} {}", &[&image, &plain]);
        }
    }
}

#[test]
fn a_qcow2_whose_last_cluster_is_a_footer_is_not_guessed() {
    // A guest of a qcow2 can write a footer into a cluster that is the last of the file, and one of
    // a fixed VHD a header whose clusters fill the file.
    let footer_of = |size: u64| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("vhd");
        let how = CreateHow::default();
        drop(create(new_file(&path), Format::VhdFixed, size, &how).expect("room"));
        fs::read(&path).expect("a file").split_off(size as usize)
    };
    let mut bytes = vec![0; SIZE as usize];
    bytes[..104].copy_from_slice(&qcow2_header(16));
    bytes[SIZE as usize - 512..].copy_from_slice(&footer_of(SIZE - 512));
    let device = memory(&bytes);
    let error = recognise(&*device).expect_err("two marks").to_string();
    assert!(
        error.contains("--image-format vhd-fixed or --image-format qcow2"),
        "{error}"
    );
    assert_eq!(Format::Vhd.on(&*device).expect("it"), Format::VhdFixed);
    assert_eq!(Format::Qcow2.on(&*device).expect("it"), Format::Qcow2);
    // One byte of the footer wrong, and it is none.
    bytes[SIZE as usize - 100] ^= 1;
    let seen = recognise(&*memory(&bytes)).expect("one mark");
    assert_eq!(seen, Some(Format::Qcow2));
    // A footer of another size belongs to something else.
    bytes[SIZE as usize - 512..].copy_from_slice(&footer_of(SIZE));
    let seen = recognise(&*memory(&bytes)).expect("one mark");
    assert_eq!(seen, Some(Format::Qcow2));
}

#[test]
fn a_disk_said_to_be_raw_has_all_its_bytes() {
    let mut bytes = vec![7; 1 << 20];
    bytes[..104].copy_from_slice(&qcow2_header(16));
    let device = memory(&bytes);
    let opened = open(device, Format::Raw, &OpenHow::read_only()).expect("raw");
    assert_same(&*opened, &*memory(&bytes), "raw");
}
