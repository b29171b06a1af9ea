//! Memory that is given up on request, and what must stay.

use crate::memory::{create, image, open, options, read, write};
use crate::support::pattern;
use extant_core::fs::{DataMode, Shed};
use extant_core::ops;
use extant_format::Ino;
use extant_testkit::oracle::assert_clean;

const MIB: usize = 1 << 20;

#[test]
fn what_nobody_used_since_the_last_time_goes_and_what_is_dirty_stays() {
    let image = image(64, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Delayed));
    let [used, unused, dirty] = ["used", "unused", "dirty"].map(|name| create(&fs, name));
    let bytes = pattern(1, MIB);
    write(&fs, &used, 0, &bytes);
    write(&fs, &unused, 0, &bytes);
    ops::syncfs(&fs).unwrap();
    write(&fs, &dirty, 0, &bytes);
    let cached = || fs.data_stats().cached_bytes as usize;
    assert!(cached() >= 3 * MIB);
    // They were all used since nobody asked.
    fs.shed(Shed::Unused);
    assert!(cached() >= 3 * MIB, "{}", cached());
    assert_eq!(read(&fs, &used, 0, MIB), bytes);
    fs.shed(Shed::Unused);
    let left = cached();
    assert!((2 * MIB..3 * MIB).contains(&left), "{left}");
    fs.shed(Shed::Unused);
    let left = cached();
    assert!((MIB..2 * MIB).contains(&left), "{left}");
    assert_eq!(fs.data_stats().dirty_bytes as usize, MIB);
    for held in [&used, &unused, &dirty] {
        assert_eq!(read(&fs, held, 0, MIB), bytes);
    }
    drop((used, unused, dirty));
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn what_is_known_of_the_map_of_a_file_stays_while_it_is_used() {
    const BLOCK: usize = 4096;
    const PIECES: u64 = 20;
    let image = image(64, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Delayed));
    // With holes, so that its extents have a block of their own.
    let held = create(&fs, "file");
    let bytes = pattern(4, BLOCK);
    let at = |piece: u64| piece * 2 * BLOCK as u64;
    (0..PIECES).for_each(|piece| write(&fs, &held, at(piece), &bytes));
    ops::syncfs(&fs).unwrap();
    let read_past_memory = || {
        let before = fs.cache().stats();
        for piece in 0..PIECES {
            let mut buf = vec![0; BLOCK];
            let read = ops::pread_direct(&fs, &held, at(piece), &mut buf);
            assert_eq!((read.unwrap(), &buf), (BLOCK, &bytes));
        }
        let after = fs.cache().stats();
        after.hits + after.misses - before.hits - before.misses
    };
    read_past_memory();
    assert_eq!(read_past_memory(), 0, "blocks of the map are not asked for");
    for _ in 0..3 {
        fs.shed(Shed::Unused);
        assert_eq!(read_past_memory(), 0);
    }
    fs.shed(Shed::Unused);
    fs.shed(Shed::Unused);
    assert!(read_past_memory() > 0, "what nobody used went");
    fs.shed(Shed::All);
    assert!(read_past_memory() > 0);
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn all_that_can_be_had_again_goes_when_memory_is_short() {
    let image = image(64, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Delayed));
    let bytes = pattern(2, 3000);
    let inos: Vec<Ino> = (0..500)
        .map(|number| {
            let held = create(&fs, &format!("file-{number}"));
            write(&fs, &held, 0, &bytes);
            held.ino()
        })
        .collect();
    let open_file = create(&fs, "open");
    write(&fs, &open_file, 0, &bytes);
    // Of the journal's transactions the records are needed until they are durable, and their images
    // until they are in place.
    ops::syncfs(&fs).unwrap();
    let before = fs.cache().stats();
    fs.shed(Shed::All);
    let after = fs.cache().stats();
    assert_eq!(fs.data_stats().dirty_bytes, 0);
    let cached = fs.data_stats().cached_bytes;
    assert!(cached < 64 << 10, "{cached} bytes of data are left");
    assert!(after.blocks <= before.blocks, "{before:?}, {after:?}");
    for ino in inos.iter().step_by(50) {
        let held = fs.hold(*ino).unwrap();
        assert_eq!(read(&fs, &held, 0, 4096), bytes);
    }
    assert_eq!(read(&fs, &open_file, 0, 4096), bytes);
    drop(open_file);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn what_was_only_read_goes_with_its_metadata() {
    let image = image(64, &["-b", "4096"]);
    {
        let fs = open(&image, options(DataMode::Delayed));
        for number in 0..500 {
            let held = create(&fs, &format!("file-{number}"));
            write(&fs, &held, 0, &pattern(3, 5000));
        }
        fs.close().unwrap();
    }
    let fs = open(&image, options(DataMode::Delayed));
    let root = fs.hold(Ino::ROOT).unwrap();
    for number in 0..500 {
        let held = ops::lookup_held(&fs, &root, format!("file-{number}").as_bytes()).unwrap();
        assert_eq!(read(&fs, &held, 0, 5000), pattern(3, 5000));
    }
    let before = fs.cache().stats().blocks;
    assert!(before > 30, "{before}");
    fs.shed(Shed::All);
    let after = fs.cache().stats().blocks;
    assert!(after <= before / 4, "{before} blocks, then {after}");
    assert_eq!(fs.data_stats().cached_bytes, 0);
    let held = ops::lookup_held(&fs, &root, b"file-7").unwrap();
    assert_eq!(read(&fs, &held, 0, 5000), pattern(3, 5000));
    drop((held, root));
    fs.close().unwrap();
    assert_clean(&image.path());
}
