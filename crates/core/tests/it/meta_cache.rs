//! The metadata block cache, over a device in memory that counts, delays and fails reads.

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult};
use extant_core::Error;
use extant_core::meta::{Cache, Overlay};
use extant_format::{BlockSize, Ino, Pblk, Structure};
use extant_sync::pin;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const SIZE: BlockSize = BlockSize::MIN;
const BLOCKS: u64 = 4096;

/// A device on which byte `i` of block `b` is `b ^ i`, mixed.
#[derive(Debug, Default)]
struct Stub {
    /// First block and number of blocks of each read.
    reads: Mutex<Vec<(u64, usize)>>,
    delay: Duration,
    /// Reads that touch this block fail.
    bad: Mutex<Option<u64>>,
    /// Added to every byte read.
    generation: AtomicU64,
}

fn byte(block: u64, at: usize, generation: u64) -> u8 {
    (block.wrapping_mul(31) ^ at as u64).wrapping_add(generation) as u8
}

impl Stub {
    fn reads(&self) -> Vec<(u64, usize)> {
        self.reads.lock().unwrap().clone()
    }

    fn fill(&self, offset: u64, buf: &mut [u8]) {
        let generation = self.generation.load(Ordering::Relaxed);
        for (i, b) in buf.iter_mut().enumerate() {
            let at = offset + i as u64;
            let size = SIZE.len() as u64;
            *b = byte(at / size, (at % size) as usize, generation);
        }
    }

    fn began(&self, offset: u64, len: usize) -> DeviceResult<()> {
        let blocks = offset / SIZE.len() as u64..(offset + len as u64) / SIZE.len() as u64;
        let read = (blocks.start, (blocks.end - blocks.start) as usize);
        self.reads.lock().unwrap().push(read);
        std::thread::sleep(self.delay);
        match *self.bad.lock().unwrap() {
            Some(bad) if blocks.contains(&bad) => Err(DeviceError::Io {
                op: "read",
                device: "the stub".to_owned(),
                offset,
                len: len as u64,
                source: io::Error::other("a bad sector"),
            }),
            _ => Ok(()),
        }
    }
}

impl BlockDevice for Stub {
    fn size(&self) -> u64 {
        BLOCKS * SIZE.len() as u64
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.fill(offset, buf);
        self.began(offset, buf.len())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        let mut at = offset;
        for buf in bufs {
            self.fill(at, buf);
            at += buf.len() as u64;
        }
        self.began(offset, (at - offset) as usize)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        unreachable!("the cache wrote")
    }

    fn flush(&self) -> DeviceResult<()> {
        unreachable!("the cache flushed")
    }
}

fn cache(stub: Stub, budget_blocks: usize) -> (Arc<Stub>, Cache) {
    let stub = Arc::new(stub);
    let cache = Cache::new(stub.clone(), SIZE, BLOCKS, budget_blocks * SIZE.len());
    (stub, cache)
}

fn assert_content(bytes: &[u8], block: u64, generation: u64) {
    assert_eq!(bytes.len(), SIZE.len());
    for at in [0, 1, 500, SIZE.len() - 1] {
        assert_eq!(
            bytes[at],
            byte(block, at, generation),
            "block {block}, byte {at}"
        );
    }
}

fn blocks(range: Range<u64>) -> impl Iterator<Item = Pblk> {
    range.map(Pblk::new)
}

#[test]
fn a_block_is_read_once_and_borrowed_afterwards() {
    let (stub, cache) = cache(Stub::default(), 64);
    assert!(cache.peek(Pblk::new(5), &pin()).is_none());
    let first = cache.read(Pblk::new(5)).unwrap();
    let second = cache.read(Pblk::new(5)).unwrap();
    assert!(first.same_load(&second));
    assert_content(&first, 5, 0);
    let guard = pin();
    assert!(cache.peek(Pblk::new(5), &guard).unwrap().same_load(&first));
    assert_eq!(stub.reads(), [(5, 1)]);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.blocks), (2, 1, 1));
    assert_eq!(stats.bytes, 1024);
}

