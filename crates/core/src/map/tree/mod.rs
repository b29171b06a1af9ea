//! Changing extent trees.
//!
//! | file | owns |
//! |---|---|
//! | `node` | a node, taken apart |
//! | `draft` | a tree being changed: insert, convert, remove |
//! | `clusters` | which clusters a change frees |
//! | `quick` | a change of one leaf, as nearly all are |
//! | `rebalance` | splitting, dropping and moving nodes until each can be stored |
//! | `space` | what new nodes are paid from |
//! | `store` | putting a changed tree in place under a handle |
//! | `whole` | all of a tree: what it is made of, and making one |
//!
//! # How a change is made
//!
//! A change first happens in memory only: the nodes it concerns are read and taken apart, changed
//! without regard to their capacity, and then balanced. Now all is known that can fail: the blocks
//! for new nodes are taken, and only then does anything become visible. So a change that runs out
//! of space or finds a broken node leaves no trace, and however many runs fall into one leaf, the
//! leaf gets one new image.
//!
//! # Invariants
//!
//! - The key of an entry in an inner node is the first block its child maps.
//! - No node in a block is empty, and none that is the root's only child would fit the root.
//! - New nodes are published before what points at them.

mod clusters;
mod draft;
#[cfg(test)]
mod image_tests;
mod node;
mod quick;
mod rebalance;
mod space;
pub(super) mod store;
#[cfg(test)]
mod tests;
pub(super) mod whole;

use super::budget::Budget;
use super::extents::read_node;
use super::{MapGuard, Removed, indirect_insert, report};
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{Inode, LiveInode};
use crate::meta::BlockRef;
use crate::{Error, InPlace, Place, Result};
use draft::{Draft, Source};
use extant_format::extent::{
    Extent, ExtentNode, MAX_UNWRITTEN_LEN, MAX_WRITTEN_LEN, NodeContext, block_capacity,
};
use extant_format::inode::InodeFlags;
use extant_format::{Lblk, Pblk};
use quick::Spot;
pub(super) use space::NewNodes;
pub(crate) use space::NodeSpace;
use std::ops::Range;
use std::sync::Arc;

/// The nodes of an inode's tree, through the cache.
struct Nodes<'f> {
    fs: &'f Fs,
    inode: Arc<Inode>,
}

impl Source for Nodes<'_> {
    type Block = BlockRef;

    fn node(&self, block: Pblk, context: &NodeContext) -> Result<BlockRef> {
        read_node(self.fs, &self.inode, block, context)
    }
}

/// A change of a map.
#[derive(Clone, Debug)]
enum Edit {
    /// Maps what nothing maps, which may be longer than an extent.
    Insert(Extent),
    /// Makes written what is unwritten in these logical blocks.
    Convert(Range<u64>),
    /// Frees what is mapped in the first logical blocks, and maps what is mapped in the second ones
    /// elsewhere.
    Remap(Range<u64>, Range<u64>, Vec<Extent>),
}

impl Edit {
    fn apply(&self, draft: &mut Draft<Nodes<'_>>) -> Result<()> {
        match self {
            Self::Convert(range) => draft.convert(range),
            Self::Insert(whole) => Self::insert(draft, whole),
            Self::Remap(free, range, wholes) => draft.remap(free, range, |draft| {
                wholes
                    .iter()
                    .try_for_each(|whole| Self::insert(draft, whole))
            }),
        }
    }

    fn insert(draft: &mut Draft<Nodes<'_>>, whole: &Extent) -> Result<()> {
        let mut done = 0;
        while done < whole.len {
            let part = (whole.len - done).min(most(whole.unwritten));
            draft.insert(Extent {
                lblk: Lblk::new(whole.lblk.get() + done),
                len: part,
                pblk: Pblk::new(whole.pblk.get().saturating_add(done.into())),
                unwritten: whole.unwritten,
            })?;
            done += part;
        }
        Ok(())
    }
}

/// Most blocks of an extent.
fn most(unwritten: bool) -> u32 {
    if unwritten {
        MAX_UNWRITTEN_LEN
    } else {
        MAX_WRITTEN_LEN
    }
}

/// Where blocks that are mapped go: see [`Tree::remap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// First logical block.
    pub(crate) lblk: Lblk,
    /// First physical block.
    pub(crate) pblk: Pblk,
    /// How many.
    pub(crate) len: u32,
    /// Whether they read as zeros from then on.
    pub(crate) unwritten: bool,
}

