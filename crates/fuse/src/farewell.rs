//! The last request of a mount that has a block device, which the process that unmounts waits for:
//! it is answered when the file system is closed.

use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::io;
use std::sync::mpsc::Sender;

static FAREWELL: LockClass = LockClass::new("fuse farewell", Rank::Leaf);

/// What ends a mount.
#[derive(Debug)]
pub(crate) enum Event {
    /// The kernel asks for the end, and waits for it.
    Requested,
    /// The kernel gave the mount up.
    Over(io::Result<()>),
    Signal,
}

/// Has the thread that answers that request wait for the end.
#[derive(Debug)]
pub(crate) struct Farewell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Where it is reported that it came.
    events: Option<Sender<Event>>,
    is_closed: bool,
}

impl Farewell {
    pub(crate) fn new() -> Self {
        let state = State {
            events: None,
            is_closed: false,
        };
        Self {
            state: Mutex::new(&FAREWELL, state),
            changed: Condvar::new(),
        }
    }

    /// Reports to `events` when the kernel asks.
    pub(crate) fn report_to(&self, events: Sender<Event>) {
        self.state.lock().events = Some(events);
    }

    /// Reports that the kernel asks, and returns when the file system is closed.
    pub(crate) fn wait_closed(&self) {
        let mut state = self.state.lock();
        let reported = state
            .events
            .as_ref()
            .map(|events| events.send(Event::Requested));
        if let Some(Ok(())) = reported {
            self.changed
                .wait_while(&mut state, |state| !state.is_closed);
        }
    }

    /// Notes that the file system is closed, or is not going to be.
    pub(crate) fn closed(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}
