//! The file system as a whole: what it is put together from, and what guards its changes.
//!
//! | file | owns |
//! |---|---|
//! | `options` | what a caller chooses at mount |
//! | `changes` | changes under way: freezing, making read-only |
//! | `policy` | which features this engine reads, and how it refuses the others |
//! | `groups` | group descriptors as they are now |
//! | `handle` | [`Handle`]: the right to change metadata, with the file system it is of |
//! | `log_items` | the kinds of metadata that the journal carries |
//! | `durable` | making everything durable |
//! | `space` | what is free, and telling the device of it |
//! | `statfs` | what `statfs` tells |
//! | `sums` | what the accounting of space and of file data holds |
//! | `label` | what it is called |
//! | `copies` | copies of the superblock, in other groups |
//! | `mmp` | the claim that keeps other hosts out |
//! | `notice` | what a user should know although the file system opened |
//!
//! # Invariants
//!
//! - An [`Fs`] is shared by any number of threads through `&self`. Nothing here holds a lock while
//!   it waits for the device.
//! - Opening reads the superblock and, when the journal is dirty, the journal: nothing whose size
//!   grows with the image. Group descriptors come in when a group is first touched.
//! - Open for reading, the image is never written: a dirty journal is replayed into memory, in
//!   front of the device.
//! - Open for writing, metadata is written by the journal only, and by what bypasses it: the claim
//!   against other hosts, the record of an error that stopped the journal, and copies of the
//!   superblock.

mod changes;
mod copies;
mod durable;
mod groups;
mod handle;
mod label;
mod log_items;
mod mmp;
mod notice;
mod options;
pub(crate) mod policy;
mod space;
mod statfs;
mod sums;

pub use crate::meta::Shed;
pub use changes::OpenForWriting;
pub(crate) use changes::{Changes, Changing};
pub use handle::Handle;
pub(crate) use mmp::{Bell, Claim, Keeper, Unclaimed};
pub use notice::Notice;
pub(crate) use options::AccessPolicy;
#[cfg(feature = "baseline")]
pub use options::Baseline;
pub use options::{AccessTimes, DataMode, JournalChoice, MountOptions, SuperblockChoice};
pub use policy::{
    READABLE_COMPAT, READABLE_INCOMPAT, READABLE_RO_COMPAT, WRITABLE_INCOMPAT, WRITABLE_RO_COMPAT,
};
pub use statfs::StatFs;
pub use sums::SpaceSums;

use crate::alloc::Alloc;
use crate::data::{Caches, DataStats};
use crate::inode::{LazyTimes, Orphans, RegisteredInodes, Table};
use crate::journal::Journal;
use crate::names::Names;
use crate::quota::{Accounts, Ledger};
use crate::volume::{SuperState, Volume};
use crate::xattr::{SharedBlocks, SharedValues};
use crate::{Error, Result};
use extant_sync::Mutex;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// A mounted file system.
#[derive(Debug)]
pub struct Fs {
    pub(crate) volume: Arc<Volume>,
    pub(crate) inodes: Table,
    pub(crate) names: Names,
    pub(crate) data: Arc<Caches>,
    /// Space and inodes, once somebody asked.
    pub(crate) space: OnceLock<StatFs>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) replayed: bool,
    pub(crate) access: AccessPolicy,
    /// What only a file system open for writing has.
    pub(crate) write_state: Option<WriteState>,
}

/// What a file system open for writing has besides.
#[derive(Debug)]
pub(crate) struct WriteState {
    pub(crate) journal: Arc<Journal>,
    pub(crate) alloc: Arc<Alloc>,
    /// Inodes that the running transaction has changed.
    pub(crate) registered_inodes: RegisteredInodes,
    pub(crate) orphans: Orphans,
    pub(crate) shared_attributes: SharedBlocks,
    pub(crate) shared_values: SharedValues,
    pub(crate) super_state: Arc<SuperState>,
    /// What owners use, where the file system counts that.
    pub(crate) accounts: Option<Accounts>,
    pub(crate) changes: Changes,
    /// Access times that only memory has.
    pub(crate) lazy_times: LazyTimes,
    /// The claim that keeps other hosts out, where the file system has a place for it.
    pub(crate) mmp: OnceLock<Keeper>,
    /// Held by whatever moves between directories, so that the shape of the tree stands still.
    pub(crate) rename_topology: Mutex<()>,
    /// Copies of the superblock are known to have the feature `verity`.
    pub(crate) is_verity_in_copies: AtomicBool,
}

