//! The engine with deliberate mistakes: the crash sweep must find every one of them.
//!
//! Mistakes are made in the whole process, so there is one test. It needs the feature `mutants`
//! (`cargo xtask mutants`), prints for each mistake the run and the sentence that give it
//! away, and ends with the engine as it is, which passes all of the same budget.

#[allow(dead_code, reason = "shared with the sweeps")]
#[path = "../it/crash/engine.rs"]
mod engine;
#[allow(dead_code, reason = "shared with the sweeps")]
#[path = "../it/crash/shapes.rs"]
mod shapes;

use engine::Extant;
use extant_core::fs::DataMode;
use extant_core::mutants::Mutant;
use extant_jbd2::mutants::LogMutant;
use extant_testkit::model::{Op, Universe};
use extant_testkit::oracle;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Prepared, Script, Sweep, SweepReport};
use shapes::{DEFAULT, PLAIN, SMALL_BLOCKS, Shape};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Random runs on each file system.
const RUNS: usize = 12;
/// Runs to find a mistake, of which most show in the first run or two.
const RUNS_FOR_MISTAKE: usize = 48;
/// Operations of a run.
const LEN: usize = 40;
/// Images of a run.
const IMAGES: usize = 60;

#[derive(Clone, Copy, Debug)]
enum Mistake {
    Engine(Mutant),
    Log(LogMutant),
}

const MISTAKES: &[Mistake] = &[
    Mistake::Log(LogMutant::FirstFlushDropped),
    Mistake::Log(LogMutant::SecondFlushDropped),
    Mistake::Log(LogMutant::CommitBlockFirst),
    Mistake::Engine(Mutant::RevokesSkipped),
    Mistake::Engine(Mutant::CheckpointTooEarly),
    Mistake::Engine(Mutant::TailTooEarly),
    Mistake::Engine(Mutant::HomeNotFlushed),
    Mistake::Engine(Mutant::FreedTooEarly),
    Mistake::Engine(Mutant::AllocatorBitmapStored),
    Mistake::Engine(Mutant::DescriptorsSkipped),
    Mistake::Engine(Mutant::RecordsSkipped),
    Mistake::Engine(Mutant::LinkForgotten),
    Mistake::Engine(Mutant::OrphanForgotten),
    Mistake::Engine(Mutant::DataAfterMapping),
    Mistake::Engine(Mutant::TailZeroedTooEarly),
    Mistake::Engine(Mutant::TailNotZeroed),
    Mistake::Engine(Mutant::DataNotFlushed),
    Mistake::Engine(Mutant::DatasyncForgotten),
    Mistake::Engine(Mutant::SharerForgotten),
    Mistake::Engine(Mutant::ParentLinksForgotten),
    Mistake::Engine(Mutant::ParentKept),
    Mistake::Engine(Mutant::WhiteoutLost),
    Mistake::Engine(Mutant::SplitHalfLogged),
    Mistake::Engine(Mutant::IndexForgotten),
    Mistake::Engine(Mutant::LeftTooEarly),
    Mistake::Engine(Mutant::UsageNotLogged),
    Mistake::Engine(Mutant::FreedStillCounted),
];

fn make(mistake: Option<Mistake>) {
    extant_core::mutants::set(match mistake {
        Some(Mistake::Engine(mutant)) => Some(mutant),
        _ => None,
    });
    extant_jbd2::mutants::set(match mistake {
        Some(Mistake::Log(mutant)) => Some(mutant),
        _ => None,
    });
}

/// A start and the runs from there.
struct Plan {
    name: &'static str,
    engine: Extant,
    start: Prepared,
    scripts: Vec<Script>,
}

