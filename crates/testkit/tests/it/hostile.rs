//! The harness catches what it must: panics, hangs and hunger.

use extant_testkit::hostile::{Failure, Limits, Mutant, Report, Work, make_specimens, run, serve};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMITS: Limits = Limits {
    time: Duration::from_secs(2),
    memory: 1 << 30,
    resident: 256 << 20,
};
const DIR: &str = "EXTANT_TESTKIT_HARNESS_DIR";
const WALK: &str = "EXTANT_TESTKIT_HARNESS_WALK";

/// Not a test by itself: what the workers of the tests below run.
#[test]
fn worker() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let walk = std::env::var(WALK).unwrap_or_default();
    serve(Path::new(&dir), LIMITS, |mutant: Mutant| {
        match walk.as_str() {
            "panic" if mutant.story.len() > 1 => panic!("did not expect that"),
            "hang" => std::thread::sleep(Duration::from_secs(100)),
            "appetite" => drop(std::hint::black_box(vec![1u8; 300 << 20])),
            "hunger" => drop(vec![1u8; 2 << 30]),
            _ => {}
        }
        true
    });
}

fn harness(dir: &Path, walk: &str) -> Result<Report, Failure> {
    let command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "hostile::worker", "--nocapture"])
            .env(DIR, dir)
            .env(WALK, walk);
        command
    };
    let work = Work {
        first_seed: 100,
        images: 40,
        time: None,
        workers: 2,
    };
    run(command, work, LIMITS)
}

#[test]
fn the_harness_names_the_seed_that_breaks_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    make_specimens(dir.path());
    let report = harness(dir.path(), "well").unwrap();
    assert_eq!((report.images, report.opened), (40, 40));
    assert!(report.peak_kib > 0);

    let panicked = harness(dir.path(), "panic").unwrap_err();
    assert!(panicked.what.contains("worker ended"), "{panicked}");
    assert!((100..140).contains(&panicked.seed));
    let hung = harness(dir.path(), "hang").unwrap_err();
    assert!(hung.what.contains("no answer within 2s"), "{hung}");
    let fat = harness(dir.path(), "appetite").unwrap_err();
    assert!(fat.what.contains("KiB of memory"), "{fat}");
    let hungry = harness(dir.path(), "hunger").unwrap_err();
    assert!(hungry.what.contains("worker ended"), "{hungry}");
}
