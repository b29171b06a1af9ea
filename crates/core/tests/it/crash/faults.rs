//! Every transfer of every operation fails once: the caller is told, nothing acknowledged is lost,
//! and the image recovers.

use super::engine::{Extant, Open};
use super::shapes::{CLUSTERS, ORPHAN_FILE, PLAIN, SMALL_BLOCKS, Shape};
use extant_blockdev::SharedDevice;
use extant_core::fs::DataMode;
use extant_core::ops;
use extant_testkit::crash::{CrashDevice, Fault, FaultDevice, FaultRule, IoKind};
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Op, Tag, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Engine, FaultReport, FaultSweep, Prepared, Script};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const ENGINE: Extant = Extant {
    keeps_open: 1,
    checkpoints: true,
    mode: DataMode::Delayed,
    writes_back: 0,
    direct: false,
    dax: false,
    respells: false,
    discards: false,
    freezes: false,
    remounts: false,
    limited: false,
    reshapes: false,
    background: None,
};

fn sweep_all(name: &str, start: &Prepared, scripts: &[Script], ways: &[Way], images: usize) {
    let mut report = FaultReport::default();
    let mut failures = Vec::new();
    let mut lasting = 0;
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
        // The last to sync hears of it, if nobody heard before.
        let ends_in_sync = |script: &Script| script.lanes[0].last() == Some(&Op::Syncfs);
        if is_lasting(way) && failures.is_empty() && scripts.iter().all(ends_in_sync) {
            assert_eq!(of_way.reported, of_way.runs, "{way:?}: {of_way}");
            lasting += of_way.runs;
        }
        report += of_way;
    }
    println!("{name}: {report}, {lasting} that lasted were all reported");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(report.runs > 100, "{report}");
    assert!(lasting > 20 || !ways.iter().any(is_lasting), "{lasting}");
}

/// Whether no write succeeds any more.
fn is_lasting(way: &Way) -> bool {
    let fails = matches!(way.fault, Fault::Error(_) | Fault::Short(_));
    fails && way.kind == IoKind::Write && way.from_then_on
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

/// A write of which only one sector arrives; anything that takes its time; a flush that is said to
/// be done and is not.
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
    let scripts = synced_at_the_end(runs, &universe, &mut rng, &start);
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
    let scripts = synced_at_the_end(runs, &universe, &mut rng, &start);
    sweep_all(SMALL_BLOCKS.name, &start, &scripts, &OTHERS, 2);
}

/// Random runs of 30 operations in each lane.
fn synced_at_the_end(
    runs: usize,
    universe: &Universe,
    rng: &mut Rng,
    start: &Prepared,
) -> Vec<Script> {
    let mut scripts: Vec<Script> = (0..runs)
        .map(|_| Script::random(universe, rng, start, 30))
        .collect();
    for script in &mut scripts {
        script.lanes.iter_mut().for_each(|ops| ops.push(Op::Syncfs));
    }
    scripts
}

/// Each lane waits for transfers of the other: for flushes, and for writes, that take their time.
#[test]
fn what_is_late_beside_another_thread_is_only_late() {
    let seed = seed_from_env("late transfers beside another thread");
    let mut rng = Rng::new(seed);
    let start = SMALL_BLOCKS.lanes(&ENGINE, 2);
    let universe = Universe {
        syncs: 40,
        ..Universe::small()
    };
    let runs = if is_full_run() { 20 } else { 1 };
    let scripts = synced_at_the_end(runs, &universe, &mut rng, &start);
    let late = Fault::Late(Duration::from_micros(300));
    let ways = [
        from_then_on(IoKind::Flush, late),
        once(IoKind::Write, late),
        once(IoKind::Flush, Fault::Late(Duration::from_millis(5))),
    ];
    sweep_all("two lanes", &start, &scripts, &ways, 1);
}

/// Free blocks and inodes.
fn free(open: &Open) -> (u64, u64) {
    let stat = open.fs.statfs().unwrap();
    (stat.free, stat.free_inodes)
}

/// An operation that fails on a read or a write of data gives back what it had taken: the counts
/// are what they were, and it succeeds once the device is well.
#[test]
fn what_a_failed_operation_had_taken_is_free_again() {
    for shape in [SMALL_BLOCKS, CLUSTERS] {
        let start = shape.filled(&ENGINE);
        let mut failures = 0;
        each_fault(&start, &[IoKind::Read, IoKind::Write], |run| {
            let before = free(&run.open);
            run.faulty.inject(run.rule.clone());
            let done = ENGINE.perform(&run.open, run.op, TAG);
            let struck = run.faulty.counts().faults > 0;
            run.faulty.heal();
            if done.is_err() {
                failures += 1;
                let after = free(&run.open);
                let again = ENGINE.perform(&run.open, run.op, TAG);
                // A journal that failed takes no more changes.
                if again != Err(Errno::ROFS) {
                    assert_eq!(after, before, "{}", run.name);
                    assert!(again.is_ok(), "{}: {again:?}", run.name);
                    ops::syncfs(&run.open.fs).unwrap();
                }
            }
            struck
        });
        println!("{}: {failures} failed operations", shape.name);
        assert!(failures > 20, "{failures}");
    }
}