/// Runs on a plain file system without much room, so that blocks are used again soon, on a default
/// one, and on one where blocks of directories become those of files; and on one that counts what
/// owners use.
fn plans(seed: u64) -> Vec<Plan> {
    let mut rng = Rng::new(seed);
    let small = Shape {
        name: "no checksums, little room",
        kib: 2200,
        options: &["-O", "^metadata_csum,^64bit,^resize_inode"],
        ..PLAIN
    };
    let universe = Universe {
        syncs: 25,
        writes: vec![
            (0, 4096),
            (1000, 100),
            (4096, 9000),
            (12_288, 4096),
            (40_960, 1024),
            (0, 40_000),
        ],
        sizes: vec![0, 1500, 5000, 50_000],
        ..Universe::small()
    };
    let filler = Op::Create {
        path: "filler".to_owned(),
        mode: 0o600,
    };
    let fill = |len| {
        let path = "filler".to_owned();
        let offset = 0;
        vec![filler.clone(), Op::Write { path, offset, len }]
    };
    let mut plan = |shape: Shape, filler: u64, checkpoints, mode| {
        let engine = Extant {
            keeps_open: 2,
            checkpoints,
            mode,
            ..Extant::default()
        };
        let start = shape.filled(&engine);
        let start = start.done(&engine, &Script::one(fill(filler)));
        let start = start.unwrap_or_else(|e| panic!("{}: {e}", shape.name));
        let script = |_| {
            if checkpoints {
                Script::random(&universe, &mut rng, &start, LEN)
            } else {
                reuse(&mut rng)
            }
        };
        Plan {
            name: shape.name,
            scripts: (0..RUNS_FOR_MISTAKE).map(script).collect(),
            engine,
            start,
        }
    };
    let full = Shape {
        name: "no room at all",
        ..small
    };
    let mut all = vec![
        plan(small, 900 << 10, true, DataMode::Delayed),
        plan(DEFAULT, 100, true, DataMode::Delayed),
        plan(full, 900 << 10, false, DataMode::Delayed),
        // Where data is delayed, the model lets a truncation clear the rest of a block early, as
        // Linux does.
        plan(small, 900 << 10, true, DataMode::Through),
    ];
    let engine = Extant {
        checkpoints: true,
        ..Extant::default()
    };
    all.push(Plan {
        name: "what is rare",
        start: DEFAULT.filled(&engine),
        scripts: (0..RUNS_FOR_MISTAKE).map(|_| rare(&mut rng)).collect(),
        engine,
    });
    let start = SMALL_BLOCKS.with_names(&engine, 12);
    let names = Universe::long_names("d/", 40);
    let script = |_| Script::random(&names, &mut rng, &start, LEN);
    all.push(Plan {
        name: "a directory that grows",
        scripts: (0..RUNS_FOR_MISTAKE).map(script).collect(),
        start,
        engine,
    });
    let counted = Shape {
        name: "quotas",
        options: &["-O", "quota,^resize_inode"],
        ..SMALL_BLOCKS
    };
    let start = counted.filled(&engine);
    let script = |_| Script::random(&universe, &mut rng, &start, LEN);
    all.push(Plan {
        name: "what owners use",
        scripts: (0..RUNS_FOR_MISTAKE).map(script).collect(),
        start,
        engine,
    });
    all
}

/// What random runs do rarely: attributes that two files share and one gives up, names exchanged
/// between two directories, a whiteout.
fn rare(rng: &mut Rng) -> Script {
    let own = |path: &str| path.to_owned();
    let set = |path| Op::SetXattr {
        path: own(path),
        name: own("user.a"),
        len: 300,
    };
    let sub = own("a/sub");
    let ops = [
        set("f"),
        set("a/f"),
        Op::Syncfs,
        Op::RemoveXattr {
            path: own("a/f"),
            name: own("user.a"),
        },
        Op::Mkdir {
            path: sub.clone(),
            mode: 0o700,
        },
        Op::Exchange {
            from: own("g"),
            to: sub,
        },
        Op::Syncfs,
        Op::Whiteout {
            from: own("a/f"),
            to: own("b"),
        },
    ];
    let may_sync = |op| {
        let sync = rng.one_in(3).then_some(Op::Syncfs);
        [Some(op), sync].into_iter().flatten()
    };
    Script::one(ops.into_iter().flat_map(may_sync).collect())
}

