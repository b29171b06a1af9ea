//! The end of inodes that have no names.
//!
//! An inode without names goes when nobody holds it. A small one goes in the transaction that took
//! its last name. Any other is an orphan until it is gone, so that its blocks can be freed over
//! several transactions: a crash in between leaves it on the device as such, and the next to open
//! the file system goes on.
//!
//! # Invariants
//!
//! - The thread that deletes an inode has claimed it, so nobody can take hold of it.
//! - The number may be used again as soon as its bit is cleared. Before that the inode in memory is
//!   marked as freed, so that it is found dead, and not loaded anew from a record that has not been
//!   encoded yet.

use crate::data::reserve::preallocation;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::Membership;
use crate::inode::{FileType, Held, Inode, LiveInode, Timestamp};
use crate::map::{self, MapGuard};
use crate::{Result, xattr};
use extant_format::extent::{ExtentNode, LBLK_END};
use extant_format::inode::{InodeFlags, MAP_BYTES};
use extant_sync::{Rank, debug_assert_no_locks_at_or_above, pin};
use std::sync::Arc;

/// A group whose blocks or inodes are freed: bitmap, descriptor, and one to be safe.
const GROUP: u32 = 3;
/// What deleting an inode changes besides its map: the record, its group and a neighbour among the
/// orphans; the block of attributes and its group; the superblock.
const AFTER_MAP: u32 = 1 + GROUP + 2 + (1 + GROUP) + 1;
/// Extents of an inode that may be deleted in the transaction of an operation.
const FEW_EXTENTS: usize = 4;

/// How far a deletion got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Progress {
    /// The inode is gone.
    Done,
    /// The handle has no room for more; another one goes on.
    Partly,
}

impl Fs {
    /// What becomes of an inode whose last name was taken under `handle`: it goes at once if it is
    /// small and `held` is the only hold, otherwise it becomes an orphan, which the end of the last
    /// hold deletes. Asks for the credits it needs beyond those of [`Fs::orphan_add`].
    ///
    /// The caller has the inode's `op` lock exclusively.
    ///
    /// # Errors
    /// When the inode cannot be noted as an orphan, or freeing what it has finds that broken.
    pub(crate) fn unnamed(&self, handle: &Handle<'_>, held: &Held) -> Result<()> {
        let image = held.snapshot();
        // What is being written back has to end before its blocks go: the reaper waits for that.
        let is_quiet = || {
            held.file_cache()
                .is_none_or(|file| file.try_discard_all(self, handle.alloc(), held.ino()))
        };
        if is_small(&image) && held.claim_last() {
            if !is_quiet() {
                self.orphan_add(handle, held.live())?;
                held.live().unclaim();
                return Ok(());
            }
            match self.delete_with_more(handle, held.live()) {
                Ok(Progress::Done) => return Ok(()),
                Ok(Progress::Partly) => {
                    self.orphan_add(handle, held.live())?;
                    held.live().unclaim();
                    return Ok(());
                }
                Err(e) => {
                    // The next one to open the file system may have more luck.
                    self.orphan_add(handle, held.live())?;
                    return Err(e);
                }
            }
        }
        self.orphan_add(handle, held.live())
    }

    /// Deletes a file whose last name is about to go, in the transaction of `handle`, if `held` is
    /// the only hold and there is nothing but the inode itself: `false` if not, and then nothing
    /// has changed. Needs credits for a group, and makes do with those left for [`Fs::orphan_add`],
    /// which is called only where no group was changed; asks for some if there are fewer.
    ///
    /// The caller has the inode's `op` lock exclusively, and has registered the inode.
    ///
    /// # Errors
    /// When the inode cannot be freed; it is noted as an orphan then.
    pub(crate) fn delete_empty(
        &self,
        handle: &Handle<'_>,
        held: &Held,
        time: Timestamp,
    ) -> Result<bool> {
        let live = held.live();
        let nothing = {
            let guard = pin();
            let image = live.image(&guard);
            image.disk.links <= 1
                && !image.is_dir()
                && image.disk.file_acl.get() == 0
                && xattr::give_up_credits(self, image) == 0
                && !maps_blocks(image)
        };
        if !nothing
            || !live.is_only_record()
            || live.membership() != Membership::None
            || !(handle.credits() >= GROUP || handle.extend(GROUP))
            || !held.claim_last()
        {
            return Ok(false);
        }
        live.update(handle, |inode| {
            inode.mark_deleted(self, time);
            inode.disk.ctime = time;
        })?;
        if let Err(e) = handle.alloc().free_inode(handle, live.ino(), false) {
            live.update(handle, Inode::unmark_deleted)?;
            self.orphan_add(handle, live)?;
            return Err(e);
        }
        Ok(true)
    }

    /// Whether inodes without names wait to be deleted.
    pub(crate) fn has_unnamed(&self) -> bool {
        self.orphans()
            .is_ok_and(|orphans| !orphans.reapers().is_empty())
    }

