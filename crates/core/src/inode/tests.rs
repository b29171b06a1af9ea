//! Inodes that come and go, on images that Linux looks at before and after.

use super::{FileType, Held, LiveInode, NewInode};
use crate::Error;
use crate::fs::{Fs, MountOptions};
use extant_blockdev::{FileDevice, SharedDevice};
use extant_format::Ino;
use extant_format::inode::Timestamp;
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
use extant_testkit::rng::Rng;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// The list alone, and the file with the list behind it.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "4096", "-O", "^orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "orphan_file"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^orphan_file,^metadata_csum,uninit_bg",
    ],
];

struct Image {
    _dir: TempDir,
    path: PathBuf,
}

impl Image {
    fn new(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 32 << 20, options);
        Self { _dir: dir, path }
    }

    fn open(&self) -> Arc<Fs> {
        self.open_with(MountOptions::read_write().background(false))
    }

    fn open_with(&self, options: MountOptions) -> Arc<Fs> {
        let device: SharedDevice = Arc::new(FileDevice::open(&self.path).unwrap());
        Fs::open(device, options).unwrap()
    }

    fn copy(&self) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        fs::copy(&self.path, &path).unwrap();
        Self { _dir: dir, path }
    }
}

fn now() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

/// A file without a name, noted as an orphan.
fn orphan(fs: &Fs) -> Held {
    let parent = fs.inode(Ino::ROOT).unwrap();
    let handle = fs
        .start(fs.new_inode_credits() + fs.orphan_credits())
        .unwrap();
    let new = NewInode::new(FileType::Regular, 0o644, now());
    let held = fs.new_inode(&handle, &parent, &new).unwrap();
    held.live()
        .update(&handle, |inode| inode.disk_mut().links = 0)
        .unwrap();
    fs.orphan_add(&handle, held.live()).unwrap();
    held
}

fn commit(fs: &Fs) {
    fs.commit(fs.journal().unwrap().running()).unwrap();
}

fn free_inodes(fs: &Fs) -> u64 {
    fs.statfs().unwrap().free_inodes
}

#[test]
fn an_abandoned_inode_leaves_no_trace() {
    for kind in KINDS {
        let image = Image::new(kind);
        let fs = image.open();
        let parent = fs.inode(Ino::ROOT).unwrap();
        for file_type in [FileType::Regular, FileType::Directory, FileType::Fifo] {
            let handle = fs.start(fs.new_inode_credits() + 30).unwrap();
            let new = NewInode::new(file_type, 0o755, now());
            let held = fs.new_inode(&handle, &parent, &new).unwrap();
            let ino = held.ino();
            assert_eq!(fs.inode(ino).unwrap().file_type(), file_type);
            fs.abandon_inode(&handle, held);
            drop(handle);
            assert!(matches!(fs.inode(ino), Err(Error::Stale)));
            assert!(matches!(fs.hold(ino), Err(Error::Stale)));
            commit(&fs);
            assert!(matches!(fs.inode(ino), Err(Error::Stale)));
        }
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
    }
}

#[test]
fn the_last_hold_deletes_an_inode_without_names() {
    for kind in KINDS {
        let image = Image::new(kind);
        let fs = image.open();
        let before = free_inodes(&fs);
        let held = orphan(&fs);
        let second = held.clone();
        commit(&fs);
        drop(held);
        fs.reap().unwrap();
        assert_eq!(second.snapshot().disk().links, 0);
        assert!(!second.is_leaving());
        let ino = second.ino();
        drop(second);
        fs.reap().unwrap();
        assert!(matches!(fs.hold(ino), Err(Error::Stale)));
        assert_eq!(free_inodes(&fs), before);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
    }
}

#[test]
fn orphans_that_a_crash_left_are_deleted_by_us_and_by_linux() {
    for kind in KINDS {
        let image = Image::new(kind);
        let fs = image.open();
        let before = free_inodes(&fs);
        let held: Vec<Held> = (0..20).map(|_| orphan(&fs)).collect();
        // Off again, from the middle, the front and the end.
        for at in [10, 19, 0] {
            let handle = fs.start(fs.orphan_credits() + 30).unwrap();
            let live: &Arc<LiveInode> = held[at].live();
            fs.orphan_remove(&handle, live).unwrap();
            fs.orphan_remove(&handle, live).unwrap();
            fs.orphan_add(&handle, live).unwrap();
            fs.orphan_add(&handle, live).unwrap();
        }
        commit(&fs);
        std::mem::forget(held);
        // Without closing: what was committed is in the log.
        drop(fs);

        let by_linux = image.copy();
        KernelMount::mount(&by_linux.path, Mode::ReadWrite, "").unmount();
        assert_clean(&by_linux.path);

        let fs = image.open();
        assert_eq!(free_inodes(&fs), before, "{kind:?}");
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
        assert_eq!(
            image.open().statfs().unwrap(),
            by_linux.open().statfs().unwrap()
        );
    }
}

