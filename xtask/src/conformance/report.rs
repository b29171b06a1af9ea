//! `docs/dev/conformance.md`: what is between its marks is written here, from what was run.

use super::kills::Killed;
use super::place::Whose;
use super::posix::{Came, Compared, Results};
use super::suites::Outcome;
use super::{Setting, differences, succeed, tools};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

const DOCUMENT: &str = "docs/dev/conformance.md";

/// What was run, and is not yet in the document.
pub(super) struct Report {
    parts: Vec<(&'static str, String)>,
    suites: Vec<(String, String)>,
    /// What is tested, as Git names it.
    build: String,
    /// Whether requests came through io_uring.
    rings: bool,
    is_good: bool,
}

impl Report {
    pub(super) fn new(setting: &Setting) -> Result<Report, String> {
        Ok(Report {
            parts: vec![("machine", machine(setting))],
            suites: Vec::new(),
            build: build(setting),
            rings: setting.options.rings,
            is_good: true,
        })
    }

    pub(super) fn posix(&mut self, compared: Compared) {
        self.is_good &= compared.is_good();
        let part = match (compared.whose, self.rings) {
            (Whose::Root, true) => "pjdfstest-rings",
            // Of the others the last run says by which way its requests came.
            (Whose::Root, false) | (Whose::User | Whose::Container, _) => compared.name,
        };
        let mut text = posix(&compared, &self.build);
        if compared.whose != Whose::Root {
            let way = if self.rings { "io_uring" } else { "/dev/fuse" };
            let _ = writeln!(text, "\nRequests came through `{way}`.");
        }
        self.parts.push((part, text));
    }

    pub(super) fn suite(&mut self, outcome: Outcome) {
        self.is_good &= outcome.verdict.is_ok();
        let name = if self.rings {
            format!("{}` by `io_uring", outcome.suite.name)
        } else {
            outcome.suite.name.to_owned()
        };
        let options = match outcome.suite.options {
            "" => String::new(),
            options => format!(" (`-o {options}`)"),
        };
        let result = match outcome.verdict {
            Ok(()) => "no error, `e2fsck -fn` clean",
            Err(_) => "FAILED",
        };
        let (did, secs) = (outcome.did, outcome.took.as_secs());
        let row = format!(
            "| `{name}` | {did}{options} | {result} | {secs} s | {} |",
            self.build
        );
        self.suites.push((name, row));
    }

    pub(super) fn kills(&mut self, killed: Killed) {
        self.is_good &= killed.failures.is_empty();
        let mut text = format!(
            "{} kills of build {} (seeds from {:#x} on), {} of them in the middle of these, in turn: {}; at the others the suite was done \
             and only the synced work beside it went on. After {} of them the next mount recovered, `e2fsck -fn` found nothing, \
             all of {} promises were kept (files, appended data, renames and removals that had been synced), and so were {} rows \
             that data bases had committed.\n",
            killed.kills,
            self.build,
            killed.seed,
            killed.running,
            killed.suites.join(", "),
            killed.kills - killed.failures.len() as u64,
            killed.promises,
            killed.rows
        );
        for failure in killed.failures {
            let first = failure.lines().next().unwrap_or_default();
            let _ = writeln!(text, "\nFAILED: {first}");
        }
        let part = if self.rings { "kills-rings" } else { "kills" };
        self.parts.push((part, text));
    }

    /// Writes what was run since the last time into the document, if asked to: a run that is
    /// stopped keeps what it has done.
    pub(super) fn record(&mut self, setting: &Setting) -> Result<(), String> {
        if !setting.options.record {
            return Ok(());
        }
        let path = setting.root.join(DOCUMENT);
        let told = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut document = std::fs::read_to_string(&path).map_err(told)?;
        if !self.suites.is_empty() {
            let rows = rows(part(&document, "suites")?, &self.suites);
            self.parts.push(("suites", rows));
            self.suites.clear();
        }
        for (name, text) in self.parts.drain(..) {
            let old = part(&document, name)?;
            document = document.replacen(&wrapped(name, old), &wrapped(name, &text), 1);
        }
        std::fs::write(&path, document).map_err(told)
    }

    /// Whether all went well so far.
    pub(super) fn is_good(&self) -> bool {
        self.is_good
    }
}

fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|mark| format!("<!-- {name}:{mark} -->"))
}

fn wrapped(name: &str, text: &str) -> String {
    let [begin, end] = marks(name);
    format!("{begin}\n{text}{end}")
}

/// What is between the marks of a name.
fn part<'a>(document: &'a str, name: &str) -> Result<&'a str, String> {
    let [begin, end] = marks(name);
    let behind = document.split_once(&format!("{begin}\n"));
    behind
        .and_then(|(_, rest)| Some(rest.split_once(&end)?.0))
        .ok_or_else(|| format!("{DOCUMENT} has no part {name}"))
}

