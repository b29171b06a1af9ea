//! Who loads which block right now, and who waits for it.

use super::BlockRef;
use crate::Error;
use extant_format::Pblk;
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::collections::HashMap;
use std::sync::Arc;

static CLAIMS: LockClass = LockClass::new("meta claims", Rank::CacheBucket);
static OUTCOME: LockClass = LockClass::new("meta load", Rank::CacheBucket);

const SHARDS: usize = 64;

/// The loads in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    shards: Box<[Mutex<HashMap<Pblk, Pending>>]>,
}

#[derive(Debug)]
struct Pending {
    load: Arc<Load>,
    /// Whether the block was discarded after the load began: its content may be old.
    discarded: bool,
}

/// How a load ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The block.
    Loaded(BlockRef),
    /// The device failed at this very block.
    Failed(Error),
    /// Given up, for a reason that need not hold for this block.
    Abandoned,
}

/// A load that others may wait for.
#[derive(Debug)]
pub(super) struct Load {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

impl Load {
    /// Waits for the end of the load.
    pub(super) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock();
        self.ended.wait_while(&mut outcome, |o| o.is_none());
        outcome.clone().unwrap_or(Outcome::Abandoned)
    }
}

/// What came of trying to claim a block.
pub(super) enum Claimed<'a> {
    /// The caller must load it.
    Mine(Claim<'a>),
    /// Somebody else is loading it.
    Theirs(Arc<Load>),
    /// It is in the cache by now.
    Cached(BlockRef),
}

/// The duty to load a block. Dropped without an outcome, the load counts as abandoned.
pub(super) struct Claim<'a> {
    inflight: &'a InFlight,
    block: Pblk,
    load: Arc<Load>,
    outcome: Option<Outcome>,
}

impl InFlight {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS)
                .map(|_| Mutex::new(&CLAIMS, HashMap::new()))
                .collect(),
        }
    }

    /// Claims `block` for the caller, unless it is claimed, or `cached` finds it after all: it may
    /// have arrived between the caller's look and the claim.
    pub(super) fn claim(
        &self,
        block: Pblk,
        cached: impl FnOnce() -> Option<BlockRef>,
    ) -> Claimed<'_> {
        let mut claims = self.shard(block).lock();
        if let Some(pending) = claims.get(&block) {
            return Claimed::Theirs(pending.load.clone());
        }
        if let Some(found) = cached() {
            return Claimed::Cached(found);
        }
        let load = Arc::new(Load {
            outcome: Mutex::new(&OUTCOME, None),
            ended: Condvar::new(),
        });
        claims.insert(
            block,
            Pending {
                load: load.clone(),
                discarded: false,
            },
        );
        Claimed::Mine(Claim {
            inflight: self,
            block,
            load,
            outcome: None,
        })
    }

    /// Notes that what a load in flight finds is not to be kept.
    pub(super) fn discard(&self, block: Pblk) {
        if let Some(pending) = self.shard(block).lock().get_mut(&block) {
            pending.discarded = true;
        }
    }

    fn shard(&self, block: Pblk) -> &Mutex<HashMap<Pblk, Pending>> {
        &self.shards[block.get() as usize % SHARDS]
    }
}

impl Claim<'_> {
    /// The block to load.
    pub(super) fn block(&self) -> Pblk {
        self.block
    }

    /// Ends the load and wakes who waits for it. Whether the block was discarded meanwhile.
    pub(super) fn end(mut self, outcome: Outcome) -> bool {
        self.outcome = Some(outcome);
        self.finish()
    }

    fn finish(&mut self) -> bool {
        let outcome = self.outcome.take().unwrap_or(Outcome::Abandoned);
        // First nobody can join any more, then those who did are told.
        let pending = self.inflight.shard(self.block).lock().remove(&self.block);
        *self.load.outcome.lock() = Some(outcome);
        self.load.ended.notify_all();
        pending.is_some_and(|p| p.discarded)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // `end` has already told an outcome; a claim lost to an error or a panic has not.
        if self.load.outcome.lock().is_none() {
            self.finish();
        }
    }
}
