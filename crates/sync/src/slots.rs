//! Slots that threads fill and empty without a lock.
//!
//! # Protocol
//!
//! | filling | emptying |
//! |---|---|
//! | take one from the count of free slots | store 0 in the slot |
//! | find a slot that is 0 and put the value there, by compare-and-swap | add one to the count |
//!
//! # Invariants
//!
//! - There are at least as many empty slots as the count and the reservations not yet used add up
//!   to, so a thread that has a reservation finds a slot in the end.

use crate::backend::atomic::Ordering;
use crate::{CountedAtomicU32, RmwClass, thread};

/// A number of slots, each of which holds a value or 0 for none.
///
/// ```
/// use extant_sync::{RmwClass, SlotArray};
///
/// static SLOT: RmwClass = RmwClass::new("example slot");
/// static FREE: RmwClass = RmwClass::new("example free slots");
/// let slots = SlotArray::new(&SLOT, &FREE, &[0, 7]);
/// let at = slots.reserve().expect("one slot is free").put(9, 1);
/// assert!(slots.reserve().is_none());
/// assert_eq!(slots.values().collect::<Vec<_>>(), [9, 7]);
/// assert!(slots.empty(at, 9));
/// ```
#[derive(Debug)]
pub struct SlotArray {
    slots: Box<[CountedAtomicU32]>,
    /// How many are empty and not promised to anybody.
    free: CountedAtomicU32,
}

impl SlotArray {
    /// Slots that hold `values`. Their read-modify-writes count in `slot`, those of the number of
    /// free ones in `free`.
    #[must_use]
    pub fn new(slot: &'static RmwClass, free: &'static RmwClass, values: &[u32]) -> Self {
        let empty = values.iter().filter(|&&value| value == 0).count();
        Self {
            slots: values
                .iter()
                .map(|&value| CountedAtomicU32::new(slot, value))
                .collect(),
            free: CountedAtomicU32::new(free, u32::try_from(empty).unwrap_or(u32::MAX)),
        }
    }

    /// What the slots hold, in order.
    pub fn values(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|slot| slot.load(Ordering::Acquire))
    }

    /// Makes sure of a slot, if one is free.
    #[inline]
    pub fn reserve(&self) -> Option<ReservedSlot<'_>> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free > 0 {
            // A thread that sees the count that came with an emptied slot also sees that slot
            // empty.
            let taken = self.free.compare_exchange_weak(
                free,
                free - 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Some(ReservedSlot { array: Some(self) }),
                Err(now) => free = now,
            }
        }
        None
    }

    /// Empties the slot at `at` if it holds `value`; whether it did.
    #[inline]
    pub fn empty(&self, at: u32, value: u32) -> bool {
        let held = self.slots.get(at as usize).is_some_and(|slot| {
            slot.compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        if held && value != 0 {
            self.free.fetch_add(1, Ordering::Release);
        }
        held
    }
}

/// The right to fill one slot of a [`SlotArray`]. Given back when dropped.
#[derive(Debug)]
#[must_use = "the slot is given back at once if this is dropped"]
pub struct ReservedSlot<'a> {
    /// Until it is used.
    array: Option<&'a SlotArray>,
}

impl ReservedSlot<'_> {
    /// Puts `value`, which is not 0, into an empty slot, looking from place `near` on; returns its
    /// place.
    #[inline]
    pub fn put(mut self, value: u32, near: usize) -> u32 {
        debug_assert!(value != 0, "0 is what an empty slot holds");
        let Some(array) = self.array.take() else {
            return 0;
        };
        let count = array.slots.len().max(1);
        loop {
            for step in 0..count {
                let at = (near + step) % count;
                if let Some(slot) = array.slots.get(at)
                    && slot.load(Ordering::Relaxed) == 0
                    && slot
                        .compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    return at as u32;
                }
            }
            // The free slot moved behind us: others filled the ones ahead.
            thread::yield_now();
        }
    }
}

impl Drop for ReservedSlot<'_> {
    fn drop(&mut self) {
        if let Some(array) = self.array {
            array.free.fetch_add(1, Ordering::Release);
        }
    }
}