    /// Deletes the inodes without names whose last hold has ended. The caller holds nothing.
    ///
    /// # Errors
    /// The first of what went wrong; such inodes stay orphans on the device, out of reach.
    pub(crate) fn reap(&self) -> Result<()> {
        let Ok(orphans) = self.orphans() else {
            return Ok(());
        };
        let mut result = Ok(());
        loop {
            let waiting = orphans.reapers().take();
            if waiting.is_empty() {
                return result;
            }
            // Deleting one may leave others without references.
            for live in waiting {
                let unnamed = live.snapshot().disk.links == 0;
                if unnamed && live.claim_if_unheld() {
                    let deleted = self.delete(&live);
                    if let Err(error) = &deleted
                        && error.is_corruption()
                    {
                        self.report(error);
                    }
                    result = result.and(deleted);
                }
            }
        }
    }

    /// Deletes an inode that the caller has claimed, over as many transactions as it takes: it is
    /// noted as an orphan, or a crash in between leaves nothing of them.
    ///
    /// # Errors
    /// When something it has is broken, cannot be read or cannot be committed.
    pub(crate) fn delete(&self, live: &Arc<LiveInode>) -> Result<()> {
        debug_assert_no_locks_at_or_above(Rank::JournalHandle);
        if let Some(file) = live.file_cache() {
            file.discard_all(self, self.alloc()?, live.ino());
        }
        loop {
            let handle = self.start(self.delete_credits(&live.snapshot()))?;
            if self.delete_in(&handle, live)? == Progress::Done {
                return Ok(());
            }
        }
    }

    /// As [`Fs::delete_in`], asking for the credits first.
    pub(super) fn delete_with_more(
        &self,
        handle: &Handle<'_>,
        live: &Arc<LiveInode>,
    ) -> Result<Progress> {
        if handle.extend(self.delete_credits(&live.snapshot())) {
            self.delete_in(handle, live)
        } else {
            Ok(Progress::Partly)
        }
    }

    /// Deletes an inode that the caller has claimed, in the transaction of `handle`, as far as its
    /// credits go. What is left then is consistent; the inode must be an orphan if that is to stay
    /// so after a crash.
    ///
    /// # Errors
    /// When something it has is broken or cannot be read. The inode is still there.
    pub(crate) fn delete_in(&self, handle: &Handle<'_>, live: &Arc<LiveInode>) -> Result<Progress> {
        handle.touch_inode(live)?;
        preallocation::drop_all(handle.alloc(), live);
        let image = live.snapshot();
        if maps_blocks(&image) {
            let guard = MapGuard::lock(live);
            // What follows needs room too.
            let keep = AFTER_MAP + xattr::give_up_credits(self, &image);
            let removed = map::remove_keeping(handle, live, &guard, 0..LBLK_END, keep)?;
            if removed.next.is_some() {
                return Ok(Progress::Partly);
            }
        }
        xattr::give_up(handle, live)?;
        let was = live.membership();
        self.orphan_erase(handle, live)?;
        // Registered above, so this cannot fail.
        live.update(handle, |inode| inode.mark_deleted(self, crate::data::now()))?;
        let freed = handle
            .alloc()
            .free_inode(handle, live.ino(), image.is_dir());
        if let Err(e) = freed {
            live.update(handle, Inode::unmark_deleted)?;
            if was != Membership::None {
                self.orphan_add(handle, live)?;
            }
            return Err(e);
        }
        Ok(Progress::Done)
    }

    /// Credits with which deleting an inode gets along, a small one in one go.
    fn delete_credits(&self, image: &Inode) -> u32 {
        let attributes = xattr::give_up_credits(self, image);
        if has_map(image) {
            AFTER_MAP + attributes + map::remove_credits(image) + GROUP * FEW_EXTENTS as u32
        } else {
            AFTER_MAP + attributes
        }
    }
}

impl Inode {
    /// Makes this the record of a free inode, as Linux leaves it: the type stays.
    fn mark_deleted(&mut self, fs: &Fs, time: Timestamp) {
        self.freed = true;
        self.disk.links = 0;
        self.disk.size = 0;
        self.disk.dtime = deletion_time(time, fs.geometry().inodes_count());
    }

    fn unmark_deleted(&mut self) {
        self.freed = false;
        self.disk.dtime = 0;
    }
}

/// Whether deleting it changes only few blocks.
fn is_small(image: &Inode) -> bool {
    if !has_map(image) {
        return true;
    }
    image.flags().contains(InodeFlags::EXTENTS)
        && ExtentNode::parse(&image.disk.map)
            .is_ok_and(|root| root.header().depth == 0 && root.extents().len() <= FEW_EXTENTS)
}

/// Whether the inode's blocks are found through a map in its record.
fn has_map(image: &Inode) -> bool {
    match image.file_type() {
        FileType::Regular | FileType::Directory => !image.is_inline(),
        // A short target lies where the map would.
        FileType::Symlink => {
            image.flags().contains(InodeFlags::EXTENTS) || image.size() >= MAP_BYTES as u64
        }
        _ => false,
    }
}

/// Whether there is a map that may name blocks.
fn maps_blocks(image: &Inode) -> bool {
    let is_empty = |root: ExtentNode<'_>| root.header().depth == 0 && root.extents().len() == 0;
    has_map(image)
        && !(image.flags().contains(InodeFlags::EXTENTS)
            && ExtentNode::parse(&image.disk.map).is_ok_and(is_empty))
}

/// A time as the deletion time says it: seconds, and never so few that they are taken for the
/// number of the next inode in the list of orphans.
fn deletion_time(time: Timestamp, inodes: u32) -> u32 {
    u32::try_from(time.secs.max(inodes.into())).unwrap_or(u32::MAX)
}
