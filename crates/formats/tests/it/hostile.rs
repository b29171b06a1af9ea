//! Images that somebody has changed: errors in words, never a panic, and bounded work.

use crate::support::{file, new_file, patches, raw, run};
use extant_blockdev::{FileDevice, MemoryDevice, SharedDevice};
use extant_formats::{
    CreateHow, Format, FormatError, OpenHow, copy, create, open, recognise, simg,
};
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the disks here.
const SIZE: u64 = 5 << 20;

/// An image of each format with some content.
fn images() -> Vec<(Format, Vec<u8>)> {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = dir.path().join("plain");
    let mut rng = Rng::new(11);
    raw(&plain, SIZE, &patches(&mut rng, SIZE, 8));
    let mut made = Vec::new();
    for format in [Format::Qcow2, Format::Vhd, Format::VhdFixed] {
        let path = dir.path().join(format.word());
        let disk = create(new_file(&path), format, SIZE, &CreateHow::default()).expect("room");
        copy(&*file(&plain), &*disk, None, &()).expect("a copy");
        disk.flush().expect("a flush");
        drop(disk);
        made.push((format, fs::read(&path).expect("a file")));
    }
    let path = dir.path().join("simg");
    let mut how = simg::WriteHow::default();
    how.crc = true;
    let to = new_file(&path);
    simg::write(&*file(&plain), &*to, &how, &()).expect("an image");
    drop(to);
    made.push((Format::Simg, fs::read(&path).expect("a file")));
    made
}

/// Opens an image and uses the disk. Errors are fine.
fn use_disk(bytes: &[u8], format: Format) {
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(bytes));
    let _ = recognise(&*device);
    for how in [OpenHow::read_only(), OpenHow::read_write()] {
        let Ok(disk) = open(Arc::clone(&device), format, &how) else {
            continue;
        };
        let size = disk.size();
        let mut buf = vec![0; 70_000];
        for at in [0, 4096, size / 3, size / 2, size.saturating_sub(70_000)] {
            let len = size.saturating_sub(at).min(70_000) as usize;
            let _ = disk.read_at(at, &mut buf[..len]);
        }
        let mut at = 0;
        for _ in 0..64 {
            match disk.next_data(at, size) {
                Ok(Some(found)) => {
                    assert!(found.start >= at && found.end > found.start && found.end <= size);
                    at = found.end;
                }
                _ => break,
            }
        }
        if !disk.is_read_only() && size >= 8192 {
            let _ = disk.write_at(size / 2, &[5; 3000]);
            let _ = disk.zero(1000, 4096);
            let _ = disk.discard(0, 4096);
            let _ = disk.flush();
        }
    }
}

/// Places of an image where its structures are, in bytes.
fn structures(format: Format, bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let end = bytes.len();
    match format {
        // The header and its extensions; the tables, which imago puts in front of data.
        Format::Qcow2 => {
            let be64 = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
            let l1 = be64(40) as usize;
            let counts = be64(48) as usize;
            let l2 = (be64(l1) & 0x00ff_ffff_ffff_fe00) as usize;
            vec![0..128, l1..l1 + 16, l2..l2 + 64, counts..counts + 16]
        }
        Format::Vhd => vec![
            0..92,
            512..560,
            1536..1548,
            2048..2052,
            end - 512..end - 420,
        ],
        Format::VhdFixed => vec![0..8, end - 512..end - 420],
        _ => vec![0..80, end - 16..end],
    }
}

#[test]
fn every_field_of_every_header_may_hold_anything() {
    let seed = seed_from_env("hostile::fields");
    let mut rng = Rng::new(seed);
    for (format, good) in images() {
        use_disk(&good, format);
        let mut bytes = good.clone();
        for place in structures(format, &good) {
            for at in place.clone().step_by(4) {
                let edges = [
                    0,
                    1,
                    0xff,
                    0x7fff_ffff,
                    0x8000_0000,
                    u32::MAX,
                    rng.next_u64() as u32,
                ];
                for edge in edges {
                    for word in [edge.to_le_bytes(), edge.to_be_bytes()] {
                        let end = (at + 4).min(bytes.len());
                        bytes[at..end].copy_from_slice(&word[..end - at]);
                        mend_sums(format, &mut bytes);
                        use_disk(&bytes, format);
                    }
                }
                bytes.copy_from_slice(&good);
            }
        }
        for len in [0, 1, 3, 27, 28, 100, 511, 512, 513, 1535, 1536, 5000] {
            use_disk(&good[..len.min(good.len())], format);
            use_disk(&good[good.len() - len.min(good.len())..], format);
        }
    }
}

