//! Chores of the workspace: `cargo xtask tidy`, `test`, `model`, `tsan`, `hostile`, `crash`,
//! `mutants`, `instructions`, `conformance`, `cluster`, `soak`, `chains`, `geometry`, `verity`,
//! `deleted`, `vm`, `boot`, `builders`, `everywhere`, `packages`, `install`, `dist`.

mod boot;
mod builders;
mod cluster;
mod concurrency;
mod conformance;
mod crash;
mod debian;
mod deleted;
mod dist;
mod everywhere;
mod guest;
mod instructions;
mod packages;
mod programs;
mod record;
mod toolchain;
mod verity;
mod vm;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Chores of the workspace.

Usage: cargo xtask <CHORE> [OPTIONS]

Chores:
  tidy      Check the house rules the compiler does not know
  test      The whole test run (scripts/test.sh)
  model     The tests that a model checker runs (loom, shuttle)
  tsan      The tests with many threads under the thread sanitizer
  hostile   Open, walk and read many mutated images
  crash     Crash the engine at every write, and recover every image
  mutants   The engine with deliberate mistakes, which the crash sweep must find
  instructions
            Count the instructions of single operations and compare with the recorded counts
  conformance
            The test suites and workloads of others on a mount, and the daemon killed in the middle of them
  cluster   File systems on a Ceph cluster of one node
  boot      A root file system built from layers, with labels and a hash tree, booted to a login
  builders  Disks that debos, vmdb2 and mkosi build by our programs
  chains    Chains of sizes and of settings of random images, beside resize2fs, tune2fs and Linux
  deleted   Files that Linux removed, and how many of them come back, beside extundelete and ext4magic
  dist      What is given away: a static program, archives, deb, rpm, a container image, recipes
  everywhere
            Packages, other compilers, other systems and languages: what is too heavy for the test run
  geometry  Random options of mkfs beside mke2fs
  packages  What a registry would get, and what that depends on
  install   The program, the C library and what goes with them, where a system keeps such things
  soak      Direct and buffered users of one file on a mount, for as long as asked
  verity    Images with hash trees under a Linux that has dm-verity and fs-verity
  vm        A second kernel as witness: images with what this one has not, crashes, guests of virtio-fs

`cargo xtask <CHORE> --help` tells more.";

const TIDY_HELP: &str = "\
Check the house rules the compiler does not know: file length, locks outside extant-sync, unsafe
outside the listed files, dependency direction, the order of rooms in the engine, its one door,
tables of files and of locks, links and paths of documents, language, leftovers, licences.

Usage: cargo xtask tidy

Prints one line per finding and exits with 1 when there is any. Also runs as a test.";

const TEST_HELP: &str = "\
The whole test run: set-up, formatting, clippy, every test, replaced forms, what workers share,
deliberate mistakes, models, instructions, tidy. The same as scripts/test.sh.

Usage: cargo xtask test";

const HOSTILE_HELP: &str = "\
Open, walk and read many mutated images: no panic, no hang, no memory beyond the budget.

Usage: cargo xtask hostile [--meaning | --mend [--range A..B] [--kind NAME] [--class TEXT] [--workers N] [--dir DIR]]
                           [--images N] [--seed SEED]

Options:
  --meaning     Change one thing at a time to what means something: read, checked, repaired, taken back and written to,
                and compared with e2fsck and Linux (as root)
  --mend        The same images, mended in memory: what comes out, beside what e2fsck leaves of a copy (as root)
  --images N    How many mutated images [default: 20000]
  --seed SEED   Repeat the run that printed this seed [default: from the clock]
  --range A..B  Of these, only those from number A up to before number B, so that a run can be cut in pieces
  --kind NAME   Of one kind of image alone
  --class TEXT  Of changes alone in whose class this text is, such as s_first_ino
  --workers N   How many processes [default: one for each processor]
  --dir DIR     Keep the images and what was found there; the same run again goes on where it was ended

The tests whose name contains `hostile` do the work, with --meaning and --mend those of the module `meaning`; an ordinary test run
gives them a budget.";

const CHAINS_HELP: &str = "\
Chains of resize and of tune: images with random options, filled, resized or tuned several times by us and by
others, written to in between. After each step e2fsck and our check find nothing, and what was in the image is in it.

Usage: cargo xtask chains [resize|tune] [--chains N] [--seed SEED]

Options:
  --chains N    How many chains of each kind [default: 500]
  --seed SEED   Repeat the run that printed this seed [default: from the clock]

An ordinary test run does the same for seconds. It needs root, and loop devices.";

const GEOMETRY_HELP: &str = "\
Random options of mkfs beside mke2fs: all that dumpe2fs says is the same, and e2fsck finds nothing.

