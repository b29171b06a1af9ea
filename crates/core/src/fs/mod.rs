//! Mount, state and statfs.
//!
//! | file | owns |
//! |---|---|
//! | `options` | what a caller chooses at mount |
//! | `open` | the way from a device to a usable [`Fs`] |
//! | `changes` | who is changing something: freezing, making read-only |
//! | `policy` | which features this engine reads, and how it refuses the others |
//! | `groups` | group descriptors |
//! | `writable` | the way to an [`Fs`] that may be changed |
//! | `super_state` | the superblock while it changes: counts, orphan list, errors |
//! | `label` | what it is called |
//! | `torn` | a superblock of which a crash left one half, restored from the log |
//! | `journal` | where the journal lies, and its replay into memory |
//! | `fast_commit` | what the journal says besides whole blocks |
//! | `metadata` | checked metadata blocks, through the cache |
//! | `mmp` | the claim that keeps other hosts out |
//! | `notice` | what a user should know although the file system opened |
//! | `statfs` | space and inode counts |
//!
//! # Invariants
//!
//! - An [`Fs`] is shared by any number of threads through `&self`. Nothing here holds a lock while
//!   it waits for the device.
//! - Opening reads the superblock and, when the journal is dirty, the journal: nothing whose size
//!   grows with the image. Group descriptors come in when a group is first touched.
//! - Open for reading, the image is never written: a dirty journal is replayed into memory, in front
//!   of the device.
//! - Open for writing, metadata is written by the journal only, and by what bypasses it: the claim
//!   against other hosts, the record of an error that stopped the journal, and the label in backups of the superblock.

mod changes;
mod fast_commit;
mod groups;
mod journal;
mod label;
mod memory;
mod metadata;
mod mmp;
mod notice;
mod open;
mod options;
mod policy;
mod statfs;
mod super_state;
mod torn;
mod writable;

use changes::Changes;
pub(crate) use changes::Changing;
pub use changes::{Frozen, OpenForWriting};
use groups::Groups;
pub use crate::meta::Shed;
pub use notice::Notice;
pub(crate) use options::AccessPolicy;
#[cfg(feature = "baseline")]
pub use options::Baseline;
pub use options::{AccessTimes, DataMode, JournalChoice, MountOptions, SuperblockChoice};
pub use policy::{
    READABLE_COMPAT, READABLE_INCOMPAT, READABLE_RO_COMPAT, WRITABLE_INCOMPAT, WRITABLE_RO_COMPAT,
};
pub use statfs::StatFs;
pub(crate) use super_state::SuperState;

use crate::alloc::Alloc;
use crate::data::{Caches, DataStats};
use crate::inode::{LazyTimes, Orphans, Table};
use crate::journal::Journal;
use crate::meta::Cache;
use crate::names::Names;
use crate::quota::{Accounts, Ledger};
use crate::xattr::{SharedBlocks, SharedValues};
use crate::{Error, Result};
use extant_blockdev::SharedDevice;
use extant_format::checksum::Crc32c;
use extant_format::features::{Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::inode::InodeContext;
use extant_format::inode::rules::InodeRules;
use extant_format::superblock::{ErrorsBehaviour, Superblock};
use extant_format::{BlockSize, Ino};
use extant_sync::Mutex;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A mounted file system.
#[derive(Debug)]
pub struct Fs {
    /// The device; behind it lies the replayed journal, if there was one to replay.
    device: SharedDevice,
    superblock: Superblock,
    geometry: Geometry,
    numbers: Numbers,
    inode_rules: InodeRules,
    groups: Groups,
    inodes: Table,
    pub(crate) names: Names,
    cache: Cache,
    data: Arc<Caches>,
    /// Space and inodes, once somebody asked.
    space: OnceLock<StatFs>,
    notices: Vec<Notice>,
    replayed: bool,
    access: AccessPolicy,
    /// What follows when a structure is found corrupt in the course of a change.
    pub(crate) errors: ErrorsBehaviour,
    /// What only a file system open for writing has.
    writer: Option<Writer>,
}

/// What a file system open for writing has besides.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) journal: Journal,
    pub(crate) alloc: Alloc,
    pub(crate) orphans: Orphans,
    pub(crate) shared_attributes: SharedBlocks,
    shared_values: SharedValues,
    pub(crate) super_state: SuperState,
    /// What owners use, where the file system counts that.
    accounts: Option<Accounts>,
    changes: Changes,
    /// Access times that only memory has.
    lazy_times: LazyTimes,
    /// The claim that keeps other hosts out, where the file system has a place for it.
    pub(crate) mmp: OnceLock<mmp::Keeper>,
    /// Held by whatever moves between directories, so that the shape of the tree stands still.
    pub(crate) rename_topology: Mutex<()>,
}

/// Numbers of the superblock and of the device that every operation asks for, worked out once.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    block_size: BlockSize,
    inode_size: u16,
    seed: Option<Crc32c>,
    large_dir: bool,
    huge_file: bool,
    counts_usage: bool,
    first_block: u64,
    end_block: u64,
    sector: u32,
}