/// The table of suites: rows that were run now take the place of older ones.
fn rows(old: &str, new: &[(String, String)]) -> String {
    let is_of = |line: &str, name: &str| line.starts_with(&format!("| `{name}` |"));
    let replaced = |line: &str| {
        let row = new.iter().find(|(name, _)| is_of(line, name));
        row.map_or_else(|| line.to_owned(), |(_, row)| row.clone())
    };
    let mut lines: Vec<String> = old.lines().map(replaced).collect();
    for (name, row) in new {
        if !lines.iter().any(|line| is_of(line, name)) {
            lines.push(row.clone());
        }
    }
    lines.join("\n") + "\n"
}

/// The commit of the workspace, where Git knows it, and whether anything but documents differs from
/// it.
fn build(setting: &Setting) -> String {
    let git = |args: &[&str]| succeed(Command::new("git").current_dir(&setting.root).args(args));
    let named = git(&["rev-parse", "--short=7", "HEAD"]);
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs", ":!*.md"]);
    match (named, changed) {
        (Ok(name), Ok(changed)) if changed.is_empty() => name.trim().to_owned(),
        (Ok(name), _) => format!("{}-dirty", name.trim()),
        _ => "unknown".to_owned(),
    }
}

fn machine(setting: &Setting) -> String {
    let kernel = succeed(Command::new("uname").args(["-sr"])).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let build = if setting.options.release {
        "a release build"
    } else {
        "a build with overflow checks and assertions"
    };
    let memory = match setting.options.work.as_ref() {
        Some(work) if work.starts_with(PathBuf::from("/dev/shm")) => "in memory (tmpfs)",
        _ => "on the machine's disk",
    };
    let versions: Vec<String> = tools::versions()
        .into_iter()
        .map(|(program, version)| format!("{program} {version}"))
        .collect();
    format!(
        "{}, {cpus} processors, the images {memory}; extant: {build}. {}.\n",
        kernel.trim(),
        versions.join(", ")
    )
}

fn posix(compared: &Compared, build: &str) -> String {
    let counted = |side: &Results| {
        [Came::Passed, Came::Failed, Came::Skipped]
            .map(|what| side.values().filter(|came| **came == what).count())
    };
    let mut text = "| side | passed | failed | skipped |\n|---|--:|--:|--:|\n".to_owned();
    for (name, side) in [
        ("kernel's ext4", &compared.kernel),
        ("extant", &compared.ours),
    ] {
        let [passed, failed, skipped] = counted(side);
        let _ = writeln!(text, "| {name} | {passed} | {failed} | {skipped} |");
    }
    let failed = |side: &Results, test: &String| side.get(test) == Some(&Came::Failed);
    let both: Vec<&String> = compared
        .kernel
        .keys()
        .filter(|test| failed(&compared.kernel, test) && failed(&compared.ours, test))
        .collect();
    if !both.is_empty() {
        let _ = writeln!(text, "\nFailed by both:\n");
    }
    for test in both {
        let _ = writeln!(text, "- `{test}`");
    }
    let checked = match compared.checked {
        Ok(()) => "`e2fsck -fn` finds nothing afterwards.",
        Err(_) => "FAILED: `e2fsck -fn` afterwards.",
    };
    let _ = writeln!(
        text,
        "\n{checked} Passed by the kernel's ext4 and not by extant ({build}): {}.",
        compared.worse.len()
    );
    if !compared.worse.is_empty() {
        let _ = writeln!(text, "\n| test | why |\n|---|---|");
    }
    for test in &compared.worse {
        let why = differences::of(compared.whose, test)
            .map_or("FAILED: not explained", |known| known.why);
        let _ = writeln!(text, "| `{test}` | {why} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_stands_between_its_marks() {
        let document = "a\n<!-- one:begin -->\nold\n<!-- one:end -->\nb\n";
        assert_eq!(part(document, "one").unwrap(), "old\n");
        assert!(part(document, "two").is_err());
        assert!(document.contains(&wrapped("one", "old\n")));
    }

    #[test]
    fn rows_that_were_not_run_again_stay() {
        let old = "| suite |\n|---|\n| `a` | 1 |\n| `b` | 1 |\n";
        let new = [
            ("b".to_owned(), "| `b` | 2 |".to_owned()),
            ("c".to_owned(), "| `c` | 2 |".to_owned()),
        ];
        let found = rows(old, &new);
        assert_eq!(
            found,
            "| suite |\n|---|\n| `a` | 1 |\n| `b` | 2 |\n| `c` | 2 |\n"
        );
    }
}
