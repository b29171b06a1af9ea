//! `extant-plot`: draws what `extant-bench --json` printed.
//!
//! One picture for each workload and variant: curves over the number of workers where several were
//! measured, bars otherwise. All rows of a picture should come from one run.

use clap::Parser;
use plotters::prelude::*;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Draws the JSON lines of extant-bench as SVG pictures.
#[derive(Parser, Debug)]
#[command(
    name = "extant-plot",
    after_help = "Example:\n  extant-bench fallocate2 --json > fallocate2.jsonl\n  \
                  extant-plot --out docs/pictures fallocate2.jsonl"
)]
struct Args {
    /// Files with JSON lines
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Folder for the pictures
    #[arg(long, default_value = ".")]
    out: PathBuf,
}

/// What is drawn of a row.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    workload: String,
    side: String,
    variant: String,
    workers: u32,
    unit: String,
    median: f64,
    min: f64,
    max: f64,
}

const SIZE: (u32, u32) = (720, 400);
const FONT: &str = "sans-serif";

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-plot: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut pictures: BTreeMap<(String, String), Vec<Row>> = BTreeMap::new();
    for file in &args.files {
        let text = std::fs::read_to_string(file)
            .map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.is_empty()) {
            let row: Row = serde_json::from_str(line)
                .map_err(|e| format!("{}, line {}: {e}", file.display(), number + 1))?;
            let key = (row.workload.clone(), row.variant.clone());
            pictures.entry(key).or_default().push(row);
        }
    }
    std::fs::create_dir_all(&args.out)?;
    for ((workload, variant), rows) in &pictures {
        let name = match variant.as_str() {
            "default" => workload.clone(),
            variant => format!("{workload}-{variant}"),
        };
        let path = args.out.join(format!("{name}.svg"));
        let workers: BTreeSet<u32> = rows.iter().map(|row| row.workers).collect();
        let drawn = match workers.len() {
            0 | 1 => bars(&path, &name, rows),
            _ => curves(&path, &name, rows, &workers),
        };
        drawn.map_err(|e| format!("cannot draw {}: {e}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Rates or times over the number of workers, both axes logarithmic to the base of 2 and from 0.
fn curves(
    path: &Path,
    title: &str,
    rows: &[Row],
    workers: &BTreeSet<u32>,
) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let most = rows.iter().map(|row| row.max).fold(0.0, f64::max);
    let last = workers.last().copied().unwrap_or(1);
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d((1..last).log_scale().base(2.0), 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("workers")
        .y_desc(unit)
        .y_label_formatter(&|value| short(*value))
        .light_line_style(WHITE)
        .draw()?;
    let sides: BTreeSet<&str> = rows.iter().map(|row| row.side.as_str()).collect();
    for (index, side) in sides.into_iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let mut points: Vec<_> = rows.iter().filter(|row| row.side == side).collect();
        points.sort_by_key(|row| row.workers);
        chart
            .draw_series(LineSeries::new(
                points.iter().map(|row| (row.workers, row.median)),
                colour.stroke_width(2),
            ))?
            .label(side)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|row| {
            let ends = [(row.workers, row.min), (row.workers, row.max)];
            PathElement::new(ends, colour.stroke_width(1))
        }))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.4))
        .draw()?;
    root.present()?;
    Ok(())
}

/// One bar for each side.
fn bars(path: &Path, title: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let most = rows.iter().map(|row| row.max).fold(0.0, f64::max);
    let count = i32::try_from(rows.len())?;
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    let name = |at: &SegmentValue<i32>| match at {
        SegmentValue::CenterOf(at) => usize::try_from(*at)
            .ok()
            .and_then(|at| rows.get(at))
            .map_or(String::new(), |row| row.side.clone()),
        _ => String::new(),
    };
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d((0..count - 1).into_segmented(), 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_desc(unit)
        .x_label_formatter(&name)
        .y_label_formatter(&|value| short(*value))
        .light_line_style(WHITE)
        .draw()?;
    let mut places = 0..;
    chart.draw_series(rows.iter().zip(&mut places).map(|(row, at)| {
        let corners = [
            (SegmentValue::Exact(at), 0.0),
            (SegmentValue::Exact(at + 1), row.median),
        ];
        let mut bar = Rectangle::new(corners, Palette99::pick(at as usize).filled());
        bar.set_margin(0, 0, 12, 12);
        bar
    }))?;
    root.present()?;
    Ok(())
}

/// A number with its thousands as a letter.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e3 => format!("{:.0}k", v / 1e3),
        v if v >= 10.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}
