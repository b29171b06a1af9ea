//! Which thread loads what right now, and which wait for it: of threads that need the same thing
//! one loads it.

use crate::{Condvar, LockClass, Mutex};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The loads in flight, by key; `T` is what comes of one.
///
/// # Invariants
///
/// - At most one load of a key is in flight: it is claimed and ended under the lock of the key's
///   shard.
/// - What somebody is to find instead of loading it again is where `found` looks for it before its
///   load ends.
#[derive(Debug)]
pub struct InFlight<K, T> {
    shards: Box<[Mutex<Shard<K, T>>]>,
    shard_of: fn(K) -> usize,
    outcomes: &'static LockClass,
}

type Shard<K, T> = HashMap<K, Pending<T>>;

#[derive(Debug)]
struct Pending<T> {
    load: Arc<Load<T>>,
    /// It was discarded after the load began: what is found may be old.
    discarded: bool,
}

/// A load that others may wait for.
#[derive(Debug)]
pub struct Load<T> {
    outcome: Mutex<Option<Option<T>>>,
    ended: Condvar,
}

impl<T: Clone> Load<T> {
    /// Waits for the end of the load: what came of it, or `None` if it was given up for a reason
    /// that need not hold for a thread that tries again.
    pub fn wait(&self) -> Option<T> {
        let mut outcome = self.outcome.lock();
        self.ended.wait_while(&mut outcome, |o| o.is_none());
        outcome.clone().flatten()
    }
}

/// What came of trying to claim a key.
pub enum Claimed<'a, K: Copy + Eq + Hash, T, F> {
    /// The caller must load it.
    Mine(Claim<'a, K, T>),
    /// Somebody else is loading it.
    Theirs(Arc<Load<T>>),
    /// It is there by now.
    Found(F),
}

/// The duty to load something. Dropped without an outcome, the load counts as given up.
#[derive(Debug)]
pub struct Claim<'a, K: Copy + Eq + Hash, T> {
    in_flight: &'a InFlight<K, T>,
    key: K,
    load: Arc<Load<T>>,
    has_ended: bool,
}

impl<K: Copy + Eq + Hash, T> InFlight<K, T> {
    /// No loads, kept in so many shards, whose locks are of class `claims`. Those of what comes of
    /// loads are of class `outcomes`. A key belongs to the shard of the number that `shard_of`
    /// gives it.
    #[must_use]
    pub fn new(
        claims: &'static LockClass,
        outcomes: &'static LockClass,
        shards: usize,
        shard_of: fn(K) -> usize,
    ) -> Self {
        Self {
            shards: (0..shards.max(1))
                .map(|_| Mutex::new(claims, HashMap::new()))
                .collect(),
            shard_of,
            outcomes,
        }
    }

    /// Claims `key` for the caller, unless it is claimed, or `found` finds it after all: it may
    /// have come between the caller's look and the claim.
    pub fn claim<F>(&self, key: K, found: impl FnOnce() -> Option<F>) -> Claimed<'_, K, T, F> {
        let mut claims = self.shard(key).lock();
        if let Some(pending) = claims.get(&key) {
            return Claimed::Theirs(Arc::clone(&pending.load));
        }
        if let Some(found) = found() {
            return Claimed::Found(found);
        }
        let load = Arc::new(Load {
            outcome: Mutex::new(self.outcomes, None),
            ended: Condvar::new(),
        });
        let pending = Pending {
            load: Arc::clone(&load),
            discarded: false,
        };
        claims.insert(key, pending);
        Claimed::Mine(Claim {
            in_flight: self,
            key,
            load,
            has_ended: false,
        })
    }

    /// Notes that what a load in flight finds is not to be kept.
    pub fn discard(&self, key: K) {
        if let Some(pending) = self.shard(key).lock().get_mut(&key) {
            pending.discarded = true;
        }
    }

    fn shard(&self, key: K) -> &Mutex<Shard<K, T>> {
        &self.shards[(self.shard_of)(key) % self.shards.len()]
    }
}

impl<K: Copy + Eq + Hash, T> Claim<'_, K, T> {
    /// What to load.
    #[must_use]
    pub fn key(&self) -> K {
        self.key
    }

    /// Ends the load and wakes threads that wait for it. Whether it was discarded meanwhile.
    pub fn end(mut self, outcome: T) -> bool {
        self.finish(Some(outcome))
    }

    fn finish(&mut self, outcome: Option<T>) -> bool {
        self.has_ended = true;
        // First no thread can join any more, then those that did are told.
        let pending = self.in_flight.shard(self.key).lock().remove(&self.key);
        *self.load.outcome.lock() = Some(outcome);
        self.load.ended.notify_all();
        pending.is_some_and(|pending| pending.discarded)
    }
}

impl<K: Copy + Eq + Hash, T> Drop for Claim<'_, K, T> {
    fn drop(&mut self) {
        // A claim lost to an error or a panic.
        if !self.has_ended {
            self.finish(None);
        }
    }
}
