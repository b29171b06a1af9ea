//! The signals that end a mount.

use nix::sys::signal::{SigSet, Signal};
use std::io;

/// Signals that wait to be asked for, instead of killing the process.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    set: SigSet,
}

impl Signals {
    /// Holds SIGTERM, SIGINT and SIGHUP back from this thread and those it starts from now on: call it before there
    /// are others.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn hold_back() -> io::Result<Self> {
        let set = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
        set.thread_block()?;
        Ok(Self { set })
    }

    /// Waits for one of them.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn wait(&self) -> io::Result<()> {
        loop {
            match self.set.wait() {
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}
