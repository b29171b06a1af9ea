//! What many inodes take: memory, measured in a process of its own, and time.

use super::{Image, commit, free_inodes, now, orphan};
use crate::fs::{Fs, MountOptions};
use crate::inode::{Bulkstat, BulkstatWay, FileType, Held};
use crate::lifecycle::NewInode;
use crate::ops;
use extant_blockdev::FileDevice;
use extant_format::Ino;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, mke2fs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tempfile::TempDir;

/// Where the process that measures finds the image.
const IMAGE: &str = "EXTANT_TEST_IMAGE";
/// Bytes that a process takes on the way that are not for inodes.
const SLACK: usize = 1 << 20;
/// Bytes that a clean inode in memory may take. Debug builds keep the class in each lock.
const MOST: usize = if cfg!(debug_assertions) {
    512 + 32
} else {
    512
};

/// A figure of this process in bytes, of those that the system counts in KiB.
fn figure(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

/// Runs the test `name` of this module again, in a process of its own in which [`measured`] is the
/// image.
fn measure(name: &str, image: &Path) {
    let (_, module) = module_path!().split_once("::").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&*format!("{module}::{name}"), "--exact", "--nocapture"])
        .env(IMAGE, image)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{failed}");
    assert!(said.contains("1 passed"), "{said}");
    said.lines()
        .filter(|line| line.contains("measured"))
        .for_each(|line| println!("{line}"));
}

/// The image, in the process that measures.
fn measured() -> Option<PathBuf> {
    std::env::var_os(IMAGE).map(PathBuf::from)
}

/// An image with so many empty files.
fn with_files(count: usize) -> Image {
    let image = large(&["-O", "^orphan_file"], count);
    let fs = image.open();
    let mut root = fs.hold(Ino::ROOT).unwrap();
    for at in 0..count {
        if at % 5000 == 0 {
            let top = fs.hold(Ino::ROOT).unwrap();
            let new = NewInode::new(FileType::Directory, 0o755, now());
            root = ops::mkdir(&*fs, &top, format!("{at}").as_bytes(), &new).unwrap();
        }
        let new = NewInode::new(FileType::Regular, 0o644, now());
        ops::create(&*fs, &root, format!("{at}").as_bytes(), &new).unwrap();
    }
    drop(root);
    fs.close().unwrap();
    image
}

/// An empty image with room for so many inodes.
fn large(options: &[&str], inodes: usize) -> Image {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    let number = (inodes + 1000).to_string();
    let mut all = vec!["-t", "ext4", "-b", "4096", "-N", &number];
    all.extend(options);
    mke2fs(&path, 128 << 20, &all);
    Image { _dir: dir, path }
}

fn open(image: &Path, memory: usize) -> Arc<Fs> {
    let device = Arc::new(FileDevice::open_read_only(image).unwrap());
    Fs::open(device, MountOptions::read_only().memory(memory)).unwrap()
}

/// Visits all inodes through the cache; returns how many there are.
fn visit(fs: &Arc<Fs>) -> usize {
    let seen = AtomicUsize::new(0);
    let way = BulkstatWay::Cache;
    fs.bulkstat(Bulkstat { way, threads: 1 }, |_, inode| {
        inode.unwrap();
        seen.fetch_add(1, Ordering::Relaxed);
    });
    seen.into_inner()
}

#[test]
fn clean_inodes_in_memory_take_512_bytes_each() {
    const FILES: usize = 40_000;
    let Some(image) = measured() else {
        let image = with_files(FILES);
        return measure("clean_inodes_in_memory_take_512_bytes_each", &image.path);
    };
    // A quarter is for inodes: room for these and not many more.
    let fs = open(&image, 4 * 520 * FILES);
    let before = figure("RssAnon");
    assert!(visit(&fs) > FILES);
    let cached = fs.inode_table().len();
    assert!(cached > FILES, "{cached} are in memory");
    let each = (figure("RssAnon") - before) / cached;
    println!("measured: {each} bytes for each of {cached} inodes");
    // Less would mean that something else was measured: the record alone has half of that.
    assert!((200..=MOST).contains(&each), "{each} bytes for each inode");
}

#[test]
fn visiting_more_inodes_than_there_is_room_for_stays_within_the_budget() {
    const FILES: usize = 40_000;
    /// For inodes: a quarter of the memory, room for an eighth of them.
    const BUDGET: usize = FILES / 8 * 512;
    let Some(image) = measured() else {
        let image = with_files(FILES);
        return measure(
            "visiting_more_inodes_than_there_is_room_for_stays_within_the_budget",
            &image.path,
        );
    };
    let fs = open(&image, 4 * BUDGET);
    let before = figure("RssAnon");
    for _ in 0..3 {
        assert!(visit(&fs) > FILES);
        let cached = fs.inode_table().len();
        let grown = figure("RssAnon").saturating_sub(before);
        println!("measured: {cached} inodes, {grown} bytes");
        assert!((FILES / 16..FILES / 6).contains(&cached), "{cached}");
        // All of them would take eight times the budget.
        assert!(grown < 2 * BUDGET + SLACK, "{grown} of {BUDGET}");
    }
}

/// As many files without names as a busy server may have open when the power fails.
fn many_are_recovered(name: &str, options: &[&str]) {
    const ORPHANS: usize = 50_000;
    if let Some(image) = measured() {
        let before = figure("VmHWM");
        let began = Instant::now();
        let device = Arc::new(FileDevice::open(&image).unwrap());
        let fs = Fs::open(device, MountOptions::read_write().background(false)).unwrap();
        let (took, grown) = (began.elapsed(), figure("VmHWM") - before);
        println!("measured: {ORPHANS} orphans in {took:?}, {grown} bytes");
        assert_eq!(fs.orphans().unwrap().head(), None);
        assert!(fs.orphans().unwrap().is_file_empty());
        fs.close().unwrap();
        // Each is in memory, in use; and so are the blocks with their records.
        assert!(grown < ORPHANS * 1600, "{grown} bytes");
        return;
    }
    let image = large(options, ORPHANS);
    let fs = image.open();
    let before = free_inodes(&fs);
    let held: Vec<Held> = (0..ORPHANS).map(|_| orphan(&fs)).collect();
    commit(&fs);
    std::mem::forget(held);
    drop(fs);
    let by_linux = image.copy();
    let began = Instant::now();
    KernelMount::mount(&by_linux.path, Mode::ReadWrite, "").unmount();
    println!("Linux: {:?}", began.elapsed());
    assert_clean(&by_linux.path);
    let began = Instant::now();
    measure(name, &image.path);
    // A few microseconds each; what is quadratic takes minutes.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    assert_clean(&image.path);
    let fs = image.open();
    assert_eq!(free_inodes(&fs), before);
    fs.close().unwrap();
    drop(fs);
    assert_eq!(
        image.open().statfs().unwrap(),
        by_linux.open().statfs().unwrap()
    );
}

#[test]
fn fifty_thousand_orphans_on_the_list_are_recovered() {
    many_are_recovered(
        "fifty_thousand_orphans_on_the_list_are_recovered",
        &["-O", "^orphan_file"],
    );
}

#[test]
fn fifty_thousand_orphans_in_the_file_are_recovered() {
    // With slots for somewhat more of them.
    many_are_recovered(
        "fifty_thousand_orphans_in_the_file_are_recovered",
        &["-O", "orphan_file", "-E", "orphan_file_size=64"],
    );
}
