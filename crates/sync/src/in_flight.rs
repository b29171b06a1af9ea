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
/// - What others are to find instead of loading it again is where `found` looks for it before its
///   load ends; where things are discarded, it comes there under that lock ([`Claim::publish`]).
/// - What was discarded while it was loaded goes to no thread that waits.
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

    /// Ends the load with an outcome that is not kept here, and wakes the threads that wait for it.
    /// They try again if it was discarded.
    pub fn end(mut self, outcome: T) {
        self.finish(|discarded| (!discarded).then_some(outcome));
    }

    /// Ends the load with the outcome that `keep` gives, and wakes the threads that wait for it.
    ///
    /// `keep` puts what was loaded to where other threads find it, or gives `None` if something
    /// newer is there. It is not called for what was discarded while it was loaded. It runs under
    /// the lock that [`InFlight::discard`] takes: a thread that changes the thing first and
    /// discards it then, leaves nothing old behind, neither there nor with a thread that began to
    /// wait later.
    ///
    /// Returns the outcome; `None` if there is none, for all that wait: they try again, and the
    /// caller should.
    #[must_use]
    pub fn publish(mut self, keep: impl FnOnce() -> Option<T>) -> Option<T>
    where
        T: Clone,
    {
        let mut kept = None;
        self.finish(|discarded| {
            kept = if discarded { None } else { keep() };
            kept.clone()
        });
        kept
    }

    /// `outcome` is told whether the load was discarded.
    fn finish(&mut self, outcome: impl FnOnce(bool) -> Option<T>) {
        self.has_ended = true;
        // First no thread can join any more, then those that did are told.
        let outcome = {
            let mut claims = self.in_flight.shard(self.key).lock();
            let discarded = claims.remove(&self.key).is_some_and(|load| load.discarded);
            outcome(discarded)
        };
        *self.load.outcome.lock() = Some(outcome);
        self.load.ended.notify_all();
    }
}

impl<K: Copy + Eq + Hash, T> Drop for Claim<'_, K, T> {
    fn drop(&mut self) {
        // A claim lost to an error or a panic.
        if !self.has_ended {
            self.finish(|_| None);
        }
    }
}
