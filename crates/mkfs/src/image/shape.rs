//! What a formatter's draft leaves for files.

use super::BuildError;
use crate::defaults::FormatOptions;
use crate::layout::{Draft, PlanError, plan};
use crate::place::{DirRules, MapKind, Placement, Shape};
use crate::source::Tree;
use crate::verity::{FsVerity, Seals};
use extant_format::checksum::Crc32c;
use extant_format::dir::hash::NameHasher;
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::indirect;
use extant_format::{BlockSize, Ino};
use std::ops::Range;

/// A draft with everything but files: the numbers of root and `lost+found` are taken, the reserved
/// files are in place, those of quotas with room for the owners of `tree`.
pub(super) fn draft_for_files(format: &FormatOptions, tree: &Tree) -> Result<Draft, BuildError> {
    let mut draft = Draft::new(plan(format)?);
    draft.take_inode(Ino::ROOT, true)?;
    draft.take_inode(draft.superblock().first_ino(), true)?;
    let owners = draft.keeps_quotas().then(|| Placement::owners(tree));
    draft.add_reserved_files(owners.as_ref())?;
    Ok(draft)
}

/// The shape that files are placed in.
pub(super) fn of(draft: &Draft, sealed: Option<&FsVerity>) -> Result<Shape, BuildError> {
    let superblock = draft.superblock();
    let geometry = draft.layout().geometry();
    let block_size = geometry.block_size();
    let seals = |asked| Seals::new(asked, block_size, draft.maps_by_extents());
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
        // Linux counts on with a directory that has no index.
        dir_nlink: superblock.has_ro_compat(RoCompat::DIR_NLINK)
            && superblock.has_compat(Compat::DIR_INDEX),
        file_size_max: file_size_max(
            geometry.block_size(),
            draft.maps_by_extents(),
            superblock.has_ro_compat(RoCompat::HUGE_FILE),
        ),
        ea_inode: superblock.has_incompat(Incompat::EA_INODE),
        seed: draft.layout().checksum_seed(),
        value_seed: Crc32c::seeded(superblock.checksum_seed()),
        lost_found_blocks: draft.lost_and_found_blocks() as u32,
        free: free_clusters(draft)?,
        seals: sealed.map(seals).transpose()?,
    })
}

/// Bytes of the largest file Linux opens: as far as its map reaches, and so that its sectors, those
/// of its map included, can be counted.
fn file_size_max(block_size: BlockSize, extents: bool, huge_file: bool) -> u64 {
    let sectors: u64 = if huge_file {
        (1 << 48) - 1
    } else {
        (1 << 32) - 1
    };
    let countable = sectors >> (block_size.log2() - 9);
    let blocks = if extents {
        let reach = (1 << 32) - 1;
        if huge_file {
            reach
        } else {
            countable.min(reach)
        }
    } else {
        let reach = indirect::blocks_reached(block_size);
        if reach + map_blocks(reach, block_size) <= countable {
            reach
        } else {
            countable - map_blocks(countable, block_size)
        }
    };
    blocks << block_size.log2()
}

/// Blocks of an indirect map of a file without holes.
fn map_blocks(blocks: u64, block_size: BlockSize) -> u64 {
    let per_block = u64::from(indirect::pointers_per_block(block_size));
    let mut rest = blocks.saturating_sub(u64::from(indirect::DIRECT));
    let mut map = 0;
    let mut span = per_block;
    for levels in 1..=indirect::MAX_LEVELS as u32 {
        let here = rest.min(span);
        map += (0..levels)
            .map(|level| here.div_ceil(per_block.pow(level + 1)))
            .sum::<u64>();
        rest -= here;
        span = span.saturating_mul(per_block);
    }
    map
}

fn hasher(draft: &Draft) -> Result<Option<NameHasher>, BuildError> {
    let superblock = draft.superblock();
    if !superblock.has_compat(Compat::DIR_INDEX) {
        return Ok(None);
    }
    let version = superblock
        .hash_version()
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
