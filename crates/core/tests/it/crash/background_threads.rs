//! What threads in the background do: commits by age, checkpoints, writing back. A seed fixes the
//! operations, not when these come between.

use super::engine::Extant;
use super::runs::{RandomPlan, amount, busy, every, random_runs};
use super::shapes::{DEFAULT, SMALL_BLOCKS};
use super::sweep_all;
use extant_testkit::model::{Op, Universe};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Script, Sweep};
use std::time::Duration;

/// Nothing is made room for but by the threads.
pub(super) const ENGINE: Extant = Extant {
    keeps_open: 1,
    checkpoints: false,
    mode: extant_core::fs::DataMode::Delayed,
    writes_back: 0,
    direct: false,
    dax: false,
    respells: false,
    discards: false,
    freezes: false,
    remounts: false,
    limited: false,
    reshapes: false,
    background: Some(Duration::from_millis(1)),
};

#[test]
fn what_is_committed_and_written_back_unasked_survives_any_crash() {
    let seed = seed_from_env("crash runs with threads behind them");
    let mut rng = Rng::new(seed);
    let start = DEFAULT.lanes(&ENGINE, 2);
    let universe = Universe {
        allows: |op| !op.is_sync(),
        ..busy(0)
    };
    let scripts: Vec<Script> = (0..amount(2, 30))
        .map(|_| Script::random(&universe, &mut rng, &start, 100))
        .collect();
    let asked = |script: &Script| script.lanes.iter().flatten().any(Op::is_sync);
    let sweep = Sweep {
        checked_every: 16,
        others_every: every(150),
        ..Sweep::of(amount(250, 3000), seed)
    };
    let report = sweep_all(DEFAULT.name, &ENGINE, &start, &scripts, &sweep);
    if !scripts.iter().any(asked) {
        assert!(report.flushes > 4 * report.runs, "{report}");
    }
}

#[test]
fn a_log_that_threads_empty_while_others_fill_it_survives_any_crash() {
    let seed = seed_from_env("crash runs around the log with threads behind them");
    let plan = RandomPlan {
        universe: busy(30),
        runs: amount(1, 20),
        len: 400,
        images: amount(400, 6000),
        others_every: every(150),
    };
    let start = SMALL_BLOCKS.lanes(&ENGINE, 2);
    random_runs(SMALL_BLOCKS.name, seed, &ENGINE, &start, &plan);
}
