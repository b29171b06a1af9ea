//! Bitmaps, descriptors and counts, written as what is in use says.

use super::work::Work;
use crate::bitmaps::{fill, is_last, own_structures};
use crate::error::Result;
use crate::{Code, Place};
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFlags, GroupState};
use extant_format::{Group, Pblk, bitmap};
use std::ops::Range;

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    // What was not read may be in use.
    let unread = [
        Code::MapAbandoned,
        Code::ClaimsAbandoned,
        Code::GroupLocation,
        Code::MetadataOverlap,
    ];
    if unread.iter().any(|code| work.has(*code)) {
        return Ok(());
    }
    let volume = work.volume();
    for (group, state) in volume.geo.groups().zip(&volume.groups) {
        one(work, group, state)?;
    }
    sums(work)
}

fn one(work: &mut Work<'_>, group: Group, state: &GroupState) -> Result<()> {
    let mut desc = state.desc;
    let known = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_ZEROED;
    if !state.trusted {
        desc.flags &= known - GroupFlags::INODE_UNINIT - GroupFlags::BLOCK_UNINIT;
    }
    blocks(work, group, state, &mut desc)?;
    inodes(work, group, state, &mut desc)?;
    let volume = work.volume();
    let wrong_sum = !state.trusted && volume.sb.desc_checksum() != DescChecksum::None;
    if desc != state.desc || wrong_sum {
        super::groups::put(work, group, &desc)?;
        for (code, text) in told(&state.desc, &desc) {
            work.fix(code, Place::group(group), text);
        }
        if wrong_sum {
            work.fix(Code::GroupChecksum, Place::group(group), "computed anew");
        }
    }
    Ok(())
}

/// What is different between two descriptors of a group.
fn told(old: &GroupDesc, new: &GroupDesc) -> Vec<(Code, String)> {
    let numbers = [
        (
            Code::GroupFreeBlocks,
            "free clusters",
            old.free_clusters,
            new.free_clusters,
        ),
        (
            Code::GroupFreeInodes,
            "free inodes",
            old.free_inodes,
            new.free_inodes,
        ),
        (
            Code::GroupUsedDirs,
            "directories",
            old.used_dirs,
            new.used_dirs,
        ),
        (
            Code::GroupUnusedCount,
            "unused inodes",
            old.itable_unused,
            new.itable_unused,
        ),
        (
            Code::GroupFlags,
            "flags",
            old.flags.bits().into(),
            new.flags.bits().into(),
        ),
        (
            Code::BlockBitmapChecksum,
            "checksum of the block bitmap",
            old.block_bitmap_csum,
            new.block_bitmap_csum,
        ),
        (
            Code::InodeBitmapChecksum,
            "checksum of the inode bitmap",
            old.inode_bitmap_csum,
            new.inode_bitmap_csum,
        ),
    ];
    let differ = numbers.into_iter().filter(|(_, _, old, new)| old != new);
    differ
        .map(|(code, what, old, new)| (code, format!("{what}: {new}, was {old}")))
        .collect()
}

/// Writes a bitmap where it differs; returns whether it did.
fn put_map(work: &mut Work<'_>, at: Pblk, map: &[u8], code: Code, group: Group) -> Result<()> {
    let old = work.volume().block(at)?;
    if old == map || !work.is_alone(at) {
        return Ok(());
    }
    work.put_block(at, map)?;
    let bits = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let changed: u32 = old.iter().zip(map).map(|(a, b)| (a ^ b).count_ones()).sum();
    let text = format!(
        "{changed} bits were changed: {} are set, {} were",
        bits(map),
        bits(&old)
    );
    work.fix(code, Place::group(group).at_block(at), text);
    Ok(())
}

/// `new` as far as it is stored, if `old` is not the same already.
fn stored_sum(old: u32, new: u32, desc_size: u32) -> u32 {
    let mask = if desc_size >= 64 { u32::MAX } else { 0xffff };
    if (old ^ new) & mask == 0 {
        old
    } else {
        new & mask
    }
}

