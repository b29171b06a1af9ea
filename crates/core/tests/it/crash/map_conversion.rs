//! Files and directories whose map becomes one of another kind: after any crash it is the one or
//! the other.

use super::engine::{Extant, NOT_RESHAPED, RESHAPED};
use super::runs::{amount, every};
use super::shapes::{PLAIN, SMALL_BLOCKS, Shape};
use super::sweep_all;
use extant_testkit::crash::IoKind;
use extant_testkit::model::{Op, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{FaultReport, FaultSweep, Prepared, Script, Sweep};
use std::sync::atomic::Ordering;

fn engine() -> Extant {
    Extant {
        reshapes: true,
        checkpoints: true,
        ..Extant::default()
    }
}

fn no_dump(path: &str, on: bool) -> Op {
    Op::NoDump {
        path: path.to_owned(),
        on,
    }
}

/// Pieces of `f`, more than a root has room for; indirect blocks reach the last ones through two
/// levels.
fn pieces() -> Vec<Op> {
    let write = |at| Op::Write {
        path: "f".to_owned(),
        offset: at,
        len: 3000,
    };
    (0..9)
        .map(|n| n * 9000)
        .chain([300_000, 700_000])
        .map(write)
        .collect()
}

/// With `f`, a file in many pieces, and a directory of some blocks.
fn start_of(shape: &Shape) -> Prepared {
    let engine = engine();
    let named = (0..40).map(|n| Op::Create {
        path: format!("a/{}{n}", "long".repeat(20)),
        mode: 0o644,
    });
    let ops = pieces().into_iter().chain(named).collect();
    let made = shape.filled(&engine).done(&engine, &Script::one(ops));
    made.unwrap_or_else(|e| panic!("{}: {e}", shape.name))
}

/// To and fro, and what is done to it in between: by the other kind of map, and by this one again.
fn scripts(start: &Prepared, rng: &mut Rng) -> Vec<Script> {
    // Nothing is reserved, which indirect blocks cannot express.
    let universe = super::indirect::universe(false);
    let mut script = |path: &str, syncs: bool| {
        let mut ops = vec![no_dump(path, true)];
        for on in [false, true, false] {
            let some = Script::random(&universe, rng, start, 4);
            ops.extend(
                some.lanes
                    .into_iter()
                    .flatten()
                    .filter(|op| syncs || !op.is_sync()),
            );
            ops.push(no_dump(path, on));
        }
        ops.push(Op::Syncfs);
        Script::one(ops)
    };
    ["f", "a", "b", "a/f"]
        .into_iter()
        .flat_map(|path| [true, false].map(|syncs| (path, syncs)))
        .map(|(path, syncs)| script(path, syncs))
        .collect()
}

/// Nearly all that were asked for came about, in this process so far.
fn assert_reshaped() {
    let [did, did_not] = [&RESHAPED, &NOT_RESHAPED].map(|count| count.load(Ordering::Relaxed));
    assert!(did > 10 && did > 10 * did_not, "{did}, and {did_not} not");
}

#[test]
fn a_map_is_of_one_kind_or_the_other_after_any_crash() {
    let seed = seed_from_env("maps of another kind");
    for shape in [SMALL_BLOCKS, PLAIN] {
        let start = start_of(&shape);
        let scripts = scripts(&start, &mut Rng::new(seed));
        let sweep = Sweep {
            checked_every: 8,
            others_every: every(60),
            ..Sweep::of(amount(60, 3000), seed)
        };
        let report = sweep_all(shape.name, &engine(), &start, &scripts, &sweep);
        assert!(report.distinct > 100, "{report}");
    }
    assert_reshaped();
}

#[test]
fn each_operation_on_files_of_either_kind_is_there_or_not_after_any_crash() {
    let engine = engine();
    let start = start_of(&SMALL_BLOCKS);
    let turned = ["f", "a", "a/f"].map(|path| no_dump(path, true));
    let start = start.done(&engine, &Script::one(turned.to_vec()));
    let start = start.unwrap_or_else(|e| panic!("{e}"));
    let universe = Universe {
        allows: |op| !matches!(op, Op::Allocate { .. } | Op::Shift { .. } | Op::Zero { .. }),
        ..Universe::small()
    };
    let scripts = Script::singles(&universe, start.lanes[0].state());
    let sweep = Sweep {
        checked_every: 8,
        ..Sweep::of(amount(30, 3000), 1)
    };
    let report = sweep_all("files of either kind", &engine, &start, &scripts, &sweep);
    assert!(report.distinct > 100, "{report}");
}

#[test]
fn a_fault_while_a_map_becomes_one_of_another_kind_loses_nothing() {
    let engine = engine();
    let start = start_of(&SMALL_BLOCKS);
    let mut report = FaultReport::default();
    for path in ["f", "a"] {
        let there_and_back = vec![
            no_dump(path, true),
            Op::Syncfs,
            no_dump(path, false),
            Op::Syncfs,
        ];
        for kind in [IoKind::Read, IoKind::Write, IoKind::Flush] {
            let sweep = FaultSweep {
                images: 2,
                promise: engine.promise(),
                checked_every: 20,
                ..FaultSweep::of(kind)
            };
            let one = sweep.run(&engine, &start, &Script::one(there_and_back.clone()));
            report += one.unwrap_or_else(|e| panic!("{path}: {e}"));
        }
    }
    println!("{report}");
    assert_reshaped();
    assert!(report.reported > 10, "{report}");
}
