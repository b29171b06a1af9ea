//! Every transfer of every operation fails once: the caller is told, nothing acknowledged is lost, and
//! the image recovers.

use super::engine::{Extant, Open};
use super::shapes::{ORPHAN_FILE, PLAIN, SMALL_BLOCKS, Shape};
use extant_blockdev::SharedDevice;
use extant_core::fs::DataMode;
use extant_core::ops;
use extant_testkit::crash::{CrashDevice, Fault, FaultDevice, FaultRule, IoKind};
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Op, Tag, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Engine, FaultReport, FaultSweep, Prepared, Script};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

const ENGINE: Extant = Extant {
    keeps_open: 1,
    checkpoints: true,
    mode: DataMode::Delayed,
    writes_back: 0,
    direct: false,
    discards: false,
    freezes: false,
    background: None,
};

fn sweep_all(name: &str, start: &Prepared, scripts: &[Script], ways: &[Way], images: usize) {
    let mut report = FaultReport::default();
    let mut failures = Vec::new();
    for way in ways {
        let sweep = FaultSweep {
            fault: way.fault,
            from_then_on: way.from_then_on,
            images,
            promise: ENGINE.promise(),
            checked_every: if is_full_run() { 1 } else { 32 },
            ..FaultSweep::of(way.kind)
        };
        let mut of_way = FaultReport::default();
        for script in scripts {
            match sweep.run(&ENGINE, start, script) {
                Ok(one) => of_way += one,
                Err(failure) => failures.push(failure.to_string()),
            }
            if failures.len() > 4 {
                break;
            }
        }
        println!("{name}, {way:?}: {of_way}");
        // Of what is late or lost nobody is told.
        let is_told = matches!(way.fault, Fault::Error(_) | Fault::Short(_));
        assert!(of_way.runs > 0 || !failures.is_empty(), "{way:?}");
        assert!(
            of_way.reported > 0 || !is_told || !failures.is_empty(),
            "{way:?}: {of_way}"
        );
        report += of_way;
    }
    println!("{name}: {report}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(report.runs > 100, "{report}");
}

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug)]
struct Way {
    kind: IoKind,
    fault: Fault,
    from_then_on: bool,
}

const fn once(kind: IoKind, fault: Fault) -> Way {
    Way {
        kind,
        fault,
        from_then_on: false,
    }
}

const fn from_then_on(kind: IoKind, fault: Fault) -> Way {
    Way {
        from_then_on: true,
        ..once(kind, fault)
    }
}

const EIO: Fault = Fault::Error(5);

const FAILING: [Way; 4] = [
    once(IoKind::Read, EIO),
    once(IoKind::Write, EIO),
    from_then_on(IoKind::Write, EIO),
    once(IoKind::Flush, EIO),
];

/// A write of which only one sector arrives; anything that takes its time; a flush that is said to be done and is not.
const OTHERS: [Way; 4] = [
    once(IoKind::Write, Fault::Short(512)),
    from_then_on(IoKind::Write, Fault::Short(512)),
    once(IoKind::Any, Fault::Late(Duration::from_millis(1))),
    once(IoKind::Flush, Fault::Lost),
];

#[test]
fn a_fault_in_any_operation_is_reported_and_loses_nothing() {
    for shape in [SMALL_BLOCKS, ORPHAN_FILE] {
        let start = shape.filled(&ENGINE);
        let scripts = Script::singles(&Universe::small(), start.lanes[0].state());
        sweep_all(shape.name, &start, &scripts, &FAILING, 4);
    }
}

#[test]
fn a_fault_in_a_random_run_is_reported_and_loses_nothing() {
    let seed = seed_from_env("faults in random runs");
    let mut rng = Rng::new(seed);
    let start = PLAIN.filled(&ENGINE);
    let universe = Universe {
        syncs: 25,
        ..Universe::small()
    };
    let runs = if is_full_run() { 20 } else { 2 };
    let scripts: Vec<Script> = (0..runs)
        .map(|_| Script::random(&universe, &mut rng, &start, 30))
        .collect();
    sweep_all(PLAIN.name, &start, &scripts, &FAILING, 2);
}

