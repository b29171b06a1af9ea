//! The process beside the one that reads the image: it can unmount, which that one cannot, and never looks at what
//! nobody vouches for.

use super::background::{Background, launch, says_ready, why_ended};
use crate::args::{Mount, Where};
use crate::failure::{Failure, Outcome};
use extant_fuse::{PATIENCE, Signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

enum Event {
    Signal,
    /// Nobody waits for the mount to work any more.
    Abandoned,
    /// The mount works.
    Ready,
    /// The worker ended.
    Ended(io::Result<ExitStatus>),
}

/// Starts a worker and keeps its mount until it ends.
pub(super) fn keep(args: &Mount, place: &Where) -> Outcome {
    let background = match args.in_background {
        true => Some(Background::begin(args)?),
        false => None,
    };
    let point = args.point.canonicalize().map_err(Failure::new)?;
    let signals = Signals::hold_back().map_err(Failure::new)?;
    let mut worker = launch("--worker", args, place)?;
    let pid = Pid::from_child(&worker);
    let (sender, events) = channel();
    let of_worker = sender.clone();
    std::thread::spawn(move || {
        // Whoever listens waits for the end.
        if matches!(says_ready(worker.stdout.take()), Ok(true)) {
            let _ = of_worker.send(Event::Ready);
        }
        let _ = of_worker.send(Event::Ended(worker.wait()));
    });
    if background.is_some() {
        let sender = sender.clone();
        std::thread::spawn(move || tell_when_abandoned(&sender));
    }
    std::thread::spawn(
        move || {
            while signals.wait().is_ok() && sender.send(Event::Signal).is_ok() {}
        },
    );
    let status = until_ready(&events, pid).and_then(|()| {
        if let Some(background) = background {
            background.ready()?;
        }
        until_ended(&events, &point, pid).map_err(Failure::new)
    });
    extant_fuse::clear(&point);
    match status?.code().map(u8::try_from) {
        Some(Ok(0)) => Ok(()),
        Some(Ok(code)) => Err(Failure::Code(code)),
        _ => Err(Failure::new(
            "the process that reads the image was killed; what was synced is in the image, and the next mount \
             recovers it",
        )),
    }
}

/// Tells when the command that was started in the terminal is gone, which reads what this process says.
fn tell_when_abandoned(events: &Sender<Event>) {
    let Ok(reader) = rustix::io::dup(rustix::stdio::stdout()) else {
        return;
    };
    let mut reader = [PollFd::new(&reader, PollFlags::empty())];
    if poll(&mut reader, None).is_ok() {
        // Nobody minds any more once the mount works.
        let _ = events.send(Event::Abandoned);
    }
}

fn gone() -> io::Error {
    io::Error::other("nobody waits for the worker")
}

/// Waits until the mount works. Until then a signal ends the worker at once: it may have a long journal to replay, and
/// what it leaves is what a crash leaves.
fn until_ready(events: &Receiver<Event>, worker: Pid) -> Outcome {
    let mut is_given_up = false;
    loop {
        match events.recv().map_err(|_| Failure::new(gone()))? {
            Event::Ready if !is_given_up => return Ok(()),
            Event::Ready => {}
            Event::Ended(_) if is_given_up => {
                return Err(Failure::new(
                    "interrupted before the mount worked; the next mount, or extant replay, goes on where this one \
                     ended",
                ));
            }
            Event::Ended(status) => return Err(why_ended(&status.map_err(Failure::new)?)),
            Event::Signal | Event::Abandoned => {
                is_given_up = true;
                kill_process(worker, Signal::KILL).map_err(|e| Failure::new(io::Error::from(e)))?;
            }
        }
    }
}

/// Waits for the worker's end. After a signal those who use the mount have some time to leave it.
fn until_ended(events: &Receiver<Event>, point: &Path, worker: Pid) -> io::Result<ExitStatus> {
    loop {
        match events.recv().map_err(|_| gone())? {
            Event::Ended(status) => return status,
            Event::Signal => break,
            Event::Ready | Event::Abandoned => {}
        }
    }
    extant_fuse::leave(point);
    let patience = Instant::now() + PATIENCE;
    loop {
        match events.recv_timeout(patience.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended(status)) => return status,
            // Somebody is in a hurry.
            Ok(Event::Signal) | Err(RecvTimeoutError::Timeout) => break,
            Ok(Event::Ready | Event::Abandoned) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
        }
    }
    kill_process(worker, Signal::USR1)?;
    loop {
        if let Event::Ended(status) = events.recv().map_err(|_| gone())? {
            return status;
        }
    }
}