/// Makes the checksums of a VHD right, so that what they guard is looked at.
fn mend_sums(format: Format, bytes: &mut [u8]) {
    if !matches!(format, Format::Vhd | Format::VhdFixed) {
        return;
    }
    let end = bytes.len();
    let mut mend = |from: usize, len: usize, at: usize| {
        let part = &mut bytes[from..from + len];
        part[at..at + 4].fill(0);
        let sum = part
            .iter()
            .fold(0_u32, |sum, b| sum.wrapping_add((*b).into()));
        part[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
    };
    mend(end - 512, 512, 64);
    if format == Format::Vhd {
        mend(0, 512, 64);
        mend(512, 1024, 36);
    }
}

#[test]
fn a_fixed_vhd_has_the_size_that_is_there_and_never_none() {
    let place = tempfile::tempdir().expect("a directory");
    let image = place.path().join("image.vhd");
    // The geometry has fewer bytes than the disk.
    let size = (5 << 20) + 512;
    let disk = create(
        new_file(&image),
        Format::VhdFixed,
        size,
        &CreateHow::default(),
    );
    disk.expect("room").flush().expect("a flush");
    let good = fs::read(&image).expect("a file");
    let footer = good.len() - 512;
    // By a program that QEMU takes the geometry of.
    let mut bytes = good.clone();
    bytes[footer + 28..footer + 32].copy_from_slice(b"vbox");
    mend_sums(Format::VhdFixed, &mut bytes);
    fs::write(&image, &bytes).expect("room");
    assert_eq!(crate::support::disk(&image).size(), size);
    // With something between the disk and the footer, the geometry says it.
    let mut longer = bytes.clone();
    longer.splice(footer..footer, [0; 512]);
    fs::write(&image, &longer).expect("room");
    let by_geometry = crate::support::disk(&image).size();
    assert!((512..size).contains(&by_geometry), "{by_geometry}");
    for name in [b"vbox", b"win "] {
        bytes[footer + 28..footer + 32].copy_from_slice(name);
        bytes[footer + 40..footer + 60].fill(0);
        mend_sums(Format::VhdFixed, &mut bytes);
        fs::write(&image, &bytes).expect("room");
        let error = refusal(&image, OpenHow::read_only()).to_string();
        assert!(error.contains("no bytes"), "{error}");
    }
}

/// What opening the file says.
fn refusal(path: &Path, how: OpenHow) -> FormatError {
    let device = file(path);
    let format = recognise(&*device).expect("a file").expect("a format");
    let how = how.beside(path);
    open(device, format, &how).expect_err("an image that is refused")
}

#[test]
fn files_outside_of_the_folder_are_not_opened_unless_asked_for() {
    let place = tempfile::tempdir().expect("a directory");
    let (inner, outer) = (place.path().join("inner"), place.path().join("secret"));
    fs::create_dir(&inner).expect("a directory");
    raw(&outer, 1 << 20, &patches(&mut Rng::new(1), 1 << 20, 4));
    raw(&inner.join("base"), 1 << 20, &[]);
    symlink(&outer, inner.join("link")).expect("a link");
    fs::create_dir(inner.join("folder")).expect("a directory");
    let outside = outer.to_str().expect("a name");
    for (named, opens) in [
        ("base", true),
        ("folder/../base", true),
        (outside, false),
        ("../secret", false),
        ("link", false),
        ("/dev/null", false),
        ("folder", false),
        ("nbd://127.0.0.1/x", false),
        ("json:{}", false),
    ] {
        let qcow2 = inner.join("image.qcow2");
        let _ = fs::remove_file(&qcow2);
        run(
            &format!("qemu-img create -u -f qcow2 -F raw -b {named} {{}} 1M"),
            &[&qcow2],
        );
        let vmdk = inner.join("image.vmdk");
        let text = format!("# Disk DescriptorFile\nversion=1\nRW 2048 FLAT \"{named}\" 0\n");
        fs::write(&vmdk, text).expect("room");
        for image in [&qcow2, &vmdk] {
            let device = file(image);
            let format = recognise(&*device).expect("a file").expect("a format");
            let done = open(device, format, &OpenHow::read_only().beside(image));
            match done {
                Ok(_) => assert!(opens, "{named} is followed"),
                Err(e) => assert!(!opens, "{named}: {e}"),
            }
        }
        if named == "../secret" {
            let error = refusal(&qcow2, OpenHow::read_only());
            assert!(matches!(error, FormatError::NotFollowed { .. }), "{error}");
            let device = file(&qcow2);
            let how = OpenHow::read_only().beside(&qcow2).outside(true);
            let disk = open(device, Format::Qcow2, &how).expect("it was asked for");
            crate::support::assert_same(&*disk, &*file(&outer), "asked for");
        }
    }
}

#[test]
fn a_vmdk_is_written_only_to_files_of_its_own() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    fs::create_dir(path("below")).expect("a directory");
    let files = ["disk-flat.vmdk", "disk-f001.vmdk", "disks.img", "other.img"];
    for name in files.into_iter().chain(["below/disk-flat.vmdk"]) {
        raw(&path(name), 1 << 20, &[]);
    }
    symlink("other.img", path("disk-link")).expect("a link");
    let image = path("disk.vmdk");
    let opened = |text: &str, how: OpenHow| {
        fs::write(
            &image,
            format!("# Disk DescriptorFile\nversion=1\n{text}\n"),
        )
        .expect("room");
        open(file(&image), Format::Vmdk, &how)
    };
    for (named, is_written) in [
        ("disk-flat.vmdk", true),
        ("disk-f001.vmdk", true),
        ("below/../disk-f001.vmdk", true),
        ("disks.img", false),
        ("other.img", false),
        ("disk-link", false),
        ("below/disk-flat.vmdk", false),
    ] {
        let line = format!("RW 2048 FLAT \"{named}\" 0");
        let to_read = opened(&line, OpenHow::read_only().beside(&image));
        to_read.unwrap_or_else(|e| panic!("{named}: {e}"));
        let how = OpenHow::read_write().beside(&image);
        match opened(&line, how.clone()) {
            Ok(_) => assert!(is_written, "{named}"),
            Err(e) => {
                assert!(matches!(e, FormatError::NotFollowed { .. }), "{named}: {e}");
                assert!(!is_written && e.to_string().contains("disk-flat"), "{e}");
            }
        }
        let allowed = opened(&line, how.outside(true));
        allowed.unwrap_or_else(|e| panic!("{named}: {e}"));
    }
    // The description itself is none of the files.
    let error = opened(
        "RW 0 FLAT \"disk.vmdk\" 0\nRW 2048 FLAT \"disk-flat.vmdk\" 0",
        OpenHow::read_write().beside(&image),
    );
    assert!(matches!(error, Err(FormatError::NotFollowed { .. })));
    for line in [
        "RW 2048 ZERO",
        "RDONLY 2048 ZERO",
        "RDONLY 2048 FLAT \"disk-flat.vmdk\" 0",
    ] {
        let text = format!("RW 2048 FLAT \"disk-f001.vmdk\" 0\n{line}");
        let disk = opened(&text, OpenHow::read_only().beside(&image)).expect("a disk");
        assert_eq!(disk.size(), 2 << 20);
        let error = opened(&text, OpenHow::read_write().beside(&image));
        let error = error.expect_err("a part that is not written").to_string();
        assert!(error.contains("open it for reading"), "{line}: {error}");
    }
}

