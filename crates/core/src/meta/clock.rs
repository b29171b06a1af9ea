//! Which blocks to forget when the budget is used up: CLOCK, one ring per shard.

use super::BlockRef;
use extant_format::Pblk;
use extant_sync::{LockClass, Mutex, Rank, ShardedCounter};

static RING: LockClass = LockClass::new("meta clock", Rank::LruShard);

/// Fewest blocks a shard should hold, so that chance does not fill one and leave others empty.
const MIN_PER_SHARD: usize = 64;

/// The rings of all shards.
#[derive(Debug)]
pub(super) struct Clock {
    shards: Box<[Mutex<Ring>]>,
    /// Most blocks per shard.
    limit: usize,
    /// Blocks in all shards, about.
    kept: ShardedCounter,
}

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
        Self {
            limit: (blocks / shards).max(1),
            kept: ShardedCounter::new(),
            shards: (0..shards)
                .map(|_| Mutex::new(&RING, Ring::default()))
                .collect(),
        }
    }

    /// Adds a block that is in the cache's table, in the place of another one if need be.
    pub(super) fn add(&self, block: &BlockRef) -> Added {
        let mut ring = self.shard(block.block()).lock();
        if ring.blocks.len() < self.limit {
            block.buffer().set_ring_at(Some(ring.blocks.len()));
            ring.blocks.push(block.clone());
            self.kept.inc();
            return Added {
                kept: true,
                victim: None,
            };
        }
        let victim = ring.find_victim().map(|at| ring.replace(at, block.clone()));
        Added {
            kept: victim.is_some(),
            victim,
        }
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

    /// How many blocks are in.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().blocks.len()).sum()
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
        // Neighbours in one shard would let a sequential scan empty it: spread them.
        let hash = block.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        &self.shards[hash as usize & (self.shards.len() - 1)]
    }
}

impl Ring {
    /// Moves the hand to the first block that was not used since the hand last came by and that
    /// nobody holds. `None` after two full turns: all are held.
    fn find_victim(&mut self) -> Option<usize> {
        for _ in 0..self.blocks.len() * 2 {
            if self.hand >= self.blocks.len() {
                self.hand = 0;
            }
            let block = &self.blocks[self.hand];
            if !block.buffer().take_used() && block.is_idle() {
                return Some(self.hand);
            }
            self.hand += 1;
        }
        None
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
