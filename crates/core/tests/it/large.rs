//! Very large file systems: what they cost is what is used of them.

use extant_blockdev::FileDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::FileType;
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, FallocateMode};
use extant_format::Ino;
use extant_testkit::oracle::mke2fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const TIB: u64 = 1 << 40;
/// The image that a worker uses.
const IMAGE: &str = "EXTANT_LARGE_IMAGE";
/// What opening may take of memory, in KiB.
const OPENING: u64 = 32 << 10;
/// What it may take to use a little of such a file system, in KiB.
const USING: u64 = 64 << 10;
/// Files that are made.
const FILES: u64 = 500;

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

fn open(path: &Path) -> Arc<Fs> {
    let device = Arc::new(FileDevice::open(path).unwrap());
    let options = MountOptions::read_write().background(false);
    Fs::open(device, options).unwrap()
}

/// Memory is a process's: so one that does nothing else measures it.
#[test]
fn worker() {
    let Some(path) = std::env::var_os(IMAGE).map(PathBuf::from) else {
        return;
    };
    let bytes = std::fs::metadata(&path).unwrap().len();
    let before = resident();
    let fs = open(&path);
    let opened = resident().saturating_sub(before);
    assert!(opened <= OPENING, "{opened} KiB to open {bytes} bytes");
    ops::syncfs(&fs).unwrap();
    let free = fs.statfs().unwrap().free;

    let root = fs.hold(Ino::ROOT).unwrap();
    let create = |name: &str| {
        let new = NewInode::new(FileType::Regular, 0o644, ops::now());
        ops::create(&fs, &root, name.as_bytes(), &new).unwrap()
    };
    let big = create("big");
    let far = bytes / 2 + 123;
    let places = [0, 5 << 30, far / 2, far];
    for at in places {
        assert_eq!(ops::pwrite(&fs, &big, at, b"here").unwrap(), 4);
    }
    let whole = FallocateMode::default();
    ops::fallocate(&fs, &big, 1 << 30, 3 << 30, whole).unwrap();
    for n in 0..FILES {
        let file = create(&format!("f{n}"));
        ops::pwrite(&fs, &file, 0, &[n as u8; 5000]).unwrap();
    }
    ops::syncfs(&fs).unwrap();
    let counted = fs.statfs().unwrap().free;
    // Blocks of 4 KiB: what was reserved, what was written, and no more than a few for the map and
    // the directory.
    let used = free - counted;
    let known = (3 << 30 >> 12) + 2 * FILES + places.len() as u64;
    assert!(used >= known && used < known + 64, "{used}");
    drop((big, root));
    fs.close().unwrap();
    drop(fs);

    let fs = open(&path);
    assert_eq!(fs.statfs().unwrap().free, counted);
    let root = fs.hold(Ino::ROOT).unwrap();
    let found = ops::lookup(&fs, &root.snapshot(), b"big").unwrap();
    let big = fs.hold(found.ino()).unwrap();
    for at in places {
        let mut found = [0; 4];
        assert_eq!(ops::pread(&fs, &big, at, &mut found).unwrap(), 4);
        assert_eq!(&found, b"here");
    }
    drop(big);
    ops::unlink(&fs, &root, b"big").unwrap();
    for n in 0..FILES {
        ops::unlink(&fs, &root, format!("f{n}").as_bytes()).unwrap();
    }
    ops::syncfs(&fs).unwrap();
    // The directory keeps its blocks.
    let left = free - fs.statfs().unwrap().free;
    assert!(left < 64, "{left}");
    let used = resident().saturating_sub(before);
    assert!(used <= USING, "{used} KiB to use {bytes} bytes");
    println!("{bytes} bytes: {opened} KiB to open, {used} KiB to use");
    drop(root);
    fs.close().unwrap();
}

fn used_with_little_memory(tib: u64) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let lazily = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    let options = [
        "-t",
        "ext4",
        "-b",
        "4096",
        "-m",
        "0",
        "-i",
        "1048576",
        "-J",
        "size=64",
        "-E",
        lazily,
        "-O",
        "^resize_inode,sparse_super2",
    ];
    mke2fs(&image, tib * TIB, &options);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "large::worker", "--nocapture"])
        .env(IMAGE, &image)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_tebibyte_is_opened_and_used_with_little_memory() {
    used_with_little_memory(1);
}

#[test]
fn fifteen_tebibytes_are_opened_and_used_with_little_memory() {
    // An image of 16 is more than some file systems allow a file to be.
    extant_testkit::require_full!("writes descriptors of 122,880 groups");
    used_with_little_memory(15);
}
