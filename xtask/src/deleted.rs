//! `cargo xtask deleted`: files that Linux wrote, removed and partly overwrote, and how many of
//! them come back; recorded in `docs/dev/conformance.md`.

use crate::programs::{succeed, system};
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

const BEGIN: &str = "<!-- deleted:begin -->";
const END: &str = "<!-- deleted:end -->";

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

fn run(root: &Path, files: &str, seed: Option<&str>, record: bool) -> Result<(), String> {
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
    let text = format!("{}\n{}", machine(root)?, with_head(&rows));
    println!("{text}");
    if !record {
        return Ok(());
    }
    let page = root.join("docs/dev/conformance.md");
    let old = fs::read_to_string(&page).map_err(|e| e.to_string())?;
    let new = replaced(&old, &text).ok_or("the page has no place for the table")?;
    fs::write(&page, new).map_err(|e| e.to_string())
}

fn with_head(rows: &str) -> String {
    format!(
        "| image | what happened | found | whole, and right | likely, and right | extundelete | ext4magic -M | ext4magic -R |\n\
         |---|---|---|---|---|---|---|---|\n{rows}"
    )
}

/// When it was, and what ran.
fn machine(root: &Path) -> Result<String, String> {
    let first = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    let date = first(succeed(Command::new("date").arg("+%Y-%m-%d"))?);
    let kernel = first(succeed(Command::new("uname").arg("-r"))?);
    let mut git = Command::new("git");
    let build = first(succeed(git.current_dir(root).args([
        "rev-parse",
        "--short",
        "HEAD",
    ]))?);
    let version = |package: &str| {
        let mut query = system("dpkg-query");
        let found = succeed(query.args(["-W", "-f", "${Version}", package]));
        found.map_or_else(|_| "not installed".to_owned(), first)
    };
    let others =
        ["extundelete", "ext4magic", "e2fsprogs"].map(|name| format!("{name} {}", version(name)));
    Ok(format!(
        "{date}, Linux {kernel}, build {build}, {}.\n",
        others.join(", ")
    ))
}

/// The page with another table between its marks.
fn replaced(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, replaced};

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&page, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert_eq!(replaced("a\nb\n", "new\n"), None);
    }
}