#[test]
fn concurrent_readers_of_a_block_share_one_load() {
    let (stub, cache) = cache(
        Stub {
            delay: Duration::from_millis(50),
            ..Stub::default()
        },
        64,
    );
    let barrier = Barrier::new(8);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                barrier.wait();
                assert_content(&cache.read(Pblk::new(9)).unwrap(), 9, 0);
            });
        }
    });
    assert_eq!(stub.reads(), [(9, 1)]);
    let stats = cache.stats();
    assert_eq!(stats.misses, 1);
    assert_eq!(stats.hits + stats.joined, 7);
}

#[test]
fn a_failure_reaches_every_waiter_and_the_next_read_tries_again() {
    let (stub, cache) = cache(
        Stub {
            delay: Duration::from_millis(50),
            bad: Mutex::new(Some(7)),
            ..Stub::default()
        },
        64,
    );
    let barrier = Barrier::new(4);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                barrier.wait();
                let e = cache.read(Pblk::new(7)).unwrap_err();
                assert!(matches!(e, Error::Device(_)), "{e}");
                assert!(e.to_string().contains("a bad sector"), "{e}");
            });
        }
    });
    assert_eq!(cache.stats().blocks, 0);
    *stub.bad.lock().unwrap() = None;
    assert_content(&cache.read(Pblk::new(7)).unwrap(), 7, 0);
}

#[test]
fn blocks_past_the_end_are_refused_without_a_read() {
    let (stub, cache) = cache(Stub::default(), 64);
    for block in [BLOCKS, BLOCKS + 1, u64::MAX] {
        let e = cache.read(Pblk::new(block)).unwrap_err();
        assert!(matches!(e, Error::BlockOutOfRange { .. }), "{e}");
        assert!(e.is_corruption());
        cache.prefetch(Pblk::new(block), u32::MAX);
    }
    assert_eq!(stub.reads(), []);
    cache.prefetch(Pblk::new(BLOCKS - 2), 100);
    assert_eq!(stub.reads(), [(BLOCKS - 2, 2)]);
}

#[test]
fn readahead_merges_reads_around_what_is_cached() {
    let (stub, cache) = cache(Stub::default(), 1024);
    cache.read(Pblk::new(14)).unwrap();
    cache.prefetch(Pblk::new(10), 10);
    assert_eq!(stub.reads(), [(14, 1), (10, 4), (15, 5)]);
    for block in blocks(10..20) {
        assert_content(&cache.read(block).unwrap(), block.get(), 0);
    }
    cache.prefetch(Pblk::new(10), 10);
    assert_eq!(stub.reads().len(), 3, "everything was there");
    let stats = cache.stats();
    assert_eq!((stats.prefetched, stats.misses, stats.hits), (9, 1, 10));
}

#[test]
fn blocks_that_are_read_together_come_once_and_in_runs() {
    let (stub, cache) = cache(Stub::default(), 1024);
    cache.read(Pblk::new(14)).unwrap();
    let wanted = [30, 11, 10, 14, 12, 30, 31, 500, BLOCKS, 13, u64::MAX];
    cache.prefetch_all(wanted.map(Pblk::new).into());
    assert_eq!(stub.reads(), [(14, 1), (10, 4), (30, 2), (500, 1)]);
    for block in [10, 11, 12, 13, 14, 30, 31, 500] {
        assert_content(&cache.read(Pblk::new(block)).unwrap(), block, 0);
    }
    cache.prefetch_all(wanted.map(Pblk::new).into());
    cache.prefetch_all(Vec::new());
    assert_eq!(stub.reads().len(), 4, "everything was there");
    assert_eq!(cache.stats().prefetched, 7);
}

#[test]
fn of_blocks_that_are_read_together_bad_ones_are_left_to_those_who_need_them() {
    let (stub, cache) = cache(Stub::default(), 1024);
    *stub.bad.lock().unwrap() = Some(22);
    cache.prefetch_all([20, 22, 24, 40].map(Pblk::new).into());
    assert_eq!(cache.stats().blocks, 3);
    for block in [20, 22, 24, 40] {
        let read = cache.read(Pblk::new(block));
        assert_eq!(read.is_err(), block == 22);
    }
}