fn blocks(
    work: &mut Work<'_>,
    group: Group,
    state: &GroupState,
    desc: &mut GroupDesc,
) -> Result<()> {
    let volume = work.volume();
    let Ok(bits) = volume.geo.clusters_in_group(group) else {
        return Ok(());
    };
    let per_group = volume.geo.clusters_per_group();
    let first = u64::from(group.get()) * u64::from(per_group);
    let mut map = vec![0; volume.block_size().len()];
    fill(&work.survey.used, first, bits, &mut map);
    leave_reserved(work, group, state, first..first + u64::from(bits), &mut map)?;
    desc.free_clusters = bitmap::count_clear(&map, 0..bits);
    if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        let mut own = vec![0; map.len()];
        fill(&own_structures(volume, group, state), first, bits, &mut own);
        if own == map && !is_last(volume, group) {
            return Ok(());
        }
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
    }
    bitmap::set_padding(&mut map, bits);
    put_map(work, desc.block_bitmap, &map, Code::BlockBitmap, group)?;
    if let Some(seed) = volume.seed {
        let sum = bitmap::checksum(seed.value(), &map, per_group);
        let size = volume.geo.desc_size();
        desc.block_bitmap_csum = stored_sum(desc.block_bitmap_csum, sum, size);
    }
    Ok(())
}

/// Leaves free in the map of a group what fast commits that wait name, where its bitmap calls that
/// free: a file that maps it does so by damage, and gets copies once they are replayed.
fn leave_reserved(
    work: &Work<'_>,
    group: Group,
    state: &GroupState,
    clusters: Range<u64>,
    map: &mut [u8],
) -> Result<()> {
    let volume = work.volume();
    let reserved = &work.draft.reserved().clusters;
    if reserved.is_empty() {
        return Ok(());
    }
    let bits = (clusters.end - clusters.start) as u32;
    let old = if state.says(GroupFlags::BLOCK_UNINIT) {
        let mut own = vec![0; map.len()];
        let structures = own_structures(volume, group, state);
        fill(&structures, clusters.start, bits, &mut own);
        own
    } else {
        volume.block(state.desc.block_bitmap)?
    };
    let start = clusters.start;
    reserved.runs(clusters, &mut |run| {
        for cluster in run {
            let bit = (cluster - start) as u32;
            if !bitmap::test(&old, bit) {
                bitmap::clear(map, bit);
            }
        }
    });
    Ok(())
}

fn inodes(
    work: &mut Work<'_>,
    group: Group,
    state: &GroupState,
    desc: &mut GroupDesc,
) -> Result<()> {
    let volume = work.volume();
    let bits = volume.geo.inodes_per_group();
    let mut map = vec![0; volume.block_size().len()];
    let mut used = 0;
    desc.used_dirs = 0;
    let summaries = work.survey.table.group(group.get());
    for (i, summary) in summaries.iter().enumerate() {
        if summary.is_in_use() {
            bitmap::set(&mut map, i as u32);
            used = i as u32 + 1;
            desc.used_dirs += u32::from(summary.is_dir());
        }
    }
    desc.free_inodes = bitmap::count_clear(&map, 0..bits);
    if volume.sb.desc_checksum() != DescChecksum::None {
        desc.itable_unused = if state.trusted && desc.itable_unused <= bits {
            desc.itable_unused.min(bits.saturating_sub(used))
        } else {
            0
        };
    } else {
        desc.itable_unused = 0;
    }
    if desc.flags.contains(GroupFlags::INODE_UNINIT) {
        if used == 0 {
            return Ok(());
        }
        desc.flags.remove(GroupFlags::INODE_UNINIT);
    }
    bitmap::set_padding(&mut map, bits);
    put_map(work, desc.inode_bitmap, &map, Code::InodeBitmap, group)?;
    if let Some(seed) = volume.seed {
        let sum = bitmap::checksum(seed.value(), &map, bits);
        let size = volume.geo.desc_size();
        desc.inode_bitmap_csum = stored_sum(desc.inode_bitmap_csum, sum, size);
    }
    Ok(())
}

/// The sums in the superblock.
fn sums(work: &mut Work<'_>) -> Result<()> {
    let survey = work.survey;
    let place = Place::FILE_SYSTEM;
    let mut sb = work.superblock()?;
    let blocks = survey.free_clusters << survey.volume.geo.cluster_bits();
    let (old_blocks, old_inodes) = (sb.free_blocks_count(), sb.free_inodes_count());
    let inodes = u32::try_from(survey.free_inodes).unwrap_or(u32::MAX);
    sb.set_free_blocks_count(blocks);
    sb.set_free_inodes_count(inodes);
    if old_blocks != blocks {
        let text = format!("free blocks: {blocks}, was {old_blocks}");
        work.fix(Code::SuperblockFreeBlocks, place, text);
        work.put_superblock(&sb)?;
    }
    if old_inodes != inodes {
        let text = format!("free inodes: {inodes}, was {old_inodes}");
        work.fix(Code::SuperblockFreeInodes, place, text);
        work.put_superblock(&sb)?;
    }
    Ok(())
}
