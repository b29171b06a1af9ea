//! A list of everything of a kind, spread over CPUs.

use crate::{LockClass, Mutex, PerCpu};
use std::fmt;

/// A shard smaller than this is not trimmed.
const MIN_TRIM: usize = 64;
const END: u32 = u32::MAX;

/// An unordered collection that threads on different CPUs add to and remove from without meeting,
/// and that can be walked while it changes.
///
/// Each shard is a slab under a lock of its own; the [`ListToken`] of an entry says where it is, so
/// that removing it takes constant time, from any CPU.
pub struct PerCpuList<T> {
    shards: PerCpu<Mutex<Slab<T>>>,
}

/// The place of an entry in a [`PerCpuList`]; needed to remove it, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "without its token an entry cannot be removed"]
pub struct ListToken {
    shard: u32,
    slot: u32,
}

/// How far a walk of a [`PerCpuList`] got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListCursor {
    shard: usize,
    slot: usize,
}

struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// First of the chain of free slots.
    free: u32,
    live: usize,
    /// When there are fewer live entries than this, free slots at the end are given back.
    trim_below: usize,
}

enum Slot<T> {
    Full(T),
    /// The next free slot.
    Free(u32),
}

impl<T> PerCpuList<T> {
    /// An empty list, whose shards' locks are of `class`.
    #[must_use]
    pub fn new(class: &'static LockClass) -> Self {
        Self {
            shards: PerCpu::new(|_| Mutex::new(class, Slab::new())),
        }
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// When a shard would hold 2^32 - 1 entries.
    pub fn insert(&self, entry: T) -> ListToken {
        let shard = self.shards.local_index();
        let slot = self.shards.local_shard(shard).lock().insert(entry);
        ListToken {
            shard: shard as u32,
            slot,
        }
    }

    /// Removes the entry that `token` was given for. `None` if the token is another list's.
    pub fn remove(&self, token: ListToken) -> Option<T> {
        let shard = self.shards.get(token.shard as usize)?;
        shard.lock().remove(token.slot)
    }

    /// How many entries there are; while others change the list, about how many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().live).sum()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Goes on with a walk: applies `pick` to entries after `cursor` until it has returned `max`
    /// values, and adds those to `out`. Returns whether there may be more.
    ///
    /// `pick` runs under a shard's lock: it clones or filters, and leaves the work for afterwards.
    /// Entries that are in the list throughout a walk are seen exactly once; those inserted or
    /// removed meanwhile may or may not be.
    pub fn next_batch<R>(
        &self,
        cursor: &mut ListCursor,
        max: usize,
        out: &mut Vec<R>,
        mut pick: impl FnMut(&T) -> Option<R>,
    ) -> bool {
        let mut left = max;
        while let Some(shard) = self.shards.get(cursor.shard) {
            let shard = shard.lock();
            while let Some(slot) = shard.slots.get(cursor.slot) {
                if left == 0 {
                    return true;
                }
                cursor.slot += 1;
                if let Slot::Full(entry) = slot
                    && let Some(picked) = pick(entry)
                {
                    out.push(picked);
                    left -= 1;
                }
            }
            cursor.shard += 1;
            cursor.slot = 0;
        }
        false
    }

    /// Calls `f` with every entry, under the lock of its shard.
    pub fn for_each(&self, mut f: impl FnMut(&T)) {
        for shard in self.shards.iter() {
            for slot in &shard.lock().slots {
                if let Slot::Full(entry) = slot {
                    f(entry);
                }
            }
        }
    }
}

impl<T> Slab<T> {
    const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: END,
            live: 0,
            trim_below: 0,
        }
    }

    fn insert(&mut self, entry: T) -> u32 {
        self.live += 1;
        self.trim_below = self.trim_below.max(self.live / 4);
        let full = Slot::Full(entry);
        if let Some(slot) = self.slots.get_mut(self.free as usize) {
            let at = self.free;
            if let Slot::Free(next) = std::mem::replace(slot, full) {
                self.free = next;
            }
            return at;
        }
        let at = u32::try_from(self.slots.len()).ok().filter(|at| *at != END);
        self.slots.push(full);
        at.expect("fewer than 2^32 - 1 entries in a shard")
    }

    fn remove(&mut self, at: u32) -> Option<T> {
        let slot = self.slots.get_mut(at as usize)?;
        if matches!(slot, Slot::Free(_)) {
            return None;
        }
        let removed = std::mem::replace(slot, Slot::Free(self.free));
        self.free = at;
        self.live -= 1;
        if self.live < self.trim_below && self.slots.len() >= MIN_TRIM {
            self.trim();
        }
        match removed {
            Slot::Full(entry) => Some(entry),
            Slot::Free(_) => None,
        }
    }

    /// Gives the free slots at the end back. Tried again when half as many entries are left, so
    /// that entries at the end cost no more than a walk of the slab per halving.
    fn trim(&mut self) {
        self.trim_below = self.live / 2;
        while matches!(self.slots.last(), Some(Slot::Free(_))) {
            self.slots.pop();
        }
        self.slots.shrink_to(self.slots.len() * 2);
        self.free = END;
        for (at, slot) in self.slots.iter_mut().enumerate().rev() {
            if let Slot::Free(next) = slot {
                *next = self.free;
                self.free = at as u32;
            }
        }
    }
}

impl<T> fmt::Debug for PerCpuList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuList")
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}
