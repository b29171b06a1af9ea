//! Alternates the sides, so that a drift of the machine hits all of them.

use crate::args::{Config, KernelForm, Side, WorkloadName};
use crate::locks::LockTable;
use crate::report::{self, Row};
use crate::workload::{self, Case, Shape, Workload};
use std::thread;

/// One column of a run: a case with its results.
struct Lane {
    case: Case,
    row: Row,
    locks: Option<LockTable>,
}

/// Runs the configured workload and prints its report.
///
/// # Errors
/// A side that fails or whose result does not pass its check, as a sentence.
pub(crate) fn run(config: &Config) -> Result<(), String> {
    let lanes = lanes(config)?;
    let rows: Vec<&Row> = lanes.iter().map(|lane| &lane.row).collect();
    if config.json {
        report::print_json(&rows);
    } else {
        report::print_table(&rows);
    }
    for lane in &lanes {
        if let Some(locks) = &lane.locks {
            let (workload, variant) = (lane.row.workload, lane.case.variant);
            let (side, workers) = (lane.case.side.name(), lane.case.workers);
            let title = format!("{workload} {variant}, {side}, {workers} workers");
            // Standard output is for machines then.
            if config.json {
                eprintln!("\n{title}\n{locks}");
            } else {
                println!("\n{title}\n{locks}");
            }
        }
    }
    Ok(())
}

/// Runs the configured workload.
///
/// # Errors
/// As for [`run`].
pub(crate) fn measure(config: &Config) -> Result<Vec<Row>, String> {
    Ok(lanes(config)?.into_iter().map(|lane| lane.row).collect())
}

/// Runs all cases of the configured workload by turns.
fn lanes(config: &Config) -> Result<Vec<Lane>, String> {
    if config.locks && !extant_sync::stat::enabled() {
        return Err("--locks needs a build with `--features lockstat`".to_owned());
    }
    let mut workload = workload(config.workload, config)?;
    let shape = workload.shape();
    let mut lanes: Vec<Lane> = cases(config, &*workload, &shape)?
        .into_iter()
        .filter(|case| workload.does(case.side, case.variant))
        .map(|case| Lane {
            case,
            row: empty_row(&*workload, &shape, &case),
            locks: None,
        })
        .collect();
    for run in 0..config.runs {
        for lane in &mut lanes {
            eprintln!(
                "{} {} {} ({} workers), run {} of {}",
                workload.name(),
                lane.case.variant,
                lane.case.side.name(),
                lane.case.workers,
                run + 1,
                config.runs
            );
            let measured = workload.run(&lane.case)?;
            lane.row.runs.push(measured.value);
            lane.row.peak_rss = lane.row.peak_rss.max(measured.peak_rss);
            lane.row.figures = measured.figures;
            lane.locks = measured.locks;
        }
    }
    for lane in &mut lanes {
        lane.row.summarise();
    }
    Ok(lanes)
}

/// The workload of that name.
///
/// # Errors
/// One whose scratch folder or source cannot be made.
pub(crate) fn workload(name: WorkloadName, config: &Config) -> Result<Box<dyn Workload>, String> {
    Ok(match name {
        WorkloadName::Build => Box::new(workload::build::Build::prepare(config)?),
        WorkloadName::Extract => Box::new(workload::extract::Extract::prepare(config)?),
        WorkloadName::Mounted => Box::new(workload::mounted::Programs::prepare(config)?),
        WorkloadName::Metadata => Box::new(workload::metadata::Metadata::prepare(config)?),
        WorkloadName::Fallocate2 => Box::new(workload::fallocate2::Fallocate2::prepare(config)?),
        WorkloadName::Append64 => Box::new(workload::append64::Append64::prepare(config)?),
        WorkloadName::Sparse => Box::new(workload::sparse::Sparse::prepare(config)?),
        WorkloadName::Fill => Box::new(workload::fill::Fill::prepare(config, 1)?),
        WorkloadName::Fill4 => Box::new(workload::fill::Fill::prepare(config, 4)?),
        WorkloadName::Live => Box::new(workload::live::Live::prepare(config)?),
        WorkloadName::Age => Box::new(workload::age::Age::prepare(config)?),
        WorkloadName::Smallfiles => Box::new(workload::smallfiles::Smallfiles::prepare(config)?),
        WorkloadName::Sources => Box::new(workload::sources::Sources::prepare(config)?),
        WorkloadName::Compare => Box::new(workload::compare::Compare::prepare(config)?),
        WorkloadName::Edit => Box::new(workload::edit::Edit::prepare(config)?),
        WorkloadName::Bulkstat => Box::new(workload::bulkstat::Bulkstat::prepare(config)?),
        WorkloadName::Orphan => Box::new(workload::orphan::Orphan::prepare(config)?),
        WorkloadName::Overwrite => Box::new(workload::overwrite::Overwrite::prepare(config)?),
        WorkloadName::Fsync => Box::new(workload::fsync::Fsync::prepare(config)?),
        WorkloadName::Stream => Box::new(workload::stream::Stream::prepare(config)?),
        WorkloadName::Remote => Box::new(workload::remote::Remote::prepare(config)?),
        WorkloadName::Model | WorkloadName::Shares | WorkloadName::Report => {
            return Err("model, shares and report measure other workloads".to_owned());
        }
    })
}

