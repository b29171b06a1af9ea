//! File data in memory: when it gets its place, what users see before, and what failures leave.

use crate::support::{Image, pattern};
use extant_blockdev::FileDevice;
use extant_core::data;
use extant_core::fs::{DataMode, Fs, MountOptions};
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, ErrorMark};
use extant_format::Ino;
use extant_testkit::crash::{Fault, FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle::assert_clean;
use extant_testkit::rng::{Rng, seed_from_env};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn image(mib: u64, options: &[&str]) -> Image {
    let all: Vec<&str> = ["-t", "ext4"].iter().chain(options).copied().collect();
    Image::make(mib, &all, |_| ())
}

pub(crate) fn options(mode: DataMode) -> MountOptions {
    MountOptions::read_write().background(false).data_mode(mode)
}

pub(crate) fn open(image: &Image, options: MountOptions) -> Arc<Fs> {
    let device = FileDevice::open(image.path()).unwrap();
    Fs::open(Arc::new(device), options).unwrap()
}

pub(crate) fn create(fs: &Fs, name: &str) -> Held {
    let root = fs.hold(Ino::ROOT).unwrap();
    let new = NewInode::new(FileType::Regular, 0o644, ops::now());
    ops::create(fs, &root, name.as_bytes(), &new).unwrap()
}

fn unlink(fs: &Fs, name: &str) {
    let root = fs.hold(Ino::ROOT).unwrap();
    ops::unlink(fs, &root, name.as_bytes()).unwrap();
}

pub(crate) fn write(fs: &Fs, held: &Held, at: u64, bytes: &[u8]) {
    assert_eq!(ops::pwrite(fs, held, at, bytes).unwrap(), bytes.len());
}

pub(crate) fn read(fs: &Fs, held: &Held, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    let len = ops::pread(fs, held, at, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

pub(crate) fn free(fs: &Fs) -> u64 {
    fs.statfs().unwrap().free
}

#[test]
fn delayed_blocks_get_their_places_together_when_they_are_written_back() {
    let image = image(64, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Delayed));
    let before = free(&fs);
    let (a, b) = (create(&fs, "a"), create(&fs, "b"));
    let bytes = pattern(1, 4096);
    for i in 0..256 {
        write(&fs, &a, i * 4096, &bytes);
        write(&fs, &b, (255 - i) * 4096, &bytes);
    }
    let stats = fs.data_stats();
    assert_eq!(stats.dirty_bytes, 2 << 20, "{stats:?}");
    assert_eq!((stats.placed_in_write, stats.placed_in_writeback), (0, 0));
    // Nothing has its place, but nobody else can have the space, nor some for nodes of the maps.
    let promised = before - free(&fs);
    assert!((512..600).contains(&promised), "{promised}");
    let seen = ops::stat(&fs, &a.view());
    assert_eq!((seen.size, seen.sectors), (1 << 20, 2048));
    assert_eq!(read(&fs, &b, 100 * 4096, 4096), bytes);
    ops::syncfs(&fs).unwrap();
    let stats = fs.data_stats();
    assert_eq!((stats.dirty_bytes, stats.placed_in_writeback), (0, 512));
    assert_eq!(free(&fs), before - 512);
    for held in [&a, &b] {
        assert_eq!(ops::extents_live(&fs, held).unwrap().len(), 1);
        assert_eq!(ops::stat(&fs, &held.view()).sectors, 2048);
    }
    drop((a, b));
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn without_delay_the_write_chooses_places_and_writeback_maps_them() {
    let image = image(64, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Placed));
    let held = create(&fs, "a");
    let bytes = pattern(1, 1024);
    for i in 0..1000 {
        write(&fs, &held, i * 8192, &bytes);
    }
    let stats = fs.data_stats();
    assert_eq!(
        (stats.placed_in_write, stats.placed_in_writeback),
        (1000, 0)
    );
    let handles = fs.journal_stats().handles;
    ops::fsync(&fs, &held).unwrap();
    assert!(fs.journal_stats().handles - handles < 10);
    assert_eq!(read(&fs, &held, 999 * 8192, 1024), bytes);
    // What was placed and goes before it is mapped is free again.
    let before = free(&fs);
    write(&fs, &held, 32 << 20, &pattern(2, 100_000));
    ops::truncate(&fs, &held, 0).unwrap();
    let other = create(&fs, "b");
    write(&fs, &other, 0, &pattern(2, 100_000));
    drop(other);
    unlink(&fs, "b");
    fs.sync().unwrap();
    assert!(free(&fs) >= before);
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn many_small_extents_are_mapped_by_few_handles() {
    let image = image(256, &[]);
    let fs = open(&image, options(DataMode::Delayed));
    let held = create(&fs, "sparse");
    let bytes = pattern(1, 1024);
    for i in 0..20_000 {
        write(&fs, &held, i * 8192, &bytes);
    }
    let handles = fs.journal_stats().handles;
    ops::fsync(&fs, &held).unwrap();
    let handles = fs.journal_stats().handles - handles;
    assert!(handles <= 12, "{handles} handles");
    assert_eq!(ops::extents_live(&fs, &held).unwrap().len(), 20_000);
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
    let fs = image.open();
    let held = fs.hold(image.ino("/sparse")).unwrap();
    assert_eq!(read(&fs, &held, 12_345 * 8192, 1024), bytes);
}

#[test]
fn what_is_deleted_or_cut_before_it_is_written_back_never_is() {
    let image = image(64, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Delayed));
    let before = free(&fs);
    let held = create(&fs, "a");
    write(&fs, &held, 0, &pattern(1, 1 << 20));
    ops::truncate(&fs, &held, 0).unwrap();
    assert_eq!(fs.data_stats().dirty_bytes, 0);
    write(&fs, &held, 0, &pattern(1, 1 << 20));
    unlink(&fs, "a");
    // Still open.
    assert_eq!(read(&fs, &held, 0, 1 << 20), pattern(1, 1 << 20));
    ops::release(&fs, held).unwrap();
    let held = create(&fs, "b");
    write(&fs, &held, 0, &pattern(1, 100));
    drop(held);
    unlink(&fs, "b");
    fs.sync().unwrap();
    let stats = fs.data_stats();
    assert_eq!((stats.dirty_bytes, stats.cached_bytes), (0, 0), "{stats:?}");
    assert_eq!(stats.placed_in_writeback, 0);
    assert_eq!(free(&fs), before);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn memory_stays_within_its_budget_whoever_reads_and_writes() {
    let image = image(128, &["-b", "4096"]);
    let budget = 2 << 20;
    for mode in [DataMode::Delayed, DataMode::Placed] {
        let fs = open(&image, options(mode).cache_bytes(budget));
        let held = create(&fs, &format!("{mode:?}"));
        let bytes = pattern(3, 16 << 20);
        for (i, part) in bytes.chunks(100_000).enumerate() {
            write(&fs, &held, i as u64 * 100_000, part);
            let stats = fs.data_stats();
            let most = budget as u64 + (1 << 20);
            assert!(stats.cached_bytes <= most, "{stats:?}");
        }
        for (i, part) in bytes.chunks(123_456).enumerate() {
            assert!(read(&fs, &held, i as u64 * 123_456, part.len()) == part);
            let stats = fs.data_stats();
            let most = budget as u64 + (2 << 20);
            assert!(stats.cached_bytes <= most, "{stats:?}");
        }
        let small = read(&fs, &held, 5_000_000, 10);
        assert_eq!(small, bytes[5_000_000..5_000_010]);
        drop(held);
        fs.close().unwrap();
    }
    assert_clean(&image.path());
}

#[test]
fn a_failure_to_write_back_is_told_once_to_each_open_file_and_loses_nothing() {
    let image = image(32, &[]);
    let device = Arc::new(FaultDevice::new(Arc::new(
        FileDevice::open(image.path()).unwrap(),
    )));
    let fs = Fs::open(device.clone(), options(DataMode::Delayed)).unwrap();
    let held = create(&fs, "a");
    fs.sync().unwrap();
    let marks = [ErrorMark::new(&held), ErrorMark::new(&held)];
    let bytes = pattern(1, 300_000);
    write(&fs, &held, 0, &bytes);
    device.inject(FaultRule::fail_nth(IoKind::Write, 0));
    let failed = data::writeback(&fs, &held, 0..u64::MAX);
    assert_eq!(failed.unwrap_err().errno(), 5);
    device.heal();
    assert!(read(&fs, &held, 0, bytes.len()) == bytes);
    for mark in &marks {
        let told = ops::fsync_file(&fs, &held, mark);
        assert_eq!(told.unwrap_err().errno(), 5);
        ops::fsync_file(&fs, &held, mark).unwrap();
    }
    // One that opens it later has nothing to hear.
    ops::fsync_file(&fs, &held, &ErrorMark::new(&held)).unwrap();
    // Nobody was told, but the data is there by now.
    assert!(read(&fs, &held, 0, bytes.len()) == bytes);
    drop(held);
    fs.close().unwrap();
    drop((fs, device));
    assert_clean(&image.path());
}

/// Writes to a file, and does something while another thread has it on its way to the device.
fn while_written_back(each: impl Fn(&Fs, &Held, &[u8])) {
    let image = image(32, &["-b", "4096"]);
    let device = Arc::new(FaultDevice::new(Arc::new(
        FileDevice::open(image.path()).unwrap(),
    )));
    let fs = Fs::open(device.clone(), options(DataMode::Delayed)).unwrap();
    let held = create(&fs, "a");
    fs.sync().unwrap();
    for round in 1..=3_u64 {
        let bytes = pattern(round, 100_000 * round as usize);
        write(&fs, &held, 0, &bytes);
        let late = Fault::Late(Duration::from_millis(200));
        device.inject(FaultRule::fail_nth(IoKind::Write, 0).with(late));
        let before = device.counts().total();
        std::thread::scope(|scope| {
            scope.spawn(|| fs.write_back().unwrap());
            // The other has taken the file from the list once it writes.
            while device.counts().total() == before {
                std::thread::yield_now();
            }
            each(&fs, &held, &bytes);
        });
    }
    drop(held);
    fs.close().unwrap();
    drop((fs, device));
    assert_clean(&image.path());
}

#[test]
fn a_sync_waits_for_what_others_write_back() {
    while_written_back(|fs, held, bytes| {
        fs.sync().unwrap();
        assert_eq!(held.snapshot().size(), bytes.len() as u64);
        assert_eq!(fs.data_stats().dirty_bytes, 0);
    });
}

#[test]
fn what_is_on_its_way_to_the_device_is_data() {
    while_written_back(|fs, held, bytes| {
        let last = bytes.len() as u64 - 1;
        assert_eq!(data::seek_data_live(fs, held, last).unwrap(), Some(last));
        let hole = data::seek_hole_live(fs, held, 0).unwrap();
        assert_eq!(hole, Some(bytes.len() as u64));
    });
}

#[test]
fn data_and_holes_are_found_in_memory_without_writing_anything_back() {
    const BLOCKS: usize = 3000;
    let mut rng = Rng::new(seed_from_env("seek_in_memory"));
    for mode in [DataMode::Delayed, DataMode::Placed] {
        let image = image(32, &["-b", "1024"]);
        let fs = open(&image, options(mode));
        let held = create(&fs, "a");
        let mut blocks: Vec<bool> = Vec::new();
        for _ in 0..300 {
            let at = rng.below(BLOCKS as u64) as usize;
            let most = if rng.one_in(8) { 200 } else { 4 };
            let len = 1 + rng.below(most) as usize;
            let (first, end) = (at as u64 * 1024, (at + len) as u64 * 1024);
            match rng.below(20) {
                0 => {
                    ops::truncate(&fs, &held, first).unwrap();
                    blocks.resize(at, false);
                }
                1 => data::writeback(&fs, &held, 0..u64::MAX).unwrap(),
                2 => {
                    let mode = ops::FallocateMode::default();
                    ops::fallocate(&fs, &held, first, end - first, mode).unwrap();
                    blocks.resize(blocks.len().max(at + len), false);
                }
                _ => {
                    write(&fs, &held, first, &pattern(first, len * 1024));
                    blocks.resize(blocks.len().max(at + len), false);
                    blocks[at..at + len].fill(true);
                }
            }
            let before = fs.data_stats().dirty_bytes;
            for _ in 0..4 {
                let from = rng.below(BLOCKS as u64 + 200) as usize;
                let offset = from as u64 * 1024 + rng.below(1024);
                let next = |data| {
                    let rest = blocks.get(from..).filter(|rest| !rest.is_empty())?;
                    let found = rest.iter().position(|&is| is == data);
                    let found = found.map(|i| ((from + i) as u64 * 1024).max(offset));
                    if data {
                        found
                    } else {
                        found.or(Some(blocks.len() as u64 * 1024))
                    }
                };
                let data = data::seek_data_live(&fs, &held, offset).unwrap();
                assert_eq!(data, next(true), "data from {offset}");
                let hole = data::seek_hole_live(&fs, &held, offset).unwrap();
                assert_eq!(hole, next(false), "hole from {offset}");
            }
            assert_eq!(fs.data_stats().dirty_bytes, before);
        }
        drop(held);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
    }
}

#[test]
fn every_block_of_a_full_image_can_be_used_and_a_refusal_loses_nothing() {
    for mode in [DataMode::Delayed, DataMode::Placed] {
        let image = image(16, &["-b", "1024", "-m", "0"]);
        let fs = open(&image, options(mode));
        std::thread::scope(|scope| {
            for worker in 0..4_u64 {
                let fs = &fs;
                scope.spawn(move || {
                    let held = create(fs, &format!("{worker}"));
                    // What a byte is depends on its place alone: a write may be short, and one
                    // after it long again, when another writer has given back what it asked for too
                    // much.
                    let bytes = pattern(worker, 3000).repeat(2);
                    let from = |at: u64| &bytes[(at % 3000) as usize..][..3000];
                    let mut done = 0_u64;
                    loop {
                        match ops::pwrite(fs, &held, done, from(done)) {
                            Ok(0) => break,
                            Ok(n) => done += n as u64,
                            Err(e) => {
                                assert_eq!(e.errno(), 28, "{e}");
                                break;
                            }
                        }
                    }
                    ops::fsync(fs, &held).unwrap_or_else(|e| panic!("{mode:?}: {e}"));
                    let mut at = 0;
                    while at < done {
                        let found = read(fs, &held, at, 3000.min((done - at) as usize));
                        assert!(
                            found == from(at)[..found.len()],
                            "{mode:?}: byte {at} of {done}"
                        );
                        at += found.len() as u64;
                    }
                });
            }
        });
        let left = free(&fs);
        // Eight of them are held back for the map.
        assert!(left <= 16, "{mode:?}: {left} blocks are left");
        for worker in 0..4 {
            unlink(&fs, &format!("{worker}"));
        }
        fs.close().unwrap();
        assert_clean(&image.path());
    }
}

/// Threads write, read, sync and cut parts of files of their own and of one they share, in memory
/// that is too small, with the flusher at work.
#[test]
fn writeback_eviction_and_truncation_leave_what_was_written() {
    let seed = seed_from_env("memory threads");
    let image = image(96, &["-b", "1024"]);
    for mode in [DataMode::Delayed, DataMode::Placed] {
        let options = MountOptions::read_write()
            .data_mode(mode)
            .cache_bytes(1 << 20)
            .commit_interval(Duration::from_millis(5));
        let fs = open(&image, options);
        let shared = create(&fs, &format!("shared {mode:?}"));
        write(&fs, &shared, 0, &vec![0; 400_000]);
        std::thread::scope(|scope| {
            for worker in 0..4_u64 {
                let (fs, shared) = (&fs, &shared);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed ^ worker);
                    let held = create(fs, &format!("{worker} {mode:?}"));
                    let mut model: Vec<u8> = Vec::new();
                    let own = 100_000 * worker..100_000 * (worker + 1);
                    let mut mine = vec![0; 100_000];
                    for step in 0..400_u64 {
                        let at = rng.below(300_000) as usize;
                        let bytes = pattern(step ^ seed, 1 + rng.below(20_000) as usize);
                        match rng.below(12) {
                            0 => {
                                ops::truncate(fs, &held, at as u64).unwrap();
                                model.resize(at, 0);
                            }
                            1 => ops::fsync(fs, &held).unwrap(),
                            2 => fs.write_back().unwrap(),
                            3 | 4 => {
                                let found = read(fs, &held, at as u64, 50_000);
                                let end = model.len().min(at + 50_000);
                                assert!(found == model[at.min(end)..end], "step {step}");
                            }
                            5 | 6 => {
                                let at = rng.below(90_000) as usize;
                                let len = bytes.len().min(100_000 - at);
                                write(fs, shared, own.start + at as u64, &bytes[..len]);
                                mine[at..at + len].copy_from_slice(&bytes[..len]);
                                assert!(read(fs, shared, own.start, 100_000) == mine);
                            }
                            _ => {
                                write(fs, &held, at as u64, &bytes);
                                let end = at + bytes.len();
                                model.resize(model.len().max(end), 0);
                                model[at..end].copy_from_slice(&bytes);
                            }
                        }
                    }
                    let found = read(fs, &held, 0, model.len() + 10);
                    assert!(found == model, "seed {seed:#x}, worker {worker}");
                });
            }
        });
        drop(shared);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
    }
}