#[test]
fn nothing_is_followed_from_the_folder_of_all_folders() {
    let place = tempfile::tempdir().expect("a directory");
    let (image, bytes) = (
        place.path().join("disk.vmdk"),
        place.path().join("disk-flat.vmdk"),
    );
    raw(&bytes, 1 << 20, &[]);
    let text = format!(
        "# Disk DescriptorFile\nversion=1\nRW 2048 FLAT \"{}\" 0\n",
        bytes.display()
    );
    fs::write(&image, text).expect("room");
    let at_root = Path::new("/disk.vmdk");
    for how in [OpenHow::read_only(), OpenHow::read_write()] {
        let error = open(file(&image), Format::Vmdk, &how.clone().beside(at_root));
        let error = error.expect_err("all files are below");
        assert!(matches!(error, FormatError::NotFollowed { .. }), "{error}");
        let allowed = how.beside(at_root).outside(true);
        open(file(&image), Format::Vmdk, &allowed).expect("it was asked for");
    }
}

#[test]
fn images_that_stand_on_themselves_end_in_an_error() {
    let place = tempfile::tempdir().expect("a directory");
    let (a, b) = (place.path().join("a.qcow2"), place.path().join("b.qcow2"));
    run(
        "qemu-img create -u -f qcow2 -F qcow2 -b b.qcow2 {} 1M",
        &[&a],
    );
    run(
        "qemu-img create -u -f qcow2 -F qcow2 -b a.qcow2 {} 1M",
        &[&b],
    );
    let error = refusal(&a, OpenHow::read_only());
    assert!(error.to_string().contains("backing files"), "{error}");
}

