//! Processes that go on: the command starts itself again, and ends when the mount works.
//!
//! The other one has the same arguments. It says on its standard output what it has mounted, and
//! when the mount works; until then its errors go where those of the command go. The process that
//! reads the image gets what it needs of the environment, and nothing else that is in there.

use crate::args::{Mount, Whereabouts};
use crate::chunks;
use crate::commands::again;
use crate::failure::{Failure, Outcome};
use crate::image_path::whole_image;
use extant_fuse::MountId;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};

/// What the started process says when the mount works.
const READY: &str = "mounted";
/// What it says before, with the identity of the mount.
const ATTACHED: &str = "attached ";
/// More it does not say.
const MOST_SAID: u64 = 4096;
/// The role of the process that reads the image.
pub(super) const WORKER: &str = "--worker";
/// How a process that goes on learns the image's address: only its user can see that.
const IMAGE_VARIABLE: &str = "EXTANT_MOUNT_IMAGE";

/// What a started process says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// Something is mounted, which is known by this. Nothing of the image has been looked at yet.
    Attached(MountId),
    /// The mount works.
    Ready,
}

/// Reads what a started process says, one after the other, until it ends or says something else.
pub(super) fn words(output: Option<ChildStdout>) -> impl Iterator<Item = Said> {
    let lines = output.map(|output| BufReader::new(output.take(MOST_SAID)).lines());
    lines.into_iter().flatten().map_while(|line| {
        let line = line.ok()?;
        match line.strip_prefix(ATTACHED) {
            Some(id) => id.parse().ok().map(Said::Attached),
            None => (line == READY).then_some(Said::Ready),
        }
    })
}

fn failed(e: io::Error) -> Failure {
    Failure::new(format!("cannot go into the background: {e}"))
}

/// The image that this process was started for by another one, with its secrets.
pub(super) fn image_of_parent(args: &Mount) -> Option<PathBuf> {
    let is_started = args.in_background || args.carrier;
    let image = is_started.then(|| std::env::var_os(IMAGE_VARIABLE))?;
    image.map(PathBuf::from)
}

/// Starts the mount in the background, and waits until it works.
pub(super) fn start(args: &Mount, location: &Whereabouts) -> Outcome {
    start_as("--in-background", args, location).map(drop)
}

/// Starts this program again for the same mount, as what `role` says, and waits until the mount
/// works.
fn start_as(role: &str, args: &Mount, location: &Whereabouts) -> Outcome<Child> {
    let mut child = launch(role, args, location, Stdio::null())?;
    if words(child.stdout.take()).any(|said| matches!(said, Said::Ready)) {
        return Ok(child);
    }
    Err(why_ended(&child.wait().map_err(failed)?))
}

/// Starts this program again for the same mount, as what `role` says. What it says is in the
/// child's standard output.
pub(super) fn launch(
    role: &str,
    args: &Mount,
    location: &Whereabouts,
    input: Stdio,
) -> Outcome<Child> {
    let mut again = if role == WORKER {
        let mut worker = again::confined_command(|_| false);
        worker.env_remove(IMAGE_VARIABLE);
        // Chunks are read by the process that reaches the image, and an address of theirs may have
        // secrets.
        worker.env_remove(chunks::VARIABLE);
        worker
    } else {
        let mut other = again::command();
        // Its arguments name the image without its secrets.
        other.env(IMAGE_VARIABLE, &args.image);
        other
    };
    again
        .args(["mount", role])
        .args(arguments(args, location))
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)
}

/// Names this process `extant` in lists of processes, whatever the file is called that was started:
/// `/proc/self/exe`, or the helper of mount(8).
pub(super) fn take_name() {
    // It is for people to read.
    let _ = rustix::thread::set_name(c"extant");
}

/// Explains why a process ended before the mount worked.
pub(super) fn why_ended(status: &ExitStatus) -> Failure {
    match status.code().map(u8::try_from) {
        // It has said why.
        Some(Ok(code)) if code != 0 => Failure::Code(code),
        _ => Failure::new("the process that reads the image ended before the mount worked"),
    }
}

/// Lists the arguments behind the command and the role: lists of processes show them, so they name
/// the image and the directory, and nothing in them is secret. Paths are made absolute: the other
/// process does not stay here.
fn arguments(args: &Mount, location: &Whereabouts) -> Vec<OsString> {
    let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut list: Vec<OsString> = Vec::new();
    if let Some(partition) = location.partition {
        list.extend(["--partition".into(), partition.to_string().into()]);
    }
    if let Some(offset) = location.offset {
        list.extend(["--offset".into(), offset.to_string().into()]);
    }
    if let Some(superblock) = location.superblock {
        list.extend(["--superblock".into(), superblock.to_string().into()]);
    }
    if let Some(journal) = &location.journal {
        list.extend(["--journal".into(), absolute(journal).into()]);
    }
    for said in &location.image_format {
        let mut text = OsString::new();
        if let Some(journal) = &said.image {
            text.push(absolute(Path::new(journal)));
            text.push("=");
        }
        text.push(said.format.word());
        list.extend(["--image-format".into(), text]);
    }
    let flags = [
        (location.as_is, "--as-is"),
        (location.mend, "--mend"),
        (args.read_only, "--read-only"),
        (args.no_sandbox, "--no-sandbox"),
        (args.carried, "--carried"),
        (args.foreground, "--foreground"),
        (args.as_helper, "--as-helper"),
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
    list.push(match whole_image(args.image.as_os_str()) {
        Ok(image) if image.path().is_none() => image.name(),
        _ => absolute(&args.image).into(),
    });
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
    /// Leaves the terminal's session, unless the mount is to stay in the foreground. The process
    /// that reads the image always leaves it: otherwise, taken over, it could type what the user's
    /// shell then does.
    pub(super) fn begin(args: &Mount) -> Outcome<Self> {
        if !args.foreground || args.worker || args.carrier {
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

    /// Says what is mounted.
    pub(super) fn attached(&self, id: &MountId) {
        let mut stdout = io::stdout();
        // Nobody hears it if nobody keeps the mount.
        let _ = writeln!(stdout, "{ATTACHED}{id}").and_then(|()| stdout.flush());
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
