//! `kill -9` in the middle of suites: the next mount recovers, `e2fsck` finds nothing, and what was
//! synced is there.

use super::fixture::Fixture;
use super::job::Job;
use super::options::Amount;
use super::suites::{self, Suite};
use super::{Setting, durability_probe, posix};
use std::path::Path;
use std::time::Duration;

/// How long a suite runs before the daemon is killed, in milliseconds.
const SOONEST: u64 = 200;
const LATEST: u64 = 3200;
/// Checks after the recovery take no longer.
const LIMIT: Duration = Duration::from_secs(300);

/// How the kills went.
#[derive(Default)]
pub(super) struct Killed {
    pub(super) kills: u64,
    /// First of the seeds, which count upwards.
    pub(super) seed: u64,
    /// Kills while the suite was running; else it was done already, and only the probe was at work.
    pub(super) running: u64,
    /// Suites that were running.
    pub(super) suites: Vec<&'static str>,
    /// Files, renames and removals that were synced, and looked for.
    pub(super) promises: usize,
    /// Rows of data bases that were committed, and looked for.
    pub(super) rows: usize,
    pub(super) failures: Vec<String>,
}

/// Kills the daemon in the middle of one suite after the other, with a seed for each kill. `None`
/// where no suite is wanted in which it is killed.
pub(super) fn run(setting: &Setting) -> Result<Option<Killed>, String> {
    let options = &setting.options;
    let all = || std::iter::once(&posix::SUITE).chain(suites::ALL);
    let mut wanted: Vec<&Suite> = all().filter(|suite| options.wants(suite.name)).collect();
    if options.wants("none") {
        wanted = all().collect();
    }
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut killed = Killed {
        seed: options.seed,
        ..Killed::default()
    };
    for (n, suite) in (0..options.kills).zip(wanted.iter().cycle()) {
        let seed = options.seed.wrapping_add(n);
        match one(setting, suite, seed) {
            Ok(kept) => {
                killed.running += u64::from(kept.was_running);
                killed.promises += kept.promises;
                killed.rows += kept.rows;
            }
            Err(e) => {
                let failure = format!("{} killed with seed {seed:#x}: {e}", suite.name);
                println!("kills: FAILED: {failure}");
                killed.failures.push(failure);
            }
        }
        killed.kills += 1;
        if killed.kills.is_multiple_of(10) {
            println!(
                "kills: {} done, {} promises kept",
                killed.kills, killed.promises
            );
        }
    }
    killed.suites = wanted.iter().map(|suite| suite.name).collect();
    let counts_rows = |n: u64| {
        let suite = wanted.get((n % wanted.len() as u64) as usize);
        suite.is_some_and(|suite| suite.counts_rows)
    };
    if killed.failures.is_empty() && killed.rows == 0 && (0..options.kills).any(counts_rows) {
        let nothing = "no row was committed before any kill: nothing is known of data bases";
        killed.failures.push(nothing.to_owned());
    }
    Ok(Some(killed))
}

/// What was promised before a kill, and there after it.
struct Kept {
    /// The suite was not done yet.
    was_running: bool,
    promises: usize,
    rows: usize,
}

/// One kill.
fn one(setting: &Setting, suite: &Suite, seed: u64) -> Result<Kept, String> {
    let log = setting.log(&format!("killed-{seed:x}"))?;
    let fixture = Fixture::new(setting, "killed")?;
    let done = kill_and_recover(setting, suite, seed, (&fixture, &log));
    if done.is_ok() {
        let _ = std::fs::remove_dir_all(&log);
    }
    done
}

fn kill_and_recover(
    setting: &Setting,
    suite: &Suite,
    seed: u64,
    (fixture, log): (&Fixture, &Path),
) -> Result<Kept, String> {
    let commit = 1 + seed % 5;
    let mount = fixture.mount(setting, &format!("{},commit={commit}", suite.options))?;
    let remounts = suite.name == posix::SUITE.name;
    let beside = durability_probe::start(mount.point(), seed, remounts);
    let mut beside = beside.map_err(|e| format!("the probe: {e}"))?;
    let mut job = Job::start(setting, suite.script, &mount, (log, &Amount::ENDLESS, seed))?;
    let delay = SOONEST + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (LATEST - SOONEST);
    std::thread::sleep(Duration::from_millis(delay));
    let ended = job.ended()?;
    if let Some(status) = ended
        && !status.success()
    {
        let output = log.join("output");
        return Err(format!(
            "the suite had failed before: {status}; see {}",
            output.display()
        ));
    }
    let was_running = ended.is_none();
    beside.expect_the_end();
    mount.kill()?;
    drop(job);
    let synced = beside.finish()?;
    // As the crash left it, for a look into a failure.
    let left = log.join("image");
    fixture.keep(&left)?;

    let mount = fixture.mount(setting, suite.options)?;
    synced.verify(mount.point())?;
    let told = (log, &Amount::ENDLESS, seed);
    let mut after = Job::start(setting, suite.recovered, &mount, told)?;
    let ended = after.wait(LIMIT)?;
    drop(after);
    mount.unmount()?;
    fixture.check()?;
    if ended.is_some_and(|status| status.success()) {
        Ok(Kept {
            was_running,
            promises: synced.len(),
            rows: rows(log)?,
        })
    } else {
        Err("what the suite committed is not there".to_owned())
    }
}

/// How many rows the check after the recovery says that it looked for.
fn rows(log: &Path) -> Result<usize, String> {
    match std::fs::read_to_string(log.join("rows")) {
        Ok(text) => {
            let counts = text.split_whitespace().map(str::parse::<usize>);
            counts.sum::<Result<usize, _>>().map_err(|e| e.to_string())
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(e.to_string()),
    }
}
