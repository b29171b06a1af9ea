//! Which groups stay in memory.
//!
//! The bitmaps of a group take some five blocks, and there may be many thousand groups. Beyond a
//! budget, a group whose bitmaps can be read again lets them go when another one comes; what was
//! used since the last look is passed over once (the clock algorithm). Groups with blocks that
//! somebody has taken, or that transactions have changed which are not durable, stay whatever the
//! budget says.

use super::Alloc;
use super::image::seal;
use extant_format::{BlockSize, Group};
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::VecDeque;

static GROUPS: LockClass = LockClass::new("groups in memory", Rank::Leaf);

/// One part in this many of the memory of all caches may be bitmaps.
const SHARE: usize = 4;
/// Blocks that the bitmaps of a group take: two of blocks, one of inodes, and the buddies.
const BLOCKS_EACH: usize = 5;
/// Groups that may always be in memory.
const LEAST: usize = 16;
/// Groups that are looked at when one has come.
const LOOKS: usize = 16;

/// The groups in memory.
#[derive(Debug)]
pub(super) struct InMemory {
    /// In the order in which they are looked at.
    ring: Mutex<VecDeque<Group>>,
    most: usize,
}

impl InMemory {
    /// None, in caches of `memory` bytes.
    pub(super) fn new(memory: usize, block_size: BlockSize) -> Self {
        let most = memory / SHARE / (block_size.len() * BLOCKS_EACH).max(1);
        Self {
            ring: Mutex::new(&GROUPS, VecDeque::new()),
            most: most.max(LEAST),
        }
    }

    /// How many there are, and how many there should be at most.
    #[cfg(feature = "inspect")]
    pub(super) fn count(&self) -> (usize, usize) {
        (self.ring.lock().len(), self.most)
    }
}

impl Alloc {
    /// Notes that the bitmaps of `group` came into memory, and lets others go if there are too
    /// many.
    pub(super) fn note_in_memory(&self, group: Group) {
        let in_memory = &self.in_memory;
        let mut ring = in_memory.ring.lock();
        ring.push_back(group);
        let mut over = ring.len().saturating_sub(in_memory.most);
        drop(ring);
        if over == 0 {
            return;
        }
        let durable = self.journal.durable().get();
        for _ in 0..LOOKS {
            let Some(group) = in_memory.ring.lock().pop_front() else {
                return;
            };
            if self.let_go(group, durable) {
                over -= 1;
            } else {
                in_memory.ring.lock().push_back(group);
            }
            if over == 0 {
                return;
            }
        }
    }

    /// Lets the bitmaps of a group go, unless somebody uses them or has since the last look.
    fn let_go(&self, group: Group, durable: u64) -> bool {
        let Ok(slot) = self.slot(group) else {
            return true;
        };
        let Some(loaded) = slot.loaded() else {
            return true;
        };
        if loaded.is_away() {
            // It was in the ring twice.
            return true;
        }
        if loaded.take_used() {
            return false;
        }
        let Some(mut locked) = slot.try_lock(loaded) else {
            return false;
        };
        locked.leave(durable, |state| {
            seal(&self.volume, &mut state.desc, &state.blocks, &state.inodes);
        })
    }
}
