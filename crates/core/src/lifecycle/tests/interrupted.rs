//! Deletions and truncations over several transactions, crashed at any write.

use super::{Image, commit};
use crate::fs::{Fs, MountOptions};
use crate::inode::Held;
use crate::lifecycle::delete::Progress;
use crate::{data, dir};
use extant_blockdev::{OpenSpec, SharedDevice};
use extant_format::Ino;
use extant_testkit::crash::{Budget, Content, CrashDevice, CrashImage};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::assert_clean;
use extant_testkit::rng::seed_from_env;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const BLOCK: usize = 1024;
/// Extents of the large file: more than a transaction of a log of 1 MiB takes.
const EXTENTS: u64 = 22_000;

/// Writes every other block of a file, so that it has many extents.
fn sparse_file(path: &Path, blocks: u64) {
    let file = File::create(path).unwrap();
    for at in 0..blocks {
        let offset = at * 2 * BLOCK as u64;
        file.write_all_at(&[at as u8 | 1; BLOCK], offset).unwrap();
    }
}

fn options() -> MountOptions {
    MountOptions::read_write().background(false)
}

/// An image with a large file, open on a device whose writes are recorded from now on.
fn recorded() -> (Arc<CrashDevice>, Arc<Fs>) {
    let image = Image::new(&["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let mount = KernelMount::mount(&image.path, Mode::ReadWrite, "");
    sparse_file(&mount.join("large"), EXTENTS);
    sparse_file(&mount.join("other"), 10);
    mount.unmount();
    let recorder = Arc::new(CrashDevice::over(Content::of_file(&image.path)));
    let device: SharedDevice = recorder.clone();
    let fs = Fs::open(device, options()).unwrap();
    recorder.restart();
    (recorder, fs)
}

fn large(fs: &Fs) -> Held {
    let root = fs.hold(Ino::ROOT).unwrap();
    let ino = dir::find(fs, &root, b"large").unwrap().unwrap().ino;
    fs.hold(ino).unwrap()
}

/// Recovers what crashes leave, has `look` look at it, and checks it. Every eighth is recovered by
/// Linux.
fn recover_all(recorder: &CrashDevice, name: &str, mut look: impl FnMut(&CrashImage, &Fs)) {
    let seed = seed_from_env(name);
    let log = recorder.log();
    for (i, crashed) in log.images(Budget::limited(16, seed)).enumerate() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        crashed.content().write_to(&path).unwrap();
        if i % 8 == 0 {
            KernelMount::mount(&path, Mode::ReadWrite, "").unmount();
            assert_clean(&path);
        }
        let device = OpenSpec::read_write(&path).open().unwrap();
        let fs = Fs::open(device, options()).unwrap();
        look(&crashed, &fs);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&path);
    }
}

#[test]
fn a_large_deletion_is_finished_after_a_crash_anywhere_in_it() {
    let (recorder, fs) = recorded();
    let root = fs.hold(Ino::ROOT).unwrap();
    let held = large(&fs);
    let ino = held.ino();
    let handle = fs.start(40).unwrap();
    dir::remove(&handle, &root, b"large").unwrap();
    held.live()
        .update(&handle, |inode| inode.disk_mut().links = 0)
        .unwrap();
    fs.unnamed(&handle, &held).unwrap();
    drop(handle);
    let live = Arc::clone(held.live());
    drop(held);
    commit(&fs);
    recorder.mark(1);
    assert!(live.claim_if_unheld());
    let mut handles = 0;
    let mut progress = Progress::Partly;
    while progress == Progress::Partly {
        let handle = fs.start(60).unwrap();
        progress = fs.delete_in(&handle, &live).unwrap();
        drop(handle);
        // Each step by itself is what a crash may leave.
        commit(&fs);
        handles += 1;
    }
    assert!(handles > 1);
    recorder.mark(2);

    let mut partly = 0;
    recover_all(&recorder, "large deletions", |crashed, fs| {
        let gone = crashed.holds(1);
        let named = dir::lookup(fs, &fs.inode(Ino::ROOT).unwrap(), b"large").unwrap();
        assert!(!gone || named.is_none());
        let used = fs.alloc().unwrap().is_inode_in_use(ino).unwrap();
        assert_eq!(used, named.is_some());
        partly += u32::from(gone && !crashed.holds(2));
    });
    assert!(partly > 2, "{partly}");
}

#[test]
fn a_large_truncation_is_done_or_not_begun_after_a_crash_anywhere_in_it() {
    const SIZE: u64 = 5000;
    let (recorder, fs) = recorded();
    let held = large(&fs);
    let before = held.snapshot();
    let (size, blocks) = (before.size(), before.disk().blocks);
    let stats = fs.journal_stats();
    data::truncate(&fs, &held, SIZE).unwrap();
    let took = fs.journal_stats();
    // The log is full on the way.
    assert!(took.handles > stats.handles + 1, "{took:?}");
    assert!(took.commits > stats.commits, "{stats:?}, {took:?}");
    commit(&fs);
    recorder.mark(1);

    let (mut cut, mut partly) = (0, 0);
    recover_all(&recorder, "large truncations", |crashed, fs| {
        let inode = large(fs).snapshot();
        if inode.size() == SIZE {
            cut += 1;
            partly += u32::from(!crashed.holds(1));
            // Three blocks of 1 KiB, and nodes of the tree: as many as were left of it when the
            // rest was taken away.
            assert!(
                (6..=12).contains(&inode.disk().blocks),
                "{}",
                inode.disk().blocks
            );
        } else {
            assert!(!crashed.holds(1));
            assert_eq!((inode.size(), inode.disk().blocks), (size, blocks));
        }
        let mut bytes = vec![1; SIZE as usize];
        data::read_at(fs, &inode, 0, &mut bytes).unwrap();
        for (block, bytes) in (0_u64..).zip(bytes.chunks(BLOCK)) {
            // Every other block is a hole.
            let expected = (block % 2 == 0).then_some((block / 2) as u8 | 1);
            assert!(bytes.iter().all(|&b| b == expected.unwrap_or(0)));
        }
    });
    assert!(partly > 2, "{partly} of {cut}");
}
