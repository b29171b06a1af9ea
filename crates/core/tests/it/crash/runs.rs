//! Operations alone, in pairs, and many at random: crashed everywhere.

use super::engine::Extant;
use super::shapes::{
    CLUSTERS, DEFAULT, GROUPS, ORPHAN_FILE, PLAIN, SHAPES, SMALL_BLOCKS, nearly_full, next_tid,
    unused_groups, with_first_tid,
};
use super::sweep_all;
use extant_core::fs::DataMode;
use extant_testkit::facility::is_full_run;
use extant_testkit::model::{Op, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Prepared, Script, Sweep};

/// `normal`, or in a full run `full`.
pub(super) fn amount(normal: usize, full: usize) -> usize {
    if is_full_run() { full } else { normal }
}

/// Of how many images others see one: of the many of a full run not as large a part.
/// `EXTANT_CRASH_OTHERS=N` asks for one in N.
pub(super) fn every(normal: u64) -> u64 {
    if let Ok(asked) = std::env::var("EXTANT_CRASH_OTHERS") {
        return asked.parse().expect("EXTANT_CRASH_OTHERS is a number");
    }
    if is_full_run() { 400 } else { normal }
}

fn engine(keeps_open: usize) -> Extant {
    Extant {
        keeps_open,
        checkpoints: true,
        ..Extant::default()
    }
}

#[test]
fn each_operation_alone_is_there_or_not_after_any_crash() {
    let engine = engine(1);
    for shape in SHAPES {
        let start = shape.filled(&engine);
        let scripts = Script::singles(&Universe::small(), start.lanes[0].state());
        let sweep = Sweep {
            checked_every: 16,
            closes: true,
            ..Sweep::of(amount(40, 4000), 1)
        };
        let report = sweep_all(shape.name, &engine, &start, &scripts, &sweep);
        assert!(report.distinct > 400, "{report}");
    }
}

/// Which part of the pairs is looked at, of how many (`EXTANT_CRASH_PART=2/8`).
fn part_of_pairs() -> (usize, usize) {
    let Ok(asked) = std::env::var("EXTANT_CRASH_PART") else {
        return (1, 1);
    };
    let part = asked.split_once('/').and_then(|(part, parts)| {
        let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
        (1 <= part && part <= parts).then_some((part, parts))
    });
    part.unwrap_or_else(|| panic!("EXTANT_CRASH_PART={asked} is no part: write 2/8"))
}

#[test]
fn pairs_of_operations_leave_a_state_between_them_after_any_crash() {
    let seed = seed_from_env("crash pairs");
    let mut rng = Rng::new(seed);
    let (part, parts) = part_of_pairs();
    // With files open that have lost their names: the list of orphans, and the file of orphans.
    for (shape, keeps_open) in [(SMALL_BLOCKS, 0), (SMALL_BLOCKS, 1), (ORPHAN_FILE, 1)] {
        let engine = engine(keeps_open);
        let start = shape.filled(&engine);
        let mut scripts = Script::pairs(&Universe::small(), start.lanes[0].state());
        println!("{} pairs in all", scripts.len());
        scripts.retain(|_| is_full_run() || rng.one_in(60));
        let mut number = 0;
        scripts.retain(|_| {
            number += 1;
            number % parts == part % parts
        });
        let sweep = Sweep {
            checked_every: 64,
            ..Sweep::of(amount(24, 400), seed)
        };
        sweep_all(shape.name, &engine, &start, &scripts, &sweep);
    }
}

/// Many small directories' worth of names, and syncs often enough to end many transactions.
pub(super) fn busy(syncs: u64) -> Universe {
    Universe {
        syncs,
        ..Universe::wide(3, 12)
    }
}

/// Overwrites, parts of blocks, new blocks behind holes and behind the end; few names, so that they
/// meet. What is not aligned goes through memory.
pub(super) fn aligned() -> Universe {
    Universe {
        writes: vec![
            (0, 4096),
            (0, 65_536),
            (512, 512),
            (4096, 8192),
            (12_288, 1024),
            (1 << 20, 10_240),
            (5000, 3000),
        ],
        syncs: 15,
        ..Universe::wide(1, 4)
    }
}

/// Files of more pieces than one transaction moves, and hardly anything done with them but that.
pub(super) fn in_pieces() -> Universe {
    Universe {
        writes: (0..24).map(|piece| (piece * 8192, 1024)).collect(),
        shifts: vec![
            (0, 4096, false),
            (4096, 8192, false),
            (40_960, 65_536, false),
            (0, 4096, true),
            (8192, 32_768, true),
        ],
        syncs: 10,
        allows: |op| {
            matches!(
                op,
                Op::Write { .. } | Op::Shift { .. } | Op::Fsync { .. } | Op::Syncfs
            )
        },
        ..Universe::wide(1, 2)
    }
}