#[test]
fn small_files_are_written_back_together() {
    for mode in [DataMode::Delayed, DataMode::Placed] {
        let image = image(64, &["-b", "4096"]);
        let device = Arc::new(FaultDevice::new(Arc::new(
            FileDevice::open(image.path()).unwrap(),
        )));
        let fs = Fs::open(device.clone(), options(mode)).unwrap();
        let name = |i: u64| format!("{i}");
        for i in 0..600 {
            write(&fs, &create(&fs, &name(i)), 0, &pattern(i, 2000));
        }
        // One that is larger, one that is overwritten, one that only got its time.
        let large = create(&fs, "large");
        write(&fs, &large, 0, &pattern(1, 300_000));
        fs.sync().unwrap();
        let first = fs.hold(fs_ino(&fs, "0")).unwrap();
        write(&fs, &first, 100, &pattern(7, 50));
        for i in 600..1200 {
            write(&fs, &create(&fs, &name(i)), 0, &pattern(i, 2000));
        }
        let handles = fs.journal_stats().handles;
        device.reset_counts();
        fs.write_back().unwrap();
        let writes = device.counts().writes;
        let handles = fs.journal_stats().handles - handles;
        // Few: a run of small files goes in one write. How few depends on how often this thread is
        // moved to another processor, which has a run of its own to give from.
        assert!(writes <= 200, "{mode:?}: {writes} writes");
        assert!(handles <= 50, "{mode:?}: {handles} handles");
        assert_eq!(fs.data_stats().dirty_bytes, 0);
        drop((large, first));
        fs.close().unwrap();
        drop(fs);
        drop(device);
        assert_clean(&image.path());
        let fs = image.open();
        for i in 0..1200 {
            let held = fs.hold(fs_ino(&fs, &name(i))).unwrap();
            let mut expected = pattern(i, 2000);
            if i == 0 {
                expected[100..150].copy_from_slice(&pattern(7, 50));
            }
            assert!(read(&fs, &held, 0, 3000) == expected, "{mode:?}: file {i}");
        }
    }
}

