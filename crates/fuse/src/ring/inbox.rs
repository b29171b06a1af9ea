//! What other threads hand to the thread of a ring.

use super::commands::Came;
use super::memory::Slot;
use extant_sync::{LockClass, Mutex, Rank};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

static PARCELS: LockClass = LockClass::new("fuse ring inbox", Rank::Leaf);

/// A slot, and what is to become of it; or what became of one.
#[derive(Debug)]
pub(super) enum Parcel {
    /// Its answer is in it.
    Answered(Slot),
    /// Its request is to be answered.
    Asked(Slot),
    /// The kernel has given one back: the mount is over.
    GivenBack,
}

/// Slots for the thread of one ring, and an event that its ring waits for.
#[derive(Debug)]
pub(super) struct Inbox {
    parcels: Mutex<Vec<Parcel>>,
    event: OwnedFd,
}

impl Inbox {
    /// Makes an empty one.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            parcels: Mutex::new(&PARCELS, Vec::new()),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Returns a descriptor that is readable when there is something.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(super) fn put(&self, parcel: Parcel) {
        self.parcels.lock().push(parcel);
        self.wake();
    }

    /// Hands on several requests at once.
    pub(super) fn put_asked(&self, slots: impl IntoIterator<Item = Slot>) {
        self.parcels
            .lock()
            .extend(slots.into_iter().map(Parcel::Asked));
        self.wake();
    }

    /// Has the thread look.
    pub(super) fn wake(&self) {
        // It is full when it has been readable for long.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Puts what is there into `came`.
    pub(super) fn empty_into(&self, came: &mut Came) {
        // First: what comes after it makes it readable again.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let parcels = std::mem::take(&mut *self.parcels.lock());
        for parcel in parcels {
            match parcel {
                Parcel::Answered(slot) => came.answered.push(slot),
                Parcel::Asked(slot) => came.asked.push(slot),
                Parcel::GivenBack => came.given_back_elsewhere += 1,
            }
        }
    }
}
