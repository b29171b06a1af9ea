//! Random runs of all kinds, one after the other, for as long as was asked
//! (`EXTANT_CRASH_MINUTES`).
//!
//! Nothing is kept of a run but what it adds to the counts, so that memory stays what one run
//! takes. Run `n` has the seed of the first plus `n`: a failure is repeated by its own seed.

use super::background_threads;
use super::dirs::full_index;
use super::engine::Extant;
use super::inline::{self, INLINE};
use super::large_values::{self, CHARGED};
use super::runs::{aligned, busy, in_pieces};
use super::shapes::{DEFAULT, SHAPES, SMALL_BLOCKS, Shape, nearly_full};
use extant_core::fs::DataMode;
use extant_testkit::model::Universe;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Prepared, Script, SeenImages, Sweep, SweepReport};
use std::time::{Duration, Instant};

/// Images of a run at most.
const IMAGES: usize = 2000;
/// How often the counts are printed.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Runs of one kind.
struct Kind {
    name: String,
    engine: Extant,
    start: Prepared,
    /// The operations to choose from.
    universe: fn(&mut Rng) -> Universe,
    /// The most operations of a run.
    len: u64,
    report: SweepReport,
    /// Images of all runs so far.
    seen: SeenImages,
}

fn any(rng: &mut Rng) -> Universe {
    let syncs = rng.between(5, 60);
    match rng.below(3) {
        0 => Universe {
            syncs,
            ..Universe::small()
        },
        _ => busy(syncs),
    }
}

fn many_syncs(_: &mut Rng) -> Universe {
    busy(60)
}

fn whole_sectors(_: &mut Rng) -> Universe {
    aligned()
}

fn names_in_d(_: &mut Rng) -> Universe {
    Universe::long_names("d/", 60)
}

fn names_together(_: &mut Rng) -> Universe {
    Universe::long_names("", 24)
}

fn names_in_inodes(_: &mut Rng) -> Universe {
    inline::names()
}

fn large_values(_: &mut Rng) -> Universe {
    large_values::universe()
}

fn pieces_only(_: &mut Rng) -> Universe {
    in_pieces()
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    let mut add = |name: String, engine: Extant, start, universe, len| {
        kinds.push(Kind {
            name,
            engine,
            start,
            universe,
            len,
            report: SweepReport::default(),
            seen: SeenImages::default(),
        });
    };
    let plain = Extant::default();
    let keeps = Extant {
        keeps_open: 2,
        ..plain
    };
    let checkpoints = Extant {
        keeps_open: 1,
        checkpoints: true,
        ..plain
    };
    for shape in SHAPES {
        let name = |what: &str| format!("{}, {what}", shape.name);
        add(name("small"), plain, shape.filled(&plain), any, 400);
        add(name("empty"), checkpoints, shape.empty(), any, 400);
        let lanes = shape.lanes(&keeps, 3);
        add(name("three threads"), keeps, lanes, any, 400);
    }
    for shape in [SMALL_BLOCKS, DEFAULT] {
        let name = |what: &str| format!("{}, {what}", shape.name);
        let (direct, discards, through, placed) = (
            Extant {
                direct: true,
                ..checkpoints
            },
            Extant {
                discards: true,
                ..checkpoints
            },
            Extant {
                mode: DataMode::Through,
                ..checkpoints
            },
            Extant {
                mode: DataMode::Placed,
                writes_back: 5,
                ..checkpoints
            },
        );
        add(name("direct"), direct, shape.empty(), whole_sectors, 300);
        add(name("discards"), discards, shape.empty(), any, 300);
        add(name("written through"), through, shape.empty(), any, 300);
        add(name("placed"), placed, shape.empty(), any, 300);
    }
    let pieces = SMALL_BLOCKS.in_pieces(&checkpoints);
    add(
        "files in pieces".to_owned(),
        checkpoints,
        pieces,
        pieces_only,
        300,
    );
    for shape in SHAPES {
        let name = |what: &str| format!("{}, {what}", shape.name);
        let behind = shape.lanes(&background_threads::ENGINE, 2);
        add(
            name("threads behind"),
            background_threads::ENGINE,
            behind,
            any,
            400,
        );
        let names = shape.with_names(&checkpoints, 30);
        add(name("long names"), checkpoints, names, names_in_d, 300);
        let together = shape.lanes_together(&keeps, 3);
        add(name("one directory"), keeps, together, names_together, 300);
    }
    let index = full_index(&checkpoints);
    add(
        "a large index".to_owned(),
        checkpoints,
        index,
        names_in_d,
        60,
    );
    let full = nearly_full(&checkpoints);
    add("nearly full".to_owned(), checkpoints, full, any, 400);
    let (inline, charged) = (INLINE.lanes(&keeps, 2), CHARGED.filled(&checkpoints));
    let name = |shape: Shape| shape.name.to_owned();
    add(name(INLINE), keeps, inline, names_in_inodes, 300);
    add(name(CHARGED), checkpoints, charged, large_values, 200);
    let wraps = SMALL_BLOCKS.empty();
    add("the log wraps".to_owned(), keeps, wraps, many_syncs, 1000);
    kinds
}

/// How long to go on.
fn asked_for() -> Option<Duration> {
    let minutes = std::env::var("EXTANT_CRASH_MINUTES").ok()?;
    let minutes: f64 = minutes.parse().expect("EXTANT_CRASH_MINUTES is a number");
    Some(Duration::from_secs_f64(minutes * 60.0))
}

#[test]
fn random_runs_for_as_long_as_was_asked_survive_any_crash() {
    let Some(time) = asked_for() else {
        println!("EXTANT_CRASH_MINUTES=N goes on for N minutes");
        return;
    };
    let first = seed_from_env("crash runs without end");
    let (begun, mut told) = (Instant::now(), Instant::now());
    let mut kinds = kinds();
    let mut total = SweepReport::default();
    let mut last = first;
    for seed in first.. {
        let mut rng = Rng::new(seed);
        let number = rng.below(kinds.len() as u64) as usize;
        let kind = &mut kinds[number];
        let universe = (kind.universe)(&mut rng);
        let len = rng.between(20, kind.len) as usize / kind.start.lanes.len();
        let script = Script::random(&universe, &mut rng, &kind.start, len);
        let sweep = Sweep {
            checked_every: 500,
            others_every: 400,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            promise: kind.engine.promise(),
            seen: SeenImages::clone(&kind.seen),
            ..Sweep::of(IMAGES, seed)
        };
        let one = sweep.run(&kind.engine, &kind.start, &script);
        let one = one.unwrap_or_else(|e| panic!("EXTANT_SEED={seed:#x}, {}: {e}", kind.name));
        kind.report += one;
        total += one;
        last = seed;
        if told.elapsed() > TELL_EVERY {
            println!("{:.0?}: {total}", begun.elapsed());
            told = Instant::now();
        }
        if begun.elapsed() > time {
            break;
        }
    }
    for kind in &kinds {
        println!("{}: {}", kind.name, kind.report);
    }
    println!(
        "seeds {first:#x} to {last:#x}, {:.0?}: {total}",
        begun.elapsed()
    );
}
