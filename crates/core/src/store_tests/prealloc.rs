//! What files get, on images of `mke2fs`.

use super::alloc::{Bench, MIB, blocks_of};
use crate::alloc::{FileRequest, Request, Taken};
use crate::data::reserve::preallocation;
use crate::inode::{FileType, Held};
use crate::lifecycle::NewInode;
use crate::map;
use crate::ops;
use crate::{Error, Result};
use extant_format::{Group, Ino, Lblk, Pblk};
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;

const SMALL_GROUPS: &[&str] = &["-t", "ext4", "-b", "1024", "-g", "2048"];

impl Bench {
    fn file(&self, name: &str) -> Held {
        let root = self.fs.hold(Ino::ROOT).unwrap();
        let new = NewInode::new(FileType::Regular, 0o644, ops::now());
        ops::create(&self.fs, &root, name.as_bytes(), &new).unwrap()
    }

    fn blocks_to_take(&self) -> i64 {
        self.alloc().clusters_to_grant()
    }

    /// What files keep ready and nobody has asked for. What is kept for small files goes back
    /// first, and so counts among what can be taken.
    fn kept(&self) -> u64 {
        self.alloc().give_small_files_back();
        self.alloc().clusters_of_files()
    }

    /// Requires that nothing is taken but what is owned on the device.
    fn nothing_kept(&self) {
        self.fs.sync().unwrap();
        for group in self.groups() {
            let Ok(view) = self.fs.alloc().unwrap().inspect_group(group) else {
                continue;
            };
            assert_eq!(view.taken, view.disk, "{group}");
        }
        let free = self.fs.alloc().unwrap().free_counts().blocks;
        assert_eq!(self.blocks_to_take(), free as i64);
    }
}

fn ask(lblk: u32, len: u32, size: u64) -> FileRequest {
    FileRequest {
        lblk: Lblk::new(lblk),
        len,
        size,
        reserved: false,
        no_prealloc: false,
        privileged: false,
    }
}

#[test]
fn files_that_grow_side_by_side_stay_in_one_piece_each() {
    let bench = Bench::new(64 * MIB, &["-t", "ext4", "-b", "1024"]);
    let files: Vec<Held> = (0..4).map(|i| bench.file(&format!("f{i}"))).collect();
    let mut taken: Vec<Vec<Taken<'_>>> = files.iter().map(|_| Vec::new()).collect();
    for step in 0..512_u32 {
        for (file, taken) in files.iter().zip(&mut taken) {
            let size = u64::from(step + 1) << 12;
            let mut next = step * 4;
            while next < step * 4 + 4 {
                let got =
                    preallocation::take_for(&bench.fs, file, &ask(next, step * 4 + 4 - next, size));
                let got = got.unwrap();
                next += got.len();
                taken.push(got);
            }
        }
    }
    for taken in &taken {
        let blocks: u32 = taken.iter().map(Taken::len).sum();
        assert_eq!(blocks, 2048);
        let pieces = 1 + taken
            .windows(2)
            .filter(|pair| blocks_of(&pair[0]).end != pair[1].start().get())
            .count();
        // One for each doubling, at the most.
        assert!(pieces <= 9, "{pieces}");
    }
    // Others see none of it.
    let free = bench.alloc().free_counts().blocks;
    assert_eq!(bench.fs.statfs().unwrap().free, free);
    drop(taken);
    for file in files {
        ops::release(&bench.fs, file).unwrap();
    }
    assert!(bench.alloc().discard_preallocations(u64::MAX) > 0);
    bench.nothing_kept();
    bench.close();
}

