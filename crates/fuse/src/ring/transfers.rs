//! Threads that answer large transfers, and give the kernel the answers themselves.
//!
//! With an answer to a read goes its data, which the kernel copies in the thread that gives it the
//! answer; with a write it is copied in the thread that takes the request. Were that the thread of
//! the processor where the program asked, it would keep that program from what it could do
//! meanwhile, and answer nobody else. So each processor's transfers have a thread with a ring of
//! its own. A slot whose answer it gives stays with it: the kernel puts the next request there,
//! which is the next transfer where a program reads or writes on. Then nobody else is woken at all.
//!
//! Any other request may come there as well. It goes to the thread of its processor, and the slot
//! with it. While such a thread has a slot, it is given no transfers but what comes there: a
//! request of somebody else may come there at any time, and would have to wait. The worker threads
//! get them then. If nothing comes to that slot for long, as others of the processor were used
//! later, the workers get all transfers.

use super::commands::{Came, Commands};
use super::idle::Pulse;
use super::inbox::{Inbox, Parcel};
use super::memory::Slot;
use super::offload::Homes;
use super::queue::{Size, answer, size};
use crate::answer::Answerer;
use extant_sync::{LockClass, Mutex, Rank};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static OFFERS: LockClass = LockClass::new("fuse transfer threads", Rank::Leaf);

/// What others know of those threads.
#[derive(Debug)]
pub(super) struct Transfers {
    /// By the processors whose transfers they answer.
    threads: Vec<Offer>,
    is_over: AtomicBool,
}

#[derive(Debug)]
struct Offer {
    /// It has nothing to do, and no slot.
    is_free: Mutex<bool>,
    inbox: Arc<Inbox>,
}

impl Transfers {
    pub(super) fn new(inboxes: impl Iterator<Item = Arc<Inbox>>) -> Self {
        let offer = |inbox| Offer {
            is_free: Mutex::new(&OFFERS, false),
            inbox,
        };
        Self {
            threads: inboxes.map(offer).collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Gives a transfer to the thread for those of its processor; gives it back if that one is not
    /// free.
    pub(super) fn give(&self, slot: Slot) -> Option<Slot> {
        let Some(thread) = self.threads.get(usize::from(slot.queue())) else {
            return Some(slot);
        };
        if !std::mem::take(&mut *thread.is_free.lock()) {
            return Some(slot);
        }
        thread.inbox.put(Parcel::Asked(slot));
        None
    }

    /// Has them all end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Relaxed);
        for thread in &self.threads {
            thread.inbox.wake();
        }
    }
}

/// One of those threads.
#[derive(Debug)]
pub(super) struct TransferThread {
    pub(super) commands: Commands,
}

impl TransferThread {
    /// Makes one that does nothing yet.
    ///
    /// # Errors
    /// When the system has no such rings, or not for us.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            commands: Commands::new(1)?,
        })
    }

    /// Answers the transfers of this processor until the mount is over.
    ///
    /// # Errors
    /// When the ring fails.
    pub(super) fn run(
        mut self,
        processor: u16,
        answerer: &Answerer,
        (transfers, homes): (&Transfers, &Homes),
        mut pulse: Option<Pulse>,
    ) -> io::Result<()> {
        self.commands.begin()?;
        let offer = || {
            if let Some(thread) = transfers.threads.get(usize::from(processor)) {
                *thread.is_free.lock() = true;
            }
        };
        let mut short = Vec::new();
        offer();
        let mut came = Came::default();
        loop {
            self.commands.wait(&mut came, pulse.as_mut())?;
            // Where nothing came it was woken for nothing: a transfer may be on its way.
            let mut is_free = !(came.given_back.is_empty() && came.asked.is_empty());
            for _ in came.given_back.drain(..) {
                homes.send(processor, Parcel::GivenBack);
            }
            if transfers.is_over.load(Relaxed) {
                return Ok(());
            }
            debug_assert!(came.answered.is_empty() && came.given_back_elsewhere == 0);
            // That is one, as it is given one when it is free only.
            for mut slot in came.asked.drain(..) {
                if size(&slot, answerer) == Some(Size::Large) {
                    answer(&mut slot, answerer, &mut short);
                    self.commands.commit(slot)?;
                    is_free = false;
                } else {
                    homes.send(processor, Parcel::Asked(slot));
                }
            }
            if is_free {
                offer();
            }
        }
    }
}
