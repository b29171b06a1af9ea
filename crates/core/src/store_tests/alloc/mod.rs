//! The allocator on images of `mke2fs`, against naive models and the judgement of `e2fsck`.

mod inodes;
mod searching;
mod states;
mod trimming;

use crate::alloc::{Alloc, FreedKind, Parent, Request, Spending, Taken};
use crate::fs::Handle;
use crate::fs::{Fs, JournalChoice, MountOptions};
use crate::inode::{Caller, FileType, Inode};
use crate::meta::Seq;
use crate::{Error, Result};
use extant_blockdev::OpenSpec;
use extant_format::group_desc::GroupFlags;
use extant_format::inode::InodeFlags;
use extant_format::{Group, Ino, Pblk, bitmap};
use extant_testkit::oracle::{assert_clean, dumpe2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A file system on an image file, and the changed groups since the last commit.
pub(super) struct Bench {
    pub(super) fs: Fs,
    image: PathBuf,
    _dir: TempDir,
}

pub(super) const MIB: u64 = 1 << 20;

/// The directory as the allocator sees it.
fn place(dir: &Inode) -> Parent {
    Parent {
        ino: dir.ino(),
        is_top: dir.ino() == Ino::ROOT || dir.flags().contains(InodeFlags::TOP_DIR),
    }
}

impl Bench {
    /// Has this thread take what a user may have that nothing is reserved for.
    pub(crate) fn as_anybody(&self) -> Spending {
        self.fs.spending_for(&Caller::new(1005, 1005))
    }

    pub(super) fn new(size: u64, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        // What was there before is not zeros: a reader that is shown it is shown stale bytes.
        std::fs::write(&image, vec![0xa5; size as usize]).unwrap();
        tool("mke2fs")
            .args(["-F", "-q", "-E", "nodiscard,lazy_itable_init=1"])
            .args(options)
            .arg(&image)
            .ok();
        Self {
            fs: open(&image),
            image,
            _dir: dir,
        }
    }

    pub(super) fn alloc(&self) -> &Alloc {
        self.fs.alloc().unwrap()
    }

    fn take(&self, goal: u64, len: u32, min: u32) -> Result<Taken<'_>> {
        self.alloc().take_blocks(&Request {
            goal: Pblk::new(goal),
            len,
            min,
            below_32_bits: false,
            privileged: false,
        })
    }

    pub(super) fn handle(&self) -> Handle<'_> {
        self.fs.start(12).unwrap()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        self.fs.geometry().groups()
    }

    /// What commit would write of all groups, home.
    fn write_home(&self) {
        let loaded: Vec<_> = self
            .groups()
            .filter(|group| self.alloc().live_group(*group).is_some())
            .map(|group| self.alloc().group_image(group).unwrap())
            .collect();
        for (block, bytes) in self.alloc().encode_groups(&loaded).unwrap() {
            let offset = self.fs.block_size().offset_of(block).unwrap();
            self.fs.device().write_at(offset, &bytes).unwrap();
        }
        let counts = self.alloc().free_counts();
        let mut superblock = self.fs.superblock().clone();
        superblock.set_free_blocks_count(counts.blocks);
        superblock.set_free_inodes_count(counts.inodes);
        let device = self.fs.device();
        device.write_at(1024, &superblock.encode()).unwrap();
    }
}

impl Bench {
    /// Opens the same image in another way.
    fn reopened(self, options: MountOptions) -> Self {
        let Self { fs, image, _dir } = self;
        fs.close().unwrap();
        drop(fs);
        Self {
            fs: open_with(&image, options),
            image,
            _dir,
        }
    }

    /// Commits all, and lets `e2fsck` judge.
    pub(super) fn close(&self) {
        self.fs.close().unwrap();
        assert_clean(&self.image);
    }
}

fn open(image: &Path) -> Fs {
    open_with(image, MountOptions::read_write())
}

