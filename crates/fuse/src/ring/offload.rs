//! Requests that may take long, answered by worker threads instead of the rings' own.

use super::memory::Slot;
use super::queue::answer;
use crate::answer::{Answerer, Long};
use crate::notifier::Notifier;
use crate::service::{Errno, Node};
use crate::threads::WriteBackThread;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

static JOBS: LockClass = LockClass::new("fuse offloaded requests", Rank::Leaf);
static RETURNS: LockClass = LockClass::new("fuse offloaded replies", Rank::Leaf);

/// Slots that go back to their queue with an answer.
#[derive(Debug)]
pub(super) struct Returns {
    slots: Mutex<Vec<Slot>>,
    event: OwnedFd,
}

impl Returns {
    /// Makes an empty one.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            slots: Mutex::new(&RETURNS, Vec::new()),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Returns a descriptor that is readable when slots are there.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn put(&self, slot: Slot) {
        self.slots.lock().push(slot);
        // It is full when it has been readable for long.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Takes what has come back.
    pub(super) fn take(&self) -> Vec<Slot> {
        // First: what comes after it makes it readable again.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        std::mem::take(&mut *self.slots.lock())
    }
}

#[derive(Debug)]
struct Job {
    slot: Slot,
    returns: Arc<Returns>,
}

/// What waits for the worker threads of one kind.
#[derive(Debug)]
pub(super) struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    answerer: Answerer,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_over: bool,
}

impl Jobs {
    /// Answers until the [`Offload`] is dropped, from which the requests come.
    pub(super) fn run(&self) {
        let mut short = Vec::new();
        while let Some(mut job) = self.next() {
            answer(&mut job.slot, &self.answerer, &mut short);
            job.returns.put(job.slot);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| {
            waiting.jobs.is_empty() && !waiting.is_over
        });
        waiting.jobs.pop_front()
    }
}

/// Hands requests to worker threads, which end when it is dropped.
#[derive(Debug)]
pub(super) struct Offload {
    /// By [`Long`]: what waits for commits keeps no transfers waiting.
    jobs: [Arc<Jobs>; 2],
    answerer: Answerer,
    notifier: Notifier,
    writeback: WriteBackThread,
}

impl Offload {
    pub(super) fn new(
        answerer: &Answerer,
        notifier: &Notifier,
        writeback: WriteBackThread,
    ) -> Self {
        let jobs = || {
            Arc::new(Jobs {
                waiting: Mutex::new(&JOBS, Waiting::default()),
                changed: Condvar::new(),
                answerer: answerer.clone(),
            })
        };
        Self {
            jobs: [jobs(), jobs()],
            answerer: answerer.clone(),
            notifier: notifier.clone(),
            writeback,
        }
    }

    /// Lists what the worker threads of each kind do, and what those are called.
    pub(super) fn jobs(&self) -> [(&'static str, Arc<Jobs>); 2] {
        let [transfers, others] = &self.jobs;
        [("io", Arc::clone(transfers)), ("long", Arc::clone(others))]
    }

    /// Has a request answered by a worker thread.
    pub(super) fn answer(&self, slot: Slot, long: Long, returns: Arc<Returns>) {
        let [transfers, others] = &self.jobs;
        let jobs = match long {
            Long::Transfer => transfers,
            Long::Other => others,
        };
        jobs.waiting.lock().jobs.push_back(Job { slot, returns });
        jobs.changed.notify_one();
    }

    /// Has a request answered after the kernel has written the file back, by the thread for that:
    /// the kernel needs answers to other requests meanwhile, also to those that are offloaded.
    pub(super) fn answer_when_written(&self, mut slot: Slot, returns: Arc<Returns>) {
        let (answerer, notifier) = (self.answerer.clone(), self.notifier.clone());
        let header = slot.request().header;
        // Where there is no thread, the closure is dropped with all it has, so it gets the slot
        // last.
        let (give, take) = std::sync::mpsc::sync_channel::<Slot>(1);
        let then = Arc::clone(&returns);
        let is_taken = self.writeback.run(move || {
            let Ok(mut slot) = take.recv() else {
                return;
            };
            notifier.write_back(Node(header.node));
            answer(&mut slot, &answerer, &mut Vec::new());
            then.put(slot);
        });
        if is_taken {
            // It waits for it.
            drop(give.send(slot));
        } else {
            tracing::error!("no thread for a file that becomes immutable");
            slot.reply(header.unique, -Errno::IO.0, 0);
            returns.put(slot);
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        for jobs in &self.jobs {
            jobs.waiting.lock().is_over = true;
            jobs.changed.notify_all();
        }
    }
}
