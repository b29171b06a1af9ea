//! Room in the running transaction.
//!
//! One pool, from which each CPU shard takes room in chunks, so that most handles take theirs from
//! a line of their own. When the pool runs dry the chunks that lie in other shards are gathered
//! before anybody is told that there is no room: under pressure the account is exact.
//!
//! When much of the room has been handed out somebody is told, once for each transaction, so that
//! it can be committed before anybody has to wait for that.

use extant_sync::{CountedAtomicI64, PerCpu, RmwClass};
use std::sync::atomic::{AtomicBool, Ordering};

static POOL: RmwClass = RmwClass::new("journal credits");
static SHARD: RmwClass = RmwClass::new("journal credits of a shard");

/// Blocks that a shard takes from the pool beyond what is asked for.
const CHUNK: u32 = 32;

/// Blocks that the running transaction may still take.
#[derive(Debug)]
pub(super) struct Credits {
    pool: CountedAtomicI64,
    shards: PerCpu<CountedAtomicI64>,
    blocks: u32,
    /// Somebody was told that little is left.
    told: AtomicBool,
}

impl Credits {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            pool: CountedAtomicI64::new(&POOL, blocks.into()),
            shards: PerCpu::new(|_| CountedAtomicI64::new(&SHARD, 0)),
            blocks,
            told: AtomicBool::new(false),
        }
    }

    /// Blocks a transaction has room for.
    pub(super) fn limit(&self) -> u32 {
        self.blocks
    }

    /// Takes room for `blocks`, if there is as much. Calls `when_low` if less than a third is left
    /// and nobody has been told yet.
    pub(super) fn take(&self, blocks: u32, when_low: impl FnOnce()) -> bool {
        let wanted = i64::from(blocks);
        let shard: &CountedAtomicI64 = self.shards.local();
        if take_from(shard, wanted) {
            return true;
        }
        if take_from(&self.pool, wanted + i64::from(CHUNK)) {
            shard.fetch_add(CHUNK.into(), Ordering::Relaxed);
            // Two may see this at the same time, and tell twice, which does no harm.
            if !self.told.load(Ordering::Relaxed) && self.is_low() {
                self.told.store(true, Ordering::Relaxed);
                when_low();
            }
            return true;
        }
        if take_from(&self.pool, wanted) {
            return true;
        }
        self.gather();
        take_from(&self.pool, wanted)
    }

    fn is_low(&self) -> bool {
        self.pool.load(Ordering::Relaxed) < i64::from(self.blocks / 3)
    }

    /// Gives back what was not used.
    pub(super) fn give_back(&self, blocks: u32) {
        if blocks == 0 {
            return;
        }
        let shard: &CountedAtomicI64 = self.shards.local();
        let before = shard.fetch_add(blocks.into(), Ordering::Relaxed);
        let much = i64::from(CHUNK) * 2;
        // Room that nobody here needs is of use to others.
        if before + i64::from(blocks) > much && take_from(shard, CHUNK.into()) {
            self.pool.fetch_add(CHUNK.into(), Ordering::Relaxed);
        }
    }

    /// A new transaction begins, with all its room. Nobody may hold credits.
    pub(super) fn reset(&self) {
        for shard in self.shards.iter() {
            shard.store(0, Ordering::Relaxed);
        }
        self.pool.store(self.blocks.into(), Ordering::Relaxed);
        self.told.store(false, Ordering::Relaxed);
    }

    /// Brings what lies in the shards back to the pool.
    #[cold]
    fn gather(&self) {
        for shard in self.shards.iter() {
            let found = take_all(shard);
            if found > 0 {
                self.pool.fetch_add(found, Ordering::Relaxed);
            }
        }
    }
}

/// Takes everything.
fn take_all(account: &CountedAtomicI64) -> i64 {
    account.swap(0, Ordering::Relaxed)
}

/// Takes `wanted`, if there is as much. Never leaves less than nothing, not even for a moment:
/// others would take that for pressure.
fn take_from(account: &CountedAtomicI64, wanted: i64) -> bool {
    let mut found = account.load(Ordering::Relaxed);
    while found >= wanted {
        match account.compare_exchange_weak(
            found,
            found - wanted,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => return true,
            Err(now) => found = now,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn all_of_the_room_can_be_taken_in_any_pieces_and_no_more() {
        let credits = Credits::new(100);
        let mut taken = 0;
        for piece in [1, 30, 7, 40, 3] {
            assert!(credits.take(piece, || {}));
            taken += piece;
        }
        assert!(!credits.take(100 - taken + 1, || {}));
        assert!(credits.take(100 - taken, || {}));
        assert!(!credits.take(1, || {}));
        credits.give_back(100);
        assert!(credits.take(100, || {}));
        credits.reset();
        assert!(credits.take(100, || {}));
    }

    #[test]
    fn one_is_told_of_each_transaction_that_fills() {
        let credits = Credits::new(1000);
        let told = std::cell::Cell::new(0);
        for transaction in 1..4 {
            for taken in (0..1000).step_by(10) {
                let before = told.get();
                assert!(credits.take(10, || told.set(told.get() + 1)));
                // What lies in a shard counts as handed out.
                let early = taken + 10 + i64::from(CHUNK) <= 660;
                assert!(!early || told.get() == before, "told at {taken}");
            }
            assert_eq!(told.get(), transaction);
            credits.reset();
        }
    }

    #[test]
    fn threads_together_never_take_more_than_there_is() {
        let credits = Credits::new(1000);
        let taken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while credits.take(7, || {}) {
                        taken.fetch_add(7, Ordering::Relaxed);
                        if credits.take(3, || {}) {
                            credits.give_back(3);
                        }
                    }
                });
            }
        });
        let taken = taken.into_inner();
        assert!(taken <= 1000, "{taken}");
        // What is left is less than one piece, wherever it lies.
        assert!(!credits.take(1000 - taken + 1, || {}));
        assert!(credits.take(1000 - taken, || {}));
    }
}
