//! Runs the tests that look for races: under model checkers and under the thread sanitizer.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// What `--help` says about `cargo xtask model`.
pub(crate) const MODEL_HELP: &str = "\
Run the tests in which a model checker runs the threads: loom goes through every schedule of small
cases, with weak memory; shuttle samples schedules of larger ones.

Usage: cargo xtask model [loom|shuttle] [--schedules N] [--seed SEED] [FILTER]

Options:
  --schedules N   Schedules of each kind and shuttle test [default: 1000,
                  for the engine 200]
  --seed SEED     Repeat the shuttle run that printed this seed [default: from the clock]
  FILTER          Only tests whose name contains it

LOOM_MAX_PREEMPTIONS=N sets how often loom interrupts threads in all cases.";

/// What `--help` says about `cargo xtask tsan`.
pub(crate) const TSAN_HELP: &str = "\
Run the tests with many threads under the thread sanitizer, which reports accesses that are not ordered.
Needs the nightly toolchain with rust-src; builds everything anew, in target/tsan.

Usage: cargo xtask tsan [PACKAGE] [FILTER]";

/// Tests that a model checker runs: checker, package with a test target of that name, which needs
/// the feature of that name, and how many schedules it goes through unless the caller says.
const MODELS: &[(&str, &str, &str)] = &[
    ("loom", "extant-sync", "1000"),
    ("shuttle", "extant-sync", "1000"),
    ("shuttle", "extant-blockdev", "1000"),
    // A whole file system is made and checked for each.
    ("shuttle", "extant-core", "200"),
];

/// Tests that run under the thread sanitizer.
const SANITIZED: &[Sanitized] = &[
    Sanitized {
        package: "extant-sync",
        target: "it",
        filters: &[],
    },
    Sanitized {
        package: "extant-blockdev",
        target: "it",
        filters: &["direct_io::", "files::", "memory::", "uring::"],
    },
    Sanitized {
        package: "extant-store",
        target: LIBRARY,
        filters: &["thread"],
    },
    Sanitized {
        package: "extant-core",
        target: LIBRARY,
        filters: &["thread"],
    },
    Sanitized {
        package: "extant-core",
        target: "it",
        filters: &[
            "threads::",
            "memory::",
            "many_threads",
            "eight_threads",
            "names_are_found_while",
        ],
    },
    Sanitized {
        package: "extant",
        target: "it",
        filters: &[
            "stress::",
            "callers::",
            "casefold::",
            "claiming::",
            "direct_io::",
            "files::",
            "out_of_space::",
            "freeze::",
            "reserved_blocks::",
            "walking::",
        ],
    },
];

/// The target that is the library with its own tests.
const LIBRARY: &str = "lib";

struct Sanitized {
    package: &'static str,
    target: &'static str,
    /// Names of tests contain one of these; none for all tests.
    filters: &'static [&'static str],
}

/// `cargo xtask model`.
pub(crate) fn model(root: &Path, args: &[String]) -> ExitCode {
    let (mut checker, mut filter) = (None, None);
    let mut environment = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let variable = match arg.as_str() {
            "--schedules" => "EXTANT_SCHEDULES",
            "--seed" => "EXTANT_SEED",
            name if MODELS.iter().any(|(known, ..)| *known == name) => {
                checker = Some(name);
                continue;
            }
            name if !name.starts_with('-') && filter.is_none() => {
                filter = Some(name);
                continue;
            }
            _ => return usage(MODEL_HELP),
        };
        let Some(value) = rest.next().filter(|v| v.parse::<u64>().is_ok()) else {
            return usage(MODEL_HELP);
        };
        environment.push((variable, value));
    }
    let chosen = MODELS
        .iter()
        .filter(|(name, ..)| checker.is_none_or(|c| c == *name));
    for (checker, package, schedules) in chosen {
        println!("{checker}: {package}");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root).args(["test", "--locked"]);
        // One package alone: built together with others, its features would become theirs.
        cargo.args(["-p", package, "--features", checker, "--test", checker]);
        cargo.arg("--").args(filter);
        cargo.env("EXTANT_SCHEDULES", schedules);
        cargo.envs(environment.iter().copied());
        if !succeeds(&mut cargo) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// `cargo xtask tsan`.
pub(crate) fn tsan(root: &Path, args: &[String]) -> ExitCode {
    if args.iter().any(|a| a.starts_with('-')) || args.len() > 2 {
        return usage(TSAN_HELP);
    }
    let package = args.first().map(String::as_str);
    let filter = args.get(1).map(String::as_str);
    if let Err(missing) = find_nightly() {
        eprintln!("tsan: {missing}");
        return ExitCode::FAILURE;
    }
    let mut ran = false;
    for suite in SANITIZED {
        if package.is_some_and(|p| p != suite.package) {
            continue;
        }
        ran = true;
        println!("tsan: {} {}", suite.package, suite.target);
        let mut cargo = nightly_cargo();
        cargo.current_dir(root).args(["test", "--locked"]);
        // The standard library too, or what it orders goes unseen.
        cargo.arg("-Zbuild-std");
        cargo.args(["--target", &target(), "--target-dir", "target/tsan"]);
        cargo.args(["-p", suite.package]);
        match suite.target {
            LIBRARY => cargo.arg("--lib"),
            test => cargo.args(["--test", test]),
        };
        cargo.arg("--");
        match filter {
            Some(filter) => cargo.arg(filter),
            None => cargo.args(suite.filters),
        };
        cargo.env(
            "RUSTFLAGS",
            "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        );
        if !succeeds(&mut cargo) {
            return ExitCode::FAILURE;
        }
    }
    if !ran {
        eprintln!("tsan: no tests are listed for {}", package.unwrap_or("it"));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// This machine as a compilation target.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The nightly toolchain's cargo, whatever toolchain runs this.
fn nightly_cargo() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]);
    for inherited in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(inherited);
    }
    command
}

/// Says what to install when something is missing.
fn find_nightly() -> Result<(), String> {
    let no_rustup = "rustup is missing: install it (https://rustup.rs)";
    let nightly = nightly_cargo()
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|_| no_rustup)?;
    if !nightly.success() {
        return Err("the nightly toolchain is missing: \
             rustup toolchain install nightly --component rust-src"
            .to_owned());
    }
    let components = Command::new("rustup")
        .args(["+nightly", "component", "list", "--installed"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .output()
        .map_err(|_| no_rustup)?;
    if !String::from_utf8_lossy(&components.stdout).contains("rust-src") {
        return Err("the sources of the nightly standard library are missing: \
             rustup component add rust-src --toolchain nightly"
            .to_owned());
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(e) => {
            eprintln!("cannot start {command:?}: {e}");
            false
        }
    }
}

fn usage(help: &str) -> ExitCode {
    eprintln!("{help}");
    ExitCode::from(2)
}
