//! What is asked for, and what was taken.

use super::Alloc;
use crate::volume::Cluster;
use extant_format::Pblk;

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Where the blocks should lie, if they can.
    pub goal: Pblk,
    /// How many are wanted, side by side: at least 1. Whole clusters are given.
    pub len: u32,
    /// How few will do; the allocator gives as many as it finds together.
    pub min: u32,
    /// Block numbers must fit 32 bits: indirect maps hold no others.
    pub below_32_bits: bool,
    /// May use all free blocks, to finish what was begun. Otherwise those that the user may have
    /// for which the thread acts.
    pub privileged: bool,
}

/// What freed blocks held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedKind {
    /// Data of a file.
    Data,
    /// Metadata: images of the blocks may wait in the log and its queue.
    Metadata,
}

/// Blocks taken from the allocator and not yet owned on the device: whole clusters. Given back when
/// dropped.
#[derive(Debug)]
#[must_use]
pub struct Taken<'f> {
    alloc: &'f Alloc,
    first: Cluster,
    clusters: u32,
}

impl<'f> Taken<'f> {
    pub(in crate::alloc) fn new(alloc: &'f Alloc, first: Cluster, clusters: u32) -> Self {
        Self {
            alloc,
            first,
            clusters,
        }
    }

    /// First cluster.
    pub(in crate::alloc) fn first(&self) -> Cluster {
        self.first
    }

    /// Number of clusters.
    pub fn clusters(&self) -> u32 {
        self.clusters
    }

    /// The cluster behind the last one.
    pub(in crate::alloc) fn behind(&self) -> Cluster {
        self.first.plus(self.clusters)
    }

    /// First block.
    pub fn start(&self) -> Pblk {
        self.alloc.volume.cluster_size().block(self.first)
    }

    /// Number of blocks.
    pub fn len(&self) -> u32 {
        self.clusters << self.alloc.volume.cluster_size().bits()
    }

    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.clusters == 0
    }

    /// Cuts off the first `clusters`, or all if there are no more.
    pub fn split_front(&mut self, clusters: u32) -> Self {
        let clusters = clusters.min(self.clusters);
        let front = Self::new(self.alloc, self.first, clusters);
        self.clusters -= clusters;
        self.first = front.behind();
        front
    }

    /// Gives the blocks back, but keeps the promise of as many: what a caller with
    /// [`reserve_space`](Alloc::reserve_space) does when it cannot use them yet.
    pub fn into_promise(self) {
        let (alloc, first, clusters) = (self.alloc, self.first, self.clusters);
        self.disarm();
        alloc.return_to_group(first, clusters);
        alloc.note_promised(clusters.into());
    }

    /// Turns the blocks into numbers, the first and how many, for a caller that remembers them:
    /// they stay taken until [`from_raw`](Self::from_raw).
    pub fn into_raw(self) -> (Pblk, u32) {
        let raw = (self.start(), self.len());
        self.alloc.note_promised(self.clusters.into());
        self.disarm();
        raw
    }

    /// Makes an owner again for blocks that [`into_raw`](Self::into_raw) turned into numbers.
    pub fn from_raw(alloc: &'f Alloc, start: Pblk, len: u32) -> Self {
        let size = alloc.volume.cluster_size();
        let clusters = size.count(len);
        alloc.note_promised(-i64::from(clusters));
        Self::new(alloc, size.of(start), clusters)
    }

    /// Ends without giving the blocks back: they have another owner by now.
    pub(in crate::alloc) fn disarm(mut self) {
        self.clusters = 0;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.clusters > 0 {
            self.alloc.give_back(self.first, self.clusters);
        }
    }
}
