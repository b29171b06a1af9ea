//! Runs the crash sweep, and the mistakes that it must find.

use std::process::{Command, ExitCode};

use crate::{root, run};

/// What `--help` says about `cargo xtask crash`.
pub(crate) const CRASH_HELP: &str = "\
Crash the engine at every write, recover every image, and judge what is there.

Usage: cargo xtask crash [--full] [--minutes N] [--part I/N] [--seed SEED]

Options:
  --full        Every pair of operations, and more images of everything
  --minutes N   Random runs of all kinds for N minutes, and nothing else: small, nearly full and empty file systems,
                threads, direct I/O, discards, a log that wraps
  --part I/N    One of N parts of all pairs of operations, and nothing else: what takes long can be done piece by piece
  --seed SEED   Repeat the run that printed this seed [default: from the clock]

A release build of the tests whose name begins with `crash::`; an ordinary test run does them with smaller
budgets. Prints how many images there were, distinct by hash within a run and over all runs that begin alike; in long
sweeps every minute.";

/// What `--help` says about `cargo xtask mutants`.
pub(crate) const MUTANTS_HELP: &str = "\
Run the engine with one deliberate mistake after the other; the crash sweep must find all of them,
and nothing without one. Prints a table: the mistake, when it was found, what gave it away.

Usage: cargo xtask mutants [MISTAKE] [--seed SEED]";

/// `cargo xtask crash`.
pub(crate) fn crash(args: &[String]) -> ExitCode {
    let mut command = cargo();
    command.args([
        "test",
        "--release",
        "-p",
        "extant-core",
        "--test",
        "it",
        "--",
    ]);
    command.arg("--nocapture");
    let mut filter = "crash::";
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let (name, value) = match arg.as_str() {
            "--full" => ("EXTANT_FULL", Some("1")),
            "--minutes" => ("EXTANT_CRASH_MINUTES", rest.next().map(String::as_str)),
            "--part" => ("EXTANT_CRASH_PART", rest.next().map(String::as_str)),
            "--seed" => ("EXTANT_SEED", rest.next().map(String::as_str)),
            _ => return usage(CRASH_HELP),
        };
        let Some(value) = value else {
            return usage(CRASH_HELP);
        };
        match arg.as_str() {
            "--minutes" => filter = "crash::soak::",
            "--part" => {
                command.env("EXTANT_FULL", "1");
                filter = "crash::runs::pairs";
            }
            _ => {}
        }
        command.env(name, value);
    }
    command.arg(filter);
    run(command)
}

/// `cargo xtask mutants`.
pub(crate) fn mutants(args: &[String]) -> ExitCode {
    let mut command = cargo();
    if std::env::var_os("EXTANT_CHECKER").is_none() {
        // What is left behind is judged by `extant check` too.
        let mut build = cargo();
        build.args(["build", "-p", "extant-cli", "--bin", "extant"]);
        if !build.status().is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        command.env("EXTANT_CHECKER", root().join(target).join("debug/extant"));
    }
    command.args(["test", "-p", "extant-core", "--features", "mutants"]);
    command.args(["--test", "mutants", "--", "--nocapture"]);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match (arg.as_str(), arg.starts_with('-')) {
            ("--seed", _) => match rest.next() {
                Some(seed) => command.env("EXTANT_SEED", seed),
                None => return usage(MUTANTS_HELP),
            },
            (name, false) => command.env("EXTANT_MUTANT", name),
            _ => return usage(MUTANTS_HELP),
        };
    }
    run(command)
}

fn usage(help: &str) -> ExitCode {
    eprintln!("{help}");
    ExitCode::from(2)
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}
