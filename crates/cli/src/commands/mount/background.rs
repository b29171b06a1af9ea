//! Going on in the background: the command starts itself again, and ends when the mount works.
//!
//! A process with threads cannot be split safely, so the one in the background is started afresh with the same
//! arguments. It says one line on its standard output when the mount works; until then its errors go where those of
//! the command go.

use crate::args::{Mount, Where};
use crate::failure::{Failure, Outcome};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the one in the background says.
const READY: &str = "mounted";

/// Starts the mount in the background, and waits until it works.
pub(super) fn start(args: &Mount, place: &Where) -> Outcome {
    let failed = |e: std::io::Error| Failure::new(format!("cannot go into the background: {e}"));
    let mut child = Command::new("/proc/self/exe")
        .args(arguments(args, place))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut said)
            .map_err(failed)?;
    }
    if said.trim_end() == READY {
        return Ok(());
    }
    let status = child.wait().map_err(failed)?;
    Err(match status.code().map(u8::try_from) {
        // It has said why.
        Some(Ok(code)) if code != 0 => Failure::Code(code),
        _ => Failure::new("the process in the background ended before the mount worked"),
    })
}

/// The same command for the process in the background. Paths are made absolute: it does not stay here.
fn arguments(args: &Mount, place: &Where) -> Vec<OsString> {
    let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut list: Vec<OsString> = vec!["mount".into(), "--in-background".into()];
    if let Some(partition) = place.partition {
        list.extend(["--partition".into(), partition.to_string().into()]);
    }
    if let Some(offset) = place.offset {
        list.extend(["--offset".into(), offset.to_string().into()]);
    }
    if place.as_is {
        list.push("--as-is".into());
    }
    if args.read_only {
        list.push("--read-only".into());
    }
    for options in &args.options {
        list.extend(["-o".into(), options.into()]);
    }
    list.push("--".into());
    list.push(absolute(&args.image).into());
    list.push(absolute(&args.point).into());
    list
}

/// The process in the background.
#[derive(Debug)]
pub(super) struct Background;

impl Background {
    /// Leaves the terminal's session.
    pub(super) fn begin() -> Outcome<Self> {
        // Only the leader of a group may not: then it is in one of its own already.
        let _ = rustix::process::setsid();
        Ok(Self)
    }

    /// Says that the mount works, and lets go of what the command was started with.
    pub(super) fn ready(self) -> Outcome {
        let failed =
            |e: std::io::Error| Failure::new(format!("cannot go into the background: {e}"));
        let nowhere = File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(failed)?;
        std::env::set_current_dir("/").map_err(failed)?;
        rustix::stdio::dup2_stderr(&nowhere).map_err(|e| failed(e.into()))?;
        let mut stdout = std::io::stdout();
        // A command that was killed meanwhile does not hear it.
        let _ = writeln!(stdout, "{READY}").and_then(|()| stdout.flush());
        rustix::stdio::dup2_stdout(&nowhere).map_err(|e| failed(e.into()))
    }
}
