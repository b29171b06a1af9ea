//! Nodes of maps that are read before they are needed.

use crate::inode::{FileType, Inode};
use extant_format::Pblk;
use extant_format::extent::ExtentNode;
use extant_format::indirect::{DIRECT, ROOT_POINTERS, pointer};
use extant_format::inode::InodeFlags;

/// Gives the blocks of the nodes that the root of a map in the inode names to `put`. What is wrong
/// with the map shows when it is read.
pub(crate) fn nodes_below_root(inode: &Inode, put: impl FnMut(Pblk)) {
    if inode.is_inline() || !(inode.is_dir() || inode.file_type() == FileType::Regular) {
        return;
    }
    let map = &inode.disk().map[..];
    if !inode.flags().contains(InodeFlags::EXTENTS) {
        let pointers = (DIRECT as usize..ROOT_POINTERS).map(|at| pointer(map, at));
        let blocks = pointers.filter(|block| *block != 0);
        blocks.map(|block| Pblk::new(block.into())).for_each(put);
    } else if let Ok(node) = ExtentNode::parse(map)
        && !node.is_leaf()
    {
        node.index_entries().map(|entry| entry.child).for_each(put);
    }
}
