//! Flushes of the device, shared among threads that need one at the same time.
//!
//! A flush makes durable what was complete when it began. So a thread that has completed writes
//! needs any flush that begins afterwards, whichever thread does it: the next waiter for all of
//! them, or a commit, whose first flush covers the data that was complete when the commit began.
//!
//! # Order
//!
//! Every write takes a ticket, so that takes no lock:
//!
//! | writing | flushing |
//! |---|---|
//! | write, until it is complete | count the flush as begun |
//! | fence | fence |
//! | look how many flushes have begun | flush |
//!
//! Both fences are sequentially consistent, so one of the two comes first. If it is the writer's,
//! the flush finds the write complete; if the flusher's, the writer sees that flush as begun and
//! asks for a later one.
//!
//! # Failures
//!
//! What a device had in its cache when a flush failed may be gone, and a later flush that succeeds
//! says nothing about it. So failures are counted, and every file with data that was written before
//! is told once: see `LiveInode::take_loss`.

use crate::{Error, Result};
use extant_blockdev::BlockDevice;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::sync::atomic::{AtomicU64, Ordering, fence};

static FLUSHES: LockClass = LockClass::new("journal flushes", Rank::Leaf);

/// A moment before which writes were complete: `Fs::flush_data` of
/// `extant-core` makes them durable. Moments are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushTicket(u64);

impl FlushTicket {
    /// The ticket of that number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number, which is above 0 for every ticket that was handed out.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[derive(Debug, Default)]
struct State {
    /// One is on its way for all that wait.
    running: bool,
    /// Why the last one failed that did.
    failure: Option<Error>,
}

/// The flushes of one device.
#[derive(Debug)]
pub(super) struct Flushes {
    /// The last flush, or commit, that began. Changes only under `state`.
    begun: AtomicU64,
    /// What was complete when this one began is durable. Changes only under `state`.
    done: AtomicU64,
    /// How many have failed. Changes only under `state`.
    failures: AtomicU64,
    state: Mutex<State>,
    ended: Condvar,
}

impl Flushes {
    pub(super) fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            state: Mutex::new(&FLUSHES, State::default()),
            ended: Condvar::new(),
        }
    }

    /// Now: writes that are complete need a flush that begins later.
    pub(super) fn ticket(&self) -> FlushTicket {
        fence(Ordering::SeqCst);
        FlushTicket(self.begun.load(Ordering::SeqCst) + 1)
    }

    /// How many flushes of data have failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Why the last flush failed that did.
    pub(super) fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// A commit or a checkpoint has failed, perhaps in its flush: what the device had in its cache
    /// may be gone, whosever it was.
    pub(super) fn failed(&self, cause: &Error) {
        let mut state = self.state.lock();
        state.failure = Some(cause.clone());
        let failures = self.failures.load(Ordering::Relaxed) + 1;
        self.failures.store(failures, Ordering::Release);
    }

    /// One more begins, under the lock of `state`.
    fn count_begun(&self) -> u64 {
        let begun = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(begun, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        begun
    }

    /// Whether what was complete at `ticket` is durable.
    fn is_done(&self, ticket: FlushTicket) -> bool {
        self.done.load(Ordering::Acquire) >= ticket.0
    }

    /// The flush that began as `begun` is over, under the lock of `state`.
    fn count_done(&self, begun: u64) {
        let done = self.done.load(Ordering::Relaxed).max(begun);
        self.done.store(done, Ordering::Release);
    }

    /// Whether what was complete at `ticket` is durable.
    #[cfg(test)]
    pub(super) fn covers(&self, ticket: FlushTicket) -> bool {
        self.is_done(ticket)
    }

    /// Something begins that flushes on its own, such as a commit. [`Flushes::done`] says that it
    /// did.
    pub(super) fn begin(&self) -> FlushTicket {
        let _state = self.state.lock();
        FlushTicket(self.count_begun())
    }

    /// The flush that began as `begun` is over.
    pub(super) fn done(&self, begun: FlushTicket) {
        let state = self.state.lock();
        self.count_done(begun.0);
        drop(state);
        self.ended.notify_all();
    }

    /// Makes durable what was complete at `ticket`: by a flush, unless one that began later is
    /// over or does it for others already. Returns whether this call flushed.
    pub(super) fn flush(&self, device: &dyn BlockDevice, ticket: FlushTicket) -> Result<bool> {
        if self.is_done(ticket) {
            return Ok(false);
        }
        let mut state = self.state.lock();
        while !self.is_done(ticket) {
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.running = true;
            let begun = self.count_begun();
            drop(state);
            let result = device.flush().map_err(Error::from);
            let mut state = self.state.lock();
            state.running = false;
            match &result {
                Ok(()) => self.count_done(begun),
                Err(error) => {
                    state.failure = Some(error.clone());
                    let failures = self.failures.load(Ordering::Relaxed) + 1;
                    self.failures.store(failures, Ordering::Release);
                }
            }
            drop(state);
            self.ended.notify_all();
            return result.map(|()| true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::{DeviceResult, MemoryDevice};

    #[test]
    fn a_flush_covers_what_was_complete_when_it_began_and_nothing_later() {
        let device = MemoryDevice::new(4096);
        let flushes = Flushes::new();
        let first = flushes.ticket();
        assert!(!flushes.covers(first));
        assert!(flushes.flush(&device, first).unwrap());
        assert!(!flushes.flush(&device, first).unwrap());
        // A commit that is under way does not cover what completes meanwhile.
        let commit = flushes.begin();
        let second = flushes.ticket();
        flushes.done(commit);
        assert!(!flushes.covers(second));
        assert!(flushes.flush(&device, second).unwrap());
        // One that begins later does.
        let third = flushes.ticket();
        let commit = flushes.begin();
        flushes.done(commit);
        assert!(!flushes.flush(&device, third).unwrap());
    }

    /// A device whose flush makes durable what was written when it began.
    #[derive(Debug, Default)]
    struct Counting {
        written: [AtomicU64; 2],
        durable: [AtomicU64; 2],
    }

    impl BlockDevice for Counting {
        fn size(&self) -> u64 {
            0
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> DeviceResult<()> {
            Ok(())
        }

        fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
            Ok(())
        }

        fn flush(&self) -> DeviceResult<()> {
            for (durable, written) in self.durable.iter().zip(&self.written) {
                durable.store(written.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Ok(())
        }

        fn name(&self) -> String {
            "counting".to_owned()
        }
    }

    #[test]
    fn whoever_takes_a_ticket_after_a_write_finds_it_durable_after_the_flush() {
        let device = Counting::default();
        let flushes = Flushes::new();
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (device, flushes) = (&device, &flushes);
                scope.spawn(move || {
                    for round in 1..200_000 {
                        device.written[me].store(round, Ordering::Relaxed);
                        flushes.flush(device, flushes.ticket()).unwrap();
                        assert!(device.durable[me].load(Ordering::Relaxed) >= round);
                    }
                });
            }
        });
    }
}
