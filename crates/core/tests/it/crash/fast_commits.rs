//! Fast commits that Linux left behind, replayed by the engine and cut at every write of that.
//!
//! What a cut leaves is replayed again, by the engine and by e2fsck: both give the tree that the
//! whole replay gives. The changes are the same each time, and so is the choice of images.

use crate::fast_commits::{seen, were_replayed, writable};
use crate::walk::tree_of;
use extant_core::fs::{Fs, MountOptions};
use extant_testkit::crash::{Budget, Content, CrashDevice};
use extant_testkit::facility::is_full_run;
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{self, mke2fs};
use extant_testkit::require;
use extant_testkit::tree::{Compare, Tree};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Changes that Linux commits fast.
struct Changes {
    name: &'static str,
    /// Options of `mke2fs`.
    options: &'static [&'static str],
    /// What is there before.
    before: fn(&Path),
    /// What is committed fast, each by itself.
    after: fn(&Path),
}

const ALL: &[Changes] = &[
    Changes {
        name: "maps that grow",
        options: &["-b", "1024"],
        before: islands,
        after: |root| {
            let file = open(&root.join("islands"));
            for n in 0..30 {
                file.write_all_at(b"between", n * 8192 + 4096).unwrap();
                file.sync_all().unwrap();
            }
        },
    },
    Changes {
        name: "maps that shrink",
        options: &["-b", "1024"],
        before: islands,
        after: |root| {
            let file = open(&root.join("islands"));
            for n in 3..20 {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, mode, n * 8192, 4096).unwrap();
                file.sync_all().unwrap();
            }
            file.set_len(25 * 8192).unwrap();
            file.sync_all().unwrap();
            fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 3000).unwrap();
            file.sync_all().unwrap();
        },
    },
    Changes {
        name: "names",
        options: &["-O", "metadata_csum_seed,orphan_file"],
        before: |root| {
            fs::create_dir(root.join("dir")).unwrap();
            for n in 0..20 {
                fs::write(root.join(format!("dir/old{n}")), format!("old {n}")).unwrap();
            }
        },
        after: |root| {
            let dir = root.join("dir");
            for n in 0..12 {
                let made = dir.join(format!("made{n}"));
                fs::write(&made, format!("made {n}")).unwrap();
                open(&made).sync_all().unwrap();
            }
            fs::hard_link(dir.join("old1"), root.join("link")).unwrap();
            fs::rename(dir.join("old2"), root.join("renamed")).unwrap();
            fs::rename(dir.join("made3"), dir.join("old4")).unwrap();
            fs::remove_file(dir.join("old5")).unwrap();
            fs::remove_file(dir.join("made6")).unwrap();
            fs::create_dir(root.join("new")).unwrap();
            fs::write(root.join("new/in"), "in").unwrap();
            open(&root.join("new/in")).sync_all().unwrap();
        },
    },
    Changes {
        name: "a directory that gets blocks",
        options: &["-b", "1024", "-O", "^metadata_csum,^64bit"],
        before: |root| {
            fs::create_dir(root.join("dir")).unwrap();
        },
        after: |root| {
            for n in 0..90 {
                let made = root.join(format!("dir/a name that takes some room {n}"));
                fs::write(&made, "content").unwrap();
                open(&made).sync_all().unwrap();
            }
        },
    },
];

