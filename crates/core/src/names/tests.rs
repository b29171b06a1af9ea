//! The name cache against what directories say, while names change.

use crate::fs::{Fs, MountOptions};
use crate::inode::{FileType, Held};
use crate::lifecycle::NewInode;
use crate::{Error, dir, ops};
use extant_blockdev::SharedDevice;
use extant_format::Ino;
use extant_format::inode::Timestamp;
use extant_testkit::crash::Content;
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use std::sync::Arc;
use tempfile::TempDir;

fn image() -> SharedDevice {
    let temp = TempDir::new().unwrap();
    let path = temp.path().join("image");
    mke2fs(&path, 24 << 20, &["-t", "ext4", "-b", "1024"]);
    Content::of_file(&path).open()
}

fn open(device: &SharedDevice, memory: usize) -> Arc<Fs> {
    let options = MountOptions::read_write().background(false);
    Fs::open(Arc::clone(device), options.memory(memory)).unwrap()
}

fn new(file_type: FileType) -> NewInode {
    NewInode::new(file_type, 0o755, Timestamp::from_secs(1_700_000_000))
}

/// Does something to one of a few names, whatever comes of it.
fn change(fs: &Fs, dirs: &[Held], rng: &mut Rng) {
    let name = |rng: &mut Rng| format!("name{}", rng.below(12)).into_bytes();
    let (dir, one) = (rng.pick(dirs), name(rng));
    let outcome = match rng.below(6) {
        0 | 1 => ops::create(fs, dir, &one, &new(FileType::Regular))
            .and_then(|held| ops::release(fs, held)),
        2 | 3 => ops::unlink(fs, dir, &one),
        4 => {
            let (to, other) = (rng.pick(dirs), name(rng));
            ops::rename(fs, dir, &one, to, &other)
        }
        _ => fs.lookup_name(dir, &one).map(drop),
    };
    match outcome {
        Ok(()) | Err(Error::NotFound | Error::Exists | Error::Stale) => {}
        Err(e) => panic!("{e}"),
    }
}

/// Every name the cache knows must be what the directory says.
fn compare(fs: &Fs, dirs: &[Held]) {
    for dir in dirs {
        for i in 0..12 {
            let name = format!("name{i}").into_bytes();
            let said = dir::find(fs, dir, &name).unwrap().map(|found| found.ino);
            if let Some(known) = fs.names().get(dir.ino(), &name) {
                assert_eq!(known.map(|id| id.ino), said, "{i}");
            }
            let found = fs.lookup_name(dir, &name).unwrap();
            assert_eq!(found.map(|id| id.ino), said);
        }
    }
}

#[test]
fn the_cache_says_what_directories_say_while_threads_change_them() {
    let seed = seed_from_env("the_cache_says_what_directories_say");
    for memory in [64 << 10, 32 << 20] {
        let device = image();
        let fs = open(&device, memory);
        let root = fs.hold(Ino::ROOT).unwrap();
        let dirs: Vec<_> = (0..2)
            .map(|i| {
                let name = format!("dir{i}");
                ops::mkdir(&fs, &root, name.as_bytes(), &new(FileType::Directory)).unwrap()
            })
            .collect();
        for round in 0..8 {
            std::thread::scope(|scope| {
                for id in 0..4 {
                    let (fs, dirs) = (&fs, &dirs);
                    let mut rng = Rng::new(seed ^ (round << 8) ^ id);
                    scope.spawn(move || {
                        for _ in 0..150 {
                            change(fs, dirs, &mut rng);
                        }
                    });
                }
            });
            compare(&fs, &dirs);
        }
        drop((dirs, root));
        fs.close().unwrap();
        let temp = TempDir::new().unwrap();
        let path = temp.path().join("image");
        Content::of_device(&*device)
            .unwrap()
            .write_to(&path)
            .unwrap();
        assert_clean(&path);
    }
}

#[test]
fn a_directory_of_a_used_number_has_no_names_of_the_one_before() {
    let device = image();
    let fs = open(&device, 32 << 20);
    let root = fs.hold(Ino::ROOT).unwrap();
    let mut numbers = Vec::new();
    for round in 0..6 {
        let held = ops::mkdir(&fs, &root, b"dir", &new(FileType::Directory)).unwrap();
        numbers.push(held.ino());
        for i in 0..8 {
            let name = format!("name{i}").into_bytes();
            assert_eq!(fs.lookup_name(&held, &name).unwrap(), None, "{round}");
        }
        for i in 0..8 {
            let name = format!("name{i}").into_bytes();
            let file = ops::create(&fs, &held, &name, &new(FileType::Regular)).unwrap();
            let found = fs.lookup_name(&held, &name).unwrap();
            assert_eq!(found.map(|id| id.ino), Some(file.ino()));
            ops::release(&fs, file).unwrap();
        }
        compare(&fs, std::slice::from_ref(&held));
        for i in 0..8 {
            let name = format!("name{i}").into_bytes();
            if i % 2 == 0 {
                ops::unlink(&fs, &held, &name).unwrap();
            } else {
                ops::rename(&fs, &held, &name, &root, &name).unwrap();
            }
        }
        ops::release(&fs, held).unwrap();
        ops::rmdir(&fs, &root, b"dir").unwrap();
        fs.sync().unwrap();
    }
    numbers.dedup();
    assert!(numbers.len() < 6, "no number was used again: {numbers:?}");
}
