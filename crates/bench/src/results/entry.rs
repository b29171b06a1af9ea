//! Results as they are kept between measuring and showing: one JSON object on each line.

use crate::report::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

/// What a machine was that measured.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct Machine {
    /// Processors, memory, kernel and peers, as a sentence without its end.
    pub(super) machine: String,
}

/// One row, and the part of the report that it belongs to.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Entry {
    /// The part of the report; the workload, for rows that `--json` printed.
    #[serde(default)]
    pub(super) part: String,
    /// What was measured: the commit, if that could be told.
    #[serde(default)]
    pub(super) build: String,
    pub(super) workload: String,
    pub(super) side: String,
    pub(super) variant: String,
    pub(super) workers: u32,
    pub(super) unit: String,
    pub(super) better: String,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) runs: Vec<f64>,
    pub(super) peak_rss: Option<u64>,
    #[serde(default)]
    pub(super) figures: BTreeMap<String, f64>,
    pub(super) options: String,
}

impl Entry {
    /// The size that the variant names, as `1e6` or `random-1e6`.
    pub(super) fn size(&self) -> Option<f64> {
        self.sized().1.parse().ok()
    }

    /// What the variant is called at any size, and the size.
    pub(super) fn sized(&self) -> (&str, &str) {
        self.variant.rsplit_once('-').unwrap_or(("", &self.variant))
    }

    /// How many times better this one is than `other`.
    pub(super) fn times(&self, other: &Self) -> f64 {
        match self.better.as_str() {
            "lower" => other.median / self.median,
            _ => self.median / other.median,
        }
    }
}

/// All that was measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// One sentence for each machine or version that took part.
    pub(super) machines: Vec<String>,
    pub(super) entries: Vec<Entry>,
}

/// A line of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Entry(Box<Entry>),
    Machine(Machine),
}

impl Results {
    /// Reads a file of results.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is neither a row nor a machine, by its number.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut results = Self::default();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
            match serde_json::from_str(line) {
                Ok(Line::Entry(mut entry)) => {
                    if entry.part.is_empty() {
                        entry.part.clone_from(&entry.workload);
                    }
                    results.entries.push(*entry);
                }
                Ok(Line::Machine(Machine { machine })) => {
                    if !results.machines.contains(&machine) {
                        results.machines.push(machine);
                    }
                }
                Err(e) => return Err(format!("{}, line {number}: {e}", path.display())),
            }
        }
        Ok(results)
    }
}

/// Puts the rows of a part into a file of results, in the place of those it has.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn keep(
    path: &Path,
    part: &str,
    (machine, build): (&Machine, &str),
    rows: &[Row],
) -> Result<(), String> {
    #[derive(Serialize)]
    struct Kept<'a> {
        part: &'a str,
        build: &'a str,
        #[serde(flatten)]
        row: &'a Row,
    }
    #[derive(Deserialize)]
    struct Part {
        part: String,
    }
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(failed(e)),
    };
    let machine = json(machine);
    let stays = |line: &&str| {
        let of = serde_json::from_str::<Part>(line).map(|line| line.part);
        *line != machine && of.ok().is_none_or(|of| of != part)
    };
    let rows = rows.iter().map(|row| json(&Kept { part, build, row }));
    let lines: Vec<String> = std::iter::once(machine.clone())
        .chain(before.lines().filter(stays).map(str::to_owned))
        .chain(rows)
        .collect();
    let mut file = fs::File::create(path).map_err(failed)?;
    writeln!(file, "{}", lines.join("\n")).map_err(failed)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values serialise")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn rows_that_were_printed_are_of_their_workload() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.jsonl");
        fs::write(&path, json(&report::tests::row(&[3.0]))).expect("written");
        let results = Results::read(&path).expect("read");
        assert_eq!(results.entries[0].part, "build");
    }

    #[test]
    fn a_part_measured_again_takes_the_place_of_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let machine = Machine {
            machine: "one".to_owned(),
        };
        let keep = |part, value| {
            let rows = [report::tests::row(&[value])];
            keep(&path, part, (&machine, "abc"), &rows).expect("kept");
        };
        keep("build", 3.0);
        keep("fsync", 5.0);
        keep("build", 4.0);
        let results = Results::read(&path).expect("read");
        assert_eq!(results.machines, ["one"]);
        let of: Vec<_> = results
            .entries
            .iter()
            .map(|e| (e.part.as_str(), e.median))
            .collect();
        assert_eq!(of, [("fsync", 5.0), ("build", 4.0)]);
    }
}
