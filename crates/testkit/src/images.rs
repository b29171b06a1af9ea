//! Small images made by `mke2fs` and filled by the kernel, with the kernel's own view of them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::mount::{KernelMount, Mode, Shutdown};
use crate::plan::TreePlan;
use crate::tool::tool;
use crate::torture::TortureSpec;
use crate::tree::Tree;
use crate::{facility, oracle};

/// How an image is made. Start from [`ImageSpec::new`], or take one of [`corpus`].
#[derive(Debug, Clone)]
pub struct ImageSpec {
    /// Name for messages: `"ext3 1k dirty"`.
    pub name: String,
    /// `ext2`, `ext3` or `ext4`: the defaults the features start from.
    pub fstype: &'static str,
    /// Features added, or with a `^` removed.
    pub features: Vec<&'static str>,
    /// Block size in bytes.
    pub block_size: u64,
    /// Inode size in bytes.
    pub inode_size: u64,
    /// More options for mke2fs.
    pub options: Vec<&'static str>,
    /// Options for the mount that fills it.
    pub mount_options: &'static str,
    /// Only times from 1970 to 2038, which every reader understands (`ext4-view` takes a set 31st
    /// bit of the seconds for corruption).
    pub plain_times: bool,
    /// Stop the file system with changes committed in the journal only.
    pub dirty: bool,
}

/// An image and what the kernel shows of it, after its own replay of a copy when the journal is
/// dirty. The file goes when this value goes.
#[derive(Debug)]
pub struct KernelImage {
    /// How it was made.
    pub spec: ImageSpec,
    path: PathBuf,
    tree: Tree,
    _dir: TempDir,
}

