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
//! | [`Usage`] | what owners use, for quota files |
//!
//! # Invariants
//!
//! - What is taken stays taken, and nothing is taken twice.
//! - Under `bigalloc`, whole clusters are taken.
//! - The empty file system is the one `mke2fs -t ext4` makes of the same options.

mod draft;
mod error;
mod features;
mod numbers;
mod place;
mod quota;
mod space;
mod system;

pub use draft::Draft;
pub(crate) use draft::SMALL_FILE_MAX;
pub use error::{PlanError, PlanResult};
pub use quota::Usage;
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
    /// Returns what was asked for.
    #[must_use]
    pub const fn options(&self) -> &FormatOptions {
        &self.options
    }

    /// Returns the superblock, without free counts and without what reserved files add to it.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the geometry.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns where each group's bitmaps and table lie, by group.
    #[must_use]
    pub fn places(&self) -> &[GroupPlace] {
        &self.places
    }

    /// Returns the blocks taken by fixed metadata.
    #[must_use]
    pub const fn space(&self) -> &RunSet {
        &self.space
    }

    /// Returns the blocks the journal will take, its own index blocks not counted.
    #[must_use]
    pub fn journal_blocks(&self) -> u32 {
        self.journal.map_or(0, |(blocks, _)| blocks)
    }

    /// Returns the runs of blocks a group has left after fixed metadata.
    ///
    /// # Errors
    /// There is no such group.
    pub fn free_runs(&self, group: Group) -> PlanResult<Vec<Range<u64>>> {
        Ok(self
            .space
            .gaps_in(group_range(&self.geometry, group)?)
            .collect())
    }

    /// Returns whether files are mapped by extents.
    #[must_use]
    pub fn has_extents(&self) -> bool {
        self.superblock.has_incompat(Incompat::EXTENTS)
    }

    /// Returns the seed of metadata checksums, if there are any.
    #[must_use]
    pub fn checksum_seed(&self) -> Option<Crc32c> {
        self.superblock
            .has_metadata_csum()
            .then(|| Crc32c::seeded(self.superblock.checksum_seed()))
    }

    /// Returns what encoding an inode needs to know.
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

    /// Returns the byte position of an inode's slot.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::{InodeDensity, JournalSize, Profile};
    use extant_format::BlockSize;
    use proptest::prelude::*;

    /// Features that change where things lie.
    const FEATURES: [&str; 10] = [
        "^flex_bg",
        "^resize_inode,meta_bg",
        "sparse_super2",
        "^64bit",
        "bigalloc",
        "^metadata_csum",
        "orphan_file",
        "mmp",
        "^extent",
        "^has_journal",
    ];

    prop_compose! {
        fn any_options()(
            size in prop_oneof![0_u64..1 << 24, 0_u64..1 << 36, any::<u64>()],
            block in proptest::option::of(10_u32..17),
            inode_log in 5_u32..14,
            density in prop_oneof![
                Just(InodeDensity::BySize),
                any::<u32>().prop_map(InodeDensity::Ratio),
                (0_u32..5_000_000).prop_map(InodeDensity::Count),
            ],
            profile in 0_usize..5,
            features in proptest::collection::vec(0_usize..FEATURES.len(), 0..4),
            journal in proptest::option::of(0_u64..1 << 30),
            flex in proptest::option::of(0_u32..10),
            numbers in (proptest::option::of(any::<u32>()), any::<u16>(), any::<bool>()),
        ) -> FormatOptions {
            let mut options = FormatOptions::reproducible(size, 0, b"");
            options.block_size = block.and_then(BlockSize::from_log2);
            options.inode_size = 1 << inode_log;
            options.inodes = density;
            options.profile = Profile::ALL[profile];
            let text: Vec<_> = features.iter().map(|at| FEATURES[*at]).collect();
            options.features = text.join(",").parse().unwrap();
            if let Some(bytes) = journal {
                options.journal = JournalSize::Bytes(bytes);
            }
            options.groups_per_flex = flex.map(|log| 1 << log);
            options.blocks_per_group = numbers.0.map(|n| n & !0x7ff).filter(|_| numbers.2);
            options.stride = Some(numbers.1);
            options
        }
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_refused_or_planned_soundly(options in any_options()) {
            // Sizes beyond tests' patience are refused or fine, but take their time.
            prop_assume!(options.size < 1 << 40 || options.size > 1 << 62);
            let Ok(layout) = plan(&options) else { return Ok(()); };
            let geometry = layout.geometry().clone();
            let mut seen = RunSet::new();
            for (group, place) in geometry.groups().zip(layout.places()) {
                let header = geometry.group_header(group).unwrap();
                let table = place.inode_table.get();
                for (run, what) in [
                    (header.end().get() - header.blocks()..header.end().get(), "header"),
                    (place.block_bitmap.get()..place.block_bitmap.get() + 1, "block bitmap"),
                    (place.inode_bitmap.get()..place.inode_bitmap.get() + 1, "inode bitmap"),
                    (table..table + u64::from(geometry.inode_table_blocks()), "table"),
                ] {
                    prop_assert!(!seen.touches(run.clone()), "{what} of group {group} overlaps");
                    prop_assert!(run.is_empty() || geometry.contains(Pblk::new(run.start), run.end - run.start));
                    seen.insert(run);
                }
            }
            let mut draft = Draft::new(layout);
            let filled = draft.add_empty_directories().and_then(|_| draft.add_reserved_files(None));
            if filled.is_ok() {
                let done = crate::metadata::finish(&draft).unwrap();
                let free = done.superblock.free_blocks_count();
                prop_assert_eq!(free, draft.free_blocks());
                for (group, desc) in geometry.groups().zip(&done.descs) {
                    prop_assert_eq!(desc.validate(group, &geometry), Ok(()));
                    prop_assert_eq!(desc.validate_counts(group, &geometry), Ok(()));
                }
            }
        }
    }
}
