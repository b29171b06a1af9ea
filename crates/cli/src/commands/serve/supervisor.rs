//! The process beside the one that answers clients: it passes signals on, and removes the socket,
//! which that one cannot.
//!
//! Where the image is on another machine, or in chunks that are read one by one, it is reached from
//! here: the worker, which cannot open and connect to anything, has its bytes over a socket pair
//! that exists before it is confined. Clients are heard by the worker alone.

use super::worker::{PATIENCE, Role};
use super::{activation, disk, not_durable};
use crate::args::{NbdAt, Serve, Whereabouts};
use crate::chunks;
use crate::commands::again;
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, name_of, whole_image};
use extant_blockdev::{DeviceResult, SharedDevice};
use extant_formats::{Format, recognise};
use extant_fuse::Signals;
use extant_image::{Carrier, ImageLocation};
use extant_serve::{Limits, Listen, serve_connection};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// More it does not say.
const MOST_SAID: u64 = 16 << 10;

/// Requests to such an image that are done at a time.
const REQUESTS: usize = 32;

/// How long a signal may take that ended the worker already.
const TO_HEAR: Duration = Duration::from_millis(500);

enum Event {
    Signal,
    /// The worker listens: the address for clients.
    Listens(String),
    /// The worker ended, and how is still to be asked.
    Ended,
}

/// Starts the worker, and keeps it until it ends.
pub(super) fn supervise(args: &Serve, location: &Whereabouts, signals: Signals) -> Outcome {
    // What this process was started with is nothing for the worker, except the image.
    let socket = match &args.nbd {
        Some(NbdAt::Open(number)) => Some(*number),
        _ => None,
    };
    let kept: Vec<RawFd> = inherited(args)?.into_iter().chain(socket).collect();
    extant_fuse::keep_descriptors(&kept).map_err(Failure::new)?;
    let far = far_disk(args, location)?;
    if far.is_some() {
        extant_fuse::keep_descriptors(socket.as_slice()).map_err(Failure::new)?;
    }
    let (events, received) = channel();
    let of_signals = events.clone();
    start_thread("extant-signals", move || {
        while signals.wait().is_ok() && of_signals.send(Event::Signal).is_ok() {}
    })?;
    let (mut worker, carrier) = match far {
        Some(disk) => {
            let (ours, theirs) = UnixStream::pair()?;
            let worker = launch(Role::Carried, args, OwnedFd::from(theirs).into())?;
            (worker, Some(carry(ours, disk)?))
        }
        None => (launch(Role::Opens, args, Stdio::inherit())?, None),
    };
    let number = Pid::from_child(&worker);
    watch(&mut worker, events)?;
    let mut own = None;
    let (mut is_listening, mut is_asked) = (false, false);
    while let Ok(event) = received.recv() {
        match event {
            Event::Signal => {
                is_asked = true;
                // Its number is no other process's before it was asked how it ended.
                kill_process(number, Signal::TERM).map_err(Failure::new)?;
            }
            Event::Listens(address) => {
                is_listening = true;
                own = OwnSocket::of(args.listens().as_ref());
                let mut stdout = io::stdout();
                // A reader that has seen enough is no reason to end.
                let _ = writeln!(stdout, "{address}").and_then(|()| stdout.flush());
            }
            Event::Ended => break,
        }
    }
    let status = worker.wait()?;
    // A signal to the whole group of processes may come to the worker first.
    is_asked |= status.code().is_none() && !is_listening && received.recv_timeout(TO_HEAR).is_ok();
    match own {
        Some(own) => own.remove(),
        // It may have made one before it failed.
        None => remove_left(args.listens().as_ref()),
    }
    let carried = carrier.map_or(Ok(()), |carrier| match carrier.join() {
        Ok(carried) => carried.map_err(not_durable),
        Err(panic) => std::panic::resume_unwind(panic),
    });
    match status.code().map(u8::try_from) {
        Some(Ok(0)) => carried,
        // It has said why.
        Some(Ok(code)) => Err(Failure::Code(code)),
        // It was told to end before it could listen to that.
        _ if is_asked && !is_listening => Ok(()),
        _ => Err(Failure::new(
            "the process that answers clients was killed; what clients flushed is in the image",
        )),
    }
}

/// The number of the open file that is the image.
fn inherited(args: &Serve) -> Outcome<Option<RawFd>> {
    let Some(image) = &args.image else {
        return Ok(None);
    };
    match whole_image(image.as_os_str())?.carrier() {
        Carrier::Descriptor(number) => Ok(Some(*number)),
        _ => Ok(None),
    }
}

/// The disk of an image that the worker could not reach.
fn far_disk(args: &Serve, location: &Whereabouts) -> Outcome<Option<SharedDevice>> {
    let Some(image) = &args.image else {
        return Ok(None);
    };
    if is_far(&whole_image(image.as_os_str())?, args, location) {
        disk(args, location).map(Some)
    } else {
        Ok(None)
    }
}