#[test]
fn a_bitmap_that_cannot_be_read_when_blocks_are_unmapped_leaks_none() {
    // Nothing has asked for the group's bitmap when the file goes. Extents, and indirect blocks.
    let indirect = Shape {
        name: "indirect blocks",
        options: &[
            "-O",
            "^extent,^64bit,^metadata_csum,^resize_inode",
            "-g",
            "4096",
        ],
        ..PLAIN
    };
    for shape in [PLAIN, SMALL_BLOCKS, indirect] {
        let start = shape.filled(&ENGINE);
        let path = || "a/f".to_owned();
        let cut = Op::Truncate {
            path: path(),
            size: 0,
        };
        let scripts = [Op::Unlink { path: path() }, cut].map(|op| vec![op, Op::Syncfs]);
        for script in scripts.map(Script::one) {
            let sweep = FaultSweep {
                images: 4,
                promise: ENGINE.promise(),
                checked_every: 1,
                ..FaultSweep::of(IoKind::Read)
            };
            let report = sweep.run(&ENGINE, &start, &script);
            let report = report.unwrap_or_else(|e| panic!("{}: {e}", shape.name));
            assert!(report.runs >= 2, "{}: {report}", shape.name);
        }
    }
}

#[test]
fn a_device_that_tears_delays_or_lies_about_a_flush_loses_nothing_for_good() {
    let seed = seed_from_env("torn, late and lost transfers");
    let mut rng = Rng::new(seed);
    let start = SMALL_BLOCKS.filled(&ENGINE);
    let universe = Universe {
        syncs: 25,
        ..Universe::small()
    };
    let runs = if is_full_run() { 20 } else { 2 };
    let scripts: Vec<Script> = (0..runs)
        .map(|_| Script::random(&universe, &mut rng, &start, 30))
        .collect();
    sweep_all(SMALL_BLOCKS.name, &start, &scripts, &OTHERS, 2);
}

/// Free blocks and inodes.
fn free(open: &Open) -> (u64, u64) {
    let stat = open.fs.statfs().unwrap();
    (stat.free, stat.free_inodes)
}

/// An operation that fails on a read or a write of data gives back what it had taken: the counts are what
/// they were, and it succeeds once the device is well.
#[test]
fn what_a_failed_operation_had_taken_is_free_again() {
    let start = SMALL_BLOCKS.filled(&ENGINE);
    let universe = Universe::small();
    let mut failures = 0;
    for op in universe.possible(start.lanes[0].state()) {
        if op.is_sync() {
            continue;
        }
        for kind in [IoKind::Read, IoKind::Write] {
            for n in 0.. {
                let device: SharedDevice = Arc::new(CrashDevice::over(start.content.clone()));
                let faulty = Arc::new(FaultDevice::new(device));
                let open = ENGINE.open(faulty.clone()).unwrap();
                let before = free(&open);
                faulty.inject(FaultRule::fail_nth(kind, n));
                let tag = Tag { lane: 0, op: 1000 };
                let done = ENGINE.perform(&open, &op, tag);
                let struck = faulty.counts().faults > 0;
                faulty.heal();
                if done.is_err() {
                    failures += 1;
                    let after = free(&open);
                    let again = ENGINE.perform(&open, &op, tag);
                    // A journal that failed takes no more changes.
                    if again != Err(Errno::ROFS) {
                        assert_eq!(after, before, "{op}, {kind:?} {n}");
                        assert!(again.is_ok(), "{op}, {kind:?} {n}: {again:?}");
                        ops::syncfs(&open.fs).unwrap();
                    }
                }
                if !struck {
                    break;
                }
            }
        }
    }
    println!("{failures} failed operations");
    assert!(failures > 20, "{failures}");
}
