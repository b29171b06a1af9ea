//! The engine, crashed at every write: each image recovers to a state that was promised.
//!
//! | module | owns |
//! |---|---|
//! | `engine` | the engine as the sweep drives it |
//! | `shapes` | file systems to begin with |
//! | `dirs` | directories of many blocks, and many threads in one of them |
//! | `background_threads` | what threads in the background do |
//! | `faults` | every transfer of every operation fails once |
//! | `fast_commits` | the replay of fast commits that Linux left |
//! | `indirect` | files mapped by indirect blocks |
//! | `large_values` | attribute values in inodes of their own |
//! | `journals` | journals with checksums of older kinds |
//! | `inline` | what outgrows its inode |
//! | `casefold` | directories that do not tell upper from lower case |
//! | `dax` | data copied straight to a device that is memory |
//! | `linux` | what one leaves dirty the other recovers |
//! | `owners` | what owners use, counted with every change |
//! | `regressions` | what sweeps have found, as short as it gets |
//! | `no_journal` | the same without a journal, where a check has to help |
//! | `pieces` | truncations and deletions of more than one transaction |
//! | `map_conversion` | maps of another kind: extents made of indirect blocks, and the other way round |
//! | `sealing` | files that fs-verity comes to protect |
//! | `staged` | changes that are made as a whole, or not at all |
//! | `waiting` | those that no journal holds |
//! | `claimed` | those of a file system that multiple-mount protection claims |
//! | `runs` | operations alone, in pairs, and many at random: crashed everywhere |
//! | `soak` | random runs of all kinds for as long as was asked |
//!
//! `EXTANT_FULL=1` looks at everything there is of singles and pairs and at more of the rest;
//! `EXTANT_CRASH_MINUTES=N` goes on with random runs for so long; `EXTANT_CRASH_OTHERS=N` lets
//! e2fsck and the kernel recover one image in N of random runs. `EXTANT_SEED` repeats a run.

mod background_threads;
mod casefold;
mod claimed;
mod dax;
mod dirs;
pub(crate) mod engine;
mod fast_commits;
mod faults;
mod indirect;
mod inline;
mod journals;
mod large_values;
mod linux;
mod map_conversion;
mod no_journal;
mod owners;
mod pieces;
mod regressions;
mod runs;
mod sealing;
pub(crate) mod shapes;
mod soak;
mod staged;
mod waiting;

use engine::Extant;
use extant_testkit::facility::is_full_run;
use extant_testkit::sweep::{Failure, Prepared, Script, Sweep, SweepReport};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures after which a sweep gives up: the first ones tell the most.
const ENOUGH: usize = 4;

/// How often a long sweep says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// What all sweeps of the process looked at so far.
static TOTAL: Mutex<Option<SweepReport>> = Mutex::new(None);

fn add_to_total(one: SweepReport) -> SweepReport {
    let mut total = TOTAL.lock().unwrap_or_else(PoisonError::into_inner);
    let total = total.get_or_insert_default();
    *total += one;
    *total
}

/// Runs all `scripts` and prints what was looked at.
///
/// # Panics
///
/// With the failures there were.
fn sweep_all(
    name: &str,
    engine: &Extant,
    prepared: &Prepared,
    scripts: &[Script],
    sweep: &Sweep,
) -> SweepReport {
    let sweep = Sweep {
        promise: engine.promise(),
        ..sweep.clone()
    };
    let mut report = SweepReport::default();
    let mut total = SweepReport::default();
    let mut failures: Vec<Failure> = Vec::new();
    let mut told = Instant::now();
    for (number, script) in scripts.iter().enumerate() {
        match sweep.run(engine, prepared, script) {
            Ok(one) => {
                report += one;
                total = add_to_total(one);
            }
            Err(failure) => failures.push(failure),
        }
        if failures.len() == ENOUGH {
            break;
        }
        if told.elapsed() > TELL_EVERY {
            println!("{name}, run {number} of {}: {report}", scripts.len());
            println!("in all so far: {total}");
            told = Instant::now();
        }
    }
    println!("{name}: {report}");
    if is_full_run() {
        println!("in all so far: {total}");
    }
    let shown: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{name}: {}", shown.join("\n"));
    report
}