#[test]
fn a_file_that_is_no_longer_small_goes_on_in_the_group_of_its_goal() {
    let bench = Bench::new(64 * MIB, &["-t", "ext4", "-b", "1024", "-g", "2048"]);
    let group_of = |block| bench.fs.geometry().group_of_block(block).unwrap();
    let files: Vec<Held> = (0..4).map(|i| bench.file(&format!("f{i}"))).collect();
    let mut all = Vec::new();
    for file in &files {
        let mut taken = Vec::new();
        for lblk in (0..96).step_by(8) {
            let got =
                preallocation::take_for(&bench.fs, file, &ask(lblk, 8, u64::from(lblk + 8) << 10));
            taken.push(got.unwrap());
        }
        let small = &taken[..8];
        let beside = small
            .windows(2)
            .all(|pair| blocks_of(&pair[0]).end == pair[1].start().get());
        assert!(beside, "{small:?}");
        let goal = bench.alloc().goal_of_inode(file.ino()).unwrap();
        for large in &taken[8..] {
            assert_eq!(group_of(large.start()).get(), goal, "{}", file.ino());
        }
        all.push(taken);
    }
    drop(all);
    for file in files {
        ops::release(&bench.fs, file).unwrap();
    }
}

#[test]
fn a_file_that_goes_on_elsewhere_has_room_there_for_its_next_window() {
    let bench = Bench::new(64 * MIB, &["-t", "ext4", "-b", "1024"]);
    let file = bench.file("f");
    let group = bench.alloc().goal_of_inode(file.ino()).unwrap();
    let first = bench.fs.geometry().group_first_block(Group::new(group));
    let first = first.unwrap();
    // Holes of 64 KiB, which its first window fits, and free space behind.
    let mut blocks: Vec<Taken<'_>> = (0..64)
        .map(|_| {
            let request = Request {
                goal: first,
                len: 64,
                min: 64,
                below_32_bits: false,
                privileged: false,
            };
            bench.alloc().take_blocks(&request).unwrap()
        })
        .collect();
    blocks.sort_unstable_by_key(Taken::start);
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    let mut taken: Vec<Taken<'_>> = Vec::new();
    let mut lblk = 0;
    while lblk < 1024 {
        let size = u64::from(lblk + 8) << 10;
        let got = preallocation::take_for(&bench.fs, &file, &ask(lblk, 8, size)).unwrap();
        lblk += got.len();
        taken.push(got);
    }
    let pieces = 1 + taken
        .windows(2)
        .filter(|pair| blocks_of(&pair[0]).end != pair[1].start().get())
        .count();
    // Small, and each place serves two windows.
    assert!(pieces <= 3, "{pieces}");
    drop(taken);
    drop(blocks);
    ops::release(&bench.fs, file).unwrap();
}

#[test]
fn small_files_lie_one_behind_the_other() {
    let bench = Bench::new(64 * MIB, &["-t", "ext4"]);
    let mut runs = Vec::new();
    for i in 0..200_u32 {
        let file = bench.file(&format!("f{i}"));
        let len = 1 + i % 3;
        let taken = preallocation::take_for(&bench.fs, &file, &ask(0, len, u64::from(len) << 12));
        let taken = taken.unwrap();
        assert_eq!(taken.len(), len);
        runs.push(blocks_of(&taken));
        bench.alloc().commit_blocks(&bench.handle(), taken).unwrap();
        assert_eq!(file.alloc_state_if_any().unwrap().preallocations(), 0);
    }
    let breaks = runs.windows(2).filter(|pair| pair[0].end != pair[1].start);
    // As the thread moves between CPUs, it moves between their runs; not each time.
    assert!(breaks.count() < 60);
    let small = bench.alloc().drain_small_files();
    assert!(!small.is_empty());
    bench.alloc().give_runs_back(small);
    for run in runs {
        let (start, len) = (Pblk::new(run.start), (run.end - run.start) as u32);
        let kind = crate::alloc::FreedKind::Data;
        bench
            .alloc()
            .free_blocks(&bench.handle(), start, len, kind)
            .unwrap();
    }
    bench.alloc().discard_preallocations(u64::MAX);
    bench.nothing_kept();
    bench.close();
}

