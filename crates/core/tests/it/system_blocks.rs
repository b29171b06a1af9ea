//! Files whose map leads to the file system's own blocks: read where nothing is written, refused
//! where it could be.

use crate::support::{Image, pattern};
use extant_blockdev::FileDevice;
use extant_core::data::{self, WriteOptions};
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Held;
use extant_core::map;
use extant_core::{Result, ops};
use extant_format::{Group, Ino, Lblk};
use extant_testkit::oracle::{debugfs, debugfs_write};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const BLOCK: usize = 1024;

/// An image with a file of several blocks, all in one piece, of which debugfs finds the first in
/// this word of the map.
fn images() -> [(Image, &'static str, &'static str); 2] {
    let make = |options: &[&str]| {
        Image::make(16, options, |tree| {
            std::fs::write(tree.join("file"), pattern(1, 8 * BLOCK)).unwrap();
        })
    };
    let base = ["-t", "ext4", "-b", "1024", "-O"];
    let with = |features| [&base[..], &[features]].concat();
    [
        (make(&with("^resize_inode")), "block[5]", "extents"),
        (
            make(&with("^resize_inode,^extent,^64bit")),
            "block[0]",
            "pointers",
        ),
    ]
}

/// Where structures lie that no file may have.
fn structures(fs: &Fs) -> Vec<(&'static str, u64)> {
    let desc = fs.group(Group::new(1)).unwrap();
    let journal = fs.inode(Ino::new(8)).unwrap();
    let log = map::lookup(fs, &journal, Lblk::new(20)).unwrap();
    vec![
        ("descriptors", 2),
        ("block bitmap", desc.block_bitmap.get()),
        ("inode bitmap", desc.inode_bitmap.get()),
        ("inode table", desc.inode_table.get() + 3),
        ("journal", log.target.pblk().unwrap().get()),
    ]
}

/// What would write to the blocks that the map leads to.
fn changes(fs: &Fs, held: &Held) -> Vec<(&'static str, Result<()>)> {
    let options = WriteOptions::default();
    let part = &[7; BLOCK];
    vec![
        ("write", data::write_at(fs, held, 0, &[7; 100]).map(drop)),
        (
            "write past memory",
            data::write_direct(fs, held, 0, part, options).map(drop),
        ),
        ("punch", data::punch_hole(fs, held, 100, 50, options)),
        (
            "punch blocks",
            data::punch_hole(fs, held, 0, 2 * BLOCK as u64, options),
        ),
    ]
}

#[test]
fn a_file_over_structures_is_read_where_nothing_is_written_and_refused_where_it_could_be() {
    for (image, word, how) in images() {
        let places = structures(&image.open());
        let content = std::fs::read(image.path()).unwrap();
        for (what, block) in places {
            std::fs::write(image.path(), &content).unwrap();
            debugfs_write(
                &image.path(),
                &[&format!("set_inode_field file {word} {block}")],
            );
            let at = block * BLOCK as u64;
            let on_device = || {
                let mut bytes = [0; BLOCK];
                let file = File::open(image.path()).unwrap();
                file.read_exact_at(&mut bytes, at).unwrap();
                bytes
            };
            let before = on_device();
            let fs = image.open();
            let mut bytes = [0; BLOCK];
            let inode = image.inode(&fs, "file");
            data::read_content(&fs, &inode, 0, &mut bytes).unwrap();
            assert_eq!(bytes, before, "{how}: {what}, as it is on the device");
            drop((fs, inode));

            let fs = image.open_writable();
            let held = fs.hold(image.ino("file")).unwrap();
            let error = data::read_live(&fs, &held, 0, &mut bytes).unwrap_err();
            assert!(error.is_corruption(), "{how}: {what}: {error}");
            let told = format!("mapped block is {block}");
            assert!(error.to_string().contains(&told), "{how}: {what}: {error}");
            for (change, result) in changes(&fs, &held) {
                assert!(result.is_err(), "{how}: {what}: {change}");
            }
            // What reaches no block of it may be done; and they may leave the file, and yet are not
            // free.
            let _ = data::truncate(&fs, &held, 100);
            let _ = data::zero_range(&fs, &held, 10, 90, false, WriteOptions::default());
            let _ = ops::fsync(&fs, &held);
            let _ = data::truncate(&fs, &held, 0);
            drop(held);
            let _ = fs.close();
            let bit = debugfs(&image.path(), &format!("testb {block}"));
            assert!(bit.contains("marked in use"), "{how}: {what}: {bit}");
            // Nothing of the file's came there. (Descriptors and journal change by themselves.)
            let after = on_device();
            assert!(after[..100] != [7; 100], "{how}: {what}");
            if what.contains("bitmap") || what.contains("table") {
                assert_eq!(after, before, "{how}: {what}");
            }
        }
    }
}

