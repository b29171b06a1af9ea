//! This program, started again: a process with threads cannot be split safely, so another one is
//! started afresh.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the started processes are called in lists of processes.
const NAME: &str = "extant";
/// What of the environment a process gets that is going to be confined: where the system's helper
/// and libraries are, languages and time zones, and what developers set.
const KEPT: &[&str] = &[
    "PATH",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LLVM_PROFILE_FILE",
];
const KEPT_BEGINNINGS: &[&str] = &["LC_", "RUST_", "EXTANT_", "MIMALLOC_"];

/// What the allocator takes of the system at once: its own choice, a GiB, counts against the limit
/// of a confined process, used or not.
const RESERVE: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "64MiB");

/// This program, with the environment that it has.
pub(super) fn command() -> Command {
    let mut again = Command::new("/proc/self/exe");
    again.arg0(NAME);
    again
}

/// This program, to be confined: with what it needs of the environment, beside what `also` names,
/// and nothing else that is in there.
pub(super) fn confined_command(also: impl Fn(&str) -> bool) -> Command {
    let mut again = command();
    let is_kept = |variable: &OsStr| {
        let name = variable.to_str().unwrap_or_default();
        KEPT.contains(&name) || KEPT_BEGINNINGS.iter().any(|b| name.starts_with(b)) || also(name)
    };
    again.env_clear();
    again.env(RESERVE.0, RESERVE.1);
    again.envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
    again
}