#[test]
fn what_is_kept_for_others_is_not_missing_when_space_ends() {
    let bench = Bench::new(40 * MIB, SMALL_GROUPS);
    let _spending = bench.as_anybody();
    let open = bench.blocks_to_take() as u64 - bench.fs.superblock().reserved_blocks_count();
    let files: Vec<Held> = (0..10).map(|i| bench.file(&format!("f{i}"))).collect();
    let mut taken = Vec::new();
    for (i, file) in files.iter().enumerate() {
        taken.push(
            preallocation::take_for(&bench.fs, file, &ask(i as u32 * 5000, 1, 1 << 30)).unwrap(),
        );
    }
    assert!(bench.kept() > 1000);
    // Everything goes to one of them that asks for single blocks, and to one that was promised it.
    let (one, other) = (&files[0], bench.file("other"));
    let mut lblk = 1_000_000;
    while lblk < 1_000_000 + open as u32 / 2 {
        let got = preallocation::take_for(&bench.fs, one, &ask(lblk, 3, 1 << 40)).unwrap();
        lblk += got.len();
        taken.push(got);
    }
    let mut promised = 0;
    while bench.alloc().reserve_space(7, false).is_ok() {
        promised += 7;
    }
    while bench.alloc().reserve_space(1, false).is_ok() {
        promised += 1;
    }
    let got: u32 = taken.iter().map(Taken::len).sum();
    assert_eq!(u64::from(got + promised), open);
    assert!(matches!(
        preallocation::take_for(&bench.fs, one, &ask(5, 1, 1 << 30)),
        Err(Error::NoSpace)
    ));
    let mut at = 0;
    while promised > 0 {
        let mut ask = ask(at, promised.min(100), 1 << 30);
        ask.reserved = true;
        let got = preallocation::take_for(&bench.fs, &other, &ask).unwrap();
        promised -= got.len();
        at += got.len();
        taken.push(got);
    }
    drop(taken);
    drop(files);
    bench.alloc().discard_preallocations(u64::MAX);
    bench.nothing_kept();
}

#[test]
fn a_promise_is_used_up_by_what_is_taken_and_can_be_had_back() {
    let bench = Bench::new(64 * MIB, &["-t", "ext4", "-b", "1024"]);
    let file = bench.file("file");
    let before = bench.blocks_to_take();
    let shown = || bench.fs.statfs().unwrap().free;
    let free = shown();
    bench.alloc().reserve_space(100, false).unwrap();
    assert_eq!(bench.blocks_to_take(), before - 100);
    assert_eq!(shown(), free - 100);
    let mut asked = ask(1000, 60, 1 << 30);
    asked.reserved = true;
    let taken = preallocation::take_for(&bench.fs, &file, &asked).unwrap();
    assert_eq!(taken.len(), 60);
    let kept = bench.kept() as i64;
    assert!(kept > 0);
    assert_eq!(bench.blocks_to_take(), before - 100 - kept);
    // Out of what is kept: the promise is free again.
    asked.lblk = Lblk::new(1060);
    asked.len = 40;
    let more = preallocation::take_for(&bench.fs, &file, &asked).unwrap();
    assert_eq!(
        (more.len(), more.start().get()),
        (40, blocks_of(&taken).end)
    );
    assert_eq!(bench.kept() as i64, kept - 40);
    assert_eq!(bench.blocks_to_take(), before - 100 - (kept - 40));
    drop(more);
    assert_eq!(shown(), free);
    let (start, len) = taken.into_raw();
    assert_eq!(shown(), free - 60);
    let taken = Taken::from_raw(bench.alloc(), start, len);
    taken.into_promise();
    assert_eq!(bench.blocks_to_take(), before - 60 - (kept - 40));
    assert_eq!(shown(), free - 60);
    bench.alloc().return_space(60);
    assert_eq!(shown(), free);
    preallocation::drop_all(bench.alloc(), &file);
    assert_eq!(bench.blocks_to_take(), before);
}

/// A file of a model: what it has taken, and what waits for it.
struct Sketch {
    held: Held,
    has: BTreeMap<u32, u64>,
}

