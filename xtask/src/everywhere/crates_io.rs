//! Crates as a registry would have them.

use super::{Outcome, Site};
use crate::programs::{Done, missing, succeed};
use std::fs;
use std::process::Command;
use xtask::tidy::oldest_rust;

/// Every crate that is published, packed and built from its package alone, in the order of their
/// dependencies.
pub(super) fn publish(site: &Site<'_>) -> Done<Outcome> {
    let mut cargo = site.cargo();
    cargo.args(["publish", "--dry-run", "--workspace", "--locked"]);
    // What is not committed would not be in a package.
    let output = cargo
        .arg("--target-dir")
        .arg(site.root.join("target/everywhere"))
        .output()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last: Vec<&str> = text.lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return Err(last.join("\n"));
    }
    let packed = text
        .lines()
        .filter(|l| l.trim_start().starts_with("Packaged "));
    let verified = text
        .lines()
        .filter(|l| l.trim_start().starts_with("Verifying "));
    let (packed, verified) = (packed.count(), verified.count());
    if packed == 0 || packed != verified {
        return Err(format!("{packed} packages, and {verified} of them built"));
    }
    Ok(Outcome::Passed {
        seen: format!("{packed} packages, each built from what is in it"),
        versions: site.version(site.cargo().arg("--version"))?,
    })
}

/// What the oldest Rust builds: the libraries, with all their features but those for tests, the
/// command, and the chores that install it.
const BUILT: &[(&str, &str)] = &[
    (
        "extant",
        "check,formats,io-uring,mend,mkfs,remote,tar,tls,tracing,unstable,verity",
    ),
    ("extant-capi", "formats,remote,tls"),
    ("extant-fuse", ""),
    ("extant-rescue", ""),
    ("extant-serve", ""),
    ("extant-cli", ""),
    ("xtask", ""),
];

/// The libraries and the command with the oldest Rust that they name.
pub(super) fn msrv(site: &Site<'_>) -> Done<Outcome> {
    let manifest = fs::read_to_string(site.root.join("Cargo.toml")).map_err(|e| e.to_string())?;
    let version = oldest_rust(&manifest).ok_or("no rust-version in Cargo.toml")?;
    if !missing(&[("rustup", "rustup")]).is_empty() {
        return Ok(Outcome::Skipped("rustup is not installed".to_owned()));
    }
    let toolchain = format!("{version}.0");
    let cargo = || {
        let mut cargo = Command::new("rustup");
        cargo
            .current_dir(site.root)
            .args(["run", &toolchain, "cargo"]);
        // Those of the compiler that runs the chore.
        cargo
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .env_remove("RUSTC");
        cargo
    };
    let Ok(versions) = site.version(cargo().arg("--version")) else {
        return Ok(Outcome::Skipped(format!(
            "Rust {toolchain} is not installed: rustup toolchain install {toolchain} --profile minimal"
        )));
    };
    for (name, features) in BUILT {
        for features in ["", features] {
            let mut check = cargo();
            check.args(["check", "--locked", "-p", name, "--features", features]);
            succeed(
                check
                    .arg("--target-dir")
                    .arg(site.root.join("target/everywhere-msrv")),
            )?;
        }
    }
    Ok(Outcome::Passed {
        seen: format!(
            "{} crates and all below them, without and with features",
            BUILT.len()
        ),
        versions,
    })
}

/// The API beside that of the last release.
pub(super) fn semver(site: &Site<'_>) -> Done<Outcome> {
    let mut git = Command::new("git");
    git.current_dir(site.root)
        .args(["tag", "--list", "v*", "--sort=-v:refname"]);
    let tags = succeed(&mut git)?;
    let Some(last) = tags.lines().next() else {
        return Ok(Outcome::Skipped(
            "there is no release yet to compare with".to_owned(),
        ));
    };
    let Ok(versions) = site.version(site.cargo().args(["semver-checks", "--version"])) else {
        return Ok(Outcome::Skipped(
            "cargo-semver-checks is not installed: cargo install cargo-semver-checks".to_owned(),
        ));
    };
    let mut check = site.cargo();
    succeed(check.args(["semver-checks", "--workspace", "--baseline-rev", last]))?;
    Ok(Outcome::Passed {
        seen: format!("nothing that breaks since {last}"),
        versions,
    })
}

/// What cargo-deny says where it has no database of advisories.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// `deny.toml`, also by the database of advisories where that can be fetched.
pub(super) fn deny(site: &Site<'_>) -> Done<Outcome> {
    let Ok(versions) = site.version(site.cargo().args(["deny", "--version"])) else {
        return Ok(Outcome::Skipped(
            "cargo-deny is not installed: cargo install --locked cargo-deny".to_owned(),
        ));
    };
    let check = |what: &[&str]| {
        let mut deny = site.cargo();
        deny.args(["deny", "--workspace", "--all-features", "check"]);
        succeed(deny.args(what)).map(drop)
    };
    check(&["licenses", "bans", "sources"])?;
    let seen = with_advisories("licences, bans and sources", check(&["advisories"]))?;
    Ok(Outcome::Passed { seen, versions })
}

/// What was seen, by how the look at advisories ended: without a database none was looked at.
fn with_advisories(others: &str, ended: Done<()>) -> Done<String> {
    match ended {
        Ok(()) => Ok(format!("{others}; advisories")),
        Err(why) if why.contains(NO_DATABASE) => {
            println!("SKIPPED: advisories: {why}");
            Ok(format!(
                "{others}; not: advisories, whose database cannot be fetched"
            ))
        }
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::with_advisories;

    #[test]
    fn an_advisory_fails_and_a_database_that_is_out_of_reach_is_told() {
        let seen =
            |ended: Result<(), &str>| with_advisories("others", ended.map_err(str::to_owned));
        assert_eq!(seen(Ok(())).unwrap(), "others; advisories");
        let unreached = "error: failed to fetch advisory database https://example.org";
        assert!(seen(Err(unreached)).unwrap().contains("not: advisories"));
        assert!(seen(Err("error[vulnerability]: a hole")).is_err());
    }
}
