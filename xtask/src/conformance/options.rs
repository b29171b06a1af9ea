//! The command line, and how much is done.

use super::place::Whose;
use super::{posix, suites};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// What `--help` says about `cargo xtask conformance`.
pub(crate) const HELP: &str = "\
Run the test suites and workloads of others on `extant mount`, check the image after each, and kill the daemon in
the middle of them.

Usage: cargo xtask conformance [OPTIONS]

Options:
  --only NAME     This suite only; may be given several times (pjdfstest, pjdfstest-user, pjdfstest-container, links, fsx,
                  fsx-mapped, fsx-through, fsx-gathered, fsx-passed, fio, fio-direct, fs_mark, dbench, stress-ng, git,
                  build, sqlite; none: the kills alone, in the middle of all)
  --quick         Minutes instead of an hour
  --fsx N         Operations of each fsx run [default: 1000000]
  --stress SECS   Seconds of stress-ng's file-system class [default: 600]
  --kills N       Times that the daemon is killed in the middle of these suites, of root's mounts [default: 36]
  --seed SEED     Repeat the run that printed this seed [default: from the clock]
  --rings         Have the mount take its requests through io_uring (`-o io_uring`), which is turned on in the kernel
                  meanwhile; rows that are recorded say so
  --release       A release build of extant; otherwise one with overflow checks and assertions
  --work DIR      Where images are made [default: target/conformance/work]
  --record        Write the results of what was run to docs/dev/conformance.md

Needs root, /dev/fuse, loop devices and the kernel's ext4. Installs pjdfstest and fsx from crates.io into
target/conformance, and Debian packages that are missing, and says so. Runs in namespaces of its own: no mount,
loop device or process is left behind, however it ends. What the programs print is in target/conformance/logs.";

/// How much of everything is done, as scripts are told it.
#[derive(Clone, Debug)]
pub(super) struct Amount {
    /// Operations of fsx.
    pub(super) fsx: u64,
    /// MiB of each of fio's files.
    pub(super) fio_mib: u64,
    /// Files that each thread of fs_mark makes.
    pub(super) files: u64,
    /// Seconds of dbench.
    pub(super) dbench: u64,
    /// Seconds of stress-ng.
    pub(super) stress: u64,
    /// Rows inserted into each data base.
    pub(super) rows: u64,
}

impl Amount {
    const FULL: Amount = Amount {
        fsx: 1_000_000,
        fio_mib: 64,
        files: 2000,
        dbench: 120,
        stress: 600,
        rows: 5000,
    };
    const QUICK: Amount = Amount {
        fsx: 20_000,
        fio_mib: 16,
        files: 200,
        dbench: 10,
        stress: 90,
        rows: 500,
    };
    /// More than is done before the daemon is killed.
    pub(super) const ENDLESS: Amount = Amount {
        fsx: 1_000_000_000,
        fio_mib: 96,
        files: 20_000,
        dbench: 600,
        stress: 600,
        rows: 1_000_000,
    };
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Names of suites; none means all.
    pub(super) only: Vec<String>,
    pub(super) amount: Amount,
    pub(super) kills: u64,
    pub(super) seed: u64,
    pub(super) rings: bool,
    pub(super) release: bool,
    pub(super) work: Option<PathBuf>,
    pub(super) record: bool,
    /// Already in the namespaces.
    pub(super) is_inside: bool,
}

impl Options {
    /// `None` for a command line that makes no sense.
    pub(super) fn parse(args: &[String]) -> Option<Options> {
        let quick = args.iter().any(|arg| arg == "--quick");
        let mut options = Options {
            only: Vec::new(),
            amount: if quick { Amount::QUICK } else { Amount::FULL },
            kills: if quick { 12 } else { 36 },
            seed: seed_of_the_clock(),
            rings: false,
            release: false,
            work: None,
            record: false,
            is_inside: false,
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "--quick" => {}
                "--rings" => options.rings = true,
                "--release" => options.release = true,
                "--record" => options.record = true,
                "--inside" => options.is_inside = true,
                "--only" => options.only.push(suite(rest.next()?)?),
                "--work" => options.work = Some(PathBuf::from(rest.next()?)),
                "--fsx" => options.amount.fsx = number(rest.next()?)?,
                "--stress" => options.amount.stress = number(rest.next()?)?,
                "--kills" => options.kills = number(rest.next()?)?,
                "--seed" => options.seed = number(rest.next()?)?,
                _ => return None,
            }
        }
        Some(options)
    }

    pub(super) fn wants(&self, suite: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == suite)
    }
}

impl Options {
    /// Whether others than root are to mount.
    pub(super) fn wants_others(&self) -> bool {
        let mut others = posix::RUNS
            .iter()
            .filter(|(_, whose)| *whose != Whose::Root);
        others.any(|(name, _)| self.wants(name))
    }
}

/// A name that `--only` may have.
fn suite(name: &str) -> Option<String> {
    let mut known = suites::ALL.iter().map(|suite| suite.name);
    let mut runs = posix::RUNS.iter().map(|(run, _)| *run);
    let is_known =
        name == "none" || runs.any(|run| run == name) || known.any(|known| known == name);
    is_known.then(|| name.to_owned())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn seed_of_the_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64 & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Options> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args)
    }

    #[test]
    fn numbers_given_count_more_than_quick_wherever_it_stands() {
        let options = parsed("--fsx 7 --quick --kills 3 --seed 0x10").unwrap();
        assert_eq!((options.amount.fsx, options.kills), (7, 3));
        assert_eq!((options.amount.dbench, options.seed), (10, 16));
    }

    #[test]
    fn what_is_not_known_or_not_finished_is_refused() {
        assert!(parsed("--only").is_none());
        assert!(parsed("--seed many").is_none());
        assert!(parsed("--loud").is_none());
        assert!(parsed("--only fsx-maped").is_none());
        assert!(parsed("--only none --only pjdfstest --only fsx-mapped").is_some());
    }

    #[test]
    fn all_suites_are_wanted_unless_some_are_named() {
        assert!(parsed("").unwrap().wants("fio"));
        let two = parsed("--only fsx --only git").unwrap();
        assert!(two.wants("git") && !two.wants("fio") && !two.wants_others());
        assert!(parsed("").unwrap().wants_others());
        let user = parsed("--only pjdfstest-user").unwrap();
        assert!(user.wants_others() && !user.wants("pjdfstest"));
    }
}
