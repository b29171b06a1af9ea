//! Fast commits that Linux left behind are replayed to what Linux replays them to.

use crate::walk::tree_of;
use extant_blockdev::SharedDevice;
use extant_core::fs::{Fs, MountOptions, Notice};
use extant_testkit::crash::{Budget, Content, CrashDevice};
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{self, mke2fs};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tree::{Compare, Kind, Time, Tree};
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, fallocate, linkat};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Changes to a mounted file system that Linux commits fast, if at all.
struct Changes<'r> {
    root: &'r Path,
    rng: &'r mut Rng,
    made: u64,
    /// Also what Linux does not replay rightly: it loses a new directory that has the number of one
    /// removed in the same transaction, and names of files whose creation it does not record.
    beyond_linux: bool,
}

impl Changes<'_> {
    fn name(&mut self) -> std::path::PathBuf {
        let dir = ["", "a", "b"][self.rng.below(3) as usize];
        self.root
            .join(dir)
            .join(format!("file{}", self.rng.below(12)))
    }

    fn file(&mut self) -> Option<File> {
        let path = self.name();
        OpenOptions::new().read(true).write(true).open(path).ok()
    }

    /// One change, if it is possible, and whether it was synced.
    fn one(&mut self) {
        self.made += 1;
        let content = vec![self.made as u8 | 1; self.rng.between(1, 40_000) as usize];
        let offset = self.rng.below(100_000);
        let sync = self.rng.one_in(2);
        let mut touched = None;
        match self.rng.below(if self.beyond_linux { 13 } else { 12 }) {
            0 | 1 => {
                let path = self.name();
                touched = File::create(path).ok();
                if let Some(file) = &mut touched {
                    file.write_all(&content).unwrap();
                }
            }
            2 | 3 => {
                touched = self.file();
                if let Some(file) = &touched {
                    file.write_all_at(&content, offset).unwrap();
                }
            }
            4 => {
                touched = self.file();
                if let Some(file) = &touched {
                    file.set_len(offset).unwrap();
                }
            }
            5 => {
                touched = self.file();
                if let Some(file) = &touched {
                    let modes = [
                        FallocateFlags::empty(),
                        FallocateFlags::KEEP_SIZE,
                        FallocateFlags::ZERO_RANGE,
                    ];
                    let mode = modes[self.rng.below(3) as usize];
                    let _ = fallocate(file, mode, offset, content.len() as u64);
                }
            }
            6 => {
                touched = self.file();
                if let Some(file) = &touched {
                    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let _ = fallocate(file, mode, offset, content.len() as u64);
                }
            }
            7 => {
                let (from, to) = (self.name(), self.name());
                let _ = fs::hard_link(from, &to);
                touched = File::open(to).ok();
            }
            8 | 9 => {
                let (from, to) = (self.name(), self.name());
                let _ = fs::rename(from, &to);
                touched = File::open(to).ok();
            }
            10 => {
                let path = self.name();
                let _ = fs::remove_file(path);
            }
            12 => {
                let name = self.name();
                touched = linked_later(self.root, &name).ok();
            }
            _ => {
                let path = self.root.join(format!("dir{}", self.rng.below(8)));
                if fs::create_dir(&path).is_err() && self.beyond_linux {
                    let _ = fs::remove_dir(&path);
                }
            }
        }
        if let (true, Some(file)) = (sync, touched) {
            file.sync_all().unwrap();
        }
    }
}

/// A file that got its name after it was made.
fn linked_later(dir: &Path, name: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = File::from(rustix::fs::open(dir, flags, rustix::fs::Mode::RUSR)?);
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, source, CWD, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(file)
}

