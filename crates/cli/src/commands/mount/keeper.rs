//! The process beside the one that reads the image: it can unmount, which that one cannot, and never looks at what
//! nobody vouches for.
//!
//! It knows the mount by the identity that the other process tells before it looks at the image, and clears that one away and
//! no other: when it comes to that, somebody else's mount may be on the directory.

use super::background::{Background, Said, WORKER, launch, why_ended, words};
use crate::args::{Mount, Where};
use crate::failure::{Failure, Outcome};
use extant_fuse::{MountId, PATIENCE, Presence, Signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a worker that is given up has to tell what it has mounted.
const TO_TELL: Duration = Duration::from_secs(1);

enum Event {
    Signal,
    /// Nobody waits for the mount to work any more.
    Abandoned,
    /// The worker says something.
    Said(Said),
    /// The worker ended.
    Ended(io::Result<ExitStatus>),
}

/// Starts a worker and keeps its mount until it ends.
pub(super) fn keep(args: &Mount, place: &Where) -> Outcome {
    let background = match args.in_background {
        true => Some(Background::begin(args)?),
        false => None,
    };
    let signals = Signals::hold_back().map_err(Failure::new)?;
    let mut worker = launch(WORKER, args, place)?;
    let pid = Pid::from_child(&worker);
    let (sender, events) = channel();
    let of_worker = sender.clone();
    std::thread::spawn(move || {
        for said in words(worker.stdout.take()) {
            // Whoever listens waits for the end.
            let _ = of_worker.send(Event::Said(said));
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
    let mut kept = Kept::default();
    let status = until_ready(&events, pid, &mut kept).and_then(|()| {
        if let Some(background) = background {
            background.ready()?;
        }
        until_ended(&events, &kept, pid).map_err(Failure::new)
    });
    if let Some(id) = kept.id {
        extant_fuse::clear(&id);
    }
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

/// What is kept.
#[derive(Debug, Default)]
struct Kept {
    /// Unknown until the worker has told.
    id: Option<MountId>,
    /// Shows that this process is there.
    presence: Option<Presence>,
}

impl Kept {
    /// The worker tells what it has mounted. It is believed once: what comes later is said by a process that has looked at
    /// the image.
    fn tell(&mut self, id: MountId) {
        if self.id.is_none() {
            self.id = Some(id);
            self.presence = Some(Presence::of(&id));
        }
    }
}

/// Waits until the mount works. Until then a signal ends the worker at once: it may have a long journal to replay, and
/// what it leaves is what a crash leaves.
fn until_ready(events: &Receiver<Event>, worker: Pid, kept: &mut Kept) -> Outcome {
    let mut is_given_up = false;
    let kill = || kill_process(worker, Signal::KILL).map_err(|e| Failure::new(io::Error::from(e)));
    loop {
        let event = match is_given_up && kept.id.is_none() {
            false => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            true => events.recv_timeout(TO_TELL),
        };
        match event {
            Ok(Event::Said(Said::Attached(id))) => {
                kept.tell(id);
                if is_given_up {
                    kill()?;
                }
            }
            Ok(Event::Said(Said::Ready)) if !is_given_up => return Ok(()),
            Ok(Event::Said(Said::Ready)) => {}
            Ok(Event::Ended(_)) if is_given_up => {
                return Err(Failure::new(
                    "interrupted before the mount worked; the next mount, or extant replay, goes on where this one \
                     ended",
                ));
            }
            Ok(Event::Ended(status)) => return Err(why_ended(&status.map_err(Failure::new)?)),
            Ok(Event::Signal | Event::Abandoned) => {
                // What is mounted by then is to be cleared away, too.
                is_given_up = true;
                if kept.id.is_some() {
                    kill()?;
                }
            }
            Err(RecvTimeoutError::Timeout) => kill()?,
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new(gone())),
        }
    }
}

/// Waits for the worker's end. After a signal those who use the mount have some time to leave it.
fn until_ended(events: &Receiver<Event>, kept: &Kept, worker: Pid) -> io::Result<ExitStatus> {
    loop {
        match events.recv().map_err(|_| gone())? {
            Event::Ended(status) => return status,
            Event::Signal => break,
            Event::Said(_) | Event::Abandoned => {}
        }
    }
    if let Some(id) = kept.id {
        // The worker, which this may wait for, may have to be told to end.
        std::thread::spawn(move || extant_fuse::leave(&id));
    }
    let patience = Instant::now() + PATIENCE;
    loop {
        match events.recv_timeout(patience.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended(status)) => return status,
            // Somebody is in a hurry.
            Ok(Event::Signal) | Err(RecvTimeoutError::Timeout) => break,
            Ok(Event::Said(_) | Event::Abandoned) => {}
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
