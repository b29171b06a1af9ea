//! A change where a single leaf changes, and no node comes or goes: what nearly every insertion and
//! conversion is. The leaf is searched and edited as it is stored, so that the cost does not follow
//! what the nodes on the way hold.
//!
//! Everything that is more than this is left to a [draft](super::draft).

use super::super::extents::{Found, find_leaf};
use super::Edit;
use super::node::{clip, joined};
use super::space::NodeSpace;
use super::store::{Charge, commit_all, seal};
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use crate::meta::BlockRef;
use crate::{InPlace, Place, Result};
use extant_format::Lblk;
use extant_format::extent::{self, Extent, ExtentNode, LBLK_END, ROOT_CAPACITY};
use std::ops::Range;
use std::sync::Arc;

/// Where a change goes.
pub(super) struct Spot<'i> {
    inode: &'i Inode,
    /// The leaf; `None` for the root.
    leaf: Option<BlockRef>,
    replacement: Replacement,
}

/// What becomes of some extents of a leaf.
struct Replacement {
    /// Their positions.
    replaced: Range<usize>,
    /// What takes their place.
    new: Vec<Extent>,
    /// Blocks that were mapped to nothing before.
    gained: u32,
}

impl<'i> Spot<'i> {
    /// Finds out where `edit` goes. `None` if it takes more than a change of one leaf, or cannot be
    /// done.
    ///
    /// # Errors
    /// When a node is broken or cannot be read.
    pub(super) fn find(fs: &Fs, inode: &'i Inode, edit: &Edit) -> Result<Option<Self>> {
        let first = match edit {
            Edit::Insert(extent) => extent.lblk,
            Edit::Convert(range) => Lblk::new(u32::try_from(range.start).unwrap_or(u32::MAX)),
            Edit::Remap(..) => return Ok(None),
        };
        let Found::Leaf(leaf) = find_leaf(fs, inode, first)? else {
            return Ok(None);
        };
        let (leaf, end) = leaf.into_parts();
        let bytes = match &leaf {
            Some(block) => block,
            None => &inode.disk().map[..],
        };
        let node = ExtentNode::parse(bytes).in_place(Place::Inode(inode.ino()))?;
        let replacement = match edit {
            Edit::Insert(extent) => insert(&node, extent, end, leaf.is_none()),
            Edit::Convert(range) => convert(&node, range),
            Edit::Remap(..) => None,
        };
        let capacity = usize::from(node.header().max);
        #[cfg(test)]
        let capacity = match leaf {
            Some(_) => super::tests::capped(capacity),
            None => capacity,
        };
        // What would fit the root goes there, which a draft sees to.
        let is_only = leaf.is_some()
            && ExtentNode::parse(&inode.disk().map).is_ok_and(|root| root.len() == 1);
        let has_room = |all: &Replacement| {
            let count = node.len() - all.replaced.len() + all.new.len();
            let stays = !is_only || count > usize::from(ROOT_CAPACITY);
            stays && (count <= capacity || count <= node.len())
        };
        Ok(replacement.filter(has_room).map(|replacement| Self {
            inode,
            leaf,
            replacement,
        }))
    }

    /// Puts it there: as [`change`](super::change).
    pub(super) fn store<'f>(
        self,
        handle: &Handle<'f>,
        live: &Arc<LiveInode>,
        taken: &mut Vec<Taken<'f>>,
        also: impl FnOnce(&mut Inode),
        space: &NodeSpace,
    ) -> Result<()> {
        let fs = handle.fs();
        let gained = if fs.cluster_size().is_block() {
            self.replacement.gained.into()
        } else {
            taken.iter().map(|taken| u64::from(taken.len())).sum()
        };
        let charge = Charge { gained, lost: 0 };
        charge.check(fs, self.inode)?;
        let _let_in = charge.admit(fs, live, space)?;
        let Replacement { replaced, new, .. } = self.replacement;
        let put = |bytes: &mut [u8]| extent::put_extents(bytes, replaced, &new);
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
        commit_all(handle, taken)?;
        // From here on nothing fails that could be undone.
        if let Some((leaf, copy)) = image {
            handle.replace(leaf, seal(self.inode), copy);
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

/// Returns how `extent` goes into a leaf that may map up to block `end`, and whose first block may
/// change if it is the root.
fn insert(node: &ExtentNode<'_>, extent: &Extent, end: u64, is_root: bool) -> Option<Replacement> {
    let before = node.search(extent.lblk);
    let at = before.map_or(0, |i| i + 1);
    // Otherwise the key in the parent would change, or it is more than one extent.
    if (at == 0 && !is_root) || extent.len > super::most(extent.unwritten) {
        return None;
    }
    let left = before.and_then(|i| node.extent(i));
    let right = node.extent(at);
    let free_from = left.map_or(0, |left| left.end());
    let free_to = right.map_or(end, |right| right.lblk.get().into());
    if free_from > extent.lblk.get().into() || free_to < extent.end() {
        return None;
    }
    let (mut replaced, mut new) = (at..at, *extent);
    if let Some(both) = left.and_then(|left| joined(&left, &new)) {
        (replaced.start, new) = (at - 1, both);
    }
    if let Some(both) = right.and_then(|right| joined(&new, &right)) {
        (replaced.end, new) = (at + 1, both);
    }
    Some(Replacement {
        replaced,
        new: vec![new],
        gained: extent.len,
    })
}

/// Returns how `range`, which lies in one unwritten extent of a leaf, is made written.
fn convert(node: &ExtentNode<'_>, range: &Range<u64>) -> Option<Replacement> {
    let at = node.search(Lblk::new(u32::try_from(range.start).ok()?))?;
    let whole = node.extent(at)?;
    let mut middle = clip(&whole, range)?;
    if !whole.unwritten || range.end > whole.end() {
        return None;
    }
    middle.unwritten = false;
    let front = clip(&whole, &(0..range.start));
    let back = clip(&whole, &(range.end..LBLK_END));
    let mut replaced = at..at + 1;
    if front.is_none()
        && let Some(left) = at.checked_sub(1).and_then(|i| node.extent(i))
        && let Some(both) = joined(&left, &middle)
    {
        (replaced.start, middle) = (at - 1, both);
    }
    if back.is_none()
        && let Some(right) = node.extent(at + 1)
        && let Some(both) = joined(&middle, &right)
    {
        (replaced.end, middle) = (at + 2, both);
    }
    Some(Replacement {
        replaced,
        new: front.into_iter().chain([middle]).chain(back).collect(),
        gained: 0,
    })
}
