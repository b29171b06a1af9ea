//! `model`: throughput on more cores than there are, by simulation from what is measured here.
//!
//! For each subject, in the improved and the unimproved form of the engine: one worker tells how
//! long an operation takes and how long it holds which class of locks; two workers tell how likely
//! two use the same lock or atomic ([`stat::meetings`]), but for block groups, of which files that
//! grow take one each and there are only so many; and two processors tell what it costs to get a
//! cache line that another core has changed. From these the simulation draws the curve. More
//! threads than cores would tell nothing: they share what each CPU has one of.
//!
//! A prediction counts if the same simulation reproduces the rates measured with one and two
//! workers, and the published collapse of an allocator with one lock for all. It knows nothing of
//! memory bandwidth, of the thread that commits and has a core of its own there, or of the device.

mod line;
mod published;
pub(crate) mod shares;
mod simulate;

use crate::args::{Config, Side, WorkloadName};
use crate::locks::LockTable;
use crate::report::{self, Row};
use crate::runner;
use crate::workload::{Case, Workload};
use clap::ValueEnum;
use extant_sync::stat::{self, Snapshot};
use simulate::{Operation, Shared};
use std::collections::{BTreeMap, BTreeSet};

/// What is simulated: workload, variant.
const SUBJECTS: &[(WorkloadName, &str)] = &[
    (WorkloadName::Fallocate2, "default"),
    (WorkloadName::Orphan, "file"),
    (WorkloadName::Orphan, "list"),
    (WorkloadName::Bulkstat, "warm"),
    (WorkloadName::Overwrite, "direct"),
    (WorkloadName::Metadata, "create-own"),
    (WorkloadName::Metadata, "stat"),
];

/// Worker counts that are simulated unless others are asked for.
const WORKERS: &[usize] = &[1, 2, 4, 8, 16, 32, 64, 128];

/// Worker counts that are measured, and have to be reproduced.
const MEASURED: [usize; 2] = [1, 2];

/// Cache lines that move with a lock besides its own. What a lock here guards is small.
const LINES: f64 = 1.0;

/// What each worker has one of, as long as there are enough, and the MiB of one.
const KEPT: (&str, u64) = ("group", 128);

/// A prediction counts if what was measured is reproduced within this factor.
const GOOD: f64 = 1.25;

/// The published figures come from one machine and one lock whose exact work is not known.
const GOOD_PUBLISHED: f64 = 1.5;

/// Bytes of one operation of what is measured in bytes.
const BYTES: f64 = 4096.0;

/// How a class was used by so many workers: uses, the sum of their squares, and time held, for all
/// operations.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    uses: u64,
    squares: u64,
    held_ns: u64,
}

/// What some workers did.
struct Seen {
    rate: f64,
    operations: u64,
    classes: BTreeMap<String, Used>,
}

/// One curve.
struct Curve {
    title: String,
    side: &'static str,
    options: String,
    /// Workers and operations per second of all, measured and simulated.
    measured: Vec<(usize, f64)>,
    simulated: Vec<(usize, f64)>,
    /// What two workers share, by the time it takes of an operation.
    shared: Vec<Shared>,
}

/// Measures, simulates and reports.
///
/// # Errors
/// A build without what is needed, or a measurement that fails.
pub(crate) fn run(config: &Config) -> Result<(), String> {
    if !stat::enabled() || !cfg!(feature = "baseline") {
        return Err("model needs a build with `--features lockstat,baseline`".to_owned());
    }
    let config = Config {
        locks: true,
        ..config.clone()
    };
    let line_ns = line::transfer_ns();
    let workers = config.workers.clone().unwrap_or_else(|| WORKERS.to_vec());
    let mut curves = Vec::new();
    for (name, variant) in SUBJECTS {
        let mut workload = runner::workload(*name, &config)?;
        for side in [Side::Engine, Side::Baseline] {
            if side == Side::Baseline && !workload.shape().peers.contains(&side) {
                continue;
            }
            curves.push(curve(
                &config,
                &mut *workload,
                variant,
                side,
                &workers,
                line_ns,
            )?);
        }
    }
    let fit = published::fit();
    if config.json {
        print_json(&curves, &fit);
    } else {
        print(&curves, &fit, line_ns);
    }
    Ok(())
}

fn curve(
    config: &Config,
    workload: &mut dyn Workload,
    variant: &'static str,
    side: Side,
    workers: &[usize],
    line_ns: f64,
) -> Result<Curve, String> {
    let mut look = |workers| {
        let case = Case {
            side,
            variant,
            workers,
            form: crate::args::KernelForm::Plain,
        };
        look(config, workload, &case)
    };
    let [alone, together] = [look(MEASURED[0])?, look(MEASURED[1])?];
    let groups = (config.image_mib / KEPT.1).max(1);
    let operation = operation(&alone, &together, line_ns, groups);
    // Those that were measured in any case: they say whether the others count.
    let counts: BTreeSet<usize> = workers.iter().copied().chain(MEASURED).collect();
    let simulated = counts
        .into_iter()
        .map(|workers| {
            let rate = simulate::rate(&operation, workers as u32, line_ns);
            (workers, rate)
        })
        .collect();
    let case = Case {
        side,
        variant,
        workers: 1,
        form: crate::args::KernelForm::Plain,
    };
    Ok(Curve {
        title: match variant {
            "default" => workload.name().to_owned(),
            variant => format!("{} {variant}", workload.name()),
        },
        side: side.name(),
        options: workload.options(&case),
        measured: vec![(MEASURED[0], alone.rate), (MEASURED[1], together.rate)],
        simulated,
        shared: operation.shared,
    })
}