fn fs_ino(fs: &Fs, name: &str) -> Ino {
    let root = fs.hold(Ino::ROOT).unwrap();
    ops::lookup_held(fs, &root, name.as_bytes()).unwrap().ino()
}

#[test]
fn a_write_that_fails_concerns_one_of_many_small_files() {
    let image = image(32, &["-b", "4096"]);
    let device = Arc::new(FaultDevice::new(Arc::new(
        FileDevice::open(image.path()).unwrap(),
    )));
    let fs = Fs::open(device.clone(), options(DataMode::Delayed)).unwrap();
    let files: Vec<Held> = (0..20).map(|i| create(&fs, &format!("{i}"))).collect();
    fs.sync().unwrap();
    let marks: Vec<ErrorMark> = files.iter().map(ErrorMark::new).collect();
    for (i, held) in files.iter().enumerate() {
        write(&fs, held, 0, &pattern(i as u64, 1000));
    }
    // That of all together, then that of the first by itself.
    device.inject(FaultRule::fail_nth(IoKind::Write, 0));
    device.inject(FaultRule::fail_nth(IoKind::Write, 1));
    assert_eq!(fs.write_back().unwrap_err().errno(), 5);
    device.heal();
    fs.write_back().unwrap();
    let told = files.iter().zip(&marks);
    let told = told.filter(|(held, mark)| ops::fsync_file(&fs, held, mark).is_err());
    assert_eq!(told.count(), 1);
    drop(files);
    fs.close().unwrap();
    drop((fs, device));
    assert_clean(&image.path());
    let fs = image.open();
    for i in 0..20 {
        let held = fs.hold(fs_ino(&fs, &format!("{i}"))).unwrap();
        assert!(read(&fs, &held, 0, 2000) == pattern(i, 1000), "file {i}");
    }
}