fn islands(root: &Path) {
    let file = File::create(root.join("islands")).unwrap();
    for n in 0..40 {
        file.write_all_at(b"island", n * 8192).unwrap();
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// An image on which Linux has made these changes and committed them fast: now and then it chooses
/// to commit as a whole.
fn left_by_linux(path: &Path, changes: &Changes) -> Content {
    for _ in 0..40 {
        let mut options = vec![
            "-q",
            "-F",
            "-t",
            "ext4",
            "-O",
            "fast_commit",
            "-J",
            "size=8",
        ];
        options.extend(changes.options);
        mke2fs(path, 32 << 20, &options);
        let mount = KernelMount::mount(path, Mode::ReadWrite, "commit=300");
        (changes.before)(mount.path());
        fs::write(mount.join("other"), "content").unwrap();
        mount.sync();
        (changes.after)(mount.path());
        mount.shutdown(Shutdown::Now);
        let content = Content::of_file(path);
        let fs = Fs::open(content.open(), MountOptions::read_only()).unwrap();
        if were_replayed(&fs) {
            return content;
        }
    }
    panic!("{}: Linux never committed fast", changes.name);
}

/// What e2fsck makes of an image, as Linux shows it. Nothing where a committed transaction stands
/// in the place of the fast commits: e2fsck 1.47.0 takes these for an error then, and replays
/// nothing at all, also of what Linux leaves.
fn recovered_by_e2fsck(path: &Path, context: &str) -> Option<Tree> {
    let output = oracle::e2fsck(path, &["-fy"]);
    if String::from_utf8_lossy(&output.stderr).contains("Invalid argument while recovering") {
        return None;
    }
    assert!(output.code <= 1, "{context}: {output}");
    oracle::check_clean(path).unwrap_or_else(|e| panic!("{context}: {e}"));
    let read = oracle::kernel_reads(path).unwrap_or_else(|e| panic!("{context}: {e}"));
    Some(seen(&read.tree))
}

/// What Linux makes of an image.
fn recovered_by_linux(path: &Path) -> Tree {
    let mount = KernelMount::mount(path, Mode::ReadWrite, "");
    let tree = seen(&Tree::snapshot(mount.path()));
    mount.unmount();
    tree
}

#[test]
fn a_replay_of_fast_commits_that_is_cut_at_any_write_is_done_again() {
    require!(Root, LoopDevices, KernelExt4);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let compare = Compare {
        atime: false,
        root: false,
        ..Compare::same_image()
    };
    for changes in ALL {
        let start = left_by_linux(&path, changes);
        let fs = Fs::open(start.open(), MountOptions::read_only()).unwrap();
        let wanted = seen(&tree_of(&fs));
        drop(fs);
        start.write_to(&path).unwrap();
        recovered_by_linux(&path).assert_same(&wanted, &compare);
        start.write_to(&path).unwrap();
        let is_same = |tree: &Tree| tree.diff(&wanted, &compare).is_empty();
        // Of names e2fsck 1.47.0 loses some, also of what Linux leaves: Linux is asked there.
        let ask_e2fsck =
            recovered_by_e2fsck(&path, changes.name).is_some_and(|tree| is_same(&tree));
        assert!(ask_e2fsck || changes.name == "names", "{}", changes.name);

        let device = CrashDevice::over(start);
        let fs = Fs::open(Arc::new(device.clone()), writable()).unwrap();
        assert!(were_replayed(&fs), "{}", changes.name);
        fs.close().unwrap();
        let log = device.log();
        let budget = if is_full_run() {
            Budget::limited(4000, 1)
        } else {
            Budget::limited(120, 1)
        };
        let others = if is_full_run() { 4 } else { 12 };
        let (mut images, mut void, mut points) = (0, 0, 0);
        let (mut by_e2fsck, mut by_linux) = (0, 0);
        let mut last = None;
        for image in log.images(budget) {
            let context = format!("{}, image {images}, point {}", changes.name, image.point());
            let crashed = image.record();
            let fs = Fs::open(Arc::new(crashed.clone()), writable())
                .unwrap_or_else(|e| panic!("{context}: {e}"));
            void += u32::from(!were_replayed(&fs));
            wanted.assert_same(&seen(&tree_of(&fs)), &compare);
            fs.close().unwrap();
            let is_new_point = last.replace(image.point()) != Some(image.point());
            points += u32::from(is_new_point);
            if images % others == 0 || is_new_point {
                crashed.content().write_to(&path).unwrap();
                oracle::check_clean(&path).unwrap_or_else(|e| panic!("{context}: {e}"));
                image.write_to(&path);
                let tree = ask_e2fsck.then(|| recovered_by_e2fsck(&path, &context));
                if let Some(tree) = tree.flatten() {
                    tree.assert_same(&wanted, &compare);
                    by_e2fsck += 1;
                } else if !image.tears(1024..2048) {
                    // Linux mounts no torn superblock.
                    image.write_to(&path);
                    recovered_by_linux(&path).assert_same(&wanted, &compare);
                    by_linux += 1;
                }
            }
            images += 1;
        }
        println!(
            "{}: {} writes, {points} points, {images} images, fast commits void in {void}; {by_e2fsck} \
             recovered by e2fsck as well, {by_linux} by Linux",
            changes.name,
            log.writes()
        );
        assert!(by_e2fsck > 0 || !ask_e2fsck, "{}", changes.name);
        assert!(by_linux > 0, "{}", changes.name);
        assert!(images > 20, "{}: only {images} images", changes.name);
        assert!(void > 0 && void < images, "{}: {void}", changes.name);
    }
}