#[test]
fn backing_files_are_read_and_not_written() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let mut rng = Rng::new(5);
    let changes = patches(&mut rng, SIZE, 10);
    raw(&path("base"), SIZE, &changes[..5]);
    raw(&path("all"), SIZE, &changes);
    run(
        "qemu-img create -f qcow2 -F raw -b base {}",
        &[&path("middle.qcow2")],
    );
    run(
        "qemu-img create -f qcow2 -F qcow2 -b middle.qcow2 {}",
        &[&path("top.qcow2")],
    );
    let before = fs::read(path("base")).expect("a file");
    let disk = crate::support::disk_to_write(&path("top.qcow2"));
    for change in &changes[5..] {
        disk.write_at(change.offset, &change.bytes).expect("room");
    }
    disk.flush().expect("a flush");
    drop(disk);
    assert!(fs::read(path("base")).expect("a file") == before);
    run("qemu-img check {}", &[&path("top.qcow2")]);
    run(
        "qemu-img compare -f qcow2 -F raw {} {}",
        &[&path("top.qcow2"), &path("all")],
    );
}

/// The place of the extension with the format of the backing file.
fn backing_format(bytes: &[u8]) -> usize {
    let mark = 0xe279_2aca_u32.to_be_bytes();
    let found = bytes[..4096].windows(4).position(|word| word == mark);
    found.expect("an extension")
}

#[test]
fn a_backing_file_of_no_stated_format_is_raw_or_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    raw(&path("base"), SIZE, &patches(&mut Rng::new(2), SIZE, 4));
    run("qemu-img create -f qcow2 {} 5M", &[&path("base.qcow2")]);
    for (base, format) in [("base", "raw"), ("base.qcow2", "qcow2")] {
        let image = path("image.qcow2");
        let line = format!("qemu-img create -f qcow2 -F {format} -b {base} {{}} {SIZE}");
        run(&line, &[&image]);
        crate::support::assert_same(
            &*crate::support::disk(&image),
            &*crate::support::disk(&path(base)),
            base,
        );
        let mut bytes = fs::read(&image).expect("a file");
        let at = backing_format(&bytes);
        // An unknown extension in its place.
        bytes[at..at + 4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
        fs::write(&image, bytes).expect("room");
        if format == "raw" {
            let disk = crate::support::disk(&image);
            crate::support::assert_same(&*disk, &*file(&path(base)), base);
        } else {
            let error = refusal(&image, OpenHow::read_only()).to_string();
            assert!(error.contains("qemu-img rebase"), "{error}");
        }
    }
}

#[test]
fn a_qcow2_whose_counts_are_wrong_is_read_and_not_written() {
    let place = tempfile::tempdir().expect("a directory");
    let image = place.path().join("image.qcow2");
    for options in [
        "",
        "-o compat=0.10",
        "-o refcount_bits=1",
        "-c",
        "-o cluster_size=512",
    ] {
        let plain = place.path().join("plain");
        raw(&plain, SIZE, &patches(&mut Rng::new(9), SIZE, 9));
        let convert = format!("qemu-img convert -O qcow2 {options} {{}} {{}}");
        run(&convert, &[&plain, &image]);
        drop(crate::support::disk_to_write(&image));
        let good = fs::read(&image).expect("a file");
        let be64 = |at: usize| u64::from_be_bytes(good[at..at + 8].try_into().unwrap()) as usize;
        let block = be64(be64(48));
        let mut bytes = good.clone();
        // The counts of the first clusters.
        bytes[block..block + 8].fill(0);
        fs::write(&image, bytes).expect("room");
        let device: SharedDevice = Arc::new(FileDevice::open(&image).expect("a file"));
        let error = open(device, Format::Qcow2, &OpenHow::read_write());
        let error = error.expect_err("wrong counts").to_string();
        assert!(error.contains("qemu-img check -r"), "{options}: {error}");
        crate::support::assert_same(&*crate::support::disk(&image), &*file(&plain), options);
    }
}