/// Leaves an image as a crash does, with files that have no names but an opener, and one that is
/// being truncated.
fn crash_with_orphans(path: &Path) {
    let mount = KernelMount::mount(path, Mode::ReadWrite, "");
    let mut open = Vec::new();
    for i in 0..40u32 {
        let name = mount.join(format!("file{i}"));
        let len = [0, 100, 5000, 300_000][i as usize % 4];
        fs::write(&name, vec![i as u8; len]).unwrap();
        if i % 3 != 0 {
            let file = File::open(&name).unwrap();
            fs::remove_file(&name).unwrap();
            open.push(file);
        }
    }
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    open.push(File::open(&dir).unwrap());
    fs::remove_dir(&dir).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), mount.join("long")).unwrap();
    mount.sync();
    // The files close after the file system has stopped, so their deletion does not happen.
    mount.stop(Shutdown::Now);
    drop(open);
    mount.unmount();
}

#[test]
fn orphans_that_linux_left_are_deleted() {
    for kind in KINDS {
        let image = Image::new(kind);
        crash_with_orphans(&image.path);
        let by_linux = image.copy();
        KernelMount::mount(&by_linux.path, Mode::ReadWrite, "").unmount();
        assert_clean(&by_linux.path);

        let fs = image.open();
        assert_eq!(fs.orphans().unwrap().head(), None);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path);
        assert_eq!(
            image.open().statfs().unwrap(),
            by_linux.open().statfs().unwrap(),
            "{kind:?}"
        );
    }
}

#[test]
fn a_list_that_bites_its_tail_is_reported_and_ends() {
    let image = Image::new(KINDS[0]);
    let fs = image.open();
    let held: Vec<Held> = (0..3).map(|_| orphan(&fs)).collect();
    let inos: Vec<Ino> = held.iter().map(|held| held.ino()).collect();
    commit(&fs);
    fs.checkpoint().unwrap();
    std::mem::forget(held);
    drop(fs);
    // The last of the list names the first.
    let last = inos[0];
    let command = format!("set_inode_field <{last}> dtime @{}", inos[2].get());
    // The log holds nothing that is not in place.
    debugfs_write(&image.path, &["feature -needs_recovery", &command]);
    let fs = image.open();
    assert_eq!(fs.orphans().unwrap().head(), None);
    for ino in inos {
        assert!(matches!(fs.inode(ino), Err(Error::Stale)));
    }
    drop(fs);
}

#[test]
fn links_on_the_device_follow_the_list_in_any_order() {
    let seed = 0x5eed_0001;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let image = Image::new(KINDS[0]);
    let fs = image.open();
    let held: Vec<Held> = (0..12).map(|_| orphan(&fs)).collect();
    let mut order: Vec<usize> = (0..12).rev().collect();
    for round in 0..60 {
        for _ in 0..rng.below(4) + 1 {
            let at = rng.below(12) as usize;
            let handle = fs.start(fs.orphan_credits() + 2).unwrap();
            match order.iter().position(|&listed| listed == at) {
                Some(place) => {
                    fs.orphan_remove(&handle, held[at].live()).unwrap();
                    order.remove(place);
                }
                None => {
                    fs.orphan_add(&handle, held[at].live()).unwrap();
                    order.insert(0, at);
                }
            }
        }
        if round % 7 == 0 {
            commit(&fs);
        }
        let mut next = fs.orphans().unwrap().head();
        let mut found = Vec::new();
        while let Some(ino) = next {
            let at = held.iter().position(|held| held.ino() == ino).unwrap();
            found.push(at);
            next = held[at].capture().disk().next_orphan();
        }
        assert_eq!(found, order);
    }
    drop(held);
    fs.reap().unwrap();
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);
}
