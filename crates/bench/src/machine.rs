//! The machine and the build that measured.

use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;
use std::thread;

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Processors, memory, kernel and peers, as a sentence without its end.
    pub(crate) machine: String,
    /// The commit of what was measured; with `-dirty` behind it if files differ; empty if there is
    /// none to tell.
    pub(crate) build: String,
    /// Whether the work was the quick form of a report, which is smaller and done once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) quick: bool,
}

impl Origin {
    /// Looks at this machine and the work tree that the bench is run in.
    pub(crate) fn here() -> Self {
        Self {
            machine: machine(),
            build: build(),
            quick: false,
        }
    }

    /// Whether the build is one that others can have.
    pub(crate) fn is_clean(&self) -> bool {
        !self.build.is_empty() && !self.build.ends_with("-dirty")
    }
}

/// Looks at the machine. What cannot be told is left out.
fn machine() -> String {
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
        version("nbdkit", "--version"),
        version("nbdcopy", "--version"),
        version("qemu-img", "--version"),
        Some(format!("extant {}", env!("CARGO_PKG_VERSION"))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The last commit that changed anything but documents, which a report writes itself.
fn build() -> String {
    let Some(top) = git(&["rev-parse", "--show-toplevel"]) else {
        return String::new();
    };
    let of_code =
        |args: &[&str]| git(&[&["-C", &top], args, &["--", ".", ":!docs", ":!*.md"]].concat());
    let commit = of_code(&["log", "-1", "--format=%h", "--abbrev=7"]).unwrap_or_default();
    match of_code(&["status", "--porcelain"]) {
        Some(changed) if changed.is_empty() => commit,
        _ => format!("{commit}-dirty"),
    }
}

/// What Git says, if it succeeds.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(said)
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
