#![allow(unused_imports, dead_code, reason = "more tests")]
//! The allocator on images of `mke2fs`, against naive models and the judgement of `e2fsck`.

use super::{Alloc, FreedKind, Request, Taken};
use crate::fs::{Fs, MountOptions, Writer};
use crate::inode::{FileType, Orphans};
use crate::journal::{Handle, Journal, Seq};
use crate::{Error, Result};
use extant_blockdev::{BlockDevice, OpenSpec};
use extant_format::group_desc::GroupFlags;
use extant_format::{Group, Ino, Pblk, bitmap};
use extant_testkit::oracle::{assert_clean, dumpe2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A file system on an image file, and the changed groups since the last commit.
struct Bench {
    fs: Fs,
    image: PathBuf,
    _dir: TempDir,
}

const MIB: u64 = 1 << 20;

impl Bench {
    fn new(size: u64, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        // What was there before is not zeros: whoever shows it shows stale bytes.
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

    fn alloc(&self) -> &Alloc {
        self.fs.alloc().unwrap()
    }

    fn take(&self, goal: u64, len: u32, min: u32) -> Result<Taken<'_>> {
        self.fs.take_blocks(&Request {
            goal: Pblk::new(goal),
            len,
            min,
            below_32_bits: false,
            privileged: false,
        })
    }

    fn handle(&self) -> Handle<'_> {
        self.fs.start(1000).unwrap()
    }

    fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        self.fs.geometry().groups()
    }

    /// What commit would write of all groups, home.
    fn write_home(&self) {
        let loaded: Vec<_> = self
            .groups()
            .filter(|group| self.fs.live_group(*group).is_some())
            .map(|group| self.fs.group_image(group).unwrap())
            .collect();
        for (block, bytes) in self.fs.encode_groups(&loaded).unwrap() {
            let offset = self.fs.block_size().offset_of(block).unwrap();
            self.fs.device().write_at(offset, &bytes).unwrap();
        }
        let counts = self.fs.super_counts().unwrap();
        let mut superblock = self.fs.superblock().clone();
        superblock.set_free_blocks_count(counts.free_blocks);
        superblock.set_free_inodes_count(counts.free_inodes);
        let device = self.fs.device();
        device.write_at(1024, &superblock.encode()).unwrap();
    }
}

fn open(image: &Path) -> Fs {
    let device = OpenSpec::read_write(image).open().unwrap();
    let fs = Fs::open(device, MountOptions::read_only()).unwrap();
    let fs = Arc::into_inner(fs).unwrap();
    let alloc = Alloc::new(&fs).unwrap();
    let journal = Journal::new(Seq::new(1), 1 << 30);
    let orphans = Orphans::load(&fs).unwrap();
    fs.with_writer(Writer {
        journal,
        alloc,
        orphans,
    })
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
            let (slot, loaded) = bench.fs.load_group(group).unwrap();
            let state = slot.lock(loaded);
            let first = geometry.group_first_block(group).unwrap().get();
            let free: Vec<u64> = bitmap::clear_runs(&state.busy, 0..state.clusters)
                .flatten()
                .map(|bit| first + u64::from(bit))
                .collect();
            let wanted: Vec<u64> = seen.free_block_ranges.iter().cloned().flatten().collect();
            assert_eq!(free, wanted, "{name}: free blocks of group {group}");
            let inodes: Vec<u64> =
                bitmap::clear_runs(state.inodes.bits(), 0..geometry.inodes_per_group())
                    .flatten()
                    .map(|index| geometry.inode_at(group, index).unwrap().get().into())
                    .collect();
            let wanted: Vec<u64> = seen.free_inode_ranges.iter().cloned().flatten().collect();
            assert_eq!(inodes, wanted, "{name}: free inodes of group {group}");
            assert_eq!(state.busy[..], *state.blocks.bits());
        }
    }
}

#[test]
fn what_commit_encodes_of_untouched_groups_is_what_mke2fs_wrote() {
    for (name, bench) in kinds() {
        for group in bench.groups() {
            bench.fs.load_group(group).unwrap();
        }
        let before = std::fs::read(&bench.image).unwrap();
        bench.write_home();
        let after = std::fs::read(&bench.image).unwrap();
        assert!(before == after, "{name}");
        assert_clean(&bench.image);
    }
}