#[test]
fn blocks_that_are_read_together_do_not_empty_the_cache() {
    let (_, cache) = cache(Stub::default(), 64);
    cache.prefetch_all(blocks(1000..2000).collect());
    assert_eq!(cache.stats().prefetched, 16);
}

#[test]
fn readahead_leaves_bad_blocks_to_those_who_need_them() {
    let (stub, cache) = cache(Stub::default(), 1024);
    *stub.bad.lock().unwrap() = Some(22);
    cache.prefetch(Pblk::new(20), 8);
    assert_eq!(cache.stats().blocks, 0);
    for block in blocks(20..28) {
        let read = cache.read(block);
        assert_eq!(read.is_err(), block.get() == 22);
    }
}

#[test]
fn readahead_does_not_empty_the_cache() {
    let (_, cache) = cache(Stub::default(), 64);
    for block in blocks(0..48) {
        cache.read(block).unwrap();
    }
    cache.prefetch(Pblk::new(1000), 1000);
    assert_eq!(cache.stats().prefetched, 16);
}

#[test]
fn the_overlay_comes_before_the_device() {
    #[derive(Debug)]
    struct Odd;
    impl Overlay for Odd {
        fn image(&self, block: Pblk) -> Option<Arc<[u8]>> {
            (block.get() % 4 == 3).then(|| vec![0xee; SIZE.len()].into())
        }
    }
    let (stub, cache) = cache(Stub::default(), 1024);
    let cache = cache.with_overlay(Arc::new(Odd));
    assert!(cache.read(Pblk::new(3)).unwrap().iter().all(|b| *b == 0xee));
    cache.prefetch(Pblk::new(4), 9);
    cache.prefetch_all(blocks(20..23).chain(blocks(24..27)).collect());
    cache.prefetch_all(blocks(21..25).collect());
    for block in blocks(4..13).chain(blocks(20..27)) {
        let read = cache.read(block).unwrap();
        if block.get() % 4 == 3 {
            assert!(read.iter().all(|b| *b == 0xee));
        } else {
            assert_content(&read, block.get(), 0);
        }
    }
    let together = [(20, 3), (24, 3)];
    assert_eq!(
        stub.reads(),
        [&[(4, 3), (8, 3), (12, 1)], &together[..]].concat()
    );
    assert_eq!(cache.stats().overlaid, 4);
}

#[test]
fn a_discarded_block_is_read_again_and_holders_keep_the_old_content() {
    let (stub, cache) = cache(Stub::default(), 64);
    let old = cache.read(Pblk::new(8)).unwrap();
    old.set_verified(Structure::ExtentNode, Some(Ino::new(12)));
    stub.generation.store(1, Ordering::Relaxed);
    cache.discard(Pblk::new(8));
    assert_eq!(cache.stats().blocks, 0);
    let new = cache.read(Pblk::new(8)).unwrap();
    assert_content(&old, 8, 0);
    assert_content(&new, 8, 1);
    assert!(!new.is_verified(Structure::ExtentNode, Some(Ino::new(12))));
}