/// Runs a case as often as asked for: the median rate, and what was counted in that run.
fn look(config: &Config, workload: &mut dyn Workload, case: &Case) -> Result<Seen, String> {
    let mut runs = Vec::new();
    let asked = config.workload.to_possible_value();
    let asked = asked.as_ref().map_or("", |value| value.get_name());
    for run in 0..config.runs {
        eprintln!(
            "{asked}: {} {} {} ({} workers), run {} of {}",
            workload.name(),
            case.variant,
            case.side.name(),
            case.workers,
            run + 1,
            config.runs
        );
        let measured = workload.run(case)?;
        let locks = measured.locks.ok_or("nothing was counted")?;
        let rate = match workload.shape().unit {
            "MB/s" => measured.value * 1e6 / BYTES,
            _ => measured.value,
        };
        runs.push((rate, locks));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, locks) = runs.swap_remove(runs.len() / 2);
    Ok(seen(rate, &locks))
}

fn seen(rate: f64, locks: &LockTable) -> Seen {
    let (snapshot, operations) = locks.counted();
    Seen {
        rate,
        operations,
        classes: classes(snapshot),
    }
}

fn classes(snapshot: &Snapshot) -> BTreeMap<String, Used> {
    let mut classes = BTreeMap::new();
    for lock in &snapshot.locks {
        let (name, held_ns) = match lock.side {
            stat::Side::Exclusive => (lock.name.to_owned(), lock.hold.total_ns),
            // Readers keep nobody from reading: what they share is the line that counts them.
            _ => (format!("{}, shared", lock.name), 0),
        };
        let used = Used {
            uses: lock.acquisitions,
            squares: lock.squares,
            held_ns,
        };
        classes.insert(name, used);
    }
    for atomic in &snapshot.atomics {
        let used = Used {
            uses: atomic.count,
            squares: atomic.squares,
            held_ns: 0,
        };
        classes.insert(format!("{}, atomic", atomic.name), used);
    }
    classes
}

/// One operation: times as one worker had them, meetings as two workers had them, in a file system
/// of so many groups.
fn operation(alone: &Seen, together: &Seen, line_ns: f64, groups: u64) -> Operation {
    let mut shared = Vec::new();
    for (name, used) in &together.classes {
        let single = alone.classes.get(name).copied().unwrap_or_default();
        let met = stat::meetings(
            (single.uses, single.squares),
            (used.uses, used.squares),
            MEASURED[1],
        );
        // Once in a thousand operations is no matter, and below what counting can tell.
        let visits = used.uses as f64 / together.operations as f64;
        let meets = met * visits >= 0.001;
        // Two had one each. More of them do not for ever.
        let keeps = !meets && name == KEPT.0 && visits >= 0.001;
        if !meets && !keeps {
            continue;
        }
        // Holds of many threads on few cores include being preempted.
        let held = match single.uses {
            0 => 0.0,
            uses => single.held_ns as f64 / uses as f64,
        };
        shared.push(Shared {
            name: name.clone(),
            places: if keeps { groups as f64 } else { 1.0 / met },
            visits,
            hold_ns: held,
            lines: if used.held_ns == 0 { 0.0 } else { LINES },
            keeps,
        });
    }
    let cost = |s: &Shared| s.visits * (s.hold_ns + line_ns) / s.places;
    shared.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let whole = 1e9 / alone.rate;
    let held: f64 = shared.iter().map(|s| s.visits * s.hold_ns).sum();
    Operation {
        // Locks may be held within one another; something always remains.
        think_ns: (whole - held).max(whole * 0.1),
        shared,
    }
}

impl Curve {
    /// How far the simulation is from what was measured, at worst, as a factor above 1.
    fn worst(&self) -> f64 {
        let off = |&(workers, measured): &(usize, f64)| {
            let found = self.simulated.iter().find(|s| s.0 == workers);
            found.map_or(f64::INFINITY, |&(_, s)| (s / measured).max(measured / s))
        };
        self.measured.iter().map(off).fold(1.0, f64::max)
    }
}

