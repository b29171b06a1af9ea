//! How often inodes were noted as orphans.

use super::Orphans;
use crate::fs::Fs;
use extant_sync::ShardedCounter;

/// How often inodes were noted as orphans, and taken back, since the file system was opened. What
/// was noted then already counts as noted, so that the difference is what is noted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrphanStats {
    /// Inodes put on the list.
    pub list_added: u64,
    /// Inodes taken off the list.
    pub list_removed: u64,
    /// Inodes put into the orphan file.
    pub file_added: u64,
    /// Inodes taken out of the orphan file.
    pub file_removed: u64,
}

/// Where the figures are counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) list_added: ShardedCounter,
    pub(super) list_removed: ShardedCounter,
    pub(super) file_added: ShardedCounter,
    pub(super) file_removed: ShardedCounter,
}

impl Orphans {
    /// Counts what was noted when the file system was opened.
    pub(crate) fn count_found(&self, listed: usize, filed: usize) {
        self.counters.list_added.add(listed as i64);
        self.counters.file_added.add(filed as i64);
    }

    fn stats(&self) -> OrphanStats {
        let counters = &self.counters;
        OrphanStats {
            list_added: counters.list_added.count(),
            list_removed: counters.list_removed.count(),
            file_added: counters.file_added.count(),
            file_removed: counters.file_removed.count(),
        }
    }
}

impl Fs {
    /// How often inodes were noted as orphans, and taken back, since the file system was opened.
    /// All zeros for one open for reading.
    #[must_use]
    pub fn orphan_stats(&self) -> OrphanStats {
        self.orphans().map(Orphans::stats).unwrap_or_default()
    }
}