pub(super) fn random_runs(
    name: &str,
    seed: u64,
    engine: &Extant,
    start: &Prepared,
    plan: &RandomPlan,
) {
    let mut rng = Rng::new(seed);
    let scripts: Vec<Script> = (0..plan.runs)
        .map(|_| Script::random(&plan.universe, &mut rng, start, plan.len))
        .collect();
    let sweep = Sweep {
        checked_every: 16,
        others_every: plan.others_every,
        closes: true,
        ..Sweep::of(plan.images, seed)
    };
    let report = sweep_all(name, engine, start, &scripts, &sweep);
    assert!(report.distinct > 50, "{report}");
}

pub(super) struct RandomPlan {
    pub(super) universe: Universe,
    pub(super) runs: usize,
    /// Operations of each lane.
    pub(super) len: usize,
    pub(super) images: usize,
    pub(super) others_every: u64,
}

#[test]
fn long_runs_of_one_thread_survive_any_crash() {
    let seed = seed_from_env("crash runs of one thread");
    let engine = engine(2);
    for shape in [DEFAULT, PLAIN, ORPHAN_FILE] {
        let plan = RandomPlan {
            universe: busy(8),
            runs: amount(3, 30),
            len: 150,
            images: amount(300, 3000),
            others_every: every(150),
        };
        random_runs(shape.name, seed, &engine, &shape.empty(), &plan);
    }
}

#[test]
fn what_the_device_is_told_to_forget_nobody_misses_after_any_crash() {
    let seed = seed_from_env("crash runs with discards");
    let engine = Extant {
        discards: true,
        ..engine(1)
    };
    for shape in [SMALL_BLOCKS, DEFAULT] {
        let plan = RandomPlan {
            universe: busy(12),
            runs: amount(2, 20),
            len: 150,
            images: amount(300, 3000),
            others_every: every(150),
        };
        random_runs(shape.name, seed, &engine, &shape.empty(), &plan);
    }
}

/// Runs of writes and the rest, by an engine that differs from the usual one.
fn runs_of_writes(name: &str, engine: &Extant) {
    let seed = seed_from_env(name);
    for shape in [SMALL_BLOCKS, DEFAULT] {
        let plan = RandomPlan {
            universe: busy(8),
            runs: amount(3, 30),
            len: 150,
            images: amount(250, 3000),
            others_every: every(150),
        };
        random_runs(shape.name, seed, engine, &shape.empty(), &plan);
    }
}

#[test]
fn writes_that_choose_their_places_survive_any_crash() {
    let engine = Extant {
        mode: DataMode::Placed,
        writes_back: 7,
        ..engine(1)
    };
    runs_of_writes("crash runs with places chosen by writes", &engine);
}

#[test]
fn what_is_written_back_without_a_sync_survives_any_crash() {
    let engine = Extant {
        writes_back: 3,
        ..engine(1)
    };
    runs_of_writes("crash runs with writeback", &engine);
}

#[test]
fn changes_of_files_in_clusters_survive_any_crash() {
    let seed = seed_from_env("crash runs on clusters");
    // Parts of clusters that come and go.
    let universe = || Universe {
        writes: vec![(0, 1024), (2048, 3000), (5000, 9000), (1024, 1024)],
        sizes: vec![0, 1024, 3000, 6000, 12_288],
        shifts: vec![(0, 4096, false), (4096, 4096, true)],
        syncs: 10,
        ..Universe::wide(1, 3)
    };
    for (mode, writes_back) in [
        (DataMode::Delayed, 3),
        (DataMode::Placed, 7),
        (DataMode::Through, 0),
    ] {
        let engine = Extant {
            mode,
            writes_back,
            ..engine(1)
        };
        let plan = RandomPlan {
            universe: universe(),
            runs: amount(2, 30),
            len: 120,
            images: amount(200, 3000),
            others_every: every(150),
        };
        let name = format!("{} {mode:?}", CLUSTERS.name);
        random_runs(&name, seed, &engine, &CLUSTERS.empty(), &plan);
    }
}

#[test]
fn writes_past_memory_survive_any_crash() {
    let seed = seed_from_env("crash runs past memory");
    let engine = Extant {
        direct: true,
        ..engine(1)
    };
    for shape in [SMALL_BLOCKS, DEFAULT] {
        let universe = aligned();
        let plan = RandomPlan {
            universe,
            runs: amount(4, 40),
            len: 150,
            images: amount(300, 3000),
            others_every: every(150),
        };
        random_runs(shape.name, seed, &engine, &shape.empty(), &plan);
    }
}

#[test]
fn files_in_many_pieces_survive_any_crash() {
    let seed = seed_from_env("crash runs of files in pieces");
    let engine = engine(1);
    let plan = RandomPlan {
        universe: in_pieces(),
        runs: amount(2, 30),
        len: 60,
        images: amount(200, 3000),
        others_every: every(150),
    };
    let start = SMALL_BLOCKS.in_pieces(&engine);
    random_runs(SMALL_BLOCKS.name, seed, &engine, &start, &plan);
}