const TAG: Tag = Tag { lane: 0, op: 1000 };

/// An operation, and what is to fail.
struct FaultRun<'a> {
    open: Open,
    faulty: Arc<FaultDevice>,
    op: &'a Op,
    rule: FaultRule,
    name: String,
}

/// Every operation of the small universe with each transfer of these kinds in turn, until `run`
/// says that the fault did not strike.
fn each_fault(start: &Prepared, kinds: &[IoKind], mut run: impl FnMut(&FaultRun<'_>) -> bool) {
    let ops = Universe::small().possible(start.lanes[0].state());
    for op in ops.iter().filter(|op| !op.is_sync()) {
        for &kind in kinds {
            for n in 0.. {
                let (open, faulty) = fresh(start);
                let struck = run(&FaultRun {
                    open,
                    faulty,
                    op,
                    rule: FaultRule::fail_nth(kind, n),
                    name: format!("{op}, {kind:?} {n}"),
                });
                if !struck {
                    break;
                }
            }
        }
    }
}

/// The start, open on a device that can fail.
fn fresh(start: &Prepared) -> (Open, Arc<FaultDevice>) {
    let device: SharedDevice = Arc::new(CrashDevice::over(start.content.clone()));
    let faulty = Arc::new(FaultDevice::new(device));
    (ENGINE.open(faulty.clone()).unwrap(), faulty)
}

/// Makes durable what `op` did: by the file where it has one, for all otherwise.
fn sync_after(open: &Open, op: &Op) -> Result<u64, Errno> {
    let sync = match op {
        Op::Write { path, .. } | Op::Allocate { path, .. } | Op::Truncate { path, .. } => {
            let path = path.clone();
            Op::Fsync { path }
        }
        _ => Op::Syncfs,
    };
    ENGINE.perform(open, &sync, TAG)
}

/// What is free now, and after all files have gone.
fn free_now_and_without_files(open: &Open, name: &str) -> [(u64, u64); 2] {
    let now = free(open);
    for path in Universe::small().files {
        let gone = ENGINE.perform(open, &Op::Unlink { path }, TAG);
        let expected = [
            Ok(0),
            Err(Errno::NOENT),
            Err(Errno::NOTDIR),
            Err(Errno::ISDIR),
        ];
        assert!(expected.contains(&gone), "{name}: {gone:?}");
    }
    open.let_go();
    ops::syncfs(&open.fs).unwrap();
    [now, free(open)]
}

/// An operation that succeeded, and whose sync fails: what it had promised to itself, and blocks
/// that were taken for data which did not arrive, are counted once, then used once, and go with the
/// files.
#[test]
fn what_a_failed_sync_had_taken_is_used_or_free_again() {
    for shape in [SMALL_BLOCKS, CLUSTERS] {
        let start = shape.filled(&ENGINE);
        let (mut failures, mut went_on) = (0, 0);
        let mut wanted = HashMap::new();
        for op in Universe::small().possible(start.lanes[0].state()) {
            let (open, _) = fresh(&start);
            ENGINE.perform(&open, &op, TAG).unwrap();
            ops::syncfs(&open.fs).unwrap();
            let name = op.to_string();
            let free = free_now_and_without_files(&open, &name);
            wanted.insert(name, free);
        }
        let kinds = [IoKind::Read, IoKind::Write, IoKind::Flush];
        each_fault(&start, &kinds, |run| {
            ENGINE.perform(&run.open, run.op, TAG).unwrap();
            run.faulty.inject(run.rule.clone());
            let done = sync_after(&run.open, run.op);
            let struck = run.faulty.counts().faults > 0;
            run.faulty.heal();
            if let Err(e) = done {
                assert_eq!(e, Errno::IO, "{}", run.name);
                failures += 1;
                match ENGINE.perform(&run.open, &Op::Syncfs, TAG) {
                    // A journal that failed takes no more changes.
                    Err(_) => {
                        let path = "new".to_owned();
                        let new = Op::Mkdir { path, mode: 0o700 };
                        let refused = ENGINE.perform(&run.open, &new, TAG);
                        assert_eq!(refused, Err(Errno::ROFS), "{}", run.name);
                    }
                    Ok(_) => {
                        went_on += 1;
                        let free = free_now_and_without_files(&run.open, &run.name);
                        assert_eq!(free, wanted[&run.op.to_string()], "{}", run.name);
                    }
                }
            }
            struck
        });
        println!(
            "{}: {failures} failed syncs, {went_on} that went on",
            shape.name
        );
        assert!(failures > 100 && went_on > 8, "{failures}, {went_on}");
    }
}
