//! Which blocks are in memory, by number.
//!
//! Blocks whose numbers follow each other mostly are used by the same few threads: those of one
//! directory, or of one inode table. So they have their places next to each other, and a change of
//! one touches no memory that threads elsewhere look at.

use super::BlockRef;
use super::buffer::Buffer;
use extant_format::Pblk;
use extant_sync::{EpochGuard, LockClass, Rank, RcuMap, RcuSlot, shard_count};

static BUCKET: LockClass = LockClass::new("meta bucket", Rank::CacheBucket);

/// Places of a leaf.
const LEAF: u64 = 16;

/// Blocks by number. Read without a lock.
#[derive(Debug)]
pub(super) struct Table(RcuMap<u64, Leaf>);

/// Blocks whose numbers follow each other. Changed under the lock of its bucket.
type Leaf = [RcuSlot<Buffer>; LEAF as usize];

/// The leaf that a block is in, and its place there.
#[inline]
fn place_of(block: Pblk) -> (u64, usize) {
    (block.get() / LEAF, (block.get() % LEAF) as usize)
}

impl Table {
    pub(super) fn new() -> Self {
        Self(RcuMap::new(&BUCKET, (shard_count() * 32).max(128)))
    }

    /// The block, borrowed: not even a reference count changes.
    #[inline]
    pub(super) fn peek<'g>(&'g self, block: Pblk, guard: &'g EpochGuard) -> Option<&'g Buffer> {
        let (key, place) = place_of(block);
        self.0.get(&key, guard)?.get(place)?.get(guard)
    }

    /// The block, to keep.
    #[inline]
    pub(super) fn get(&self, block: Pblk, guard: &EpochGuard) -> Option<BlockRef> {
        let (key, place) = place_of(block);
        let found = self.0.get(&key, guard)?.get(place)?.load(guard)?;
        Some(BlockRef::of(found))
    }

    /// The block that is there, or else none, and then `new` is.
    pub(super) fn get_or_insert(&self, new: &BlockRef, guard: &EpochGuard) -> Option<BlockRef> {
        self.change(new.block(), guard, |place| {
            let there = place.load(guard).map(BlockRef::of);
            if there.is_none() {
                place.put(new.shared(), guard);
            }
            there
        })
    }

    /// Puts `new` in the place of what is there, and returns that.
    pub(super) fn replace(&self, new: &BlockRef, guard: &EpochGuard) -> Option<BlockRef> {
        self.change(new.block(), guard, |place| {
            let before = place.load(guard).map(BlockRef::of);
            place.put(new.shared(), guard);
            before
        })
    }

    /// Takes a block out if `condition` holds for it; returns it.
    pub(super) fn remove_if(
        &self,
        block: Pblk,
        condition: impl FnOnce(&BlockRef) -> bool,
        guard: &EpochGuard,
    ) -> Option<BlockRef> {
        self.change(block, guard, |place| {
            let found = place.load(guard).map(BlockRef::of).filter(condition);
            if found.is_some() {
                place.clear(guard);
            }
            found
        })
    }

    fn change<R>(
        &self,
        block: Pblk,
        guard: &EpochGuard,
        change: impl FnOnce(&RcuSlot<Buffer>) -> Option<R>,
    ) -> Option<R> {
        let (key, place) = place_of(block);
        let change = |leaf: &Leaf| {
            let result = leaf.get(place).and_then(change);
            (result, !leaf.iter().all(RcuSlot::is_empty))
        };
        self.0.update(key, change, guard)
    }
}