fn open_with(image: &Path, options: MountOptions) -> Fs {
    let device = OpenSpec::read_write(image).open().unwrap();
    Arc::into_inner(Fs::open(device, options.background(false)).unwrap()).unwrap()
}

/// Kinds of images that differ in where groups have what.
const KINDS: &[(&str, u64, &[&str])] = &[
    ("default", 64 * MIB, &["-t", "ext4"]),
    ("1k", 40 * MIB, &["-t", "ext4", "-b", "1024"]),
    (
        "small groups",
        24 * MIB,
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-G", "4"],
    ),
    (
        "64k",
        96 * MIB,
        &["-t", "ext4", "-b", "65536", "-O", "^has_journal"],
    ),
    (
        "no flex_bg",
        48 * MIB,
        &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"],
    ),
    (
        "meta_bg",
        48 * MIB,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "512",
            "-O",
            "meta_bg,^resize_inode",
        ],
    ),
    (
        "uninit_bg",
        48 * MIB,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    ),
    (
        "32-bit descriptors",
        48 * MIB,
        &["-t", "ext4", "-b", "1024", "-O", "^64bit"],
    ),
    (
        "no checksums",
        48 * MIB,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^uninit_bg",
        ],
    ),
    ("ext2", 33 * MIB, &["-t", "ext2", "-b", "1024"]),
    ("odd end", 33 * MIB - 5000, &["-t", "ext4", "-b", "1024"]),
    (
        "sparse_super2",
        48 * MIB,
        &["-t", "ext4", "-b", "1024", "-O", "sparse_super2"],
    ),
];

fn kinds() -> impl Iterator<Item = (&'static str, Bench)> {
    KINDS
        .iter()
        .map(|(name, size, options)| (*name, Bench::new(*size, options)))
}

#[test]
fn groups_load_as_dumpe2fs_sees_them() {
    for (name, bench) in kinds() {
        let dump = dumpe2fs(&bench.image);
        let geometry = bench.fs.geometry();
        assert_eq!(
            dump.groups.len(),
            geometry.groups_count() as usize,
            "{name}"
        );
        for (group, seen) in bench.groups().zip(&dump.groups) {
            let view = bench.alloc().inspect_group(group).unwrap();
            let first = geometry.group_first_block(group).unwrap().get();
            let runs = view.free_runs.iter().cloned();
            let free: Vec<u64> = runs.flatten().map(|bit| first + u64::from(bit)).collect();
            let wanted: Vec<u64> = seen.free_block_ranges.iter().cloned().flatten().collect();
            assert_eq!(free, wanted, "{name}: free blocks of group {group}");
            let inodes: Vec<u64> = bitmap::clear_runs(&view.inodes, 0..geometry.inodes_per_group())
                .flatten()
                .map(|index| geometry.inode_at(group, index).unwrap().get().into())
                .collect();
            let wanted: Vec<u64> = seen.free_inode_ranges.iter().cloned().flatten().collect();
            assert_eq!(inodes, wanted, "{name}: free inodes of group {group}");
            assert_eq!(view.taken, view.disk);
        }
    }
}

#[test]
fn free_extents_are_those_that_dumpe2fs_lists() {
    for (name, bench) in kinds() {
        let dump = dumpe2fs(&bench.image);
        let wanted: Vec<u64> = dump
            .groups
            .iter()
            .flat_map(|group| {
                group
                    .free_block_ranges
                    .iter()
                    .map(|r| r.end() - r.start() + 1)
            })
            .collect();
        let device = OpenSpec::read_only(&bench.image).open().unwrap();
        let stored = Fs::open(
            device,
            MountOptions::read_only().journal(JournalChoice::Ignore),
        );
        for found in [bench.fs.free_extents(), stored.unwrap().free_extents()] {
            let found = found.unwrap();
            assert_eq!(found.blocks, wanted.iter().sum::<u64>(), "{name}");
            assert_eq!(found.extents, wanted.len() as u64, "{name}");
            assert_eq!(Some(found.longest), wanted.iter().copied().max(), "{name}");
            for (order, of_order) in found.orders.iter().enumerate() {
                let same = wanted.iter().filter(|len| len.ilog2() as usize == order);
                assert_eq!(of_order.extents, same.clone().count() as u64, "{name}");
                assert_eq!(of_order.blocks, same.sum::<u64>(), "{name}");
            }
        }
    }
}

