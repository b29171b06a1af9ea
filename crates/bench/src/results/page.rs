//! Results as tables in Markdown.

use super::entry::{Entry, Results};
use super::plan::PARTS;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// What explains a rate and is worth a column, where rows have it.
const FIGURES: &[(&str, usize)] = &[
    ("extents per file", 1),
    ("free extents", 0),
    ("handles per commit", 1),
    ("flushes per operation", 2),
    ("orphans noted per operation", 2),
];

/// What the front page shows: what it is called there, the part, the variant, the workers.
const CHOSEN: &[(&str, &str, &str, u32)] = &[
    ("create files, two workers", "metadata", "create-own", 2),
    ("stat, two workers", "metadata", "stat", 2),
    ("unlink, two workers", "metadata", "unlink", 2),
    (
        "append 4 KiB and `fsync`, four workers",
        "fsync",
        "default",
        4,
    ),
    (
        "reserve 8 KiB with `fallocate`, two workers",
        "fallocate2",
        "default",
        2,
    ),
    (
        "write 1 GiB in random pieces of 1 KiB",
        "fill",
        "delalloc",
        1,
    ),
    (
        "truncate a file by a byte, two workers",
        "orphan",
        "file",
        2,
    ),
    (
        "visit all inodes, in memory, two workers",
        "bulkstat",
        "warm",
        2,
    ),
];