Usage: cargo xtask geometry [--sets N] [--seed SEED]

Options:
  --sets N      How many sets of options [default: 2000]
  --seed SEED   Repeat the run that printed this seed [default: from the clock]

An ordinary test run does the same for seconds.";

const SOAK_HELP: &str = "\
Direct and buffered users of one file, in each way of mounting at once, for as long as asked: what
each reads is what was written last.

Usage: cargo xtask soak [--minutes N] [--seed SEED]

Options:
  --minutes N   How long [default: 60]
  --seed SEED   Repeat the run that printed this seed [default: from the clock]

An ordinary test run does the same for seconds. It needs root, and makes four mounts.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let help = args.iter().any(|a| a == "--help" || a == "-h");
    match args.first().map(String::as_str) {
        Some("tidy") if help => say(TIDY_HELP),
        Some("tidy") => tidy(),
        Some("test") if help => say(TEST_HELP),
        Some("test") => run(Command::new(root().join("scripts/test.sh"))),
        Some("hostile") if help => say(HOSTILE_HELP),
        Some("hostile") => hostile(&args[1..]),
        Some("model") if help => say(concurrency::MODEL_HELP),
        Some("model") => concurrency::model(&root(), &args[1..]),
        Some("tsan") if help => say(concurrency::TSAN_HELP),
        Some("tsan") => concurrency::tsan(&root(), &args[1..]),
        Some("instructions") if help => say(instructions::HELP),
        Some("instructions") => instructions::instructions(&root(), &args[1..]),
        Some("conformance") if help => say(conformance::HELP),
        Some("conformance") => conformance::conformance(&root(), &args[1..]),
        Some("cluster") if help => say(cluster::HELP),
        Some("cluster") => cluster::cluster(&root(), &args[1..]),
        Some("chains") if help => say(CHAINS_HELP),
        Some("chains") => chains(&args[1..]),
        Some("deleted") if help => say(deleted::HELP),
        Some("deleted") => deleted::deleted(&root(), &args[1..]),
        Some("dist") if help => say(dist::HELP),
        Some("dist") => dist::dist(&root(), &args[1..]),
        Some("everywhere") if help => say(everywhere::HELP),
        Some("everywhere") => everywhere::everywhere(&root(), &args[1..]),
        Some("packages") if help => say(packages::HELP),
        Some("packages") => packages::packages(&root()),
        Some("geometry") if help => say(GEOMETRY_HELP),
        Some("geometry") => geometry(&args[1..]),
        Some("soak") if help => say(SOAK_HELP),
        Some("soak") => soak(&args[1..]),
        Some("install") if help => say(xtask::install::HELP),
        Some("install") => xtask::install::install(&root(), &args[1..]),
        Some("verity") if help => say(verity::HELP),
        Some("verity") => verity::verity(&root(), &args[1..]),
        Some("vm") if help => say(vm::HELP),
        Some("vm") => vm::vm(&root(), &args[1..]),
        Some("boot") if help => say(boot::HELP),
        Some("boot") => boot::boot(&root(), &args[1..]),
        Some("builders") if help => say(builders::HELP),
        Some("builders") => builders::builders(&root(), &args[1..]),
        Some("crash") if help => say(crash::CRASH_HELP),
        Some("crash") => crash::crash(&args[1..]),
        Some("mutants") if help => say(crash::MUTANTS_HELP),
        Some("mutants") => crash::mutants(&args[1..]),
        None | Some("--help" | "-h" | "help") => say(HELP),
        Some(other) => {
            eprintln!("unknown chore {other:?}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

/// The workspace's directory.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn tidy() -> ExitCode {
    let findings = xtask::tidy::check(&root());
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return say("tidy");
    }
    println!("{} findings", findings.len());
    ExitCode::FAILURE
}

/// Options of mutants by meaning, and the variables by which their test takes them.
const MEANT_OPTIONS: &[(&str, &str)] = &[
    ("--range", "EXTANT_MEANT_RANGE"),
    ("--kind", "EXTANT_MEANT_KIND"),
    ("--class", "EXTANT_MEANT_CLASS"),
    ("--workers", "EXTANT_MEANT_WORKERS"),
    ("--dir", "EXTANT_MUTANT_DIR"),
];

fn hostile(args: &[String]) -> ExitCode {
    let (mut images, mut meaning, mut mend) = (String::from("20000"), false, false);
    let mut settings: Vec<(&str, String)> = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--meaning" {
            meaning = true;
            continue;
        }
        if arg == "--mend" {
            (meaning, mend) = (true, true);
            continue;
        }
        let variable = match arg.as_str() {
            "--images" => Some("images"),
            "--seed" => Some("EXTANT_SEED"),
            option => MEANT_OPTIONS
                .iter()
                .find(|(name, _)| *name == option && meaning)
                .map(|(_, variable)| *variable),
        };
        match (variable, rest.next()) {
            (Some("images"), Some(value)) => images.clone_from(value),
            (Some(variable), Some(value)) => settings.push((variable, value.clone())),
            _ => {
                eprintln!("{HOSTILE_HELP}");
                return ExitCode::from(2);
            }
        }
    }
    // The engine opens them, the checker judges them as e2fsck does.
    let parts: &[(&str, &str, &str)] = if mend {
        &[("extant-fsck", "meaning::mended", "EXTANT_MEANT_IMAGES")]
    } else if meaning {
        &[("extant-fsck", "meaning::mutants", "EXTANT_MEANT_IMAGES")]
    } else {
        &[
            ("extant-core", "hostile", "EXTANT_HOSTILE_IMAGES"),
            ("extant-fsck", "hostile", "EXTANT_HOSTILE_IMAGES"),
        ]
    };
    for (package, filter, variable) in parts {
        let mut settings = settings.clone();
        settings.push((variable, images.clone()));
        let code = tests_in(package, filter, &settings);
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    ExitCode::SUCCESS
}

