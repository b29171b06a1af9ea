//! `kill -9` in the middle of suites: the next mount recovers, `e2fsck` finds nothing, and what was synced is there.

use super::ground::Ground;
use super::job::Job;
use super::options::Amount;
use super::suites::{self, Suite};
use super::{Setting, posix, witness};
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
    /// Suites that were running.
    pub(super) suites: Vec<&'static str>,
    /// Files, renames and removals that were synced, and looked for.
    pub(super) promises: usize,
    pub(super) failures: Vec<String>,
}

/// Kills the daemon in the middle of one suite after the other, with a seed for each kill.
pub(super) fn run(setting: &Setting) -> Result<Killed, String> {
    let options = &setting.options;
    let all = || std::iter::once(&posix::SUITE).chain(suites::ALL);
    let mut wanted: Vec<&Suite> = all().filter(|suite| options.wants(suite.name)).collect();
    if wanted.is_empty() {
        wanted.extend(all());
    }
    let mut killed = Killed::default();
    for (n, suite) in (0..options.kills).zip(wanted.iter().cycle()) {
        let seed = options.seed.wrapping_add(n);
        match one(setting, suite, seed) {
            Ok(promises) => killed.promises += promises,
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
    Ok(killed)
}

/// One kill; returns how many promises were looked at.
fn one(setting: &Setting, suite: &Suite, seed: u64) -> Result<usize, String> {
    let log = setting.log(&format!("killed-{seed:x}"))?;
    let ground = Ground::new(setting, "killed")?;
    let done = kill_and_recover(setting, suite, seed, (&ground, &log));
    match done {
        Ok(_) => drop(std::fs::remove_dir_all(&log)),
        Err(_) => ground.keep(&log.join("image")),
    }
    done
}

fn kill_and_recover(
    setting: &Setting,
    suite: &Suite,
    seed: u64,
    (ground, log): (&Ground, &Path),
) -> Result<usize, String> {
    let commit = 1 + seed % 5;
    let mount = ground.mount(setting, &format!("{},commit={commit}", suite.options))?;
    let beside = witness::start(mount.point(), seed).map_err(|e| format!("the witness: {e}"))?;
    let job = Job::start(setting, suite.script, &mount, (log, &Amount::ENDLESS, seed))?;
    let delay = SOONEST + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (LATEST - SOONEST);
    std::thread::sleep(Duration::from_millis(delay));
    let gone = mount.kill();
    drop(job);
    let synced = beside.join().map_err(|_| "the witness panicked")?;
    gone?;

    let mount = ground.mount(setting, suite.options)?;
    synced.verify(mount.point())?;
    let told = (log, &Amount::ENDLESS, seed);
    let mut after = Job::start(setting, suite.recovered, &mount, told)?;
    let ended = after.wait(LIMIT)?;
    drop(after);
    mount.unmount()?;
    ground.check()?;
    match ended.is_some_and(|status| status.success()) {
        true => Ok(synced.len()),
        false => Err("what the suite committed is not there".to_owned()),
    }
}
