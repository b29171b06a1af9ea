//! How many blocks a change of a map may touch.

use crate::fs::Fs;
use crate::inode::Inode;
use extant_format::extent::{ExtentNode, MAX_DEPTH, ROOT_CAPACITY, block_capacity};
use extant_format::indirect::pointers_per_block;
use extant_format::inode::InodeFlags;

/// A group whose blocks are taken or freed: bitmap, descriptor, and one to be safe.
pub(crate) const GROUP: u32 = 3;
/// The record of the inode, and the superblock.
const ALWAYS: u32 = 2;

/// Levels below the root.
fn depth(inode: &Inode) -> u32 {
    if !inode.flags().contains(InodeFlags::EXTENTS) {
        return extant_format::indirect::MAX_LEVELS as u32;
    }
    let depth = ExtentNode::parse(&inode.disk().map).map_or(0, |node| node.header().depth);
    depth.min(MAX_DEPTH).into()
}

/// Credits for mapping `runs` runs of blocks that lie in one range of the file, the groups they
/// come from included.
pub(crate) fn insert_credits(inode: &Inode, runs: u32) -> u32 {
    // Each run may change a leaf and split it; each level above may be split once, and the root.
    let nodes = 2 * runs + 2 * depth(inode) + 1;
    ALWAYS + nodes + GROUP * (runs + 2)
}

/// Returns the credits for mapping `runs` runs of an inode that has no blocks yet.
pub(crate) fn new_map_credits(runs: u32) -> u32 {
    ALWAYS + 2 * runs + 1 + GROUP * (runs + 2)
}

/// Tells whether the record of the inode has room for all of its map when `runs` runs more are
/// mapped, or converted.
pub(crate) fn stays_in_record(inode: &Inode, runs: u32) -> bool {
    if !inode.flags().contains(InodeFlags::EXTENTS) {
        return false;
    }
    // A run may cut an extent in three.
    let most = 2 * runs as usize;
    let root = ExtentNode::parse(&inode.disk().map).ok();
    root.is_some_and(|root| root.is_leaf() && root.len() + most <= usize::from(ROOT_CAPACITY))
}

/// Runs that are to be mapped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewRuns {
    /// How many.
    pub(crate) runs: u32,
    /// Leaves of the tree that they belong to.
    pub(crate) leaves: u32,
    /// Groups that their blocks come from.
    pub(crate) groups: u32,
    /// Their blocks.
    pub(crate) blocks: u32,
}

/// Credits for mapping runs, ascending, the groups that their blocks come from included.
pub(crate) fn insert_many_credits(fs: &Fs, inode: &Inode, new: NewRuns) -> u32 {
    let NewRuns {
        runs,
        leaves,
        groups,
        blocks,
    } = new;
    if runs == 0 {
        return 1;
    }
    if stays_in_record(inode, runs) {
        return ALWAYS + GROUP * groups;
    }
    let (nodes, new) = if inode.flags().contains(InodeFlags::EXTENTS) {
        let capacity = u32::from(block_capacity(fs.block_size())).max(1);
        // A run may cut an extent in three. Each leaf that is full may leave a rest of its own.
        let new = leaves + 3 * runs / capacity + 2;
        // On each level above as many change as below, at most, and they split as rarely.
        let above = leaves + new / capacity + 2;
        (leaves + new + depth(inode).max(1) * above, new)
    } else {
        let capacity = pointers_per_block(fs.block_size());
        // A run may begin and end within a node.
        let lowest = blocks / capacity + 2 * runs;
        let above = lowest.min(blocks / capacity / capacity + 2 * runs);
        (lowest + above + 1, lowest + above + 1)
    };
    ALWAYS + nodes + GROUP * (groups + new.min(2 + new / 4) + 1)
}

/// Returns what a removal needs to store what it changed, whatever it freed.
pub(super) fn remove_reserve(inode: &Inode) -> u32 {
    // The paths to both ends; an extent cut in two may split a node on each level.
    ALWAYS + 3 * depth(inode) + 2 + GROUP
}

/// Credits with which a removal gets along well; with fewer it stops earlier.
pub(crate) fn remove_credits(inode: &Inode) -> u32 {
    remove_reserve(inode) + depth(inode) + 6 * GROUP
}
