//! pjdfstest on both sides, compared test by test.

use super::differences::{self, Difference};
use super::fixture::{Fixture, Mount};
use super::job::Job;
use super::options::Amount;
use super::place::Whose;
use super::suites::Suite;
use super::{Setting, succeed, system};
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);

/// Configures both sides alike. The exit code says whether tests failed; that is looked
/// at here, one by one.
const SCRIPT: &str = r#"
cat > "$LOG/pjdfstest.toml" <<END
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
secondary_fs = "/dev/shm"
[settings]
naptime = 0.05
allow_remount = true
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
END
# Tests remount: by the kernel, on both sides, whichever helper of mount(8) is installed for the type.
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" > "$LOG/mount"
chmod +x "$LOG/mount"
PATH="$LOG:$PATH"
"$BIN/pjdfstest" -c "$LOG/pjdfstest.toml" -p "$DIR" || test $? -eq 1
# Again those that make the file system read-only, which the files do not allow that earlier tests left open.
"$BIN/pjdfstest" -c "$LOG/pjdfstest.toml" -p "$DIR" erofs || test $? -eq 1
"#;

/// Its runs, by what they are called: whose the mount is.
pub(super) const RUNS: &[(&str, Whose)] = &[
    ("pjdfstest", Whose::Root),
    ("pjdfstest-user", Whose::User),
    ("pjdfstest-container", Whose::Container),
];

/// As a suite, in the middle of which the daemon can be killed.
pub(super) const SUITE: Suite = Suite::new("pjdfstest", SCRIPT);

/// What came of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Came {
    Passed,
    Failed,
    Skipped,
}

/// Tests by name.
pub(super) type Results = BTreeMap<String, Came>;

/// Both sides.
pub(super) struct Compared {
    /// What the run is called, and whose the mount is.
    pub(super) name: &'static str,
    pub(super) whose: Whose,
    pub(super) kernel: Results,
    pub(super) ours: Results,
    /// Tests that the kernel's ext4 passes and ours does not.
    pub(super) worse: Vec<String>,
    /// How `e2fsck` judges the image afterwards.
    pub(super) checked: Result<(), String>,
}

impl Compared {
    /// Whether every difference is a known one, and every known one is there.
    pub(super) fn is_good(&self) -> bool {
        let explained = |test: &String| differences::of(self.whose, test).is_some();
        self.checked.is_ok()
            && self.worse.iter().all(explained)
            && differences::all(self.whose).all(|known| self.has(known))
    }

    fn has(&self, known: &Difference) -> bool {
        self.worse.iter().any(|test| test == known.test)
    }
}

/// Runs it on both sides.
pub(super) fn compare(
    setting: &Setting,
    name: &'static str,
    whose: Whose,
) -> Result<Compared, String> {
    println!("{name} ...");
    let of_kernel = Fixture::of(setting, &format!("{name}-kernel"), whose, true)?;
    let (kernel, checked) = one_side(setting, &of_kernel, Fixture::mount_by_kernel)?;
    checked?;
    drop(of_kernel);
    let of_ours = Fixture::of(setting, name, whose, false)?;
    let (ours, checked) = one_side(setting, &of_ours, |fixture| fixture.mount(setting, ""))?;
    let worse = worse(&kernel, &ours);
    for test in &worse {
        let why = differences::of(whose, test).map_or("NOT EXPLAINED", |known| known.why);
        println!("{name}: {test}: the kernel passes: {why}");
    }
    let count = |side: &Results| side.values().filter(|came| **came == Came::Passed).count();
    let compared = Compared {
        name,
        whose,
        kernel,
        ours,
        worse,
        checked,
    };
    println!(
        "{name}: of {} tests the kernel passes {}, ours {}",
        compared.kernel.len(),
        count(&compared.kernel),
        count(&compared.ours)
    );
    Ok(compared)
}

/// The results, and how `e2fsck` judges the image.
fn one_side(
    setting: &Setting,
    fixture: &Fixture,
    mount: impl Fn(&Fixture) -> Result<Mount, String>,
) -> Result<(Results, Result<(), String>), String> {
    let log = setting.log(fixture.name())?;
    let mount = mount(fixture)?;
    let told = (log.as_path(), &Amount::ENDLESS, setting.options.seed);
    let mut job = Job::start(setting, SCRIPT, &mount, told)?;
    let ended = job.wait(LIMIT)?;
    drop(job);
    succeed(system("chown").args(["-R", "0:0"]).arg(&log))?;
    let checked = mount.unmount().and_then(|()| fixture.check());
    let printed = std::fs::read_to_string(log.join("output")).map_err(|e| e.to_string())?;
    let results = read(&printed);
    let went_well = ended.is_some_and(|status| status.success());
    if went_well && !results.is_empty() {
        Ok((results, checked))
    } else {
        Err(format!("pjdfstest did not run: see {}", log.display()))
    }
}

/// Reads lines that have the name of a test and what came of it; the last of each counts.
fn read(printed: &str) -> Results {
    let result = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, came) = (words.next()?, words.next()?);
        let came = match came {
            "ok" => Came::Passed,
            "FAILED" => Came::Failed,
            "skipped" => Came::Skipped,
            _ => return None,
        };
        name.contains("::").then(|| (name.to_owned(), came))
    };
    printed.lines().filter_map(result).collect()
}

/// What the kernel passes and we do not.
fn worse(kernel: &Results, ours: &Results) -> Vec<String> {
    let passed = |side: &Results, test: &String| side.get(test) == Some(&Came::Passed);
    let tests = kernel.keys().filter(|test| passed(kernel, test));
    tests.filter(|test| !passed(ours, test)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
chmod::change_perm::regular                    ok
chmod::erofs_named                             skipped
\trequires features: foo
open::etxtbsy                                  FAILED
\tassertion `left == right` failed

Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total
";

    #[test]
    fn results_are_read_from_what_pjdfstest_prints() {
        let results = read(PRINTED);
        assert_eq!(results.len(), 3);
        assert_eq!(results["open::etxtbsy"], Came::Failed);
        assert_eq!(results["chmod::erofs_named"], Came::Skipped);
    }

    #[test]
    fn what_the_kernel_passes_and_we_do_not_run_is_a_difference_too() {
        let kernel = read("a::one ok\na::two ok\na::three FAILED\n");
        let ours = read("a::one ok\na::two skipped\na::three FAILED\n");
        assert_eq!(worse(&kernel, &ours), ["a::two"]);
        assert!(worse(&kernel, &kernel).is_empty());
    }
}
