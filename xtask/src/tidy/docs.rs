//! The rule about documents: files they name are there.

use std::fs;
use std::path::Path;

use super::Finding;

pub(super) fn check(root: &Path) -> Vec<Finding> {
    let mut names: Vec<String> = ["README", "CHANGELOG", "CONTRIBUTING", "SECURITY"]
        .map(|name| format!("{name}.md"))
        .into();
    names.extend(
        fs::read_dir(root.join("docs"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| format!("docs/{}", entry.file_name().to_string_lossy()))
            .filter(|name| name.ends_with(".md")),
    );
    let mut findings = Vec::new();
    for name in names {
        let text = fs::read_to_string(root.join(&name)).unwrap_or_default();
        for (line, what) in missing(&text, &|path| root.join(path).exists()) {
            findings.push(Finding {
                path: name.clone(),
                line,
                what,
            });
        }
    }
    findings
}

/// Paths and tests in backticks that are not there, with their lines.
pub(super) fn missing(text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let is_row_of_tests = line.starts_with('|') && text.contains("| tests |");
        let last_cell = line.rsplit('|').nth(1).unwrap_or_default();
        for quoted in quoted(line).filter(|word| word.starts_with("crates/")) {
            if !each(quoted).iter().all(|path| exists(path)) {
                found.push((at + 1, format!("{quoted} is not there")));
            }
        }
        for test in quoted(last_cell).filter(|_| is_row_of_tests) {
            let Some((owner, file)) = test.split_once('/') else {
                continue;
            };
            let path = |end: &str| format!("crates/{owner}/tests/it/{file}{end}");
            if !exists(&path(".rs")) && !exists(&path("/mod.rs")) {
                found.push((at + 1, format!("the test {test} is not there")));
            }
        }
    }
    found
}

/// What stands between backticks, if it is a word.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split('`').skip(1).step_by(2);
    words.filter(|word| !word.contains(char::is_whitespace))
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn each(path: &str) -> Vec<String> {
    let parts = path
        .split_once('{')
        .and_then(|(start, rest)| Some((start, rest.split_once('}')?)));
    match parts {
        None => vec![path.to_owned()],
        Some((start, (names, end))) => names
            .split(',')
            .map(|name| format!("{start}{name}{end}"))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_found() {
        let there = [
            "crates/core/src/a.rs",
            "crates/core/src/b.rs",
            "crates/core/tests/it/one.rs",
            "crates/core/tests/it/two/mod.rs",
        ];
        let exists = |path: &str| there.contains(&path);
        let text = "see `crates/core/src/{a,b}.rs`, `crates/core/src/a.rs` and\n`crates/core/src/{a,c}.rs`\n\n\
                    | feature | tests |\n|---|---|\n| a | `core/one`; `core/two` |\n| `core/x` | `core/three` |\n";
        let found = missing(text, &exists);
        let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 7], "{found:?}");
        assert!(missing("`core/one` is no path", &exists).is_empty());
    }
}