impl Numbers {
    fn new(superblock: &Superblock, geometry: &Geometry, device: &SharedDevice) -> Self {
        Self {
            sector: device.logical_sector(),
            block_size: superblock.block_size(),
            // At most the block size, and checked to be at most 64 KiB less one by the format.
            inode_size: u16::try_from(superblock.inode_size()).unwrap_or(u16::MAX),
            seed: superblock
                .has_metadata_csum()
                .then(|| Crc32c::seeded(superblock.checksum_seed())),
            large_dir: superblock.has_incompat(Incompat::LARGEDIR),
            huge_file: superblock.has_ro_compat(RoCompat::HUGE_FILE),
            counts_usage: superblock.has_ro_compat(RoCompat::QUOTA),
            // The superblock's own block belongs to nobody else.
            first_block: geometry.first_data_block().get().saturating_add(1),
            end_block: geometry.blocks_count(),
        }
    }
}

impl Fs {
    /// The device the file system is read from: with the replayed journal in front of it, if
    /// there was one to replay.
    #[must_use]
    pub fn device(&self) -> &SharedDevice {
        &self.device
    }

    /// The superblock, as it is after replay.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where everything lies.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The metadata block cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
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

    /// The block size.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.numbers.block_size
    }

    /// Bytes of a sector of the device.
    pub(crate) fn sector(&self) -> u32 {
        self.numbers.sector
    }

    /// The seed of all metadata checksums, or `None` when the file system has none.
    #[must_use]
    pub fn checksum_seed(&self) -> Option<Crc32c> {
        self.numbers.seed
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

    /// Physical blocks that files and their metadata may use.
    #[must_use]
    pub fn physical(&self) -> Range<u64> {
        self.numbers.first_block..self.numbers.end_block
    }

    /// How the record of inode `ino` is read.
    #[must_use]
    pub fn inode_context(&self, ino: Ino) -> InodeContext {
        InodeContext {
            inode_size: self.numbers.inode_size,
            seed: self.numbers.seed,
            ino,
            large_dir: self.numbers.large_dir,
            huge_file: self.numbers.huge_file,
        }
    }

    /// What inodes must not say here.
    #[inline]
    pub(crate) fn inode_rules(&self) -> &InodeRules {
        &self.inode_rules
    }

    /// The transactions.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    #[inline]
    pub(crate) fn journal(&self) -> Result<&Journal> {
        match &self.writer {
            Some(writer) => Ok(&writer.journal),
            None => Err(Error::ReadOnly),
        }
    }

    /// The superblock as it changes.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn super_state(&self) -> Result<&SuperState> {
        self.writer
            .as_ref()
            .map(|w| &w.super_state)
            .ok_or(Error::ReadOnly)
    }

    /// The claim that keeps other hosts out, if there is one.
    pub(crate) fn mmp(&self) -> Option<&mmp::Keeper> {
        self.writer.as_ref()?.mmp.get()
    }

    /// Refuses a file system open for reading only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn check_writable(&self) -> Result<()> {
        match &self.writer {
            Some(writer) if !writer.changes.is_read_only() => Ok(()),
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
        self.writer
            .as_ref()
            .map(|w| &w.rename_topology)
            .ok_or(Error::ReadOnly)
    }

    /// The allocator of blocks and inodes.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn alloc(&self) -> Result<&Alloc> {
        self.writer
            .as_ref()
            .map(|w| &w.alloc)
            .ok_or(Error::ReadOnly)
    }

    /// The same; `None` if the file system is open for reading only.
    #[inline]
    pub(crate) fn alloc_if_any(&self) -> Option<&Alloc> {
        self.writer.as_ref().map(|writer| &writer.alloc)
    }

    /// The blocks of attributes that inodes share.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is not open for writing.
    pub(crate) fn shared_attributes(&self) -> Result<&SharedBlocks> {
        self.writer
            .as_ref()
            .map(|w| &w.shared_attributes)
            .ok_or(Error::ReadOnly)
    }

    /// The attribute values in inodes of their own that attributes share.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is not open for writing.
    pub(crate) fn shared_values(&self) -> Result<&SharedValues> {
        self.writer
            .as_ref()
            .map(|w| &w.shared_values)
            .ok_or(Error::ReadOnly)
    }

    /// Whether it is counted what owners use.
    #[inline]
    pub(crate) fn counts_usage(&self) -> bool {
        self.numbers.counts_usage
    }

    /// What holds owners to limits, where any are.
    #[inline]
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        match self.counts_usage() {
            true => self.accounts()?.ledger(),
            false => None,
        }
    }

    /// What owners use, where that is counted and the file system is open for writing.
    pub(crate) fn accounts(&self) -> Option<&Accounts> {
        self.writer.as_ref()?.accounts.as_ref()
    }

    /// Access times that only memory has.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn lazy_times(&self) -> Result<&LazyTimes> {
        self.writer
            .as_ref()
            .map(|w| &w.lazy_times)
            .ok_or(Error::ReadOnly)
    }

    /// The orphans.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the file system is open for reading only.
    pub(crate) fn orphans(&self) -> Result<&Orphans> {
        self.writer
            .as_ref()
            .map(|w| &w.orphans)
            .ok_or(Error::ReadOnly)
    }

    pub(crate) fn inode_table(&self) -> &Table {
        &self.inodes
    }
}
