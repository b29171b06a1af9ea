//! Alternates the sides, so that a drift of the machine hits all of them.

use crate::args::{Config, Side, WorkloadName};
use crate::peer::Measured;
use crate::report::{self, Row};
use crate::workload::{self, Workload};
use std::thread;

/// One column of a run: a side with a worker count.
struct Lane {
    side: Side,
    workers: usize,
    row: Row,
}

/// Runs the configured workload and prints its report.
///
/// # Errors
/// A side that fails or whose result does not pass its check, as a sentence.
pub(crate) fn run(config: &Config) -> Result<(), String> {
    let mut workload: Box<dyn Workload> = match config.workload {
        WorkloadName::Build => Box::new(workload::build::Build::prepare(config)?),
        WorkloadName::Extract => Box::new(workload::extract::Extract::prepare(config)?),
    };
    if let Some(variants) = &config.variant
        && let Some(other) = variants.iter().find(|v| *v != "default")
    {
        return Err(format!(
            "{} has no variant {other}; it has: default",
            workload.name()
        ));
    }
    let peers = match &config.against {
        None => workload.peers().to_vec(),
        Some(asked) => {
            if let Some(other) = asked.iter().find(|s| !workload.peers().contains(s)) {
                return Err(format!(
                    "{} cannot run against {}; peers: {}",
                    workload.name(),
                    other.name(),
                    workload
                        .peers()
                        .iter()
                        .map(|s| s.name())
                        .collect::<Vec<_>>()
                        .join(", ")
                ));
            }
            asked.clone()
        }
    };
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let workers = config.workers.clone().unwrap_or_else(|| vec![cpus]);
    let mut lanes: Vec<Lane> = workers
        .iter()
        .map(|n| (Side::Engine, *n))
        .chain(peers.into_iter().map(|side| (side, 1)))
        .map(|(side, workers)| Lane {
            side,
            workers,
            row: empty_row(&*workload, side, workers),
        })
        .collect();

    for run in 0..config.runs {
        for lane in &mut lanes {
            eprintln!(
                "{} {} ({} workers), run {} of {}",
                workload.name(),
                lane.side.name(),
                lane.workers,
                run + 1,
                config.runs
            );
            let Measured { seconds, peak_rss } = workload.run(lane.side, lane.workers)?;
            lane.row.runs.push(seconds);
            lane.row.peak_rss = lane.row.peak_rss.max(peak_rss);
        }
    }
    let rows: Vec<Row> = lanes
        .into_iter()
        .map(|lane| {
            let mut row = lane.row;
            row.summarise();
            row
        })
        .collect();
    if config.json {
        report::print_json(&rows)
    } else {
        report::print_table(&rows)
    }
    Ok(())
}

fn empty_row(workload: &dyn Workload, side: Side, workers: usize) -> Row {
    Row {
        workload: workload.name(),
        side: side.name(),
        variant: "default".to_owned(),
        workers,
        unit: "s",
        better: "lower",
        median: 0.0,
        min: 0.0,
        max: 0.0,
        runs: Vec::new(),
        peak_rss: None,
        options: workload.options(side),
    }
}
