//! Requests that others answer than the threads of the processors.

use super::inbox::{Inbox, Parcel};
use super::memory::Slot;
use super::queue::answer;
use super::reads::Reads;
use super::transfers::Transfers;
use crate::answer::{Answerer, Long};
use crate::notifier::Notifier;
use crate::service::{Errno, Node};
use crate::threads::WriteBackThread;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::VecDeque;
use std::sync::Arc;

static JOBS: LockClass = LockClass::new("fuse offloaded requests", Rank::Leaf);

/// The inboxes of the threads that own the slots, by their processors.
#[derive(Clone, Debug)]
pub(super) struct Homes(Arc<[Arc<Inbox>]>);

impl Homes {
    pub(super) fn new(inboxes: impl Iterator<Item = Arc<Inbox>>) -> Self {
        Self(inboxes.collect())
    }

    /// Hands the thread of a processor one of its slots, or tells it of one.
    pub(super) fn send(&self, processor: u16, parcel: Parcel) {
        if let Some(home) = self.0.get(usize::from(processor)) {
            home.put(parcel);
        }
    }
}

/// What waits for the worker threads of one kind.
#[derive(Debug)]
pub(super) struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    answerer: Answerer,
    homes: Homes,
}

#[derive(Debug, Default)]
struct Waiting {
    slots: VecDeque<Slot>,
    is_over: bool,
}

impl Jobs {
    fn new(answerer: &Answerer, homes: &Homes) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(&JOBS, Waiting::default()),
            changed: Condvar::new(),
            answerer: answerer.clone(),
            homes: homes.clone(),
        })
    }

    /// Answers until the [`Offload`] is dropped, from which the requests come.
    pub(super) fn run(&self) {
        let mut short = Vec::new();
        while let Some(mut slot) = self.next() {
            answer(&mut slot, &self.answerer, &mut short);
            self.homes.send(slot.queue(), Parcel::Answered(slot));
        }
    }

    /// Has a request answered.
    pub(super) fn push(&self, slot: Slot) {
        self.waiting.lock().slots.push_back(slot);
        self.changed.notify_one();
    }

    fn next(&self) -> Option<Slot> {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| {
            waiting.slots.is_empty() && !waiting.is_over
        });
        waiting.slots.pop_front()
    }
}

/// Threads with rings that are beside those of the processors.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) transfers: Transfers,
    pub(super) reads: Reads,
    pub(super) homes: Homes,
}

/// Hands requests to other threads, which end when it is dropped.
#[derive(Debug)]
pub(super) struct Offload {
    beside: Arc<Beside>,
    /// What waits for commits keeps no transfers waiting.
    transfers: Arc<Jobs>,
    others: Arc<Jobs>,
    answerer: Answerer,
    notifier: Notifier,
    writeback: WriteBackThread,
}

impl Offload {
    pub(super) fn new(
        answerer: &Answerer,
        notifier: &Notifier,
        writeback: WriteBackThread,
        beside: Beside,
    ) -> Self {
        Self {
            transfers: Jobs::new(answerer, &beside.homes),
            others: Jobs::new(answerer, &beside.homes),
            beside: Arc::new(beside),
            answerer: answerer.clone(),
            notifier: notifier.clone(),
            writeback,
        }
    }

    /// Lists what the worker threads of each kind do, and what those are called.
    pub(super) fn jobs(&self) -> [(&'static str, Arc<Jobs>); 2] {
        let shared = Arc::clone;
        [
            ("io", shared(&self.transfers)),
            ("long", shared(&self.others)),
        ]
    }

    /// Returns what the threads with rings know of each other.
    pub(super) fn beside(&self) -> Arc<Beside> {
        Arc::clone(&self.beside)
    }

    /// Has a request answered by another thread.
    pub(super) fn answer(&self, slot: Slot, long: Long) {
        match long {
            Long::Transfer => {
                if let Some(slot) = self.beside.transfers.give(slot) {
                    self.transfers.push(slot);
                }
            }
            Long::Other => self.others.push(slot),
        }
    }

    /// Has small reads of one processor answered by another thread, if they are several.
    pub(super) fn take_reads(&self, processor: u16, asked: &mut Vec<Slot>) {
        self.beside.reads.take(processor, asked, &self.answerer);
    }

    /// Has a request answered after the kernel has written the file back, by the thread for that:
    /// the kernel needs answers to other requests meanwhile, also to those that are offloaded.
    pub(super) fn answer_when_written(&self, mut slot: Slot) {
        let (answerer, notifier) = (self.answerer.clone(), self.notifier.clone());
        let header = slot.request().header;
        // Where there is no thread, the closure is dropped with all it has, so it gets the slot
        // last.
        let (give, take) = std::sync::mpsc::sync_channel::<Slot>(1);
        let homes = self.beside.homes.clone();
        let is_taken = self.writeback.run(move || {
            let Ok(mut slot) = take.recv() else {
                return;
            };
            notifier.write_back(Node(header.node));
            answer(&mut slot, &answerer, &mut Vec::new());
            homes.send(slot.queue(), Parcel::Answered(slot));
        });
        if is_taken {
            // It waits for it.
            drop(give.send(slot));
        } else {
            tracing::error!("no thread for a file that becomes immutable");
            slot.reply(header.unique, -Errno::IO.0, 0);
            self.beside.homes.send(slot.queue(), Parcel::Answered(slot));
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.beside.transfers.end();
        self.beside.reads.end();
        for jobs in [&self.transfers, &self.others] {
            jobs.waiting.lock().is_over = true;
            jobs.changed.notify_all();
        }
    }
}
