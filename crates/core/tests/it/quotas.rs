//! Quota files: those that e2fsprogs wrote, and those that it is given. Few kernels are built with
//! what mounts them for writing.

use crate::support::{Image, pattern};
use extant_blockdev::MemoryDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Caller;
use extant_core::ops;
use extant_core::quota::{Limits, Quota, QuotaKind};
use extant_format::quota::{BLOCK_LEN, Edit, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaInfo, find};
use extant_format::{FormatError, Ino};
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write, e2fsck};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, chown};
use std::sync::Arc;

/// Ids that lie together, apart, and at the end. The last of all is not there: it means no owner.
fn ids() -> Vec<u32> {
    let apart = (0..12).map(|i| i << 24 | i << 10 | 7);
    (0..40)
        .chain(apart)
        .chain([65_534, 70_000, u32::MAX - 1])
        .collect()
}

/// An image with files of all ids, which e2fsck has counted.
fn counted(shape: &[&str]) -> Image {
    let options = [shape, &["-I", "256", "-N", "256"]].concat();
    let image = Image::make(16, &options, |tree| {
        for (i, id) in ids().into_iter().enumerate() {
            let file = tree.join(format!("file{i}"));
            std::fs::write(&file, pattern(i as u64, i * 700)).unwrap();
            chown(&file, Some(id), Some(id / 2)).unwrap();
        }
    });
    let projects: Vec<String> = ids()
        .iter()
        .enumerate()
        .map(|(i, id)| format!("sif file{i} projid {id}"))
        .collect();
    let requests: Vec<&str> = projects.iter().map(String::as_str).collect();
    debugfs_write(&image.path(), &requests);
    recount(&image);
    image
}

/// Has e2fsck write all quota files anew; it keeps limits.
fn recount(image: &Image) {
    let run = e2fsck(&image.path(), &["-fy"]);
    assert!(run.code <= 1, "{run}");
    assert_clean(&image.path());
}

/// What debugfs lists: of each id the space, its soft and hard limit in KiB, and the same of
/// inodes.
pub(crate) fn listed_by_debugfs(image: &Image, kind: QuotaKind) -> BTreeMap<u32, [u64; 6]> {
    let text = debugfs(&image.path(), &format!("list_quota {}", kind.name()));
    let rows = text.lines().skip(1).map(|line| {
        let numbers: Vec<i64> = line
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        let [id, numbers @ ..] = numbers.as_slice() else {
            panic!("debugfs said {line:?}");
        };
        let numbers: Vec<u64> = numbers.iter().map(|n| n.cast_unsigned()).collect();
        (*id as u32, numbers.try_into().unwrap())
    });
    rows.collect()
}

pub(crate) fn listed(fs: &Fs, kind: QuotaKind) -> Vec<Quota> {
    let mut listed = Vec::new();
    let counts = ops::quotas(fs, kind, |quota| {
        listed.push(quota);
        ControlFlow::Continue(())
    });
    assert!(counts.unwrap(), "{kind:?} is counted");
    listed
}

/// Compares the listing and each answer with what debugfs lists; returns how many ids there are.
pub(crate) fn agree(image: &Image, kind: QuotaKind) -> usize {
    let fs = image.open();
    let ours = listed(&fs, kind);
    assert!(
        ours.windows(2).all(|pair| pair[0].id < pair[1].id),
        "{ours:?}"
    );
    let kib = |limit: Option<u64>| limit.unwrap_or(0) / 1024;
    let as_listed: BTreeMap<u32, [u64; 6]> = ours
        .iter()
        .map(|quota| {
            let (space, inodes) = (quota.space_limits, quota.inode_limits);
            let limits = [inodes.soft.unwrap_or(0), inodes.hard.unwrap_or(0)];
            let row = [
                quota.space,
                kib(space.soft),
                kib(space.hard),
                quota.inodes,
                limits[0],
                limits[1],
            ];
            (quota.id, row)
        })
        .collect();
    assert_eq!(as_listed, listed_by_debugfs(image, kind), "{kind:?}");
    for quota in &ours {
        assert_eq!(
            ops::quota(&*fs, kind, quota.id).unwrap().as_ref(),
            Some(quota)
        );
    }
    for id in [41, 999_999, u32::MAX]
        .into_iter()
        .filter(|id| !as_listed.contains_key(id))
    {
        let found = ops::quota(&*fs, kind, id).unwrap().unwrap();
        assert_eq!((found.id, found.space, found.inodes), (id, 0, 0));
        assert_eq!(found.space_limits, Limits::default());
    }
    ours.len()
}

const SHAPES: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024", "-O", "quota,project"],
    &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "quota,project,^metadata_csum,^64bit",
    ],
    &["-t", "ext4", "-O", "quota,project,bigalloc", "-C", "16384"],
];

