//! The rules about one Rust file.

use super::allowed;
use super::language;
use super::source::{Source, has_word};

/// Takes a line (0 for the whole file) and what is wrong.
pub(super) type Note<'a> = &'a mut dyn FnMut(usize, String);

/// Every rule.
pub(super) const ALL: &[fn(&Source<'_>, Note<'_>)] = &[
    length,
    header,
    leftovers,
    ignored_tests,
    unsafe_code,
    locks,
    shared_rmw,
    programs,
    engine_rooms,
    language::summaries,
    language::width,
    language::tables,
];

fn length(source: &Source<'_>, note: Note<'_>) {
    let lines = source.text.lines().count();
    if lines > allowed::LONGEST_FILE {
        let limit = allowed::LONGEST_FILE;
        note(0, format!("{lines} lines: split it, {limit} is the limit"));
    }
}

/// A reader meets what a file is for before what it does.
fn header(source: &Source<'_>, note: Note<'_>) {
    if !source.text.starts_with("//! ") {
        note(
            1,
            "does not begin with `//!` and what the file is for".to_owned(),
        );
    }
}

fn leftovers(source: &Source<'_>, note: Note<'_>) {
    for (n, line) in source.text.lines().enumerate() {
        // Comments count here; the marks are taken apart so that this file passes itself.
        for mark in [
            concat!("TO", "DO"),
            concat!("FIX", "ME"),
            concat!("XX", "X:"),
        ] {
            if has_word(line, mark) {
                note(
                    n + 1,
                    format!("{mark} left behind: do it or say why it is not done"),
                );
            }
        }
    }
    for (n, line) in source.lines() {
        for leftover in ["todo!", "unimplemented!", "dbg!"] {
            if has_word(line, leftover) {
                note(n, format!("{leftover} left behind"));
            }
        }
    }
}

fn ignored_tests(source: &Source<'_>, note: Note<'_>) {
    for (n, line) in source.lines() {
        if line.trim_start().starts_with("#[ignore") {
            note(
                n,
                "an ignored test is no test: give it a size for every run".to_owned(),
            );
        }
    }
}

fn unsafe_code(source: &Source<'_>, note: Note<'_>) {
    if allowed::UNSAFE_FILES
        .iter()
        .any(|(file, _)| *file == source.name)
    {
        return;
    }
    for (n, line) in source.lines() {
        if has_word(line, "unsafe") {
            note(
                n,
                "unsafe outside the listed files (xtask/src/tidy/allowed.rs)".to_owned(),
            );
        }
    }
}

fn may_lock(source: &Source<'_>) -> bool {
    allowed::FREE_TO_LOCK
        .iter()
        .any(|prefix| source.name.starts_with(prefix))
        || allowed::LOCKS.iter().any(|(file, _)| *file == source.name)
}

/// Locks come from extant-sync, which ranks and counts them.
fn locks(source: &Source<'_>, note: Note<'_>) {
    if may_lock(source) {
        return;
    }
    for (n, line) in source.lines() {
        if has_word(line, "parking_lot") && !source.is_test(n) {
            note(
                n,
                "parking_lot outside extant-sync: use its ranked locks".to_owned(),
            );
        }
    }
    // One use may span lines and name several items.
    for (at, _) in source.code.match_indices("std::sync::") {
        let line = source.line_of(at);
        let rest = &source.code[at + "std::sync::".len()..];
        let items = if rest.starts_with('{') {
            rest.split(';').next().unwrap_or(rest)
        } else {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or("")
        };
        for lock in ["Mutex", "RwLock", "Condvar"] {
            if has_word(items, lock) && !source.is_test(line) {
                note(
                    line,
                    format!("std::sync::{lock}: use extant-sync's ranked one"),
                );
            }
        }
    }
}

/// Shared read-modify-writes are counted by extant-sync's `CountedAtomic` types.
fn shared_rmw(source: &Source<'_>, note: Note<'_>) {
    const CALLS: [&str; 12] = [
        ".fetch_add(",
        ".fetch_sub(",
        ".fetch_and(",
        ".fetch_or(",
        ".fetch_xor(",
        ".fetch_nand(",
        ".fetch_max(",
        ".fetch_min(",
        ".fetch_update(",
        ".compare_exchange(",
        ".compare_exchange_weak(",
        ".swap(",
    ];
    if may_lock(source) {
        return;
    }
    for call in CALLS {
        for (at, _) in source.code.match_indices(call) {
            let line = source.line_of(at);
            // Slices, cells and options swap too, but without an ordering.
            let end = source.code[at..]
                .find(';')
                .map_or(source.code.len(), |e| at + e);
            let atomic = [
                "Ordering", "Relaxed", "Acquire", "Release", "AcqRel", "SeqCst",
            ];
            let is_atomic = atomic.iter().any(|o| has_word(&source.code[at..end], o));
            if is_atomic && !source.is_test(line) && !receiver_is_counted(source, at) {
                let call = call.trim_matches(['.', '(']);
                note(
                    line,
                    format!("{call} on a plain atomic: use extant-sync's counted one"),
                );
            }
        }
    }
}

/// Whether the name before the call at `at` is declared in this file as a counted atomic.
fn receiver_is_counted(source: &Source<'_>, at: usize) -> bool {
    let before = source.code[..at].trim_end();
    let start = before
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |p| p + 1);
    let name = &before[start..];
    !name.is_empty()
        && source.code.lines().any(|line| {
            line.split_once("CountedAtomic")
                .is_some_and(|(left, _)| has_word(left, name))
        })
}

/// No product path runs another program.
fn programs(source: &Source<'_>, note: Note<'_>) {
    if allowed::MAY_RUN_PROGRAMS
        .iter()
        .any(|prefix| source.name.starts_with(prefix))
    {
        return;
    }
    for (n, line) in source.lines() {
        // That of `clap` describes a command line.
        let line = line.replace("clap::Command", "");
        let starts = line.contains("Command::new") || line.contains("process::Command");
        if starts && !source.is_test(n) {
            note(n, "starts another program: no product path does".to_owned());
        }
    }
}

/// Adapters go through the engine's one door.
fn engine_rooms(source: &Source<'_>, note: Note<'_>) {
    let is_adapter = allowed::ADAPTERS
        .iter()
        .any(|prefix| source.name.starts_with(prefix));
    if !is_adapter {
        return;
    }
    for (at, _) in source.code.match_indices("extant_core::") {
        let rest = &source.code[at + "extant_core::".len()..];
        let items = if rest.starts_with('{') {
            rest.split(';').next().unwrap_or(rest)
        } else {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or("")
        };
        for room in ["data", "dir", "map", "meta", "xattr"] {
            if has_word(items, room) {
                let line = source.line_of(at);
                note(
                    line,
                    format!("extant_core::{room} from an adapter: go through extant_core::ops"),
                );
            }
        }
    }
}
