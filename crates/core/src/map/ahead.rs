//! Nodes of maps that are read before they are needed.

use crate::fs::Fs;
use crate::inode::{FileType, Inode};
use extant_format::Pblk;
use extant_format::extent::{ExtentNode, MAGIC};
use extant_format::indirect::{DIRECT, ROOT_POINTERS, pointer};
use extant_format::inode::{InodeFlags, MAP_BYTES};
use extant_sync::pin;

/// Bytes that the device is read by around nodes.
const CHUNK: u32 = 64 << 10;
/// Chunks that come with a node of a directory's map, up to its own.
const CHUNKS: u64 = 6;

/// Brings a node of a directory's map into memory together with what lies in front of it, where a
/// request is a message to a server. A directory takes its blocks one by one as it grows, mostly
/// side by side with others, and the node when there are too many pieces for the inode: many of
/// them lie there. A hint, for file systems that do not change: some of it may be file data.
pub(super) fn directory_node(fs: &Fs, block: Pblk) {
    if !fs.device().is_served() || fs.journal().is_ok() || fs.cache().peek(block, &pin()).is_some()
    {
        return;
    }
    let chunk = u64::from(CHUNK >> fs.block_size().log2()).max(1);
    let end = (block.get() / chunk + 1).saturating_mul(chunk);
    let first = end.saturating_sub(CHUNKS * chunk);
    let around = first.max(fs.physical().start)..end;
    fs.cache().prefetch_all(around.map(Pblk::new).collect());
}

/// Returns where the first block of a file lies, if the root of its map says so without a node.
/// What is wrong with the map shows when it is read.
pub(crate) fn first_block(root: &[u8; MAP_BYTES]) -> Option<Pblk> {
    if root.starts_with(&MAGIC.to_le_bytes()) {
        let node = ExtentNode::parse(root).ok().filter(ExtentNode::is_leaf)?;
        let extent = node.extent(0)?;
        (extent.lblk.get() == 0).then_some(extent.pblk)
    } else {
        let block = pointer(root, 0);
        (block != 0).then(|| Pblk::new(block.into()))
    }
}

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
