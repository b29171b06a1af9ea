//! Medians, ratios, the table and the JSON lines.

use crate::machine::Origin;
use crate::peer::Figures;
use serde::Serialize;

/// All repetitions of one side, worker count and variant.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) side: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) workers: usize,
    pub(crate) unit: &'static str,
    pub(crate) better: &'static str,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: Vec<f64>,
    /// Peak resident memory of the worst repetition, in bytes, where it could be read.
    pub(crate) peak_rss: Option<u64>,
    /// What explains the last repetition, by name.
    #[serde(skip_serializing_if = "Figures::is_empty")]
    pub(crate) figures: Figures,
    pub(crate) options: String,
}

impl Row {
    /// Fills median, minimum and maximum from `runs`.
    pub(crate) fn summarise(&mut self) {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        self.min = sorted.first().copied().unwrap_or(0.0);
        self.max = sorted.last().copied().unwrap_or(0.0);
        let mid = sorted.len() / 2;
        self.median = match sorted.len() {
            0 => 0.0,
            n if n % 2 == 1 => sorted[mid],
            _ => f64::midpoint(sorted[mid - 1], sorted[mid]),
        };
    }
}

/// A row of a part of the report, and where it comes from.
#[derive(Serialize)]
struct Kept<'a> {
    part: &'a str,
    #[serde(flatten)]
    origin: &'a Origin,
    #[serde(flatten)]
    row: &'a Row,
}

/// A row as one JSON object.
pub(crate) fn json(part: &str, origin: &Origin, row: &Row) -> String {
    serde_json::to_string(&Kept { part, origin, row }).expect("a row of plain values serialises")
}

/// Prints one JSON object per line.
pub(crate) fn print_json(rows: &[&Row]) {
    let origin = Origin::here();
    for row in rows {
        println!("{}", json(row.workload, &origin, row));
    }
}

/// A table with how many times better the engine is than each row.
pub(crate) fn print_table(rows: &[&Row]) {
    println!(
        "{:<10} {:<20} {:<12} {:>7} {:>12} {:>12} {:>12} {:<5} {:>7} {:>9}",
        "workload",
        "variant",
        "side",
        "workers",
        "median",
        "min",
        "max",
        "unit",
        "RSS MiB",
        "engine x"
    );
    let mut notes: Vec<&str> = Vec::new();
    for row in rows {
        let known = notes.iter().position(|n| *n == row.options);
        let note = known.unwrap_or_else(|| {
            notes.push(&row.options);
            notes.len() - 1
        });
        let rss = row
            .peak_rss
            .map_or("-".to_owned(), |b| format!("{:.0}", b as f64 / 1048576.0));
        let digits = if row.unit == "ops/s" { 0 } else { 3 };
        println!(
            "{:<10} {:<20} {:<12} {:>7} {:>12.digits$} {:>12.digits$} {:>12.digits$} {:<5} {:>7} {:>9.2}",
            row.workload,
            row.variant,
            format!("{} [{}]", row.side, note + 1),
            row.workers,
            row.median,
            row.min,
            row.max,
            row.unit,
            rss,
            advantage(rows, row),
        );
        let figures: Vec<String> = row
            .figures
            .iter()
            .map(|(name, value)| format!("{name} {value:.2}"))
            .collect();
        if !figures.is_empty() {
            println!("{:<10} {}", "", figures.join(", "));
        }
    }
    for (i, note) in notes.iter().enumerate() {
        println!("[{}] {note}", i + 1);
    }
}

/// How many times better the engine is than `row`: with as many workers, or else with any.
fn advantage(rows: &[&Row], row: &Row) -> f64 {
    let engine = |same_workers: bool| {
        rows.iter().find(|r| {
            r.side == "engine"
                && r.variant == row.variant
                && (!same_workers || r.workers == row.workers)
        })
    };
    match engine(true).or_else(|| engine(false)) {
        Some(engine) if row.better == "higher" => engine.median / row.median,
        Some(engine) => row.median / engine.median,
        None => f64::NAN,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(runs: &[f64]) -> Row {
        let mut row = Row {
            workload: "build",
            side: "engine",
            variant: "default",
            workers: 1,
            unit: "s",
            better: "lower",
            median: 0.0,
            min: 0.0,
            max: 0.0,
            runs: runs.to_vec(),
            peak_rss: None,
            figures: Figures::new(),
            options: String::new(),
        };
        row.summarise();
        row
    }

    #[test]
    fn the_median_does_not_depend_on_the_order_of_the_runs() {
        assert_eq!(row(&[3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(row(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(row(&[4.0, 1.0, 2.0, 3.0]).max, 4.0);
    }

    #[test]
    fn the_ratio_says_how_much_better_the_engine_is_whichever_way_the_unit_points() {
        let mut peer = row(&[6.0]);
        peer.side = "kernel";
        let engine = row(&[2.0]);
        assert_eq!(advantage(&[&engine, &peer], &peer), 3.0);
        let (mut engine, mut peer) = (row(&[8.0]), peer);
        engine.better = "higher";
        peer.better = "higher";
        peer.summarise();
        assert_eq!(advantage(&[&engine, &peer], &peer), 8.0 / 6.0);
    }
}
