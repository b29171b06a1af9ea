//! `cargo xtask everywhere`: what is too heavy for the test run, or needs what few machines have.
//!
//! | file | owns |
//! |---|---|
//! | `crates_io` | crates as a registry would have them: packages, the oldest Rust, the API, licences |
//! | `python` | the Python package: a wheel, installed and tried |
//! | `targets` | other processors and systems |
//! | `go` | the module for Go |
//! | `wasm` | the package for JavaScript, and the page |
//! | `dist` | packages, by those that will take them |
//!
//! A step is a row of [`STEPS`]. Its result goes to its row of `docs/dev/everywhere.md`, so that a
//! run of some steps leaves the others as they were.

mod crates_io;
mod dist;
mod go;
mod python;
mod targets;
mod wasm;

use crate::programs::{Done, succeed};
use crate::record;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

pub(crate) const HELP: &str = "\
What is too heavy for the test run, or needs what few machines have: packages, other compilers, other systems,
other languages. Each step leaves its row in docs/dev/everywhere.md, with the versions of what it used.

Usage: cargo xtask everywhere [--list] [--no-record] [STEP]...

Options:
  --list        Print the steps and do none
  --no-record   Do not write the page

Without a STEP all are run. A step that needs what is not there is skipped and says so, in its row too, unless that
tells of a day when it passed.";

/// The page.
const PAGE: &str = "docs/dev/everywhere.md";

/// What a step is given.
pub(crate) struct Site<'a> {
    /// The workspace.
    pub(crate) root: &'a Path,
}

impl Site<'_> {
    /// `cargo` in the workspace, as the compiler that runs the chore.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(self.root);
        cargo
    }

    /// The first line of what a program says its version is.
    pub(crate) fn version(&self, program: &mut Command) -> Done<String> {
        let text = succeed(program)?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    }
}

/// How a step ended, other than in an error.
pub(crate) enum Outcome {
    /// What was seen, and the versions of what was used.
    Passed {
        /// A sentence for the table.
        seen: String,
        /// Programs with their versions.
        versions: String,
    },
    /// What is not there.
    Skipped(String),
}

/// A row of the table of steps.
pub(crate) struct Step {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it shows, in a few words.
    pub(crate) shows: &'static str,
    /// Does it.
    pub(crate) run: fn(&Site<'_>) -> Done<Outcome>,
}

/// All steps, in the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "publish",
        shows: "every published crate packages, and builds from its package alone",
        run: crates_io::publish,
    },
    Step {
        name: "msrv",
        shows: "the libraries and the command build with the oldest Rust that they name",
        run: crates_io::msrv,
    },
    Step {
        name: "semver",
        shows: "the API is compatible with the last release, as far as versions promise",
        run: crates_io::semver,
    },
    Step {
        name: "deny",
        shows: "licences, sources and advisories of all dependencies",
        run: crates_io::deny,
    },
    Step {
        name: "targets",
        shows: "the libraries build for other processors and systems",
        run: targets::targets,
    },
    Step {
        name: "processors",
        shows: "the tests of the on-disk format pass on other processors, of either byte order",
        run: targets::processors,
    },
    Step {
        name: "python",
        shows: "the wheel of the Python package installs, passes its tests, and is typed",
        run: python::wheel,
    },
    Step {
        name: "go",
        shows: "the module for Go, over the static C library",
        run: go::go,
    },
    Step {
        name: "wasm",
        shows: "the package for JavaScript, in Node and as a page in Chromium",
        run: wasm::wasm,
    },
    Step {
        name: "dist",
        shows: "archives, deb, rpm and container image are the same each time, and others take them",
        run: dist::packages,
    },
];

/// The chore.
pub(crate) fn everywhere(root: &Path, args: &[String]) -> ExitCode {
    let (mut list, mut record, mut wanted) = (false, true, Vec::new());
    for arg in args {
        match arg.as_str() {
            "--list" => list = true,
            "--no-record" => record = false,
            name => match STEPS.iter().find(|step| step.name == name) {
                Some(step) => wanted.push(step),
                None => {
                    eprintln!("no step is called {name:?}\n\n{HELP}");
                    return ExitCode::from(2);
                }
            },
        }
    }
    if list {
        for step in STEPS {
            println!("{:12} {}", step.name, step.shows);
        }
        return ExitCode::SUCCESS;
    }
    if wanted.is_empty() {
        wanted = STEPS.iter().collect();
    }
    let site = Site { root };
    let failed = wanted
        .into_iter()
        .filter(|step| !take(&site, step, record))
        .count();
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        println!("{failed} steps failed");
        ExitCode::FAILURE
    }
}

