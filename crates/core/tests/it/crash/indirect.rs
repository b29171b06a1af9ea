//! Files and directories mapped by indirect blocks, as on ext2 and ext3.

use super::engine::{Extant, tree_of};
use super::runs::every;
use super::shapes::Shape;
use super::sweep_all;
use extant_blockdev::SharedDevice;
use extant_core::data::{self, WriteOptions};
use extant_core::fs::{DataMode, Fs, MountOptions};
use extant_core::inode::FileType;
use extant_core::lifecycle::NewInode;
use extant_core::{Error, ops};
use extant_testkit::crash::{Content, ContentDevice};
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Op, Universe};
use extant_testkit::oracle;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Script, Sweep};
use std::sync::Arc;

/// The features of ext3.
const EXT3: Shape = Shape {
    name: "ext3",
    kib: 12 << 10,
    block_size: 1024,
    options: &[
        "-O",
        "^extent,^64bit,^flex_bg,^huge_file,^metadata_csum,^uninit_bg,^dir_nlink,^extra_isize,^resize_inode",
        "-g",
        "4096",
    ],
};

/// What maps of indirect blocks can express, with writes that need one and two levels of them.
pub(super) fn universe(wide: bool) -> Universe {
    let all = if wide {
        Universe::wide(3, 6)
    } else {
        Universe::small()
    };
    let mut writes = all.writes.clone();
    writes.extend([(11_000, 3000), (280_000, 5000), (600_000, 300_000)]);
    Universe {
        writes,
        sizes: vec![0, 5000, 13_000, 275_000, 700_000],
        syncs: 12,
        allows: |op| {
            !matches!(
                op,
                Op::Allocate { .. }
                    | Op::Shift { .. }
                    | Op::Zero {
                        keeps_space: true,
                        ..
                    }
            )
        },
        ..all
    }
}

fn engine() -> Extant {
    Extant {
        keeps_open: 1,
        checkpoints: true,
        ..Extant::default()
    }
}

#[test]
fn each_operation_on_ext3_is_there_or_not_after_any_crash() {
    let start = EXT3.filled(&engine());
    let scripts = Script::singles(&universe(false), start.lanes[0].state());
    let sweep = Sweep {
        checked_every: 8,
        ..Sweep::of(if is_full_run() { 4000 } else { 40 }, 1)
    };
    let report = sweep_all(EXT3.name, &engine(), &start, &scripts, &sweep);
    assert!(report.distinct > 200, "{report}");
}

#[test]
fn long_runs_on_ext3_survive_any_crash() {
    let seed = seed_from_env("crash runs on ext3");
    for mode in [DataMode::Delayed, DataMode::Through] {
        let mut rng = Rng::new(seed);
        let engine = Extant { mode, ..engine() };
        let start = EXT3.empty();
        let runs = if is_full_run() { 20 } else { 2 };
        let scripts: Vec<Script> = (0..runs)
            .map(|_| Script::random(&universe(true), &mut rng, &start, 120))
            .collect();
        let sweep = Sweep {
            checked_every: 8,
            others_every: every(150),
            ..Sweep::of(if is_full_run() { 3000 } else { 250 }, seed)
        };
        let report = sweep_all(EXT3.name, &engine, &start, &scripts, &sweep);
        assert!(report.distinct > 50, "{report}");
    }
}

/// Where the levels of a map of 1 KiB blocks begin and end, in blocks.
const EDGES: [u64; 6] = [0, 11, 12, 267, 268, 65_804];

#[test]
fn files_reach_through_three_levels_as_linux_reads_them() {
    extant_testkit::require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("three levels");
    for (mode, journal) in [
        (DataMode::Delayed, true),
        (DataMode::Placed, true),
        (DataMode::Through, true),
        (DataMode::Delayed, false),
    ] {
        let mut rng = Rng::new(seed);
        let options: &[&str] = if journal {
            EXT3.options
        } else {
            &["-O", "^has_journal,^extent,^64bit"]
        };
        let shape = Shape { options, ..EXT3 };
        let device: SharedDevice = Arc::new(ContentDevice::new(shape.content()));
        let options = MountOptions::read_write().background(false).data_mode(mode);
        let fs = Fs::open(Arc::clone(&device), options).unwrap();
        let root = fs.hold(extant_format::Ino::ROOT).unwrap();
        let new = NewInode::new(FileType::Regular, 0o644, ops::now());
        let file = ops::create(&fs, &root, b"file", &new).unwrap();
        for _ in 0..120 {
            let at = rng.pick(&EDGES) * 1024 + rng.below(3000);
            match rng.below(8) {
                0 => data::truncate(&fs, &file, at).unwrap(),
                1 => {
                    let len = 1 + rng.below(5000);
                    data::punch_hole(&fs, &file, at, len, WriteOptions::default()).unwrap();
                }
                2 => fs.sync().unwrap(),
                _ => {
                    let bytes = vec![rng.below(255) as u8 + 1; 1 + rng.below(4000) as usize];
                    data::write_at(&fs, &file, at, &bytes).unwrap();
                }
            }
        }
        let mode = data::FallocateMode::default();
        let options = WriteOptions::default();
        let refused = data::fallocate(&fs, &file, 0, 1 << 20, mode, options);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
        // 12 + 256 + 256² + 256³ blocks.
        let beyond = data::write_at(&fs, &file, 16_843_020 << 10, b"x");
        assert!(matches!(beyond, Err(Error::FileTooLarge)), "{beyond:?}");
        drop((file, root));
        fs.close().unwrap();
        let ours = tree_of(&fs).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        Content::of_device(&*device)
            .unwrap()
            .write_to(&path)
            .unwrap();
        oracle::check_clean(&path).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let theirs = oracle::kernel_reads(&path).unwrap().found;
        assert_eq!(ours, theirs, "seed {seed}");
    }
}
