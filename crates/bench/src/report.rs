//! Medians, ratios, the table and the JSON lines.

use serde::Serialize;

/// All repetitions of one side, worker count and variant.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) side: &'static str,
    pub(crate) variant: String,
    pub(crate) workers: usize,
    pub(crate) unit: &'static str,
    pub(crate) better: &'static str,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: Vec<f64>,
    /// Peak resident memory of the worst repetition, in bytes, where it could be read.
    pub(crate) peak_rss: Option<u64>,
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

/// One JSON object per line.
pub(crate) fn print_json(rows: &[Row]) {
    for row in rows {
        println!(
            "{}",
            serde_json::to_string(row).expect("a row of plain values serialises")
        );
    }
}

/// A table with the ratio of each peer to the engine.
pub(crate) fn print_table(rows: &[Row]) {
    println!(
        "{:<10} {:<10} {:<10} {:>7} {:>12} {:>12} {:>12} {:>9} {:>9}",
        "workload", "side", "variant", "workers", "median", "min", "max", "RSS MiB", "x engine"
    );
    for row in rows {
        let engine = rows
            .iter()
            .find(|r| r.side == "engine" && r.variant == row.variant)
            .map_or(f64::NAN, |r| r.median);
        let rss = row
            .peak_rss
            .map_or("-".to_owned(), |b| format!("{:.0}", b as f64 / 1048576.0));
        println!(
            "{:<10} {:<10} {:<10} {:>7} {:>10.3} {} {:>10.3} {} {:>10.3} {} {:>9} {:>9.2}",
            row.workload,
            row.side,
            row.variant,
            row.workers,
            row.median,
            row.unit,
            row.min,
            row.unit,
            row.max,
            row.unit,
            rss,
            row.median / engine
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(runs: &[f64]) -> Row {
        let mut row = Row {
            workload: "build",
            side: "engine",
            variant: "default".into(),
            workers: 1,
            unit: "s",
            better: "lower",
            median: 0.0,
            min: 0.0,
            max: 0.0,
            runs: runs.to_vec(),
            peak_rss: None,
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
}
