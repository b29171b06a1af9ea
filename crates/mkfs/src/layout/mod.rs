//! The plan of an image: which block holds what.
//!
//! [`plan`] turns options into a [`Layout`]: the superblock, the geometry, where every bitmap and
//! inode table lies, and which blocks are left. A [`Draft`] then fills it: reserved files first
//! (journal, resize inode, orphan file), directories and data as the caller places them. Nothing is
//! written before everything has its place.
//!
//! | item | owns |
//! |---|---|
//! | [`Layout`] | fixed metadata |
//! | [`RunSet`] | which blocks or inodes are taken |
//! | [`Draft`] | blocks, inodes and their records on top of a layout |
//! | [`FileMap`] | an extent tree or indirect map over placed blocks |
//!
//! # Invariants
//!
//! - What is taken stays taken, and nothing is taken twice.
//! - Under `bigalloc`, whole clusters are taken.
//! - The empty file system is the one `mke2fs -t ext4` makes of the same options.

mod draft;
mod error;
mod features;
mod map;
mod numbers;
mod place;
mod space;
mod system;

pub use draft::Draft;
pub use error::{PlanError, PlanResult};
pub use map::FileMap;
pub use space::RunSet;

use crate::defaults::FormatOptions;
use extant_format::checksum::Crc32c;
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::inode::InodeContext;
use extant_format::superblock::Superblock;
use extant_format::{Group, Ino, Pblk};
use numbers::Numbers;
use std::ops::Range;

/// Where a group's bitmaps and inode table lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPlace {
    /// Block of the block bitmap.
    pub block_bitmap: Pblk,
    /// Block of the inode bitmap.
    pub inode_bitmap: Pblk,
    /// First block of the inode table.
    pub inode_table: Pblk,
}

/// The fixed part of a file system to be made.
#[derive(Clone, Debug)]
pub struct Layout {
    options: FormatOptions,
    superblock: Superblock,
    geometry: Geometry,
    places: Vec<GroupPlace>,
    /// Blocks taken by fixed metadata, in whole clusters.
    space: RunSet,
    /// Blocks of the journal with its fast-commit area, and of that area.
    journal: Option<(u32, u32)>,
    tables_are_zeroed: bool,
}

/// Plans the fixed part of a file system.
///
/// # Errors
/// What was asked for cannot be made: see [`PlanError`].
pub fn plan(options: &FormatOptions) -> PlanResult<Layout> {
    let numbers = Numbers::work_out(options)?;
    let superblock = numbers.superblock()?;
    let geometry = Geometry::new(&superblock);
    let mut space = RunSet::new();
    place::take_headers(&geometry, &mut space)?;
    let stride = u64::from(options.stride.unwrap_or(0));
    let places = place::place_tables(&geometry, stride, &mut space)?;
    if geometry.cluster_bits() > 0 {
        space = space.widened(geometry.first_data_block().get(), geometry.cluster_bits());
    }
    Ok(Layout {
        options: options.clone(),
        superblock,
        geometry,
        places,
        space,
        journal: numbers.journal,
        tables_are_zeroed: numbers.tables_are_zeroed(),
    })
}

impl Layout {
    /// What was asked for.
    #[must_use]
    pub const fn options(&self) -> &FormatOptions {
        &self.options
    }

    /// The superblock, without free counts and without what reserved files add to it.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The geometry.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Where each group's bitmaps and table lie, by group.
    #[must_use]
    pub fn places(&self) -> &[GroupPlace] {
        &self.places
    }

    /// Blocks taken by fixed metadata.
    #[must_use]
    pub const fn space(&self) -> &RunSet {
        &self.space
    }

    /// Blocks the journal will take, its own index blocks not counted.
    #[must_use]
    pub fn journal_blocks(&self) -> u32 {
        self.journal.map_or(0, |(blocks, _)| blocks)
    }

    /// The runs of blocks a group has left after fixed metadata.
    ///
    /// # Errors
    /// There is no such group.
    pub fn free_runs(&self, group: Group) -> PlanResult<Vec<Range<u64>>> {
        Ok(self
            .space
            .gaps_in(group_range(&self.geometry, group)?)
            .collect())
    }

    /// Whether files are mapped by extents.
    #[must_use]
    pub fn has_extents(&self) -> bool {
        self.superblock.has_incompat(Incompat::EXTENTS)
    }

    /// The seed of metadata checksums, if there are any.
    #[must_use]
    pub fn checksum_seed(&self) -> Option<Crc32c> {
        self.superblock
            .has_metadata_csum()
            .then(|| Crc32c::seeded(self.superblock.checksum_seed()))
    }

    /// What encoding an inode needs to know.
    #[must_use]
    pub fn inode_context(&self, ino: Ino) -> InodeContext {
        InodeContext {
            inode_size: self.geometry.inode_size() as u16,
            seed: self.checksum_seed(),
            ino,
            large_dir: self.superblock.has_incompat(Incompat::LARGEDIR),
            huge_file: self.superblock.has_ro_compat(RoCompat::HUGE_FILE),
        }
    }

    /// Byte position of an inode's slot.
    ///
    /// # Errors
    /// There is no such inode.
    pub fn inode_position(&self, ino: Ino) -> PlanResult<u64> {
        let at = self.geometry.locate_inode(ino)?;
        let table = self.places[at.group.get() as usize].inode_table;
        Ok(self.geometry.inode_position(ino, table)?)
    }

    /// Whether groups may say that their bitmaps were never written.
    pub(crate) fn has_uninit_groups(&self) -> bool {
        self.superblock.has_metadata_csum() || self.superblock.has_ro_compat(RoCompat::GDT_CSUM)
    }

    /// Whether inode tables are zero and say so.
    pub(crate) const fn tables_are_zeroed(&self) -> bool {
        self.tables_are_zeroed
    }

    fn has_orphan_file(&self) -> bool {
        self.superblock.has_compat(Compat::ORPHAN_FILE)
    }
}

/// The blocks of a group.
fn group_range(geometry: &Geometry, group: Group) -> PlanResult<Range<u64>> {
    let first = geometry.group_first_block(group)?.get();
    Ok(first..first + u64::from(geometry.blocks_in_group(group)?))
}
