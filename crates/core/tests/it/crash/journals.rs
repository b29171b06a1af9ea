//! Journals of older systems keep the checksums they have, and what is in them survives any crash.

use super::engine::Extant;
use super::runs::{RandomPlan, amount, busy, every, random_runs};
use super::shapes::{PLAIN, SMALL_BLOCKS, Shape};
use extant_format::Tid;
use extant_format::jbd2::{CompatFeatures, IncompatFeatures, JournalSuperblock};
use extant_testkit::crash::Content;
use extant_testkit::model::Op;
use extant_testkit::oracle::debugfs;
use extant_testkit::rng::seed_from_env;
use extant_testkit::sweep::{Prepared, Script};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A file system, and compatible and incompatible features of its journal beside revokes.
const KINDS: [(Shape, &str, u32, u32); 3] = [
    (PLAIN, "checksums v1", 0x1, 0x0),
    (PLAIN, "checksums v2", 0x0, 0x8),
    (SMALL_BLOCKS, "checksums v2 beside others", 0x0, 0xa),
];

/// The image with its journal's superblock changed, and that superblock.
fn with_journal(
    content: &Content,
    tweak: impl FnOnce(&mut JournalSuperblock),
) -> (Content, JournalSuperblock) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    content.write_to(&path).unwrap();
    let blocks = debugfs(&path, "blocks <8>");
    let first: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut record = [0; JournalSuperblock::LEN];
    file.read_exact_at(&mut record, first * 1024).unwrap();
    let mut superblock = JournalSuperblock::parse(&record).unwrap();
    tweak(&mut superblock);
    file.write_all_at(&superblock.encode(), first * 1024)
        .unwrap();
    (Content::of_file(&path), superblock)
}

#[test]
fn journals_with_older_checksums_keep_them_and_survive_any_crash() {
    let seed = seed_from_env("crash runs over older journals");
    let engine = Extant {
        keeps_open: 1,
        checkpoints: true,
        ..Extant::default()
    };
    for (shape, name, compat, incompat) in KINDS {
        let made = shape.empty();
        let (content, _) = with_journal(&made.content, |superblock| {
            superblock.compat = CompatFeatures::from_bits_retain(compat);
            superblock.incompat = IncompatFeatures::from_bits_retain(incompat);
            superblock.checksum_type = if incompat & 0x8 == 0 { 0 } else { 4 };
            superblock.sequence = Tid::new(u32::MAX - 6);
        });
        let start = Prepared { content, ..made };
        // Directories that come and go are revoked.
        let many = (0..8).flat_map(|n| {
            let path = format!("made{n}");
            let made = Op::Mkdir {
                path: path.clone(),
                mode: 0o755,
            };
            [made, Op::Syncfs, Op::Rmdir { path }, Op::Syncfs]
        });
        let after = start.done(&engine, &Script::one(many.collect())).unwrap();
        let (_, found) = with_journal(&after.content, |_| {});
        let features = (found.compat.bits(), found.incompat.bits());
        assert_eq!(features, (compat, incompat | 1), "{name}");
        assert!(found.sequence.get() < 100, "{:?}", found.sequence);
        let plan = RandomPlan {
            universe: busy(40),
            runs: amount(2, 20),
            len: 120,
            images: amount(120, 2000),
            others_every: every(60),
        };
        random_runs(name, seed, &engine, &start, &plan);
    }
}