#[test]
fn runs_that_fill_the_log_many_times_survive_any_crash() {
    let seed = seed_from_env("crash runs around the log");
    // The log makes room when it is full.
    let engine = Extant {
        keeps_open: 2,
        ..Extant::default()
    };
    let plan = RandomPlan {
        universe: busy(60),
        runs: amount(2, 20),
        len: 700,
        images: amount(900, 6000),
        others_every: every(150),
    };
    random_runs(
        SMALL_BLOCKS.name,
        seed,
        &engine,
        &SMALL_BLOCKS.empty(),
        &plan,
    );
}

#[test]
fn runs_of_several_threads_survive_any_crash() {
    let seed = seed_from_env("crash runs of several threads");
    let engine = engine(2);
    for (shape, threads) in [(SMALL_BLOCKS, 2), (DEFAULT, 4)] {
        let plan = RandomPlan {
            universe: busy(15),
            runs: amount(3, 30),
            len: 60,
            images: amount(250, 3000),
            others_every: every(150),
        };
        let start = shape.lanes(&engine, threads);
        random_runs(shape.name, seed, &engine, &start, &plan);
    }
}

#[test]
fn runs_on_a_full_file_system_survive_any_crash() {
    let seed = seed_from_env("crash runs on a full file system");
    let engine = engine(1);
    let start = nearly_full(&engine);
    let plan = RandomPlan {
        universe: busy(8),
        runs: amount(3, 30),
        len: 200,
        images: amount(250, 3000),
        others_every: every(150),
    };
    random_runs("full", seed, &engine, &start, &plan);
}

#[test]
fn groups_that_come_into_use_survive_any_crash() {
    let seed = seed_from_env("crash runs of unused groups");
    let engine = engine(1);
    let start = GROUPS.empty();
    let plan = RandomPlan {
        universe: busy(10),
        runs: amount(2, 30),
        len: 120,
        images: amount(200, 3000),
        others_every: every(150),
    };
    // Directories at the top go where there is most room.
    let dirs = (0..4).map(|n| Op::Mkdir {
        path: format!("top{n}"),
        mode: 0o755,
    });
    let before = unused_groups(&start.content);
    let after = start.done(&engine, &Script::one(dirs.collect())).unwrap();
    let after = unused_groups(&after.content);
    assert!(before >= 3 && after < before, "{before}, then {after}");
    random_runs(GROUPS.name, seed, &engine, &start, &plan);
}

#[test]
fn numbers_of_transactions_that_begin_again_survive_any_crash() {
    let seed = seed_from_env("crash runs around the largest number");
    let engine = engine(1);
    let made = SMALL_BLOCKS.empty();
    let start = Prepared {
        content: with_first_tid(&made.content, u32::MAX - 6),
        ..made
    };
    let plan = RandomPlan {
        universe: busy(40),
        runs: amount(1, 20),
        len: 100,
        images: amount(200, 3000),
        others_every: every(60),
    };
    let many = (0..8).flat_map(|n| {
        let path = format!("made{n}");
        [Op::Mkdir { path, mode: 0o755 }, Op::Syncfs]
    });
    let after = start.done(&engine, &Script::one(many.collect())).unwrap();
    let next = next_tid(&after.content);
    assert!(next < 100, "{next}");
    random_runs("the largest number", seed, &engine, &start, &plan);
}

/// Few operations between two syncs, so that most images are of moments in which the file system is
/// left or entered.
fn short_runs(engine: &Extant, name: &str) {
    let seed = seed_from_env(name);
    for shape in [SMALL_BLOCKS, ORPHAN_FILE] {
        let plan = RandomPlan {
            universe: busy(25),
            runs: amount(2, 30),
            len: 20,
            images: amount(100, 3000),
            others_every: every(20),
        };
        let start = shape.filled(engine);
        random_runs(shape.name, seed, engine, &start, &plan);
    }
}

#[test]
fn a_crash_while_it_is_closed_leaves_everything_that_was_synced() {
    // Nothing is home before.
    let engine = Extant {
        keeps_open: 2,
        ..Extant::default()
    };
    short_runs(&engine, "crash runs of closing");
}

#[test]
fn a_crash_while_it_becomes_read_only_or_writable_leaves_everything_that_was_synced() {
    let engine = Extant {
        remounts: true,
        ..engine(2)
    };
    short_runs(&engine, "crash runs of becoming read-only");
}

#[test]
fn a_crash_while_it_is_frozen_or_thawed_leaves_everything_that_was_synced() {
    let engine = Extant {
        freezes: true,
        ..engine(2)
    };
    short_runs(&engine, "crash runs of freezing");
}
