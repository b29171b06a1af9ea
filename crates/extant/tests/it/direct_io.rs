//! Direct I/O: what it refuses, what it costs, and how it agrees with memory when many threads do
//! both.

use crate::stress::crew;
use crate::support::Blank;
use extant::{File, Filesystem, MountOptions, OpenOptions, OpenSpec};
use extant_blockdev::{BlockDevice, DeviceResult, DirectMemory, MemoryDevice, SharedDevice};
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use extant_testkit::facility::is_full_run;
use extant_testkit::rng::{Rng, seed_from_env};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

const BLOCK: usize = 4096;

fn open(fs: &Filesystem, path: &str, direct: bool) -> File {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).direct(direct);
    how.open(fs, path).unwrap()
}

/// A file of so many blocks that hold data, and which nobody has in memory.
fn written(fs: &Filesystem, path: &str, blocks: u64) -> File {
    let file = open(fs, path, true);
    for i in 0..blocks {
        file.write_all_at(&[i as u8; BLOCK], i * BLOCK as u64)
            .unwrap();
    }
    file.sync_all().unwrap();
    file
}

#[test]
fn what_does_not_fit_the_sectors_of_the_device_is_refused_and_says_what_would() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    let file = open(&fs, "/file", true);
    file.write_all_at(&[1; 1024], 512).unwrap();
    for refused in [
        file.write_at(&[1; 512], 100),
        file.write_at(&[1; 100], 512),
        file.read_at(&mut [0; 512], 1),
        file.read_at(&mut [0; 513], 0),
        file.append(&[1; 511]).map(|(_, written)| written),
    ] {
        let e = refused.unwrap_err();
        assert_eq!(e.errno(), 22);
        let told = e.to_string();
        assert!(told.contains("multiples of 512 bytes"), "{told}");
    }
    assert_eq!(file.metadata().len(), 1536);
    // The end of the file needs no alignment, and reads end there.
    file.set_len(1000).unwrap();
    let mut found = [9; 1024];
    assert_eq!(file.read_at(&mut found, 512).unwrap(), 488);
    assert_eq!(found[..488], [1; 488]);
    // But what is appended there would not begin at a sector.
    assert_eq!(file.append(&[1; 512]).unwrap_err().errno(), 22);
    drop(file);
    fs.close().unwrap();
    image.check();
}

#[test]
fn overwriting_takes_no_transaction_and_fdatasync_none_either() {
    let image = Blank::new(16);
    let options = MountOptions::read_write().background(false);
    let fs = Filesystem::open_spec(&OpenSpec::read_write(image.path()), options).unwrap();
    let file = written(&fs, "/file", 64);
    let before = fs.engine().journal_stats();
    let mtime = file.metadata().modified();
    let mut rng = Rng::new(seed_from_env("direct overwrites"));
    std::thread::sleep(Duration::from_millis(10));
    for round in 0..2000_u64 {
        let at = rng.below(63) * BLOCK as u64;
        // Whole blocks, two at a time, parts of one and parts of two.
        let (skip, len) = [(0, 4096), (0, 8192), (512, 1024), (3584, 1024)][round as usize % 4];
        file.write_all_at(&vec![round as u8; len], at + skip)
            .unwrap();
        if round % 50 == 0 {
            file.sync_data().unwrap();
        }
    }
    let after = fs.engine().journal_stats();
    assert_eq!(after.handles, before.handles, "{after:?}");
    assert_eq!(after.commits, before.commits, "{after:?}");
    assert!(file.metadata().modified() > mtime);
    // fsync has the time stored.
    let mtime = file.metadata().modified();
    file.sync_all().unwrap();
    assert_eq!(fs.engine().journal_stats().handles, before.handles + 1);
    drop(file);
    fs.close().unwrap();
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    assert_eq!(fs.metadata("/file").unwrap().modified(), mtime);
}

#[test]
fn reserved_blocks_become_data_when_they_are_written_as_a_whole() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    let file = written(&fs, "/file", 8);
    let start = 8 * BLOCK as u64;
    file.allocate(start, 256 * BLOCK as u64).unwrap();
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let file = &file;
            scope.spawn(move || {
                for i in (thread..256).step_by(threads) {
                    file.write_all_at(&[i as u8 | 1; BLOCK], start + (i * BLOCK) as u64)
                        .unwrap();
                }
            });
        }
    });
    let check = |read: &dyn Fn(&mut [u8], u64)| {
        for i in 0..256 {
            let mut found = [0; BLOCK];
            read(&mut found, start + (i * BLOCK) as u64);
            assert_eq!(found, [i as u8 | 1; BLOCK], "block {i}");
        }
    };
    check(&|buf, at| assert_eq!(file.read_at(buf, at).unwrap(), BLOCK));
    file.sync_data().unwrap();
    drop(file);
    fs.close().unwrap();
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    let file = fs.open_file("/file").unwrap();
    check(&|buf, at| assert_eq!(file.read_at(buf, at).unwrap(), BLOCK));
}