/// Makes and removes a directory, then fills the file system: what was metadata becomes data, while
/// its old images still lie in the log. Then overwrites, cuts inside a block, grows again, and
/// overwrites what needs no transaction.
fn reuse(rng: &mut Rng) -> Script {
    let path = || "b".to_owned();
    let made = if rng.one_in(2) {
        Op::Mkdir {
            path: path(),
            mode: 0o700,
        }
    } else {
        Op::Symlink {
            path: path(),
            target: "far/".repeat(50),
        }
    };
    let removed = match made {
        Op::Mkdir { .. } => Op::Rmdir { path: path() },
        _ => Op::Unlink { path: path() },
    };
    let fill = Op::Write {
        path: "f".to_owned(),
        offset: 10_240,
        len: 400 << 10,
    };
    let sync = || Op::Fsync {
        path: "f".to_owned(),
    };
    let write = |offset| Op::Write {
        path: "f".to_owned(),
        offset,
        len: 1000,
    };
    let cut = Op::Truncate {
        path: "f".to_owned(),
        size: 5000,
    };
    let reused = [made, Op::Syncfs, removed, Op::Syncfs, fill, sync()];
    let changed = [write(0), sync(), cut, sync(), write(30_000), sync()];
    let datasync = || Op::Fdatasync {
        path: "f".to_owned(),
    };
    let overwritten = [write(30_000), datasync(), write(30_500), datasync()];
    let ops = reused.into_iter().chain(changed).chain(overwritten);
    Script::one(ops.collect())
}

/// Does `runs` runs of each plan, as far as the first that goes wrong.
fn sweep(plans: &[Plan], runs: usize, seed: u64) -> (SweepReport, Option<String>) {
    let mut report = SweepReport::default();
    for n in 0..runs {
        for plan in plans {
            let sweep = Sweep {
                checked_every: 6,
                closes: true,
                promise: plan.engine.promise(),
                ..Sweep::of(IMAGES, seed)
            };
            let run = || sweep.run(&plan.engine, &plan.start, &plan.scripts[n]);
            let what = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(one)) => {
                    report += one;
                    continue;
                }
                Ok(Err(failure)) => failure.what,
                Err(_) => "an assertion of the engine failed".to_owned(),
            };
            return (report, Some(format!("run {n}, {}: {what}", plan.name)));
        }
    }
    (report, None)
}

#[test]
fn every_mistake_is_found_and_without_one_nothing_is() {
    let seed = seed_from_env("mutants");
    make(None);
    let plans = plans(seed);
    let only = std::env::var("EXTANT_MUTANT").ok();
    let (mut missed, mut disagreed) = (Vec::new(), Vec::new());
    for mistake in MISTAKES {
        let name = match mistake {
            Mistake::Engine(mutant) => format!("{mutant:?}"),
            Mistake::Log(mutant) => format!("{mutant:?}"),
        };
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        make(Some(*mistake));
        let (report, found) = sweep(&plans, RUNS_FOR_MISTAKE, seed);
        make(None);
        match found {
            Some(what) => {
                if what.contains(oracle::DISAGREE) {
                    disagreed.push(format!("{name}: {what}"));
                }
                let line = what.lines().next().unwrap_or_default();
                let shown: String = line.chars().take(240).collect();
                println!("| {name} | {shown} |");
            }
            None => {
                println!("| {name} | MISSED in {} images |", report.distinct);
                missed.push(name);
            }
        }
    }
    let (report, found) = sweep(&plans, RUNS, seed);
    println!("without a mistake: {report}");
    assert!(found.is_none(), "{}", found.unwrap_or_default());
    assert!(missed.is_empty(), "not found: {}", missed.join(", "));
    assert!(disagreed.is_empty(), "{}", disagreed.join("\n"));
}
