//! Whatever an image holds, the engine answers: no panic, no hang, no memory beyond the budget.
//!
//! Mutants of small images, their checksums repaired, are opened, walked and read in worker
//! processes with limits; and opened for writing, changed in every way, and read again.
//! `EXTANT_HOSTILE_IMAGES=N` sets their number (an ordinary run takes what fits its time);
//! `EXTANT_SEED` repeats a run, and the seed of a failure with `EXTANT_HOSTILE_IMAGES=1` repeats
//! one mutant.

mod walk;
mod write;

use extant_testkit::hostile::{Limits, Work, make_specimens, run, serve};
use extant_testkit::rng::seed_from_env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMITS: Limits = Limits {
    // Most take milliseconds; the machine may have much else to do.
    time: Duration::from_secs(30),
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

/// The worker of the runs that write.
#[test]
fn writing_worker() {
    if let Some(dir) = std::env::var_os(DIR) {
        serve(Path::new(&dir), LIMITS, |mutant| {
            let mut hasher = DefaultHasher::new();
            mutant.story.hash(&mut hasher);
            write::write(&mutant, hasher.finish())
        });
    }
}

#[test]
fn hostile_images_get_answers_within_limits() {
    run_harness("hostile_images_get_answers_within_limits", "worker");
}

#[test]
fn hostile_images_are_written_to_within_limits_and_in_the_right_places() {
    run_harness(
        "hostile_images_are_written_to_within_limits_and_in_the_right_places",
        "writing_worker",
    );
}

fn run_harness(name: &str, worker: &str) {
    let first_seed = seed_from_env(name);
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
        command.args(["--exact", &format!("harness::{worker}"), "--nocapture"]);
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
