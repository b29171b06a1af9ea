//! Truncations and deletions that one transaction has no room for: a crash between two of them
//! leaves an orphan, and recovery, which may crash as well, takes the rest away.

use super::engine::Extant;
use super::runs::{amount, every};
use super::shapes::Shape;
use super::sweep_all;
use extant_testkit::crash::IoKind;
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Op, Tag, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Engine, FaultReport, FaultSweep, Prepared, Script, Sweep};

/// Many small groups, each of which takes room in the transaction that frees blocks of it.
const MANY_GROUPS: Shape = Shape {
    name: "96 groups",
    kib: 24 << 10,
    block_size: 1024,
    options: &["-O", "^resize_inode", "-g", "256"],
};
const WITH_ORPHAN_FILE: Shape = Shape {
    name: "96 groups, orphan file",
    options: &["-O", "orphan_file,^resize_inode", "-g", "256"],
    ..MANY_GROUPS
};
/// Where the maps are indirect blocks.
const INDIRECT: Shape = Shape {
    name: "96 groups, ext3",
    options: &[
        "-O",
        "^extent,^64bit,^flex_bg,^huge_file,^metadata_csum,^uninit_bg,^dir_nlink,^extra_isize,^resize_inode",
        "-g",
        "256",
    ],
    ..MANY_GROUPS
};

/// Bytes of a file that lies in nearly all groups.
const LARGE: u64 = 19 << 20;

fn engine() -> Extant {
    Extant {
        checkpoints: true,
        ..Extant::default()
    }
}

fn path() -> String {
    "f".to_owned()
}

fn is_indirect(shape: &Shape) -> bool {
    shape.name == INDIRECT.name
}

/// What else is done there: indirect maps cannot express blocks that are reserved.
fn universe(shape: &Shape) -> Universe {
    if is_indirect(shape) {
        super::indirect::universe(false)
    } else {
        Universe::small()
    }
}

/// With `f`, a large file of one name: reserved blocks, and a little data here and there. Where
/// blocks cannot be reserved, data all over.
fn with_large_file(shape: &Shape) -> Prepared {
    let other_name = Op::Unlink {
        path: "g".to_owned(),
    };
    let reserve = Op::Allocate {
        path: path(),
        offset: 0,
        len: LARGE,
        keep: false,
    };
    let write = |offset, len| Op::Write {
        path: path(),
        offset,
        len,
    };
    let mut ops = vec![other_name];
    if is_indirect(shape) {
        let len = LARGE / 8;
        ops.extend((0..8).map(|eighth| write(eighth * len, len)));
    } else {
        ops.push(reserve);
    }
    // So many pieces at the beginning that the map of what a truncation leaves needs a block: Linux
    // leaves one also where the rest would fit the inode.
    ops.extend((0..6).map(|piece| write(piece * 8192, 3000)));
    ops.extend([LARGE / 2, LARGE - 3000].map(|offset| write(offset, 3000)));
    let engine = engine();
    let made = shape.filled(&engine).done(&engine, &Script::one(ops));
    made.unwrap_or_else(|e| panic!("{}: {e}", shape.name))
}

/// What takes it away, or most of it.
fn ends() -> [Op; 4] {
    let cut = |size| Op::Truncate { path: path(), size };
    let over = Op::Rename {
        from: "a/f".to_owned(),
        to: path(),
    };
    let gone = Op::Unlink { path: path() };
    [cut(0), cut(LARGE / 12), over, gone]
}

/// Scripts that begin with it, and take more transactions than one for that from an empty one on.
fn scripts(shape: &Shape, start: &Prepared, seed: u64) -> Vec<Script> {
    let engine = engine();
    let mut rng = Rng::new(seed);
    let script = |end: Op| {
        let open = engine.open(start.content.open()).unwrap();
        let before = open.fs.journal_stats().commits;
        let tag = Tag { lane: 0, op: 0 };
        engine.perform(&open, &end, tag).unwrap();
        let commits = open.fs.journal_stats().commits - before;
        assert!(commits > 0, "{}: {end} in one transaction", shape.name);
        engine.close(open).unwrap();
        let Script { lanes } = Script::random(&universe(shape), &mut rng, start, 3);
        let ops = [end].into_iter().chain(lanes.into_iter().flatten());
        Script::one(ops.chain([Op::Syncfs]).collect())
    };
    ends().into_iter().map(script).collect()
}

#[test]
fn what_is_cut_off_or_deleted_in_pieces_is_gone_after_any_crash() {
    let seed = seed_from_env("truncations in pieces");
    for shape in [MANY_GROUPS, WITH_ORPHAN_FILE, INDIRECT] {
        let start = with_large_file(&shape);
        let scripts = scripts(&shape, &start, seed);
        let sweep = Sweep {
            checked_every: 16,
            others_every: every(60),
            again_every: 4,
            ..Sweep::of(amount(60, 3000), seed)
        };
        let report = sweep_all(shape.name, &engine(), &start, &scripts, &sweep);
        assert!(report.distinct > 100, "{report}");
    }
}

#[test]
fn a_fault_while_something_is_deleted_in_pieces_loses_nothing() {
    let seed = seed_from_env("faults of truncations in pieces");
    let engine = engine();
    let (shapes, step): (&[Shape], usize) = if is_full_run() {
        (&[MANY_GROUPS, WITH_ORPHAN_FILE, INDIRECT], 1)
    } else {
        (&[WITH_ORPHAN_FILE], 3)
    };
    for shape in shapes {
        let start = with_large_file(shape);
        let mut report = FaultReport::default();
        for script in scripts(shape, &start, seed).iter().step_by(step) {
            for kind in [IoKind::Read, IoKind::Write, IoKind::Flush] {
                let sweep = FaultSweep {
                    images: 2,
                    promise: engine.promise(),
                    checked_every: 40,
                    ..FaultSweep::of(kind)
                };
                let one = sweep.run(&engine, &start, script);
                report += one.unwrap_or_else(|e| panic!("{}: {e}", shape.name));
            }
        }
        println!("{}: {report}", shape.name);
        assert!(report.reported > 10, "{}: {report}", shape.name);
    }
}
