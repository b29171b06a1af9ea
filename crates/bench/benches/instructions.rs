//! How many instructions an operation takes, counted under valgrind: the one figure that a noisy
//! machine cannot move. `cargo xtask instructions` runs this and compares with `instructions.tsv`.
//!
//! Each benchmark does [`OPERATIONS`] operations of one kind on a fresh image in memory, in one
//! thread, with a directory that has an index. Opening, closing and, where no operation asks for it,
//! committing are not counted.
#![allow(missing_docs, reason = "the macros write functions without any")]

use extant_blockdev::MemoryDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{FileType, Held, NewInode};
use extant_core::ops;
use extant_format::Ino;
use extant_mkfs::defaults::FormatOptions;
use extant_mkfs::source::{ScanOptions, scan_directory};
use extant_mkfs::{BuildOptions, Silent, Size};
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use std::hint::black_box;
use std::num::NonZero;
use std::sync::Arc;

/// Operations of each benchmark.
const OPERATIONS: usize = 500;

const IMAGE_BYTES: u64 = 64 << 20;

/// What is written at a time.
static BLOCK: [u8; 4096] = [0x5a; 4096];

/// A mounted image with one directory of [`OPERATIONS`] empty files, all in memory.
struct Scene {
    // Drop order: what is held goes before the file system.
    file: Held,
    dir: Held,
    old: Vec<Vec<u8>>,
    new: Vec<Vec<u8>>,
    fs: Arc<Fs>,
}

fn new_file() -> NewInode {
    NewInode::new(FileType::Regular, 0o644, ops::now())
}

fn names(stem: &str) -> Vec<Vec<u8>> {
    let name = |i| format!("{stem}{i:05}").into_bytes();
    (0..OPERATIONS).map(name).collect()
}

/// Makes the image, opens it and looks at every file once.
fn scene() -> Scene {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let source = scratch.path().join("source");
    std::fs::create_dir_all(source.join("dir")).expect("a folder");
    let old = names("old");
    for name in &old {
        let name = String::from_utf8_lossy(name);
        std::fs::write(source.join("dir").join(&*name), b"").expect("a file");
    }
    let tree = scan_directory(&source, &ScanOptions::default()).expect("scan");
    let options = BuildOptions {
        // The same seed each time, so that every run hashes names alike.
        format: FormatOptions::reproducible(IMAGE_BYTES, 1_700_000_000, b"instructions"),
        size: Size::Bytes(IMAGE_BYTES),
        threads: NonZero::new(1),
    };
    let image = scratch.path().join("image");
    extant_mkfs::build(Some(&tree), &image, None, &options, &Silent).expect("build");
    let bytes = std::fs::read(&image).expect("read the image");
    let device = Arc::new(MemoryDevice::from_image(&bytes));
    // Commits happen where an operation asks for them, in its own thread.
    let options = MountOptions::read_write().background(false);
    let fs = Fs::open(device, options).expect("open");
    let root = fs.hold(Ino::ROOT).expect("root");
    let dir = ops::lookup_held(&fs, &root, b"dir").expect("dir");
    let file = ops::create(&fs, &dir, b"written", &new_file()).expect("create");
    let scene = Scene {
        file,
        dir,
        old,
        new: names("new"),
        fs,
    };
    stat_all(&scene);
    ops::syncfs(&scene.fs).expect("sync");
    scene
}

/// The same after [`OPERATIONS`] creates that are not committed yet.
fn scene_with_creates() -> Scene {
    let scene = scene();
    create_all(&scene);
    scene
}

fn stat_all(scene: &Scene) {
    for name in &scene.old {
        let found = ops::lookup_with(&scene.fs, scene.dir.id(), name, |inode| {
            ops::stat(&scene.fs, inode)
        });
        black_box(found.expect("stat"));
    }
}

fn create_all(scene: &Scene) {
    for name in &scene.new {
        ops::create(&scene.fs, &scene.dir, name, &new_file()).expect("create");
    }
}

fn append(scene: &Scene, i: usize) {
    let at = (i * BLOCK.len()) as u64;
    let written = ops::pwrite(&scene.fs, &scene.file, at, &BLOCK).expect("write");
    assert_eq!(written, BLOCK.len());
}

// What a benchmark returns is dropped after counting has stopped.

#[library_benchmark]
#[bench::on(scene())]
fn create(scene: Scene) -> Scene {
    create_all(&scene);
    scene
}

// The commit of [`OPERATIONS`] creates, and its writes.
#[library_benchmark]
#[bench::on(scene_with_creates())]
fn commit(scene: Scene) -> Scene {
    ops::syncfs(&scene.fs).expect("sync");
    scene
}

#[library_benchmark]
#[bench::on(scene())]
fn stat(scene: Scene) -> Scene {
    stat_all(&scene);
    scene
}

#[library_benchmark]
#[bench::on(scene())]
fn unlink(scene: Scene) -> Scene {
    for name in &scene.old {
        ops::unlink(&scene.fs, &scene.dir, name).expect("unlink");
    }
    scene
}

// 4 KiB at the end of a file.
#[library_benchmark]
#[bench::on(scene())]
fn write(scene: Scene) -> Scene {
    (0..OPERATIONS).for_each(|i| append(&scene, i));
    scene
}

// 4 KiB at the end of a file, made durable each time.
#[library_benchmark]
#[bench::on(scene())]
fn write_fsync(scene: Scene) -> Scene {
    for i in 0..OPERATIONS {
        append(&scene, i);
        ops::fsync(&scene.fs, &scene.file).expect("fsync");
    }
    scene
}

library_benchmark_group!(
    name = operations,
    benchmarks = [create, commit, stat, unlink, write, write_fsync]
);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = operations
);
