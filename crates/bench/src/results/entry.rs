//! Results as they are kept between measuring and showing: one JSON object on each line.

use crate::machine::Origin;
use crate::report::{self, Row};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

/// One row, and the part of the report that it belongs to.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Entry {
    /// The part of the report; the workload, for rows that `--json` printed.
    #[serde(default)]
    pub(super) part: String,
    /// The machine, the build and the form that measured.
    #[serde(flatten)]
    pub(super) origin: Origin,
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
    pub(super) entries: Vec<Entry>,
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
            let mut entry: Entry = serde_json::from_str(line)
                .map_err(|e| format!("{}, line {number}: {e}", path.display()))?;
            if entry.part.is_empty() {
                entry.part.clone_from(&entry.workload);
            }
            results.entries.push(entry);
        }
        Ok(results)
    }

    /// The machine and the build that all rows are of.
    ///
    /// # Errors
    /// Rows of several machines, builds or forms, of a build that no commit has, or none, with what
    /// to do.
    pub(super) fn origin(&self) -> Result<&Origin, String> {
        const AGAIN: &str = "measure all parts again with `extant-bench report`";
        let distinct = |of: fn(&Origin) -> &str| {
            let all = self.entries.iter().map(|entry| of(&entry.origin));
            all.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let machines = distinct(|origin| &origin.machine);
        let builds = distinct(|origin| &origin.build);
        let Some(first) = self.entries.first().map(|entry| &entry.origin) else {
            return Err("there are no results: measure with `extant-bench report`".to_owned());
        };
        let is_mixed = self.entries.iter().any(|e| e.origin.quick != first.quick);
        if machines.len() > 1 {
            let (count, names) = (machines.len(), machines.join(" / "));
            return Err(format!(
                "the results are of {count} machines ({names}), and a report is of one: {AGAIN} on one of them"
            ));
        }
        if builds.len() > 1 {
            let (count, names) = (builds.len(), builds.join(", "));
            return Err(format!(
                "the results are of {count} builds ({names}), and a report is of one: {AGAIN}"
            ));
        }
        if is_mixed {
            return Err(format!(
                "the results are of both forms, the quick one and the full one: {AGAIN}, with --quick or without"
            ));
        }
        if !first.is_clean() {
            return Err(format!(
                "the results are of a build that no commit has ({}): commit the changes, then {AGAIN}",
                first.build
            ));
        }
        Ok(first)
    }
}

/// Puts the rows of a part into a file of results, in the place of those it has.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn keep(path: &Path, part: &str, origin: &Origin, rows: &[Row]) -> Result<(), String> {
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
    let stays = |line: &&str| {
        let of = serde_json::from_str::<Part>(line).map(|line| line.part);
        of.ok().is_none_or(|of| of != part)
    };
    let rows = rows.iter().map(|row| report::json(part, origin, row));
    let before = before.lines().filter(stays).map(str::to_owned);
    let lines: Vec<String> = before.chain(rows).collect();
    let mut file = fs::File::create(path).map_err(failed)?;
    writeln!(file, "{}", lines.join("\n")).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(machine: &str, build: &str) -> Origin {
        Origin {
            machine: machine.to_owned(),
            build: build.to_owned(),
            quick: false,
        }
    }

    /// Results of one row of each origin.
    fn of(origins: &[Origin]) -> Results {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        for (number, origin) in origins.iter().enumerate() {
            let rows = [report::tests::row(&[3.0])];
            keep(&path, &number.to_string(), origin, &rows).expect("kept");
        }
        Results::read(&path).expect("read")
    }

    #[test]
    fn results_of_one_clean_build_on_one_machine_make_a_report() {
        let results = of(&[origin("one", "abc"), origin("one", "abc")]);
        assert_eq!(results.origin(), Ok(&origin("one", "abc")));
    }

    #[test]
    fn results_of_several_machines_or_builds_or_forms_are_refused_with_what_to_do() {
        let quick = Origin {
            quick: true,
            ..origin("one", "abc")
        };
        let sound = origin("one", "abc");
        for (other, what) in [
            (origin("two", "abc"), "2 machines (one / two)"),
            (origin("one", "def"), "2 builds (abc, def)"),
            (quick, "both forms"),
        ] {
            let refused = of(&[sound.clone(), other]).origin().expect_err("refused");
            assert!(refused.contains(what), "{refused}");
            assert!(refused.contains("measure all parts again"), "{refused}");
        }
    }

    #[test]
    fn results_of_a_build_that_no_commit_has_are_refused() {
        for build in ["abc-dirty", ""] {
            let refused = of(&[origin("one", build)]).origin().expect_err("refused");
            assert!(refused.contains("commit the changes"), "{refused}");
        }
        let nothing = Results::default().origin().expect_err("nothing");
        assert!(nothing.contains("extant-bench report"), "{nothing}");
    }

    #[test]
    fn rows_that_were_printed_are_of_their_workload() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.jsonl");
        let row = report::tests::row(&[3.0]);
        fs::write(&path, report::json("", &origin("one", "abc"), &row)).expect("written");
        let results = Results::read(&path).expect("read");
        assert_eq!(results.entries[0].part, "build");
    }

    #[test]
    fn a_part_measured_again_takes_the_place_of_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let keep = |part, value| {
            let rows = [report::tests::row(&[value])];
            keep(&path, part, &origin("one", "abc"), &rows).expect("kept");
        };
        keep("build", 3.0);
        keep("fsync", 5.0);
        keep("build", 4.0);
        let results = Results::read(&path).expect("read");
        let of: Vec<_> = results
            .entries
            .iter()
            .map(|e| (e.part.as_str(), e.median))
            .collect();
        assert_eq!(of, [("fsync", 5.0), ("build", 4.0)]);
    }
}