/// The map of an inode while a change is made up; see [`change`].
pub(crate) struct Tree<'f> {
    fs: &'f Fs,
    inode: Arc<Inode>,
    /// The change, as long as it is the only one: then it may be so simple that it takes no draft.
    only: Option<Edit>,
    draft: Option<Draft<Nodes<'f>>>,
    /// What is to be mapped, if that is by indirect blocks.
    indirect: Option<Vec<Extent>>,
    /// Whether something is mapped that was not.
    maps_new: bool,
}

impl<'f> Tree<'f> {
    fn open(fs: &'f Fs, live: &LiveInode, guard: &MapGuard<'_>) -> Self {
        debug_assert!(guard.is_of(live), "the guard is another inode's");
        Self::of(fs, live.snapshot())
    }

    fn of(fs: &'f Fs, inode: Arc<Inode>) -> Self {
        let has_extents = inode.flags().contains(InodeFlags::EXTENTS);
        Self {
            fs,
            inode,
            only: None,
            draft: None,
            indirect: (!has_extents).then(Vec::new),
            maps_new: false,
        }
    }

    /// Returns the tree with all changes so far.
    fn into_draft(self) -> Result<Draft<Nodes<'f>>> {
        if let Some(draft) = self.draft {
            return Ok(draft);
        }
        let (fs, ino) = (self.fs, self.inode.ino());
        let map = self.inode.disk().map;
        ExtentNode::parse(&map)
            .and_then(|node| node.validate(&NodeContext::root(fs.physical())))
            .in_place(Place::Inode(ino))?;
        let capacity = usize::from(block_capacity(fs.block_size()));
        #[cfg(test)]
        let capacity = tests::capped(capacity);
        let inode = self.inode;
        let nodes = Nodes { fs, inode };
        let mut draft = Draft::new(nodes, ino, &map, fs.physical(), capacity)?;
        if let Some(only) = self.only {
            only.apply(&mut draft)?;
        }
        Ok(draft)
    }

    fn edit(&mut self, edit: Edit) -> Result<()> {
        self.maps_new |= matches!(edit, Edit::Insert(_));
        if let Some(runs) = &mut self.indirect {
            return match edit {
                Edit::Insert(run) if !run.unwritten => {
                    runs.push(run);
                    Ok(())
                }
                _ => Err(indirect_unsupported()),
            };
        }
        if self.draft.is_none() && self.only.is_none() {
            self.only = Some(edit);
            return Ok(());
        }
        let so_far = Self {
            fs: self.fs,
            inode: Arc::clone(&self.inode),
            only: self.only.take(),
            draft: self.draft.take(),
            indirect: None,
            maps_new: self.maps_new,
        };
        let draft = self.draft.insert(so_far.into_draft()?);
        edit.apply(draft)
    }

    /// Maps `len` blocks from `lblk` to those from `pblk`. Nothing may map them yet.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] past 2^32 blocks; when something maps one of the blocks, or a node
    /// is broken or cannot be read, if not now, then when the change is stored.
    pub(crate) fn insert(
        &mut self,
        lblk: Lblk,
        pblk: Pblk,
        len: u32,
        unwritten: bool,
    ) -> Result<()> {
        let whole = Extent {
            lblk,
            len,
            pblk,
            unwritten,
        };
        // The last block of all is never mapped: its end would not fit 32 bits.
        if whole.end() > u64::from(u32::MAX) {
            return Err(Error::FileTooLarge);
        }
        match len {
            0 => Ok(()),
            _ => self.edit(Edit::Insert(whole)),
        }
    }

    /// Makes written what is unwritten in `range`, in logical blocks.
    ///
    /// # Errors
    /// When a node is broken or cannot be read, if not now, then when the change is stored.
    pub(crate) fn convert(&mut self, range: &Range<u64>) -> Result<()> {
        self.edit(Edit::Convert(range.clone()))
    }

    /// Frees what is mapped in `free`, which may be empty; unmaps all of `range` and maps the same
    /// blocks again as `moves` say. Both are in logical blocks and do not overlap.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub(crate) fn remap(
        &mut self,
        free: &Range<u64>,
        range: &Range<u64>,
        moves: &[Move],
    ) -> Result<()> {
        let wholes = moves.iter().map(|to| Extent {
            lblk: to.lblk,
            len: to.len,
            pblk: to.pblk,
            unwritten: to.unwritten,
        });
        let wholes: Vec<Extent> = wholes.collect();
        if wholes.iter().any(|whole| whole.end() > u64::from(u32::MAX)) {
            return Err(Error::FileTooLarge);
        }
        self.edit(Edit::Remap(free.clone(), range.clone(), wholes))
    }

    /// Makes it the map of the inode: see [`store::store`].
    fn store(
        self,
        handle: &Handle<'f>,
        live: &Arc<LiveInode>,
        taken: &mut Vec<Taken<'f>>,
        also: impl FnOnce(&mut Inode),
        space: &NodeSpace,
    ) -> Result<()> {
        if !self.maps_new {
            space.set_nothing_new();
        }
        if let Some(runs) = &self.indirect {
            super::check_indirect(self.fs)?;
            return indirect_insert::store(handle, live, runs, taken, also, space);
        }
        if let (None, Some(only)) = (&self.draft, &self.only)
            && let Some(spot) = Spot::find(self.fs, &self.inode, only)?
        {
            return spot.store(handle, live, taken, also, space);
        }
        store::store(handle, live, self.into_draft()?, taken, also, space)
    }
}

