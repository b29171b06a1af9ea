//! The module for Go over the static C library: vetted, and tested under the race detector.

use super::{Outcome, Site};
use crate::programs::{Done, succeed};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Where Go puts itself, apart from the search path.
const GO: &str = "/usr/local/go/bin/go";

/// A library that cargo has made already, as a test run has.
const ARCHIVE: &str = "EXTANT_CAPI_ARCHIVE";

/// The step.
pub(super) fn go(site: &Site<'_>) -> Done<Outcome> {
    let Some(program) = program() else {
        return Ok(Outcome::Skipped("no Go (https://go.dev/dl)".to_owned()));
    };
    let prefix = site.root.join("target/go-library");
    let mut arguments = vec!["--prefix".to_owned(), prefix.display().to_string()];
    match std::env::var(ARCHIVE) {
        Ok(archive) => arguments.extend(["--archive".to_owned(), archive]),
        Err(_) => arguments.extend(["--dev", "--only", "library"].map(str::to_owned)),
    }
    let installed = xtask::install::install(site.root, &arguments);
    if format!("{installed:?}") != format!("{:?}", ExitCode::SUCCESS) {
        return Err("the library cannot be installed".to_owned());
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(site.root.join("bindings/go"));
        // Only what is here: no other Go, and nothing from the net.
        command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        command.env("CGO_ENABLED", "1");
        succeed(command.args(arguments))
    };
    run(&["vet", "./..."])?;
    // The library may be another one than in the last run.
    let told = run(&["test", "-race", "-count=1", "-v", "./..."])?;
    let passed = told
        .lines()
        .filter(|line| line.starts_with("--- PASS"))
        .count();
    if passed == 0 {
        return Err(format!("no test ran:\n{told}"));
    }
    Ok(Outcome::Passed {
        seen: format!("{passed} tests pass under the race detector, `fstest.TestFS` among them"),
        versions: site.version(Command::new(&program).arg("version"))?,
    })
}

/// The program, if it is there.
fn program() -> Option<PathBuf> {
    let answers = |program: &str| {
        let asked = Command::new(program).arg("version").output();
        asked.is_ok_and(|output| output.status.success())
    };
    let known = ["go", GO].into_iter().find(|program| answers(program));
    known.map(|program| Path::new(program).to_owned())
}
