//! The order of rooms inside the engine: what a room names, and what it calls, lies below it.
//!
//! Imports show half of that. The other half are methods of `Fs`, which any room may define: a
//! method belongs to the room that defines it, so a call to it from a room below is a step up like
//! an import. Both are looked for in what is no test; receivers are recognised by their name (`fs`,
//! `.fs`, `fs()`, and `self` inside `impl Fs`).

use super::source::Source;
use super::{Finding, allowed};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Where the engine lies.
const ENGINE: &str = "crates/core/src/";

/// One file of the engine.
struct RoomFile {
    /// Path inside the engine.
    path: String,
    text: String,
}

/// Checks the engine of the workspace at `root`.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let engine = root.join(ENGINE);
    let mut paths = Vec::new();
    super::rust_files(&engine, &mut paths);
    let files = paths.iter().filter_map(|path| {
        Some(RoomFile {
            path: path
                .strip_prefix(&engine)
                .ok()?
                .to_string_lossy()
                .replace('\\', "/"),
            text: fs::read_to_string(path).ok()?,
        })
    });
    check_files(&files.collect::<Vec<_>>())
}

/// Checks files given as paths inside the engine and texts.
pub fn check_rooms(files: &[(&str, &str)]) -> Vec<Finding> {
    let file = |(path, text): &(&str, &str)| RoomFile {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
    };
    check_files(&files.iter().map(file).collect::<Vec<_>>())
}

fn check_files(files: &[RoomFile]) -> Vec<Finding> {
    let sources: Vec<Source<'_>> = files
        .iter()
        .map(|file| Source::new(&file.path, &file.text))
        .filter(|source| {
            let is_test = source.name.ends_with("tests.rs") || source.name.contains("tests/");
            !is_test
        })
        .collect();
    let mut findings = Vec::new();
    let mut used = vec![false; allowed::STEPS_UP.len()];
    let homes = homes(&sources, &mut findings);
    for source in &sources {
        let Some(from) = rank_of(source.name) else {
            continue;
        };
        let mut step = |at: usize, to: usize, what: String| {
            let line = source.line_of(at);
            if to <= from || source.is_test(line) {
                return;
            }
            let room = allowed::ROOMS[to];
            let exception = allowed::STEPS_UP
                .iter()
                .position(|(file, up, _)| *file == source.name && *up == room);
            match exception {
                Some(n) => used[n] = true,
                None => findings.push(Finding {
                    path: format!("{ENGINE}{}", source.name),
                    line,
                    what: format!(
                        "{what} of {room}, a room above: move one of the two (order in allowed.rs)"
                    ),
                }),
            }
        };
        for (at, room) in imports(&source.code) {
            if let Some(to) = rank(room) {
                step(at, to, "names something".to_owned());
            }
        }
        for (at, method) in calls(&source.code) {
            if let Some(&to) = homes.get(method) {
                step(at, to, format!("calls Fs::{method}"));
            }
        }
    }
    // A list for a part of the engine, as tests give it, uses none.
    let is_whole = files.iter().any(|file| file.path == "lib.rs");
    for ((file, room, _), _) in allowed::STEPS_UP
        .iter()
        .zip(used)
        .filter(|(_, used)| is_whole && !used)
    {
        findings.push(Finding {
            path: format!("{ENGINE}{file}"),
            line: 0,
            what: format!("no longer steps up to {room}: take the exception out of allowed.rs"),
        });
    }
    findings
}

/// The rooms of methods of `Fs`, and findings about those that lie below `Fs` itself.
fn homes<'a>(sources: &'a [Source<'_>], findings: &mut Vec<Finding>) -> BTreeMap<&'a str, usize> {
    let mut homes = BTreeMap::new();
    let of_fs = rank("fs").unwrap_or(0);
    for source in sources {
        let Some(room) = rank_of(source.name) else {
            continue;
        };
        for block in impl_blocks(&source.code) {
            if room < of_fs {
                findings.push(Finding {
                    path: format!("{ENGINE}{}", source.name),
                    line: source.line_of(block.start),
                    what: "impl Fs below fs: take the volume, the journal or a handle".to_owned(),
                });
            }
            let body = &source.code[block];
            for (at, _) in body.match_indices("fn ") {
                if body[..at].ends_with([' ', '(', '\n']) {
                    homes.insert(name_at(&body[at + 3..]), room);
                }
            }
        }
    }
    homes
}

fn rank(room: &str) -> Option<usize> {
    allowed::ROOMS.iter().position(|name| *name == room)
}

/// The place in the order of the room that a file belongs to.
fn rank_of(path: &str) -> Option<usize> {
    rank(path.split_once('/')?.0)
}

fn name_at(rest: &str) -> &str {
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    &rest[..end.unwrap_or(rest.len())]
}

/// The blocks `impl Fs { ... }`, which end at a brace in the first column.
fn impl_blocks(code: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    code.match_indices("impl Fs {").map(|(at, _)| {
        let end = code[at..].find("\n}").map_or(code.len(), |end| at + end);
        at..end
    })
}

/// Rooms named after `crate::`, also several in braces.
fn imports(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push((at, name_at(rest)));
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (n, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                _ if begins && !c.is_whitespace() => {
                    found.push((at, name_at(&list[n..])));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

/// Methods called on something that is an `Fs` by its name.
fn calls(code: &str) -> Vec<(usize, &str)> {
    let blocks: Vec<_> = impl_blocks(code).collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices('.') {
        let method = name_at(&code[at + 1..]);
        let is_call = code[at + 1 + method.len()..].starts_with('(');
        let receiver = code[..at].trim_end();
        let ends_with = |name: &str| {
            receiver
                .strip_suffix(name)
                .is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        let is_self = ends_with("self") && blocks.iter().any(|block| block.contains(&at));
        if is_call && (ends_with("fs") || ends_with("fs()") || is_self) {
            found.push((at, method));
        }
    }
    found
}