#[test]
fn a_part_of_a_reserved_block_leaves_zeros_around_it() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    let file = written(&fs, "/file", 8);
    file.allocate(8 * BLOCK as u64, 8 * BLOCK as u64).unwrap();
    file.write_all_at(&[7; 512], 9 * BLOCK as u64 + 1024)
        .unwrap();
    let mut expected = [0; BLOCK];
    expected[1024..1536].fill(7);
    let mut found = [1; BLOCK];
    file.read_at(&mut found, 9 * BLOCK as u64).unwrap();
    assert_eq!(found, expected);
    drop(file);
    fs.close().unwrap();
    image.check();
}

#[test]
fn reserved_space_can_be_written_past_memory_when_there_is_no_other() {
    let image = Blank::with(16, &["-t", "ext4", "-b", "1024"]);
    let fs = image.open_writable();
    let file = open(&fs, "/file", true);
    file.allocate(0, 2 << 20).unwrap();
    let filler = open(&fs, "/filler", false);
    let mut size = 0;
    for step in [1 << 20, 1 << 16, 1 << 10] {
        while filler.allocate(size, step).is_ok() {
            size += step;
        }
    }
    // Every other block: each would be an extent of its own.
    for i in (0..2048).step_by(2) {
        file.write_all_at(&[i as u8 | 1; 1024], i * 1024).unwrap();
    }
    for i in 0..2048_u64 {
        let mut found = [3; 1024];
        file.read_at(&mut found, i * 1024).unwrap();
        let expected = if i % 2 == 0 { i as u8 | 1 } else { 0 };
        assert_eq!(found, [expected; 1024], "block {i}");
    }
    drop((file, filler));
    fs.close().unwrap();
    image.check();
}

/// In which turn each block was written last by its owner, and whether it was cut away since.
struct Known {
    turns: Vec<AtomicU64>,
}

const BLOCKS: u64 = 96;
fn content(block: u64, turn: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for piece in bytes.chunks_mut(512) {
        piece[..8].copy_from_slice(&block.to_le_bytes());
        piece[8..16].copy_from_slice(&turn.to_le_bytes());
    }
    bytes
}

/// The turn that a block was written in; 0 for zeros.
fn turn_of(block: u64, bytes: &[u8]) -> u64 {
    let mut turns = bytes.chunks(512).map(|piece| {
        let number = u64::from_le_bytes(piece[..8].try_into().unwrap());
        let turn = u64::from_le_bytes(piece[8..16].try_into().unwrap());
        assert!(number == block || (number, turn) == (0, 0), "block {block}");
        turn
    });
    let first = turns.next().unwrap();
    assert!(turns.all(|turn| turn == first), "block {block} is torn");
    first
}