/// Returns the error for what maps of indirect blocks cannot express.
fn indirect_unsupported() -> Error {
    Error::Unsupported {
        features: "moving and reserving blocks of files mapped by indirect blocks".to_owned(),
    }
}

/// Changes the map of an inode: `edit` makes up the change, `taken` become the inode's blocks, and
/// `also` changes the rest of the record, all in one image.
///
/// The number of blocks charged to the inode follows what was mapped, and the nodes. Credits:
/// [`insert_credits`](super::insert_credits).
///
/// # Errors
/// What `edit` says; [`Error::NoSpace`] when there is no room for the nodes of the tree;
/// [`Error::FileTooLarge`] when the inode cannot have as many blocks; when a node is broken or
/// cannot be read. Nothing has changed then, and `taken` is given back. Nodes are paid from what
/// the thread's caller may have if something is mapped that was not, otherwise from all there is.
pub(crate) fn change<'f>(
    handle: &Handle<'f>,
    live: &Arc<LiveInode>,
    guard: &MapGuard<'_>,
    mut taken: Vec<Taken<'f>>,
    edit: impl FnOnce(&mut Tree<'f>) -> Result<()>,
    also: impl FnOnce(&mut Inode),
) -> Result<()> {
    let space = NodeSpace::of_caller();
    change_paid(handle, live, guard, &mut taken, edit, also, &space)
}

/// Changes a map as [`change`] does, with new nodes paid from `space`. If it fails, the blocks in
/// `taken` stay the caller's, with what was promised. Credits:
/// [`insert_many_credits`](super::insert_many_credits).
///
/// # Errors
/// As for [`change`].
pub(crate) fn change_paid<'f>(
    handle: &Handle<'f>,
    live: &Arc<LiveInode>,
    guard: &MapGuard<'_>,
    taken: &mut Vec<Taken<'f>>,
    edit: impl FnOnce(&mut Tree<'f>) -> Result<()>,
    also: impl FnOnce(&mut Inode),
    space: &NodeSpace,
) -> Result<()> {
    let change = || {
        let mut tree = Tree::open(handle.fs(), live, guard);
        edit(&mut tree)?;
        tree.store(handle, live, taken, also, space)
    };
    change().inspect_err(|e| report(handle, e))
}

/// Makes written what is unwritten in `range`, in logical blocks.
///
/// # Errors
/// As for [`change`].
#[cfg(test)]
pub(crate) fn convert(
    handle: &Handle<'_>,
    live: &Arc<LiveInode>,
    guard: &MapGuard<'_>,
    range: Range<u64>,
) -> Result<()> {
    let edit = |tree: &mut Tree<'_>| tree.convert(&range);
    change(handle, live, guard, Vec::new(), edit, |_| ())
}

/// Unmaps from an extent tree; see [`remove_keeping`](super::remove_keeping).
pub(super) fn remove(
    handle: &Handle<'_>,
    live: &Arc<LiveInode>,
    guard: &MapGuard<'_>,
    range: &Range<u64>,
    budget: &mut Budget<'_, '_>,
) -> Result<Removed> {
    let mut draft = Tree::open(handle.fs(), live, guard).into_draft()?;
    let stopped = draft.remove(range, budget)?;
    let space = NodeSpace::finishing(0);
    store::store(handle, live, draft, &mut Vec::new(), |_| (), &space)?;
    Ok(Removed::up_to(stopped))
}