#[test]
fn what_commit_encodes_of_untouched_groups_is_what_mke2fs_wrote() {
    for (name, bench) in kinds() {
        for group in bench.groups() {
            bench.alloc().inspect_group(group).unwrap();
        }
        let before = std::fs::read(&bench.image).unwrap();
        bench.write_home();
        let after = std::fs::read(&bench.image).unwrap();
        assert!(before == after, "{name}");
        assert_clean(&bench.image);
    }
}

/// Everything of a run, committed or not.
pub(super) fn blocks_of(taken: &Taken<'_>) -> std::ops::Range<u64> {
    taken.start().get()..taken.start().get() + u64::from(taken.len())
}

/// What a file system should have, bit by bit.
struct Model {
    /// Blocks that may be taken.
    free: Vec<bool>,
    /// Blocks that are in use on the device.
    owned: Vec<bool>,
    reserved: u64,
}

impl Model {
    fn of(bench: &Bench) -> Self {
        let blocks = bench.fs.geometry().blocks_count() as usize;
        let mut model = Self {
            free: vec![false; blocks],
            owned: vec![true; blocks],
            reserved: bench.fs.superblock().reserved_blocks_count(),
        };
        for group in &dumpe2fs(&bench.image).groups {
            for block in group.free_block_ranges.iter().cloned().flatten() {
                model.free[block as usize] = true;
                model.owned[block as usize] = false;
            }
        }
        model
    }

    fn count(bits: &[bool]) -> u64 {
        bits.iter().filter(|b| **b).count() as u64
    }

    /// The most blocks a request for up to `len` can get in one group.
    fn longest(&self, bench: &Bench) -> u32 {
        let per_group = bench.fs.geometry().blocks_per_group() as usize;
        let first = bench.fs.geometry().first_data_block().get() as usize;
        let mut longest = 0;
        for group in self.free[first..].chunks(per_group) {
            for run in group.chunk_by(|a, b| a == b).filter(|run| run[0]) {
                longest = longest.max(run.len());
            }
        }
        longest as u32
    }

    fn mark(bits: &mut [bool], blocks: std::ops::Range<u64>, to: bool) {
        for bit in &mut bits[blocks.start as usize..blocks.end as usize] {
            assert_ne!(*bit, to);
            *bit = to;
        }
    }

    fn check(&self, bench: &Bench) {
        let geometry = bench.fs.geometry();
        for group in bench.groups() {
            let Ok(view) = bench.alloc().inspect_group(group) else {
                continue;
            };
            let first = geometry.group_first_block(group).unwrap().get() as usize;
            let mut free = 0;
            let mut unowned = 0;
            for (bit, is_free) in view.is_free.iter().enumerate() {
                let at = first + bit;
                assert_eq!(*is_free, self.free[at], "block {at}");
                let owned = bitmap::test(&view.disk, bit as u32);
                assert_eq!(owned, self.owned[at], "owner of block {at}");
                free += u32::from(self.free[at]);
                unowned += u32::from(!owned);
            }
            assert_eq!(view.free, free);
            assert_eq!(view.free_by_descriptor, unowned);
        }
        let unowned = Self::count(&self.owned.iter().map(|o| !o).collect::<Vec<_>>());
        let first = geometry.first_data_block().get();
        let counts = bench.alloc().free_counts();
        assert_eq!(counts.blocks, unowned, "from block {first}");
        assert_eq!(
            bench.alloc().clusters_to_grant(),
            Self::count(&self.free) as i64
        );
        assert_eq!(bench.fs.statfs().unwrap().free, unowned);
    }
}

