//! `extant map`.
//!
//! | file | owns |
//! |---|---|
//! | `survey` | what every block of an image is used for |
//! | `file` | where one file's blocks lie |
//! | `svg` | the picture |
//! | `used` | which blocks are used, also as a block map of bmaptool |
//! | `block` | what single blocks are used for, and by which file |

mod block;
mod file;
mod survey;
mod svg;
mod used;

use crate::args::{Map, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::output::Output;
use crate::size::human;
use crate::slip::refuse_over_disk;
use extant::Escaped;
use serde::Serialize;
use std::io::Write;
use survey::{Kind, Survey};

pub(super) fn run(args: &Map, location: &Whereabouts) -> Outcome {
    let from = ImagePath::parse(&args.path)?;
    if !args.block.is_empty() {
        return block::run(args, &from, location);
    }
    let whole = from.open_whole(location, false)?;
    let fs = from.open_in(&whole, location)?;
    if from.has_path && from.path.as_os_str() != "/" {
        if args.svg.is_some() {
            return Err(Failure::usage(
                "--svg draws whole images: name IMAGE without a path",
            ));
        }
        if args.used {
            return Err(Failure::usage(
                "--used is about whole images: name IMAGE without a path",
            ));
        }
        return file::run(&fs, &from, args.json);
    }
    let survey = Survey::of(fs.engine())
        .map_err(|e| Failure::new(format!("{}: {e}", shown(&from.image))))?;
    if args.used {
        // What lies there, whatever a journal in it says: that is what is copied.
        let device = from.part_of(&whole, location)?;
        return used::run(&survey, &*device, args);
    }
    match &args.svg {
        Some(path) => {
            refuse_over_disk(path, "a picture")?;
            let name = from.image.name();
            let title = std::path::Path::new(&name).file_name().unwrap_or(&name);
            let picture = svg::draw(&survey, &Escaped(title.as_encoded_bytes()).to_string());
            std::fs::write(path, picture)
                .map_err(|e| Failure::new(format!("cannot write {}: {e}", Escaped::path(path))))
        }
        None if args.json => json(&survey),
        None => text(&survey),
    }
}

#[derive(Serialize)]
struct Picture<'a> {
    block_size: u32,
    blocks: u64,
    totals: Vec<Total>,
    runs: Vec<RunRecord>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    problems: &'a [String],
}

#[derive(Serialize)]
struct Total {
    kind: &'static str,
    blocks: u64,
}

#[derive(Serialize)]
struct RunRecord {
    start: u64,
    len: u64,
    kind: &'static str,
}

fn json(survey: &Survey) -> Outcome {
    let totals = survey.totals();
    let picture = Picture {
        block_size: survey.block_size,
        blocks: survey.blocks,
        totals: Kind::ALL
            .iter()
            .map(|&kind| Total {
                kind: kind.name(),
                blocks: totals[kind as usize],
            })
            .collect(),
        runs: survey
            .runs
            .iter()
            .map(|run| RunRecord {
                start: run.start,
                len: run.len,
                kind: run.kind.name(),
            })
            .collect(),
        problems: &survey.problems,
    };
    let mut output = Output::new();
    output.json_pretty(&picture)?;
    output.finish()?;
    survey.outcome()
}

fn text(survey: &Survey) -> Outcome {
    let mut output = Output::new();
    let bytes = |blocks: u64| human(blocks.saturating_mul(survey.block_size.into()));
    let totals = survey.totals();
    for kind in Kind::ALL {
        let blocks = totals[kind as usize];
        if blocks > 0 {
            let percent = blocks as f64 * 100.0 / survey.blocks.max(1) as f64;
            writeln!(
                output,
                "{:<20} {:>12} blocks {:>10} {percent:>6.2}%",
                kind.title(),
                blocks,
                bytes(blocks)
            )?;
        }
    }
    writeln!(
        output,
        "\n{:>14} {:>14} {:>12}  used for",
        "first block", "last block", "blocks"
    )?;
    for run in &survey.runs {
        writeln!(
            output,
            "{:>14} {:>14} {:>12}  {}",
            run.start,
            run.start + run.len - 1,
            run.len,
            run.kind.title()
        )?;
    }
    output.finish()?;
    survey.outcome()
}