#[test]
fn a_journal_over_structures_is_not_written_to() {
    let image = Image::make(16, &["-t", "ext4", "-b", "1024"], |_| {});
    let table = image.open().group(Group::new(1)).unwrap().inode_table;
    let mut log_superblock = [0; BLOCK];
    let fs = image.open();
    let journal = fs.inode(Ino::new(8)).unwrap();
    let first = map::lookup(&fs, &journal, Lblk::new(0)).unwrap();
    let log = first.target.pblk().unwrap();
    drop((fs, journal));
    let device = File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    // A log that has its superblock right before the inode table.
    device
        .read_exact_at(&mut log_superblock, log.get() * BLOCK as u64)
        .unwrap();
    let moved = table.get() - 1;
    device
        .write_all_at(&log_superblock, moved * BLOCK as u64)
        .unwrap();
    debugfs_write(
        &image.path(),
        &[&format!("set_inode_field <8> block[5] {moved}")],
    );
    drop(device);
    let writable = Arc::new(FileDevice::open(image.path()).unwrap());
    let error = Fs::open(writable, MountOptions::read_write()).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert!(error.to_string().contains("journal block"), "{error}");
}

#[test]
fn an_orphan_file_over_structures_is_not_written_to() {
    // Without checksums nothing ties its blocks to their places.
    let image = Image::make(
        16,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "orphan_file,^metadata_csum",
        ],
        |_| {},
    );
    let fs = image.open();
    let table = fs.group(Group::new(1)).unwrap().inode_table.get();
    let ino = fs.superblock().orphan_file_ino().unwrap();
    let run = map::lookup(&fs, &fs.inode(ino).unwrap(), Lblk::new(0)).unwrap();
    drop(fs);
    let device = File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    let mut blocks = vec![0; run.len as usize * BLOCK];
    let from = run.target.pblk().unwrap().get() * BLOCK as u64;
    device.read_exact_at(&mut blocks, from).unwrap();
    // Among inodes that are free.
    let moved = table + 100;
    device.write_all_at(&blocks, moved * BLOCK as u64).unwrap();
    debugfs_write(
        &image.path(),
        &[&format!("set_inode_field <{}> block[5] {moved}", ino.get())],
    );
    drop(device);
    drop(image.open());
    let writable = Arc::new(FileDevice::open(image.path()).unwrap());
    let error = Fs::open(writable, MountOptions::read_write()).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    let told = format!("orphan file block: block is {moved}");
    assert!(error.to_string().contains(&told), "{error}");
}

#[test]
fn what_keeps_blocks_of_the_file_system_itself_is_looked_at() {
    // The inode of spare descriptors has such blocks, and the journal its own.
    let image = Image::make(16, &["-t", "ext4", "-b", "1024"], |_| {});
    let fs = image.open_writable();
    for ino in [Ino::RESIZE, Ino::new(8)] {
        let inode = fs.inode(ino).unwrap();
        let runs = map::Runs::over(&fs, &inode, 0..1 << 20);
        let mapped = runs.map(Result::unwrap);
        assert!(mapped.filter(|run| run.target.pblk().is_some()).count() > 0);
    }
}