impl KernelImage {
    /// Returns the image file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what the kernel shows, `lost+found` included.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl ImageSpec {
    /// `mke2fs -t ext4` with these features on top, inodes of 256 bytes, clean.
    pub fn new(features: &[&'static str], block_size: u64) -> ImageSpec {
        ImageSpec {
            name: format!("{features:?} with blocks of {block_size}"),
            fstype: "ext4",
            features: features.to_vec(),
            block_size,
            inode_size: 256,
            options: Vec::new(),
            mount_options: "",
            plain_times: false,
            dirty: false,
        }
    }

    fn named(mut self, name: &str) -> ImageSpec {
        name.clone_into(&mut self.name);
        self
    }

    fn dirty(mut self) -> ImageSpec {
        self.dirty = true;
        self.name.push_str(", dirty");
        self
    }

    /// Returns whether a feature is asked for.
    pub fn has(&self, feature: &str) -> bool {
        self.features.contains(&feature)
    }

    /// Returns what fills the image: a tree with every corner that it can hold.
    pub fn plan(&self) -> TreePlan {
        let small_blocks = self.block_size == 1024;
        let spec = TortureSpec {
            // Deep enough for an index of two levels.
            entries_in_one_dir: if small_blocks { 3500 } else { 1500 },
            subdirs_in_one_dir: 200,
            longest_path: 1200,
            extents: if small_blocks { 500 } else { 1500 },
            block_sizes: vec![self.block_size],
            ..TortureSpec::small()
        };
        let mut plan = spec
            .for_image(self.block_size, self.inode_size, self.has("ea_inode"))
            .plan();
        // The root belongs to mke2fs.
        plan.node_mut("").mode(0o755).owner(0, 0);
        for node in plan.nodes_mut() {
            if self.plain_times && !(0..1 << 31).contains(&node.mtime.sec) {
                node.mtime.sec = 1;
            }
            if self.inode_size == 128 {
                node.mtime.nsec = 0;
            }
        }
        plan
    }

    /// Makes the image, fills it through a kernel mount and reads it back through another.
    ///
    /// # Panics
    ///
    /// When a tool or the kernel refuses; ask [`crate::require!`] for `KernelExt4` first.
    pub fn build(&self) -> KernelImage {
        facility::Facility::KernelExt4
            .check()
            .unwrap_or_else(|m| panic!("{m}"));
        let dir = scratch().expect("tempdir");
        let path = dir.path().join("image");
        self.make(&path);
        let mount = KernelMount::mount(&path, Mode::ReadWrite, self.mount_options);
        self.plan().plant(mount.path());
        age(mount.path());
        mount.sync();
        let tree = if self.dirty {
            leave_behind(mount);
            assert!(
                oracle::dumpe2fs_header(&path).has_feature("needs_recovery"),
                "{}: the journal is clean after a shutdown",
                self.name
            );
            let replayed = dir.path().join("replayed");
            tool("cp")
                .arg("--sparse=always")
                .arg(&path)
                .arg(&replayed)
                .ok();
            let tree = kernel_view(&replayed, Mode::ReadOnly);
            fs::remove_file(&replayed).expect("remove the copy");
            tree
        } else {
            mount.unmount();
            oracle::assert_clean(&path);
            kernel_view(&path, Mode::Untouched)
        };
        KernelImage {
            spec: self.clone(),
            path,
            tree,
            _dir: dir,
        }
    }

    fn make(&self, path: &Path) {
        // Sparse: what counts is the room for clusters.
        let size = if self.has("bigalloc") {
            1 << 30
        } else {
            192 << 20
        };
        let (block_size, inode_size) = (self.block_size.to_string(), self.inode_size.to_string());
        let mut options = vec!["-t", self.fstype, "-b", &block_size, "-I", &inode_size];
        options.extend(["-N", "12000"]);
        let features = self.features.join(",");
        if !features.is_empty() {
            options.extend(["-O", &features]);
        }
        options.extend(&self.options);
        oracle::mke2fs(path, size, &options);
    }
}

/// As [`ImageSpec::new`] and [`ImageSpec::build`] in one: an image with these features.
pub fn kernel_filled(features: &[&'static str], block_size: u64, dirty: bool) -> KernelImage {
    let mut spec = ImageSpec::new(features, block_size);
    spec.dirty = dirty;
    spec.build()
}

fn kernel_view(image: &Path, mode: Mode) -> Tree {
    let mount = KernelMount::mount(image, mode, "");
    let tree = Tree::snapshot(mount.path());
    mount.unmount();
    tree
}

/// What a plan cannot say: preallocated blocks, and directories with gaps where names were.
fn age(root: &Path) {
    let unwritten = File::create(root.join("unwritten")).expect("create");
    unwritten.set_len(3 << 20).expect("set_len");
    let (start, len) = (1 << 20, 1 << 20);
    // Indirect files have no unwritten blocks, and the kernel says so.
    match rustix::fs::fallocate(&unwritten, rustix::fs::FallocateFlags::empty(), start, len) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(e) => panic!("fallocate: {e}"),
    }
    unwritten
        .write_all_at(&[7; 5000], (1 << 20) + 100_000)
        .expect("write");
    let gaps = root.join("gaps");
    fs::create_dir(&gaps).expect("mkdir");
    for n in 0..300 {
        fs::write(gaps.join(format!("{n}-{}", "g".repeat(n % 50))), b"").expect("write");
    }
    for n in (0..300).filter(|n| n % 3 != 0) {
        fs::remove_file(gaps.join(format!("{n}-{}", "g".repeat(n % 50)))).expect("unlink");
    }
}

/// Changes of every kind, committed in the journal but not written in place; then the file system
/// stops.
fn leave_behind(mount: KernelMount) {
    let late = mount.join("late");
    fs::create_dir(&late).expect("mkdir");
    for n in 0..150 {
        fs::write(late.join(format!("file-{n}")), vec![n as u8; n * 40]).expect("write");
    }
    // Blocks that begin with the journal's magic number are escaped when data is journaled.
    let mut magic = File::create(late.join("magic")).expect("create");
    for _ in 0..20 {
        let mut block = vec![0x5a; 1024];
        block[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
        magic.write_all(&block).expect("write");
    }
    for n in 0..40 {
        fs::rename(
            late.join(format!("file-{n}")),
            mount.join(format!("renamed-{n}")),
        )
        .expect("rename");
    }
    for n in 40..80 {
        fs::remove_file(late.join(format!("file-{n}"))).expect("unlink");
    }
    commit(&magic);
    drop(magic);
    // Freed directory and index blocks are revoked; their blocks may be used again at once.
    fs::remove_dir_all(mount.join("subdirs")).expect("remove");
    fs::remove_dir_all(mount.join("gaps")).expect("remove");
    fs::write(late.join("after-revoke"), vec![1; 300_000]).expect("write");
    fs::hard_link(late.join("after-revoke"), late.join("link")).expect("link");
    std::os::unix::fs::symlink("after-revoke", late.join("symlink")).expect("symlink");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(late.join("link"), "user.late", b"value", flags).expect("setxattr");
    commit(&File::open(late.join("after-revoke")).expect("open"));
    mount.shutdown(Shutdown::Now);
}

/// Commits the transaction that holds this file's changes.
fn commit(file: &File) {
    file.sync_all().expect("fsync");
}

/// Returns an image for each way in which the format differs, clean and dirty; together some 30.
pub fn corpus() -> Vec<ImageSpec> {
    let ext4 = ImageSpec::new;
    let old = |fstype: &'static str, block_size| ImageSpec {
        fstype,
        ..ImageSpec::new(&[], block_size).named(&format!("{fstype} {block_size}"))
    };
    let with_inode = |size: u64, features: &[&'static str]| ImageSpec {
        inode_size: size,
        ..ext4(features, 4096).named(&format!("inodes of {size}, {features:?}"))
    };
    let with_options =
        |features: &[&'static str], block_size, options: &[&'static str]| ImageSpec {
            options: options.to_vec(),
            ..ext4(features, block_size)
        };
    let mut specs = vec![
        ext4(&[], 4096),
        ext4(&[], 2048),
        ext4(&[], 1024),
        with_inode(128, &[]),
        with_inode(1024, &[]),
        with_inode(256, &["inline_data"]),
        with_inode(1024, &["inline_data"]),
        old("ext2", 1024),
        old("ext2", 4096),
        old("ext3", 1024),
        old("ext3", 4096),
        ImageSpec {
            inode_size: 128,
            ..old("ext3", 1024).named("ext3 with inodes of 128")
        },
        ext4(&["^extents", "^64bit"], 1024),
        ext4(&["ea_inode"], 4096),
        ext4(&["ea_inode"], 1024),
        with_options(&["bigalloc"], 4096, &["-C", "16384"]),
        with_options(&["bigalloc"], 1024, &["-C", "65536"]),
        ext4(&["meta_bg", "^resize_inode"], 1024),
        ext4(&["^64bit"], 4096),
        ext4(&["^metadata_csum", "uninit_bg"], 1024),
        ext4(&["^metadata_csum", "^uninit_bg"], 1024),
        ext4(&["^flex_bg"], 1024),
        ext4(&["^dir_index"], 4096),
        ext4(&["^has_journal"], 4096),
        ext4(&["^filetype"], 4096),
        ext4(
            &[
                "metadata_csum_seed",
                "orphan_file",
                "large_dir",
                "sparse_super2",
            ],
            4096,
        ),
        ext4(&["mmp"], 4096),
        ext4(&["encrypt", "stable_inodes"], 4096),
        ext4(&["fast_commit"], 4096),
    ];
    let data_journal = ImageSpec {
        mount_options: "data=journal",
        ..ext4(&[], 1024)
    };
    specs.extend([
        ext4(&[], 4096).dirty(),
        ext4(&[], 1024).dirty(),
        data_journal.named("data=journal").dirty(),
        ext4(&["^64bit"], 1024).dirty(),
        ext4(&["^metadata_csum"], 1024).dirty(),
        ext4(&["orphan_file"], 4096).dirty(),
        ext4(&["inline_data"], 4096).dirty(),
        with_options(&["bigalloc"], 4096, &["-C", "16384"]).dirty(),
        old("ext3", 1024).dirty(),
        ImageSpec {
            mount_options: "data=journal",
            ..old("ext3", 4096)
        }
        .dirty(),
    ]);
    specs
}

/// Bytes that memory has to have free for images to lie there: several tests make one at a time.
const ROOM: u64 = 2 << 30;

/// A folder for an image: in memory where there is room, as a disk that is told of every block of a
/// fragmented file that goes takes seconds for one of these.
fn scratch() -> std::io::Result<tempfile::TempDir> {
    let mut prefixed = tempfile::Builder::new();
    prefixed.prefix("extant-image-");
    let memory = "/dev/shm";
    let has_room = |found: rustix::fs::StatVfs| found.f_bavail * found.f_frsize >= ROOM;
    if rustix::fs::statvfs(memory).is_ok_and(has_room)
        && let Ok(folder) = prefixed.tempdir_in(memory)
    {
        return Ok(folder);
    }
    prefixed.tempdir()
}
