//! How many instructions an operation takes, counted under valgrind: the one figure that a noisy
//! machine cannot move. `cargo xtask instructions` runs this and compares with `instructions.tsv`.
//!
//! Each benchmark does [`OPERATIONS`] operations of one kind on a fresh image in memory, in one
//! thread, with a directory that has an index. Opening, closing and, where no operation asks for
//! it, committing are not counted; nor is what a benchmark finds made, in [`Scene`] or by the
//! functions beside it.
#![allow(missing_docs, reason = "the macros write functions without any")]

use extant_blockdev::MemoryDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{Bulkstat, BulkstatWay, FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, Cookie};
use extant_format::Ino;
use extant_mkfs::defaults::FormatOptions;
use extant_mkfs::source::{ScanOptions, scan_directory};
use extant_mkfs::{BuildOptions, Silent, Size};
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use std::hint::black_box;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
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

fn new_dir() -> NewInode {
    NewInode::new(FileType::Directory, 0o755, ops::now())
}

fn names(stem: &str) -> Vec<Vec<u8>> {
    let name = |i| format!("{stem}{i:05}").into_bytes();
    (0..OPERATIONS).map(name).collect()
}

/// Makes the image: a directory of [`OPERATIONS`] empty files.
fn device(scratch: &Path) -> Arc<MemoryDevice> {
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("dir")).expect("a folder");
    for name in &names("old") {
        let name = String::from_utf8_lossy(name);
        std::fs::write(source.join("dir").join(&*name), b"").expect("a file");
    }
    let tree = scan_directory(&source, &ScanOptions::default()).expect("scan");
    // The same seed each time, so that every run hashes names alike.
    let format = FormatOptions::reproducible(IMAGE_BYTES, 1_700_000_000, b"instructions");
    let options = BuildOptions::new(format, Size::Bytes(IMAGE_BYTES)).threads(NonZero::new(1));
    let image = scratch.join("image");
    extant_mkfs::build(Some(&tree), &image, None, &options, &Silent).expect("build");
    let bytes = std::fs::read(&image).expect("read the image");
    Arc::new(MemoryDevice::from_image(&bytes))
}

/// Makes the image, opens it and looks at every file once.
fn scene() -> Scene {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let device = device(scratch.path());
    // Commits happen where an operation asks for them, in its own thread.
    let options = MountOptions::read_write().background(false);
    let fs = Fs::open(device, options).expect("open");
    let root = fs.hold(Ino::ROOT).expect("root");
    let dir = ops::lookup_held(&fs, &root, b"dir").expect("dir");
    let file = ops::create(&fs, &dir, b"written", &new_file()).expect("create");
    let scene = Scene {
        file,
        dir,
        old: names("old"),
        new: names("new"),
        fs,
    };
    stat_all(&scene);
    ops::syncfs(&scene.fs).expect("sync");
    scene
}

/// A scene after [`OPERATIONS`] creates that are not committed yet.
fn scene_with_creates() -> Scene {
    let scene = scene();
    create_all(&scene);
    scene
}

/// A scene after [`OPERATIONS`] directories were made and committed.
fn scene_with_dirs() -> Scene {
    let scene = scene();
    mkdir_all(&scene);
    ops::syncfs(&scene.fs).expect("sync");
    scene
}

/// A scene with a file of [`OPERATIONS`] blocks, on the device and in memory.
fn scene_with_content() -> Scene {
    let scene = scene();
    (0..OPERATIONS).for_each(|i| put(&scene, i));
    ops::syncfs(&scene.fs).expect("sync");
    scene
}

/// A scene with content whose file was used past memory alone for some time.
fn scene_with_direct() -> Scene {
    let scene = scene_with_content();
    let mut block = BLOCK;
    for _ in 0..8 {
        ops::pwrite_direct(&scene.fs, &scene.file, 0, &BLOCK).expect("write");
        ops::pread_direct(&scene.fs, &scene.file, 0, &mut block).expect("read");
    }
    scene
}

