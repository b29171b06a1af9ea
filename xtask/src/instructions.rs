//! Counts the instructions of single operations and compares them with the recorded counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What `--help` says about `cargo xtask instructions`.
pub(crate) const HELP: &str = "\
Count the instructions of single operations under valgrind (crates/instructions/benches/instructions.rs) and compare
them with instructions.tsv beside it: an operation may grow by 5% at most, a commit, which varies more, by 10%.

Usage: cargo xtask instructions [--record]

Options:
  --record   Write the counts down as the ones to compare with from now on

Counts depend on the compiler, on the processor that valgrind shows to programs (it has a few, and takes the one nearest
to the machine's) and on how many there are, but not on how busy the machine is: where these are others than the counts were
recorded with nothing is compared, and that is said. Needs valgrind; installs gungraun-runner into target/tools the first time.";

/// The one whose version gungraun asks for.
const RUNNER_VERSION: &str = "0.20.0";
const RECORDED: &str = "crates/instructions/benches/instructions.tsv";

/// Growth that fails, in percent.
const MAY_GROW: f64 = 5.0;
/// Growth that fails of what varies by itself from run to run, in percent.
const UNSTEADY: &[(&str, f64)] = &[("commit", 10.0)];

fn may_grow(name: &str) -> f64 {
    let unsteady = UNSTEADY.iter().find(|(n, _)| *n == name);
    unsteady.map_or(MAY_GROW, |(_, percent)| *percent)
}

/// `cargo xtask instructions`.
pub(crate) fn instructions(root: &Path, args: &[String]) -> ExitCode {
    let record = match args {
        [] => false,
        [only] if only == "--record" => true,
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(root, record) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("instructions: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, record: bool) -> Result<bool, String> {
    let path = root.join(RECORDED);
    let recorded = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if record && e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    let valgrind = printed(Command::new("valgrind").arg("--version"))
        .filter(|version| version.starts_with("valgrind-"))
        .ok_or("valgrind is missing: install it (Debian name: valgrind)")?;
    let setting = setting(&valgrind)?;
    if let Some(other) = recorded_with(&recorded).filter(|with| !record && *with != setting) {
        println!(
            "SKIPPED: comparing instructions: they were recorded with {other}, this is {setting}"
        );
        return Ok(true);
    }
    let runner = runner(root)?;
    let output = cargo(root)
        .args(["bench", "--locked", "-p", "extant-instructions"])
        .env("GUNGRAUN_RUNNER", runner)
        .env("CARGO_TERM_COLOR", "never")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("the benchmarks failed\n{text}"));
    }
    let counted = counts(&text);
    if counted.is_empty() {
        return Err(format!("no counts in what the benchmarks printed\n{text}"));
    }
    let good = compare(&counted, &read(&recorded));
    if record {
        std::fs::write(&path, written(&counted, &setting))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        println!("recorded in {RECORDED}");
        return Ok(true);
    }
    Ok(good)
}

/// Prints a line for each operation; whether none grew too much, and each was recorded and counted.
fn compare(counted: &Counts, recorded: &Counts) -> bool {
    let mut good = true;
    println!(
        "{:<19} {:>12} {:>12} {:>8}",
        "operation", "recorded", "counted", "growth"
    );
    for (name, &now) in counted {
        let (before, growth, verdict) = match recorded.get(name) {
            Some(&before) => {
                let before = before.max(1);
                let growth = (now as f64 - before as f64) * 100.0 / before as f64;
                let verdict = if growth > may_grow(name) {
                    "  TOO MUCH"
                } else {
                    ""
                };
                (before.to_string(), format!("{growth:+.1}%"), verdict)
            }
            None => ("-".to_owned(), "-".to_owned(), "  NOT RECORDED"),
        };
        good &= verdict.is_empty();
        println!("{name:<19} {before:>12} {now:>12} {growth:>8}{verdict}");
    }
    for name in recorded.keys().filter(|n| !counted.contains_key(*n)) {
        println!("{name:<19} is recorded but was not counted");
        good = false;
    }
    good
}

/// Instructions by operation.
type Counts = BTreeMap<String, u64>;

/// Reads what gungraun prints: a line that names a benchmark, its path in front, then indented
/// lines of which one begins with `Instructions:` and has this run's count before a bar.
fn counts(printed: &str) -> Counts {
    let mut counts = Counts::new();
    let mut name = None;
    for line in printed.lines() {
        if let Some(figures) = line.trim_start().strip_prefix("Instructions:") {
            let digits: String = figures
                .trim_start()
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            if let (Some(name), Ok(count)) = (name.take(), digits.parse()) {
                counts.insert(name, count);
            }
        } else if !line.starts_with(char::is_whitespace) {
            let path = line.split_whitespace().next().unwrap_or("");
            name = path.rsplit_once("::").map(|(_, last)| last.to_owned());
        }
    }
    counts
}

fn read(recorded: &str) -> Counts {
    recorded
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (name, count) = line.split_once('\t')?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        })
        .collect()
}

