//! `cargo xtask deleted`: files that Linux wrote, removed and partly overwrote, and how many of
//! them come back; recorded in `docs/dev/conformance.md`.

use crate::programs::Done;
use crate::record;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
Files that Linux writes, removes and partly overwrites: how many are found, how many come back as they were, and
how many of those that are told to be whole are. Other programs do the same beside (extundelete, ext4magic).

Usage: cargo xtask deleted [--files N] [--seed SEED] [--record]

Options:
  --files N     How many files [default: 500]
  --seed SEED   Repeat the run that printed this seed [default: from the clock]
  --record      Write the table into docs/dev/conformance.md

It needs root, and loop devices. An ordinary test run does the same with fewer files, without the others.";

pub(crate) fn deleted(root: &Path, args: &[String]) -> ExitCode {
    let (mut files, mut seed, mut record) = (String::from("500"), None, false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let known = match arg.as_str() {
            "--files" => rest.next().map(|n| files.clone_from(n)).is_some(),
            "--seed" => rest.next().map(|s| seed = Some(s.clone())).is_some(),
            "--record" => {
                record = true;
                true
            }
            _ => false,
        };
        if !known || files.parse::<u32>().is_err() {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    }
    match run(root, &files, seed.as_deref(), record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("deleted: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, files: &str, seed: Option<&str>, record: bool) -> Done<()> {
    let table = root.join("target/deleted-files");
    let _ = fs::remove_file(&table);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo.args(["test", "-p", "extant-rescue", "--test", "it"]);
    cargo.args(["workload::what_is_told", "--", "--nocapture"]);
    cargo.env("EXTANT_DELETED_FILES", files);
    cargo.env("EXTANT_DELETED_TABLE", &table);
    // A run that leaves the test out would say nothing.
    cargo.env("EXTANT_REQUIRE_FACILITIES", "1");
    if let Some(seed) = seed {
        cargo.env("EXTANT_SEED", seed);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    cargo.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(format!("the run failed: {status}")),
        Err(e) => return Err(format!("cannot start {cargo:?}: {e}")),
    }
    let rows = fs::read_to_string(&table).map_err(|e| format!("no table was written: {e}"))?;
    let packages = ["extundelete", "ext4magic", "e2fsprogs"];
    let machine = record::machine(root, &packages)?;
    let text = format!("{machine}\n{}", with_head(&rows));
    println!("{text}");
    if record {
        record::write(root, "deleted", &text)?;
    }
    Ok(())
}

fn with_head(rows: &str) -> String {
    format!(
        "| image | what happened | found | whole, and right | likely, and right | extundelete | ext4magic -M | ext4magic -R |\n\
         |---|---|---|---|---|---|---|---|\n{rows}"
    )
}
