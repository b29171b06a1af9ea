//! Licences of what is linked into the program: the notices that its libraries ask to be passed on.

use crate::programs::{Done, succeed};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders below a package in which the sources of others lie.
const DEEPEST: usize = 3;

/// What musl asks for, which is in programs for its targets.
const MUSL: &str = "\
musl as a whole is licensed under the MIT license. Copyright (c) 2005-2020 Rich Felker, et al.
Its text is that of LICENSE-MIT, with this notice.
";

/// All notices, for the program as it is built for a target with these features.
pub(super) fn all(
    mut cargo: impl FnMut() -> Command,
    target: &str,
    features: &[String],
) -> Done<String> {
    let mut tree = cargo();
    tree.args([
        "tree",
        "-p",
        "extant-cli",
        "-e",
        "normal",
        "--prefix",
        "none",
    ]);
    tree.args(["--locked", "--format", "{p}\t{l}", "--target", target]);
    let tree = succeed(tree.args(features))?;
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--locked"]);
    let folders = folders(&succeed(&mut metadata)?);
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut list = String::new();
    for (name, version, licence) in libraries(&tree) {
        let called = format!("{name}-{version}");
        let _ = writeln!(list, "{name} {version}: {licence}");
        let folder = folders.get(&called).ok_or(format!(
            "the sources of {called} are not there: cargo fetch"
        ))?;
        let mut found = Vec::new();
        notices(folder, 0, &mut found)?;
        for text in found {
            texts
                .entry(text)
                .or_default()
                .insert(format!("{name} {version}"));
        }
    }
    if list.is_empty() {
        return Err("no library is in the program".to_owned());
    }
    let mut all = format!(
        "Libraries in the program, and the licences under which each can be taken:\n\n{list}\
         Rust's standard library: MIT OR Apache-2.0 (https://www.rust-lang.org)\n"
    );
    if target.contains("-musl") {
        let _ = write!(all, "\n{MUSL}");
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    for (text, names) in texts {
        let names: Vec<String> = names.into_iter().collect();
        let _ = write!(all, "\n{}\n{}\n\n{text}", "=".repeat(80), names.join(", "));
    }
    Ok(all)
}

/// Name, version and licences of the libraries of others that `cargo tree` lists.
fn libraries(tree: &str) -> BTreeSet<(&str, &str, &str)> {
    let lines = tree.lines().filter_map(|line| {
        let (package, licence) = line.split_once('\t')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        // A path stands behind what is ours; what only compilers load is not in the program.
        let is_linked = words.next().is_none_or(|word| word == "(*)");
        is_linked.then(|| (name, version, licence.trim_end_matches(" (*)")))
    });
    lines.collect()
}

/// Where the sources of each package are, by its name and version.
fn folders(metadata: &str) -> BTreeMap<String, PathBuf> {
    let paths = metadata.split("\"manifest_path\":\"").skip(1);
    let folders = paths.filter_map(|rest| {
        let folder = Path::new(rest.split('"').next()?).parent()?;
        Some((folder.file_name()?.to_str()?.to_owned(), folder.to_owned()))
    });
    folders.collect()
}

/// Adds the texts of licences and notices in a folder and in those below it.
fn notices(folder: &Path, depth: usize, found: &mut Vec<String>) -> Done<()> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut entries: Vec<_> = fs::read_dir(folder)
        .map_err(failed)?
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
        if kind.is_dir() {
            if depth < DEEPEST {
                notices(&path, depth + 1, found)?;
            }
        } else if kind.is_file() && is_notice(&entry.file_name().to_string_lossy()) {
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            found.push(tidied(&String::from_utf8_lossy(&bytes)));
        }
    }
    Ok(())
}

/// Whether a file says under which terms something may be used. Terms of the GPL are those of
/// programs beside the libraries, which are not used.
fn is_notice(name: &str) -> bool {
    let name = name.to_uppercase();
    let begins = [
        "LICENSE",
        "LICENCE",
        "COPYING",
        "NOTICE",
        "COPYRIGHT",
        "UNLICENSE",
    ];
    let is_code = [".RS", ".C", ".H", ".PY", ".TOML", ".JSON", ".HTML"];
    begins.iter().any(|word| name.starts_with(word))
        && !is_code.iter().any(|end| name.ends_with(end))
        && !name.contains("GPL")
}

/// A text without differences that cannot be seen.
fn tidied(text: &str) -> String {
    let lines: Vec<&str> = text
        .trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim_end)
        .collect();
    format!("{}\n", lines.join("\n").trim_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::{folders, is_notice, libraries, tidied};

    #[test]
    fn what_is_linked_is_listed_once() {
        let tree = "extant-cli v0.1.0 (/src/crates/cli)\tMIT\nclap v4.6.1\tMIT OR Apache-2.0\n\
                    derive v1.0.0 (proc-macro)\tMIT\nring v0.17.1\tISC\nclap v4.6.1\tMIT OR Apache-2.0 (*)\n\
                    ring v0.17.1 (*)\tISC\n";
        let libraries: Vec<_> = libraries(tree).into_iter().collect();
        assert_eq!(
            libraries,
            [
                ("clap", "4.6.1", "MIT OR Apache-2.0"),
                ("ring", "0.17.1", "ISC")
            ]
        );
    }

    #[test]
    fn sources_are_found_by_name_and_version() {
        let metadata = "{\"name\":\"clap\",\"manifest_path\":\"/r/clap-4.6.1/Cargo.toml\",\"x\":1}";
        let folders = folders(metadata);
        assert_eq!(folders["clap-4.6.1"].to_str(), Some("/r/clap-4.6.1"));
    }

    #[test]
    fn licences_are_told_from_code_and_from_terms_of_others() {
        for name in [
            "LICENSE",
            "license-mit",
            "COPYING",
            "NOTICE.md",
            "LICENSE.APACHE2",
        ] {
            assert!(is_notice(name), "{name}");
        }
        for name in ["license.rs", "COPYING.GPLv2", "README", "licenses.html"] {
            assert!(!is_notice(name), "{name}");
        }
        assert_eq!(tidied("\u{feff}\na \r\n b\n\n\n"), "a\n b\n");
    }
}
