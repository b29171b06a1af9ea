//! Taking blocks away from a file, whatever its map is made of.

use super::budget::Budget;
use super::{MapGuard, indirect_remove, report, tree};
use crate::Result;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::{FileType, Inode, LiveInode};
use extant_format::Lblk;
use extant_format::inode::InodeFlags;
use std::ops::Range;
use std::sync::Arc;

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Removed {
    /// Where it stopped for lack of credits: everything from here on is unmapped, and the range up
    /// to here remains to be. `None` when the whole range is unmapped.
    pub next: Option<Lblk>,
}

impl Removed {
    pub(super) fn up_to(stopped: Option<u64>) -> Self {
        Self {
            next: stopped.and_then(|at| u32::try_from(at).ok()).map(Lblk::new),
        }
    }
}

/// Tells whether the inode's map is one: that of a device, or of a symbolic link with a short
/// target, holds something else.
fn has_map(fs: &Fs, inode: &Inode) -> bool {
    match inode.file_type() {
        FileType::Regular | FileType::Directory => !inode.is_inline(),
        FileType::Symlink => !inode.is_inline() && !fs.is_fast_symlink(inode),
        _ => false,
    }
}

/// Takes blocks away as [`remove_keeping`] does, and keeps no credits.
#[cfg(test)]
pub(crate) fn remove(
    handle: &Handle<'_>,
    live: &Arc<LiveInode>,
    guard: &MapGuard<'_>,
    range: Range<u64>,
) -> Result<Removed> {
    remove_keeping(handle, live, guard, range, 0)
}

/// Unmaps `range`, in logical blocks, from its end on, and frees what it was mapped to, as far as
/// the handle's credits go; see [`Removed`]. With [`remove_credits`](super::remove_credits) it gets
/// ahead. Inodes without a map have nothing to remove.
///
/// Nobody may use the addresses of the range any more: the caller holds the inode's `pages` lock
/// exclusively, or nobody else can reach the inode.
/// Of the credits of the handle, `keep` are left to the caller.
///
/// # Errors
/// When a node is broken or cannot be read, or the bitmap of what would be freed cannot be read, or
/// there is no room for the node that cutting an extent in two may need: nothing has changed then.
/// When blocks that were mapped are not in use: they are unmapped then.
pub(crate) fn remove_keeping(
    handle: &Handle<'_>,
    live: &Arc<LiveInode>,
    guard: &MapGuard<'_>,
    range: Range<u64>,
    keep: u32,
) -> Result<Removed> {
    let inode = live.snapshot();
    if !has_map(handle.fs(), &inode) {
        return Ok(Removed { next: None });
    }
    let mut budget = Budget::new(handle, &inode, keep);
    let removed = if inode.flags().contains(InodeFlags::EXTENTS) {
        tree::remove(handle, live, guard, &range, &mut budget)
    } else {
        super::check_indirect(handle.fs())
            .and_then(|()| indirect_remove::remove(handle, live, guard, &range, &mut budget))
    };
    removed.inspect_err(|e| report(handle, e))
}
