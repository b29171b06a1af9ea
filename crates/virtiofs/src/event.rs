//! Events of a monitor: descriptors that it shares with the server, and may do anything with.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

/// An event by which a guest is told of something.
///
/// Telling it should never wait. The monitor shares the descriptor and says whether it waits, and
/// for an `eventfd` no flag of a single write says otherwise. So room is looked for first. The
/// monitor can fill the event after that, and then keeps the thread that writes to it. It is let go
/// by [`release`](Self::release).
#[derive(Debug)]
pub(crate) struct Event {
    descriptor: OwnedFd,
    /// It may be an `eventfd`: it is a file of no type.
    counts: bool,
    has_room: fn(&OwnedFd) -> bool,
}

impl Event {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        let kind = fstat(&descriptor).map(|stat| FileType::from_raw_mode(stat.st_mode));
        Self {
            descriptor,
            counts: matches!(kind, Ok(FileType::Unknown)),
            has_room,
        }
    }

    /// Makes one that the monitor fills each time after room was found.
    #[cfg(test)]
    pub(crate) fn filled_meanwhile(descriptor: OwnedFd) -> Self {
        Self {
            has_room: |_| true,
            ..Self::new(descriptor)
        }
    }

    /// Adds one to what it counts. What cannot be told is not.
    pub(crate) fn tell(&self) {
        let one = 1_u64.to_ne_bytes();
        if !self.counts {
            let one = [IoSlice::new(&one)];
            let _ = pwritev2(&self.descriptor, &one, u64::MAX, ReadWriteFlags::NOWAIT);
        } else if (self.has_room)(&self.descriptor) {
            let _ = rustix::io::write(&self.descriptor, &one);
        }
    }

    /// Lets a thread go that waits in [`tell`](Self::tell). It may be kept once more.
    pub(crate) fn release(&self) {
        // As long as there is room nobody waits, and the count is somebody's to read.
        if self.counts && !has_room(&self.descriptor) {
            let _ = take_count(&self.descriptor);
        }
    }
}

fn has_room(event: &OwnedFd) -> bool {
    let at_once = Timespec::default();
    let mut one = [PollFd::new(event, PollFlags::OUT)];
    let is_polled = poll(&mut one, Some(&at_once)).is_ok();
    is_polled && one[0].revents().contains(PollFlags::OUT)
}

/// Takes what an event has counted, without waiting for it.
pub(crate) fn take_count(event: &OwnedFd) -> rustix::io::Result<usize> {
    let mut count = [0; 8];
    let mut into = [IoSliceMut::new(&mut count)];
    // From where it is: it has no places.
    match preadv2(event, &mut into, u64::MAX, ReadWriteFlags::NOWAIT) {
        // What reads events in older kernels does not know the flag.
        Err(Errno::OPNOTSUPP) => rustix::io::read(event, &mut count),
        other => other,
    }
}
