//! The house rules that a compiler does not know.
//!
//! Rules about code look at [`source::Source`], where comments and string contents are blanked, so
//! that a sentence about a mutex is no mutex. They are lexical: what they cannot decide is listed
//! in [`allowed`] with its reason.
//!
//! | file | owns |
//! |---|---|
//! | `rules` | rules about one source file: length, locks, `unsafe`, programs, the engine's door |
//! | `crates` | which crate may depend on which |
//! | `rooms` | the order of rooms inside the engine |
//! | `locks` | the table of locks in the documents |
//! | `docs` | links, headings, paths and width of documents |
//! | `language` | summaries, width of comments, tables of files |
//! | `source` | code without comments and strings |
//! | `allowed` | exceptions, each with its reason, and the lists that rules go by |

mod allowed;
mod crates;
mod docs;
mod language;
mod locks;
mod rooms;
mod rules;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

pub use docs::oldest_rust;
pub use rooms::check_rooms;
use source::Source;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File relative to the workspace.
    pub path: String,
    /// Line counted from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Checks every rule on the workspace at `root`; the findings in path order.
pub fn check(root: &Path) -> Vec<Finding> {
    let mut findings = crates::check(root);
    findings.extend(docs::check(root));
    findings.extend(rooms::check(root));
    let mut files = Vec::new();
    for top in ["crates", "xtask"] {
        rust_files(&root.join(top), &mut files);
    }
    let mut classes = BTreeMap::new();
    for path in files {
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .replace('\\', "/");
        match fs::read_to_string(&path) {
            Ok(text) => {
                findings.extend(check_file(&name, &text));
                classes.extend(locks::classes(&name, &text));
            }
            Err(e) => findings.push(Finding {
                path: name,
                line: 0,
                what: e.to_string(),
            }),
        }
    }
    findings.extend(locks::check(root, &classes));
    findings.sort();
    findings
}

/// Checks the rules about one Rust file; `name` is its path relative to the workspace.
pub fn check_file(name: &str, text: &str) -> Vec<Finding> {
    let source = Source::new(name, text);
    let mut findings = Vec::new();
    for rule in rules::ALL {
        rule(&source, &mut |line, what: String| {
            findings.push(Finding {
                path: name.to_owned(),
                line,
                what,
            });
        });
    }
    findings
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}
