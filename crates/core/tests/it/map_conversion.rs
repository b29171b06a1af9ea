//! Maps that become those of another kind: `chattr -e` and `chattr +e`.

use crate::support::{Image, pattern};
use extant_blockdev::FileDevice;
use extant_core::data::{self, FallocateMode, WriteOptions};
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::{Error, Result, ops};
use extant_format::inode::InodeFlags;
use extant_format::{Ino, Lblk};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NONE: InodeFlags = InodeFlags::empty();

fn to_pointers(fs: &Fs, held: &Held) -> Result<()> {
    ops::chattr(fs, held, NONE, InodeFlags::EXTENTS)
}

fn to_extents(fs: &Fs, held: &Held) -> Result<()> {
    ops::chattr(fs, held, InodeFlags::EXTENTS, NONE)
}

fn has_extents(held: &Held) -> bool {
    held.snapshot().flags().contains(InodeFlags::EXTENTS)
}

fn content(fs: &Fs, held: &Held) -> Vec<u8> {
    let mut bytes = vec![0xaa; held.live_size() as usize + 10];
    let len = data::read_live(fs, held, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// Where the data lies.
fn places(fs: &Fs, held: &Held) -> BTreeMap<u64, u64> {
    let image = held.snapshot();
    let end = fs.block_size().blocks_for(image.size());
    (0..end)
        .filter_map(|block| {
            let run = extant_core::map::lookup(fs, &image, Lblk::new(block as u32)).unwrap();
            run.target.pblk().map(|pblk| (block, pblk.get()))
        })
        .collect()
}

fn make(fs: &Fs, dir: &Held, name: &str) -> Held {
    let new = NewInode::new(FileType::Regular, 0o644, ops::now());
    ops::create(fs, dir, name.as_bytes(), &new).unwrap()
}

/// A write in a random place, a piece cut off, or a hole; also in what it is to become.
fn disturb(fs: &Fs, held: &Held, model: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(1 << 21) as usize;
    let len = 1 + rng.below(5000) as usize;
    match rng.below(10) {
        0 => {
            data::truncate(fs, held, at as u64).unwrap();
            model.resize(at, 0);
        }
        1 => {
            let options = WriteOptions::default();
            data::punch_hole(fs, held, at as u64, len as u64, options).unwrap();
            let end = model.len();
            model[at.min(end)..(at + len).min(end)].fill(0);
        }
        _ => {
            let bytes = pattern(rng.below(1 << 40), len);
            data::write_at(fs, held, at as u64, &bytes).unwrap();
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&bytes);
        }
    }
}

#[test]
fn a_file_keeps_its_content_and_its_blocks_whichever_map_it_has() {
    let seed = seed_from_env("maps of both kinds");
    let mut rng = Rng::new(seed);
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^64bit,^huge_file",
        ],
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    ] {
        let image = Image::make(48, options, |_| ());
        let fs = image.open_writable();
        let root = fs.hold(Ino::ROOT).unwrap();
        let file = make(&fs, &root, "file");
        let mut model = Vec::new();
        for round in 0..40 {
            for _ in 0..rng.below(20) {
                disturb(&fs, &file, &mut model, &mut rng);
            }
            if rng.below(3) == 0 {
                fs.sync().unwrap();
            }
            data::writeback(&fs, &file, 0..u64::MAX).unwrap();
            let before = places(&fs, &file);
            if has_extents(&file) {
                to_pointers(&fs, &file).unwrap()
            } else {
                to_extents(&fs, &file).unwrap()
            }
            assert_eq!(has_extents(&file), round % 2 == 1);
            assert_eq!(before, places(&fs, &file), "seed {seed}, round {round}");
            assert!(content(&fs, &file) == model, "seed {seed}, round {round}");
        }
        drop((file, root));
        fs.close().unwrap();
        assert_clean(&image.path());
        let fs = image.open();
        let file = image.inode(&fs, "file");
        assert!(crate::support::content(&fs, &file) == model, "seed {seed}");
    }
}