#[test]
fn random_work_of_files_takes_no_block_twice_and_loses_none() {
    let seed = seed_from_env("alloc_files");
    for round in 0..3 {
        let mut rng = Rng::new(seed ^ round);
        let bench = Bench::new(24 * MIB, SMALL_GROUPS);
        let new = |n: u64| Sketch {
            held: bench.file(&format!("f{n}")),
            has: BTreeMap::new(),
        };
        let mut files: Vec<Sketch> = (0..6).map(new).collect();
        let mut names = 6;
        let mut taken: Vec<Taken<'_>> = Vec::new();
        for step in 0..4000 {
            let at = rng.below(files.len() as u64) as usize;
            match rng.below(100) {
                0..80 => {
                    let file = &mut files[at];
                    let lblk = if rng.one_in(2) {
                        file.has.last_key_value().map_or(0, |(last, _)| last + 1)
                    } else {
                        rng.below(20_000) as u32
                    };
                    if file.has.contains_key(&lblk) {
                        continue;
                    }
                    let room = file
                        .has
                        .range(lblk..)
                        .next()
                        .map_or(50, |(next, _)| next - lblk);
                    let asked = FileRequest {
                        no_prealloc: rng.one_in(10),
                        ..ask(
                            lblk,
                            rng.between(1, room.min(50).into()) as u32,
                            rng.below(20 * MIB),
                        )
                    };
                    match preallocation::take_for(&bench.fs, &file.held, &asked) {
                        Ok(got) => {
                            assert!(got.len() <= asked.len);
                            for (i, block) in blocks_of(&got).enumerate() {
                                file.has.insert(lblk + i as u32, block);
                            }
                            taken.push(got);
                        }
                        Err(Error::NoSpace) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
                80..86 => {
                    // What it has stays, but nothing waits for it any more.
                    let from = rng.below(20_000) as u32;
                    let held = &files[at].held;
                    preallocation::drop_from(bench.alloc(), held, Lblk::new(from));
                    let state = held.alloc_state();
                    let runs = state.preallocated_runs();
                    assert!(runs.iter().all(|(l, n)| l + n <= from));
                }
                86..90 => preallocation::drop_all(bench.alloc(), &files[at].held),
                90 => drop(bench.alloc().discard_preallocations(rng.below(3000))),
                91..93 => {
                    files[at] = new(names);
                    names += 1;
                }
                _ if taken.len() > 20 => {
                    let n = rng.below(taken.len() as u64 / 2) as usize;
                    for got in taken.drain(..n) {
                        let gone = blocks_of(&got);
                        for file in &mut files {
                            file.has.retain(|_, block| !gone.contains(block));
                        }
                    }
                }
                _ => {}
            }
            if step % 500 == 0 {
                let mut all: Vec<_> = taken.iter().map(blocks_of).collect();
                all.sort_by_key(|run| run.start);
                assert!(
                    all.windows(2).all(|pair| pair[0].end <= pair[1].start),
                    "{seed}"
                );
                let free = bench.alloc().free_counts().blocks;
                let got: u64 = all.iter().map(|run| run.end - run.start).sum();
                let kept = bench.kept();
                assert_eq!(bench.blocks_to_take() as u64 + got + kept, free, "{seed}");
            }
        }
        drop(taken);
        drop(files);
        bench.alloc().discard_preallocations(u64::MAX);
        bench.nothing_kept();
    }
}

#[test]
fn threads_use_what_is_kept_while_others_discard_it() {
    let seed = seed_from_env("alloc_files_threads");
    let bench = Bench::new(40 * MIB, SMALL_GROUPS);
    let files: Vec<Held> = (0..3).map(|i| bench.file(&format!("f{i}"))).collect();
    let runs: Vec<std::ops::Range<u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6_u64)
            .map(|i| {
                let (bench, file) = (&bench, &files[i as usize % 3]);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed ^ i);
                    let mut mine = Vec::new();
                    for _ in 0..1500 {
                        if rng.one_in(30) {
                            bench.alloc().discard_preallocations(rng.below(2000));
                        }
                        if rng.one_in(100) {
                            preallocation::drop_all(bench.alloc(), file);
                        }
                        // Two threads of a file ask for blocks of their own, side by side.
                        let lblk = rng.below(20_000) as u32 * 2 + (i / 3) as u32;
                        match preallocation::take_for(&bench.fs, file, &ask(lblk, 1, 1 << 26)) {
                            Ok(got) => mine.push(got),
                            Err(Error::NoSpace) => mine.clear(),
                            Err(e) => panic!("{e}"),
                        }
                    }
                    let runs: Vec<_> = mine.iter().map(blocks_of).collect();
                    for got in mine {
                        bench.alloc().commit_blocks(&bench.handle(), got).unwrap();
                    }
                    runs
                })
            })
            .collect();
        let runs = workers.into_iter().flat_map(|w| w.join().unwrap());
        runs.collect()
    });
    let mut sorted = runs.clone();
    sorted.sort_by_key(|run| run.start);
    assert!(
        sorted.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "{seed}"
    );
    drop(files);
    bench.alloc().discard_preallocations(u64::MAX);
    bench.nothing_kept();
    for run in runs {
        let kind = crate::alloc::FreedKind::Data;
        let start = Pblk::new(run.start);
        bench
            .alloc()
            .free_blocks(&bench.handle(), start, 1, kind)
            .unwrap();
    }
    bench.close();
}

