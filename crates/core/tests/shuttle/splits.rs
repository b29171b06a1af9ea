//! Blocks of names that are split, and an index that grows, while others look, list, add and remove
//! in the directory.
//!
//! Names are so long that three fill a block, and blocks are full from the start: each new name
//! splits one.

use super::{World, check_sometimes, create, explore, names_in, open_and_close};
use extant_core::inode::Held;
use extant_core::ops;
use extant_format::Ino;
use extant_sync::thread;
use extant_testkit::oracle::{debugfs, e2fsck, mke2fs};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A name of 250 letters, three of which fill a block of 1 KiB.
fn long(stem: &str, number: usize) -> String {
    format!("{stem}{number:03}-{}", "x".repeat(246 - stem.len()))
}

/// An image with `/dir`, which has an index and in it names, `blocks` full blocks of them.
fn image(blocks: usize) -> Arc<[u8]> {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("source");
    std::fs::create_dir_all(source.join("dir")).unwrap();
    for number in 0..blocks * 3 {
        std::fs::write(source.join("dir").join(long("old", number)), b"").unwrap();
    }
    let path = scratch.path().join("image");
    let inodes = (blocks * 3 + 64).to_string();
    let source = source.to_str().unwrap();
    // The same seed each time: so names go to the same blocks.
    let seed = "hash_seed=6c1f5d5a-7e8b-4f6f-9d7a-2b3c4d5e6f70";
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-E", seed];
    let more = ["-N", &inodes, "-d", source];
    mke2fs(&path, 3 << 20, &[&options[..], &more].concat());
    // Sorts the names into full blocks, and makes the index. 1: something was changed.
    let done = e2fsck(&path, &["-fyD"]);
    assert!(done.code <= 1, "{done}");
    let index = debugfs(&path, "htree_dump /dir");
    let count = format!("Number of entries (count): {blocks}\n");
    assert!(index.contains("Indirect levels: 0\n"), "{index}");
    assert!(index.contains(&count), "{index}");
    std::fs::read(&path).unwrap().into()
}

/// Two threads that each make new names, one that looks names up, and one that removes a name,
/// lists, and makes what it saw durable.
fn scenario(image: &[u8], blocks: usize, each: usize) {
    let world = World::new(image);
    let dir = ops::lookup_held(&world.fs, &world.root(), b"dir").unwrap();
    let ino = dir.ino();
    let olds: BTreeSet<String> = (0..blocks * 3).map(|n| long("old", n)).collect();
    let gone = long("old", 1);
    let stay: BTreeSet<String> = olds.iter().filter(|n| **n != gone).cloned().collect();

    let creator = |stem: &'static str| {
        let (fs, dir) = (Arc::clone(&world.fs), dir.clone());
        thread::spawn(move || {
            for number in 0..each {
                let name = long(stem, number);
                let made = create(&fs, &dir, &name).unwrap().id();
                let found = ops::lookup_held(&fs, &dir, name.as_bytes()).unwrap();
                assert_eq!(found.id(), made);
            }
        })
    };
    let creators = [creator("a"), creator("b")];
    let looks = {
        let (fs, dir) = (Arc::clone(&world.fs), dir.clone());
        thread::spawn(move || {
            // Some of every part of the directory.
            for number in (2..blocks * 3).step_by(blocks / 2) {
                let name = long("old", number);
                let found = ops::lookup_held(&fs, &dir, name.as_bytes());
                assert!(found.is_ok(), "old name {number}: {found:?}");
            }
        })
    };
    let seen = list(&world, ino, &stay);
    ops::unlink(&world.fs, &dir, gone.as_bytes()).unwrap();
    // A large directory takes long to list: there once is enough.
    let later = if blocks < 10 {
        list(&world, ino, &stay)
    } else {
        stay.union(&seen).filter(|n| **n != gone).cloned().collect()
    };
    assert!(!later.contains(&gone), "what was removed is listed");
    let is_new = |name: &&String| !olds.contains(*name);
    for name in seen.iter().filter(is_new) {
        assert!(later.contains(name), "{name} is not listed again");
    }
    ops::syncfs(&world.fs).unwrap();
    let recovered = names_in(&open_and_close(&world.copy()), ino);
    for name in stay.iter().chain(later.iter().filter(is_new)) {
        assert!(recovered.contains_key(name), "{name} is lost by a crash");
    }
    for thread in creators.into_iter().chain([looks]) {
        thread.join().unwrap();
    }
    finish(world, dir, stay, each);
}

/// The names that a listing has: those that stay among them.
fn list(world: &World, dir: Ino, stay: &BTreeSet<String>) -> BTreeSet<String> {
    let listed: BTreeSet<String> = names_in(&world.fs, dir).into_keys().collect();
    let missing: Vec<_> = stay.difference(&listed).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    listed
}

/// Closes the file system and requires what stayed and what was made, and no other name.
fn finish(world: World, dir: Held, mut expected: BTreeSet<String>, each: usize) {
    let ino = dir.ino();
    for name in expected.iter().step_by(1 + expected.len() / 36) {
        let found = ops::lookup_held(&world.fs, &dir, name.as_bytes());
        assert!(found.is_ok(), "{name}: {found:?}");
    }
    drop(dir);
    world.fs.close().unwrap();
    for stem in ["a", "b"] {
        expected.extend((0..each).map(|number| long(stem, number)));
    }
    let found = names_in(&open_and_close(&world.device), ino);
    assert!(found.keys().eq(&expected), "{:?}", found.keys());
    check_sometimes(&world.device);
}

#[test]
fn blocks_of_names_are_split_while_others_use_the_directory() {
    const BLOCKS: usize = 3;
    let image = image(BLOCKS);
    explore("blocks_of_names_are_split", move || {
        scenario(&image, BLOCKS, 2);
    });
}

#[test]
fn an_index_gets_another_level_while_others_use_the_directory() {
    // As many as a root of 1 KiB can name.
    const BLOCKS: usize = 123;
    // Only one schedule in so many has such a directory, which takes long to read.
    const EACH: u64 = 4;
    let (large, small) = (image(BLOCKS), image(3));
    let schedules = Arc::new(AtomicU64::new(0));
    explore("an_index_gets_another_level", move || {
        match schedules.fetch_add(1, Ordering::Relaxed) % EACH {
            0 => scenario(&large, BLOCKS, 1),
            _ => scenario(&small, 3, 1),
        }
    });
}
