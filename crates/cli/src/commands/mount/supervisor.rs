//! The process beside the one that reads the image: it can unmount, which that one cannot, and
//! never looks at what nobody vouches for.
//!
//! It knows the mount by the identity that the other process tells before it looks at the image,
//! and clears that one away and no other: when it comes to that, somebody else's mount may be on
//! the directory.

use super::INTERRUPTED;
use super::background::{Background, Said, WORKER, launch, why_ended, words};
use super::carrier::{self, Started, Starting};
use super::manager;
use crate::args::{Mount, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::whole_image;
use extant_fuse::{MountId, PATIENCE, Signals, show_presence, tell_failure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a worker that is given up has to tell what it has mounted.
const TO_TELL: Duration = Duration::from_secs(1);

/// What is said when the worker did not end by itself.
const KILLED: &str = "the process that reads the image was killed; what was synced is in the image, and the next \
                      mount recovers it";

enum Event {
    Signal,
    /// The carrier has opened the image, or has ended before.
    Carrier(bool),
    /// Nobody waits for the mount to work any more.
    Abandoned,
    /// The worker says something.
    Said(Said),
    /// The worker ended, and how is still to be asked.
    Ended,
}

/// The worker. Its number is no other process's until it was asked how it ended, which the thread
/// that sends it signals does: a signal never reaches a process that has the number by then.
struct Worker(Child);

impl Worker {
    fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(Pid::from_child(&self.0), signal).map_err(Into::into)
    }

    /// Waits for its end, and returns how it ended.
    fn ended(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }
}

/// Returns when the process of this number has ended, which stays to be asked how.
pub(super) fn wait_for(child: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    // The thread that asks how it ended waits itself where this cannot be done.
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(child), options) {}
}

/// Starts a worker and keeps its mount until it ends.
pub(super) fn supervise(args: &Mount, location: &Whereabouts) -> Outcome {
    let background = if args.in_background {
        Some(Background::begin(args)?)
    } else {
        None
    };
    let signals = Signals::hold_back().map_err(Failure::new)?;
    let (sender, events) = channel();
    // All threads are there before anything is mounted that would have to be cleared away without
    // them.
    let (started, worker) = channel();
    let of_worker = sender.clone();
    start_thread("extant-worker", move || {
        let Ok((output, pid)) = worker.recv() else {
            return;
        };
        for said in words(output) {
            // The thread that listens waits for the end.
            let _ = of_worker.send(Event::Said(said));
        }
        wait_for(pid);
        let _ = of_worker.send(Event::Ended);
    })?;
    if background.is_some() {
        let sender = sender.clone();
        start_thread("extant-command", move || tell_when_abandoned(&sender))?;
    }
    let of_carrier = sender.clone();
    start_thread("extant-signals", move || {
        while signals.wait().is_ok() && sender.send(Event::Signal).is_ok() {}
    })?;
    let (input, carried) = if args.carried {
        let starting = carrier::start(args, location, move |has_opened| {
            let _ = of_carrier.send(Event::Carrier(has_opened));
        })?;
        let (socket, started) = until_carried(&events, starting)?;
        // An open file that is the image was for that process.
        extant_fuse::keep_descriptors(&[]).map_err(Failure::new)?;
        (socket.into(), Some(started))
    } else {
        (Stdio::null(), None)
    };
    let mut child = launch(WORKER, args, location, input)?;
    // The thread waits for it.
    let _ = started.send((child.stdout.take(), Pid::from_child(&child)));
    let mut worker = Worker(child);
    let mut kept = Kept::default();
    let status = until_ready(&events, &mut worker, &mut kept).and_then(|()| {
        if let Some(background) = background {
            background.ready()?;
        } else {
            manager::tell(manager::READY);
        }
        until_ended(&events, &kept, &mut worker).map_err(Failure::new)
    });
    if let Some(id) = kept.id {
        extant_fuse::clear(&id);
    }
    if let Some(carried) = carried {
        if kept.is_given_up {
            carried.give_up();
        } else {
            carried.wait();
        }
    }
    // Where nobody can look at the image as at a file.
    let has_path = whole_image(args.image.as_os_str()).is_ok_and(|image| image.path().is_some());
    if (args.carried || !has_path) && status.as_ref().is_ok_and(|status| !status.success()) {
        tell_failure();
    }
    match status?.code().map(u8::try_from) {
        Some(Ok(0)) => Ok(()),
        Some(Ok(code)) => Err(Failure::Code(code)),
        _ => {
            if args.in_background {
                crate::log::tell_system(&args.point, KILLED);
            }
            Err(Failure::new(KILLED))
        }
    }
}

