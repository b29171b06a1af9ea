//! The machine and the peers that a report is of, in a sentence.

use super::entry::Machine;
use std::fs;
use std::process::Command;
use std::thread;

/// Looks at the machine. What cannot be told is left out.
pub(super) fn machine() -> Machine {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|kib| kib.split_whitespace().next()?.parse::<f64>().ok())
        .map(|kib| format!("{:.0} GiB", kib / (1 << 20) as f64));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
        .ok()
        .map(|release| format!("Linux {}", release.trim()));
    let parts = [
        Some(format!("{processors} processors ({model})")),
        memory,
        kernel,
        version("mke2fs", "-V"),
        version("genext2fs", "-V"),
        version("fuse2fs", "-V"),
        Some(format!("extant {}", env!("CARGO_PKG_VERSION"))),
    ];
    Machine {
        machine: parts.into_iter().flatten().collect::<Vec<_>>().join("; "),
    }
}

/// The commit whose build measures, if it is run in its work tree; empty otherwise.
pub(super) fn build() -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=7"])
        .output();
    let said = git.ok().filter(|output| output.status.success());
    said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// What a line of a file in /proc says behind its name.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The first line that a program says of its version.
fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Some(
        said.lines()
            .find(|line| !line.is_empty())?
            .trim()
            .to_owned(),
    )
}