#[test]
fn writes_with_holes_between_them_take_memory_and_places_side_by_side() {
    for mode in [DataMode::Delayed, DataMode::Placed] {
        let image = image(64, &["-b", "4096"]);
        let fs = open(&image, options(mode));
        let held = create(&fs, "a");
        for i in 0..1000 {
            write(&fs, &held, i * 8192, &pattern(i, 1024));
        }
        let cached = fs.data_stats().cached_bytes;
        assert!(cached <= 1000 << 10, "{mode:?}: {cached} bytes");
        let mut expected = pattern(77, 1024);
        expected.resize(8192, 0);
        assert!(read(&fs, &held, 77 * 8192, 8192) == expected);
        // A little of another page of the same block.
        write(&fs, &held, 77 * 8192 + 3000, &[1; 10]);
        expected[3000..3010].fill(1);
        assert!(read(&fs, &held, 77 * 8192, 8192) == expected);
        ops::fsync(&fs, &held).unwrap();
        let all = ops::allocated_live(&fs, &held).unwrap();
        assert_eq!(all.len(), 1000);
        let apart = all.windows(2).filter(|two| {
            two[0].device_offset.unwrap() + two[0].len != two[1].device_offset.unwrap()
        });
        let apart = apart.count();
        assert!(apart <= 40, "{mode:?}: {apart} gaps on the device");
        drop(held);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
        let fs = image.open();
        let held = fs.hold(image.ino("/a")).unwrap();
        assert!(read(&fs, &held, 77 * 8192, 8192) == expected);
    }
}