/// Starts a thread, which lists of threads show under its name, of up to 15 bytes.
pub(super) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Outcome {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(run);
    started.map(drop).map_err(|e| {
        Failure::new(format!(
            "no thread can be started ({e}): raise the limit of processes (ulimit -u)"
        ))
    })
}

/// Tells when the command that was started in the terminal is gone, which reads what this process
/// says.
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
    /// Somebody wants it to end before it works.
    is_given_up: bool,
}

impl Kept {
    /// Notes what the worker has mounted. It is believed once: what comes later is said by a
    /// process that has looked at the image.
    fn tell(&mut self, id: MountId) {
        if self.id.is_none() {
            self.id = Some(id);
            show_presence(&id);
        }
    }
}

/// Waits until the carrier has opened the image. A signal ends it at once, however long a server
/// lets it wait: nothing is mounted yet.
fn until_carried(events: &Receiver<Event>, starting: Starting) -> Outcome<(OwnedFd, Started)> {
    loop {
        match events.recv() {
            Ok(Event::Carrier(true)) => return Ok(starting.opened()),
            Ok(Event::Carrier(false)) => return Err(starting.why()),
            Ok(Event::Signal | Event::Abandoned) => {
                starting.give_up();
                return Err(Failure::new(INTERRUPTED));
            }
            Ok(Event::Said(_) | Event::Ended) => {}
            Err(_) => {
                starting.give_up();
                return Err(Failure::new(gone()));
            }
        }
    }
}

/// Waits until the mount works. Until then a signal ends the worker at once: it may have a long
/// journal to replay, and what it leaves is what a crash leaves.
fn until_ready(events: &Receiver<Event>, worker: &mut Worker, kept: &mut Kept) -> Outcome {
    loop {
        let event = if !(kept.is_given_up && kept.id.is_none()) {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            events.recv_timeout(TO_TELL)
        };
        match event {
            Ok(Event::Said(Said::Attached(id))) => {
                kept.tell(id);
                if kept.is_given_up {
                    worker.signal(Signal::KILL).map_err(Failure::new)?;
                }
            }
            Ok(Event::Said(Said::Ready)) if !kept.is_given_up => return Ok(()),
            Ok(Event::Said(Said::Ready) | Event::Carrier(_)) => {}
            Ok(Event::Ended) if kept.is_given_up => {
                return Err(Failure::new(
                    "interrupted before the mount worked; the next mount, or extant replay, goes on where this one \
                     ended",
                ));
            }
            Ok(Event::Ended) => {
                return Err(why_ended(&worker.ended().map_err(Failure::new)?));
            }
            Ok(Event::Signal | Event::Abandoned) => {
                // What is mounted by then is to be cleared away, too.
                kept.is_given_up = true;
                if kept.id.is_some() {
                    worker.signal(Signal::KILL).map_err(Failure::new)?;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                worker.signal(Signal::KILL).map_err(Failure::new)?;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new(gone())),
        }
    }
}

/// Waits for the worker's end. After a signal the programs that use the mount have some time to
/// leave it.
fn until_ended(
    events: &Receiver<Event>,
    kept: &Kept,
    worker: &mut Worker,
) -> io::Result<ExitStatus> {
    loop {
        match events.recv().map_err(|_| gone())? {
            Event::Ended => return worker.ended(),
            Event::Signal => {
                manager::tell(manager::STOPPING);
                break;
            }
            Event::Said(_) | Event::Carrier(_) | Event::Abandoned => {}
        }
    }
    if let Some(id) = kept.id {
        // The worker, which this may wait for, may have to be told to end. Without a thread for it,
        // it is told when time is up.
        let _ = start_thread("extant-leave", move || extant_fuse::sync_and_detach(&id));
    }
    let patience = Instant::now() + PATIENCE;
    loop {
        match events.recv_timeout(patience.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended) => return worker.ended(),
            // Somebody is in a hurry.
            Ok(Event::Signal) | Err(RecvTimeoutError::Timeout) => break,
            Ok(Event::Said(_) | Event::Carrier(_) | Event::Abandoned) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
        }
    }
    worker.signal(Signal::USR1)?;
    loop {
        if let Event::Ended = events.recv().map_err(|_| gone())? {
            return worker.ended();
        }
    }
}