/// Threads own blocks of one file, every eighth one, and write, read and compare these directly or
/// through memory; others read the file in both ways, and one cuts it and lets it grow again
/// between the rounds of the others.
#[test]
fn threads_that_write_past_memory_and_through_it_see_each_others_blocks_while_others_cut() {
    let seed = seed_from_env("direct stress");
    let image = Blank::new(64);
    let options = MountOptions::read_write()
        .cache_bytes(256 << 10)
        .commit_interval(Duration::from_millis(20));
    let fs = Filesystem::open_spec(&OpenSpec::read_write(image.path()), options).unwrap();
    let known = Arc::new(Known {
        turns: (0..BLOCKS).map(|_| AtomicU64::new(0)).collect(),
    });
    // Held shared for a step of a writer, exclusively to cut: so it is known what was cut.
    let gate = Arc::new(RwLock::new(()));
    let buffered = open(&fs, "/file", false);
    let direct = open(&fs, "/file", true);
    let time = Duration::from_secs(if is_full_run() { 60 } else { 3 });
    let (threads, owners) = (8, 6);
    crew::run(threads, time, {
        let known = known.clone();
        move |post| {
            let mut rng = Rng::new(seed ^ (post.number as u64) << 40);
            let mut steps = 0_u64;
            while !post.is_over() {
                post.doing("a step");
                steps += 1;
                // Long enough in one way that the file is bypassed at times.
                let is_direct =
                    (steps / 64 + post.number as u64 / 3).is_multiple_of(2) || rng.one_in(8);
                let file = if is_direct { &direct } else { &buffered };
                if post.number < owners {
                    let _shared = gate.read().unwrap();
                    let owned = BLOCKS / owners as u64;
                    let block = rng.below(owned) * owners as u64 + post.number as u64;
                    let at = block * BLOCK as u64;
                    let last = known.turns[block as usize].load(Ordering::Relaxed);
                    if rng.one_in(2) {
                        let turn = (last & !CUT) + 1;
                        file.write_all_at(&content(block, turn), at).unwrap();
                        known.turns[block as usize].store(turn, Ordering::Relaxed);
                    } else {
                        let mut found = [0; BLOCK];
                        let len = file.read_at(&mut found, at).unwrap();
                        let is_there = len == BLOCK;
                        let found = if is_there { turn_of(block, &found) } else { 0 };
                        let cut = last & CUT != 0;
                        let expected = if cut { 0 } else { last };
                        assert_eq!(found, expected, "block {block}, direct: {is_direct}");
                    }
                } else if post.number == owners {
                    if rng.one_in(4) {
                        let _alone = gate.write().unwrap();
                        let size = rng.below(BLOCKS);
                        file.set_len(size * BLOCK as u64).unwrap();
                        for turn in &known.turns[size as usize..] {
                            turn.store(turn.load(Ordering::Relaxed) | CUT, Ordering::Relaxed);
                        }
                    } else if rng.one_in(8) {
                        file.sync_data().unwrap();
                    } else {
                        let _shared = gate.read().unwrap();
                        let at = rng.below(BLOCKS) * BLOCK as u64;
                        file.allocate_keep_size(at, 4 * BLOCK as u64).unwrap();
                    }
                } else {
                    let block = rng.below(BLOCKS);
                    let mut found = [0; BLOCK];
                    if file.read_at(&mut found, block * BLOCK as u64).unwrap() == BLOCK {
                        // Others may be writing it.
                        for piece in found.chunks(512) {
                            let number = u64::from_le_bytes(piece[..8].try_into().unwrap());
                            assert!(number == block || number == 0);
                        }
                    }
                }
            }
        }
    });
    fs.close().unwrap();
    image.check();
    let fs = Filesystem::open(image.path()).unwrap();
    let content = fs.read("/file").unwrap();
    for (block, turn) in (0_u64..).zip(&known.turns) {
        let last = turn.load(Ordering::Relaxed);
        let at = block as usize * BLOCK;
        let found = content
            .get(at..at + BLOCK)
            .map_or(0, |bytes| turn_of(block, bytes));
        let expected = if last & CUT != 0 { 0 } else { last };
        assert_eq!(found, expected, "block {block}");
    }
}

/// Set in a turn while the block is cut away.
const CUT: u64 = 1 << 32;

#[test]
fn direct_reads_go_on_when_nothing_can_be_written_any_more() {
    let image = Blank::new(16);
    let bytes = std::fs::read(image.path()).unwrap();
    let device = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::from_image(&bytes))));
    let options = MountOptions::read_write().background(false);
    let shared: SharedDevice = device.clone();
    let fs = Filesystem::open_device(shared, options).unwrap();
    let file = written(&fs, "/file", 8);
    // One block is newer in memory, and stays there.
    let buffered = open(&fs, "/file", false);
    buffered.write_all_at(&[77; BLOCK], 0).unwrap();
    device.inject(FaultRule::fail_nth(IoKind::Write, 0).from_then_on());
    for round in 0..20_u64 {
        let block = 1 + round % 7;
        let mut found = [0; BLOCK];
        let read = file.read_at(&mut found, block * BLOCK as u64);
        assert_eq!(read.unwrap(), BLOCK);
        assert_eq!(found, [block as u8; BLOCK]);
    }
    // What cannot be written back is in the way of readers past memory, but not lost.
    assert!(file.read_at(&mut [0; BLOCK], 0).is_err());
    let mut found = [0; BLOCK];
    assert_eq!(buffered.read_at(&mut found, 0).unwrap(), BLOCK);
    assert_eq!(found, [77; BLOCK]);
}

/// Memory that loses what was copied to it and not persisted, and refuses to persist when told to.
#[derive(Debug)]
struct Volatile {
    now: MemoryDevice,
    durable: MemoryDevice,
    written: Mutex<Vec<Range<u64>>>,
    refuses: std::sync::atomic::AtomicBool,
}

impl Volatile {
    fn new(image: &[u8]) -> Self {
        Self {
            now: MemoryDevice::from_image(image),
            durable: MemoryDevice::from_image(image),
            written: Mutex::default(),
            refuses: false.into(),
        }
    }

    fn keep(&self, range: Range<u64>) -> DeviceResult<()> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.now.read_at(range.start, &mut bytes)?;
        self.durable.write_at(range.start, &bytes)
    }

    /// What a loss of power leaves.
    fn after_power_loss(&self) -> MemoryDevice {
        let mut bytes = vec![0; self.durable.size() as usize];
        self.durable.read_at(0, &mut bytes).unwrap();
        MemoryDevice::from_image(&bytes)
    }
}

