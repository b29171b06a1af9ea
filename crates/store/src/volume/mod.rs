//! What is true of an open image, whether or not it may be changed.
//!
//! | file | owns |
//! |---|---|
//! | `params` | numbers of the superblock and the device that every operation asks for |
//! | `cluster` | clusters, the unit of free space |
//! | `reserve` | how many free blocks are held back |
//! | `groups` | group descriptors as the device has them |
//! | `super_state` | the superblock while it changes: counts, orphan list, errors |
//! | `label` | a label as the superblock stores it |
//! | `metadata` | checked metadata blocks, through the cache |
//!
//! # Invariants
//!
//! - A [`Volume`] does not change after opening but for the content of its cache. A replay makes a
//!   new one. What changes of the superblock is in a [`SuperState`], which only a file system open
//!   for writing has.
//! - Opening reads nothing whose size grows with the image: descriptors come in when a group is
//!   first touched.

mod cluster;
mod groups;
mod label;
mod metadata;
mod params;
mod reserve;
mod super_state;

pub use cluster::{Cluster, ClusterSize};
pub use label::Label;
pub use super_state::{SuperCounts, SuperState, keep_errors, mark_open, place};

use crate::meta::{Cache, Overlay};
use extant_blockdev::SharedDevice;
use extant_format::checksum::Crc32c;
use extant_format::features::{Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::inode::InodeContext;
use extant_format::inode::rules::InodeRules;
use extant_format::superblock::{ErrorsBehaviour, Superblock};
use extant_format::xattr::XattrContext;
use extant_format::{BlockSize, Ino, Pblk};
use groups::Groups;
use params::Params;
use std::ops::Range;
use std::sync::Arc;

/// Holds what is true of an open image: where it is, how it is laid out, and its metadata blocks.
#[derive(Debug)]
pub struct Volume {
    /// The device; behind it lies the replayed journal, if there was one to replay.
    device: SharedDevice,
    superblock: Superblock,
    geometry: Geometry,
    params: Params,
    inode_rules: InodeRules,
    groups: Groups,
    cache: Cache,
    /// What follows when a structure is found corrupt in the course of a change.
    errors: ErrorsBehaviour,
}

/// What a caller chooses of a [`Volume`].
#[derive(Debug)]
pub struct VolumeOptions {
    /// First block of the descriptors to believe in place of the primary ones.
    pub backup_descriptors: Option<Pblk>,
    /// Bytes of memory for metadata blocks.
    pub cache_bytes: usize,
    /// What has newer images of blocks than the device.
    pub overlay: Option<Arc<dyn Overlay>>,
    /// What follows when a structure is found corrupt; `None` for what the superblock says.
    pub errors: Option<ErrorsBehaviour>,
}

impl Volume {
    /// Describes the image on `device`, whose superblock has been checked. Reads nothing.
    pub fn new(device: SharedDevice, superblock: Superblock, options: VolumeOptions) -> Self {
        let geometry = Geometry::new(&superblock);
        let cache = Cache::new(
            Arc::clone(&device),
            geometry.block_size(),
            geometry.blocks_count(),
            options.cache_bytes,
        );
        Self {
            params: Params::new(&superblock, &geometry, &device),
            inode_rules: InodeRules::new(&superblock, &geometry),
            groups: Groups::new(&superblock, options.backup_descriptors),
            cache: match options.overlay {
                Some(overlay) => cache.with_overlay(overlay),
                None => cache,
            },
            errors: options
                .errors
                .unwrap_or_else(|| superblock.errors_behaviour()),
            device,
            superblock,
            geometry,
        }
    }

    /// What follows when a structure is found corrupt in the course of a change.
    pub(crate) fn errors(&self) -> ErrorsBehaviour {
        self.errors
    }

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

    /// The block size.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.params.block_size
    }

    /// Bytes of a sector of the device.
    pub fn sector(&self) -> u32 {
        self.params.sector
    }

    /// The seed of all metadata checksums, or `None` when the file system has none.
    #[must_use]
    pub fn checksum_seed(&self) -> Option<Crc32c> {
        self.params.seed
    }

    /// Physical blocks that files and their metadata may use.
    #[must_use]
    pub fn physical(&self) -> Range<u64> {
        self.params.first_block..self.params.end_block
    }

    /// How the record of inode `ino` is read.
    #[must_use]
    pub fn inode_context(&self, ino: Ino) -> InodeContext {
        InodeContext {
            inode_size: self.params.inode_size,
            seed: self.params.seed,
            ino,
            large_dir: self.params.large_dir,
            huge_file: self.params.huge_file,
        }
    }

    /// What inodes must not say here.
    #[inline]
    pub fn inode_rules(&self) -> &InodeRules {
        &self.inode_rules
    }

    /// Whether it is counted what owners use.
    #[inline]
    pub fn counts_usage(&self) -> bool {
        self.params.counts_usage
    }

    /// How many blocks a cluster has.
    #[inline]
    pub fn cluster_size(&self) -> ClusterSize {
        ClusterSize::new(self.geometry().cluster_bits())
    }

    /// Where the first block of an inode should lie: in the inode's own group.
    pub fn near_inode(&self, ino: Ino) -> Pblk {
        let geometry = self.geometry();
        geometry
            .locate_inode(ino)
            .and_then(|at| geometry.group_first_block(at.group))
            .unwrap_or_default()
    }

    /// Whether space is allocated in clusters of several blocks.
    #[must_use]
    pub fn has_clusters(&self) -> bool {
        self.superblock().has_ro_compat(RoCompat::BIGALLOC)
    }

    /// How extended attributes are read.
    #[must_use]
    pub fn xattr_context(&self) -> XattrContext {
        XattrContext {
            ea_inode: self.superblock.has_incompat(Incompat::EA_INODE),
            max_inode: Ino::new(self.geometry.inodes_count()),
        }
    }
}