#[test]
fn what_was_turned_is_what_linux_reads_and_writes() {
    require!(Root, LoopDevices, KernelExt4);
    let image = Image::make(48, &["-t", "ext4", "-b", "1024"], |tree| {
        std::fs::write(tree.join("small"), pattern(1, 5000)).unwrap();
        std::fs::write(tree.join("large"), pattern(2, 3 << 20)).unwrap();
        std::fs::create_dir(tree.join("dir")).unwrap();
        for n in 0..600 {
            std::fs::write(tree.join(format!("dir/file number {n}")), b"").unwrap();
        }
    });
    for back in [false, true] {
        let fs = image.open_writable();
        for name in ["small", "large", "dir"] {
            let held = fs.hold(image.ino(name)).unwrap();
            assert_eq!(has_extents(&held), !back, "{name}");
            if back {
                to_extents(&fs, &held).unwrap()
            } else {
                to_pointers(&fs, &held).unwrap()
            }
        }
        let dir = fs.hold(image.ino("dir")).unwrap();
        for n in 0..50 {
            make(&fs, &dir, &format!("made later {back} {n}"));
        }
        drop(dir);
        fs.close().unwrap();
        assert_clean(&image.path());
        let stat = debugfs(&image.path(), "stat large");
        assert_eq!(stat.contains("(IND)"), !back, "{stat}");
        let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
        let at = |name: &str| mount.path().join(name);
        assert!(std::fs::read(at("small")).unwrap() == pattern(1, 5000));
        assert!(std::fs::read(at("large")).unwrap() == pattern(2, 3 << 20));
        let names = std::fs::read_dir(at("dir")).unwrap().count();
        assert_eq!(names, if back { 750 } else { 650 });
        for n in 0..50 {
            std::fs::write(at(&format!("dir/by Linux {back} {n}")), b"").unwrap();
        }
        mount.unmount();
        assert_clean(&image.path());
    }
}