impl BlockDevice for Volatile {
    fn size(&self) -> u64 {
        self.now.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.now.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.now.write_at(offset, buf)?;
        let range = offset..offset + buf.len() as u64;
        self.written.lock().unwrap().push(range);
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        let written = std::mem::take(&mut *self.written.lock().unwrap());
        written.into_iter().try_for_each(|range| self.keep(range))
    }

    fn direct(&self) -> Option<&dyn DirectMemory> {
        Some(self)
    }
}

impl DirectMemory for Volatile {
    fn copy_in(&self, offset: u64, src: &[u8]) -> DeviceResult<()> {
        self.now.write_at(offset, src)
    }

    fn copy_out(&self, offset: u64, dst: &mut [u8]) -> DeviceResult<()> {
        self.now.read_at(offset, dst)
    }

    fn persist(&self, range: Range<u64>) -> DeviceResult<()> {
        if self.refuses.load(Ordering::Relaxed) {
            // Out of range: what this device can say for sure.
            self.now.read_at(self.now.size(), &mut [0; 512])
        } else {
            self.keep(range)
        }
    }
}

fn stored(device: MemoryDevice, path: &str) -> Vec<u8> {
    let fs = Filesystem::open_device(Arc::new(device), MountOptions::read_only()).unwrap();
    fs.read(path).unwrap()
}

#[test]
fn what_was_copied_to_memory_is_persisted_by_each_way_to_sync_and_a_failure_is_not_forgotten() {
    let image = Blank::new(16);
    let bytes = std::fs::read(image.path()).unwrap();
    let device = Arc::new(Volatile::new(&bytes));
    let options = MountOptions::read_write().background(false).dax(true);
    let shared: SharedDevice = device.clone();
    let fs = Filesystem::open_device(shared, options).unwrap();
    let file = open(&fs, "/file", false);
    let mut expected = vec![1; 16 * BLOCK];
    file.write_all_at(&expected, 0).unwrap();
    file.sync_all().unwrap();
    type Sync<'a> = &'a dyn Fn() -> extant::Result<()>;
    let ways: [Sync; 3] = [&|| file.sync_data(), &|| file.sync_all(), &|| fs.sync()];
    for (round, sync) in ways.into_iter().enumerate() {
        let place = 3 * BLOCK + 100 * round;
        let data = [round as u8 + 10; 100];
        file.write_all_at(&data, place as u64).unwrap();
        // Nobody has asked for it yet.
        assert_eq!(stored(device.after_power_loss(), "/file"), expected);
        device.refuses.store(true, Ordering::Relaxed);
        sync().unwrap_err();
        device.refuses.store(false, Ordering::Relaxed);
        sync().unwrap();
        expected[place..place + 100].copy_from_slice(&data);
        assert_eq!(stored(device.after_power_loss(), "/file"), expected);
    }
    drop(file);
    fs.close().unwrap();
}

/// Has two threads write bytes `range` of a file in memory, each with a value of its own, while two
/// others read them: each reader finds one of these.
fn expect_whole(file: &File, range: Range<usize>, rounds: u64) {
    let (at, len) = (range.start as u64, range.len());
    file.write_all_at(&vec![1; len], at).unwrap();
    std::thread::scope(|scope| {
        for own in [1, 2] {
            scope.spawn(move || {
                let bytes = vec![own; len];
                for _ in 0..rounds {
                    file.write_all_at(&bytes, at).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut bytes = vec![0; len];
                for round in 0..rounds {
                    assert_eq!(file.read_at(&mut bytes, at).unwrap(), len);
                    let first = bytes[0];
                    assert!(first == 1 || first == 2, "round {round}: {first}");
                    let other = bytes.iter().position(|&byte| byte != first);
                    assert_eq!(other, None, "round {round} of bytes {range:?}");
                }
            });
        }
    });
}

#[test]
fn writes_to_memory_at_the_same_time_are_each_seen_as_a_whole() {
    let image = Blank::new(16);
    let bytes = std::fs::read(image.path()).unwrap();
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&bytes));
    let options = MountOptions::read_write().background(false).dax(true);
    let fs = Filesystem::open_device(device.clone(), options).unwrap();
    let file = open(&fs, "/file", false);
    file.write_all_at(&vec![7; 4 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let before = fs.engine().journal_stats();
    let rounds = if is_full_run() { 100_000 } else { 3_000 };
    // In one part of the device, wherever the file lies in it, as blocks are smaller; and in two,
    // or three.
    expect_whole(&file, 4096..8192, rounds);
    expect_whole(&file, 12_345..12_345 + 3_000, rounds);
    expect_whole(&file, 100_000..100_000 + 70_000, rounds / 10);
    // Nobody took a transaction for it.
    assert_eq!(fs.engine().journal_stats().handles, before.handles);
    drop(file);
    fs.close().unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    image.check();
}