#[test]
fn what_e2fsprogs_counts_is_read() {
    require!(Root);
    for shape in SHAPES {
        let image = counted(shape);
        for kind in QuotaKind::ALL {
            let count = agree(&image, kind);
            assert!(count > 20, "{kind:?}: {count}");
        }
        // The same, from what is in the inodes.
        let fs = image.open();
        let mut used = BTreeMap::<u32, (u64, u64)>::new();
        for (ino, inode) in fs.inodes() {
            let inode = inode.unwrap();
            // The file of projects has no number of its own.
            let is_hidden = fs.superblock().quota_inodes().contains(&Some(ino));
            if ino == Ino::ROOT || ino >= fs.superblock().first_ino() && !is_hidden {
                let sum = used.entry(inode.disk().uid).or_default();
                sum.0 += inode.disk().sectors(fs.block_size()) * 512;
                sum.1 += 1;
            }
        }
        let users = listed(&fs, QuotaKind::User);
        let users = users
            .iter()
            .map(|quota| (quota.id, (quota.space, quota.inodes)));
        assert_eq!(users.collect::<BTreeMap<_, _>>(), used);
    }
}

#[test]
fn who_asks_is_told_of_himself_only() {
    let image = Image::make(8, &["-t", "ext4", "-O", "quota"], |_| {});
    let fs = image.open();
    let caller = Caller::new(7, 8).groups([9]);
    let by = fs.acting_for(&caller);
    let ask = |kind, id| ops::quota(by, kind, id);
    for (kind, id) in [
        (QuotaKind::User, 7),
        (QuotaKind::Group, 8),
        (QuotaKind::Group, 9),
    ] {
        assert_eq!(ask(kind, id).unwrap().map(|quota| quota.id), Some(id));
    }
    for (kind, id) in [
        (QuotaKind::User, 8),
        (QuotaKind::Group, 7),
        (QuotaKind::Project, 0),
    ] {
        assert_eq!(ask(kind, id).unwrap_err().errno(), 1, "{kind:?} {id}");
    }
    let all = ops::quotas(by, QuotaKind::User, |_| ControlFlow::Continue(()));
    assert_eq!(all.unwrap_err().errno(), 1);
    // The file system counts no projects.
    assert_eq!(ops::quota(&*fs, QuotaKind::Project, 0).unwrap(), None);
    assert_eq!(ops::quota_grace(by, QuotaKind::Project).unwrap(), None);
    let week = ops::quota_grace(by, QuotaKind::User).unwrap().unwrap();
    assert_eq!(week.space.as_secs(), 7 * 24 * 3600);
}

/// The quota file of an image with blocks of 1 KiB, read and written where debugfs says that it
/// lies.
struct Raw {
    file: File,
    blocks: Vec<u64>,
}

impl Raw {
    fn open(image: &Image, ino: Ino) -> Self {
        let text = debugfs(&image.path(), &format!("blocks <{ino}>"));
        let blocks = text.split_whitespace().map(|n| n.parse().unwrap());
        Self {
            blocks: blocks.collect(),
            file: File::options()
                .read(true)
                .write(true)
                .open(image.path())
                .unwrap(),
        }
    }

    fn len(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_LEN as u64
    }

    fn at(&self, block: u32) -> u64 {
        self.blocks[block as usize] * BLOCK_LEN as u64
    }
}

impl QuotaBlocks for Raw {
    type Error = (u32, FormatError);

    fn read(&mut self, block: u32) -> Result<QuotaBlock, Self::Error> {
        let mut bytes = [0; BLOCK_LEN];
        self.file.read_exact_at(&mut bytes, self.at(block)).unwrap();
        Ok(bytes)
    }

    fn corrupt(&self, block: u32, source: FormatError) -> Self::Error {
        (block, source)
    }
}

#[test]
fn what_is_edited_e2fsprogs_reads_and_goes_on_with() {
    require!(Root);
    let seed = seed_from_env("what_is_edited_e2fsprogs_reads_and_goes_on_with");
    let mut rng = Rng::new(seed);
    let image = counted(SHAPES[0]);
    for kind in QuotaKind::ALL {
        let ino = image.open().superblock().quota_inodes()[kind as usize].unwrap();
        let mut raw = Raw::open(&image, ino);
        let header = raw.read(0).unwrap();
        let mut info = QuotaInfo::parse(&header, kind, raw.len()).unwrap();
        let before = listed_by_debugfs(&image, kind);
        let used: Vec<u32> = before.keys().copied().collect();
        // What e2fsck counted goes and comes back, with limits; others come and go, as long as
        // there are blocks.
        let mut entries = BTreeMap::new();
        for id in &used {
            entries.insert(*id, find(&mut raw, &info, *id).unwrap().unwrap());
        }
        let original = entries.clone();
        let mut all = used.clone();
        all.extend((0..40).map(|_| rng.next_u64() as u32));
        for round in 0..12 {
            let is_last = round == 11;
            for _ in 0..20 {
                let id = *rng.pick(&all);
                change(&mut raw, &mut info, &mut entries, id, &original, &mut rng);
            }
            if is_last {
                for id in &all {
                    let is_void = !original.contains_key(id);
                    if is_void && entries.remove(id).is_some() {
                        let removed = edit(&mut raw, &mut info, |edit| edit.remove(*id));
                        assert!(removed.unwrap());
                    }
                }
                for (id, entry) in &original {
                    let entry = entries.entry(*id).or_insert(*entry);
                    assert!(edit(&mut raw, &mut info, |edit| edit.set(entry)).is_some());
                }
            }
            let as_listed: BTreeMap<u32, [u64; 6]> = entries
                .values()
                .map(|e| {
                    let row = [
                        e.space,
                        e.space_soft,
                        e.space_hard,
                        e.inodes,
                        e.inode_soft,
                        e.inode_hard,
                    ];
                    (e.id, row)
                })
                .collect();
            assert_eq!(listed_by_debugfs(&image, kind), as_listed, "{kind:?}");
            agree(&image, kind);
        }
        assert_clean(&image.path());
    }
    // e2fsck writes the files anew, and takes the limits from what it reads.
    let limits: Vec<_> = QuotaKind::ALL
        .map(|kind| listed_by_debugfs(&image, kind))
        .into();
    debugfs_write(
        &image.path(),
        &["sif file3 uid 0", "sif file3 gid 0", "sif file3 projid 0"],
    );
    recount(&image);
    for (kind, before) in QuotaKind::ALL.into_iter().zip(limits) {
        agree(&image, kind);
        let after = listed_by_debugfs(&image, kind);
        for (id, [_, soft, hard, _, inode_soft, inode_hard]) in before {
            if let Some(row) = after.get(&id) {
                let kept = [row[1], row[2], row[4], row[5]];
                assert_eq!(kept, [soft, hard, inode_soft, inode_hard], "{kind:?} {id}");
            }
        }
    }
}

