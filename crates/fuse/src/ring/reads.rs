//! Threads that answer small reads which come several at a time.
//!
//! Four and more that are there at once are most likely from a program that does not wait for each
//! (libaio, io_uring). Were they answered by the thread of its processor, the program and that
//! thread would take turns, and the other processors would do nothing. So they go to a thread with
//! a ring of its own, and the slots with them, as in [`transfers`](super::transfers). What comes
//! alone, or is no small read, goes back to the thread of its processor, with the slot.

use super::commands::{Came, Commands};
use super::idle::Pulse;
use super::inbox::{Inbox, Parcel};
use super::memory::Slot;
use super::offload::Homes;
use super::queue::{Size, answer, size};
use crate::answer::Answerer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Reads that have to be there at once.
const SEVERAL: usize = 4;

/// What others know of those threads.
#[derive(Debug)]
pub(super) struct Reads {
    inboxes: Vec<Arc<Inbox>>,
    is_over: AtomicBool,
}

impl Reads {
    pub(super) fn new(inboxes: impl Iterator<Item = Arc<Inbox>>) -> Self {
        Self {
            inboxes: inboxes.collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Takes the small reads out of these requests of one processor, if they are several.
    pub(super) fn take(&self, processor: u16, asked: &mut Vec<Slot>, answerer: &Answerer) {
        if self.inboxes.is_empty() || asked.len() < SEVERAL {
            return;
        }
        let is_small = |slot: &Slot| size(slot, answerer) == Some(Size::SmallRead);
        let small = asked.iter().filter(|slot| is_small(slot)).count();
        let inbox = self
            .inboxes
            .get(usize::from(processor) % self.inboxes.len());
        if small >= SEVERAL
            && let Some(inbox) = inbox
        {
            inbox.put_asked(asked.extract_if(.., |slot| is_small(slot)));
        }
    }

    /// Has them all end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
        for inbox in &self.inboxes {
            inbox.wake();
        }
    }
}

/// One of those threads.
#[derive(Debug)]
pub(super) struct ReadThread {
    pub(super) commands: Commands,
}

impl ReadThread {
    /// Makes one for processors that have so many slots together, which does nothing yet.
    ///
    /// # Errors
    /// When the system has no such rings, or not for us.
    pub(super) fn new(slots: usize) -> io::Result<Self> {
        Ok(Self {
            commands: Commands::new(slots)?,
        })
    }

    /// Answers until the mount is over.
    ///
    /// # Errors
    /// When the ring fails.
    pub(super) fn run(
        mut self,
        answerer: &Answerer,
        (reads, homes): (&Reads, &Homes),
        mut pulse: Option<Pulse>,
    ) -> io::Result<()> {
        self.commands.begin()?;
        let mut short = Vec::new();
        let mut came = Came::default();
        loop {
            self.commands.wait(&mut came, pulse.as_mut())?;
            for slot in came.given_back.drain(..) {
                homes.send(slot.queue(), Parcel::GivenBack);
            }
            if reads.is_over.load(Relaxed) {
                return Ok(());
            }
            debug_assert!(came.answered.is_empty() && came.given_back_elsewhere == 0);
            // First: nobody else waits for what is read.
            let is_alone = came.asked.len() == 1;
            for slot in came.asked.extract_if(.., |slot| {
                is_alone || size(slot, answerer) != Some(Size::SmallRead)
            }) {
                homes.send(slot.queue(), Parcel::Asked(slot));
            }
            for mut slot in came.asked.drain(..) {
                answer(&mut slot, answerer, &mut short);
                self.commands.commit(slot)?;
            }
        }
    }
}
