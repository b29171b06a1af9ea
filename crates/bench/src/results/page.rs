//! Results as tables in Markdown.

use super::entry::{Entry, Results};
use super::plan::PARTS;
use crate::args::WorkloadName;
use crate::machine::Origin;
use std::collections::{BTreeMap, BTreeSet};
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
    ("round trips", 0),
    ("requests", 0),
    ("MiB moved", 2),
    ("times the link's bound", 1),
    ("requests per operation", 2),
    ("switches of the mount per operation", 2),
    ("us of the mount per operation", 1),
    ("us of the kernel for it per operation", 1),
];

/// What the front page shows: what it is called there, the part, the variant, the workers (0:
/// however many), and how Extant takes part.
const CHOSEN: &[(&str, &str, &str, u32, &str)] = &[
    (
        "make an image from a directory",
        "build",
        "default",
        0,
        "engine",
    ),
    (
        "take all files out of it",
        "extract",
        "default",
        0,
        "engine",
    ),
    (
        "create files, two threads",
        "metadata",
        "create-own",
        2,
        "engine",
    ),
    (
        "append 4 KiB and `fsync`, four threads",
        "fsync",
        "default",
        4,
        "engine",
    ),
    (
        "reserve 8 KiB with `fallocate`, two threads",
        "fallocate2",
        "default",
        2,
        "engine",
    ),
    (
        "visit all inodes, in memory, two threads",
        "bulkstat",
        "warm",
        2,
        "engine",
    ),
    (
        "mounted: create files, two threads",
        "mounted programs",
        "create",
        2,
        "engine",
    ),
    (
        "mounted: unpack an archive",
        "mounted programs",
        "unpack",
        0,
        "engine",
    ),
];

/// Puts `text` between the marks `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a file. A file
/// that is not there is made.
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

