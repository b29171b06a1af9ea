//! How many free blocks are held back.

use super::Volume;

/// One of so many blocks is held back where the superblock reserves fewer.
const SHARE_HELD_BACK: u64 = 200;
const MOST_HELD_BACK: u64 = 8;

impl Volume {
    /// Blocks that not everybody gets while the file system is open for writing: those the
    /// superblock reserves, and a few in any case.
    pub fn held_back(&self) -> u64 {
        let reserved = self.superblock().reserved_blocks_count();
        reserved.max(self.held_back_from_all())
    }

    /// The few of them that no file gets. What writing back data took more for the map than was
    /// promised for it comes out of them, as under Linux, which keeps back far more. A node takes a
    /// cluster.
    pub fn held_back_from_all(&self) -> u64 {
        let clusters = self.geometry().clusters_count() / SHARE_HELD_BACK;
        clusters.min(MOST_HELD_BACK) << self.geometry().cluster_bits()
    }
}
