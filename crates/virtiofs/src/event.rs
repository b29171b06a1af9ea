//! Events of a monitor: descriptors that it shares with the server, and may do anything with.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, readlinkat};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// An event by which a guest is told of something, or tells: an `eventfd`, a pipe or a socket.
///
/// Telling it should never wait. The monitor shares the descriptor and says whether it waits, and
/// for an `eventfd` no flag of a single write says otherwise. So room is looked for first. The
/// monitor can fill the event after that, and then keeps the thread that writes to it. It is let go
/// by [`release`](Self::release).
///
/// Before Linux 5.8 an `eventfd` cannot be read without the risk to wait, and before 6.4 a pipe or
/// a socket cannot. A monitor that empties it at the wrong moment keeps the thread that reads.
#[derive(Debug)]
pub(crate) struct Event {
    descriptor: OwnedFd,
    /// It is an `eventfd`.
    counts: bool,
    has_room: fn(&OwnedFd) -> bool,
}

impl Event {
    /// Takes a descriptor for one.
    ///
    /// # Errors
    /// When it is none of the kinds that are known to take and give without waiting, or `/proc`
    /// does not say what it is.
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        // The descriptor itself is not asked: of a file in FUSE, that asks whoever serves it.
        let link = format!("/proc/thread-self/fd/{}", descriptor.as_raw_fd());
        let kind = readlinkat(CWD, link, Vec::new()).map_err(|e| {
            let e = io::Error::from(e);
            io::Error::new(e.kind(), format!("no event is taken without /proc: {e}"))
        })?;
        let counts = match kind.to_bytes() {
            b"anon_inode:[eventfd]" => true,
            kind if kind.starts_with(b"pipe:[") || kind.starts_with(b"socket:[") => false,
            _ => {
                let why = "a queue is to be told by what is no eventfd, pipe or socket";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        };
        Ok(Self {
            descriptor,
            counts,
            has_room,
        })
    }

    /// Makes one that the monitor fills each time after room was found.
    #[cfg(test)]
    pub(crate) fn filled_meanwhile(descriptor: OwnedFd) -> Self {
        Self {
            has_room: |_| true,
            ..Self::new(descriptor).unwrap()
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

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn has_room(event: &OwnedFd) -> bool {
    let at_once = Timespec::default();
    let mut one = [PollFd::new(event, PollFlags::OUT)];
    let is_polled = poll(&mut one, Some(&at_once)).is_ok();
    is_polled && one[0].revents().contains(PollFlags::OUT)
}

/// Takes what an event has counted, without waiting for it where the kernel can.
pub(crate) fn take_count(event: impl AsFd) -> rustix::io::Result<usize> {
    let event = event.as_fd();
    let mut count = [0; 8];
    let mut into = [IoSliceMut::new(&mut count)];
    // From where it is: it has no places.
    match preadv2(event, &mut into, u64::MAX, ReadWriteFlags::NOWAIT) {
        // What reads them in older kernels does not know the flag.
        Err(Errno::OPNOTSUPP) => rustix::io::read(event, &mut count),
        other => other,
    }
}