fn written(counts: &Counts, setting: &str) -> String {
    let mut text = format!(
        "# Instructions of each benchmark in instructions.rs, all its operations together; written by\n\
         # cargo xtask instructions --record\n\
         {WITH}{setting}\n"
    );
    for (name, count) in counts {
        text.push_str(&format!("{name}\t{count}\n"));
    }
    text
}

/// Begins the line that names compiler and processor.
const WITH: &str = "# with ";

fn recorded_with(recorded: &str) -> Option<&str> {
    recorded.lines().find_map(|line| line.strip_prefix(WITH))
}

/// What counts depend on: the compiler that builds the benchmarks; the processor that they find, by
/// which the C library chooses how to copy and clear memory; and how many processors there are, for
/// each of which the engine keeps something.
fn setting(valgrind: &str) -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiler = printed(Command::new(rustc).arg("--version")).ok_or("cannot start rustc")?;
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let shown = shown_by_valgrind(&cpus);
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(format!("{compiler}, {valgrind} on {count} x {shown}"))
}

/// Which processor programs find under valgrind on a machine with these: whatever the machine's is
/// called, valgrind answers for one of its own, by what the machine can do (`CPUID` in VEX).
fn shown_by_valgrind(cpuinfo: &str) -> String {
    let flags = cpuinfo.lines().find_map(|line| {
        let (name, flags) = line.split_once(':')?;
        (name.trim() == "flags").then_some(flags)
    });
    let flags: Vec<&str> = flags.unwrap_or_default().split_whitespace().collect();
    let decides = ["avx2", "avx", "cx16", "f16c", "rdrand", "rdseed"];
    let has: Vec<&str> = decides.into_iter().filter(|d| flags.contains(d)).collect();
    format!("{} {}", std::env::consts::ARCH, has.join(" "))
}

/// The program that gungraun's benchmarks start, of the version they ask for.
fn runner(root: &Path) -> Result<PathBuf, String> {
    let tools = root.join("target/tools");
    let runner = tools.join("bin/gungraun-runner");
    let found = printed(Command::new(&runner).arg("--version"));
    if !found.is_some_and(|version| version.contains(RUNNER_VERSION)) {
        println!("installing gungraun-runner {RUNNER_VERSION} into target/tools");
        let status = cargo(root)
            // It starts valgrind and reads what that wrote: to optimise it takes longer than that.
            .args(["install", "--quiet", "--locked", "--debug"])
            .args(["gungraun-runner", "--version"])
            .arg(RUNNER_VERSION)
            .arg("--root")
            .arg(&tools)
            .status()
            .map_err(|e| format!("cannot start cargo: {e}"))?;
        if !status.success() {
            return Err("gungraun-runner cannot be installed".to_owned());
        }
    }
    Ok(runner)
}

/// What a program prints, if it runs and succeeds.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
instructions::operations::create scene:scene(1)
  Instructions:                      220000|N/A                  (*********)
  L1 Hits:                             2359|N/A                  (*********)
instructions::operations::stat scene:scene(1)
  Instructions:                        1734|1700                 (+2.00000%) [+1.02000x]

Gungraun result: Ok. 2 without regressions; 0 regressed; 0 filtered; 2 benchmarks finished in 0.49333s
";

    fn counted(create: u64, stat: u64) -> Counts {
        [("create".to_owned(), create), ("stat".to_owned(), stat)].into()
    }

    #[test]
    fn counts_are_read_from_what_the_benchmarks_print() {
        assert_eq!(counts(PRINTED), counted(220_000, 1734));
    }

    #[test]
    fn machines_are_told_apart_by_what_valgrind_makes_of_them() {
        let shown = |name: &str, flags: &str| {
            shown_by_valgrind(&format!(
                "processor : 0\nmodel name : {name}\nflags : {flags}\n"
            ))
        };
        let one = shown("One", "fpu cx16 avx f16c rdrand avx2 rdseed avx512f");
        assert_eq!(one, shown("Other", "cx16 rdrand avx avx2 rdseed f16c"));
        assert_ne!(one, shown("One", "fpu cx16 avx f16c rdrand rdseed"));
        assert!(one.ends_with(" avx2 avx cx16 f16c rdrand rdseed"), "{one}");
    }

    #[test]
    fn what_is_recorded_reads_back() {
        let text = written(&counted(5, 7), "rustc 1.0");
        assert_eq!(read(&text), counted(5, 7));
        assert_eq!(recorded_with(&text), Some("rustc 1.0"));
    }

    #[test]
    fn growth_beyond_the_limit_and_operations_that_come_or_go_are_found() {
        let recorded = counted(1000, 1000);
        assert!(compare(&counted(1050, 10), &recorded));
        assert!(!compare(&counted(1051, 1000), &recorded));
        assert!(!compare(&counted(1000, 1000), &Counts::new()));
        assert!(!compare(&Counts::new(), &recorded));
    }
}
