//! The order of rooms inside the engine: what a room names, and what it calls, lies below it.
//!
//! Imports show half of that. The other half are methods that a room defines for a type of a room
//! below: such a method belongs to the room that defines it, so a call to it from further down is a
//! step up like an import. Of `Fs`, for which any room does so, receivers are recognised by their
//! name (`fs`, `.fs`, `fs()`, and `self` inside `impl Fs`), and so is `Fs::method`. Methods of
//! other types are recognised by their own name where the engine has no other function of that
//! name. Tests are left out.
//!
//! Files beside the rooms (`error.rs`, `clock.rs`, `mutants.rs`) lie below all of them, and each
//! folder is a room.

use super::source::Source;
use super::{Finding, allowed};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Where the engine lies: rooms that Cargo keeps below, and those above.
const ENGINE: &[&str] = &["crates/store/src/", UPPER];
const UPPER: &str = "crates/core/src/";

/// One file of the engine.
struct RoomFile {
    /// Which part of the engine it is in.
    part: &'static str,
    /// Path inside that part.
    path: String,
    text: String,
}

/// Checks the engine of the workspace at `root`.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let mut files = Vec::new();
    for &part in ENGINE {
        let folder = root.join(part);
        let mut paths = Vec::new();
        super::rust_files(&folder, &mut paths);
        files.extend(paths.iter().filter_map(|path| {
            let inside = path.strip_prefix(&folder).ok()?;
            Some(RoomFile {
                part,
                path: inside.to_string_lossy().replace('\\', "/"),
                text: fs::read_to_string(path).ok()?,
            })
        }));
    }
    check_files(&files)
}

/// Checks files given as paths inside the engine and texts.
pub fn check_rooms(files: &[(&str, &str)]) -> Vec<Finding> {
    let file = |(path, text): &(&str, &str)| RoomFile {
        part: UPPER,
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
    let parts: BTreeMap<&str, &str> = files
        .iter()
        .map(|file| (file.path.as_str(), file.part))
        .collect();
    let whole_path = |name: &str| format!("{}{name}", parts.get(name).unwrap_or(&UPPER));
    let mut findings = Vec::new();
    let mut used = vec![false; allowed::STEPS_UP.len()];
    let homes = homes(&sources, &mut findings);
    for finding in &mut findings {
        finding.path = whole_path(&finding.path);
    }
    for source in &sources {
        if source.name == "lib.rs" {
            continue;
        }
        let Some(from) = rank_of(source.name) else {
            findings.push(Finding {
                path: whole_path(source.name),
                line: 0,
                what: "a folder without a place in the order of rooms (allowed.rs)".to_owned(),
            });
            continue;
        };
        let mut step = |at: usize, to: usize, what: String| {
            let line = source.line_of(at);
            if to <= from || source.is_test(line) {
                return;
            }
            let room = allowed::ROOMS[to - 1];
            let exception = allowed::STEPS_UP
                .iter()
                .position(|(file, up, _)| *file == source.name && *up == room);
            match exception {
                Some(n) => used[n] = true,
                None => findings.push(Finding {
                    path: whole_path(source.name),
                    line,
                    what: format!(
                        "{what} of {room}, a room above: move one of the two (order in allowed.rs)"
                    ),
                }),
            }
        };
        for (at, room) in imports(source.name, &source.code) {
            if let Some(to) = rank(room) {
                step(at, to, "names something".to_owned());
            }
        }
        for call in calls(&source.code) {
            let of_fs = homes.of_fs.get(call.method).filter(|_| call.is_of_fs);
            if let Some(&to) = of_fs {
                step(call.at, to, format!("calls Fs::{}", call.method));
            } else if let Some(&(of, to)) = homes.of_others.get(call.method) {
                step(call.at, to, format!("calls {of}::{}", call.method));
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
            path: whole_path(file),
            line: 0,
            what: format!("no longer steps up to {room}: take the exception out of allowed.rs"),
        });
    }
    findings
}

/// Where methods are defined.
#[derive(Default)]
struct Homes<'a> {
    /// The rooms of methods of `Fs`.
    of_fs: BTreeMap<&'a str, usize>,
    /// The types and the rooms of methods that are defined above their type, and have a name that
    /// no other function of the engine has.
    of_others: BTreeMap<&'a str, (&'a str, usize)>,
}

