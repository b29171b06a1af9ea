//! Data copied straight to a device that is memory: durable when it was persisted, and what is new
//! for a file before the file has it.

use super::engine::Extant;
use super::runs::{RandomPlan, aligned, amount, every, random_runs};
use super::shapes::{DEFAULT, SMALL_BLOCKS};
use super::sweep_all;
use extant_testkit::model::{Op, Universe};
use extant_testkit::rng::seed_from_env;
use extant_testkit::sweep::{Script, Sweep};

fn engine() -> Extant {
    Extant {
        keeps_open: 1,
        checkpoints: true,
        dax: true,
        ..Extant::default()
    }
}

#[test]
fn each_write_to_memory_is_there_once_it_was_synced() {
    let engine = engine();
    let start = SMALL_BLOCKS.filled(&engine);
    let path_of = |op: &Op| match op {
        Op::Write { path, .. }
        | Op::Truncate { path, .. }
        | Op::Allocate { path, .. }
        | Op::Zero { path, .. } => Some(path.clone()),
        _ => None,
    };
    let ops = Universe::small().possible(start.lanes[0].state());
    let with_path = ops.into_iter().filter_map(|op| Some((path_of(&op)?, op)));
    let scripts: Vec<Script> = with_path
        .flat_map(|(path, op)| {
            // Again, now that the blocks are there.
            let again = Op::Write {
                path: path.clone(),
                offset: 700,
                len: 6000,
            };
            let syncs = [
                Op::Fsync { path: path.clone() },
                Op::Fdatasync { path },
                Op::Syncfs,
            ];
            syncs.map(|sync| Script::one(vec![op.clone(), sync.clone(), again.clone(), sync]))
        })
        .collect();
    let sweep = Sweep {
        checked_every: 16,
        closes: true,
        ..Sweep::of(amount(30, 2000), 1)
    };
    let report = sweep_all("memory", &engine, &start, &scripts, &sweep);
    assert!(report.distinct > 400, "{report}");
}

#[test]
fn runs_on_a_device_that_is_memory_survive_any_crash() {
    let seed = seed_from_env("crash runs in memory");
    for shape in [SMALL_BLOCKS, DEFAULT] {
        let plan = RandomPlan {
            universe: aligned(),
            runs: amount(3, 40),
            len: 120,
            images: amount(250, 3000),
            others_every: every(150),
        };
        random_runs(shape.name, seed, &engine(), &shape.empty(), &plan);
    }
}