#[test]
fn a_block_discarded_while_it_is_loaded_is_loaded_again() {
    let (stub, cache) = cache(
        Stub {
            delay: Duration::from_millis(60),
            ..Stub::default()
        },
        64,
    );
    let read = std::thread::scope(|s| {
        let reader = s.spawn(|| cache.read(Pblk::new(8)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        stub.generation.store(1, Ordering::Relaxed);
        cache.discard(Pblk::new(8));
        reader.join().unwrap()
    });
    assert_content(&read, 8, 1);
    assert_content(&cache.read(Pblk::new(8)).unwrap(), 8, 1);
    assert_eq!(cache.stats().blocks, 1);
}

#[test]
fn verification_holds_for_one_structure_of_one_inode() {
    let (_, cache) = cache(Stub::default(), 64);
    let block = cache.read(Pblk::new(1)).unwrap();
    assert!(!block.is_verified(Structure::DirBlock, Some(Ino::new(2))));
    block.set_verified(Structure::DirBlock, Some(Ino::new(2)));
    let again = cache.read(Pblk::new(1)).unwrap();
    assert!(again.is_verified(Structure::DirBlock, Some(Ino::new(2))));
    assert!(!again.is_verified(Structure::DirBlock, Some(Ino::new(3))));
    assert!(!again.is_verified(Structure::ExtentNode, Some(Ino::new(2))));
    assert!(!again.is_verified(Structure::DirBlock, None));
}

#[test]
fn blocks_in_use_survive_a_scan() {
    let (stub, cache) = cache(Stub::default(), 64);
    let held = cache.read(Pblk::new(0)).unwrap();
    for block in blocks(100..1100) {
        cache.read(Pblk::new(1)).unwrap();
        cache.read(block).unwrap();
    }
    assert!(cache.read(Pblk::new(0)).unwrap().same_load(&held));
    let reads_of = |b| stub.reads().iter().filter(|r| r.0 == b).count();
    assert_eq!(reads_of(0), 1, "a held block is never evicted");
    assert_eq!(
        reads_of(1),
        1,
        "a block asked for all the time is not evicted"
    );
    assert_eq!(cache.stats().blocks, 64);
}

#[test]
fn when_everything_is_held_new_blocks_are_not_kept() {
    let (_, cache) = cache(Stub::default(), 64);
    let held: Vec<_> = blocks(0..64).map(|b| cache.read(b).unwrap()).collect();
    let extra = cache.read(Pblk::new(200)).unwrap();
    assert_content(&extra, 200, 0);
    let stats = cache.stats();
    assert_eq!((stats.blocks, stats.unkept, stats.evictions), (64, 1, 0));
    drop(held);
    cache.read(Pblk::new(201)).unwrap();
    assert_eq!(cache.stats().evictions, 1);
}

#[test]
fn evicted_blocks_are_freed_while_many_threads_scan() {
    let blocks = 64 << 20 >> SIZE.log2();
    let device = Arc::new(Stub::default());
    let cache = Cache::new(device, SIZE, blocks, 4 << 20);
    let most = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..8 {
            let (cache, most) = (&cache, &most);
            s.spawn(move || {
                for block in (thread..blocks).step_by(8).map(Pblk::new) {
                    cache.read(block).unwrap();
                    if block.get() % 64 < 8 {
                        most.fetch_max(cache.stats().live_bytes, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let most = most.load(Ordering::Relaxed);
    assert!(most < 8 << 20, "{most} bytes were live at a time");
}

#[test]
fn the_budget_holds_under_eight_threads() {
    const SEED: u64 = 0x5eed;
    println!("seed {SEED:#x}");
    let (_, cache) = cache(Stub::default(), 300);
    let budget = cache.stats().budget_bytes;
    assert!(budget <= 300 * SIZE.len() as u64);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..8_u64)
            .map(|thread| {
                let cache = &cache;
                s.spawn(move || {
                    let mut state = SEED + thread;
                    let mut kept = Vec::new();
                    for round in 0..6000 {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(thread | 1);
                        let block = Pblk::new((state >> 33) % BLOCKS);
                        match round % 16 {
                            0 => cache.prefetch(block, 12),
                            1 => cache.discard(block),
                            _ => {
                                let read = cache.read(block).unwrap();
                                assert_eq!(read.block(), block);
                                assert_content(&read, block.get(), 0);
                                kept.push(read);
                                if kept.len() > 8 {
                                    kept.swap_remove(round % 8);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        let done = &done;
        let cache = &cache;
        let watcher = s.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                assert!(cache.stats().bytes <= budget);
                std::thread::yield_now();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    let stats = cache.stats();
    assert!(stats.evictions > 0 && stats.bytes <= budget, "{stats:?}");
    // The table agrees with the ring: nothing was forgotten in one of them only.
    let guard = pin();
    let in_table = blocks(0..BLOCKS)
        .filter(|b| cache.peek(*b, &guard).is_some())
        .count();
    assert_eq!(in_table as u64, stats.blocks);
}