/// The variant of this name, or those whose names begin so.
fn named(asked: &str, name: &str, shape: &Shape) -> Result<Vec<&'static str>, String> {
    if let Some(exactly) = shape.variants.iter().find(|known| **known == asked) {
        return Ok(vec![exactly]);
    }
    let begins = |known: &&&str| {
        let rest = known.strip_prefix(asked);
        rest.is_some_and(|rest| rest.starts_with('-'))
    };
    let found: Vec<&'static str> = shape.variants.iter().filter(begins).copied().collect();
    if found.is_empty() {
        let all = shape.variants.join(", ");
        return Err(format!("{name} has no variant {asked}; it has: {all}"));
    }
    Ok(found)
}

/// Everything to measure, in the order of one round: what is compared stands side by side.
fn cases(config: &Config, workload: &dyn Workload, shape: &Shape) -> Result<Vec<Case>, String> {
    let name = workload.name();
    let variants = match &config.variant {
        None => shape.variants.to_vec(),
        Some(asked) => {
            let named = asked.iter().map(|asked| named(asked, name, shape));
            named.collect::<Result<Vec<_>, _>>()?.concat()
        }
    };
    let peers = match &config.against {
        _ if config.engine_only => Vec::new(),
        None => {
            let asked = [
                Side::Mount,
                Side::Fuse2fs,
                Side::Baseline,
                Side::BaselineCapped,
            ];
            let peers = shape.peers.iter().filter(|side| !asked.contains(side));
            peers.copied().collect()
        }
        Some(asked) => {
            // The engine is always there: naming it alone asks for no peer.
            let asked: Vec<Side> = asked
                .iter()
                .copied()
                .filter(|side| *side != Side::Engine)
                .collect();
            if let Some(other) = asked.iter().find(|s| !shape.peers.contains(s)) {
                let all: Vec<_> = shape.peers.iter().map(|s| s.name()).collect();
                return Err(format!(
                    "{name} cannot run against {}; peers: {}",
                    other.name(),
                    all.join(", ")
                ));
            }
            asked
        }
    };
    if config.workers.iter().flatten().any(|&asked| asked == 0) {
        return Err("0 workers do nothing".to_owned());
    }
    let workers = |variant| match (&config.workers, workload.workers(variant)) {
        (Some(asked), _) => asked.clone(),
        (None, Some(own)) => own.to_vec(),
        (None, None) if shape.workers.is_empty() => {
            vec![thread::available_parallelism().map_or(1, usize::from)]
        }
        (None, None) => shape.workers.to_vec(),
    };
    let forms = |side| match side {
        Side::Kernel if shape.peers_have_workers => config.kernel.as_slice(),
        _ => &[KernelForm::Plain],
    };
    let case = |side, variant, workers, form| Case {
        side,
        variant,
        workers,
        form,
    };
    let mut cases = Vec::new();
    for variant in variants {
        let plain = KernelForm::Plain;
        let push_peers = |cases: &mut Vec<Case>, workers| {
            for &side in &peers {
                cases.extend(forms(side).iter().map(|&f| case(side, variant, workers, f)));
            }
        };
        for n in workers(variant) {
            if !config.peers_only {
                cases.push(case(Side::Engine, variant, n, plain));
            }
            if shape.peers_have_workers {
                push_peers(&mut cases, n);
            }
        }
        if !shape.peers_have_workers {
            push_peers(&mut cases, 1);
        }
    }
    Ok(cases)
}

fn empty_row(workload: &dyn Workload, shape: &Shape, case: &Case) -> Row {
    let (unit, better) = workload
        .unit(case.variant)
        .unwrap_or((shape.unit, shape.better));
    Row {
        workload: workload.name(),
        side: case.side.name(),
        variant: case.variant,
        workers: case.workers,
        unit,
        better,
        median: 0.0,
        min: 0.0,
        max: 0.0,
        runs: Vec::new(),
        peak_rss: None,
        figures: Default::default(),
        options: workload.options(case),
    }
}