fn print(curves: &[Curve], fit: &published::Fit, line_ns: f64) {
    println!("a cache line takes {line_ns:.0} ns between cores\n");
    println!("fallocate2 as published of the unimproved form, operations/s of each worker:");
    println!(
        "{:>8} {:>12} {:>12} {:>6}",
        "workers", "published", "simulated", "x"
    );
    for (workers, published, simulated) in &fit.points {
        println!(
            "{workers:>8} {published:>12.0} {simulated:>12.0} {:>6.2}",
            simulated / published
        );
    }
    let lock = &fit.operation.shared[0];
    println!(
        "with one lock, held {:.0} ns of {:.0}, and {:.0} ns for what moves with it: {}\n",
        lock.hold_ns,
        fit.operation.alone_ns(),
        (lock.lines + 1.0) * 100.0,
        verdict(fit.worst(), GOOD_PUBLISHED)
    );
    for curve in curves {
        println!(
            "{} [{}], operations/s of all workers:",
            curve.title, curve.side
        );
        println!("{:>8} {:>12} {:>12}", "workers", "measured", "SIMULATED");
        for &(workers, simulated) in &curve.simulated {
            let measured = curve.measured.iter().find(|m| m.0 == workers);
            let measured = measured.map_or("-".to_owned(), |m| format!("{:.0}", m.1));
            println!("{workers:>8} {measured:>12} {simulated:>12.0}");
        }
        for shared in curve.shared.iter().take(4) {
            let how = if shared.keeps {
                "each keeps to one of"
            } else {
                "two meet in one of"
            };
            println!(
                "         {:.2} x {}: {:.0} ns, {how} {:.0}",
                shared.visits, shared.name, shared.hold_ns, shared.places
            );
        }
        println!("         {}\n", verdict(curve.worst(), GOOD));
    }
}

fn verdict(worst: f64, good: f64) -> String {
    let found = format!("reproduced within a factor of {worst:.2}");
    if worst <= good {
        format!("{found}: the prediction counts")
    } else {
        format!("{found}, more than {good:.2}: the prediction does NOT count")
    }
}

fn print_json(curves: &[Curve], fit: &published::Fit) {
    let row = |side, variant: &str, workers, value: f64, options: &str| Row {
        workload: "model",
        side,
        // Rows name their variants for as long as the program runs.
        variant: variant.replace(' ', "-").leak(),
        workers,
        unit: "ops/s",
        better: "higher",
        median: value,
        min: value,
        max: value,
        runs: vec![value],
        peak_rss: None,
        figures: Default::default(),
        options: options.to_owned(),
    };
    let mut rows = Vec::new();
    for (workers, published, simulated) in &fit.points {
        let (all, workers) = (f64::from(*workers), *workers as usize);
        rows.push(row(
            "published",
            "published",
            workers,
            published * all,
            "of all workers",
        ));
        rows.push(row(
            "simulation",
            "published",
            workers,
            simulated * all,
            "of all workers",
        ));
    }
    for curve in curves {
        let simulated = match curve.side {
            "engine" => "engine, simulation",
            _ => "baseline, simulation",
        };
        let options = format!("{}; {}", curve.options, verdict(curve.worst(), GOOD));
        for &(workers, rate) in &curve.simulated {
            rows.push(row(simulated, &curve.title, workers, rate, &options));
        }
        for &(workers, rate) in &curve.measured {
            rows.push(row(curve.side, &curve.title, workers, rate, &options));
        }
    }
    report::print_json(&rows.iter().collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rate: f64, uses: &[(&str, u64, u64, u64)]) -> Seen {
        let class = |&(name, uses, squares, held_ns): &(&str, u64, u64, u64)| {
            let used = Used {
                uses,
                squares,
                held_ns,
            };
            (name.to_owned(), used)
        };
        Seen {
            rate,
            operations: 1000,
            classes: uses.iter().map(class).collect(),
        }
    }

    #[test]
    fn only_what_workers_meet_at_is_shared_and_holds_are_those_of_one_worker() {
        let alone = seen(
            1e6,
            &[
                ("all", 1000, 1_000_000, 200_000),
                ("own", 1000, 1_000_000, 300_000),
            ],
        );
        let together = seen(
            1e6,
            &[
                ("all", 1000, 1_000_000, 9_000_000),
                ("own", 1000, 500_000, 9_000_000),
            ],
        );
        let found = operation(&alone, &together, 100.0, 16);
        assert_eq!(found.shared.len(), 1);
        let shared = &found.shared[0];
        assert_eq!((shared.name.as_str(), shared.hold_ns), ("all", 200.0));
        assert!((shared.places - 1.0).abs() < 1e-9 && (shared.visits - 1.0).abs() < 1e-9);
        assert!((found.think_ns - 800.0).abs() < 1e-6);
    }

    #[test]
    fn groups_that_each_has_its_own_of_are_shared_when_there_are_too_few() {
        let of = |squares| seen(1e6, &[("group", 1000, squares, 200_000)]);
        let own = operation(&of(1_000_000), &of(500_000), 100.0, 16);
        assert_eq!(own.shared.len(), 1);
        assert!(own.shared[0].keeps && own.shared[0].places == 16.0);
        // Where two do meet they pick any.
        let met = operation(&of(1_000_000), &of(1_000_000), 100.0, 16);
        assert!(!met.shared[0].keeps && met.shared[0].places == 1.0);
    }
}
