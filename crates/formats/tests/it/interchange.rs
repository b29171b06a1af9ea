//! Images go from our side to that of others and back, and their disks stay the same.

use crate::support::{assert_same, disk, disk_to_write, file, new_file, patches, raw, run};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_formats::{CreateHow, Format, OpenHow, copy, create, open, recognise, simg};
use extant_testkit::rng::{Rng, seed_from_env};
use std::path::Path;
use std::sync::Arc;

/// What `qemu-img` calls a format.
fn of_qemu(format: Format) -> &'static str {
    match format {
        Format::Qcow2 => "qcow2",
        Format::Vhd | Format::VhdFixed => "vpc",
        Format::Vmdk => "vmdk",
        _ => "raw",
    }
}

/// What `qemu-img` says is the same as a raw disk.
fn assert_same_to_qemu(image: &Path, format: Format, plain: &Path) {
    let name = of_qemu(format);
    if format == Format::Qcow2 {
        run("qemu-img check -f qcow2 {}", &[image]);
    }
    run(
        &format!("qemu-img compare -f {name} -F raw {{}} {{}}"),
        &[image, plain],
    );
}

fn sizes(rng: &mut Rng) -> u64 {
    let sectors = 1 + rng.below(40_000);
    *rng.pick(&[512, 4096, 5 << 20, 16 << 20, sectors * 512])
}

#[test]
fn what_is_made_and_changed_here_is_the_same_to_qemu() {
    let seed = seed_from_env("interchange::made_here");
    let mut rng = Rng::new(seed);
    for format in [Format::Qcow2, Format::Vhd, Format::VhdFixed] {
        for round in 0..4 {
            let dir = tempfile::tempdir().expect("a directory");
            let (image, plain) = (dir.path().join("image"), dir.path().join("plain"));
            let size = sizes(&mut rng);
            let changes = patches(&mut rng, size, 12);
            raw(&plain, size, &changes[..6]);
            let what = format!("{format:?}, round {round} of seed {seed:#x}");
            let device = create(new_file(&image), format, size, &CreateHow::default());
            let device = device.unwrap_or_else(|e| panic!("{what}: {e}"));
            copy(&*file(&plain), &*device, None, &()).expect("a copy");
            device.flush().expect("a flush");
            drop(device);
            let seen = recognise(&*file(&image)).expect("a file");
            assert_eq!(seen, Some(format), "{what}");
            assert_same_to_qemu(&image, format, &plain);
            assert_same(&*disk(&image), &*file(&plain), &what);

            // In place, with ranges that become zeros.
            raw(&plain, size, &changes);
            let device = disk_to_write(&image);
            let plain_device = extant_blockdev::FileDevice::open(&plain).expect("a file");
            for change in &changes[6..] {
                device.write_at(change.offset, &change.bytes).expect("room");
            }
            for way in 0..4 {
                let len = 1 + rng.below(size.min(3 << 20));
                let offset = rng.below(size - len + 1);
                if way == 0 {
                    device.discard(offset, len).expect("a discard");
                }
                device.zero(offset, len).expect("zeros");
                plain_device.zero(offset, len).expect("zeros");
            }
            device.flush().expect("a flush");
            drop((device, plain_device));
            assert_same_to_qemu(&image, format, &plain);
            assert_same(&*disk(&image), &*file(&plain), &what);
        }
    }
}

#[test]
fn what_qemu_made_is_read_and_changed_here() {
    let seed = seed_from_env("interchange::made_by_qemu");
    let mut rng = Rng::new(seed);
    let kinds = [
        ("qcow2", "compat=v3", Format::Qcow2),
        ("qcow2", "compat=0.10", Format::Qcow2),
        ("qcow2", "cluster_size=4096,refcount_bits=1", Format::Qcow2),
        ("vpc", "subformat=dynamic,force_size=on", Format::Vhd),
        ("vpc", "subformat=fixed,force_size=on", Format::VhdFixed),
        ("vmdk", "subformat=monolithicFlat", Format::Vmdk),
        ("vmdk", "subformat=twoGbMaxExtentFlat", Format::Vmdk),
    ];
    for (name, options, format) in kinds {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, plain) = (dir.path().join("image.vmdk"), dir.path().join("plain"));
        let size = sizes(&mut rng).next_multiple_of(4096);
        let changes = patches(&mut rng, size, 12);
        raw(&plain, size, &changes[..6]);
        let line = format!("qemu-img convert -f raw -O {name} -o {options} {{}} {{}}");
        run(&line, &[&plain, &image]);
        let what = format!("{name} with {options}, seed {seed:#x}");
        let seen = recognise(&*file(&image)).expect("a file");
        assert_eq!(seen, Some(format), "{what}");
        assert_same(&*disk(&image), &*file(&plain), &what);
        raw(&plain, size, &changes);
        let device = disk_to_write(&image);
        for change in &changes[6..] {
            device.write_at(change.offset, &change.bytes).expect("room");
        }
        device.flush().expect("a flush");
        drop(device);
        assert_same_to_qemu(&image, format, &plain);
        assert_same(&*disk(&image), &*file(&plain), &what);
    }
}