#[test]
fn random_work_agrees_with_a_model_of_single_bits() {
    let seed = seed_from_env("alloc_model");
    for (n, (size, options)) in [
        (10 * MIB, &["-t", "ext4", "-b", "1024", "-g", "512"][..]),
        (
            24 * MIB,
            &["-t", "ext4", "-b", "1024", "-g", "2048", "-G", "4"],
        ),
        (40 * MIB, &["-t", "ext4", "-m", "0"]),
    ]
    .into_iter()
    .enumerate()
    {
        let bench = Bench::new(size, options);
        let _spending = bench.as_anybody();
        let mut rng = Rng::new(seed ^ n as u64);
        let mut model = Model::of(&bench);
        let mut taken = Vec::new();
        let mut owned: Vec<(Seq, std::ops::Range<u64>)> = Vec::new();
        let mut freed: Vec<(Seq, std::ops::Range<u64>)> = Vec::new();
        let blocks = bench.fs.geometry().blocks_count();
        for step in 0..3000 {
            // Full at times, empty at times.
            let filling = step / 500 % 2 == 0;
            match rng.below(10) {
                0..4 => {
                    let len = if rng.one_in(20) {
                        rng.between(1, 3000)
                    } else {
                        rng.between(1, 60)
                    };
                    let min = rng.between(1, len);
                    let request = Request {
                        goal: Pblk::new(rng.below(blocks + 10)),
                        len: len as u32,
                        min: min as u32,
                        below_32_bits: rng.one_in(2),
                        privileged: rng.one_in(3),
                    };
                    take_one(&bench, &mut model, request, &mut taken);
                }
                4..7 if !taken.is_empty() => {
                    let one: Taken<'_> = taken.swap_remove(rng.below(taken.len() as u64) as usize);
                    if !filling && rng.one_in(2) {
                        Model::mark(&mut model.free, blocks_of(&one), true);
                    } else {
                        commit_one(&bench, &mut model, one, &mut rng, &mut owned, &mut taken);
                    }
                }
                7..10 if !owned.is_empty() && (!filling || rng.one_in(6)) => {
                    let at = rng.below(owned.len() as u64) as usize;
                    let (since, run) = owned.swap_remove(at);
                    let len = (run.end - run.start) as u32;
                    let kind = *rng.pick(&[FreedKind::Data, FreedKind::Metadata]);
                    let handle = bench.handle();
                    bench
                        .alloc()
                        .free_blocks(&handle, Pblk::new(run.start), len, kind)
                        .unwrap();
                    Model::mark(&mut model.owned, run.clone(), false);
                    // What no earlier transaction knows is free at once.
                    if since == handle.seq() && kind == FreedKind::Data {
                        Model::mark(&mut model.free, run, true);
                    } else {
                        freed.push((handle.seq(), run));
                    }
                }
                _ if rng.one_in(30) => bench.fs.sync().unwrap(),
                _ => {}
            }
            // Any handle may have had to commit first.
            let durable = bench.fs.durable();
            for (_, run) in freed.extract_if(.., |(seq, _)| *seq <= durable) {
                Model::mark(&mut model.free, run, true);
            }
            let pending: u64 = freed.iter().map(|(_, run)| run.end - run.start).sum();
            assert_eq!(bench.alloc().pending_free_blocks(), pending);
            if step % 250 == 0 {
                model.check(&bench);
            }
        }
        for one in taken.drain(..) {
            Model::mark(&mut model.free, blocks_of(&one), true);
        }
        model.check(&bench);
        let owned: Vec<_> = owned.into_iter().map(|(_, run)| run).collect();
        give_all_back(&bench, &owned);
    }
}

fn take_one<'f>(bench: &'f Bench, model: &mut Model, request: Request, taken: &mut Vec<Taken<'f>>) {
    let free = Model::count(&model.free);
    let open = if request.privileged {
        free
    } else {
        free.saturating_sub(model.reserved)
    };
    let longest = model.longest(bench);
    match bench.alloc().take_blocks(&request) {
        Ok(one) => {
            assert!(one.len() >= request.min && one.len() <= request.len);
            assert!(u64::from(one.len()) <= open);
            Model::mark(&mut model.free, blocks_of(&one), false);
            taken.push(one);
        }
        Err(Error::NoSpace) => {
            let min = u64::from(request.min);
            assert!(
                min > open || request.min > longest,
                "{request:?} of {open}, {longest}"
            );
        }
        Err(e) => panic!("{e}"),
    }
}

