//! The signals that end a mount.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::BorrowedFd;
use std::process::exit;

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

    /// Does `work`, which may wait for long and leaves nothing behind. As long as it does, one of
    /// the signals ends this process with exit code 1, after a call of `tell`. So does the end of
    /// what reads `pipe`, if that is given.
    ///
    /// # Errors
    /// When the system has no descriptors or no thread for it.
    pub fn end_during<T>(
        &self,
        pipe: Option<BorrowedFd<'_>>,
        tell: impl FnOnce() + Send,
        work: impl FnOnce() -> T,
    ) -> io::Result<T> {
        // It tells of signals and takes none: those that come later end the mount.
        let pending = SignalFd::with_flags(&self.set, SfdFlags::SFD_CLOEXEC)?;
        let (is_over, over) = pipe_with(PipeFlags::CLOEXEC)?;
        let watch = move || {
            let mut all = vec![
                PollFd::new(&is_over, PollFlags::IN),
                PollFd::new(&pending, PollFlags::IN),
            ];
            all.extend(
                pipe.as_ref()
                    .map(|pipe| PollFd::new(pipe, PollFlags::empty())),
            );
            while poll(&mut all, None) == Err(Errno::INTR) {}
            if all[0].revents().is_empty() && all.iter().any(|one| !one.revents().is_empty()) {
                tell();
                exit(1);
            }
        };
        std::thread::scope(move |scope| {
            // Closed when the work ends, in whichever way.
            let _over = over;
            std::thread::Builder::new()
                .name("extant-hurry".to_owned())
                .spawn_scoped(scope, watch)?;
            Ok(work())
        })
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
