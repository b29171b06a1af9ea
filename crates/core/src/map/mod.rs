//! Mapping logical to physical blocks: extent trees and indirect maps.
//!
//! | file | owns |
//! |---|---|
//! | `extents` | searching extent trees |
//! | `indirect` | searching indirect maps |
//! | `runs` | walking a range of a file, run by run |
//! | `ahead` | nodes that are read before they are needed |
//! | `guard` | [`MapGuard`], the right to change a map, and reading maps that may change |
//! | `placing` | where blocks go whose logical cluster has a place |
//! | `status` | what is known of the map of a file, found without a lock |
//! | `tree` | changing extent trees |
//! | `remove` | taking blocks away, whatever the map is made of |
//! | `indirect_insert` | mapping more blocks by indirect maps |
//! | `indirect_remove` | taking blocks away from indirect maps |
//! | `reshape` | extents made of indirect blocks, and the other way round |
//! | `blocks` | blocks of directories and other metadata files, through the cache |
//! | `budget` | how much one removal may free |
//! | `credits` | how many blocks a change may touch |
//!
//! # Invariants
//!
//! - A [`Mapping`] is never empty and never points outside the file system.
//! - Every walk ends: a tree's depth shrinks at each step, and an answer always covers at least one
//!   block and at most what the parent node said its child maps.

mod ahead;
mod blocks;
mod budget;
mod credits;
mod extents;
mod guard;
mod indirect;
mod indirect_insert;
mod indirect_remove;
mod placing;
mod remove;
mod reshape;
mod runs;
mod status;
mod tree;

pub(crate) use ahead::{first_block, nodes_below_root};
pub(crate) use credits::{
    GROUP, NewRuns, insert_credits, insert_many_credits, new_map_credits, remove_credits,
    stays_in_record,
};
pub use guard::MapGuard;
pub(crate) use guard::{runs_live, runs_of, stable};
pub(crate) use placing::{Placer, Places, cluster_of};
pub use remove::Removed;
#[cfg(test)]
pub(crate) use remove::remove;
pub(crate) use remove::remove_keeping;
pub(crate) use reshape::Reshape;
pub(crate) use runs::runs_of_all;
pub use runs::{Runs, Walk};
pub(crate) use status::{KnownRuns, Status, known};
#[cfg(test)]
pub(crate) use tree::convert;
pub(crate) use tree::store::Charge;
pub(crate) use tree::{Move, NodeSpace, Tree, change, change_paid};

use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::Inode;
use crate::{Error, Place, Result};
use extant_format::inode::InodeFlags;
use extant_format::{Expected, FormatError, Ino, Lblk, Pblk, Structure};

/// Where a run of logical blocks lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// In blocks that hold data, from this one on.
    Written(Pblk),
    /// In blocks that were reserved and never written, from this one on: reads as zeros.
    Unwritten(Pblk),
    /// Nowhere: reads as zeros.
    Hole,
}

impl Target {
    /// Returns the target `blocks` further on.
    #[must_use]
    pub fn advanced(self, blocks: u64) -> Self {
        let step = |pblk: Pblk| Pblk::new(pblk.get().saturating_add(blocks));
        match self {
            Self::Written(pblk) => Self::Written(step(pblk)),
            Self::Unwritten(pblk) => Self::Unwritten(step(pblk)),
            Self::Hole => Self::Hole,
        }
    }

    /// Returns the first physical block, if there is one.
    #[must_use]
    pub fn pblk(self) -> Option<Pblk> {
        match self {
            Self::Written(pblk) | Self::Unwritten(pblk) => Some(pblk),
            Self::Hole => None,
        }
    }
}

/// A run of logical blocks and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First logical block.
    pub lblk: Lblk,
    /// Number of blocks: at least 1; a hole may reach to 2^32.
    pub len: u64,
    /// Where they lie.
    pub target: Target,
}

impl Mapping {
    /// One past the last logical block.
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.lblk.get()).saturating_add(self.len)
    }

    /// Tells whether `next` begins where this run ends, on the device as in the file.
    fn is_followed_by(&self, next: &Self) -> bool {
        self.end() == u64::from(next.lblk.get())
            && match (self.target.advanced(self.len), next.target) {
                (Target::Written(a), Target::Written(b))
                | (Target::Unwritten(a), Target::Unwritten(b)) => a == b,
                (Target::Hole, Target::Hole) => true,
                _ => false,
            }
    }
}

/// Reports an error that a change of a map met, if it says that the file system is corrupt.
fn report(handle: &Handle<'_>, error: &Error) {
    if error.is_corruption() {
        handle.fs().report(error);
    }
}

/// Refuses to change a map of indirect blocks where space is allocated in clusters: Linux has no
/// such files either.
fn check_indirect(fs: &Fs) -> Result<()> {
    if fs.cluster_size().is_block() {
        Ok(())
    } else {
        Err(Error::Unsupported {
            features: "indirect blocks with bigalloc".to_owned(),
        })
    }
}

/// One past the last logical block that is mapped; for an indirect map that is not known.
///
/// # Errors
/// As for [`lookup`].
pub(crate) fn mapped_end(fs: &Fs, inode: &Inode) -> Result<u64> {
    if inode.flags().contains(InodeFlags::EXTENTS) {
        extents::end(fs, inode)
    } else {
        Ok(u64::MAX)
    }
}

/// Returns the run that begins at `lblk`. It may end before the next change: neighbouring runs may
/// continue it.
///
/// Blocks past the end of the file are mapped like any other; the caller knows the size. The
/// inode's content must not be inline.
///
/// # Errors
/// When a node of the map breaks the format, or the device fails.
pub fn lookup(fs: &Fs, inode: &Inode, lblk: Lblk) -> Result<Mapping> {
    let mapping = if inode.flags().contains(InodeFlags::EXTENTS) {
        extents::lookup(fs, inode, lblk)?
    } else {
        indirect::lookup(fs, inode, lblk)?
    };
    check_owned(fs, inode, &mapping)?;
    Ok(mapping)
}

/// Refuses a node of the map that lies where no file may have blocks.
#[inline]
fn check_node_owned(fs: &Fs, inode: &Inode, block: Pblk) -> Result<()> {
    let lblk = Lblk::new(0);
    let target = Target::Written(block);
    check_owned(
        fs,
        inode,
        &Mapping {
            lblk,
            len: 1,
            target,
        },
    )
}

/// Refuses a run over the file system's own metadata or its journal, if the file system is open for
/// writing: what is written to the file would go there. As Linux does (`block_validity`).
#[inline]
fn check_owned(fs: &Fs, inode: &Inode, run: &Mapping) -> Result<()> {
    let (Some(start), Some(alloc)) = (run.target.pblk(), fs.alloc_if_any()) else {
        return Ok(());
    };
    match alloc.first_kept(start.get()..start.get().saturating_add(run.len)) {
        Some(block) => not_owned(fs, inode, block),
        None => Ok(()),
    }
}

#[cold]
fn not_owned(fs: &Fs, inode: &Inode, block: Pblk) -> Result<()> {
    let superblock = fs.superblock();
    // Their blocks are those: spare descriptors, bad blocks anywhere, the log.
    let has_own = [Ino::RESIZE, Ino::BAD_BLOCKS].contains(&inode.ino())
        || superblock.journal_ino() == Some(inode.ino());
    if has_own {
        return Ok(());
    }
    let expected = Expected::Said("a block that files may own, not the file system's own metadata");
    let source = FormatError::new(Structure::Inode, "mapped block", block.get(), expected);
    Err(Error::corrupt(Place::Inode(inode.ino()), source))
}
