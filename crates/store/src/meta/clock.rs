//! Which blocks to forget when the budget is used up: CLOCK, one ring per shard.

use super::BlockRef;
use crate::meta::{Seq, Shed};
use extant_format::Pblk;
use extant_sync::{LockClass, Mutex, Rank, ShardedCounter};
use std::sync::atomic::{AtomicU64, Ordering};

static RING: LockClass = LockClass::new("meta clock", Rank::LruShard);

/// Fewest blocks a shard should hold, so that chance does not fill one and leave others empty.
const MIN_PER_SHARD: usize = 64;

/// Most blocks that are looked at while a shard is locked, where all are.
pub(super) const SHED_AT_ONCE: usize = 256;

/// In shards of as many blocks, those whose numbers differ in so few bits go into the same one:
/// threads that work in different groups then use different shards.
const MANY: usize = 4096;
const TOGETHER: u32 = 9;

/// The rings of all shards.
#[derive(Debug)]
pub(super) struct Clock {
    shards: Box<[Shard]>,
    /// How many bits of a block's number its shard does not depend on.
    together: u32,
    /// Most blocks per shard.
    limit: usize,
    /// Blocks in all shards, about.
    kept: ShardedCounter,
    /// Images that later transactions wrote exist nowhere else and must stay.
    clean: AtomicU64,
}

/// A shard, on lines of memory of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Ring>);

/// The blocks of a shard. Each knows its place, so that it can be taken out at once.
#[derive(Debug, Default)]
struct Ring {
    blocks: Vec<BlockRef>,
    hand: usize,
}

/// What came of adding a block.
pub(super) struct Added {
    /// Whether the block is kept.
    pub(super) kept: bool,
    /// The block whose place in the ring it took.
    pub(super) victim: Option<BlockRef>,
    /// Another one that had to go.
    pub(super) extra: Option<BlockRef>,
}

impl Added {
    fn kept(victim: Option<BlockRef>) -> Self {
        Self {
            kept: true,
            victim,
            extra: None,
        }
    }
}

impl Clock {
    /// A clock for at most `blocks` blocks; never less than one.
    pub(super) fn new(blocks: usize, cpus: usize) -> Self {
        let shards = (blocks / MIN_PER_SHARD)
            .clamp(1, cpus.saturating_mul(4).max(1))
            .next_power_of_two();
        let shards = if shards > 1 && shards * MIN_PER_SHARD > blocks {
            shards / 2
        } else {
            shards
        };
        let limit = (blocks / shards).max(1);
        Self {
            limit,
            together: if limit >= MANY { TOGETHER } else { 0 },
            kept: ShardedCounter::new(),
            clean: AtomicU64::new(0),
            shards: (0..shards)
                .map(|_| Shard(Mutex::new(&RING, Ring::default())))
                .collect(),
        }
    }

    /// Adds a block that is in the cache's table, in the place of another one if need be.
    pub(super) fn add(&self, block: &BlockRef) -> Added {
        let clean = self.clean();
        let mut ring = self.shard(block.block()).lock();
        if ring.blocks.len() < self.limit {
            ring.push(block);
            self.kept.inc();
            return Added::kept(None);
        }
        // Images of a transaction may have gone past the limit: come back to it step by step.
        let mut extra = None;
        if ring.blocks.len() > self.limit {
            extra = ring.find_victim(clean).map(|at| ring.take(at));
            if extra.is_some() {
                self.kept.dec();
            }
        }
        let victim = ring
            .find_victim(clean)
            .map(|at| ring.replace(at, block.clone()));
        Added {
            kept: victim.is_some(),
            victim,
            extra,
        }
    }

    /// Puts `new` in the place of the older image `old` of the same block, or adds it. It is kept
    /// whatever the limit says.
    pub(super) fn supersede(&self, old: Option<&BlockRef>, new: &BlockRef) -> Added {
        {
            let mut ring = self.shard(new.block()).lock();
            if let Some(at) = old.and_then(|old| old.buffer().ring_at()) {
                ring.swap(at, new);
                return Added::kept(None);
            }
        }
        let added = self.add(new);
        if added.kept {
            return added;
        }
        self.shard(new.block()).lock().push(new);
        self.kept.inc();
        Added {
            kept: true,
            ..added
        }
    }