#[test]
fn a_file_that_is_written_on_and_on_is_written_back_meanwhile() {
    let image = image(128, &["-b", "4096"]);
    let options = MountOptions::read_write().cache_bytes(1 << 30);
    let fs = open(&image, options);
    let held = create(&fs, "a");
    let bytes = pattern(1, 1 << 16);
    for i in 0..1400 {
        write(&fs, &held, i << 16, &bytes);
    }
    let end = Instant::now() + Duration::from_secs(60);
    while fs.data_stats().dirty_bytes > 48 << 20 {
        assert!(Instant::now() < end, "{:?}", fs.data_stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(read(&fs, &held, 77 << 16, 1 << 16) == bytes);
    drop(held);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

#[test]
fn reading_a_large_hole_takes_no_memory() {
    let image = image(32, &["-b", "4096"]);
    let fs = open(&image, options(DataMode::Delayed));
    let held = create(&fs, "a");
    // Twelve TiB, of which some is read all over.
    write(&fs, &held, 12 << 40, b"end");
    write(&fs, &held, 5 << 40, b"middle");
    let mut buf = vec![0xaa; 1 << 16];
    for i in 0..400_000_u64 {
        let at = i * (30 << 20) + (i % 3);
        let len = if i % 100 == 0 { buf.len() } else { 1 };
        assert_eq!(ops::pread(&fs, &held, at, &mut buf[..len]).unwrap(), len);
        assert!(buf[..len].iter().all(|&byte| byte == 0));
        buf[0] = 0xaa;
    }
    assert_eq!(read(&fs, &held, (5 << 40) - 2, 8), b"\0\0middle");
    assert!(fs.data_stats().folios < 10, "{:?}", fs.data_stats());
    assert!(fs.data_stats().cached_bytes < 1 << 20);
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn reserved_space_of_a_full_image_can_be_written_in_any_parts() {
    let image = image(16, &["-b", "1024", "-m", "0"]);
    for (mode, keep_size) in [
        (DataMode::Delayed, false),
        (DataMode::Placed, false),
        (DataMode::Delayed, true),
        (DataMode::Placed, true),
    ] {
        let fs = open(&image, options(mode));
        let held = create(&fs, "reserved");
        let len = 4000 << 10;
        let how = data::FallocateMode { keep_size };
        ops::fallocate(&fs, &held, 0, len, how).unwrap();
        let other = create(&fs, "rest");
        let mut at = 0;
        for size in [1 << 20, 1 << 10] {
            let bytes = vec![3; size];
            while let Ok(n) = ops::pwrite(&fs, &other, at, &bytes) {
                at += n as u64;
            }
        }
        fs.sync().unwrap();
        // Eight of them are held back for the map, which needs more.
        assert!(free(&fs) <= 16, "{} blocks are free", free(&fs));
        // Every third block, which makes more extents than the tree has room for.
        for i in 0..1300_u64 {
            write(&fs, &held, i * 3072 + 100, &pattern(i, 500));
        }
        ops::fsync(&fs, &held).unwrap();
        let check = |fs: &Fs, held: &Held| {
            for i in 0..1300_u64 {
                // Nothing lies behind the last where the size was kept.
                let end = if keep_size && i == 1299 { 600 } else { 3072 };
                let mut expected = vec![0; end];
                expected[100..600].copy_from_slice(&pattern(i, 500));
                assert!(read(fs, held, i * 3072, 3072) == expected, "{i}");
            }
        };
        check(&fs, &held);
        drop((held, other));
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
        let fs = image.open();
        check(&fs, &fs.hold(image.ino("/reserved")).unwrap());
        drop(fs);
        let fs = open(&image, options(mode));
        unlink(&fs, "reserved");
        unlink(&fs, "rest");
        fs.close().unwrap();
    }
}
