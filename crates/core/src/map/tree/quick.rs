//! Mapping one run of blocks where a single leaf changes, and no node comes or goes: what nearly every insertion
//! is. The leaf is searched and edited as it is stored, so that the cost does not follow what the nodes on the way hold.
//!
//! Everything that is more than this is left to a [draft](super::draft).

use super::super::extents::{Found, find_leaf};
use super::node::joined;
use super::store::{Charge, seal};
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::inode::{Inode, LiveInode};
use crate::journal::Handle;
use crate::meta::BlockRef;
use crate::{InPlace, Place, Result};
use extant_format::extent::{self, Extent, ExtentNode, MAX_UNWRITTEN_LEN, MAX_WRITTEN_LEN};
use extant_format::inode::InodeFlags;
use std::ops::Range;
use std::sync::Arc;

/// Where an extent goes.
pub(super) struct Spot {
    inode: Arc<Inode>,
    /// The leaf; `None` for the root.
    leaf: Option<BlockRef>,
    /// Positions of the extents in the leaf that it is joined with.
    replaced: Range<usize>,
    /// What takes their place.
    new: Extent,
    /// Blocks that are mapped.
    len: u32,
}

impl Spot {
    /// Finds out where `extent` goes. `None` if that takes more than a change of one leaf, or something is mapped
    /// there.
    ///
    /// # Errors
    /// When a node is broken or cannot be read.
    pub(super) fn find(fs: &Fs, live: &LiveInode, extent: &Extent) -> Result<Option<Self>> {
        let inode = live.snapshot();
        let most = match extent.unwritten {
            true => MAX_UNWRITTEN_LEN,
            false => MAX_WRITTEN_LEN,
        };
        let fits = (1..=most).contains(&extent.len) && extent.end() <= u32::MAX.into();
        if !fits || !inode.flags().contains(InodeFlags::EXTENTS) {
            return Ok(None);
        }
        let Found::Leaf(leaf) = find_leaf(fs, &inode, extent.lblk)? else {
            return Ok(None);
        };
        let (leaf, end) = leaf.into_parts();
        let bytes = match &leaf {
            Some(block) => block,
            None => &inode.disk().map[..],
        };
        let node = ExtentNode::parse(bytes).in_place(Place::Inode(inode.ino()))?;
        let before = node.search(extent.lblk);
        let at = before.map_or(0, |i| i + 1);
        if at == 0 && leaf.is_some() {
            // The key in the parent would change.
            return Ok(None);
        }
        let left = before.and_then(|i| node.extent(i));
        let right = (at < node.len()).then(|| node.extent(at)).flatten();
        let free_to = right.map_or(end, |right| right.lblk.get().into());
        if left.is_some_and(|left| left.end() > extent.lblk.get().into()) || free_to < extent.end()
        {
            return Ok(None);
        }
        let (mut replaced, mut new) = (at..at, *extent);
        if let Some(both) = left.and_then(|left| joined(&left, &new)) {
            (replaced.start, new) = (at - 1, both);
        }
        if let Some(both) = right.and_then(|right| joined(&new, &right)) {
            (replaced.end, new) = (at + 1, both);
        }
        let capacity = usize::from(node.header().max);
        #[cfg(test)]
        let capacity = match leaf {
            Some(_) => super::tests::capped(capacity),
            None => capacity,
        };
        if replaced.is_empty() && node.len() >= capacity {
            return Ok(None);
        }
        Ok(Some(Self {
            leaf,
            replaced,
            new,
            len: extent.len,
            inode,
        }))
    }

    /// Puts it there: as [`change`](super::change).
    pub(super) fn store<'f>(
        self,
        handle: &Handle<'f>,
        live: &Arc<LiveInode>,
        taken: Vec<Taken<'f>>,
        also: impl FnOnce(&mut Inode),
    ) -> Result<()> {
        let fs = handle.fs();
        let charge = Charge {
            gained: self.len.into(),
            lost: 0,
        };
        charge.check(fs, &self.inode)?;
        let put = |bytes: &mut [u8]| extent::put_extent(bytes, self.replaced.clone(), &self.new);
        let mut root = None;
        let mut image = None;
        match &self.leaf {
            Some(leaf) => {
                let mut copy = fs.cache().copy_of(leaf);
                put(&mut copy).in_place(Place::Block(leaf.block()))?;
                image = Some((leaf, copy));
            }
            None => {
                let mut map = self.inode.disk().map;
                put(&mut map).in_place(Place::Inode(live.ino()))?;
                root = Some(map);
            }
        }
        handle.touch_inode(live)?;
        for taken in taken {
            fs.commit_blocks(handle, taken)?;
        }
        // From here on nothing fails that could be undone.
        if let Some((leaf, copy)) = image {
            handle.replace(leaf, seal(&self.inode), copy);
        }
        live.note_datasync(handle);
        live.update(handle, |inode| {
            if let Some(map) = root {
                inode.disk_mut().map = map;
            }
            charge.apply(fs, inode);
            also(inode);
        })
    }
}