#[test]
fn a_qcow2_with_a_cluster_in_two_places_is_read_and_not_written() {
    let place = tempfile::tempdir().expect("a directory");
    let (plain, image) = (place.path().join("plain"), place.path().join("image.qcow2"));
    // The last cluster of the disk has no place yet.
    let mut bytes: Vec<u8> = (0..4_u64 << 16).map(|n| (n / 100) as u8).collect();
    bytes.resize(5 << 16, 0);
    fs::write(&plain, bytes).expect("room");
    for options in ["", "-o refcount_bits=64", "-c", "-c -o refcount_bits=4"] {
        run(
            &format!("qemu-img convert -f raw -O qcow2 {options} {{}} {{}}"),
            &[&plain, &image],
        );
        drop(crate::support::disk_to_write(&image));
        let mut bytes = fs::read(&image).expect("a file");
        let be64 = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        let second = (be64(be64(40) as usize) & 0x00ff_ffff_ffff_fe00) as usize;
        bytes.copy_within(second..second + 8, second + 4 * 8);
        fs::write(&image, bytes).expect("room");
        let device: SharedDevice = Arc::new(FileDevice::open(&image).expect("a file"));
        let error = open(device, Format::Qcow2, &OpenHow::read_write());
        let error = error.expect_err("a cluster twice").to_string();
        let expected = if options.starts_with("-c") {
            "are counted"
        } else {
            "in two places"
        };
        assert!(error.contains(expected), "{options}: {error}");
        assert!(error.contains("qemu-img check -r"), "{options}: {error}");
        let disk = crate::support::disk(&image);
        let (mut a, mut b) = ([0; 4096], [1; 4096]);
        disk.read_at(0, &mut a).expect("a read");
        disk.read_at(4 << 16, &mut b).expect("a read");
        assert!(a == b, "{options}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    raw(&path("plain"), SIZE, &[]);
    let cases = [
        ("qemu-img convert -O vmdk {} {}", "sparse VMDK", "qemu-nbd"),
        (
            "qemu-img convert -O vmdk -o subformat=streamOptimized {} {}",
            "VMDK",
            "qemu-nbd",
        ),
        (
            "qemu-img convert -O qcow2 -o data_file=plain-data {} {}",
            "data in another file",
            "qemu-img",
        ),
        (
            "qemu-img convert -O qcow2 -o extended_l2=on {} {}",
            "subclusters",
            "qemu-img",
        ),
        (
            "qemu-img convert -c -O qcow2 -o compression_type=zstd {} {}",
            "zlib",
            "qemu-img",
        ),
        ("qemu-img convert -O qcow {} {}", "version 1", "qemu-img"),
    ];
    for (n, (line, names, advises)) in cases.into_iter().enumerate() {
        let image = path(&format!("image{n}"));
        let line = line.replace("plain-data", &path("plain-data").display().to_string());
        run(&line, &[&path("plain"), &image]);
        let error = refusal(&image, OpenHow::read_only()).to_string();
        assert!(
            error.contains(names) && error.contains(advises),
            "{line}: {error}"
        );
    }
    // An encrypted one: the method in the header.
    let image = path("image.qcow2");
    for (method, name) in [(1, "AES"), (2, "LUKS")] {
        run("qemu-img create -f qcow2 {} 4M", &[&image]);
        let mut bytes = fs::read(&image).expect("a file");
        bytes[35] = method;
        fs::write(&image, bytes).expect("room");
        let error = refusal(&image, OpenHow::read_only()).to_string();
        assert!(
            error.contains("encrypted") && error.contains(name),
            "{error}"
        );
    }
    // A differencing VHD: the type of the footers.
    let image = path("image.vhd");
    run("qemu-img create -f vpc {} 4M", &[&image]);
    let mut bytes = fs::read(&image).expect("a file");
    let last = bytes.len() - 512;
    bytes[63] = 4;
    bytes[last + 63] = 4;
    mend_sums(Format::Vhd, &mut bytes);
    fs::write(&image, bytes).expect("room");
    let error = refusal(&image, OpenHow::read_only()).to_string();
    assert!(error.contains("differencing"), "{error}");
}
