//! How many blocks a change of a map may touch.

use crate::inode::Inode;
use extant_format::extent::{ExtentNode, MAX_DEPTH};
use extant_format::inode::InodeFlags;

/// A group whose blocks are taken or freed: bitmap, descriptor, and one to be safe.
pub(super) const GROUP: u32 = 3;
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

/// Credits for mapping `runs` runs of blocks that lie in one range of the file, the groups they come
/// from included.
pub(crate) fn insert_credits(inode: &Inode, runs: u32) -> u32 {
    // Each run may change a leaf and split it; each level above may be split once, and the root.
    let nodes = 2 * runs + 2 * depth(inode) + 1;
    ALWAYS + nodes + GROUP * (runs + 2)
}

/// What a removal needs to store what it changed, whatever it freed.
pub(super) fn remove_reserve(inode: &Inode) -> u32 {
    // The paths to both ends; an extent cut in two may split a node on each level.
    ALWAYS + 3 * depth(inode) + 2 + GROUP
}

/// Credits with which a removal gets along well; with fewer it stops earlier.
pub(crate) fn remove_credits(inode: &Inode) -> u32 {
    remove_reserve(inode) + depth(inode) + 6 * GROUP
}
