//! The rule about the order of locks: the table in the document has the classes of the code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Finding;
use super::source::Source;

/// Where the order is told.
const DOCUMENT: &str = "docs/design/locking.md";

/// Where the ranks are.
const RANKS: &str = "crates/sync/src/rank.rs";

/// Lines that a declaration takes at most.
const LONGEST: usize = 8;

/// The classes of locks that a file declares outside tests: name and rank.
pub(super) fn classes(name: &str, text: &str) -> Vec<(String, String)> {
    let source = Source::new(name, text);
    let mut found = Vec::new();
    // Literals are blanked in the code: its lines tell where a declaration is, those of the text
    // what it says.
    for (line, code) in source.lines() {
        if source.is_test(line) || !code.contains(": LockClass =") {
            continue;
        }
        let said: Vec<&str> = text.lines().skip(line - 1).take(LONGEST).collect();
        let said = said.join("\n");
        let said = said.split(';').next().unwrap_or_default();
        let class = said.split('"').nth(1);
        let rank = said.split("Rank::").nth(1);
        if let (Some(class), Some(rank)) = (class, rank) {
            let rank = rank.trim_end_matches([')', ',', '\n', ' ']);
            found.push((class.to_owned(), rank.to_owned()));
        }
    }
    found
}

/// The numbers of the ranks.
fn numbers(text: &str) -> BTreeMap<&str, u32> {
    let lines = text
        .lines()
        .filter_map(|line| line.trim().split_once(" = "));
    let ranks = lines.filter_map(|(name, number)| {
        let number = number.strip_suffix(',')?.parse().ok()?;
        Some((name, number))
    });
    ranks.collect()
}

/// What is wrong with the table, given all classes of the code with their ranks.
fn compare(
    table: &str,
    ranks: &BTreeMap<&str, u32>,
    code: &BTreeMap<String, String>,
) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut told = Vec::new();
    let mut last = 0;
    for (at, line) in table.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, order, rank, class, _, _, _] = cells[..] else {
            continue;
        };
        let quoted = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        let (Some(rank), Some(class)) = (quoted(rank), quoted(class)) else {
            continue;
        };
        let mut note = |what: String| found.push((at + 1, what));
        match code.get(&class) {
            None => note(format!("no lock of the code has the class {class}")),
            Some(real) if *real != rank => {
                note(format!(
                    "{class} has the rank {real} in the code, not {rank}"
                ));
            }
            Some(_) => {}
        }
        let number = ranks.get(rank.as_str()).copied().unwrap_or_default();
        if order.parse() != Ok(f64::from(number) / 10.0) {
            note(format!("{rank} has the place {}", f64::from(number) / 10.0));
        }
        if number < last {
            note(format!("{class} stands behind a higher rank"));
        }
        last = number;
        told.push(class);
    }
    for class in code.keys().filter(|class| !told.contains(class)) {
        found.push((0, format!("the class {class} is missing from the table")));
    }
    found
}

/// Compares the table with the classes of the code and their ranks.
pub(super) fn check(root: &Path, classes: &BTreeMap<String, String>) -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (table, ranks) = (read(DOCUMENT), read(RANKS));
    let found = compare(&table, &numbers(&ranks), classes);
    let findings = found.into_iter().map(|(line, what)| Finding {
        path: DOCUMENT.to_owned(),
        line,
        what,
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! x\nstatic A: LockClass = LockClass::new(\"a\", Rank::Low);\n\
                        static B: LockClass =\n    LockClass::ascending(\n        \"b\",\n        Rank::High,\n    );\n\
                        #[cfg(test)]\nmod tests {\n    static C: LockClass = LockClass::new(\"c\", Rank::Low);\n}\n";

    fn compared(table: &str) -> Vec<(usize, String)> {
        let code = classes("crates/x/src/lib.rs", CODE);
        let ranks = numbers("    Low = 10,\n    High = 25,\n");
        compare(table, &ranks, &code.into_iter().collect())
    }

    #[test]
    fn a_table_with_all_classes_in_their_order_is_right() {
        let table = "| order | rank | class | guards | I/O |\n|---|---|---|---|---|\n\
                     | 1 | `Low` | `a` | x | y |\n| 2.5 | `High` | `b` | x | y |\n";
        assert_eq!(compared(table), []);
    }

    #[test]
    fn a_class_that_is_missing_or_unknown_or_has_another_rank_or_place_is_found() {
        let found = |table: &str| {
            let told = compared(table).into_iter().map(|(_, what)| what);
            told.collect::<Vec<_>>().join("; ")
        };
        let a = "| 1 | `Low` | `a` | x | y |\n";
        let b = "| 2.5 | `High` | `b` | x | y |\n";
        assert_eq!(found(a), "the class b is missing from the table");
        assert_eq!(found(&format!("{b}{a}")), "a stands behind a higher rank");
        let c = "| 1 | `Low` | `c` | x | y |\n";
        assert_eq!(
            found(&format!("{a}{c}{b}")),
            "no lock of the code has the class c"
        );
        let a = "| 2.5 | `High` | `a` | x | y |\n";
        assert_eq!(
            found(&format!("{a}{b}")),
            "a has the rank Low in the code, not High"
        );
        let a = "| 2 | `Low` | `a` | x | y |\n";
        assert_eq!(found(&format!("{a}{b}")), "Low has the place 1");
    }
}
