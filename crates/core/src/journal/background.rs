//! The thread that commits now and then, and checkpoints when the log fills.
//!
//! It holds the file system weakly: dropping the last reference ends the thread, and leaves an image
//! that recovers to the last commit.

use super::checkpoint::Tail;
use crate::fs::Fs;
use crate::{Error, Result};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

static SIGNALS: LockClass = LockClass::new("journal thread", Rank::Leaf);

/// What the thread should do.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    checkpoint: bool,
    commit: bool,
    wake: bool,
    stop: bool,
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

    /// Starts the thread, which commits what is `interval` old.
    pub(super) fn start(&self, fs: Weak<Fs>, interval: Duration) -> Result<()> {
        let bell = Arc::clone(&self.bell);
        let thread = std::thread::Builder::new()
            .name("extant-journal".to_owned())
            .spawn(move || run(&fs, &bell, interval))
            .map_err(|_| Error::Internal("the system has no thread for the journal"))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Asks for a checkpoint. Without a thread the next caller who finds the log full does it.
    pub(super) fn checkpoint(&self) {
        self.ring(|signals| signals.checkpoint = true);
    }

    /// Asks for a commit. Returns whether there is somebody to do it.
    pub(super) fn commit(&self) -> bool {
        self.ring(|signals| signals.commit = true);
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

fn run(fs: &Weak<Fs>, bell: &Bell, interval: Duration) {
    let mut next = Instant::now() + interval;
    loop {
        let signals = wait(bell, next);
        if signals.stop {
            return;
        }
        let Some(fs) = fs.upgrade() else { return };
        let due = Instant::now() >= next;
        fs.tend(signals.checkpoint, due || signals.commit);
        if due {
            next = Instant::now() + interval;
        }
    }
}

/// Waits for a signal, or until `end`.
fn wait(bell: &Bell, end: Instant) -> Signals {
    let mut signals = bell.signals.lock();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if signals.stop || signals.checkpoint || signals.commit || signals.wake || left.is_zero() {
            return std::mem::take(&mut *signals);
        }
        bell.rung.wait_for(&mut signals, left);
    }
}

impl Fs {
    /// One turn of the thread. Errors stop the journal where they happen and reach those who wait.
    fn tend(&self, checkpoint: bool, commit: bool) {
        self.write_reports();
        if let Some(_changing) = self.try_begin_change() {
            let _ = self.reap();
        }
        if commit && let Ok(journal) = self.journal() {
            let _ = self.commit(journal.running());
        }
        if checkpoint {
            let _ = self.checkpoint_with(Tail::NextCommit);
        }
    }
}
