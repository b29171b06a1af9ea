//! `report`: all workloads in one go, with their peers, as tables and pictures.
//!
//! What is measured goes into a file of results, part by part, so that a report that was stopped
//! can go on, or one part be measured anew; tables and pictures are made from that file alone. A
//! report is of one machine and of one build that a commit has: anything else is refused, or a
//! draft.
//!
//! | file | is |
//! |---|---|
//! | `OUT/results.jsonl` | one JSON object for each side, variant and number of workers |
//! | `OUT/tables.md` | the tables, between two marks |
//! | `OUT/pictures/*.svg` | curves and ratios: those that the tables show, and no others |
//! | `OUT/../../README.md` | the chosen few, between two marks |

mod entry;
mod page;
mod picture;
mod plan;

use crate::args::{Config, WorkloadName};
use crate::machine::Origin;
use crate::{runner, workload};
use entry::Results;
use plan::PARTS;
use std::fs;
use std::path::Path;

/// Measures all parts, or those named, and writes the report.
///
/// # Errors
/// Results that make no report; parts that could not be measured, after all others were; a file
/// that cannot be written.
pub(crate) fn run(config: &Config) -> Result<(), String> {
    let parts = chosen(config)?;
    let runs_the_command = |workload| {
        matches!(
            workload,
            WorkloadName::Remote
                | WorkloadName::Sources
                | WorkloadName::Compare
                | WorkloadName::Edit
        )
    };
    if parts.iter().any(|part| runs_the_command(part.workload)) {
        workload::remote::check(config)?;
    }
    fs::create_dir_all(&config.out).map_err(|e| format!("{}: {e}", config.out.display()))?;
    let kept = config.out.join("results.jsonl");
    let mut failed = Vec::new();
    if !parts.is_empty() {
        let origin = Origin {
            quick: config.quick,
            ..Origin::here()
        };
        make_room(config, &kept, &origin)?;
        for part in parts {
            eprintln!("report: {}", part.name);
            match runner::measure(&part.config(config)) {
                Ok(rows) => entry::keep(&kept, part.name, &origin, &rows)?,
                Err(e) => failed.push(format!("{}: {e}", part.name)),
            }
        }
    }
    let mut results = Results::read(&kept)?;
    for file in &config.rows {
        results.entries.extend(Results::read(file)?.entries);
    }
    show(&results, config)?;
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("not measured: {}", failed.join("; ")))
}

/// Before anything is measured: refuses what would make no report, and takes away what all parts
/// are going to replace.
fn make_room(config: &Config, kept: &Path, origin: &Origin) -> Result<(), String> {
    if !config.draft && !origin.is_clean() {
        return Err(format!(
            "this build ({}) differs from its commit, or has none: commit the changes first, or draw a --draft",
            origin.build
        ));
    }
    if !kept.exists() {
        return Ok(());
    }
    if config.part.is_none() {
        return fs::remove_file(kept).map_err(|e| format!("{}: {e}", kept.display()));
    }
    let others = Results::read(kept)?.entries;
    match others.iter().find(|entry| entry.origin != *origin) {
        Some(other) if !config.draft => Err(format!(
            "{} has results of build {} on {}, and this is build {} on {}: measure all parts, or name another folder with --out",
            kept.display(),
            other.origin.build,
            other.origin.machine,
            origin.build,
            origin.machine
        )),
        _ => Ok(()),
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

/// Writes tables and pictures, and the figures of the front page unless this is a draft.
fn show(results: &Results, config: &Config) -> Result<(), String> {
    let origin = results.origin();
    if !config.draft {
        origin.as_ref().map_err(String::clone)?;
    }
    let pictures = picture::draw(results, &config.out.join("pictures"))?;
    let page = config.out.join("tables.md");
    let tables = page::tables(results, &pictures, origin.ok().filter(|_| !config.draft));
    page::replace(&page, "report", &tables)?;
    let workspace = config.out.parent().and_then(Path::parent);
    let readme = workspace.map(|root| root.join("README.md"));
    match readme.filter(|readme| readme.exists() && !config.draft) {
        Some(readme) => page::replace(&readme, "figures", &page::chosen(results)),
        None => Ok(()),
    }
}