#[test]
fn files_of_ext3_become_those_of_ext4() {
    let image = Image::make(32, &["-t", "ext3", "-b", "1024"], |tree| {
        std::fs::write(tree.join("file"), pattern(3, 2 << 20)).unwrap();
        std::fs::write(tree.join("empty"), b"").unwrap();
    });
    let fs = image.open_writable();
    let file = fs.hold(image.ino("file")).unwrap();
    let refused = to_extents(&fs, &file);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    drop(file);
    fs.close().unwrap();
    drop(fs);
    tool("tune2fs")
        .args(["-O", "extents"])
        .arg(image.path())
        .ok();
    let fs = image.open_writable();
    let space = || fs.statfs().unwrap().free;
    let before = space();
    for name in ["file", "empty"] {
        let held = fs.hold(image.ino(name)).unwrap();
        to_extents(&fs, &held).unwrap();
        assert!(has_extents(&held));
    }
    assert!(space() > before, "the indirect blocks are still there");
    let held = fs.hold(image.ino("file")).unwrap();
    assert!(content(&fs, &held) == pattern(3, 2 << 20));
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn what_the_other_kind_cannot_say_stays_as_it_is() {
    let image = Image::make(16, &["-t", "ext4", "-b", "1024"], |tree| {
        std::fs::write(tree.join("file"), pattern(4, 9000)).unwrap();
    });
    let fs = image.open_writable();
    let held = fs.hold(image.ino("file")).unwrap();
    let mode = FallocateMode { keep_size: true };
    data::fallocate(&fs, &held, 20_000, 9000, mode, WriteOptions::default()).unwrap();
    let refused = to_pointers(&fs, &held);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    data::truncate(&fs, &held, 9000).unwrap();
    // 12 + 256 + 256² + 256³ blocks.
    data::truncate(&fs, &held, 16_843_021 << 10).unwrap();
    let refused = to_pointers(&fs, &held);
    assert!(matches!(refused, Err(Error::FileTooLarge)), "{refused:?}");
    assert!(has_extents(&held));
    data::truncate(&fs, &held, 9000).unwrap();
    to_pointers(&fs, &held).unwrap();
    // Flags that have nothing to do with it change along, or none does.
    ops::chattr(&fs, &held, InodeFlags::EXTENTS | InodeFlags::NO_DUMP, NONE).unwrap();
    assert!(has_extents(&held) && held.snapshot().flags().contains(InodeFlags::NO_DUMP));
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());

    let image = Image::make(
        16,
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
        |tree| {
            std::fs::write(tree.join("file"), pattern(4, 9000)).unwrap();
        },
    );
    let fs = image.open_writable();
    let held = fs.hold(image.ino("file")).unwrap();
    let refused = to_pointers(&fs, &held);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    drop(held);
    drop(fs);
    let without_map = [
        "set_inode_field file flags 0",
        "set_inode_field file block[0] 0",
    ];
    debugfs_write(&image.path(), &without_map);
    let fs = image.open_writable();
    let held = fs.hold(image.ino("file")).unwrap();
    let refused = to_extents(&fs, &held);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

/// An extent ends after 32,768 blocks, however long the piece is, and more than four need a leaf.
#[test]
fn a_long_piece_becomes_many_extents() {
    let image = Image::make(
        400,
        &["-t", "ext4", "-b", "1024", "-E", "packed_meta_blocks=1"],
        |_| (),
    );
    let fs = image.open_writable();
    let root = fs.hold(Ino::ROOT).unwrap();
    let file = make(&fs, &root, "file");
    let piece = pattern(5, 1 << 20);
    for n in 0..180 {
        data::write_at(&fs, &file, n << 20, &piece).unwrap();
    }
    fs.sync().unwrap();
    to_pointers(&fs, &file).unwrap();
    fs.sync().unwrap();
    to_extents(&fs, &file).unwrap();
    fs.sync().unwrap();
    let mut bytes = vec![0; 1 << 20];
    for n in [0, 31, 90, 179] {
        data::read_live(&fs, &file, n << 20, &mut bytes).unwrap();
        assert!(bytes == piece, "MiB {n}");
    }
    drop((file, root));
    fs.close().unwrap();
    assert_clean(&image.path());
    let stat = debugfs(&image.path(), "stat file");
    assert!(stat.contains("(ETB0)"), "it fits the inode: {stat}");
}

#[test]
fn names_are_found_while_the_map_of_their_directory_becomes_another() {
    const NAMES: usize = 400;
    let seed = seed_from_env("lookups and maps");
    let image = Image::make(24, &["-t", "ext4", "-b", "1024"], |_| ());
    let device = FileDevice::open(image.path()).unwrap();
    // So little that lookups read nodes and blocks of names anew.
    let options = MountOptions::read_write()
        .background(false)
        .memory(64 << 10);
    let fs = Fs::open(Arc::new(device), options).unwrap();
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode::new(FileType::Directory, 0o755, ops::now());
    let dir = ops::mkdir(&fs, &root, b"dir", &new).unwrap();
    let name = |n: usize| format!("{n} {}", "long".repeat(25));
    for n in 0..NAMES {
        let file = make(&fs, &dir, &name(n));
        // Its block is where the directory would go on.
        data::write_at(&fs, &file, 0, &[1; 1024]).unwrap();
        data::writeback(&fs, &file, 0..u64::MAX).unwrap();
    }
    fs.sync().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (fs, dir, done) = (&fs, &dir, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(seed + thread);
                while !done.load(Ordering::Relaxed) {
                    let wanted = rng.below(NAMES as u64) as usize;
                    let found = ops::lookup_held(fs, dir, name(wanted).as_bytes());
                    assert!(found.is_ok(), "seed {seed}, {wanted}: {found:?}");
                    let none = ops::lookup_held(fs, dir, b"there is none");
                    assert!(
                        matches!(none, Err(Error::NotFound)),
                        "seed {seed}: {none:?}"
                    );
                }
            });
        }
        for round in 0..300 {
            let turned = if has_extents(&dir) {
                to_pointers(&fs, &dir)
            } else {
                to_extents(&fs, &dir)
            };
            if turned.is_err() || fs.checkpoint().is_err() {
                done.store(true, Ordering::Relaxed);
                panic!("round {round}: {turned:?}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    drop((dir, root));
    fs.close().unwrap();
    assert_clean(&image.path());
}
