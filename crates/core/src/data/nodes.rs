//! How many nodes of its tree mapping more of a file takes at the most: what is promised along with delayed blocks.

use crate::inode::Inode;
use extant_format::extent::{ExtentNode, ROOT_CAPACITY};

/// Delayed blocks for each of which the worst case is an extent of its own fill a block of the tree that is
/// half full; there is room for fewer on small blocks.
const BLOCKS_PER_NODE: u64 = 40;

/// What an inode says about its tree.
#[derive(Clone, Copy)]
pub(super) struct Tree {
    /// Entries that the root has room for.
    room: u64,
    depth: u64,
}

impl Tree {
    pub(super) fn of(inode: &Inode) -> Self {
        let root = ExtentNode::parse(&inode.disk().map);
        root.map_or(Self { room: 0, depth: 0 }, |root| Self {
            room: u64::from(ROOT_CAPACITY).saturating_sub(root.len() as u64),
            depth: root.header().depth.into(),
        })
    }

    /// Nodes that mapping so many blocks takes at the most.
    pub(super) fn nodes_for(self, blocks: u64) -> u64 {
        let fits = self.depth == 0 && blocks <= self.room;
        match blocks {
            0 => 0,
            _ if fits => 0,
            // A split on each level, a new level, and the leaves; twice, as others may be mapped before.
            blocks => 2 * (self.depth + 2 + blocks / BLOCKS_PER_NODE),
        }
    }
}
