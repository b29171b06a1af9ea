//! The signals that end a mount.

use nix::sys::signal::{SigSet, Signal};
use std::io;

/// What ends a mount.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
/// What ends the process that reads the image.
const END_WORKER: Signal = Signal::SIGUSR1;

/// Signals that wait to be asked for, instead of killing the process.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    set: SigSet,
    is_immediate: bool,
}

impl Signals {
    /// Selects, of those held back, the one by which a mount's own process is told to end: the
    /// others are for the process that started it.
    #[must_use]
    pub fn for_worker(self) -> Self {
        Self {
            set: SigSet::from_iter([END_WORKER]),
            is_immediate: true,
        }
    }

    /// Holds SIGTERM, SIGINT, SIGHUP and SIGUSR1 back from this thread and those it starts from now
    /// on: call it before there are others.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn hold_back() -> io::Result<Self> {
        let set = SigSet::from_iter(ENDING);
        let all = SigSet::from_iter(ENDING.into_iter().chain([END_WORKER]));
        all.thread_block()?;
        Ok(Self {
            set,
            is_immediate: false,
        })
    }

    /// Tells whether the mount is to end without waiting for its users, as another process has
    /// asked them to leave.
    pub(crate) fn ends_immediately(self) -> bool {
        self.is_immediate
    }

    /// Waits for one of them.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn wait(&self) -> io::Result<()> {
        loop {
            match self.set.wait() {
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}