fn commit_one<'f>(
    bench: &'f Bench,
    model: &mut Model,
    mut one: Taken<'f>,
    rng: &mut Rng,
    owned: &mut Vec<(Seq, std::ops::Range<u64>)>,
    taken: &mut Vec<Taken<'f>>,
) {
    let front = one.split_front(rng.between(1, one.len().into()) as u32);
    let run = blocks_of(&front);
    let handle = bench.handle();
    bench.alloc().commit_blocks(&handle, front).unwrap();
    Model::mark(&mut model.owned, run.clone(), true);
    owned.push((handle.seq(), run));
    drop(handle);
    if !one.is_empty() {
        taken.push(one);
    }
}

/// Frees all that is owned: the image is then as clean as it was.
fn give_all_back(bench: &Bench, owned: &[std::ops::Range<u64>]) {
    for run in owned {
        let len = (run.end - run.start) as u32;
        bench
            .alloc()
            .free_blocks(&bench.handle(), Pblk::new(run.start), len, FreedKind::Data)
            .unwrap();
    }
    bench.close();
}

#[test]
fn threads_never_get_a_block_twice_and_lose_none() {
    let seed = seed_from_env("alloc_threads");
    let bench = Bench::new(24 * MIB, &["-t", "ext4", "-b", "1024", "-g", "1024"]);
    let before = bench.alloc().free_counts();
    let total = bench.alloc().clusters_to_grant();
    let owned: Vec<std::ops::Range<u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8_u64)
            .map(|i| {
                let bench = &bench;
                scope.spawn(move || worker(bench, Rng::new(seed ^ i)))
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect()
    });
    bench.fs.sync().unwrap();
    let mut sorted = owned.clone();
    sorted.sort_unstable_by_key(|run| run.start);
    for pair in sorted.windows(2) {
        assert!(
            pair[0].end <= pair[1].start,
            "{pair:?} overlap, seed {seed}"
        );
    }
    let used: u64 = owned.iter().map(|run| run.end - run.start).sum();
    let counts = bench.alloc().free_counts();
    assert_eq!(counts.blocks, before.blocks - used);
    assert_eq!(bench.alloc().clusters_to_grant(), total - used as i64);
    for group in bench.groups() {
        let view = bench.alloc().inspect_group(group).unwrap();
        assert_eq!(view.taken, view.disk);
    }
    give_all_back(&bench, &owned);
    assert_eq!(bench.alloc().free_counts(), before);
}