fn chains(args: &[String]) -> ExitCode {
    let (mut kinds, mut number, mut seed) = (Vec::new(), String::from("500"), None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let known = match arg.as_str() {
            "resize" => {
                kinds.push("chains::resizing");
                true
            }
            "tune" => {
                kinds.push("chains::tuning");
                true
            }
            "--chains" => rest.next().map(|n| number.clone_from(n)).is_some(),
            "--seed" => rest.next().map(|s| seed = Some(s.clone())).is_some(),
            _ => false,
        };
        if !known {
            eprintln!("{CHAINS_HELP}");
            return ExitCode::from(2);
        }
    }
    if kinds.is_empty() {
        kinds = vec!["chains::resizing", "chains::tuning"];
    }
    for filter in kinds {
        let mut settings = vec![("EXTANT_CHAINS", number.clone())];
        settings.extend(seed.clone().map(|seed| ("EXTANT_SEED", seed)));
        let code = tests_in("extant-cli", filter, &settings);
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    ExitCode::SUCCESS
}

fn geometry(args: &[String]) -> ExitCode {
    let mut settings = vec![("EXTANT_GEOMETRY_SETS", String::from("2000"))];
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match (arg.as_str(), rest.next()) {
            ("--sets", Some(sets)) if sets.parse::<u64>().is_ok() => settings[0].1.clone_from(sets),
            ("--seed", Some(seed)) => settings.push(("EXTANT_SEED", seed.clone())),
            _ => {
                eprintln!("{GEOMETRY_HELP}");
                return ExitCode::from(2);
            }
        }
    }
    tests_in("extant-mkfs", "geometry::", &settings)
}

fn soak(args: &[String]) -> ExitCode {
    let (mut minutes, mut seed) = (60, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let value = rest.next();
        match (arg.as_str(), value.map(|n| n.parse::<u64>()), value) {
            ("--minutes", Some(Ok(n)), _) if n > 0 => minutes = n,
            ("--seed", _, Some(s)) => seed = Some(s.clone()),
            _ => {
                eprintln!("{SOAK_HELP}");
                return ExitCode::from(2);
            }
        }
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo.args(["test", "-p", "extant-fuse", "--test", "it", "agree", "--"]);
    cargo.args(["--nocapture", "--test-threads", "4"]);
    cargo.env("EXTANT_SOAK_MINUTES", minutes.to_string());
    // A run that leaves the tests out would say nothing.
    cargo.env("EXTANT_REQUIRE_FACILITIES", "1");
    if let Some(seed) = seed {
        cargo.env("EXTANT_SEED", seed);
    }
    run(cargo)
}

/// Runs the tests of a package with this in their names, with these variables.
fn tests_in(package: &str, filter: &str, settings: &[(&str, String)]) -> ExitCode {
    let cargo = || {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root());
        // Not a release build: overflow checks and debug assertions are what it is to trip.
        cargo.args(["test", "-p", package, "--test", "it", filter, "--"]);
        cargo
    };
    // A filter that matches nothing would pass: look first.
    let listed = cargo().arg("--list").output();
    let any = listed.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(": test"));
    if !any {
        eprintln!("no test named {filter} builds in the package {package}");
        return ExitCode::FAILURE;
    }
    let mut command = cargo();
    command.arg("--nocapture").envs(settings.iter().cloned());
    run(command)
}

fn run(mut command: Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("cannot start {command:?}: {e}");
            ExitCode::FAILURE
        }
    }
}
