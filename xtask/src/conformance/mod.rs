//! The mount against the world: test suites and workloads of others on `extant mount`, and the same
//! daemon killed in the middle of them.
//!
//! | file | owns |
//! |---|---|
//! | `options` | the command line, and how much is done |
//! | `tools` | the programs that are run: where they come from, and in which version |
//! | `namespaces` | namespaces of its own, with which all mounts and processes end |
//! | `place` | whose a mount is, and where programs work on it |
//! | `fixture` | an image, and its mount by the daemon or by the kernel |
//! | `job` | a script that runs beside, with a limit |
//! | `suites` | the table of suites, each a script |
//! | `posix` | pjdfstest on both sides, compared test by test |
//! | `differences` | what is known to differ, and why |
//! | `durability_probe` | what was synced, and whether it is there |
//! | `kills` | `kill -9` in the middle of suites |
//! | `rings` | requests through io_uring |
//! | `report` | `docs/dev/conformance.md` |

mod differences;
mod durability_probe;
mod fixture;
mod job;
mod kills;
mod namespaces;
mod options;
mod place;
mod posix;
mod report;
mod rings;
mod suites;
mod tools;

use crate::programs::{succeed, system};
use options::Options;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) use options::HELP;

/// What all parts need.
struct Setting {
    /// The workspace.
    root: PathBuf,
    /// Where programs are installed and logs are kept.
    home: PathBuf,
    /// The program under test.
    extant: PathBuf,
    options: Options,
}

/// `cargo xtask conformance`.
pub(crate) fn conformance(root: &Path, args: &[String]) -> ExitCode {
    let Some(options) = Options::parse(args) else {
        eprintln!("{HELP}");
        return ExitCode::from(2);
    };
    let profile = if options.release { "release" } else { "debug" };
    let setting = Setting {
        root: root.to_owned(),
        home: root.join("target/conformance"),
        extant: root.join("target").join(profile).join("extant"),
        options,
    };
    let done = if setting.options.is_inside {
        inside(&setting)
    } else {
        outside(&setting, args)
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("conformance: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Has everything ready, and does the rest where nothing can be left behind.
fn outside(setting: &Setting, args: &[String]) -> Result<bool, String> {
    namespaces::require_facilities()?;
    tools::install(setting)?;
    let mut build = cargo(&setting.root);
    build.args(["build", "--locked", "-p", "extant-cli"]);
    if setting.options.release {
        build.arg("--release");
    }
    succeed(&mut build)?;
    if setting.options.wants_others() {
        place::require(setting)?;
    }
    namespaces::again_inside(args)
}

fn inside(setting: &Setting) -> Result<bool, String> {
    let work = setting.work();
    clear(&work)?;
    namespaces::make_points(setting.options.wants_others())?;
    let logs = setting.home.join("logs");
    std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    println!("seed {:#x}", setting.options.seed);
    let _offered = setting
        .options
        .rings
        .then(rings::Offered::new)
        .transpose()?;
    let mut report = report::Report::new(setting)?;
    for (name, whose) in posix::RUNS {
        if setting.options.wants(name) {
            report.posix(posix::compare(setting, name, *whose)?);
            report.record(setting)?;
        }
    }
    for suite in suites::ALL.iter().filter(|s| setting.options.wants(s.name)) {
        report.suite(suites::run(setting, suite)?);
        report.record(setting)?;
    }
    if setting.options.kills > 0
        && let Some(killed) = kills::run(setting)?
    {
        report.kills(killed);
        report.record(setting)?;
    }
    let _ = std::fs::remove_dir_all(&work);
    Ok(report.is_good())
}

impl Setting {
    /// Where images and mount points are.
    fn work(&self) -> PathBuf {
        let at = self.options.work.clone();
        at.unwrap_or_else(|| self.home.join("work"))
            .join("extant-conformance")
    }

    /// A new directory for what a part of the run prints.
    fn log(&self, name: &str) -> Result<PathBuf, String> {
        let log = self.home.join("logs").join(name);
        clear(&log)?;
        Ok(log)
    }
}

/// Makes a directory, empty.
fn clear(dir: &Path) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}