/// Does a step, says how it ended, and keeps that; whether it did not fail.
fn take(site: &Site<'_>, step: &Step, record: bool) -> bool {
    println!("== {}: {}", step.name, step.shows);
    let begun = Instant::now();
    let ended = (step.run)(site);
    let seconds = begun.elapsed().as_secs_f64();
    let kept = match &ended {
        Ok(Outcome::Passed { seen, versions }) => {
            println!("{} ({seconds:.1} s): {seen} [{versions}]", step.name);
            if record {
                keep(site.root, step.name, seen, versions, seconds)
            } else {
                Ok(())
            }
        }
        Ok(Outcome::Skipped(why)) => {
            println!("SKIPPED: {}: {why}", step.name);
            if record {
                keep_skipped(site.root, step.name, why)
            } else {
                Ok(())
            }
        }
        Err(why) => {
            println!("{} ({seconds:.1} s): FAILED: {why}", step.name);
            return false;
        }
    };
    match kept {
        Ok(()) => true,
        Err(why) => {
            println!("{}: {why}", step.name);
            false
        }
    }
}

/// Puts what a step saw into its row of the page.
fn keep(root: &Path, name: &str, seen: &str, versions: &str, seconds: f64) -> Done<()> {
    let seconds = format!("{seconds:.0}");
    change_row(root, name, |_| Some([seen, versions, &seconds]))
}

/// Puts why a step was not done into its row of the page, if it was never done.
fn keep_skipped(root: &Path, name: &str, why: &str) -> Done<()> {
    let seen = format!("{NOT_RUN}: {why}");
    change_row(root, name, |row| {
        has_not_run(row).then_some([&seen, "", ""])
    })
}

/// Begins what is seen of a step that was not done.
const NOT_RUN: &str = "not run";

/// Whether a row is that of a step that was never done.
fn has_not_run(row: &str) -> bool {
    let seen = row.split('|').nth(2).unwrap_or_default();
    seen.trim().starts_with(NOT_RUN)
}

/// Writes the row of a step anew, if there is something to say: what was seen, versions, seconds.
fn change_row<'a>(
    root: &Path,
    name: &str,
    say: impl FnOnce(&str) -> Option<[&'a str; 3]>,
) -> Done<()> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|e| format!("{PAGE}: {e}"))?;
    let old = row(&page, name).ok_or(format!("{PAGE} has no row for {name}"))?;
    let Some(cells) = say(old) else {
        return Ok(());
    };
    let date = succeed(Command::new("date").arg("+%Y-%m-%d"))?;
    let (date, build) = (date.trim(), record::build(root)?);
    let [seen, versions, seconds] = cells.map(cell);
    let row = format!("| `{name}` | {seen} | {date}, {build} | {versions} | {seconds} |");
    fs::write(&path, with_row(&page, name, &row)).map_err(|e| format!("{PAGE}: {e}"))
}

/// Text that stands in one cell of a table.
fn cell(text: &str) -> String {
    let text: Vec<&str> = text.split_whitespace().collect();
    text.join(" ").replace('|', "\\|")
}

/// The row of a step.
fn row<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let start = row_start(name);
    page.lines().find(|line| line.starts_with(&start))
}

/// The page with another row for a step.
fn with_row(page: &str, name: &str, row: &str) -> String {
    let start = row_start(name);
    let mut new = String::with_capacity(page.len() + row.len());
    for line in page.lines() {
        let line = if line.starts_with(&start) { row } else { line };
        let _ = writeln!(new, "{line}");
    }
    new
}

fn row_start(name: &str) -> String {
    format!("| `{name}` |")
}

#[cfg(test)]
mod tests {
    use super::{PAGE, STEPS, cell, has_not_run, row, row_start, with_row};
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn each_step_has_a_name_of_its_own_and_one_row_of_the_page() {
        let names: BTreeSet<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        for name in names {
            let start = row_start(name);
            let rows = page.lines().filter(|line| line.starts_with(&start));
            assert_eq!(rows.count(), 1, "{PAGE} needs one row for {name}");
        }
    }

    #[test]
    fn a_row_takes_the_place_of_its_own_and_of_no_other() {
        let page = "| step |\n| `a` | old |\n| `ab` | old |\n";
        let new = with_row(page, "a", "| `a` | new |");
        assert_eq!(new, "| step |\n| `a` | new |\n| `ab` | old |\n");
        assert_eq!(row(&new, "a"), Some("| `a` | new |"));
        assert_eq!(row(page, "b"), None);
    }

    #[test]
    fn a_row_of_a_step_that_passed_is_told_from_one_that_did_not_run() {
        assert!(has_not_run("| `a` | not run yet | | | |"));
        assert!(has_not_run("| `a` | not run: b is missing | today | | |"));
        assert!(!has_not_run(
            "| `a` | 3 tests pass, c was not run | today | | 1 |"
        ));
    }

    #[test]
    fn a_cell_is_one_line_and_does_not_end_the_column() {
        assert_eq!(cell("a\n b | c"), "a b \\| c");
    }
}
