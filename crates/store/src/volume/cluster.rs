//! Clusters: the unit of free space. With `bigalloc` it is several blocks, otherwise one.
//!
//! The allocator counts in clusters; what it takes from others and hands to them is in blocks.
//! Files are mapped block by block all the same: block `lblk` of a file lies as far behind the
//! beginning of a cluster of the device as behind that of the [logical
//! cluster](ClusterSize::logical) it belongs to. So a cluster is of one file, and holds one logical
//! cluster of it.
//!
//! See `Documentation/filesystems/ext4/bigalloc.rst` of Linux.

use extant_format::Pblk;
use std::ops::Range;

/// A cluster of the device, by its place: the number of its first block, divided by the blocks in a
/// cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cluster(u64);

impl Cluster {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The one so many behind it.
    pub const fn plus(self, clusters: u32) -> Self {
        Self(self.0.saturating_add(clusters as u64))
    }

    /// The one so many before it.
    pub const fn minus(self, clusters: u32) -> Self {
        Self(self.0.saturating_sub(clusters as u64))
    }
}

/// How many blocks a cluster has: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSize {
    bits: u32,
}

impl ClusterSize {
    /// Of `1 << bits` blocks.
    pub(crate) const fn new(bits: u32) -> Self {
        Self { bits }
    }

    /// Whether a cluster is a block.
    #[inline]
    pub const fn is_block(self) -> bool {
        self.bits == 0
    }

    /// The binary logarithm of the blocks in a cluster.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Blocks in a cluster.
    pub const fn blocks(self) -> u32 {
        1 << self.bits
    }

    /// How far a logical block lies behind the beginning of its logical cluster.
    #[inline]
    pub const fn inside(self, lblk: u32) -> u32 {
        lblk & (self.blocks() - 1)
    }

    /// The logical cluster that a logical block belongs to.
    #[inline]
    pub const fn logical(self, lblk: u32) -> u32 {
        lblk >> self.bits
    }

    /// The logical clusters that `len` logical blocks from `lblk` on touch.
    #[inline]
    pub fn touched(self, lblk: u32, len: u32) -> Range<u32> {
        let end = u64::from(lblk) + u64::from(len) + u64::from(self.blocks() - 1);
        self.logical(lblk)..(end >> self.bits) as u32
    }

    /// Clusters that hold as many blocks.
    #[inline]
    pub fn count(self, blocks: u32) -> u32 {
        self.touched(0, blocks).end
    }

    /// Blocks `range`, extended to whole clusters.
    pub const fn around(self, range: &Range<u64>) -> Range<u64> {
        let mask = self.blocks() as u64 - 1;
        range.start & !mask..range.end.saturating_add(mask) & !mask
    }

    /// The first block of the cluster that `block` lies in.
    pub const fn first_of(self, block: Pblk) -> Pblk {
        self.block(self.of(block))
    }

    /// The cluster a block lies in. With clusters of several blocks block 0 begins the first one.
    #[inline]
    pub const fn of(self, block: Pblk) -> Cluster {
        Cluster(block.get() >> self.bits)
    }

    /// The first block of a cluster.
    #[inline]
    pub(crate) const fn block(self, cluster: Cluster) -> Pblk {
        Pblk::new(cluster.0 << self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_belong_to_the_clusters_they_lie_in() {
        let one = ClusterSize::new(0);
        assert_eq!(one.touched(7, 3), 7..10);
        assert_eq!(one.around(&(3..4)), 3..4);
        let four = ClusterSize::new(2);
        assert_eq!(four.touched(7, 1), 1..2);
        assert_eq!(four.touched(7, 2), 1..3);
        assert_eq!(four.touched(u32::MAX, 1), 0x3fff_ffff..0x4000_0000);
        assert_eq!((four.count(0), four.count(1), four.count(4)), (0, 1, 1));
        assert_eq!(four.count(u32::MAX), 1 << 30);
        assert_eq!(four.around(&(3..5)), 0..8);
        assert_eq!(four.inside(7), 3);
        assert_eq!(four.of(Pblk::new(11)), Cluster::new(2));
        assert_eq!(four.first_of(Pblk::new(11)), Pblk::new(8));
        assert_eq!(Cluster::new(5).plus(2).minus(9), Cluster::new(0));
    }
}