/// All parts as tables, with the pictures that show them. Without an origin it is a draft.
pub(super) fn tables(results: &Results, pictures: &[PathBuf], origin: Option<&Origin>) -> String {
    let mut text = String::new();
    match origin {
        Some(origin) => {
            line(&mut text, &format!("Machine: {}.", origin.machine));
            line(&mut text, &format!("Build: {}.", origin.build));
        }
        None => line(
            &mut text,
            "A draft: of any builds and machines, not for quoting.",
        ),
    }
    if results.entries.iter().any(|entry| entry.origin.quick) {
        line(
            &mut text,
            "The quick form: smaller work, one run of each side.",
        );
    }
    text.push('\n');
    line(&mut text, &legend(&results.entries));
    let usual = usual(&results.entries);
    if !usual.is_empty() {
        text.push_str("\nUnless a table says otherwise:\n\n");
        for (side, clauses) in &usual {
            line(&mut text, &format!("- {side}: {}", clauses.join("; ")));
        }
    }
    let known = PARTS.iter().map(|part| (part.name, part.about));
    let model = ("model", "More cores than there are, by simulation.");
    for (name, about) in known.chain([model]) {
        let rows: Vec<&Entry> = results
            .entries
            .iter()
            .filter(|entry| entry.part == name)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n### {name}\n");
        line(&mut text, about);
        text.push('\n');
        text.push_str(&table(&rows));
        text.push_str(&circumstances(&rows, &usual));
        let stem = name.replace(' ', "-");
        for path in pictures {
            let file = path.file_stem().and_then(|stem| stem.to_str());
            let own = |file: &&str| {
                file.strip_prefix(stem.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            if let Some(file) = file.filter(own) {
                let _ = writeln!(text, "\n![{file}](pictures/{file}.svg)");
            }
        }
    }
    if pictures.iter().any(|path| path.ends_with("ratios.svg")) {
        text.push_str("\n### All cases\n\n![times as fast as the kernel](pictures/ratios.svg)\n");
    }
    text
}

/// Workloads that measure the command.
const OF_COMMAND: &[WorkloadName] = &[
    WorkloadName::Sources,
    WorkloadName::Compare,
    WorkloadName::Edit,
    WorkloadName::Mounted,
    WorkloadName::Remote,
];

/// What the figures say, and of what.
fn legend(entries: &[Entry]) -> String {
    let of_command: Vec<&str> = PARTS
        .iter()
        .filter(|part| OF_COMMAND.contains(&part.workload))
        .map(|part| part.name)
        .filter(|name| entries.iter().any(|entry| entry.part == *name))
        .collect();
    let command = match of_command.split_last() {
        None => String::new(),
        Some((last, [])) => format!(", and in the part *{last}* the command `extant`"),
        Some((last, others)) => format!(
            ", and in the parts *{}* and *{last}* the command `extant`",
            others.join("*, *")
        ),
    };
    format!(
        "Medians, with the slowest and the fastest run in brackets. *x* is how many times better \
         the engine in process is{command}. Sides alternate."
    )
}

/// Adds a paragraph or an item of a list, wrapped.
fn line(text: &mut String, words: &str) {
    let indent = if words.starts_with("- ") { "  " } else { "" };
    let mut width = 0;
    for word in words.split(' ') {
        if width > 0 && width + 1 + word.len() > WIDTH {
            let _ = write!(text, "\n{indent}");
            width = indent.len();
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += word.len();
    }
    text.push('\n');
}

/// The longest line of text.
const WIDTH: usize = 100;

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

/// What most parts say of a side, by side.
type Usual = BTreeMap<String, Vec<String>>;

/// What the options of a row consist of.
fn clauses(row: &Entry) -> Vec<String> {
    row.options.split("; ").map(str::to_owned).collect()
}

/// In how many parts a side has to say something for it to be usual.
const OFTEN: usize = 3;

/// The set-up that most rows of a side have, in many parts, to be said once.
fn usual(entries: &[Entry]) -> Usual {
    let mut rows: BTreeMap<String, Vec<(&str, Vec<String>)>> = BTreeMap::new();
    for entry in entries {
        let of_side = rows.entry(side(entry)).or_default();
        of_side.push((&entry.part, clauses(entry)));
    }
    let of_side = |rows: &Vec<(&str, Vec<String>)>| {
        let mut usual: Vec<String> = Vec::new();
        for clause in rows.iter().flat_map(|(_, clauses)| clauses) {
            let with = rows.iter().filter(|(_, clauses)| clauses.contains(clause));
            let is_of_most = 2 * with.clone().count() > rows.len();
            let parts: BTreeSet<&str> = with.map(|(part, _)| *part).collect();
            if is_of_most && parts.len() >= OFTEN && !usual.contains(clause) {
                usual.push(clause.clone());
            }
        }
        usual
    };
    let all = rows
        .iter()
        .map(|(side, rows)| (side.clone(), of_side(rows)));
    all.filter(|(_, clauses)| !clauses.is_empty()).collect()
}

/// What a part says of its sides beyond what is usual: all that is to say where something usual is
/// missing.
fn circumstances(rows: &[&Entry], usual: &Usual) -> String {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        let (side, mut clauses) = (side(row), clauses(row));
        if let Some(usual) = usual.get(&side)
            && usual.iter().all(|clause| clauses.contains(clause))
        {
            clauses.retain(|clause| !usual.contains(clause));
        }
        let what = clauses.join("; ");
        match told.iter_mut().find(|(known, _)| *known == what) {
            _ if what.is_empty() => {}
            Some((_, sides)) if sides.contains(&side) => {}
            Some((_, sides)) => sides.push(side),
            None => told.push((what, vec![side])),
        }
    }
    let mut text = String::new();
    for (at, (what, sides)) in told.iter().enumerate() {
        if at == 0 {
            text.push('\n');
        }
        line(&mut text, &format!("- {}: {what}", sides.join(", ")));
    }
    text
}

/// One table: a row for each variant and number of workers, columns for sides and what explains
/// them.
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
    // A column of zeros explains nothing.
    let is_told = |(name, digits): &&(&str, usize)| {
        let mut values = rows.iter().filter_map(|row| row.figures.get(*name));
        values.any(|value| format!("{value:.digits$}").contains(|c| matches!(c, '1'..='9')))
    };
    let figures: Vec<&(&str, usize)> = FIGURES.iter().filter(is_told).collect();
    // Where rows have several units, each says its own.
    let mut unit = rows.first().map_or("", |row| row.unit.as_str());
    let has_several = rows.iter().any(|row| row.unit != unit);
    if has_several {
        unit = "";
    }
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
            let shown = if has_several { with_unit } else { plain };
            let _ = write!(text, " {} |", value(row, shown));
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

/// A median with its range, shown as it is wanted.
fn value(row: &Entry, shown: fn(&Entry) -> String) -> String {
    let median = shown(row);
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
        v if unit == "ms" && v < 100.0 => format!("{v:.1}"),
        v if v >= 1e7 => format!("{:.1}M", v / 1e6),
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// The table of the front page.
pub(super) fn chosen(results: &Results) -> String {
    let mut text = "| | Extant | Linux |\n|---|---|---|\n".to_owned();
    for (label, part, variant, workers, ours) in CHOSEN {
        let find = |side: &str| {
            results.entries.iter().find(|row| {
                row.part == *part
                    && row.variant == *variant
                    && (row.workers == *workers || *workers == 0)
                    && row.side == side
            })
        };
        if let (Some(ours), Some(kernel)) = (find(ours), find("kernel")) {
            let _ = writeln!(
                text,
                "| {label} | {} ({:.1}x) | {} |",
                with_unit(ours),
                ours.times(kernel),
                with_unit(kernel)
            );
        }
    }
    text
}

/// A median as it reads below a heading that has the unit.
fn plain(row: &Entry) -> String {
    number(row.median, &row.unit)
}

/// A median as it reads where no heading has the unit.
fn with_unit(row: &Entry) -> String {
    let number = number(row.median, &row.unit);
    match row.unit.as_str() {
        "s" => number,
        "ops/s" => format!("{number}/s"),
        unit => format!("{number} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(side: &str, workers: u32, median: f64) -> Entry {
        Entry {
            part: "metadata".to_owned(),
            origin: Origin {
                machine: "one".to_owned(),
                build: "abc".to_owned(),
                quick: false,
            },
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
    fn a_part_says_how_much_was_done_and_sides_that_say_the_same_share_a_line() {
        let mut rows = [entry("engine", 1, 50_000.0), entry("kernel", 1, 10_000.0)];
        rows[0].options = "7 files; in process".to_owned();
        rows[1].options = "7 files; loop mount".to_owned();
        let of =
            |rows: &[Entry], usual: &Usual| circumstances(&rows.iter().collect::<Vec<_>>(), usual);
        assert_eq!(
            of(&rows, &Usual::new()),
            "\n- engine: 7 files; in process\n- kernel: 7 files; loop mount\n"
        );
        let usual = Usual::from([
            ("engine".to_owned(), vec!["in process".to_owned()]),
            ("kernel".to_owned(), vec!["loop mount".to_owned()]),
        ]);
        assert_eq!(of(&rows, &usual), "\n- engine, kernel: 7 files\n");
        // One that lacks what is usual says all that it is.
        rows[1].options = "7 files; direct loop mount".to_owned();
        assert_eq!(
            of(&rows, &usual),
            "\n- engine: 7 files\n- kernel: 7 files; direct loop mount\n"
        );
    }

    #[test]
    fn the_set_up_of_many_parts_is_said_once() {
        let part = |name: &str| Entry {
            part: name.to_owned(),
            options: format!("{name} files; in process"),
            ..entry("engine", 1, 1.0)
        };
        let results = Results {
            entries: ["metadata", "fsync", "sparse"].map(part).into(),
        };
        let text = tables(&results, &[], Some(&results.entries[0].origin));
        assert_eq!(text.matches("in process\n").count(), 1, "{text}");
        assert!(text.contains("\n- engine: fsync files\n"), "{text}");
        assert!(text.starts_with("Machine: one.\nBuild: abc.\n"), "{text}");
        assert!(tables(&results, &[], None).starts_with("A draft"), "{text}");
    }

    #[test]
    fn the_command_is_named_where_it_was_measured() {
        let mut results = Results::default();
        results.entries.push(entry("engine", 1, 1.0));
        let words = |results: &Results| tables(results, &[], None).replace('\n', " ");
        let text = words(&results);
        assert!(text.contains("the engine in process is. Sides"), "{text}");
        results.entries[0].part = "remote copies".to_owned();
        let text = words(&results);
        let one = "in process is, and in the part *remote copies* the command `extant`. Sides";
        assert!(text.contains(one), "{text}");
        for part in ["edit", "compare"] {
            let more = Entry {
                part: part.to_owned(),
                ..entry("engine", 1, 1.0)
            };
            results.entries.push(more);
        }
        let text = words(&results);
        let three = "in the parts *compare*, *edit* and *remote copies* the command `extant`.";
        assert!(text.contains(three), "{text}");
    }

    #[test]
    fn milliseconds_have_a_digit_more_and_what_went_over_a_link_stands_beside_them() {
        let mut rows = [entry("engine", 1, 7.25), entry("nbdfuse", 1, 218.4)];
        for (row, round_trips) in rows.iter_mut().zip([8.0, 49.0]) {
            (row.unit, row.better) = ("ms".to_owned(), "lower".to_owned());
            row.variant = "first-byte-nbd-1ms".to_owned();
            row.figures.insert("round trips".to_owned(), round_trips);
        }
        let text = table(&rows.iter().collect::<Vec<_>>());
        assert_eq!(
            text,
            "| ms | workers | engine | nbdfuse | x | round trips |\n|---|---|---|---|---|---|\n\
             | first-byte-nbd-1ms | 1 | 7.2 | 218 | 30.1 | 8, 49 |\n"
        );
    }

    #[test]
    fn rows_of_several_units_say_their_own() {
        let mut rows = [entry("engine", 1, 50_000.0), entry("engine", 1, 1.5)];
        (rows[1].variant, rows[1].unit) = ("unpack".to_owned(), "s".to_owned());
        let text = table(&rows.iter().collect::<Vec<_>>());
        assert_eq!(
            text,
            "|  | workers | engine |\n|---|---|---|\n\
             | stat | 1 | 50k/s |\n| unpack | 1 | 1.50 s |\n"
        );
    }

    #[test]
    fn a_column_of_zeros_is_left_out() {
        let mut rows = [entry("engine", 1, 5.0), entry("kernel", 1, 4.0)];
        for row in &mut rows {
            row.figures
                .insert("flushes per operation".to_owned(), 0.001);
            row.figures.insert("handles per commit".to_owned(), 0.0);
        }
        rows[1].figures.insert("handles per commit".to_owned(), 2.0);
        let text = table(&rows.iter().collect::<Vec<_>>());
        assert!(!text.contains("flushes per operation"), "{text}");
        assert!(text.contains("| handles per commit |"), "{text}");
        assert!(text.contains("| 0.0, 2.0 |"), "{text}");
    }

    #[test]
    fn the_front_page_has_eight_rows_at_most_and_says_where_extant_is_slower() {
        assert!(CHOSEN.len() <= 8);
        let row = |side, median| Entry {
            part: "mounted programs".to_owned(),
            variant: "create".to_owned(),
            unit: "ops/s".to_owned(),
            ..entry(side, 2, median)
        };
        let results = Results {
            entries: vec![row("engine", 50_000.0), row("kernel", 100_000.0)],
        };
        assert_eq!(
            chosen(&results),
            "| | Extant | Linux |\n|---|---|---|\n\
             | mounted: create files, two threads | 50k/s (0.5x) | 100k/s |\n"
        );
    }

    #[test]
    fn no_line_of_text_is_longer_than_a_page_is_wide() {
        let mut text = String::new();
        line(&mut text, &format!("- {}", "word ".repeat(60).trim()));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")));
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
