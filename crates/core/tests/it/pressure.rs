//! What memory holds of files and for how long, and what the device is asked for.

use crate::memory::{create, free, image, open, options, read, write};
use crate::support::{Image, pattern};
use extant_blockdev::FileDevice;
use extant_core::fs::{DataMode, Fs, MountOptions};
use extant_core::inode::Held;
use extant_core::ops::{self, FallocateMode};
use extant_testkit::crash::FaultDevice;
use extant_testkit::oracle::assert_clean;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Bytes of the file that is read.
const LARGE: u64 = 8 << 20;

/// An image with a file, whose map is known once it was looked at, and the device, which counts.
fn with_large_file() -> (Image, Arc<FaultDevice>, Arc<Fs>, Held) {
    let image = image(64, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Delayed));
    write(&fs, &create(&fs, "a"), 0, &pattern(1, LARGE as usize));
    fs.close().unwrap();
    drop(fs);
    let device = FileDevice::open(image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(Arc::new(device)));
    let fs = Fs::open(device.clone(), options(DataMode::Delayed)).unwrap();
    let held = fs.hold(image.ino("/a")).unwrap();
    ops::extents_live(&fs, &held).unwrap();
    device.reset_counts();
    (image, device, fs, held)
}

/// So much data is in memory, and beside it what is known of the map.
fn assert_cached(fs: &Fs, bytes: u64) {
    let cached = fs.data_stats().cached_bytes;
    assert!(
        (bytes..bytes + BLOCK).contains(&cached),
        "{cached} of {bytes}"
    );
}

#[test]
fn reading_on_takes_few_transfers() {
    let (_image, device, fs, held) = with_large_file();
    let content = pattern(1, LARGE as usize);
    for at in (0..LARGE).step_by(BLOCK as usize) {
        let expected = &content[at as usize..(at + BLOCK) as usize];
        assert!(read(&fs, &held, at, BLOCK as usize) == expected);
    }
    // Of 1 MiB each, but for the first ones.
    let reads = device.counts().reads;
    assert!(reads <= 16, "{reads}");
    assert_cached(&fs, LARGE);
}

#[test]
fn readers_of_one_file_all_read_on() {
    let (_image, device, fs, held) = with_large_file();
    for at in (0..LARGE / 4).step_by(BLOCK as usize) {
        for part in 0..4 {
            read(&fs, &held, part * LARGE / 4 + at, BLOCK as usize);
        }
    }
    let reads = device.counts().reads;
    assert!(reads <= 40, "{reads}");
    assert_cached(&fs, LARGE);
}

#[test]
fn reads_here_and_there_bring_in_what_was_asked_for() {
    let (_image, device, fs, held) = with_large_file();
    let places: Vec<u64> = (0..LARGE / BLOCK / 37).rev().map(|i| i * 37).collect();
    for place in &places {
        read(&fs, &held, place * BLOCK, BLOCK as usize);
    }
    let count = places.len() as u64;
    assert_eq!(device.counts().reads, count);
    assert_cached(&fs, count * BLOCK);
}

#[test]
fn a_file_read_all_over_leaves_nothing_behind_in_small_memory() {
    const MEMORY: u64 = 2 << 20;
    const FOLIOS: u64 = 16_000;
    let image = image(128, &["-b", "4096"]);
    let fs = open(
        &image,
        options(DataMode::Delayed).cache_bytes(MEMORY as usize),
    );
    let held = create(&fs, "a");
    let bytes = pattern(1, BLOCK as usize);
    for folio in 0..FOLIOS {
        write(&fs, &held, folio << 16, &bytes);
    }
    ops::fsync(&fs, &held).unwrap();
    for folio in 0..FOLIOS {
        assert!(read(&fs, &held, folio << 16, BLOCK as usize) == bytes);
    }
    let stats = fs.data_stats();
    let most = MEMORY + (64 << 10);
    assert!(
        stats.cached_bytes + stats.folio_bytes <= most && stats.folios <= most / BLOCK,
        "{stats:?}"
    );
    drop(held);
    let root = fs.hold(extant_format::Ino::ROOT).unwrap();
    ops::unlink(&fs, &root, b"a").unwrap();
    drop(root);
    fs.close().unwrap();
    assert_clean(&image.path());
}

/// Waits until no more than `most` bytes are dirty, however long that takes on a busy machine.
fn wait_until_clean(fs: &Fs, most: u64) {
    let end = Instant::now() + Duration::from_secs(120);
    while fs.data_stats().dirty_bytes > most {
        assert!(Instant::now() < end, "{:?}", fs.data_stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_is_dirty_is_written_back_when_it_is_old_or_much() {
    let image = image(64, &["-b", "4096"]);
    let options = MountOptions::read_write();
    let fs = open(
        &image,
        options.clone().commit_interval(Duration::from_millis(5)),
    );
    write(&fs, &create(&fs, "old"), 0, &pattern(1, 100_000));
    wait_until_clean(&fs, 0);
    fs.close().unwrap();
    drop(fs);
    // Half of memory may be dirty, and from half of that on it is written back.
    let forever = Duration::from_secs(100_000);
    let fs = open(
        &image,
        options.commit_interval(forever).cache_bytes(16 << 20),
    );
    let held = create(&fs, "much");
    for piece in (0..96_u64).rev() {
        write(&fs, &held, piece << 16, &pattern(piece, 1 << 16));
    }
    wait_until_clean(&fs, 4 << 20);
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
}

/// Data that has no place yet has the promise of nodes for the worst case.
#[test]
fn space_that_is_promised_for_the_worst_case_can_be_reserved() {
    let image = image(16, &["-b", "1024", "-m", "0"]);
    let fs = open(&image, options(DataMode::Delayed));
    let scatter = |held: &Held| {
        for piece in 0..600_u64 {
            write(&fs, held, piece << 12, b"here");
        }
    };
    let first = create(&fs, "first");
    scatter(&first);
    ops::fsync(&fs, &first).unwrap();
    let mapped = free(&fs);
    drop(first);
    let second = create(&fs, "second");
    scatter(&second);
    // As many blocks and nodes as the first one took, a few for the map of what is reserved, and
    // eight that are held back.
    let all = mapped - 600 - 16 - 8;
    assert!(free(&fs) < all, "{} of {all} are free", free(&fs));
    let reserved = create(&fs, "reserved");
    ops::fallocate(&fs, &reserved, 0, all << 10, FallocateMode::default()).unwrap();
    ops::fsync(&fs, &second).unwrap();
    drop((second, reserved));
    fs.close().unwrap();
    assert_clean(&image.path());
}
