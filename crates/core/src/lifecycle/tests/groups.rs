//! Every inode at once, where groups do not begin with leaves, and records are damaged.

use super::{Image, assert_all, bulkstat};
use crate::fs::{Fs, MountOptions};
use crate::inode::{Bulkstat, BulkstatWay, FileType};
use crate::lifecycle::NewInode;
use crate::ops;
use extant_format::Ino;
use extant_format::inode::Timestamp;
use extant_testkit::oracle::assert_clean;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// 8 inodes a group more than whole leaves have.
const UNEVEN: &[&str] = &["-t", "ext4", "-b", "1024", "-I", "256", "-N", "96"];
const FILES: i64 = 60;

/// Files of different times in several groups, every fifth of which is gone again, and so the
/// numbers of some.
fn fill(fs: &Fs) {
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = |kind, i| NewInode::new(kind, 0o700, Timestamp::from_secs(i));
    for i in 0..FILES {
        let dir = format!("d{}", i / 12);
        if i % 12 == 0 {
            drop(ops::mkdir(fs, &root, dir.as_bytes(), &new(FileType::Directory, i)).unwrap());
        }
        let dir = ops::lookup_held(fs, &root, dir.as_bytes()).unwrap();
        let name = format!("{i}");
        ops::create(fs, &dir, name.as_bytes(), &new(FileType::Regular, i)).unwrap();
        if i % 5 == 4 {
            ops::unlink(fs, &dir, name.as_bytes()).unwrap();
        }
    }
}

fn open_read_only(image: &Image) -> Arc<Fs> {
    image.open_with(MountOptions::read_only())
}

#[test]
fn every_inode_is_visited_once_where_groups_end_inside_leaves() {
    let image = Image::new(UNEVEN);
    let fs = image.open();
    assert_eq!(fs.geometry().inodes_per_group() % 16, 8);
    assert!(fs.geometry().groups_count() > 3);
    fill(&fs);
    let expected = super::named(&fs);
    assert!(expected.len() as i64 > FILES * 4 / 5);
    // In memory, all of them.
    assert_all(&fs, &expected);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path);
    for open in [Image::open, open_read_only] {
        // In the tables, all of them; then some in memory, which others are not.
        let fs = open(&image);
        assert_eq!(bulkstat(&fs, BulkstatWay::Tables), expected);
        for (ino, _) in expected.iter().filter(|(ino, _)| ino % 3 == 0) {
            fs.inode(Ino::new(*ino)).unwrap();
        }
        assert_eq!(bulkstat(&fs, BulkstatWay::Tables), expected);
        assert_eq!(bulkstat(&fs, BulkstatWay::Cache), expected);
        assert_all(&fs, &expected);
        drop(fs);
    }
}

#[test]
fn a_damaged_record_is_told_and_its_neighbours_are_visited() {
    let image = Image::new(UNEVEN);
    let fs = image.open();
    fill(&fs);
    fs.close().unwrap();
    let expected = super::named(&fs);
    let (damaged, _) = expected[expected.len() / 2];
    let (block, offset) = fs.locate_inode(Ino::new(damaged)).unwrap();
    let at = fs.block_size().offset_of(block).unwrap() + offset as u64;
    drop(fs);
    // A time, in the second half of the record what nobody reads, and the checksum.
    for field in [0x10, 0xf0, 0x7c, 0x82] {
        let image = image.copy();
        let mut both = std::fs::File::options();
        let file = both.read(true).write(true).open(&image.path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at + field).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], at + field).unwrap();
        for (open, way) in [
            (Image::open as fn(&Image) -> _, BulkstatWay::Tables),
            (Image::open, BulkstatWay::Cache),
            (open_read_only, BulkstatWay::Tables),
            (open_read_only, BulkstatWay::Cache),
        ] {
            let fs = open(&image);
            let told = Mutex::new((Vec::new(), Vec::new()));
            let visited = fs.bulkstat(Bulkstat { way, threads: 1 }, |ino, found| {
                let mut told = told.lock().unwrap();
                match found {
                    Ok(found) => told.0.push((ino.get(), found.mtime.secs)),
                    Err(e) => told.1.push((ino.get(), e.is_corruption())),
                }
            });
            let (found, wrong) = told.into_inner().unwrap();
            assert_eq!(wrong, [(damaged, true)], "{field:#x} {way:?}");
            assert_eq!(visited, found.len() as u64);
            let others = expected.iter().filter(|(ino, _)| *ino != damaged);
            assert!(found.iter().eq(others), "{field:#x} {way:?}");
        }
    }
}