/// Live preallocations with which the cost of taking is compared.
const MANY: u32 = 40_000;

/// Not how long it takes, which a busy machine decides, but how much is done: a walk over all of
/// them would take minutes.
#[test]
fn many_preallocations_of_a_file_are_alive_at_once_and_all_of_use() {
    let bench = Bench::new(160 * MIB, &["-t", "ext4", "-b", "1024", "-m", "0"]);
    let file = bench.file("file");
    let mut taken = Vec::new();
    let size = |lblk: u32| u64::from(lblk + 1) << 10;
    // Past what small files get.
    let first = 128;
    for lblk in (0..MANY).map(|i| first + i * 2) {
        taken.push(preallocation::take_for(&bench.fs, &file, &ask(lblk, 1, size(lblk))).unwrap());
    }
    let alive = file.alloc_state().preallocations();
    assert!(alive >= MANY as usize - 1, "{alive}");
    let free = bench.blocks_to_take();
    for lblk in (0..MANY - 1).map(|i| first + i * 2 + 1) {
        let ask = ask(lblk, 1, size(first + MANY * 2));
        taken.push(preallocation::take_for(&bench.fs, &file, &ask).unwrap());
    }
    // All that lay between was kept ready, and nothing else was taken.
    assert_eq!(bench.blocks_to_take(), free);
    let mut runs: Vec<_> = taken.iter().map(blocks_of).collect();
    runs.sort_by_key(|run| run.start);
    assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start));
    drop(taken);
    preallocation::drop_all(bench.alloc(), &file);
    drop(file);
    bench.alloc().discard_preallocations(u64::MAX);
    bench.nothing_kept();
}

#[test]
fn holes_of_a_file_are_filled_between_what_lies_beside_them() {
    let seed = seed_from_env("alloc_holes");
    let mut rng = Rng::new(seed);
    let bench = Bench::new(64 * MIB, &["-t", "ext4", "-b", "1024"]);
    let file = bench.file("file");
    let mode = ops::FallocateMode::default();
    let reserve = |held: &Held, block: u64, blocks: u64| {
        ops::fallocate(&bench.fs, held, block << 10, blocks << 10, mode).unwrap();
    };
    // Every eighth window of blocks is there, one behind the other; others take what lies between.
    ops::truncate(&bench.fs, &file, 8 << 20).unwrap();
    reserve(&file, 0, 64);
    reserve(&file, 4096, 64);
    preallocation::drop_all(bench.alloc(), &file);
    let other = bench.file("other");
    reserve(&other, 0, 2000);
    file.alloc_state_if_any().unwrap().forget_last();
    let mut order: Vec<u64> = (0..64).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    // Without anything kept ready in between, as if the file were opened each time.
    for block in order {
        reserve(&file, 4096 + 64 + block * 16, 16);
        preallocation::drop_all(bench.alloc(), &file);
    }
    let image = file.snapshot();
    let runs = map::Runs::over(&bench.fs, &image, 4096..4096 + 64 + 1024);
    let pieces = runs.collect::<Result<Vec<_>>>().unwrap().len();
    assert!(pieces <= 24, "{pieces} pieces, seed {seed}");
    preallocation::drop_all(bench.alloc(), &other);
}
