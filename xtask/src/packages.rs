//! `cargo xtask packages`: what a registry would get, and what that depends on.

use crate::programs::{Done, succeed};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
What a registry would get, and what that depends on: files of each package, their sizes, licences and sources of all
dependencies beside deny.toml, and how many dependencies the library has without features.

Usage: cargo xtask packages

Prints one line per finding and exits with 1 when there is any. `cargo xtask everywhere` builds the packages.";

/// Packages that `extant` may bring into a program without features, those of the project included.
const MOST_DEPENDENCIES: usize = 35;
/// Bytes of a package before it is compressed.
const MOST_BYTES: u64 = 4 << 20;
/// Bytes of one file of a package.
const MOST_BYTES_OF_FILE: u64 = 128 << 10;
/// What packages consist of, beside what cargo adds.
const BELONGS: &[&str] = &["src/", "examples/", "include/", "man/"];
const BELONGS_ALONE: &[&str] = &[
    ".cargo_vcs_info.json",
    "Cargo.lock",
    "Cargo.toml",
    "Cargo.toml.orig",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "build.rs",
    // The symbols of the shared C library, by version.
    "extant.map",
];
/// What no package is without.
const NEEDED: &[&str] = &["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
/// What a header is installed with.
const NEEDED_FOR_C: &[&str] = &["extant.map", "man/extant.3"];

/// The chore.
pub(crate) fn packages(root: &Path) -> ExitCode {
    let mut findings = Vec::new();
    let done = licences(root, &mut findings)
        .and_then(|()| lists(root, &mut findings))
        .and_then(|packed| Ok((packed, dependencies(root, &mut findings)?)));
    for finding in &findings {
        println!("{finding}");
    }
    match done {
        Ok((packed, count)) if findings.is_empty() => {
            println!("{packed} packages; extant without features has {count} dependencies");
            ExitCode::SUCCESS
        }
        Ok(_) => {
            println!("{} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn cargo(root: &Path, args: &[&str]) -> Done<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    succeed(cargo.current_dir(root).args(args))
}

/// The names of crates that are published, each with its folder.
fn published(root: &Path) -> Done<Vec<(String, std::path::PathBuf)>> {
    let folders = fs::read_dir(root.join("crates")).map_err(|e| format!("crates: {e}"))?;
    let mut found = Vec::new();
    for folder in folders.flatten().map(|entry| entry.path()) {
        let manifest = folder.join("Cargo.toml");
        let text =
            fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
        let name = text.lines().find_map(|line| line.strip_prefix("name = "));
        let name = name.ok_or(format!("{} has no name", manifest.display()))?;
        if !text.lines().any(|line| line == "publish = false") {
            found.push((name.trim_matches('"').to_owned(), folder));
        }
    }
    found.sort();
    Ok(found)
}

/// Looks at the files of each package; gives how many there are.
fn lists(root: &Path, findings: &mut Vec<String>) -> Done<usize> {
    let published = published(root)?;
    for (name, folder) in &published {
        let list = cargo(
            root,
            &["package", "--list", "--allow-dirty", "--locked", "-p", name],
        )?;
        let mut all = 0;
        for file in list.lines() {
            let len = fs::metadata(folder.join(file)).map_or(0, |found| found.len());
            all += len;
            let belongs = BELONGS.iter().any(|folder| file.starts_with(folder))
                || BELONGS_ALONE.contains(&file);
            if !belongs {
                findings.push(format!("{name}: {file} does not belong into the package"));
            }
            if len > MOST_BYTES_OF_FILE && !file.starts_with("Cargo.") {
                findings.push(format!("{name}: {file} has {len} bytes"));
            }
        }
        if all > MOST_BYTES {
            findings.push(format!("{name}: the package has {all} bytes"));
        }
        let is_for_c = list.lines().any(|file| file.starts_with("include/"));
        let of_c: &[&str] = if is_for_c { NEEDED_FOR_C } else { &[] };
        for needed in NEEDED.iter().chain(of_c) {
            if !list.lines().any(|file| file == *needed) {
                findings.push(format!("{name}: {needed} is not in the package"));
            }
        }
    }
    Ok(published.len())
}

/// Counts what `extant` brings into a program without features.
fn dependencies(root: &Path, findings: &mut Vec<String>) -> Done<usize> {
    let tree = [
        "tree", "-p", "extant", "-e", "normal", "--prefix", "none", "--locked",
    ];
    let tree = cargo(root, &[&tree[..], &["--format", "{p}"]].concat())?;
    let all: BTreeSet<&str> = tree
        .lines()
        .map(package)
        .filter(|p| !p.is_empty())
        .collect();
    // The crate itself is none.
    let count = all.len().saturating_sub(1);
    if count > MOST_DEPENDENCIES {
        findings.push(format!(
            "extant has {count} dependencies without features, at most {MOST_DEPENDENCIES} are allowed"
        ));
    }
    Ok(count)
}

/// The package of a line of `cargo tree`, which marks what it has shown before.
fn package(line: &str) -> &str {
    line.trim().trim_end_matches(" (*)")
}

/// Compares licences and sources of all dependencies with `deny.toml`.
fn licences(root: &Path, findings: &mut Vec<String>) -> Done<()> {
    let text = fs::read_to_string(root.join("deny.toml")).map_err(|e| format!("deny.toml: {e}"))?;
    let rules = Rules::read(&text)?;
    let tree = [
        "tree",
        "--workspace",
        "--all-features",
        "--target",
        "all",
        "-e",
        "normal,build,dev",
    ];
    let form = ["--prefix", "none", "--locked", "--format", "{p}\t{l}"];
    let tree = cargo(root, &[&tree[..], &form[..]].concat())?;
    let lines: BTreeSet<&str> = tree
        .lines()
        .map(package)
        .filter(|l| !l.is_empty())
        .collect();
    for line in lines {
        let (package, licence) = line.split_once('\t').unwrap_or((line, ""));
        let name = package.split(' ').next().unwrap_or_default();
        let licence = licence.trim_end_matches(" (*)");
        if !rules.allow(name, licence) {
            findings.push(format!(
                "{package}: deny.toml does not allow the licence {licence:?}"
            ));
        }
        // A package of a registry has no place behind its version, one of the workspace a path.
        let is_ours = package.contains(&format!("({}", root.display()));
        if package.contains(" (") && !is_ours && !package.ends_with("(proc-macro)") {
            findings.push(format!("{package}: comes from no registry"));
        }
    }
    Ok(())
}

/// What `deny.toml` allows.
struct Rules {
    allowed: Vec<String>,
    /// Crates, each with a licence that it alone may have.
    exceptions: Vec<(String, String)>,
}

impl Rules {
    /// Reads the part about licences as it is written here.
    fn read(text: &str) -> Done<Self> {
        let part = text.split("[licenses]").nth(1);
        let part = part.and_then(|part| part.split("\n[").next());
        let part = part.ok_or("deny.toml has no [licenses]")?;
        let (allow, exceptions) = part.split_once("exceptions").unwrap_or((part, ""));
        let strings = |line: &str| -> Vec<String> {
            line.split('"')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        let lines = |text: &str| -> Vec<Vec<String>> {
            let lines = text.lines().map(str::trim);
            lines
                .filter(|line| !line.starts_with('#'))
                .map(strings)
                .collect()
        };
        let allowed: Vec<String> = lines(allow).concat();
        if allowed.is_empty() {
            return Err("deny.toml allows no licence".to_owned());
        }
        let exceptions = lines(exceptions).into_iter().filter_map(|mut line| {
            let licence = line.pop()?;
            Some((line.pop()?, licence))
        });
        Ok(Self {
            allowed,
            exceptions: exceptions.collect(),
        })
    }

    /// Whether a crate may have what its licence expression says.
    fn allow(&self, name: &str, expression: &str) -> bool {
        let is_allowed = |licence: &str| {
            let own = |(krate, only): &(String, String)| krate == name && only == licence;
            self.allowed.iter().any(|one| one == licence) || self.exceptions.iter().any(own)
        };
        let expression = expression
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let words: Vec<&str> = expression.split_whitespace().collect();
        let mut at = 0;
        either(&words, &mut at, &is_allowed) == Some(true) && at == words.len()
    }
}

/// Reads alternatives of an SPDX expression; whether one of them is allowed.
fn either(words: &[&str], at: &mut usize, is_allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut any = both(words, at, is_allowed)?;
    while is_word(words, *at, "OR") {
        *at += 1;
        any |= both(words, at, is_allowed)?;
    }
    Some(any)
}

/// Whether an operator comes next, which some write in small letters.
fn is_word(words: &[&str], at: usize, word: &str) -> bool {
    words
        .get(at)
        .is_some_and(|own| own.eq_ignore_ascii_case(word))
}

fn both(words: &[&str], at: &mut usize, is_allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut all = one(words, at, is_allowed)?;
    while is_word(words, *at, "AND") {
        *at += 1;
        all &= one(words, at, is_allowed)?;
    }
    Some(all)
}

fn one(words: &[&str], at: &mut usize, is_allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let word = words.get(*at)?;
    *at += 1;
    if *word == "(" {
        let inner = either(words, at, is_allowed)?;
        let closes = words.get(*at) == Some(&")");
        *at += 1;
        return closes.then_some(inner);
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1)?;
        *at += 2;
        return Some(is_allowed(&format!("{word} WITH {exception}")));
    }
    Some(is_allowed(word))
}

#[cfg(test)]
mod tests {
    use super::Rules;

    fn rules() -> Rules {
        let text = "# x\n[licenses]\nallow = [\n    \"MIT\",\n    \"Apache-2.0 WITH LLVM-exception\",\n]\n\
                    # y \"GPL-3.0\"\nexceptions = [\n    { crate = \"list\", allow = [\"CDLA\"] },\n]\n\
                    \n[bans]\nwildcards = \"allow\"\n";
        Rules::read(text).unwrap()
    }

    #[test]
    fn an_expression_is_allowed_where_one_way_to_take_it_is() {
        let rules = rules();
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0 or MIT", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0 OR MIT AND CDLA", false),
            ("(GPL-3.0 OR MIT) AND MIT", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("CDLA", false),
            ("", false),
            ("(MIT", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(rules.allow("some", expression), expected, "{expression}");
        }
        assert!(rules.allow("list", "CDLA"));
    }

    #[test]
    fn the_workspace_has_rules() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap();
        let text = std::fs::read_to_string(root.join("deny.toml")).unwrap();
        let rules = Rules::read(&text).unwrap();
        assert!(rules.allow("any", "MIT OR Apache-2.0"));
        assert!(!rules.allow("any", "GPL-2.0-only"));
        assert!(!rules.exceptions.is_empty());
    }
}