#[test]
fn sizes_of_vhd_are_those_that_qemu_sees() {
    for (options, subformat) in [
        ("force_size=off", "dynamic"),
        ("force_size=off", "fixed"),
        ("force_size=on", "dynamic"),
        ("force_size=on", "fixed"),
    ] {
        for size in ["5M", "33554944", "1G", "150G"] {
            let dir = tempfile::tempdir().expect("a directory");
            let image = dir.path().join("image.vhd");
            let line =
                format!("qemu-img create -f vpc -o subformat={subformat},{options} {{}} {size}");
            run(&line, &[&image]);
            let said = run("qemu-img info --output=json -f vpc {}", &[&image]);
            let expected = format!("\"virtual-size\": {},", disk(&image).size());
            assert!(said.contains(&expected), "{line}: {expected} {said}");
        }
    }
}

#[test]
fn sparse_images_are_those_of_android() {
    let seed = seed_from_env("interchange::simg");
    let mut rng = Rng::new(seed);
    for round in 0..6 {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let size = sizes(&mut rng).next_multiple_of(4096);
        let changes = patches(&mut rng, size, 8);
        raw(&path("plain"), size, &changes);
        let what = format!("round {round} of seed {seed:#x}");

        // Theirs, read here.
        run("img2simg {} {}", &[&path("plain"), &path("theirs")]);
        assert_same(&*disk(&path("theirs")), &*file(&path("plain")), &what);

        // Ours, read by them, without and with a checksum, and with holes left open.
        for (crc, dont_care) in [(false, false), (true, false), (true, true)] {
            let ours = path(&format!("ours-{crc}-{dont_care}"));
            let mut how = simg::WriteHow::default();
            how.crc = crc;
            how.holes_dont_care = dont_care;
            let to = new_file(&ours);
            simg::write(&*file(&path("plain")), &*to, &how, &()).expect("an image");
            drop(to);
            let back = path("back");
            run("simg2img {} {}", &[&ours, &back]);
            assert_same(&*file(&back), &*file(&path("plain")), &what);
            assert_same(&*disk(&ours), &*file(&path("plain")), &what);
            let sums = simg::verify(file(&ours)).expect("right sums");
            assert_eq!(sums, usize::from(crc), "{what}");
            std::fs::remove_file(&back).expect("a file");
        }
    }
}

#[test]
fn a_wrong_checksum_of_a_sparse_image_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let (plain, image) = (dir.path().join("plain"), dir.path().join("image"));
    let mut rng = Rng::new(7);
    raw(&plain, 64 << 10, &patches(&mut rng, 64 << 10, 3));
    let mut how = simg::WriteHow::default();
    how.crc = true;
    let to = new_file(&image);
    simg::write(&*file(&plain), &*to, &how, &()).expect("an image");
    drop(to);
    let mut bytes = std::fs::read(&image).expect("a file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&image, bytes).expect("room");
    let error = simg::verify(file(&image)).expect_err("a wrong sum");
    assert!(error.to_string().contains("checksum"), "{error}");
    // Inside something compressed, too, where it is asked for.
    run("gzip {}", &[&image]);
    let inner = disk(&image.with_extension("gz"));
    let how = OpenHow::read_only();
    open(inner.clone(), Format::Simg, &how).expect("not asked for");
    let error = open(inner, Format::Simg, &how.verify(true)).expect_err("a wrong sum");
    assert!(error.to_string().contains("checksum"), "{error}");
}

#[test]
fn checksums_of_vast_fills_take_no_time() {
    // Chunks: a word over 2^57 bytes, and a checksum.
    let word = |n: u32| n.to_le_bytes();
    let mut bytes = Vec::new();
    bytes.extend(word(0xed26_ff3a));
    bytes.extend([1, 0, 0, 0, 28, 0, 12, 0]);
    for n in [64 << 20, 1 << 31, 2, 0] {
        bytes.extend(word(n));
    }
    for (kind, blocks, data) in [(0xcac2, 1 << 31, 0x1234_5678), (0xcac4, 0, 0)] {
        for n in [kind, blocks, 16, data] {
            bytes.extend(word(n));
        }
    }
    let device = || Arc::new(MemoryDevice::from_image(&bytes));
    let error = simg::verify(device()).expect_err("a wrong sum").to_string();
    assert!(error.contains("checksum"), "{error}");
    let mut larger = bytes.clone();
    larger[12..16].copy_from_slice(&word((64 << 20) + 4));
    let error = simg::verify(Arc::new(MemoryDevice::from_image(&larger)));
    assert!(
        error
            .expect_err("a vast block")
            .to_string()
            .contains("blocks have")
    );
}
