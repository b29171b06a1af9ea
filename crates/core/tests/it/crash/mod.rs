//! The engine, crashed at every write: each image recovers to a state that was promised.
//!
//! | module | owns |
//! |---|---|
//! | `engine` | the engine as the sweep drives it |
//! | `shapes` | file systems to begin with |
//! | `faults` | every transfer of every operation fails once |
//! | `linux` | what one leaves dirty the other recovers |
//! | `found` | what sweeps have found, as short as it gets |
//! | `unjournaled` | the same without a journal, where a check has to help |
//! | `runs` | operations alone, in pairs, and many at random: crashed everywhere |
//!
//! `EXTANT_FULL=1` looks at everything there is of singles and pairs and at more of the rest;
//! `EXTANT_CRASH_MINUTES=N` goes on with random runs for so long. `EXTANT_SEED` repeats a run.

pub(crate) mod engine;
mod faults;
mod found;
mod linux;
mod runs;
pub(crate) mod shapes;
mod unjournaled;

use engine::Extant;
use extant_testkit::sweep::{Failure, Prepared, Script, Sweep, SweepReport};

/// Failures after which a sweep gives up: the first ones tell the most.
const ENOUGH: usize = 4;

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
    let mut failures: Vec<Failure> = Vec::new();
    for script in scripts {
        match sweep.run(engine, prepared, script) {
            Ok(one) => report += one,
            Err(failure) => failures.push(failure),
        }
        if failures.len() == ENOUGH {
            break;
        }
    }
    println!("{name}: {report}");
    let shown: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{name}: {}", shown.join("\n"));
    report
}