/// Takes, commits, gives back and frees, until the image is full and beyond.
fn worker(bench: &Bench, mut rng: Rng) -> Vec<std::ops::Range<u64>> {
    let blocks = bench.fs.geometry().blocks_count();
    let mut owned: Vec<std::ops::Range<u64>> = Vec::new();
    for _ in 0..1500 {
        if rng.one_in(3) && !owned.is_empty() {
            let run = owned.swap_remove(rng.below(owned.len() as u64) as usize);
            let len = (run.end - run.start) as u32;
            let start = Pblk::new(run.start);
            let handle = bench.handle();
            bench
                .alloc()
                .free_blocks(&handle, start, len, FreedKind::Data)
                .unwrap();
        } else if rng.one_in(50) {
            bench.fs.sync().unwrap();
        } else {
            let goal = rng.below(blocks);
            match bench.take(goal, rng.between(1, 40) as u32, 1) {
                Ok(one) if rng.one_in(4) => drop(one),
                Ok(one) => {
                    owned.push(blocks_of(&one));
                    bench.alloc().commit_blocks(&bench.handle(), one).unwrap();
                }
                Err(Error::NoSpace) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
    owned
}

#[test]
fn the_reserve_is_for_the_privileged_and_freed_blocks_wait_for_their_commit() {
    let bench = Bench::new(10 * MIB, &["-t", "ext4", "-b", "1024", "-m", "5"]);
    let free = bench.alloc().free_counts().blocks;
    let reserved = bench.fs.superblock().reserved_blocks_count();
    let mut taken = Vec::new();
    let spending = bench.as_anybody();
    while let Ok(one) = bench.take(0, 500, 1) {
        taken.push(one);
    }
    let got: u64 = taken.iter().map(|one| u64::from(one.len())).sum();
    assert_eq!(got, free - reserved);
    // Another file system, of which nothing is said, and somebody else's share within this one.
    let other = Bench::new(10 * MIB, &["-t", "ext4", "-b", "1024", "-m", "50"]);
    let inner = other.as_anybody();
    let all: Vec<_> = std::iter::from_fn(|| other.take(0, 500, 1).ok()).collect();
    assert!(other.take(0, 1, 1).is_err());
    let privileged = bench.fs.spending_for(&Caller::new(0, 0));
    drop(bench.take(0, 1, 1).unwrap());
    assert!(other.take(0, 1, 1).is_err());
    drop(privileged);
    assert!(bench.take(0, 1, 1).is_err());
    drop(inner);
    drop(other.take(0, 1, 1).unwrap());
    drop(all);
    assert!(bench.take(0, 1, 1).is_err());
    drop(spending);
    while let Ok(one) = bench.take(0, 500, 1) {
        taken.push(one);
    }
    let got: u64 = taken.iter().map(|one| u64::from(one.len())).sum();
    assert_eq!(got, free - bench.fs.held_back_from_all());
    let mut request = Request {
        goal: Pblk::new(0),
        len: 500,
        min: 1,
        below_32_bits: false,
        privileged: true,
    };
    while let Ok(one) = bench.alloc().take_blocks(&request) {
        taken.push(one);
    }
    let got: u64 = taken.iter().map(|one| u64::from(one.len())).sum();
    assert_eq!(got, free);
    // One goes, and one that is committed and freed.
    let mut runs = Vec::new();
    for one in taken {
        runs.push(blocks_of(&one));
        bench.alloc().commit_blocks(&bench.handle(), one).unwrap();
    }
    assert_eq!(bench.alloc().free_counts().blocks, 0);
    bench.fs.sync().unwrap();
    let run = runs.pop().unwrap();
    let len = (run.end - run.start) as u32;
    let start = Pblk::new(run.start);
    let handle = bench.handle();
    bench
        .alloc()
        .free_blocks(&handle, start, len, FreedKind::Data)
        .unwrap();
    let seq = handle.seq();
    drop(handle);
    request.len = 1;
    assert!(matches!(
        bench.alloc().take_blocks(&request),
        Err(Error::NoSpace)
    ));
    assert_eq!(bench.alloc().pending_free_blocks(), u64::from(len));
    assert_eq!(bench.alloc().free_counts().blocks, u64::from(len));
    let mut seen = Vec::new();
    bench
        .alloc()
        .for_each_freed(seq, |start, len, kind| seen.push((start, len, kind)));
    assert_eq!(seen, [(start, len, FreedKind::Data)]);
    bench.fs.sync().unwrap();
    let again = bench.alloc().take_blocks(&request).unwrap();
    assert!(run.contains(&again.start().get()));
    drop(again);
    give_all_back(&bench, &runs);
}

#[test]
fn blocks_come_at_the_goal_or_behind_it() {
    let bench = Bench::new(64 * MIB, &["-t", "ext4", "-b", "1024"]);
    let per_group = u64::from(bench.fs.geometry().blocks_per_group());
    let goal = 3 * per_group + 4000;
    let first = bench.take(goal, 100, 1).unwrap();
    assert_eq!(blocks_of(&first), goal..goal + 100);
    let second = bench.take(goal, 100, 1).unwrap();
    assert_eq!(blocks_of(&second), goal + 100..goal + 200);
    drop(first);
    let third = bench.take(goal, 50, 1).unwrap();
    assert_eq!(blocks_of(&third), goal..goal + 50);
}

#[test]
fn what_may_not_be_freed_is_refused_and_nothing_changes() {
    let bench = Bench::new(24 * MIB, &["-t", "ext4", "-b", "1024"]);
    let before = bench.alloc().free_counts();
    let blocks = bench.fs.geometry().blocks_count();
    let table = bench.fs.group(Group::new(0)).unwrap().inode_table;
    let mut hole = bench.take(20_000, 30, 30).unwrap();
    let front = hole.split_front(10);
    let owned = front.start();
    let free = hole.start();
    bench.alloc().commit_blocks(&bench.handle(), front).unwrap();
    drop(hole);
    let handle = bench.handle();
    for (what, start, len) in [
        ("past the end", Pblk::new(blocks), 1),
        ("over the end", Pblk::new(blocks - 1), 2),
        ("far away", Pblk::new(u64::MAX), u32::MAX),
        ("the superblock", Pblk::new(1), 1),
        ("an inode table", table, 1),
        ("free ones", free, 1),
        ("partly free", owned, 11),
    ] {
        let result = bench
            .alloc()
            .free_blocks(&handle, start, len, FreedKind::Data);
        let error = result.expect_err(what);
        assert!(error.is_corruption(), "{what}: {error}");
    }
    let after = bench.alloc().free_counts();
    assert_eq!(after.blocks, before.blocks - 10);
    assert_eq!(bench.alloc().pending_free_blocks(), 0);
    for ino in [0, 1, 2, 10, u32::MAX] {
        let error = bench.alloc().free_inode(&handle, Ino::new(ino), false);
        assert!(error.unwrap_err().is_corruption(), "inode {ino}");
    }
    let error = bench.alloc().free_inode(&handle, Ino::new(500), false);
    assert!(error.unwrap_err().to_string().contains("in use"));
    assert_eq!(bench.alloc().free_counts(), after);
}

#[test]
fn a_damaged_group_is_left_alone() {
    // Found by its checksum; and without checksums by its count.
    let sums = &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"];
    damage(Group::new(0), sums);
    let none = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^uninit_bg",
    ];
    damage(Group::new(2), none);
}

fn damage(bad: Group, options: &[&str]) {
    let bench = Bench::new(40 * MIB, options);
    let desc = bench.fs.group(bad).unwrap();
    let uninit = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
    assert!(!desc.flags.intersects(uninit));
    let Bench { fs, image, _dir } = bench;
    drop(fs);
    let sound = std::fs::read(&image).unwrap();
    for (what, block) in [("blocks", desc.block_bitmap), ("inodes", desc.inode_bitmap)] {
        let mut bytes = sound.clone();
        bytes[block.get() as usize * 1024 + 50] ^= 0x10;
        std::fs::write(&image, &bytes).unwrap();
        let fs = open(&image);
        let free = fs.alloc().unwrap().clusters_to_grant();
        let request = Request {
            goal: Pblk::new(fs.geometry().group_first_block(bad).unwrap().get() + 2000),
            len: 1,
            min: 1,
            below_32_bits: false,
            privileged: true,
        };
        let one = fs.alloc().unwrap().take_blocks(&request).unwrap();
        let at = fs.geometry().group_of_block(one.start()).unwrap();
        assert_ne!(at, bad, "{what}");
        let error = fs.alloc().unwrap().inspect_group(bad).unwrap_err();
        assert!(error.is_corruption());
        assert!(error.to_string().contains("block group"), "{error}");
        drop(one);
        // Nobody waits for space that cannot be had.
        let lost = i64::from(desc.free_clusters);
        assert_eq!(
            fs.alloc().unwrap().clusters_to_grant(),
            free - lost,
            "{what}"
        );
    }
}
