//! `report`: all workloads in one go, with their peers, as tables and pictures.
//!
//! What is measured goes into a file of results, part by part, so that a report that was stopped can go on, or one part be
//! measured anew; tables and pictures are made from that file alone.
//!
//! | file | is |
//! |---|---|
//! | `OUT/results.jsonl` | one JSON object for each side, variant and number of workers |
//! | `OUT/performance.md` | the tables, between two marks |
//! | `OUT/pictures/*.svg` | curves, bars, ratios |
//! | `OUT/../../README.md` | the chosen few, between two marks |

mod entry;
mod machine;
mod page;
mod picture;
mod plan;

use crate::args::Config;
use crate::runner;
use entry::Results;
use plan::PARTS;
use std::fs;
use std::path::Path;

/// Measures all parts, or those named, and writes the report.
///
/// # Errors
/// Parts that could not be measured, after all others were; a file that cannot be written.
pub(crate) fn run(config: &Config) -> Result<(), String> {
    let parts = chosen(config)?;
    fs::create_dir_all(&config.out).map_err(|e| format!("{}: {e}", config.out.display()))?;
    let kept = config.out.join("results.jsonl");
    let (machine, build) = (machine::machine(), machine::build());
    let mut failed = Vec::new();
    for part in parts {
        eprintln!("report: {}", part.name);
        match runner::measure(&part.config(config)) {
            Ok(rows) => entry::keep(&kept, part.name, (&machine, &build), &rows)?,
            Err(e) => failed.push(format!("{}: {e}", part.name)),
        }
    }
    let mut results = Results::read(&kept)?;
    for file in &config.rows {
        results.entries.extend(Results::read(file)?.entries);
    }
    show(&results, &config.out)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not measured: {}", failed.join("; "))),
    }
}

/// The parts to measure: those named, none if none is to be measured again.
fn chosen(config: &Config) -> Result<Vec<&'static plan::Part>, String> {
    let Some(names) = &config.part else {
        return Ok(PARTS.iter().collect());
    };
    let find = |name: &String| {
        let found = PARTS.iter().find(|part| part.name == name);
        found.ok_or_else(|| {
            let all: Vec<_> = PARTS.iter().map(|part| part.name).collect();
            format!("the report has no part {name}; it has: {}", all.join(", "))
        })
    };
    let named = names.iter().filter(|name| *name != "none");
    named.map(find).collect()
}

/// Writes tables and pictures.
fn show(results: &Results, out: &Path) -> Result<(), String> {
    let pictures = picture::draw(results, &out.join("pictures"))?;
    let page = out.join("performance.md");
    page::replace(&page, "report", &page::tables(results, &pictures))?;
    let workspace = out.parent().and_then(Path::parent);
    let readme = workspace.map(|root| root.join("README.md"));
    match readme.filter(|readme| readme.exists()) {
        Some(readme) => page::replace(&readme, "figures", &page::chosen(results)),
        None => Ok(()),
    }
}
