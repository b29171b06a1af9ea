//! Telling the device of what is free.

use super::*;
use crate::alloc::TrimRange;
use std::sync::atomic::{AtomicBool, Ordering};

const ALL: TrimRange = TrimRange {
    start: 0,
    len: u64::MAX,
    min_len: 0,
};

impl Bench {
    /// Whether a block holds zeros, as what was told of does here.
    fn is_hole(&self, block: u64) -> bool {
        let size = self.fs.block_size();
        let mut bytes = vec![1; size.len()];
        let offset = size.offset_of(Pblk::new(block)).unwrap();
        self.fs.device().read_at(offset, &mut bytes).unwrap();
        bytes.iter().all(|byte| *byte == 0)
    }

    fn free_bytes(&self) -> u64 {
        self.fs.alloc().unwrap().free_counts().blocks << self.fs.block_size().log2()
    }
}

#[test]
fn all_that_is_free_is_told_of_and_nothing_else() {
    for (name, bench) in kinds() {
        let told = bench.fs.trim(ALL).unwrap();
        assert_eq!(told, bench.free_bytes(), "{name}");
        let taken = bench.take(0, 8, 8).unwrap();
        let start = taken.start().get();
        // Nobody's on the device, and yet somebody's.
        let filled = vec![0xa5; bench.fs.block_size().len() * 8];
        let offset = bench.fs.block_size().offset_of(taken.start()).unwrap();
        bench.fs.device().write_at(offset, &filled).unwrap();
        let len = u64::try_from(filled.len()).unwrap();
        assert_eq!(bench.fs.trim(ALL).unwrap(), told - len, "{name}");
        assert!(!bench.is_hole(start), "{name}");
        let handle = bench.handle();
        bench.alloc().commit_blocks(&handle, taken).unwrap();
        let seq = handle.seq();
        drop(handle);
        bench.fs.commit(seq).unwrap();
        // Freed, but a crash may bring its owner back.
        let handle = bench.handle();
        let freed = bench
            .alloc()
            .free_blocks(&handle, Pblk::new(start), 8, FreedKind::Data);
        freed.unwrap();
        let seq = handle.seq();
        drop(handle);
        assert_eq!(bench.fs.trim(ALL).unwrap(), told - len, "{name}");
        assert!(!bench.is_hole(start), "{name}");
        bench.fs.commit(seq).unwrap();
        assert_eq!(bench.fs.trim(ALL).unwrap(), told, "{name}");
        assert!(bench.is_hole(start), "{name}");
        bench.close();
    }
}

#[test]
fn what_lies_outside_the_range_or_is_shorter_than_asked_for_is_not_told_of() {
    let bench = Bench::new(40 * MIB, &["-t", "ext4", "-b", "1024"]);
    let mut kept = Vec::new();
    let mut gaps = Vec::new();
    let first = bench.take(20_000, 1, 1).unwrap();
    let mut at = first.start().get() + 1;
    kept.push(first);
    // Gaps of 1 to 20 blocks between blocks that are taken.
    for gap in 1..=20 {
        let hole = at..at + gap;
        let next = bench.take(hole.end, 1, 1).unwrap();
        assert_eq!(next.start().get(), hole.end);
        at = hole.end + 1;
        kept.push(next);
        gaps.push(hole);
    }
    let (start, end) = (gaps[0].start, at);
    let range = |start: u64, end: u64, min: u64| TrimRange {
        start: start << 10,
        len: (end - start) << 10,
        min_len: min << 10,
    };
    let told = bench.fs.trim(range(start, end, 8)).unwrap();
    let expected: u64 = (8..=20).sum();
    assert_eq!(told, expected << 10);
    for gap in &gaps {
        let is_long = gap.end - gap.start >= 8;
        assert!(gap.clone().all(|block| bench.is_hole(block) == is_long));
    }
    assert!(!bench.is_hole(end + 1));
    let (third, _) = (&gaps[2], &gaps[3]);
    let told = bench.fs.trim(range(third.start + 1, third.start + 2, 0));
    assert_eq!(told.unwrap(), 1 << 10);
    let nothing = [
        range(40_960, 40_961, 0),
        range(0, 0, 0),
        range(0, 100, 8193),
    ];
    for bad in nothing {
        let refused = bench.fs.trim(bad);
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{bad:?}");
    }
    drop(kept);
    bench.close();
}

#[test]
fn nobody_finds_too_little_space_because_of_what_is_being_told() {
    let bench = Bench::new(24 * MIB, &["-t", "ext4", "-b", "1024", "-m", "0"]);
    // All but some hundred blocks are somebody's, of which a part is promised.
    let mut kept = Vec::new();
    let mut left = bench.alloc().clusters_to_grant() - 700;
    while left > 0 {
        let len = u32::try_from(left).unwrap().min(4096);
        let taken = bench.take(0, len, 1).unwrap();
        left -= i64::from(taken.clusters());
        kept.push(taken);
    }
    bench.alloc().reserve_space(400, false).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            for round in 0..3000 {
                let taken = bench.take(0, 200, 1);
                drop(taken.unwrap_or_else(|e| panic!("round {round}: {e}")));
                // What was promised is always there.
                let request = Request {
                    goal: Pblk::new(0),
                    len: 400,
                    min: 1,
                    below_32_bits: false,
                    privileged: true,
                };
                let taken = bench.alloc().take_promised(&request);
                taken.expect("it was promised").into_promise();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) && !taker.is_finished() {
            bench.fs.trim(ALL).unwrap();
        }
    });
    bench.alloc().return_space(400);
    drop(kept);
    bench.close();
}
