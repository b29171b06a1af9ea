//! The process beside the one that reads the image: it can unmount, which that one cannot, and never looks at what
//! nobody vouches for.

use super::background::{Background, start_as};
use crate::args::{Mount, Where};
use crate::failure::{Failure, Outcome};
use extant_fuse::{PATIENCE, Signals};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

enum Event {
    Signal,
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
    let mut worker = start_as("--worker", args, place).inspect_err(|_| {
        extant_fuse::clear(&point);
    })?;
    if let Some(background) = background {
        background.ready()?;
    }
    let pid = Pid::from_child(&worker);
    let (sender, events) = channel();
    let ended = sender.clone();
    std::thread::spawn(move || {
        // Whoever listens waits for this.
        let _ = ended.send(Event::Ended(worker.wait()));
    });
    std::thread::spawn(
        move || {
            while signals.wait().is_ok() && sender.send(Event::Signal).is_ok() {}
        },
    );
    let status = until_ended(&events, &point, pid);
    extant_fuse::clear(&point);
    match status.map_err(Failure::new)?.code().map(u8::try_from) {
        Some(Ok(0)) => Ok(()),
        Some(Ok(code)) => Err(Failure::Code(code)),
        _ => Err(Failure::new(
            "the process that reads the image was killed; what was synced is in the image, and the next mount \
             recovers it",
        )),
    }
}

/// Waits for the worker's end. After a signal those who use the mount have some time to leave it.
fn until_ended(events: &Receiver<Event>, point: &Path, worker: Pid) -> io::Result<ExitStatus> {
    let gone = || io::Error::other("nobody waits for the worker");
    if let Event::Ended(status) = events.recv().map_err(|_| gone())? {
        return status;
    }
    extant_fuse::leave(point);
    match events.recv_timeout(PATIENCE) {
        Ok(Event::Ended(status)) => return status,
        Ok(Event::Signal) | Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => return Err(gone()),
    }
    kill_process(worker, Signal::USR1)?;
    loop {
        if let Event::Ended(status) = events.recv().map_err(|_| gone())? {
            return status;
        }
    }
}