/// An image with [`OPERATIONS`] files, opened anew: no inode is in memory that is not needed for
/// that.
fn reopened() -> Arc<Fs> {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let device = device(scratch.path());
    Fs::open(device, MountOptions::read_write().background(false)).expect("open")
}

/// An image with [`OPERATIONS`] files, opened anew, with all inodes in memory.
fn reopened_and_seen() -> Arc<Fs> {
    let fs = reopened();
    look_at_all(&fs, BulkstatWay::Cache);
    fs
}

fn look_at_all(fs: &Arc<Fs>, way: BulkstatWay) {
    let how = Bulkstat::new(way, 1);
    let seen = ops::bulkstat(fs, how, |_, found| {
        black_box(&found.expect("inode"));
    });
    assert!(seen >= OPERATIONS as u64);
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

fn mkdir_all(scene: &Scene) {
    for name in &scene.new {
        ops::mkdir(&scene.fs, &scene.dir, name, &new_dir()).expect("mkdir");
    }
}

fn look_up(scene: &Scene, name: &[u8]) -> Held {
    ops::lookup_held(&scene.fs, &scene.dir, name).expect("lookup")
}

/// Writes block `i` of the file.
fn put(scene: &Scene, i: usize) {
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
    (0..OPERATIONS).for_each(|i| put(&scene, i));
    scene
}

// 4 KiB at the end of a file, made durable each time.
#[library_benchmark]
#[bench::on(scene())]
fn write_fsync(scene: Scene) -> Scene {
    for i in 0..OPERATIONS {
        put(&scene, i);
        ops::fsync(&scene.fs, &scene.file).expect("fsync");
    }
    scene
}

// One name instead of another in the same directory.
#[library_benchmark]
#[bench::on(scene())]
fn rename(scene: Scene) -> Scene {
    let dir = &scene.dir;
    for (old, new) in scene.old.iter().zip(&scene.new) {
        ops::rename(&scene.fs, dir, old, dir, new).expect("rename");
    }
    scene
}

// A file takes the name of another, which goes.
#[library_benchmark]
#[bench::on(scene_with_creates())]
fn rename_over(scene: Scene) -> Scene {
    let dir = &scene.dir;
    for (old, new) in scene.old.iter().zip(&scene.new) {
        ops::rename(&scene.fs, dir, old, dir, new).expect("rename");
    }
    scene
}

// A further name for one file.
#[library_benchmark]
#[bench::on(scene())]
fn link(scene: Scene) -> Scene {
    for name in &scene.new {
        ops::link(&scene.fs, &scene.file, &scene.dir, name).expect("link");
    }
    scene
}

// A target that fits the inode.
#[library_benchmark]
#[bench::on(scene())]
fn symlink(scene: Scene) -> Scene {
    let link = NewInode::new(FileType::Symlink, 0o777, ops::now());
    for name in &scene.new {
        ops::symlink(&scene.fs, &scene.dir, name, b"over/there", &link).expect("symlink");
    }
    scene
}

#[library_benchmark]
#[bench::on(scene())]
fn mkdir(scene: Scene) -> Scene {
    mkdir_all(&scene);
    scene
}

#[library_benchmark]
#[bench::on(scene_with_dirs())]
fn rmdir(scene: Scene) -> Scene {
    for name in &scene.new {
        ops::rmdir(&scene.fs, &scene.dir, name).expect("rmdir");
    }
    scene
}

// Looking the file up, and its mode.
#[library_benchmark]
#[bench::on(scene())]
fn chmod(scene: Scene) -> Scene {
    for name in &scene.old {
        ops::chmod(&scene.fs, &look_up(&scene, name), 0o600).expect("chmod");
    }
    scene
}

// A block less each time, from the end of a file on the device.
#[library_benchmark]
#[bench::on(scene_with_content())]
fn truncate(scene: Scene) -> Scene {
    for i in (0..OPERATIONS).rev() {
        let size = (i * BLOCK.len()) as u64;
        ops::truncate(&scene.fs, &scene.file, size).expect("truncate");
    }
    scene
}

// 4 KiB that are in memory.
#[library_benchmark]
#[bench::on(scene_with_content())]
fn read(scene: Scene) -> Scene {
    let mut block = BLOCK;
    for i in 0..OPERATIONS {
        let at = (i * block.len()) as u64;
        let read = ops::pread(&scene.fs, &scene.file, at, &mut block).expect("read");
        assert_eq!(read, block.len());
    }
    black_box(&block);
    scene
}

// 4 KiB over what is there.
#[library_benchmark]
#[bench::on(scene_with_content())]
fn overwrite(scene: Scene) -> Scene {
    (0..OPERATIONS).for_each(|i| put(&scene, i));
    scene
}

// Overwrites that are made durable each time.
#[library_benchmark]
#[bench::on(scene_with_content())]
fn overwrite_fdatasync(scene: Scene) -> Scene {
    for i in 0..OPERATIONS {
        put(&scene, i);
        ops::fdatasync(&scene.fs, &scene.file).expect("fdatasync");
    }
    scene
}

// 4 KiB over what is there, past memory, and reading it back.
#[library_benchmark]
#[bench::on(scene_with_direct())]
fn overwrite_direct(scene: Scene) -> Scene {
    let mut block = BLOCK;
    for i in 0..OPERATIONS {
        let at = (i * BLOCK.len()) as u64;
        let written = ops::pwrite_direct(&scene.fs, &scene.file, at, &BLOCK).expect("write");
        let read = ops::pread_direct(&scene.fs, &scene.file, at, &mut block).expect("read");
        assert_eq!((written, read), (BLOCK.len(), BLOCK.len()));
    }
    black_box(&block);
    scene
}

// Every inode, none of which is in memory: into it.
#[library_benchmark]
#[bench::on(reopened())]
fn bulkstat_cold(fs: Arc<Fs>) -> Arc<Fs> {
    look_at_all(&fs, BulkstatWay::Cache);
    fs
}

// Every inode, all of which are in memory.
#[library_benchmark]
#[bench::on(reopened_and_seen())]
fn bulkstat_warm(fs: Arc<Fs>) -> Arc<Fs> {
    look_at_all(&fs, BulkstatWay::Cache);
    fs
}

// Every inode, in the inode tables.
#[library_benchmark]
#[bench::on(reopened())]
fn bulkstat_tables(fs: Arc<Fs>) -> Arc<Fs> {
    look_at_all(&fs, BulkstatWay::Tables);
    fs
}

// One name of a listing: [`OPERATIONS`] of them, ten times over.
#[library_benchmark]
#[bench::on(scene())]
fn readdir(scene: Scene) -> Scene {
    let mut listed = 0;
    for _ in 0..10 {
        let dir = scene.fs.inode(scene.dir.ino()).expect("dir");
        ops::readdir(&scene.fs, &dir, Cookie::START, |entry| {
            black_box(&entry);
            listed += 1;
            ControlFlow::<()>::Continue(())
        })
        .expect("readdir");
    }
    // And `.`, `..` and the file that is written.
    assert_eq!(listed, 10 * (OPERATIONS + 3));
    scene
}

library_benchmark_group!(
    name = operations,
    benchmarks = [
        create,
        commit,
        stat,
        unlink,
        rename,
        rename_over,
        link,
        symlink,
        mkdir,
        rmdir,
        chmod,
        write,
        write_fsync,
        truncate,
        read,
        overwrite,
        overwrite_fdatasync,
        overwrite_direct,
        bulkstat_cold,
        bulkstat_warm,
        bulkstat_tables,
        readdir
    ]
);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = operations
);
