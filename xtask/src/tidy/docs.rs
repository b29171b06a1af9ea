//! The rules about documents: files that they name are there, and so are places that they link to.

use std::fs;
use std::path::Path;

use super::Finding;

pub(super) fn check(root: &Path) -> Vec<Finding> {
    let mut names: Vec<String> = ["README", "CHANGELOG", "CONTRIBUTING", "SECURITY"]
        .map(|name| format!("{name}.md"))
        .into();
    for folder in ["docs/user", "docs/design", "docs/dev", "docs/report"] {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
        let files = entries
            .flatten()
            .map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy()));
        names.extend(files.filter(|name| name.ends_with(".md")));
    }
    let mut findings = Vec::new();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    let rust = oldest_rust(&manifest).unwrap_or_default();
    for name in names {
        let text = fs::read_to_string(root.join(&name)).unwrap_or_default();
        let folder = Path::new(&name).parent().unwrap_or(Path::new(""));
        let page = |link: &str| match link {
            "" => Some(text.clone()),
            link => read(&root.join(folder).join(link)),
        };
        let mut wrong = missing(&text, &|path| root.join(path).exists());
        wrong.extend(dangling(&text, &page));
        // The list of changes has a form of its own, and tells of the past.
        if name != "CHANGELOG.md" {
            wrong.extend(wide(&text));
            wrong.extend(other_rust(&text, rust, NAME_RUST.contains(&name.as_str())));
        }
        for (line, what) in wrong {
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

/// Lines of prose that are wider than a page. Tables, code and what programs write have their own
/// width.
fn wide(text: &str) -> Vec<(usize, String)> {
    let (mut is_code, mut is_generated) = (false, false);
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        is_code ^= line.starts_with("```");
        is_generated =
            (is_generated || line.ends_with(":begin -->")) && !line.ends_with(":end -->");
        let is_prose = !is_code && !is_generated && !line.starts_with(['|', '#', '!']);
        let width = line.chars().count();
        if is_prose && width > WIDTH {
            found.push((at + 1, format!("{width} columns: {WIDTH} is the limit")));
        }
    }
    found
}

/// Columns of prose.
const WIDTH: usize = 100;

/// Pages that say which Rust is needed.
const NAME_RUST: [&str; 3] = ["README.md", "docs/user/install.md", "docs/dev/api.md"];

/// Finds the oldest Rust that the manifest of a workspace names.
pub fn oldest_rust(manifest: &str) -> Option<&str> {
    let found = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    found.map(|version| version.trim().trim_matches('"'))
}

/// Other versions of Rust than the oldest that builds the crates, and line 0 where that is to be
/// named and is not.
fn other_rust(text: &str, oldest: &str, is_to_be_named: bool) -> Vec<(usize, String)> {
    let (mut is_named, mut found) = (false, Vec::new());
    for (at, line) in text.lines().enumerate() {
        for rest in line.split("Rust 1.").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            let version = format!("1.{}", &rest[..end.unwrap_or(rest.len())]);
            is_named |= version == oldest;
            if version != oldest {
                let what = format!("Rust {version}: `rust-version` in Cargo.toml is {oldest}");
                found.push((at + 1, what));
            }
        }
    }
    if is_to_be_named && !is_named && found.is_empty() {
        found.push((0, format!("does not say that Rust {oldest} is needed")));
    }
    found
}

/// The text of a file; of a folder, which has no headings, nothing.
fn read(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some(String::new());
    }
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Links to files, or to headings, that are not there; `page` has the text behind a relative path.
fn dangling(text: &str, page: &dyn Fn(&str) -> Option<String>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let targets = line.split("](").skip(1);
        for target in targets.filter_map(|rest| Some(rest.split_once(')')?.0)) {
            if target.contains("://") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let is_there = page(path).is_some_and(|page| {
                heading.is_empty() || headings(&page).any(|name| name == heading)
            });
            if !is_there {
                found.push((at + 1, format!("the link to {target} leads nowhere")));
            }
        }
    }
    found
}

/// The headings of a page as links name them.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let lines = page.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let name = line.trim_start_matches('#').trim().to_lowercase();
        let kept = name.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
            _ => None,
        });
        kept.collect()
    })
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

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = |path: &str| match path {
            "" => Some("# Here\n".to_owned()),
            "../other.md" => Some("## What `it` says, and why\n".to_owned()),
            _ => None,
        };
        let good =
            "[a](#here) [b](../other.md) [c](../other.md#what-it-says-and-why) [d](https://x.y/z)";
        assert!(dangling(good, &page).is_empty());
        let bad = "[a](#there)\n[b](other.md)\n[c](../other.md#what)";
        let lines: Vec<usize> = dangling(bad, &page).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3]);
    }

    #[test]
    fn another_rust_than_the_oldest_is_found() {
        let oldest = oldest_rust("[workspace.package]\nrust-version = \"1.89\"\n").unwrap();
        let lines = |text: &str, is_to_be_named| {
            let found = other_rust(text, oldest, is_to_be_named);
            found.iter().map(|(line, _)| *line).collect::<Vec<usize>>()
        };
        assert!(lines("needs Rust 1.89.", true).is_empty());
        assert!(lines("needs Rust, and no version of it", false).is_empty());
        assert_eq!(lines("needs\nRust 1.88, or Rust 1.895", false), [2, 2]);
        assert_eq!(lines("needs Rust, and no version of it", true), [0]);
    }

    #[test]
    fn a_line_of_prose_that_is_too_wide_is_found() {
        let wide_line = "x ".repeat(60);
        let good = format!(
            "| {wide_line} |\n```\n{wide_line}\n```\n<!-- a:begin -->\n{wide_line}\n<!-- a:end -->\n"
        );
        assert!(wide(&good).is_empty(), "{:?}", wide(&good));
        let lines: Vec<usize> = wide(&format!("{good}{wide_line}\n"))
            .iter()
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(lines, [8]);
    }
}