/// Puts `text` between the marks `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a file. A file that is not there
/// is made.
///
/// # Errors
/// A file that cannot be read or written, or that has no such marks.
pub(super) fn replace(path: &Path, name: &str, text: &str) -> Result<(), String> {
    let [begin, end] = ["begin", "end"].map(|which| format!("<!-- {name}:{which} -->"));
    let before = match fs::read_to_string(path) {
        Ok(before) => before,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => format!("{begin}\n{end}\n"),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    let marks = before.split_once(&begin).and_then(|(head, rest)| {
        let (_, tail) = rest.split_once(&end)?;
        Some((head, tail))
    });
    let Some((head, tail)) = marks else {
        return Err(format!("{} has no marks {begin} and {end}", path.display()));
    };
    fs::write(path, format!("{head}{begin}\n{text}{end}{tail}"))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// All parts as tables, with the pictures that show them.
pub(super) fn tables(results: &Results, pictures: &[PathBuf]) -> String {
    let mut text = String::new();
    for machine in &results.machines {
        let _ = writeln!(text, "Measured on: {machine}.");
    }
    let _ = writeln!(
        text,
        "\nMedians, with the slowest and the fastest run in brackets; *x* is how many times better the engine in process is.\n\
         Sides alternate. One command: `cargo run --release -p extant-bench -- report`."
    );
    for part in PARTS {
        let rows: Vec<&Entry> = results
            .entries
            .iter()
            .filter(|entry| entry.part == part.name)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n### {}\n\n{}\n", part.name, part.about);
        text.push_str(&table(&rows));
        text.push_str(&circumstances(&rows));
        let stem = part.name.replace(' ', "-");
        for path in pictures {
            let file = path.file_stem().and_then(|stem| stem.to_str());
            let own = |file: &&str| {
                file.strip_prefix(stem.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            // Two bars or lines of few points say no more than the table.
            let workers: BTreeSet<_> = rows.iter().map(|row| row.workers).collect();
            let drawn = workers.len() > 2 || rows.iter().any(|row| row.size().is_some());
            if let Some(file) = file.filter(own).filter(|_| drawn) {
                let _ = writeln!(text, "\n![{file}](pictures/{file}.svg)");
            }
        }
    }
    if pictures.iter().any(|path| path.ends_with("ratios.svg")) {
        text.push_str("\n### All cases\n\n![times as fast as the kernel](pictures/ratios.svg)\n");
    }
    text
}

/// How a side is called in a heading: forms of the kernel's are told apart.
fn side(row: &Entry) -> String {
    for (option, name) in [
        ("-O orphan_file", "orphan_file"),
        ("--direct-io", "direct loop"),
    ] {
        if row.side == "kernel" && row.options.contains(option) {
            return format!("{}, `{name}`", row.side);
        }
    }
    row.side.clone()
}

/// Peers that have no number of workers: their row stands beside all of the engine's.
const WITHOUT_WORKERS: &[&str] = &["mke2fs", "genext2fs", "debugfs"];

/// How much was done, and which build did it.
fn circumstances(rows: &[&Entry]) -> String {
    let mut told: Vec<(String, &str)> = Vec::new();
    let mut builds: Vec<&str> = Vec::new();
    for row in rows {
        let how = (side(row), row.options.as_str());
        if !told.contains(&how) {
            told.push(how);
        }
        if !row.build.is_empty() && !builds.contains(&row.build.as_str()) {
            builds.push(&row.build);
        }
    }
    let mut text = "\n".to_owned();
    for (side, options) in told {
        let _ = writeln!(text, "- {side}: {options}");
    }
    if !builds.is_empty() {
        let _ = writeln!(text, "- build: {}", builds.join(", "));
    }
    text
}

/// One table: a row for each variant and number of workers, columns for sides and what explains them.
fn table(rows: &[&Entry]) -> String {
    let mut sides: Vec<String> = Vec::new();
    let mut cases: Vec<(&str, u32)> = Vec::new();
    let leads = rows.iter().filter(|row| row.side == "engine");
    for row in rows {
        if !sides.contains(&side(row)) {
            sides.push(side(row));
        }
    }
    for row in leads {
        if !cases.contains(&(&row.variant, row.workers)) {
            cases.push((&row.variant, row.workers));
        }
    }
    let figures: Vec<&(&str, usize)> = FIGURES
        .iter()
        .filter(|(name, _)| rows.iter().any(|row| row.figures.contains_key(*name)))
        .collect();
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    let mut text = format!("| {unit} | workers |");
    for side in &sides {
        let ratio = if side == "engine" { "" } else { " x |" };
        let _ = write!(text, " {side} |{ratio}");
    }
    for (name, _) in &figures {
        let _ = write!(text, " {name} |");
    }
    let columns = 2 + 2 * sides.len() - usize::from(sides.iter().any(|s| s == "engine"));
    let _ = writeln!(text, "\n|{}", "---|".repeat(columns + figures.len()));
    for (variant, workers) in cases {
        let find = |name: &String| {
            let mut of = rows
                .iter()
                .filter(|row| row.variant == variant && side(row) == *name);
            let same = of.clone().find(|row| row.workers == workers);
            let has_no_workers = WITHOUT_WORKERS.contains(&name.as_str());
            same.or_else(|| of.next().filter(|_| has_no_workers))
        };
        let engine = find(&"engine".to_owned());
        let _ = write!(text, "| {variant} | {workers} |");
        for name in &sides {
            let Some(row) = find(name) else {
                text.push_str(if name == "engine" { " |" } else { " | |" });
                continue;
            };
            let _ = write!(text, " {} |", value(row));
            if let Some(engine) = engine.filter(|_| name != "engine") {
                let _ = write!(text, " {:.1} |", engine.times(row));
            }
        }
        for (figure, digits) in &figures {
            let of = |name| find(name)?.figures.get(*figure);
            let all = sides.iter().filter(|name| of(name).is_some());
            let told: Vec<_> = all
                .map(|name| format!("{:.digits$}", of(name).unwrap_or(&0.0)))
                .collect();
            let _ = write!(text, " {} |", told.join(", "));
        }
        text.push('\n');
    }
    text
}

/// A median with its range.
fn value(row: &Entry) -> String {
    let median = number(row.median, &row.unit);
    let memory = row
        .peak_rss
        .filter(|_| row.unit == "s" && row.variant == "default")
        .map_or(String::new(), |bytes| format!(", {} MiB", bytes >> 20));
    match row.runs.len() {
        0 | 1 => format!("{median}{memory}"),
        _ => {
            let [min, max] = [row.min, row.max].map(|value| number(value, &row.unit));
            format!("{median} ({min} to {max}){memory}")
        }
    }
}

/// A number as its unit wants it.
fn number(value: f64, unit: &str) -> String {
    match value {
        _ if unit == "s" => format!("{value:.2} s"),
        v if v >= 1e7 => format!("{:.1}M", v / 1e6),
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// The table of the front page.
pub(super) fn chosen(results: &Results) -> String {
    let mut text = "| | Extant | Linux |\n|---|---|---|\n".to_owned();
    for (label, part, variant, workers) in CHOSEN {
        let find = |side: &str| {
            results.entries.iter().find(|row| {
                row.part == *part
                    && row.variant == *variant
                    && row.workers == *workers
                    && row.side == side
            })
        };
        if let (Some(engine), Some(kernel)) = (find("engine"), find("kernel")) {
            let _ = writeln!(
                text,
                "| {label} | **{}** ({:.1}x) | {} |",
                number(engine.median, &engine.unit),
                engine.times(kernel),
                number(kernel.median, &kernel.unit)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(side: &str, workers: u32, median: f64) -> Entry {
        Entry {
            part: "metadata".to_owned(),
            build: String::new(),
            workload: "metadata".to_owned(),
            side: side.to_owned(),
            variant: "stat".to_owned(),
            workers,
            unit: "ops/s".to_owned(),
            better: "higher".to_owned(),
            median,
            min: median,
            max: median,
            runs: vec![median],
            peak_rss: None,
            figures: Default::default(),
            options: String::new(),
        }
    }

    #[test]
    fn a_table_has_a_row_for_each_number_of_workers_and_a_ratio_for_each_peer() {
        let rows = [
            entry("engine", 1, 50_000.0),
            entry("kernel", 1, 10_000.0),
            entry("engine", 2, 90_000.0),
            entry("kernel", 2, 30_000.0),
        ];
        let text = table(&rows.iter().collect::<Vec<_>>());
        assert_eq!(
            text,
            "| ops/s | workers | engine | kernel | x |\n|---|---|---|---|---|\n\
             | stat | 1 | 50k | 10k | 5.0 |\n| stat | 2 | 90k | 30k | 3.0 |\n"
        );
    }

    #[test]
    fn a_peer_that_was_not_run_leaves_its_cells_empty() {
        let rows = [
            entry("engine", 1, 50_000.0),
            entry("kernel", 1, 10_000.0),
            entry("engine", 2, 90_000.0),
        ];
        let mut rows: Vec<_> = rows.iter().collect();
        let other = Entry {
            variant: "unlink".to_owned(),
            ..entry("engine", 1, 70_000.0)
        };
        rows.push(&other);
        let text = table(&rows);
        assert!(text.ends_with("| unlink | 1 | 70k | | |\n"), "{text}");
        assert!(text.contains("| stat | 2 | 90k | | |\n"), "{text}");
        // One that has no workers stands beside all.
        let image = [
            entry("engine", 1, 50_000.0),
            entry("mke2fs", 1, 10_000.0),
            entry("engine", 2, 90_000.0),
        ];
        let text = table(&image.iter().collect::<Vec<_>>());
        assert!(text.contains("| stat | 2 | 90k | 10k | 9.0 |\n"), "{text}");
    }

    #[test]
    fn a_part_says_how_much_was_done_and_by_which_build() {
        let mut rows = [entry("engine", 1, 50_000.0), entry("kernel", 1, 10_000.0)];
        rows[0].options = "7 files; in process".to_owned();
        rows[1].options = "7 files; loop mount".to_owned();
        rows[0].build = "abc1234".to_owned();
        assert_eq!(
            circumstances(&rows.iter().collect::<Vec<_>>()),
            "\n- engine: 7 files; in process\n- kernel: 7 files; loop mount\n- build: abc1234\n"
        );
    }

    #[test]
    fn what_stands_between_the_marks_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page.md");
        fs::write(
            &path,
            "a\n<!-- report:begin -->\nold\n<!-- report:end -->\nz\n",
        )
        .expect("written");
        replace(&path, "report", "new\n").expect("replaced");
        let text = fs::read_to_string(&path).expect("read");
        assert_eq!(
            text,
            "a\n<!-- report:begin -->\nnew\n<!-- report:end -->\nz\n"
        );
        fs::write(&path, "no marks").expect("written");
        let refused = replace(&path, "report", "new\n").expect_err("no marks");
        assert!(refused.contains("report:begin"), "{refused}");
    }
}
