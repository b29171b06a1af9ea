//! What the journal did.

use extant_sync::{CountedAtomicU64, RmwClass, ShardedCounter};
use std::sync::atomic::Ordering;
use std::time::Duration;

static DRAINED: RmwClass = RmwClass::new("journal statistics");

/// Figures of a [`Journal`](super::Journal) since the file system was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStats {
    /// Transactions committed.
    pub commits: u64,
    /// Handles started.
    pub handles: u64,
    /// Handles that found no room and waited for a commit.
    pub waits: u64,
    /// Callers whose changes another caller's commit carried.
    pub shared_commits: u64,
    /// Images of blocks written to the log (or home, without a journal).
    pub blocks: u64,
    /// Revoke records written.
    pub revokes: u64,
    /// Flushes of the device, those of commits included.
    pub flushes: u64,
    /// Callers whose data another flush made durable.
    pub shared_flushes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks that checkpoints wrote home.
    pub checkpointed: u64,
    /// Longest time for which no operation could start: handles were drained and the transaction
    /// was being captured.
    pub drained_max: Duration,
    /// Waits of that kind, added up over all commits.
    pub drained_total: Duration,
    /// Longest time from closing the gate to reopening it: the above, and waiting for the handles
    /// that were inside.
    pub closed_max: Duration,
}

impl JournalStats {
    /// The drained window of an average commit.
    #[must_use]
    pub fn drained_avg(&self) -> Duration {
        let nanos = self.drained_total.as_nanos() / u128::from(self.commits.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Where the figures are counted.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) commits: ShardedCounter,
    pub(super) handles: ShardedCounter,
    pub(super) waits: ShardedCounter,
    pub(super) shared_commits: ShardedCounter,
    pub(super) blocks: ShardedCounter,
    pub(super) revokes: ShardedCounter,
    pub(super) flushes: ShardedCounter,
    pub(super) shared_flushes: ShardedCounter,
    pub(super) checkpoints: ShardedCounter,
    pub(super) checkpointed: ShardedCounter,
    drained_max: CountedAtomicU64,
    drained_total: ShardedCounter,
    closed_max: CountedAtomicU64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            commits: ShardedCounter::new(),
            handles: ShardedCounter::new(),
            waits: ShardedCounter::new(),
            shared_commits: ShardedCounter::new(),
            blocks: ShardedCounter::new(),
            revokes: ShardedCounter::new(),
            flushes: ShardedCounter::new(),
            shared_flushes: ShardedCounter::new(),
            checkpoints: ShardedCounter::new(),
            checkpointed: ShardedCounter::new(),
            drained_max: CountedAtomicU64::new(&DRAINED, 0),
            drained_total: ShardedCounter::new(),
            closed_max: CountedAtomicU64::new(&DRAINED, 0),
        }
    }

    /// Notes a transaction's windows: with handles drained, and with the gate closed.
    pub(super) fn window(&self, drained: Duration, closed: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.drained_max
            .fetch_max(nanos(drained), Ordering::Relaxed);
        self.closed_max.fetch_max(nanos(closed), Ordering::Relaxed);
        self.drained_total
            .add(i64::try_from(nanos(drained)).unwrap_or(i64::MAX));
    }

    pub(super) fn read(&self) -> JournalStats {
        JournalStats {
            commits: self.commits.count(),
            handles: self.handles.count(),
            waits: self.waits.count(),
            shared_commits: self.shared_commits.count(),
            blocks: self.blocks.count(),
            revokes: self.revokes.count(),
            flushes: self.flushes.count(),
            shared_flushes: self.shared_flushes.count(),
            checkpoints: self.checkpoints.count(),
            checkpointed: self.checkpointed.count(),
            drained_max: Duration::from_nanos(self.drained_max.load(Ordering::Relaxed)),
            drained_total: Duration::from_nanos(self.drained_total.count()),
            closed_max: Duration::from_nanos(self.closed_max.load(Ordering::Relaxed)),
        }
    }
}
