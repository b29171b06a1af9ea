//! How many nodes of its tree mapping more of a file takes at the most: what is promised along with
//! delayed blocks.

use crate::inode::Inode;
use extant_format::extent::{ExtentNode, ROOT_CAPACITY};
use extant_format::inode::InodeFlags;

/// Delayed blocks for each of which the worst case is an extent of its own fill a block of the tree
/// that is half full; there is room for fewer on small blocks.
const BLOCKS_PER_NODE: u64 = 40;

/// Blocks of pointers above the lowest that a row of blocks may need.
const INDIRECT_ABOVE: u64 = 4;

/// What an inode says about its map.
#[derive(Clone, Copy)]
pub(in crate::data) enum Tree {
    Extents {
        /// Entries that the root has room for.
        room: u64,
        depth: u64,
    },
    Indirect,
}

impl Tree {
    pub(in crate::data) fn of(inode: &Inode) -> Self {
        if !inode.flags().contains(InodeFlags::EXTENTS) {
            return Self::Indirect;
        }
        let root = ExtentNode::parse(&inode.disk().map);
        let (room, depth) = root.map_or((0, 0), |root| {
            let room = u64::from(ROOT_CAPACITY).saturating_sub(root.len() as u64);
            (room, root.header().depth.into())
        });
        Self::Extents { room, depth }
    }

    /// Nodes that mapping so many blocks takes at the most. Of indirect maps: if not every block
    /// lies farther from the next than a block of pointers to blocks of pointers reaches.
    pub(in crate::data) fn nodes_for(self, blocks: u64) -> u64 {
        let (room, depth) = match self {
            _ if blocks == 0 => return 0,
            // Each block may need one of its own, and there are those above.
            Self::Indirect => return blocks + INDIRECT_ABOVE,
            Self::Extents { room, depth } => (room, depth),
        };
        if depth == 0 && blocks <= room {
            return 0;
        }
        // A split on each level, a new level, and the leaves; twice, as others may be mapped
        // before.
        2 * (depth + 2 + blocks / BLOCKS_PER_NODE)
    }
}