/// Where methods are defined, and findings about methods of `Fs` that lie below `Fs` itself.
fn homes<'a>(sources: &'a [Source<'_>], findings: &mut Vec<Finding>) -> Homes<'a> {
    let mut homes = Homes::default();
    let of_fs = rank("fs").unwrap_or(0);
    let mut types = BTreeMap::new();
    let mut names = BTreeMap::<&str, usize>::new();
    for source in sources {
        let Some(room) = rank_of(source.name) else {
            continue;
        };
        for keyword in ["struct ", "enum "] {
            for name in words_after(&source.code, keyword) {
                // Of two types of one name it is not known which is meant.
                let seen = types.entry(name).or_insert(Some(room));
                if *seen != Some(room) {
                    *seen = None;
                }
            }
        }
        for name in words_after(&source.code, "fn ") {
            *names.entry(name).or_default() += 1;
        }
    }
    for source in sources {
        let Some(room) = rank_of(source.name) else {
            continue;
        };
        for (of, block) in impl_blocks(&source.code) {
            let is_fs = of == "Fs";
            if is_fs && room < of_fs {
                findings.push(Finding {
                    path: source.name.to_owned(),
                    line: source.line_of(block.start),
                    what: "impl Fs below fs: take the volume, the journal or a handle".to_owned(),
                });
            }
            let home = types.get(of).copied().flatten();
            let is_above = home.is_some_and(|home| home < room);
            for name in words_after(&source.code[block], "fn ") {
                if is_fs {
                    homes.of_fs.insert(name, room);
                } else if is_above && names.get(name) == Some(&1) {
                    homes.of_others.insert(name, (of, room));
                }
            }
        }
    }
    homes
}

/// Names that follow a keyword.
fn words_after<'a>(code: &'a str, keyword: &str) -> Vec<&'a str> {
    let words = code.match_indices(keyword).filter(|(at, _)| {
        let before = code[..*at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    });
    words
        .map(|(at, keyword)| name_at(&code[at + keyword.len()..]))
        .collect()
}

/// The place of a room in the order, counted from 1: files beside the rooms have place 0.
fn rank(room: &str) -> Option<usize> {
    let place = allowed::ROOMS.iter().position(|name| *name == room)?;
    Some(place + 1)
}

/// The place in the order of what a file belongs to.
fn rank_of(path: &str) -> Option<usize> {
    path.split_once('/').map_or(Some(0), |(room, _)| rank(room))
}

fn name_at(rest: &str) -> &str {
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    &rest[..end.unwrap_or(rest.len())]
}

/// The blocks `impl Type { ... }` of a type's own methods, which end at a brace in the first
/// column, with the name of the type.
fn impl_blocks(code: &str) -> impl Iterator<Item = (&str, Range<usize>)> + '_ {
    let starts = code
        .match_indices("impl")
        .filter(|(at, _)| *at == 0 || code[..*at].ends_with('\n'));
    starts.filter_map(|(at, keyword)| {
        let (head, _) = code[at..].split_once('{')?;
        let of = head[keyword.len()..].trim();
        if of.contains(" for ") {
            return None;
        }
        // Behind generic parameters and a path, before arguments.
        let of = of.strip_prefix('<').map_or(of, |rest| {
            let mut depth = 1;
            let end = rest.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            });
            rest[end.map_or(0, |end| end + 1)..].trim()
        });
        let of = of.split(['<', ' ']).next()?;
        let of = of.rsplit("::").next()?;
        let end = code[at..].find("\n}").map_or(code.len(), |end| at + end);
        Some((of, at..end))
    })
}

/// Rooms named after `crate::`, also several in braces, and after as many `super::` as lead out of
/// the file's own room.
fn imports<'a>(path: &str, code: &'a str) -> Vec<(usize, &'a str)> {
    let folders = path.matches('/').count();
    let out = "super::".repeat(folders + usize::from(!path.ends_with("/mod.rs")));
    let mut found = Vec::new();
    let supers = code.match_indices(&*out).filter(|(at, _)| {
        let behind = &code[at + out.len()..];
        folders > 0 && !code[..*at].ends_with("super::") && !behind.starts_with("super::")
    });
    for (at, path) in code.match_indices("crate::").chain(supers) {
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

/// A method that is called.
struct Call<'a> {
    at: usize,
    method: &'a str,
    /// What it is called on is an `Fs`, by its name.
    is_of_fs: bool,
}

/// Calls of methods, on a value or by the type's name.
fn calls(code: &str) -> Vec<Call<'_>> {
    let blocks: Vec<_> = impl_blocks(code)
        .filter(|(of, _)| *of == "Fs")
        .map(|(_, block)| block)
        .collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices('.') {
        let method = name_at(&code[at + 1..]);
        let behind = &code[at + 1 + method.len()..];
        if method.is_empty() || !behind.starts_with(['(', ':']) {
            continue;
        }
        let receiver = code[..at].trim_end();
        let ends_with = |name: &str| {
            receiver
                .strip_suffix(name)
                .is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        let is_self = ends_with("self") && blocks.iter().any(|block| block.contains(&at));
        found.push(Call {
            at,
            method,
            is_of_fs: ends_with("fs") || ends_with("fs()") || is_self,
        });
    }
    for (at, path) in code.match_indices("Fs::") {
        if !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            found.push(Call {
                at,
                method: name_at(&code[at + path.len()..]),
                is_of_fs: true,
            });
        }
    }
    found
}
