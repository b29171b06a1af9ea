//! Searching extent trees.

use super::{Mapping, Target, ahead, check_node_owned};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::meta::BlockRef;
use crate::{InPlace, Place, Result};
use extant_format::extent::{self, Extent, ExtentNode, NodeContext};
use extant_format::{FormatResult, Lblk, Pblk, Structure};

/// The node of extents that maps a logical block, and the range of blocks it speaks for.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The block; `None` for a root inside the inode.
    block: Option<BlockRef>,
    context: NodeContext,
}

/// What a search from the root ends at.
pub(super) enum Found {
    Leaf(Leaf),
    /// No node maps the block: a hole up to here.
    Hole(u64),
}

pub(super) fn lookup(fs: &Fs, inode: &Inode, lblk: Lblk) -> Result<Mapping> {
    match find_leaf(fs, inode, lblk)? {
        Found::Leaf(leaf) => leaf.lookup(inode, lblk),
        Found::Hole(end) => Ok(hole(lblk, end)),
    }
}

fn hole(lblk: Lblk, end: u64) -> Mapping {
    Mapping {
        lblk,
        len: end.saturating_sub(lblk.get().into()).max(1),
        target: Target::Hole,
    }
}

/// Goes down from the root to the leaf that maps `lblk`.
pub(super) fn find_leaf(fs: &Fs, inode: &Inode, lblk: Lblk) -> Result<Found> {
    let root = NodeContext::root(fs.physical());
    let node = ExtentNode::parse(&inode.disk().map)
        .and_then(|node| node.validate(&root).map(|()| node))
        .in_place(Place::Inode(inode.ino()))?;
    let mut step = Step::choose(&node, &root, lblk);
    loop {
        match step {
            Step::Here(context) => {
                return Ok(Found::Leaf(Leaf {
                    block: None,
                    context,
                }));
            }
            Step::Hole(end) => return Ok(Found::Hole(end)),
            Step::Down(child, context) => {
                if inode.is_dir() {
                    ahead::directory_node(fs, child);
                }
                let block = read_node(fs, inode, child, &context)?;
                let place = Place::InodeBlock(inode.ino(), child);
                let node = ExtentNode::parse(&block).in_place(place)?;
                step = match Step::choose(&node, &context, lblk) {
                    Step::Here(context) => {
                        let block = Some(block);
                        return Ok(Found::Leaf(Leaf { block, context }));
                    }
                    other => other,
                };
            }
        }
    }
}

/// Where a search goes from a node.
enum Step {
    /// The node is the leaf.
    Here(NodeContext),
    /// Nothing below maps the block, up to here.
    Hole(u64),
    /// On to a child, one level down.
    Down(Pblk, NodeContext),
}

impl Step {
    fn choose(node: &ExtentNode<'_>, context: &NodeContext, lblk: Lblk) -> Self {
        if node.is_leaf() {
            return Self::Here(context.clone());
        }
        let child = node.search(lblk).and_then(|i| {
            let entry = node.index_entry(i)?;
            Some((entry.child, node.child_context(i, context)?))
        });
        match child {
            Some((block, context)) => Self::Down(block, context),
            None => Self::Hole(match node.first_block(0) {
                Some(first) => first.get().into(),
                None => context.logical.end,
            }),
        }
    }
}

/// One past the last logical block that a tree maps.
pub(super) fn end(fs: &Fs, inode: &Inode) -> Result<u64> {
    match find_leaf(fs, inode, Lblk::new(u32::MAX))? {
        Found::Leaf(leaf) => leaf.end(inode),
        Found::Hole(_) => Ok(extent::LBLK_END),
    }
}

/// Reads a node in a block and checks it against what its parent said.
pub(super) fn read_node(
    fs: &Fs,
    inode: &Inode,
    block: Pblk,
    context: &NodeContext,
) -> Result<BlockRef> {
    check_node_owned(fs, inode, block)?;
    let place = Place::InodeBlock(inode.ino(), block);
    let owner = Some(inode.ino());
    let bytes = fs.metadata(block, place, Structure::ExtentNode, owner, |bytes| {
        check_node(fs, inode, bytes)
    })?;
    // Once per visit: a hostile tree may give one block several parents.
    ExtentNode::parse(&bytes)
        .and_then(|node| node.fits(context))
        .in_place(place)?;
    Ok(bytes)
}

/// Checks what a node holds by itself: checksum, order, physical blocks.
fn check_node(fs: &Fs, inode: &Inode, bytes: &[u8]) -> FormatResult<()> {
    if let Some(seed) = inode.seed() {
        extent::verify_checksum(bytes, seed)?;
    }
    ExtentNode::parse(bytes)?.validate(&NodeContext::root(fs.physical()))
}

impl Leaf {
    /// Tells whether this leaf speaks for `lblk`.
    pub(super) fn covers(&self, lblk: u64) -> bool {
        self.context.logical.contains(&lblk)
    }

    /// Returns the block, unless it is the root inside the inode, and one past the last logical
    /// block it may map.
    pub(super) fn into_parts(self) -> (Option<BlockRef>, u64) {
        (self.block, self.context.logical.end)
    }

    /// One past the last block it maps.
    fn end(&self, inode: &Inode) -> Result<u64> {
        let bytes = match &self.block {
            Some(block) => block,
            None => &inode.disk().map[..],
        };
        let node = ExtentNode::parse(bytes).in_place(Place::Inode(inode.ino()))?;
        let last = node
            .search(Lblk::new(u32::MAX))
            .and_then(|i| node.extent(i));
        Ok(last.map_or(0, |extent| extent.end()))
    }

    /// Returns the run that begins at `lblk`, which the leaf covers.
    pub(super) fn lookup(&self, inode: &Inode, lblk: Lblk) -> Result<Mapping> {
        let bytes = match &self.block {
            Some(block) => block,
            None => &inode.disk().map[..],
        };
        let node = ExtentNode::parse(bytes).in_place(Place::Inode(inode.ino()))?;
        let at = node.search(lblk);
        if let Some(extent) = at.and_then(|i| node.extent(i))
            && u64::from(lblk.get()) < extent.end()
        {
            return Ok(inside(&extent, lblk));
        }
        let next = node.first_block(at.map_or(0, |i| i + 1));
        let end = next.map_or(self.context.logical.end, |next| next.get().into());
        Ok(hole(lblk, end))
    }
}

/// Returns the rest of `extent` from `lblk`, which lies inside it.
fn inside(extent: &Extent, lblk: Lblk) -> Mapping {
    let skip = u64::from(lblk.get()).saturating_sub(extent.lblk.get().into());
    let target = if extent.unwritten {
        Target::Unwritten(extent.pblk)
    } else {
        Target::Written(extent.pblk)
    };
    Mapping {
        lblk,
        len: u64::from(extent.len).saturating_sub(skip).max(1),
        target: target.advanced(skip),
    }
}
