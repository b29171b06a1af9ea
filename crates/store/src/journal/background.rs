//! The thread that commits now and then, and checkpoints when the log fills.
//!
//! What a turn does is a closure, which holds the file system weakly: dropping the last reference
//! ends the thread, and leaves an image that recovers to the last commit.

use super::Seq;
use crate::{Error, Result};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

static SIGNALS: LockClass = LockClass::new("journal thread", Rank::Leaf);

/// What the thread should do.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    checkpoint: bool,
    /// The last transaction whose commit was asked for. If another thread has committed it
    /// meanwhile, nothing is to be done: the next one has just begun.
    commit: Option<Seq>,
    wake: bool,
    stop: bool,
}

/// What is due in a turn of the thread.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// A commit of what is running: it is time.
    pub is_time: bool,
    /// A commit of this transaction, unless it is durable by now.
    pub commit: Option<Seq>,
    /// A checkpoint.
    pub checkpoint: bool,
}

#[derive(Debug)]
struct Bell {
    signals: Mutex<Signals>,
    rung: Condvar,
}

/// The background thread of a journal, if it has one.
#[derive(Debug)]
pub(super) struct Background {
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            bell: Arc::new(Bell {
                signals: Mutex::new(&SIGNALS, Signals::default()),
                rung: Condvar::new(),
            }),
            thread: Mutex::new(&SIGNALS, None),
        }
    }

    /// Starts the thread, for which a commit is due every `interval`. It calls `tend` with what is
    /// due, until that returns `false`.
    pub(super) fn start(
        &self,
        interval: Duration,
        tend: impl Fn(Due) -> bool + Send + 'static,
    ) -> Result<()> {
        let bell = Arc::clone(&self.bell);
        let thread = std::thread::Builder::new()
            .name("extant-journal".to_owned())
            .spawn(move || run(&tend, &bell, interval))
            .map_err(|_| Error::Internal("the system has no thread for the journal"))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Asks for a checkpoint. Without a thread the next caller that finds the log full does it.
    pub(super) fn checkpoint(&self) {
        self.ring(|signals| signals.checkpoint = true);
    }

    /// Asks for the commit of a transaction. Returns whether there is somebody to do it.
    pub(super) fn commit(&self, seq: Seq) -> bool {
        self.ring(|signals| signals.commit = signals.commit.max(Some(seq)));
        self.thread.lock().is_some()
    }

    /// Asks for a look around.
    pub(super) fn wake(&self) {
        self.ring(|signals| signals.wake = true);
    }

    /// Ends the thread and waits for its end.
    pub(super) fn stop(&self) {
        self.ring(|signals| signals.stop = true);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // It panics only where a commit did, which stopped the journal.
            let _ = thread.join();
        }
    }

    fn ring(&self, set: impl FnOnce(&mut Signals)) {
        set(&mut self.bell.signals.lock());
        self.bell.rung.notify_all();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Not waited for: it may be the thread itself that drops the last reference.
        self.ring(|signals| signals.stop = true);
    }
}

fn run(tend: &dyn Fn(Due) -> bool, bell: &Bell, interval: Duration) {
    let mut next = Instant::now() + interval;
    loop {
        let signals = wait(bell, next);
        if signals.stop {
            return;
        }
        let is_time = Instant::now() >= next;
        let due = Due {
            is_time,
            commit: signals.commit,
            checkpoint: signals.checkpoint,
        };
        if !tend(due) {
            return;
        }
        if is_time {
            next = Instant::now() + interval;
        }
    }
}

/// Waits for a signal, or until `end`.
fn wait(bell: &Bell, end: Instant) -> Signals {
    let mut signals = bell.signals.lock();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let has_work = signals.checkpoint || signals.commit.is_some() || signals.wake;
        if signals.stop || has_work || left.is_zero() {
            return std::mem::take(&mut *signals);
        }
        bell.rung.wait_for(&mut signals, left);
    }
}