/// Whether an image is on another machine, or in chunks, which are files or objects of their own.
fn is_far(image: &ImageLocation, args: &Serve, location: &Whereabouts) -> bool {
    if image.is_remote() || args.format.is_some() {
        return image.is_remote();
    }
    if let Some(said) = location.format_of(image) {
        return said.word() == Format::Caibx.word();
    }
    // What cannot be opened here is refused, with the reason, by the worker.
    let file = image.open_carrier(&how(location, image, false));
    let format = file.ok().and_then(|file| recognise(&*file).ok().flatten());
    format == Some(Format::Caibx)
}

/// Starts this program again, with the arguments that it has where the worker opens the image.
fn launch(role: Role, args: &Serve, input: Stdio) -> Outcome<Child> {
    // Where its temporary files go, which time it is, and what pretends owners.
    let also = |name: &str| {
        ["TMPDIR", "SOURCE_DATE_EPOCH", "LD_PRELOAD"].contains(&name)
            || name.starts_with("FAKE")
            || name.starts_with("PSEUDO_")
    };
    let (variable, value) = role.told();
    let mut again = again::confined_command(also);
    if role == Role::Carried {
        again.args(carried_arguments(args));
    } else {
        again.args(std::env::args_os().skip(1));
    }
    if role == Role::Carried || args.is_planned() {
        // It reads no chunks, and an address of theirs may have secrets.
        again.env_remove(chunks::VARIABLE);
    }
    if let Some(NbdAt::Open(number)) = &args.nbd {
        again.env(activation::VARIABLE, number.to_string());
    }
    again
        .env(variable, value)
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| {
            Failure::new(format!(
                "cannot start the process that answers clients: {e}"
            ))
        })
}

/// What a worker needs to know that does not reach the image: how it answers, and what the image is
/// called, without the secrets of an address.
fn carried_arguments(args: &Serve) -> Vec<OsString> {
    let mut list: Vec<OsString> = vec!["serve".into()];
    if args.virtiofs.is_none() {
        list.extend(args.nbd.iter().map(|at| format!("--nbd={at}").into()));
        list.push(format!("--export={}", args.export).into());
    }
    if let Some(socket) = &args.virtiofs {
        list.push("--virtiofs".into());
        list.push(socket.into());
        list.extend(args.guests.map(|most| format!("--guests={most}").into()));
        list.extend(args.options.iter().map(|one| format!("-o{one}").into()));
    }
    if args.read_only {
        list.push("--read-only".into());
    }
    list.push("--".into());
    list.extend(args.image.iter().map(|image| name_of(image.as_os_str())));
    list
}

/// Serves a disk to the worker until it ends; then makes everything durable.
fn carry(socket: UnixStream, disk: SharedDevice) -> Outcome<JoinHandle<DeviceResult<()>>> {
    let limits = Limits {
        threads: REQUESTS,
        // It comes as soon as it is started, which may take long where much else runs.
        negotiation: PATIENCE,
        ..Limits::default()
    };
    start_thread("extant-carrier", move || {
        serve_connection(socket, disk, limits)
    })
}

/// Has a thread listen to the worker, and wait for its end.
fn watch(worker: &mut Child, events: Sender<Event>) -> Outcome {
    let number = Pid::from_child(worker);
    let said = worker.stdout.take();
    start_thread("extant-worker", move || {
        let mut address = String::new();
        let reader = said.map(|said| BufReader::new(said.take(MOST_SAID)));
        let read = reader.map(|mut reader| reader.read_line(&mut address));
        if matches!(read, Some(Ok(_))) && address.ends_with('\n') {
            address.pop();
            let _ = events.send(Event::Listens(address));
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(number), options) {}
        let _ = events.send(Event::Ended);
    })
    .map(drop)
}

/// Starts a thread, which lists of threads show under its name, of up to 15 bytes.
fn start_thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Outcome<JoinHandle<T>> {
    let started = Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(|e| {
        Failure::new(format!(
            "no thread can be started ({e}): raise the limit of processes (ulimit -u)"
        ))
    })
}

/// The socket that the worker made.
struct OwnSocket {
    path: PathBuf,
    found: Metadata,
}

impl OwnSocket {
    fn of(at: Option<&NbdAt>) -> Option<Self> {
        let Some(NbdAt::Address(Listen::Unix(path))) = at else {
            return None;
        };
        let found = socket_at(path)?;
        Some(Self {
            path: path.clone(),
            found,
        })
    }

    /// Removes it, unless another server has taken its place.
    fn remove(self) {
        let of = |found: &Metadata| (found.dev(), found.ino());
        if socket_at(&self.path).is_some_and(|now| of(&now) == of(&self.found)) {
            // The next server replaces one that nobody listens on.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody listens on.
fn remove_left(at: Option<&NbdAt>) {
    if let Some(left) = OwnSocket::of(at)
        && UnixStream::connect(&left.path)
            .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    {
        left.remove();
    }
}

fn socket_at(path: &Path) -> Option<Metadata> {
    let found = fs::symlink_metadata(path).ok()?;
    found.file_type().is_socket().then_some(found)
}
