//! Very large file systems: what they cost is what is used of them.

use extant_blockdev::FileDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::FileType;
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, FallocateMode};
use extant_format::geometry::Geometry;
use extant_format::group_desc::GroupDesc;
use extant_format::superblock::Superblock;
use extant_format::{Group, Ino};
use extant_testkit::oracle::mke2fs;
use std::fs::File;
use std::os::unix::fs::FileExt;
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

/// Writes another descriptor of a group, with its checksum.
fn change_descriptor(
    image: &Path,
    superblock: &Superblock,
    group: u32,
    change: impl FnOnce(&mut GroupDesc),
) {
    let (geometry, group) = (Geometry::new(superblock), Group::new(group));
    let (block, within) = geometry.desc_position(group).unwrap();
    let at = block.get() * u64::from(geometry.block_size().bytes()) + u64::from(within);
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut bytes = vec![0; geometry.desc_size() as usize];
    file.read_exact_at(&mut bytes, at).unwrap();
    let sum = superblock.desc_checksum();
    let mut desc = GroupDesc::parse(&bytes, group, &sum).unwrap();
    change(&mut desc);
    desc.encode(&mut bytes, group, &sum).unwrap();
    file.write_all_at(&bytes, at).unwrap();
}

/// A tebibyte in blocks of 1 KiB has 131,072 groups: two threads read a half of the descriptors
/// each.
#[test]
fn what_either_half_of_many_descriptors_says_is_found() {
    // In memory: what is written lies in ten thousand places.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = dir.path().join("image");
    let lazily = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=8", "-E", lazily];
    mke2fs(&image, TIB, &options);
    let fs = open(&image);
    let (sums, superblock) = (fs.statfs().unwrap(), fs.superblock().clone());
    assert_eq!(sums.free, superblock.free_blocks_count());
    assert_eq!(u64::from(superblock.free_inodes_count()), sums.free_inodes);
    // Directories below the root are spread over all groups.
    let root = fs.hold(Ino::ROOT).unwrap();
    let mut halves = [0, 0];
    for n in 0..40 {
        let new = NewInode::new(FileType::Directory, 0o755, ops::now());
        let made = ops::mkdir(&fs, &root, format!("d{n}").as_bytes(), &new).unwrap();
        let group = fs.geometry().locate_inode(made.ino()).unwrap().group.get();
        halves[usize::from(group >= fs.geometry().groups_count() / 2)] += 1;
        let new = NewInode::new(FileType::Regular, 0o644, ops::now());
        let file = ops::create(&fs, &made, b"file", &new).unwrap();
        assert_eq!(ops::pwrite(&fs, &file, 0, &[7; 5000]).unwrap(), 5000);
    }
    assert!(halves.iter().all(|count| *count > 0), "{halves:?}");
    ops::syncfs(&fs).unwrap();
    let used = fs.statfs().unwrap();
    assert_eq!(
        (sums.free_inodes - used.free_inodes, sums.free > used.free),
        (80, true)
    );
    drop(root);
    fs.close().unwrap();
    drop(fs);
    let fs = open(&image);
    assert_eq!(fs.statfs().unwrap().free, used.free);
    fs.close().unwrap();
    drop(fs);

    let refused = |part: &str| {
        let device = Arc::new(FileDevice::open(&image).unwrap());
        let options = MountOptions::read_write().background(false);
        let error = Fs::open(device, options).map(drop).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        let error = error.to_string();
        assert!(error.contains(part), "{error}");
    };
    let (mut own, mut others) = (None, None);
    change_descriptor(&image, &superblock, 10_000, |desc| {
        others = Some(desc.block_bitmap)
    });
    change_descriptor(&image, &superblock, 100_000, |desc| {
        own = Some(std::mem::replace(&mut desc.block_bitmap, others.unwrap()));
    });
    refused("group 100000");
    change_descriptor(&image, &superblock, 100_000, |desc| {
        desc.block_bitmap = own.unwrap();
        desc.free_clusters = 9000;
    });
    refused("group 100000");
    // Of two the first.
    change_descriptor(&image, &superblock, 10_000, |desc| desc.used_dirs = 9000);
    refused("group 10000 ");
    change_descriptor(&image, &superblock, 100_000, |desc| desc.free_clusters = 0);
    change_descriptor(&image, &superblock, 10_000, |desc| desc.used_dirs = 0);
    open(&image).close().unwrap();
}

#[test]
fn fifteen_tebibytes_are_opened_and_used_with_little_memory() {
    // An image of 16 is more than some file systems allow a file to be.
    extant_testkit::require_full!("writes descriptors of 122,880 groups");
    used_with_little_memory(15);
}
