//! What a formatter's draft leaves for files.

use super::BuildError;
use crate::defaults::FormatOptions;
use crate::layout::{Draft, PlanError, plan};
use crate::place::{DirRules, MapKind, Shape};
use extant_format::Ino;
use extant_format::checksum::Crc32c;
use extant_format::dir::hash::{HashVersion, NameHasher};
use extant_format::features::{Compat, Incompat, RoCompat};
use std::ops::Range;

/// A draft with everything but files: the numbers of root and `lost+found` are taken, the reserved
/// files are in place.
pub(super) fn draft_for_files(format: &FormatOptions) -> Result<Draft, BuildError> {
    let mut draft = Draft::new(plan(format)?);
    draft.take_inode(Ino::ROOT, true)?;
    draft.take_inode(draft.superblock().first_ino(), true)?;
    draft.add_reserved_files()?;
    Ok(draft)
}

/// The shape that files are placed in.
pub(super) fn of(draft: &Draft) -> Result<Shape, BuildError> {
    let superblock = draft.superblock();
    let geometry = draft.layout().geometry();
    let taken = draft
        .inodes()
        .runs_in(0..u64::from(u32::MAX))
        .last()
        .map_or(0, |run| run.end);
    Ok(Shape {
        block_size: geometry.block_size(),
        cluster_bits: geometry.cluster_bits(),
        first_data_block: geometry.first_data_block().get(),
        inode_size: geometry.inode_size() as u16,
        extra_isize: if geometry.inode_size() > 128 { 32 } else { 0 },
        inodes_count: geometry.inodes_count(),
        lost_found_ino: superblock.first_ino(),
        first_ino: taken as u32,
        map_kind: if draft.maps_by_extents() {
            MapKind::Extents
        } else {
            MapKind::Indirect
        },
        dirs: DirRules {
            layout: draft.dir_layout(),
            hasher: hasher(draft)?,
            large_dir: superblock.has_incompat(Incompat::LARGEDIR),
        },
        dir_nlink: superblock.has_ro_compat(RoCompat::DIR_NLINK),
        ea_inode: superblock.has_incompat(Incompat::EA_INODE),
        seed: draft.layout().checksum_seed(),
        value_seed: Crc32c::seeded(superblock.checksum_seed()),
        lost_found_blocks: draft.lost_and_found_blocks() as u32,
        free: free_clusters(draft)?,
    })
}

fn hasher(draft: &Draft) -> Result<Option<NameHasher>, BuildError> {
    let superblock = draft.superblock();
    if !superblock.has_compat(Compat::DIR_INDEX) {
        return Ok(None);
    }
    let version = HashVersion::from_raw(superblock.raw().def_hash_version)
        .map_err(PlanError::from)?
        .with_signedness(superblock.hash_is_unsigned());
    let hasher = NameHasher::new(version, superblock.hash_seed()).map_err(PlanError::from)?;
    Ok(Some(hasher))
}

/// Free clusters of all groups, neighbours joined.
fn free_clusters(draft: &Draft) -> Result<Vec<Range<u64>>, BuildError> {
    let geometry = draft.layout().geometry();
    let first = geometry.first_data_block().get();
    let bits = geometry.cluster_bits();
    let all = first..geometry.blocks_count();
    // Space is taken in whole clusters, so gaps begin and end with one.
    Ok(draft
        .space()
        .gaps_in(all)
        .map(|run| (run.start - first) >> bits..(run.end - first) >> bits)
        .filter(|run| !run.is_empty())
        .collect())
}
