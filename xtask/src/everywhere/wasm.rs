//! The package for JavaScript: the engine for WebAssembly, the page, and both tried.

use super::{Outcome, Site};
use crate::programs::{Done, missing, succeed};
use crate::toolchain::Toolchain;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// The package.
const PACKAGE: &str = "bindings/js";

/// Files of its tests, without those that they stand on.
const TESTS: [&str; 3] = ["image", "docs", "page"];

/// A native command that cargo has made already, to compare with.
const COMMAND: &str = "EXTANT_COMMAND";

/// Most memory of an instance, in bytes: more than its caches and indexes take.
const MEMORY: u64 = 1 << 30;

/// What is not optimised would be compared with, or shipped with its lines.
const PROFILE: [(&str, &str); 2] = [
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_STRIP", "true"),
];

/// Builds the engine and the page, and has Node and Chromium judge them beside the native command.
/// Then measures how fast listing is.
pub(super) fn wasm(site: &Site<'_>) -> Done<Outcome> {
    if !missing(&[("node", "nodejs")]).is_empty() {
        return Ok(Outcome::Skipped("node is not installed".to_owned()));
    }
    let toolchain = Toolchain::find();
    if !toolchain.has(TARGET) {
        return Ok(Outcome::Skipped(format!(
            "the standard library of {TARGET} is not there: rustup target add {TARGET}"
        )));
    }
    let package = site.root.join(PACKAGE);
    let engine = engine(site, &toolchain)?;
    fs::copy(&engine, package.join("extant.wasm"))
        .map_err(|e| format!("{}: {e}", engine.display()))?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(site.root.join(licence), package.join(licence))
            .map_err(|e| format!("{licence}: {e}"))?;
    }
    let place = site.root.join("target/everywhere/wasm");
    fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let page = place.join("extant.html");
    succeed(node(&package).arg("page/build.js").arg(&page))?;
    let command = command(site)?;
    let mut tests = node(&package);
    tests.env(COMMAND, &command).env("EXTANT_PAGE", &page);
    tests.args(["--test", "--test-reporter=tap"]);
    let told = succeed(tests.args(TESTS.map(|name| format!("test/{name}.test.js"))))?;
    for skipped in told.lines().filter(|line| line.contains("SKIPPED: ")) {
        println!("{}", skipped.trim_start_matches("# "));
    }
    let count = |what: &str| {
        let start = format!("# {what} ");
        let line = told.lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|count| count.trim().parse::<u32>().ok())
    };
    let (passed, skipped) = (count("pass").unwrap_or(0), count("skipped").unwrap_or(0));
    if passed == 0 {
        return Err(format!("no test ran:\n{told}"));
    }
    let measured = succeed(node(&package).env(COMMAND, &command).arg("bench.js"))?;
    let measured: Vec<&str> = measured.lines().collect();
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len().div_ceil(1000));
    Ok(Outcome::Passed {
        seen: format!(
            "{passed} tests pass, {skipped} are skipped; the engine has {} kB, the page {} kB; of \
             100,000 files: {}",
            size(&engine),
            size(&page),
            measured.join("; ")
        ),
        versions: format!(
            "{}, Node {}{}",
            site.version(toolchain.cargo(site.root).arg("--version"))?,
            site.version(Command::new("node").arg("--version"))?,
            chromium().map_or_else(String::new, |version| format!(", {version}")),
        ),
    })
}

fn node(package: &Path) -> Command {
    let mut node = Command::new("node");
    node.current_dir(package);
    node
}

/// The version of Chromium, if there is one.
fn chromium() -> Option<String> {
    let mut chromium = Command::new("chromium");
    let version = succeed(chromium.arg("--version")).ok()?;
    Some(version.lines().next()?.trim().to_owned())
}

/// Builds the engine.
fn engine(site: &Site<'_>, toolchain: &Toolchain) -> Done<PathBuf> {
    let built = site.root.join("target/everywhere-cross");
    let mut cargo = toolchain.cargo(site.root);
    cargo.envs(PROFILE).arg("rustc").args(toolchain.arguments());
    cargo.args(["--locked", "--release", "--target", TARGET, "--target-dir"]);
    cargo.arg(&built).args(["-p", "extant-wasm", "--lib"]);
    cargo.args(["--crate-type", "cdylib", "--", "-C"]);
    succeed(cargo.arg(format!("link-arg=--max-memory={MEMORY}")))?;
    Ok(built.join(TARGET).join("release/extant_wasm.wasm"))
}

/// The native command: one that is there already, or a new one.
fn command(site: &Site<'_>) -> Done<PathBuf> {
    if let Some(command) = std::env::var_os(COMMAND) {
        return Ok(command.into());
    }
    let mut cargo = site.cargo();
    succeed(cargo.args(["build", "--release", "--locked", "-p", "extant-cli"]))?;
    Ok(site.root.join("target/release/extant"))
}
