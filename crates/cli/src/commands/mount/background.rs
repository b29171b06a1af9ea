//! Processes that go on: the command starts itself again, and ends when the mount works.
//!
//! A process with threads cannot be split safely, so the other one is started afresh with the same arguments. It says
//! one line on its standard output when the mount works; until then its errors go where those of the command go.

use crate::args::{Mount, Where};
use crate::failure::{Failure, Outcome};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// What the started process says.
const READY: &str = "mounted";

fn failed(e: io::Error) -> Failure {
    Failure::new(format!("cannot go into the background: {e}"))
}

/// Starts the mount in the background, and waits until it works.
pub(super) fn start(args: &Mount, place: &Where) -> Outcome {
    start_as("--in-background", args, place).map(drop)
}

/// Starts this program again for the same mount, as what `role` says, and waits until the mount works.
fn start_as(role: &str, args: &Mount, place: &Where) -> Outcome<Child> {
    let mut child = launch(role, args, place)?;
    if says_ready(child.stdout.take()).map_err(failed)? {
        return Ok(child);
    }
    Err(why_ended(&child.wait().map_err(failed)?))
}

/// Starts this program again for the same mount, as what `role` says. What it says is in the child's standard output.
pub(super) fn launch(role: &str, args: &Mount, place: &Where) -> Outcome<Child> {
    Command::new("/proc/self/exe")
        .args(["mount", role])
        .args(arguments(args, place))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)
}

/// Waits until the mount works; `false` when the process ends before.
pub(super) fn says_ready(output: Option<ChildStdout>) -> io::Result<bool> {
    let mut said = String::new();
    if let Some(output) = output {
        BufReader::new(output).read_line(&mut said)?;
    }
    Ok(said.trim_end() == READY)
}

/// Why a process ended before the mount worked.
pub(super) fn why_ended(status: &ExitStatus) -> Failure {
    match status.code().map(u8::try_from) {
        // It has said why.
        Some(Ok(code)) if code != 0 => Failure::Code(code),
        _ => Failure::new("the process that reads the image ended before the mount worked"),
    }
}

/// The arguments behind the command and the role. Paths are made absolute: the other process does not stay here.
fn arguments(args: &Mount, place: &Where) -> Vec<OsString> {
    let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut list: Vec<OsString> = Vec::new();
    if let Some(partition) = place.partition {
        list.extend(["--partition".into(), partition.to_string().into()]);
    }
    if let Some(offset) = place.offset {
        list.extend(["--offset".into(), offset.to_string().into()]);
    }
    if let Some(journal) = &place.journal {
        list.extend(["--journal".into(), absolute(journal).into()]);
    }
    let flags = [
        (place.as_is, "--as-is"),
        (args.read_only, "--read-only"),
        (args.no_sandbox, "--no-sandbox"),
        (args.foreground, "--foreground"),
    ];
    list.extend(
        flags
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, flag)| flag.into()),
    );
    for options in &args.options {
        list.extend(["-o".into(), options.into()]);
    }
    list.push("--".into());
    list.push(absolute(&args.image).into());
    list.push(absolute(&args.point).into());
    list
}

/// A process that somebody started and waits for.
#[derive(Debug)]
pub(super) struct Background {
    nowhere: File,
    /// Goes on telling of errors on a terminal.
    tells: bool,
}

impl Background {
    /// Leaves the terminal's session, unless the mount is to stay in the foreground. Who reads the image always leaves
    /// it: otherwise, taken over, it could type what the user's shell then does.
    pub(super) fn begin(args: &Mount) -> Outcome<Self> {
        if !args.foreground || args.worker {
            // Only the leader of a group may not: then it is in one of its own already.
            let _ = rustix::process::setsid();
        }
        // Opened as long as it can be.
        let nowhere = File::options().read(true).write(true).open("/dev/null");
        Ok(Self {
            nowhere: nowhere.map_err(failed)?,
            tells: args.foreground,
        })
    }

    /// Says that the mount works, and lets go of what the process was started with.
    pub(super) fn ready(self) -> Outcome {
        std::env::set_current_dir("/").map_err(failed)?;
        if !self.tells {
            rustix::stdio::dup2_stderr(&self.nowhere).map_err(|e| failed(e.into()))?;
        }
        let mut stdout = io::stdout();
        // A command that was killed meanwhile does not hear it.
        let _ = writeln!(stdout, "{READY}").and_then(|()| stdout.flush());
        rustix::stdio::dup2_stdout(&self.nowhere).map_err(|e| failed(e.into()))
    }
}
