//! Whatever an image holds, the engine answers: no panic, no hang, no memory beyond the budget.
//!
//! Mutants of small images, their checksums repaired, are opened, walked and read in worker
//! processes with limits. `EXTANT_HOSTILE_IMAGES=N` sets their number (an ordinary run takes what
//! fits its time); `EXTANT_SEED` repeats a run, and the seed of a failure with
//! `EXTANT_HOSTILE_IMAGES=1` repeats one mutant.

mod walk;

use extant_testkit::hostile::{Limits, Work, make_specimens, run, serve};
use extant_testkit::rng::seed_from_env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMITS: Limits = Limits {
    time: Duration::from_secs(10),
    // Address space: room for the test binary, the specimens and the stacks, and for an engine
    // with its 8 MiB of cache many times over.
    memory: 1 << 30,
    resident: 160 << 20,
};
const ORDINARY_RUN: Duration = Duration::from_secs(15);
const DIR: &str = "EXTANT_HOSTILE_DIR";

/// Not a test by itself: what the workers run.
#[test]
fn worker() {
    if let Some(dir) = std::env::var_os(DIR) {
        serve(Path::new(&dir), LIMITS, |mutant| walk::walk(&mutant.image));
    }
}

#[test]
fn hostile_images_get_answers_within_limits() {
    let first_seed = seed_from_env("hostile_images_get_answers_within_limits");
    let images = std::env::var("EXTANT_HOSTILE_IMAGES").ok();
    let images = images.map(|n| n.parse().expect("EXTANT_HOSTILE_IMAGES is a number"));
    let dir = tempfile::tempdir().unwrap();
    make_specimens(dir.path());
    let work = Work {
        first_seed,
        images: images.unwrap_or(u64::MAX),
        time: images.is_none().then_some(ORDINARY_RUN),
        workers: std::thread::available_parallelism().map_or(2, usize::from),
    };
    let command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "gauntlet::worker", "--nocapture"]);
        command.env(DIR, dir.path());
        command
    };
    match run(command, work, LIMITS) {
        Ok(report) => {
            println!("{report:?}");
            assert!(report.images > 0);
            // Too many refused at the door would test nothing behind it.
            assert!(report.opened * 4 > report.images || report.images < 50);
        }
        Err(failure) => panic!("{failure}"),
    }
}
