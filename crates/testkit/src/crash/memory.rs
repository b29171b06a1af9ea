//! What was copied straight into the device, as if it were memory, and is not persisted.
//!
//! # Invariants
//! - A copy enters the log of writes when it is persisted, or something is written over it, or the
//!   log is asked for; it may have reached the medium at any moment since it was made. No flush
//!   covers it before.
//! - Of two that overlap the older one enters first.

use std::ops::Range;

use super::recorder::Event;

/// A copy of whole sectors, as the device had them afterwards.
#[derive(Debug, Clone)]
struct Copied {
    sectors: Range<u64>,
    event: Event,
}

/// Copies that are not persisted, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Copies(Vec<Copied>);

impl Copies {
    /// Notes a copy into `sectors`, in bytes of the device.
    pub(super) fn note(&mut self, sectors: Range<u64>, event: Event) {
        self.0.push(Copied { sectors, event });
    }

    /// Takes what overlaps `bytes`, and what is older and overlaps something taken: the device
    /// would not let an older copy take the place of a newer one.
    pub(super) fn take(&mut self, bytes: Range<u64>) -> Vec<Event> {
        let mut taken = vec![bytes];
        let mut events = Vec::new();
        for n in (0..self.0.len()).rev() {
            let sectors = &self.0[n].sectors;
            let overlaps =
                |range: &Range<u64>| range.start < sectors.end && sectors.start < range.end;
            if taken.iter().any(overlaps) {
                let copied = self.0.remove(n);
                taken.push(copied.sectors);
                events.push(copied.event);
            }
        }
        events.reverse();
        events
    }

    /// All of them.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> {
        self.0.iter().map(|copied| copied.event.clone())
    }
}
