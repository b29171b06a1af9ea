//! Blocks that several threads want, give back and keep ready.

use super::{World, create, explore, image, image_with, open_with_memory};
use extant_core::data::FallocateMode;
use extant_core::inode::Held;
use extant_core::{Error, ops};
use extant_sync::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are more than a third of the image, and less than half of it.
const MUCH: u64 = 700 << 10;

fn reserve(world: &World, file: &Held, offset: u64, len: u64) -> thread::JoinHandle<bool> {
    let (fs, file) = (Arc::clone(&world.fs), file.clone());
    thread::spawn(
        move || match ops::fallocate(&fs, &file, offset, len, FallocateMode::default()) {
            Ok(()) => true,
            Err(Error::NoSpace) => false,
            Err(e) => panic!("{e}"),
        },
    )
}

fn blocks_free(world: &World) -> u64 {
    world.fs.sync().unwrap();
    world.fs.statfs().unwrap().free
}

/// There is one group: a thread that finds it in use passes by all criteria but the last, and there
/// waits for it.
#[test]
fn a_group_in_use_is_passed_by_but_not_taken_for_a_full_one() {
    let image = image();
    explore("a_group_in_use_is_passed_by", move || {
        let world = World::new(&image);
        let before = blocks_free(&world);
        let files = ["a", "b"].map(|name| create(&world.fs, &world.root(), name).unwrap());
        let threads = files
            .each_ref()
            .map(|file| reserve(&world, file, 0, 100 << 10));
        for thread in threads {
            assert!(thread.join().unwrap());
        }
        assert_eq!(blocks_free(&world), before - 200);
        drop(files);
        world.finish(&[&["a", "b"]]);
    });
}

/// There are many small groups: a thread that finds the group where its file should begin in use
/// goes to another one, in some schedules.
#[test]
fn whoever_meets_another_in_a_group_goes_elsewhere() {
    static TOGETHER: AtomicUsize = AtomicUsize::new(0);
    static APART: AtomicUsize = AtomicUsize::new(0);
    let image = image_with(4 << 20, &["-g", "256"]);
    explore("whoever_meets_another_goes_elsewhere", move || {
        let world = World::new(&image);
        // The first and the last begin in the same group, by their numbers: there are at most four
        // places of goals.
        let names: Vec<String> = (0..13).map(|i| format!("{i:02}")).collect();
        let made = names
            .iter()
            .map(|name| create(&world.fs, &world.root(), name).unwrap());
        let made: Vec<Held> = made.collect();
        let files = [made[0].clone(), made[12].clone()];
        drop(made);
        // Of more than a small file.
        let threads = files
            .each_ref()
            .map(|file| reserve(&world, file, 100 << 10, 8 << 10));
        for thread in threads {
            assert!(thread.join().unwrap());
        }
        let groups = files.each_ref().map(|file| {
            let first = ops::extents_live(&world.fs, file).unwrap();
            first[0].device_offset.unwrap() >> 18
        });
        let seen = if groups[0] == groups[1] {
            &TOGETHER
        } else {
            &APART
        };
        seen.fetch_add(1, Ordering::Relaxed);
        drop(files);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        world.finish(&[&names]);
    });
    let seen = [&TOGETHER, &APART].map(|seen| seen.load(Ordering::Relaxed));
    assert!(!seen.contains(&0), "{seen:?}");
}

/// The one uses what is kept ready for its file while the other, which finds no space, has that
/// given back.
#[test]
fn what_is_kept_ready_is_used_by_one_of_those_who_want_it() {
    let image = image();
    explore("what_is_kept_ready_is_used_by_one", move || {
        let world = World::new(&image);
        let before = blocks_free(&world);
        let files = ["a", "b"].map(|name| create(&world.fs, &world.root(), name).unwrap());
        // Past what a small file has, so that there is something kept for its next blocks.
        assert!(reserve(&world, &files[0], 0, 130 << 10).join().unwrap());
        let all = world.fs.statfs().unwrap().available << 10;
        let threads = [
            reserve(&world, &files[0], 130 << 10, 60 << 10),
            reserve(&world, &files[1], 0, all - (80 << 10)),
        ];
        for thread in threads {
            assert!(thread.join().unwrap(), "all of it fits");
        }
        assert!(blocks_free(&world) < before);
        drop(files);
        world.finish(&[&["a", "b"]]);
    });
}

/// The one frees blocks and the other needs them: they come with a commit, which a third one makes
/// too.
#[test]
fn freed_blocks_come_back_with_the_commit_and_once() {
    let image = image();
    explore("freed_blocks_come_back_with_the_commit", move || {
        let world = World::new(&image);
        let files = ["a", "b"].map(|name| create(&world.fs, &world.root(), name).unwrap());
        assert!(reserve(&world, &files[0], 0, MUCH).join().unwrap());
        let before = blocks_free(&world);
        let truncating = {
            let (fs, file) = (Arc::clone(&world.fs), files[0].clone());
            thread::spawn(move || ops::truncate(&fs, &file, 0).unwrap())
        };
        let reserving = reserve(&world, &files[1], 0, before << 9);
        let fs = Arc::clone(&world.fs);
        let committing = thread::spawn(move || fs.sync().unwrap());
        truncating.join().unwrap();
        committing.join().unwrap();
        assert!(reserving.join().unwrap());
        let free = blocks_free(&world);
        assert_eq!(free, before + (MUCH >> 10) - (before / 2));
        drop(files);
        world.finish(&[&["a", "b"]]);
    });
}

/// More groups than may stay in memory: while one thread has some loaded, and others leave for
/// them, others want blocks in these, give some back, or commit.
#[test]
fn groups_leave_memory_and_come_back_with_what_they_had() {
    /// Room for the bitmaps of as few groups as there may be.
    const SHORT: usize = 1 << 18;
    let image = image_with(8 << 20, &["-g", "256"]);
    explore("groups_leave_memory_and_come_back", move || {
        let world = World::with(&image, |device| open_with_memory(device, SHORT));
        let before = blocks_free(&world);
        let files = ["a", "b"].map(|name| create(&world.fs, &world.root(), name).unwrap());
        // Those of the first file are as the device has them when those of the second one come.
        for file in &files {
            assert!(reserve(&world, file, 0, 3 << 20).join().unwrap());
            world.fs.sync().unwrap();
        }
        for file in &files {
            ops::truncate(&world.fs, file, 64 << 10).unwrap();
            world.fs.sync().unwrap();
        }
        let threads = files.each_ref().map(|file| {
            let (fs, file) = (Arc::clone(&world.fs), file.clone());
            thread::spawn(move || {
                let mode = FallocateMode::default();
                ops::fallocate(&fs, &file, 64 << 10, 1 << 20, mode).unwrap();
                ops::truncate(&fs, &file, 100 << 10).unwrap();
                ops::fallocate(&fs, &file, 0, 2 << 20, mode).unwrap();
            })
        });
        let fs = Arc::clone(&world.fs);
        let committing = thread::spawn(move || fs.sync().unwrap());
        for thread in threads.into_iter().chain([committing]) {
            thread.join().unwrap();
        }
        // What maps them takes a few more.
        let taken = before - blocks_free(&world);
        assert!((4096..4130).contains(&taken), "{taken}");
        drop(files);
        world.finish(&[&["a", "b"]]);
    });
}
