//! What the owners of a source use of the file system, for quota files.

use super::{LOST_AND_FOUND, Placement};
use crate::layout::Usage;
use crate::source::{NodeId, Tree};

impl Placement {
    /// What the owners of a tree use where it is placed.
    pub(crate) fn usage(&self, tree: &Tree) -> Usage {
        let mut usage = Usage::default();
        let log2 = self.shape.block_size.log2();
        for id in tree.ids() {
            let node = tree.node(id);
            // As Linux counts: a value in an inode of its own is charged to each that has it.
            let values = self.attrs.own_values(tree.xattr_set(id)).count() as u64;
            let bytes = self.placed(tree, id).charged << log2;
            usage.charge((node.uid, node.gid), 0, bytes, 1 + values);
        }
        if let Some(placed) = &self.lost_found {
            usage.charge((0, 0), 0, placed.charged << log2, 1);
        }
        usage
    }

    /// The owners that [`usage`](Self::usage) will name, before anything has its place.
    pub(crate) fn owners(tree: &Tree) -> Usage {
        let mut owners = Usage::default();
        for id in tree.ids() {
            let node = tree.node(id);
            owners.charge((node.uid, node.gid), 0, 0, 1);
        }
        if tree.child(NodeId::ROOT, LOST_AND_FOUND).is_none() {
            owners.charge((0, 0), 0, 0, 1);
        }
        owners
    }
}
