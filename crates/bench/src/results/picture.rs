//! Pictures of results: curves over the number of workers where several were measured, or over the
//! size where variants are sizes, and in one more how many times the rate of the kernel the engine
//! reaches in each case.

use super::entry::{Entry, Results};
use plotters::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Done, or why not.
type Drawn = Result<(), Box<dyn Error>>;

const SIZE: (u32, u32) = (720, 400);
const FONT: &str = "sans-serif";

/// Draws the pictures of `results` into a folder, and removes others that are there. Returns where
/// they are.
///
/// # Errors
/// A picture that cannot be written or removed, by its path.
pub(super) fn draw(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
    let old = std::fs::read_dir(folder).map_err(|e| failed(folder, &e))?;
    for path in old.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|end| end == "svg") {
            std::fs::remove_file(&path).map_err(|e| failed(&path, &e))?;
        }
    }
    let mut drawn = Vec::new();
    let mut picture = |name: &str, how: &dyn Fn(&Path) -> Drawn| {
        let path = folder.join(format!("{name}.svg"));
        how(&path).map_err(|e| failed(&path, &e))?;
        drawn.push(path);
        Ok::<_, String>(())
    };
    for (name, rows) in together(results) {
        let sizes = rows.iter().all(|row| row.size().is_some());
        let (over, place): (_, fn(&Entry) -> f64) = if sizes {
            ("size", |row| row.size().unwrap_or(1.0))
        } else {
            ("workers", |row| row.workers.into())
        };
        picture(&name, &|path| curves(path, &name, &rows, over, &place))?;
    }
    let all: Vec<&Entry> = results.entries.iter().collect();
    if all.iter().any(|row| ratio(row, &all).is_some()) {
        picture("ratios", &|path| ratios(path, &all))?;
    }
    Ok(drawn)
}

/// Rows that make a picture, by its name: those of one part and variant, or of all variants that
/// are sizes. Two bars, or lines of two points, say no more than the table does and make none.
fn together(results: &Results) -> BTreeMap<String, Vec<&Entry>> {
    let mut pictures: BTreeMap<String, Vec<&Entry>> = BTreeMap::new();
    for entry in &results.entries {
        let of = match (entry.size(), entry.variant.as_str()) {
            (Some(_), _) => match entry.sized().0 {
                "" => "-growth".to_owned(),
                of => format!("-{of}-growth"),
            },
            (None, "default") => String::new(),
            (None, variant) => format!("-{variant}"),
        };
        let name = format!("{}{of}", entry.part.replace(' ', "-"));
        pictures.entry(name).or_default().push(entry);
    }
    pictures.retain(|_, rows| {
        let workers: BTreeSet<u32> = rows.iter().map(|row| row.workers).collect();
        let sizes: BTreeSet<&str> = rows
            .iter()
            .filter(|row| row.size().is_some())
            .map(|row| row.variant.as_str())
            .collect();
        workers.len() > 2 || sizes.len() > 2
    });
    pictures
}

/// Rates or times over what `place` says, which is drawn logarithmically.
fn curves(
    path: &Path,
    title: &str,
    rows: &[&Entry],
    over: &str,
    place: &dyn Fn(&Entry) -> f64,
) -> Drawn {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let most = rows.iter().map(|row| row.max).fold(0.0, f64::max);
    let first = rows
        .iter()
        .map(|row| place(row))
        .fold(f64::INFINITY, f64::min);
    let last = rows.iter().map(|row| place(row)).fold(1.0, f64::max);
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    let base = if last > 1000.0 { 10.0 } else { 2.0 };
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d((first..last).log_scale().base(base), 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .x_desc(over)
        .y_desc(unit)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .light_line_style(WHITE)
        .draw()?;
    let sides: BTreeSet<&str> = rows.iter().map(|row| row.side.as_str()).collect();
    for (index, side) in sides.into_iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let mut points: Vec<_> = rows.iter().filter(|row| row.side == side).collect();
        points.sort_by(|a, b| place(a).total_cmp(&place(b)));
        chart
            .draw_series(LineSeries::new(
                points.iter().map(|row| (place(row), row.median)),
                colour.stroke_width(2),
            ))?
            .label(side)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|row| {
            let ends = [(place(row), row.min), (place(row), row.max)];
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

/// What one case is called in the picture of ratios, and how much better the engine is there.
fn ratio(row: &Entry, rows: &[&Entry]) -> Option<(String, f64)> {
    let same = |other: &&&Entry| {
        other.side == "kernel"
            && (&other.part, &other.variant) == (&row.part, &row.variant)
            && other.workers == row.workers
    };
    let kernel = rows.iter().find(same)?;
    let times = match row.better.as_str() {
        "lower" => kernel.median / row.median,
        _ => row.median / kernel.median,
    };
    let variant = match row.variant.as_str() {
        "default" => String::new(),
        variant => format!(" {variant}"),
    };
    Some((format!("{}{variant}, {}", row.part, row.workers), times))
}

/// One lying bar for each case that both the engine and the kernel have done.
fn ratios(path: &Path, rows: &[&Entry]) -> Drawn {
    let engine = rows.iter().filter(|row| row.side == "engine");
    let mut cases: Vec<(String, f64)> = engine.filter_map(|row| ratio(row, rows)).collect();
    // The axis goes upward, a reader downward.
    cases.reverse();
    let count = i32::try_from(cases.len())?;
    if count == 0 {
        return Err("no case was done by both the engine and the kernel".into());
    }
    let height = 90 + 18 * cases.len() as u32;
    let root = SVGBackend::new(path, (SIZE.0, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = cases.iter().map(|case| case.1).fold(2.0, f64::max);
    let name = |at: &SegmentValue<i32>| match at {
        SegmentValue::CenterOf(at) => usize::try_from(*at)
            .ok()
            .and_then(|at| cases.get(at))
            .map_or(String::new(), |case| case.0.clone()),
        _ => String::new(),
    };
    let mut chart = ChartBuilder::on(&root)
        .caption("Times as fast as the kernel", (FONT, 20))
        .margin(12)
        .x_label_area_size(24)
        .y_label_area_size(200)
        .build_cartesian_2d(
            (0.5..most * 1.3).log_scale().base(2.0),
            (0..count - 1).into_segmented(),
        )?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(cases.len())
        .y_label_formatter(&name)
        .x_label_formatter(&|value| short(*value))
        .light_line_style(WHITE)
        .draw()?;
    chart.draw_series(cases.iter().zip(0..).map(|((_, times), at)| {
        let corners = [
            (1.0, SegmentValue::Exact(at)),
            (*times, SegmentValue::Exact(at + 1)),
        ];
        let colour = if *times < 1.0 { &RED } else { &BLUE };
        let mut bar = Rectangle::new(corners, colour.mix(0.5).filled());
        bar.set_margin(2, 2, 0, 0);
        bar
    }))?;
    chart.draw_series(cases.iter().zip(0..).map(|((_, times), at)| {
        Text::new(
            format!(" {times:.1}"),
            (times.max(1.0), SegmentValue::CenterOf(at)),
            (FONT, 11),
        )
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