/// Sets or removes the entry of `id`; what is counted stays as it was.
fn change(
    raw: &mut Raw,
    info: &mut QuotaInfo,
    entries: &mut BTreeMap<u32, QuotaEntry>,
    id: u32,
    original: &BTreeMap<u32, QuotaEntry>,
    rng: &mut Rng,
) {
    if rng.below(2) == 0 {
        let removed = edit(raw, info, |edit| edit.remove(id)).unwrap();
        assert_eq!(removed, entries.remove(&id).is_some());
        return;
    }
    let counted = original.get(&id).copied().unwrap_or(QuotaEntry::of(id));
    let entry = QuotaEntry {
        space_soft: rng.below(1 << 40),
        space_hard: rng.below(1 << 40),
        inode_soft: rng.below(1 << 40),
        inode_hard: rng.below(1 << 40),
        ..counted
    };
    if edit(raw, info, |edit| edit.set(&entry)).is_some() {
        entries.insert(id, entry);
    }
}

/// Makes a change, unless the file would have to become longer.
fn edit<T>(
    raw: &mut Raw,
    info: &mut QuotaInfo,
    change: impl FnOnce(&mut Edit<'_, Raw>) -> Result<T, (u32, FormatError)>,
) -> Option<T> {
    let mut edit = Edit::new(raw, *info);
    let result = change(&mut edit).unwrap();
    let (after, changed) = edit.finish().unwrap();
    if after.file_len() > raw.len() {
        return None;
    }
    for (block, bytes) in changed {
        raw.file.write_all_at(&bytes, raw.at(block)).unwrap();
    }
    *info = after;
    Some(result)
}

#[test]
fn damaged_quota_files_are_refused_with_their_place() {
    require!(Root);
    let mut rng = Rng::new(seed_from_env(
        "damaged_quota_files_are_refused_with_their_place",
    ));
    let image = counted(SHAPES[0]);
    let ino = image.open().superblock().quota_inodes()[0].unwrap();
    let raw = Raw::open(&image, ino);
    let bytes = std::fs::read(image.path()).unwrap();
    let look = |bytes: &[u8]| {
        let device = Arc::new(MemoryDevice::from_image(bytes));
        let fs = Fs::open(device, MountOptions::read_only()).unwrap();
        ops::quotas(&*fs, QuotaKind::User, |_| ControlFlow::Continue(()))
    };
    assert!(look(&bytes).unwrap());
    let with = |at: u64, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at as usize..][..value.len()].copy_from_slice(value);
        look(&bytes).unwrap_err()
    };
    let magic = with(raw.at(0), &[0]).to_string();
    let begins = format!("inode {ino} at file block 0 is corrupt: quota file: magic at byte 0");
    assert!(magic.starts_with(&begins), "{magic}");
    let outside = with(raw.at(1), &7_000_000u32.to_le_bytes());
    let begins = format!(
        "inode {ino} at file block 1 is corrupt: quota file: reference at byte 0 is 7000000"
    );
    assert!(outside.to_string().starts_with(&begins), "{outside}");
    assert_eq!(outside.errno(), 117);
    let mut refused = 0;
    for _ in 0..100 {
        let mut bytes = bytes.clone();
        for _ in 0..rng.between(1, 20) {
            let block = rng.below(raw.blocks.len() as u64) as u32;
            let at = raw.at(block) + rng.below(BLOCK_LEN as u64);
            bytes[at as usize] = *rng.pick(&[0, 1, 2, 3, 0xff]);
        }
        refused += usize::from(look(&bytes).is_err());
    }
    assert!(refused > 0);
}
