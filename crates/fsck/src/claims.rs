//! Which clusters are in use, and which are claimed twice.

use crate::blockset::BlockSet;
use std::ops::Range;

/// Claims of clusters; see [`crate::volume::Volume::cluster_of`] for their numbers.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Claimed once or more.
    pub(crate) once: BlockSet,
    /// Claimed more than once.
    pub(crate) twice: BlockSet,
    /// Clusters claimed, each as often as it was.
    total: u64,
}

impl Claims {
    pub(crate) fn claim(&mut self, clusters: Range<u64>) {
        self.total += clusters.end.saturating_sub(clusters.start);
        let twice = &mut self.twice;
        self.once.insert(clusters, &mut |again| twice.add(again));
    }

    /// Clusters claimed, each as often as it was.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        self.total += other.total;
        self.twice.absorb(other.twice, &mut |_| {});
        let twice = &mut self.twice;
        self.once.absorb(other.once, &mut |again| twice.add(again));
    }
}

/// The claims of one inode, which may claim one cluster for several of its blocks.
#[derive(Debug, Default)]
pub(crate) struct InodeClaims {
    /// The last cluster of data: its number, and the logical cluster it holds.
    last: Option<(u64, u64)>,
    /// Clusters charged to the inode.
    pub(crate) clusters: u64,
}

impl InodeClaims {
    /// The clusters that a run of data claims anew. `logical` is the logical cluster of the first
    /// block.
    pub(crate) fn data(&mut self, clusters: Range<u64>, logical: u64) -> Range<u64> {
        let mut new = clusters.clone();
        if self.last == Some((clusters.start, logical)) {
            new.start += 1;
        }
        if clusters.end > clusters.start {
            let last = clusters.end - 1;
            self.last = Some((last, logical + (last - clusters.start)));
        }
        self.clusters += new.end.saturating_sub(new.start);
        new
    }

    /// A block of the map, which has a cluster to itself.
    pub(crate) fn node(&mut self) {
        self.clusters += 1;
    }
}
