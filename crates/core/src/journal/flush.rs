//! Flushes of the device, shared among those who need one at the same time.
//!
//! A flush makes durable what was complete when it began. So who has completed writes needs any
//! flush that begins afterwards, whoever does it: the next waiter for all of them, or a commit, whose
//! first flush covers the data that was complete when the commit began.

use extant_blockdev::{BlockDevice, DeviceResult};
use extant_sync::{Condvar, LockClass, Mutex, Rank};

static FLUSHES: LockClass = LockClass::new("journal flushes", Rank::Leaf);

/// A moment before which writes were complete: [`Fs::flush_data`](crate::fs::Fs::flush_data) makes
/// them durable. Moments are ordered.
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
    /// The last flush, or commit, that began.
    begun: u64,
    /// What was complete when this one began is durable.
    done: u64,
    /// One is on its way for all who wait.
    running: bool,
}

/// The flushes of one device.
#[derive(Debug)]
pub(super) struct Flushes {
    state: Mutex<State>,
    ended: Condvar,
}

impl Flushes {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(&FLUSHES, State::default()),
            ended: Condvar::new(),
        }
    }

    /// Now: writes that are complete need a flush that begins later.
    pub(super) fn ticket(&self) -> FlushTicket {
        FlushTicket(self.state.lock().begun + 1)
    }

    /// Whether what was complete at `ticket` is durable.
    pub(super) fn covers(&self, ticket: FlushTicket) -> bool {
        self.state.lock().done >= ticket.0
    }

    /// Something begins that flushes on its own, such as a commit. [`Flushes::done`] says that it
    /// did.
    pub(super) fn begin(&self) -> FlushTicket {
        let mut state = self.state.lock();
        state.begun += 1;
        FlushTicket(state.begun)
    }

    /// The flush that began as `begun` is over.
    pub(super) fn done(&self, begun: FlushTicket) {
        let mut state = self.state.lock();
        state.done = state.done.max(begun.0);
        drop(state);
        self.ended.notify_all();
    }

    /// Makes durable what was complete at `ticket`: by a flush, unless one that began later is
    /// over or does it for others already. Returns whether this call flushed.
    pub(super) fn flush(
        &self,
        device: &dyn BlockDevice,
        ticket: FlushTicket,
    ) -> DeviceResult<bool> {
        let mut state = self.state.lock();
        while state.done < ticket.0 {
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.running = true;
            state.begun += 1;
            let begun = state.begun;
            drop(state);
            let result = device.flush();
            let mut state = self.state.lock();
            state.running = false;
            if result.is_ok() {
                state.done = state.done.max(begun);
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
    use extant_blockdev::MemoryDevice;

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
}
