//! Blocks of a file as the allocator gives them: with a view of the map, and of what is kept ready.

use crate::Result;
use crate::alloc::{Alloc, AllocFile, FileRequest, FileState, Taken};
use crate::fs::Fs;
use crate::inode::LiveInode;
use crate::map::{self, Target};
use crate::volume::Cluster;
use extant_format::inode::InodeFlags;
use extant_format::{Ino, Lblk};
use extant_sync::pin;
use std::ops::Range;
use std::sync::Arc;

/// Logical clusters before the end of a hole for which room is left in front of what lies behind
/// the hole: as far as a file goes on from its last blocks.
const FAR: u32 = crate::alloc::FAR;
/// Runs of the map that are looked at before a hole.
const MOST_PIECES: usize = 16;

/// A file for which blocks are taken.
struct Growing<'a> {
    fs: &'a Fs,
    live: &'a LiveInode,
}

impl AllocFile for Growing<'_> {
    fn ino(&self) -> Ino {
        self.live.ino()
    }

    fn has_extents(&self) -> bool {
        let guard = pin();
        let image = self.live.image(&guard);
        image.flags().contains(InodeFlags::EXTENTS)
    }

    fn state(&self) -> &Arc<FileState> {
        self.live.alloc_state()
    }

    fn hole(&self, lblk: u32, window: Range<u32>) -> (Range<u32>, Option<Cluster>) {
        let image = self.live.snapshot();
        if image.disk().blocks == 0 {
            return (window, None);
        }
        let size = self.fs.cluster_size();
        let first_block = |cluster: u32| u64::from(cluster) << size.bits();
        // Hints: if the map changes meanwhile or is broken, others will notice.
        let at =
            |block: u64| map::lookup(self.fs, &image, Lblk::new(u32::try_from(block).ok()?)).ok();
        let Some(here) = at(first_block(lblk)).filter(|here| here.target == Target::Hole) else {
            return (window, None);
        };
        let next = u32::try_from(here.end() >> size.bits()).unwrap_or(u32::MAX);
        let mut start = lblk;
        if window.start < lblk {
            let before = first_block(window.start)..first_block(lblk);
            let before = map::Runs::over(self.fs, &image, before);
            // In a window of more pieces nothing before is worth the search.
            let last = before.take(MOST_PIECES).last();
            if let Some(Ok(run)) = last
                && run.target == Target::Hole
                && run.end() == first_block(lblk)
            {
                start = size.count(run.lblk.get());
            }
        }
        let behind = || {
            let pblk = at(first_block(start).checked_sub(1)?)?.target.pblk()?;
            Some(size.of(pblk).plus(1))
        };
        let ahead = || {
            let distance = Some(next.checked_sub(start)?).filter(|distance| *distance <= FAR)?;
            let pblk = at(here.end())?.target.pblk()?;
            Some(size.of(pblk).minus(distance))
        };
        // Where a window is filled in any order, what lies behind the hole was placed like this
        // too; what lies before it may end at blocks of others.
        let beside = if next <= window.end {
            ahead().or_else(behind)
        } else {
            behind().or_else(ahead)
        };
        // At least what is asked for, whatever the map became.
        let end = window.end.min(next.max(lblk + 1));
        (start..end, beside)
    }
}

/// Takes one run of blocks for the file: see [`Alloc::take_for`](crate::alloc::Alloc::take_for).
///
/// # Errors
/// [`Error::NoSpace`](crate::Error::NoSpace) when nothing is free, nor kept for others.
pub(crate) fn take_for<'f>(fs: &'f Fs, live: &LiveInode, ask: &FileRequest) -> Result<Taken<'f>> {
    fs.alloc()?.take_for(&Growing { fs, live }, ask)
}

/// Has what is kept ready behind the last blocks of the file wait for `lblk`, further ahead.
pub(crate) fn keep_for(alloc: &Alloc, live: &LiveInode, lblk: Lblk) {
    if let Some(state) = live.alloc_state_if_any() {
        alloc.keep_for(state, lblk);
    }
}

/// Gives back what is kept ready for the file: when nobody writes to it any more.
pub(crate) fn drop_all(alloc: &Alloc, live: &LiveInode) {
    if let Some(state) = live.alloc_state_if_any() {
        alloc.drop_preallocations(state);
    }
}

/// Gives back what is kept ready for the file at `lblk` and behind: when it is truncated.
pub(crate) fn drop_from(alloc: &Alloc, live: &LiveInode, lblk: Lblk) {
    if let Some(state) = live.alloc_state_if_any() {
        alloc.drop_preallocations_from(state, lblk);
    }
}
