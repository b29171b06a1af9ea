//! Orphans: inodes that a crash must not leave behind as they are.
//!
//! An inode without names that is still held, or one whose blocks are being taken away over several
//! transactions, is noted on the device, so that the next to open the file system after a crash can
//! finish the job.
//!
//! | file | owns |
//! |---|---|
//! | `membership` | where an inode is noted |
//! | `list` | the list on the device: a head in the superblock, links in the inodes |
//! | `file` | the orphan file: slots, no lock |
//! | `reaper` | inodes that wait to be deleted |
//! | `stats` | how often inodes were noted |
//! | `one_lock` | the unimproved form, to compare with |
//!
//! # Which of the two
//!
//! With the `orphan_file` feature an inode is noted in the file, and on the list only when the file
//! is full. Where it was noted is what its [`Membership`] says.
//!
//! # Locking
//!
//! Adding and removing are for threads that may change the inode as a whole (its `op` lock
//! exclusively, or it is new, or leaving), so the membership answers whether there is anything to
//! do before any lock of the list is taken. The list's lock has rank `OrphanList`; what may wait
//! for the device is prepared before it. The file takes no lock.

mod file;
mod list;
mod membership;
#[cfg(feature = "baseline")]
mod one_lock;
mod reaper;
mod stats;

pub(crate) use file::{CapturedSlots, ORPHAN_BLOCKS};
pub(crate) use membership::Membership;
pub(crate) use reaper::{Reaper, Reapers};
pub use stats::OrphanStats;

use super::LiveInode;
use crate::alloc::Alloc;
use crate::fs::Fs;
use crate::fs::Handle;
use crate::inode::Inode;
use crate::meta::BlockRef;
use crate::meta::Seq;
use crate::mutants::{Mutant, is_on};
use crate::{Error, Result};
use extant_format::Ino;
use extant_format::Pblk;
use file::OrphanFile;
use list::OrphanList;
use std::sync::Arc;

/// The orphans of a file system open for writing.
#[derive(Debug)]
pub struct Orphans {
    pub(crate) list: OrphanList,
    pub(crate) file: Option<OrphanFile>,
    reapers: Reapers,
    counters: stats::Counters,
    #[cfg(feature = "baseline")]
    one_lock: one_lock::OneLock,
}

impl Orphans {
    /// The orphans of `fs`, which must be recovered before the first one is added. `alloc` knows
    /// which blocks no file may own.
    ///
    /// # Errors
    /// When the orphan file breaks the format or lies over the file system's own metadata, or the
    /// device fails.
    pub(crate) fn load(
        fs: &Fs,
        alloc: &Alloc,
        blocks_of: impl FnOnce(&Fs, &Inode) -> Result<Vec<Pblk>>,
    ) -> Result<Self> {
        Ok(Self {
            list: OrphanList::new(fs.superblock().orphan_list_head()),
            file: OrphanFile::load(fs, alloc, blocks_of)?,
            reapers: Reapers::new(),
            counters: stats::Counters::default(),
            #[cfg(feature = "baseline")]
            one_lock: one_lock::OneLock::default(),
        })
    }

    /// The first inode of the list, as the superblock says it.
    #[must_use]
    pub(crate) fn head(&self) -> Option<Ino> {
        self.list.head()
    }

    /// Whether nothing is noted in the orphan file.
    #[must_use]
    pub(crate) fn is_file_empty(&self) -> bool {
        self.file.as_ref().is_none_or(OrphanFile::is_empty)
    }

    /// The slots of these blocks of the orphan file as of now, for [`Fs::encode_orphan_blocks`].
    /// The caller has drained the handles.
    pub(crate) fn capture(&self, blocks: impl IntoIterator<Item = u32>) -> Vec<CapturedSlots> {
        let capture = |index| self.file.as_ref()?.capture(index);
        blocks.into_iter().filter_map(capture).collect()
    }

    pub(crate) fn reapers(&self) -> &Reapers {
        &self.reapers
    }
}

impl Fs {
    /// Blocks that [`Fs::orphan_add`] and [`Fs::orphan_remove`] change at most, each: the inode's
    /// own record, a neighbour's record or a block of the orphan file, and the superblock.
    #[must_use]
    pub(crate) fn orphan_credits(&self) -> u32 {
        3
    }

    /// Notes on the device that the inode is an orphan, if that is not noted yet. When the last
    /// hold goes and there is no name, it will be deleted.
    ///
    /// # Errors
    /// When its record cannot be registered; it is no orphan then.
    pub(crate) fn orphan_add(&self, handle: &Handle<'_>, live: &Arc<LiveInode>) -> Result<()> {
        let orphans = self.orphans()?;
        live.delete_through(orphans.reapers.local());
        #[cfg(feature = "baseline")]
        let _held = orphans.one_lock.lock();
        if live.membership() != Membership::None || is_on(Mutant::OrphanForgotten) {
            return Ok(());
        }
        // The list writes the record as it goes along, the file does not: a count of names that
        // went to 0 must reach the device with the note.
        handle.touch_inode(live)?;
        match &orphans.file {
            Some(file) if file.add(handle, live) => orphans.counters.file_added.inc(),
            _ => {
                orphans.list.add(handle, live);
                orphans.counters.list_added.inc();
            }
        }
        Ok(())
    }

    /// Takes the note back, if there is one and the inode has a name. Without a name it stays an
    /// orphan until it is deleted, whatever else was to be finished.
    ///
    /// # Errors
    /// When a neighbour's record cannot be registered; the inode still is an orphan then.
    pub(crate) fn orphan_remove(&self, handle: &Handle<'_>, live: &Arc<LiveInode>) -> Result<()> {
        if live.snapshot().disk.links == 0 {
            return Ok(());
        }
        self.orphan_erase(handle, live)
    }

    /// Takes the note back, if there is one: the inode is being deleted.
    ///
    /// # Errors
    /// As for [`Fs::orphan_remove`].
    pub(crate) fn orphan_erase(&self, handle: &Handle<'_>, live: &Arc<LiveInode>) -> Result<()> {
        let orphans = self.orphans()?;
        #[cfg(feature = "baseline")]
        let _held = orphans.one_lock.lock();
        match (live.membership(), &orphans.file) {
            (Membership::None, _) => Ok(()),
            (Membership::List { .. }, _) => {
                orphans.list.remove(self, handle, live)?;
                orphans.counters.list_removed.inc();
                Ok(())
            }
            (Membership::File { slot }, Some(file)) => {
                file.remove(handle, live, slot);
                orphans.counters.file_removed.inc();
                Ok(())
            }
            // There is no such membership without a file.
            (Membership::File { .. }, None) => Err(Error::Stale),
        }
    }

    /// Makes images of these blocks of the orphan file, checksums included; returns them.
    pub(crate) fn encode_orphan_blocks(
        &self,
        captured: Vec<CapturedSlots>,
        seq: Seq,
    ) -> Result<Vec<BlockRef>> {
        let orphans = self.orphans()?;
        let encode = |slots| Some(orphans.file.as_ref()?.encode(self, slots, seq));
        Ok(captured.into_iter().filter_map(encode).collect())
    }
}