impl Deref for Fs {
    type Target = Volume;

    #[inline]
    fn deref(&self) -> &Volume {
        &self.volume
    }
}

impl Fs {
    /// The open image, as it is without what may change it.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// What the data of files in memory shares.
    pub(crate) fn data(&self) -> &Arc<Caches> {
        &self.data
    }

    /// What the data path did since the file system was opened.
    #[must_use]
    pub fn data_stats(&self) -> DataStats {
        self.data.stats()
    }

    /// Whether the journal was dirty and has been replayed into memory.
    #[must_use]
    pub fn was_replayed(&self) -> bool {
        self.replayed
    }

    /// What a user should know about this file system although it opened, the most important
    /// first. Empty for one that was closed cleanly and remembers no errors.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// What only a file system open for writing has.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    #[inline]
    pub(crate) fn write_state(&self) -> Result<&WriteState> {
        self.write_state.as_ref().ok_or(Error::ReadOnly)
    }

    /// The transactions.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    #[inline]
    pub(crate) fn journal(&self) -> Result<&Journal> {
        match &self.write_state {
            Some(write_state) => Ok(&write_state.journal),
            None => Err(Error::ReadOnly),
        }
    }

    /// The superblock as it changes.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn super_state(&self) -> Result<&SuperState> {
        self.write_state
            .as_ref()
            .map(|w| &*w.super_state)
            .ok_or(Error::ReadOnly)
    }

    /// The claim that keeps other hosts out, if there is one.
    pub(crate) fn mmp(&self) -> Option<&Keeper> {
        self.write_state.as_ref()?.mmp.get()
    }

    /// Refuses a file system open for reading only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn check_writable(&self) -> Result<()> {
        match &self.write_state {
            Some(write_state) if !write_state.changes.is_read_only() => Ok(()),
            _ => Err(Error::ReadOnly),
        }
    }

    /// How access times are kept.
    pub(crate) fn access_policy(&self) -> AccessPolicy {
        self.access
    }

    /// The lock of whatever moves between directories.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn rename_topology(&self) -> Result<&Mutex<()>> {
        self.write_state
            .as_ref()
            .map(|w| &w.rename_topology)
            .ok_or(Error::ReadOnly)
    }

    /// The allocator of blocks and inodes.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn alloc(&self) -> Result<&Alloc> {
        self.write_state
            .as_ref()
            .map(|w| &*w.alloc)
            .ok_or(Error::ReadOnly)
    }

    /// The allocator; `None` if the file system is open for reading only.
    #[inline]
    pub(crate) fn alloc_if_any(&self) -> Option<&Alloc> {
        self.write_state
            .as_ref()
            .map(|write_state| &*write_state.alloc)
    }

    /// The blocks of attributes that inodes share.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is not open for writing.
    pub(crate) fn shared_attributes(&self) -> Result<&SharedBlocks> {
        self.write_state
            .as_ref()
            .map(|w| &w.shared_attributes)
            .ok_or(Error::ReadOnly)
    }

    /// The attribute values in inodes of their own that attributes share.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is not open for writing.
    pub(crate) fn shared_values(&self) -> Result<&SharedValues> {
        self.write_state
            .as_ref()
            .map(|w| &w.shared_values)
            .ok_or(Error::ReadOnly)
    }

    /// What holds owners to limits, where any are.
    #[inline]
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        if self.counts_usage() {
            self.accounts()?.ledger()
        } else {
            None
        }
    }

    /// What owners use, where that is counted and the file system is open for writing.
    pub(crate) fn accounts(&self) -> Option<&Accounts> {
        self.write_state.as_ref()?.accounts.as_ref()
    }

    /// Access times that only memory has.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn lazy_times(&self) -> Result<&LazyTimes> {
        self.write_state
            .as_ref()
            .map(|w| &w.lazy_times)
            .ok_or(Error::ReadOnly)
    }

    /// The orphans.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn orphans(&self) -> Result<&Orphans> {
        self.write_state
            .as_ref()
            .map(|w| &w.orphans)
            .ok_or(Error::ReadOnly)
    }

    pub(crate) fn inode_table(&self) -> &Table {
        &self.inodes
    }
}
