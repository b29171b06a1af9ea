//! Tells the program what it was built of, for `extant --version`: target, features, commit.
//!
//! The commit is what `EXTANT_COMMIT` says, or what the package from a registry carries, or that of
//! the checkout. Where there is none of these it is not known, which is no error. Debug builds name
//! no commit of a checkout: each commit would have all tests of the command built again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=EXTANT_TARGET={target}");
    println!("cargo::rustc-env=EXTANT_FEATURES={}", features());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EXTANT_COMMIT");
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commit = said().or_else(|| packaged(&package)).or_else(|| {
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        is_release.then(|| checked_out(&package)).flatten()
    });
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=EXTANT_COMMIT={commit}");
}

/// The features that are on, in the order of their names.
fn features() -> String {
    let names = env::vars_os().filter_map(|(name, _)| {
        let name = name.into_string().ok()?;
        let name = name.strip_prefix("CARGO_FEATURE_")?.to_lowercase();
        (name != "default").then(|| name.replace('_', "-"))
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    if names.is_empty() {
        names.push("none".to_owned());
    }
    names.join(" ")
}

/// What the environment says.
fn said() -> Option<String> {
    let commit = env::var("EXTANT_COMMIT").ok()?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-.+".contains(c);
    (!commit.is_empty() && commit.chars().all(is_word)).then_some(commit)
}

/// What cargo has put into a package, as JSON.
fn packaged(package: &Path) -> Option<String> {
    let text = fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, after) = text.split_once("\"sha1\"")?;
    let commit = short(after.split('"').nth(1)?)?;
    let dirty = if after.contains("\"dirty\": true") {
        "-dirty"
    } else {
        ""
    };
    Some(format!("{commit}{dirty}"))
}

/// The commit of the project's own checkout, not of one that this package was copied into.
fn checked_out(package: &Path) -> Option<String> {
    if !package.ends_with("crates/cli") {
        return None;
    }
    let link = package.join("../../.git");
    // In another work tree it is a file with the place.
    let (own, shared) = match fs::read_to_string(&link) {
        Ok(text) => {
            let own = PathBuf::from(text.strip_prefix("gitdir: ")?.trim());
            let shared = own.join(fs::read_to_string(own.join("commondir")).ok()?.trim());
            (own, shared)
        }
        Err(_) => (link.clone(), link),
    };
    // It grows with each commit, wherever that is kept.
    let _ = watched(&own.join("logs/HEAD"));
    let head = watched(&own.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return short(head.trim());
    };
    if let Some(commit) = watched(&shared.join(name)) {
        return short(commit.trim());
    }
    let packed = watched(&shared.join("packed-refs"))?;
    let line = packed.lines().find(|line| line.ends_with(name))?;
    short(line.split(' ').next()?)
}

/// A file that has the package built again when it changes.
fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}

/// A commit by as much of its name as people read.
fn short(commit: &str) -> Option<String> {
    let is_commit = commit.len() >= 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    is_commit.then(|| commit[..12].to_owned())
}