/// An image of 64 MiB that Linux stopped with fast commits pending, if its last commit was one.
fn left_dirty(path: &Path, options: &[&str], beyond_linux: bool, rng: &mut Rng) {
    let mut all = vec!["-q", "-F", "-t", "ext4"];
    all.extend(options);
    mke2fs(path, 64 << 20, &all);
    let mount = KernelMount::mount(path, Mode::ReadWrite, "commit=300");
    for dir in ["a", "b"] {
        fs::create_dir(mount.join(dir)).unwrap();
    }
    let count = rng.between(1, 60);
    let mut changes = Changes {
        root: mount.path(),
        rng,
        made: 0,
        beyond_linux,
    };
    for _ in 0..40 {
        changes.one();
    }
    mount.sync();
    for _ in 0..count {
        changes.one();
    }
    mount.shutdown(Shutdown::Now);
}

/// Whether fast commits were replayed.
pub(crate) fn were_replayed(fs: &Fs) -> bool {
    let notices = fs.notices();
    notices
        .iter()
        .any(|notice| matches!(notice, Notice::FastCommitsReplayed { records } if *records > 0))
}

pub(crate) fn writable() -> MountOptions {
    MountOptions::read_write().background(false)
}

/// What users see of a tree but for what Linux gets wrong: of a directory that came in a fast
/// commit it counts neither names nor blocks.
pub(crate) fn seen(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for entry in tree.entries.values_mut() {
        entry.blocks = None;
        if entry.kind == Kind::Directory {
            entry.nlink = 0;
            entry.mtime = Time::default();
            entry.ctime = None;
        }
        if let Kind::File { data, .. } = &mut entry.kind {
            *data = None;
        }
    }
    tree
}

#[test]
fn what_linux_has_committed_fast_is_recovered_to_what_linux_recovers() {
    require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("fast commits");
    let shapes: [&[&str]; 3] = [
        &["-O", "fast_commit"],
        &["-O", "fast_commit,^metadata_csum,^64bit", "-b", "1024"],
        &[
            "-O",
            "fast_commit,orphan_file,metadata_csum_seed",
            "-b",
            "2048",
        ],
    ];
    let (mut fast, mut refused) = (0, 0);
    for (shape, options) in (0..).zip(shapes.into_iter().cycle().take(6)) {
        let mut rng = Rng::new(seed.wrapping_mul(97) + shape);
        let context = format!("seed {seed}, image {shape}");
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        left_dirty(&place("kernel"), options, false, &mut rng);
        let device: SharedDevice = Arc::new(CrashDevice::over(Content::of_file(&place("kernel"))));
        let read_only = Fs::open(Arc::clone(&device), MountOptions::read_only()).unwrap();
        let is_fast = were_replayed(&read_only);
        fast += u32::from(is_fast);
        let shown = tree_of(&read_only);
        drop(read_only);
        let fs = Fs::open(Arc::clone(&device), writable()).unwrap();
        assert_eq!(were_replayed(&fs), is_fast, "{context}");
        fs.close().unwrap();
        let content = Content::of_device(&*device).unwrap();
        content.write_to(&place("ours")).unwrap();
        oracle::check_clean(&place("ours")).unwrap_or_else(|e| panic!("{context}: {e}"));

        // Once in a while, on a busy machine, Linux cannot replay what it has just left itself.
        let mount = match KernelMount::try_mount(&place("kernel"), Mode::ReadWrite, "") {
            Ok(mount) => mount,
            Err(e) => {
                println!("{context}: Linux does not recover its own image: {e}");
                refused += 1;
                assert!(refused < 2, "{context}: nor another one: {e}");
                continue;
            }
        };
        let kernel = seen(&Tree::snapshot(mount.path()));
        mount.unmount();
        let ours = oracle::kernel_reads(&place("ours")).unwrap();
        let compare = Compare {
            atime: false,
            root: false,
            ..Compare::same_image()
        };
        let differences = kernel.diff(&seen(&ours.tree), &compare);
        assert!(differences.is_empty(), "{context}: {differences:?}");
        kernel.assert_same(&seen(&shown), &compare);
    }
    println!("seed {seed}: {fast} images with fast commits");
    assert!(fast > 0, "seed {seed}");
}