    /// Images up to that of transaction `seq` may be forgotten: they can be had elsewhere.
    pub(super) fn set_clean(&self, seq: Seq) {
        self.clean.store(seq.get(), Ordering::Release);
    }

    fn clean(&self) -> Seq {
        Seq::new(self.clean.load(Ordering::Acquire))
    }

    /// Takes a block out, if it is in.
    pub(super) fn remove(&self, block: &BlockRef) {
        let removed = {
            let mut ring = self.shard(block.block()).lock();
            block.buffer().ring_at().map(|at| ring.take(at))
        };
        if removed.is_some() {
            self.kept.dec();
        }
    }

    /// Takes out the blocks that are not needed for a commit and that nobody holds: those that were
    /// not used since the last call, or all. Of one shard after the other, some at a time, to
    /// `each`, which runs while no shard is locked.
    pub(super) fn shed(&self, what: Shed, mut each: impl FnMut(Vec<BlockRef>)) {
        let clean = self.clean();
        for shard in &self.shards {
            let mut left = usize::MAX;
            while left > 0 {
                let taken;
                (taken, left) = shard.0.lock().shed(clean, what, left);
                self.kept.add(-(taken.len() as i64));
                each(taken);
            }
        }
    }

    /// How many blocks are in.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.0.lock().blocks.len()).sum()
    }

    /// About how many blocks are in, without a lock.
    pub(super) fn about(&self) -> i64 {
        self.kept.sum()
    }

    /// Most blocks that can be in.
    pub(super) fn limit(&self) -> usize {
        self.limit * self.shards.len()
    }

    fn shard(&self, block: Pblk) -> &Mutex<Ring> {
        // Very many neighbours in one shard would let a sequential scan empty it: spread them.
        let block = block.get() >> self.together;
        let hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        &self.shards[hash as usize & (self.shards.len() - 1)].0
    }
}

impl Ring {
    /// Moves the hand to the first block that was not used since the hand last came by and that
    /// nobody holds, nor needs for a commit. `None` after two full turns: all are held.
    fn find_victim(&mut self, clean: Seq) -> Option<usize> {
        for _ in 0..self.blocks.len() * 2 {
            if self.hand >= self.blocks.len() {
                self.hand = 0;
            }
            let block = &self.blocks[self.hand];
            if block.seq() <= clean && !block.buffer().take_used() && block.is_idle() {
                return Some(self.hand);
            }
            self.hand += 1;
        }
        None
    }

    /// Looks at the last of the first `left` blocks. Returns those that it took out, and how many
    /// are left to look at.
    fn shed(&mut self, clean: Seq, what: Shed, left: usize) -> (Vec<BlockRef>, usize) {
        let mut taken = Vec::new();
        let end = left.min(self.blocks.len());
        let start = end.saturating_sub(SHED_AT_ONCE);
        // Downwards: the one that takes the place of another was looked at before, and is not
        // looked at again.
        for at in (start..end).rev() {
            let block = &self.blocks[at];
            let used = block.buffer().take_used();
            let goes = what == Shed::All || !used;
            if goes && block.seq() <= clean && block.is_idle() {
                taken.push(self.take(at));
            }
        }
        (taken, start)
    }

    /// Adds `block` at the end.
    fn push(&mut self, block: &BlockRef) {
        block.buffer().set_ring_at(Some(self.blocks.len()));
        self.blocks.push(block.clone());
    }

    /// Puts a newer image in the place of the one at `at`.
    fn swap(&mut self, at: usize, new: &BlockRef) {
        new.buffer().set_ring_at(Some(at));
        let old = std::mem::replace(&mut self.blocks[at], new.clone());
        old.buffer().set_ring_at(None);
    }

    /// Puts `block` in the place `at`, which the hand then comes by last of all.
    fn replace(&mut self, at: usize, block: BlockRef) -> BlockRef {
        block.buffer().set_ring_at(Some(at));
        let victim = std::mem::replace(&mut self.blocks[at], block);
        victim.buffer().set_ring_at(None);
        self.hand = at + 1;
        victim
    }

    /// Takes the block at `at` out; the last one takes its place.
    fn take(&mut self, at: usize) -> BlockRef {
        let block = self.blocks.swap_remove(at);
        block.buffer().set_ring_at(None);
        if let Some(moved) = self.blocks.get(at) {
            moved.buffer().set_ring_at(Some(at));
        }
        block
    }
}
