//! File systems in formats of disk images: written here, judged as raw ones by others.

use extant::{Filesystem, MountOptions, OpenOptions};
use extant_blockdev::{FileDevice, FileOptions, SharedDevice};
use extant_formats::{Format, OpenHow, open, recognise};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::path::Path;
use std::sync::Arc;

fn disk(path: &Path, writable: bool) -> SharedDevice {
    let (options, how) = if writable {
        (FileOptions::read_write(), OpenHow::read_write())
    } else {
        (FileOptions::read_only(), OpenHow::read_only())
    };
    let device: SharedDevice = Arc::new(options.open(path).unwrap());
    let format = recognise(&*device).unwrap().unwrap_or(Format::Raw);
    open(device, format, &how.beside(path)).unwrap()
}

/// Changes a file system by several threads at once.
fn change(fs: &Filesystem, seed: u64) {
    std::thread::scope(|scope| {
        for n in 0..4_u64 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed ^ n);
                let dir = format!("/dir-{n}");
                fs.create_dir(&dir).unwrap();
                for i in 0..40 {
                    let path = format!("{dir}/file-{i}");
                    let mut bytes = vec![0; rng.between(1, 120_000) as usize];
                    rng.fill(&mut bytes);
                    fs.write(&path, &bytes).unwrap();
                    if rng.one_in(5) {
                        fs.sync().unwrap();
                    }
                    if rng.one_in(4) {
                        fs.remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .open(fs, "/large")
        .unwrap();
    file.write_all_at(&vec![7; 3 << 20], 5 << 20).unwrap();
    file.punch_hole(6 << 20, 1 << 20).unwrap();
}

#[test]
fn a_file_system_is_written_in_place_in_every_format() {
    let seed = seed_from_env("formats");
    for (name, options) in [
        ("qcow2", "compat=1.1"),
        ("qcow2", "compat=0.10,cluster_size=4096"),
        ("vpc", "subformat=dynamic,force_size=on"),
        ("vpc", "subformat=fixed,force_size=on"),
        ("vmdk", "subformat=monolithicFlat"),
        ("vmdk", "subformat=twoGbMaxExtentFlat"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (plain, image) = (dir.path().join("plain"), dir.path().join("image.vmdk"));
        mke2fs(&plain, 96 << 20, &["-t", "ext4"]);
        let convert = |from: &str, to: &str, options: &str, a: &Path, b: &Path| {
            let args = ["convert", "-f", from, "-O", to, "-o", options];
            let kept = if options.is_empty() {
                &args[..5]
            } else {
                &args[..]
            };
            tool("qemu-img").args(kept).arg(a).arg(b).ok();
        };
        convert("raw", name, options, &plain, &image);
        let fs = Filesystem::open_device(disk(&image, true), MountOptions::read_write());
        let fs = fs.unwrap_or_else(|e| panic!("{name} {options}: {e}"));
        change(&fs, seed);
        let listed: Vec<u8> = fs.read("/large").unwrap();
        fs.close().unwrap();
        if name == "qcow2" {
            tool("qemu-img")
                .args(["check", "-f", name])
                .arg(&image)
                .ok();
        }
        let back = dir.path().join("back");
        convert(name, "raw", "", &image, &back);
        assert_clean(&back);
        // Both ways of reading it find the same.
        for device in [
            disk(&image, false),
            Arc::new(FileDevice::open_read_only(&back).unwrap()) as SharedDevice,
        ] {
            let fs = Filesystem::open_device(device, MountOptions::read_only()).unwrap();
            assert!(fs.read("/large").unwrap() == listed, "{name} {options}");
        }
    }
}

#[test]
fn a_file_system_is_read_out_of_a_sparse_and_a_compressed_image() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, simg) = (dir.path().join("plain"), dir.path().join("image.simg"));
    mke2fs(&plain, 32 << 20, &["-t", "ext4"]);
    let device: SharedDevice = Arc::new(FileDevice::open(&plain).unwrap());
    let fs = Filesystem::open_device(device, MountOptions::read_write()).unwrap();
    fs.write("/file", "content").unwrap();
    fs.close().unwrap();
    tool("img2simg").arg(&plain).arg(&simg).ok();
    tool("zstd").args(["-q", "-k"]).arg(&plain).ok();
    for image in [simg, plain.with_extension("zst")] {
        let fs = Filesystem::open_device(disk(&image, false), MountOptions::read_only());
        assert_eq!(fs.unwrap().read("/file").unwrap(), b"content");
    }
}