#[test]
fn a_crash_while_fast_commits_are_replayed_leaves_them_to_be_replayed_or_done() {
    require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("fast commits, crashed");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let (start, wanted) = loop {
        left_dirty(
            &path,
            &["-O", "fast_commit", "-J", "size=8"],
            true,
            &mut rng,
        );
        let start = Content::of_file(&path);
        let fs = Fs::open(start.open(), MountOptions::read_only()).unwrap();
        if were_replayed(&fs) {
            break (start, seen(&tree_of(&fs)));
        }
    };
    let device = CrashDevice::over(start);
    let fs = Fs::open(Arc::new(device.clone()), writable()).unwrap();
    assert!(were_replayed(&fs));
    drop(fs);
    let compare = Compare::same_image();
    let mut images = 0;
    for image in device.log().images(Budget::limited(150, seed)) {
        let crashed = image.record();
        let fs = Fs::open(Arc::new(crashed.clone()), writable())
            .unwrap_or_else(|e| panic!("seed {seed}, point {}: {e}", image.point()));
        wanted.assert_same(&seen(&tree_of(&fs)), &compare);
        fs.close().unwrap();
        if images % 10 == 0 {
            crashed.content().write_to(&path).unwrap();
            oracle::check_clean(&path)
                .unwrap_or_else(|e| panic!("seed {seed}, point {}: {e}", image.point()));
        }
        images += 1;
    }
    assert!(images > 20, "only {images} images");
}

/// Has `check` look at the tree after Linux made `changes`, until it has committed them fast: now
/// and then it chooses to commit as a whole.
fn after_fast_commit(options: &[&str], changes: impl Fn(&Path), check: impl Fn(&Tree)) {
    for _ in 0..40 {
        let (tree, is_fast) = after_commit(options, &changes);
        check(&tree);
        if is_fast {
            return;
        }
    }
    panic!("Linux never committed fast");
}

/// The tree of an image on which Linux made `changes` and stopped, opened for writing and checked;
/// whether fast commits were replayed.
fn after_commit(options: &[&str], changes: impl Fn(&Path)) -> (Tree, bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let all = ["-q", "-F", "-t", "ext4", "-O", "fast_commit"];
    mke2fs(&path, 64 << 20, &[&all, options].concat());
    let mount = KernelMount::mount(&path, Mode::ReadWrite, "commit=300");
    fs::write(mount.join("other"), b"content").unwrap();
    mount.sync();
    changes(mount.path());
    let other = OpenOptions::new().write(true).open(mount.join("other"));
    let other = other.unwrap();
    // A new size changes its record even within the same tick of the clock.
    other.write_all_at(b"changed", 100).unwrap();
    other.sync_all().unwrap();
    drop(other);
    mount.shutdown(Shutdown::Now);

    let device: SharedDevice = Arc::new(CrashDevice::over(Content::of_file(&path)));
    let fs = Fs::open(Arc::clone(&device), writable()).unwrap();
    let is_fast = were_replayed(&fs);
    let tree = tree_of(&fs);
    fs.close().unwrap();
    let content = Content::of_device(&*device).unwrap();
    content.write_to(&path).unwrap();
    oracle::check_clean(&path).unwrap();
    (tree, is_fast)
}

#[test]
fn a_file_that_gets_its_name_later_has_it_after_a_fast_commit() {
    require!(Root, LoopDevices, KernelExt4);
    let changes = |root: &Path| drop(linked_later(root, &root.join("linked")).unwrap());
    after_fast_commit(&[], changes, |tree| {
        let linked = &tree.entries[b"linked".as_slice()];
        assert_eq!(linked.nlink, 1, "{linked:?}");
    });
}

#[test]
fn a_file_whose_generation_was_changed_in_a_fast_commit_stays() {
    require!(Root, LoopDevices, KernelExt4);
    let changes = |root: &Path| {
        let mut chattr = Command::new("chattr");
        chattr.args(["-v", "12345"]).arg(root.join("other"));
        assert!(chattr.status().unwrap().success());
    };
    after_fast_commit(&["-O", "fast_commit,^metadata_csum"], changes, |tree| {
        let other = &tree.entries[b"other".as_slice()];
        assert!(matches!(&other.kind, Kind::File { .. }), "{other:?}");
    });
}
