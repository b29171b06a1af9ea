//! The threads of a mount: those that answer, and one for what waits until the kernel has written a
//! file back.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// The threads of one mount.
#[derive(Debug)]
pub(crate) struct Threads {
    running: Vec<JoinHandle<()>>,
    ended: Receiver<io::Result<()>>,
    ends: Sender<io::Result<()>>,
}

impl Threads {
    pub(crate) fn new() -> Self {
        let (ends, ended) = mpsc::channel();
        Self {
            running: Vec::new(),
            ended,
            ends,
        }
    }

    /// Starts one more, of this name.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn start(
        &mut self,
        name: String,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let ends = self.ends.clone();
        let thread = std::thread::Builder::new().name(name);
        let started = thread.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(run))
                .unwrap_or_else(|_| Err(io::Error::other("a thread that answers panicked")));
            // Nobody waits any more after an error.
            let _ = ends.send(ended);
        });
        self.running.push(started?);
        Ok(())
    }

    /// Waits until all have ended, or one in an error: others may never end then.
    pub(crate) fn wait(self) -> io::Result<()> {
        for _ in 0..self.running.len() {
            // A sender is here.
            self.ended.recv().unwrap_or(Ok(()))?;
        }
        for thread in self.running {
            // What it had to say it has said.
            let _ = thread.join();
        }
        Ok(())
    }
}

/// A thread for what waits until the kernel has written a file back, which needs answers of all
/// others meanwhile. It is there from the beginning: a confined process starts none later.
#[derive(Clone, Debug)]
pub(crate) struct WriteBackThread(Sender<Job>);

type Job = Box<dyn FnOnce() + Send>;

impl WriteBackThread {
    /// Starts it. It ends when the last of these is dropped.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn start(threads: &mut Threads) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        threads.start("extant-seal".to_owned(), move || {
            jobs.into_iter().for_each(|job| job());
            Ok(())
        })?;
        Ok(Self(sender))
    }

    /// Has it do this after what it was given before. `false` when it is gone.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.0.send(Box::new(job)).is_ok()
    }
}
