//! Checksums of all metadata, of group descriptors alone, or of nothing.

use super::super::groups;
use super::super::reseal::reseal;
use super::super::work::Work;
use super::features::switch_raw;
use super::{Tuning, directories};
use crate::error::Result;
use crate::scan::inodes_to_look_at;
use crate::volume::Volume;
use extant_format::Pblk;
use extant_format::features::{Feature, RoCompat};
use extant_format::group_desc::{DescChecksum, GroupFlags};
use extant_format::superblock::Superblock;
use std::ops::Range;

const SUMS: Feature = Feature::RoCompat(RoCompat::METADATA_CSUM);
const GROUP_SUMS: Feature = Feature::RoCompat(RoCompat::GDT_CSUM);
/// CRC32C, the one kind of checksum that there is.
const CRC32C: u8 = 1;

/// Gives everything a checksum.
pub(super) fn on(tuning: &mut Tuning<'_>) -> Result<()> {
    let then = tuning.survey.volume.sb.with(|raw| {
        switch_raw(raw, SUMS, true);
        switch_raw(raw, GROUP_SUMS, false);
        raw.checksum_type = CRC32C;
    })?;
    let volume = tuning.survey.volume.with_superblock(&then);
    let mut work = Work::new(&tuning.survey, tuning.draft, tuning.options);
    directories::lay_out_anew(&mut work, &volume)?;
    zero_never_used(tuning)?;
    reseal(tuning.draft, &tuning.survey, &volume)?;
    tuning.put(&then)?;
    tuning.settle()
}

/// Takes checksums away, but for those of group descriptors where `keeps_groups`.
pub(super) fn off(tuning: &mut Tuning<'_>, keeps_groups: bool) -> Result<()> {
    let then = tuning.survey.volume.sb.with(|raw| {
        switch_raw(raw, SUMS, false);
        switch_raw(raw, GROUP_SUMS, keeps_groups);
        raw.checksum_type = 0;
    })?;
    let volume = tuning.survey.volume.with_superblock(&then);
    let mut work = Work::new(&tuning.survey, tuning.draft, tuning.options);
    directories::lay_out_anew(&mut work, &volume)?;
    descriptors(tuning, &then)
}

/// Gives group descriptors checksums, where nothing has any.
pub(super) fn group_sums_on(tuning: &mut Tuning<'_>) -> Result<()> {
    let then = tuning
        .survey
        .volume
        .sb
        .with(|raw| switch_raw(raw, GROUP_SUMS, true))?;
    descriptors(tuning, &then)
}

/// Takes the checksums of group descriptors away.
pub(super) fn group_sums_off(tuning: &mut Tuning<'_>) -> Result<()> {
    let then = tuning
        .survey
        .volume
        .sb
        .with(|raw| switch_raw(raw, GROUP_SUMS, false))?;
    descriptors(tuning, &then)
}

/// Writes descriptors with the checksums that a superblock asks for. What no checksum vouches for
/// any more, or none did, is not taken for unused.
fn descriptors(tuning: &mut Tuning<'_>, then: &Superblock) -> Result<()> {
    zero_never_used(tuning)?;
    let volume = &tuning.survey.volume;
    let (now, sums) = (volume.sb.desc_checksum(), then.desc_checksum());
    for (group, state) in volume.geo.groups().zip(&volume.groups) {
        let mut desc = state.desc;
        desc.block_bitmap_csum = 0;
        desc.inode_bitmap_csum = 0;
        if sums == DescChecksum::None {
            zero_unused(tuning, group.get())?;
            desc.flags = GroupFlags::empty();
            desc.itable_unused = 0;
        } else if now == DescChecksum::None {
            desc.flags = GroupFlags::INODE_ZEROED;
            desc.itable_unused = 0;
        }
        groups::put_sealed(tuning.draft, volume, group, &desc, &sums)?;
    }
    tuning.put(then)?;
    tuning.settle()
}

/// Zeroes what of inode tables was never used and never zeroed. Until the superblock follows, the
/// checksums of descriptors are none for it, and then nothing is taken for unused.
pub(super) fn zero_never_used(tuning: &Tuning<'_>) -> Result<()> {
    let volume = &tuning.survey.volume;
    if volume.sb.desc_checksum() == DescChecksum::None {
        return Ok(());
    }
    for (group, state) in volume.geo.groups().zip(&volume.groups) {
        if !state.desc.flags.contains(GroupFlags::INODE_ZEROED) {
            zero_unused(tuning, group.get())?;
        }
    }
    Ok(())
}

/// The whole blocks of each group's inode table that are not used.
pub(super) fn unused_blocks(volume: &Volume) -> Vec<Range<u64>> {
    let per_block = volume.block_size().bytes() / u32::from(volume.inode_size()).max(1);
    let groups = volume.groups.iter().zip(0..);
    groups
        .map(|(state, group)| {
            let table = state.desc.inode_table.get();
            let used = inodes_to_look_at(volume, group).div_ceil(per_block.max(1));
            table + u64::from(used)..table + u64::from(volume.geo.inode_table_blocks())
        })
        .collect()
}

/// Zeroes what of a group's inode table was never used: it is looked at from now on. What was not
/// used before anything changed is zeroed before all else, and takes no memory.
fn zero_unused(tuning: &Tuning<'_>, group: u32) -> Result<()> {
    let volume = &tuning.survey.volume;
    let Some(state) = volume.groups.get(group as usize) else {
        return Ok(());
    };
    let unused = tuning.unused.get(group as usize);
    let size = volume.block_size();
    let slot = u32::from(volume.inode_size());
    let used = u64::from(inodes_to_look_at(volume, group)) * u64::from(slot);
    let first = used / u64::from(size.bytes());
    for block in first..u64::from(volume.geo.inode_table_blocks()) {
        let at = Pblk::new(state.desc.inode_table.get() + block);
        let mut bytes = volume.block(at)?;
        let keep = used.saturating_sub(block * u64::from(size.bytes())) as usize;
        if is_zero(&bytes, keep) {
            continue;
        }
        if let Some(unused) = unused.filter(|unused| unused.contains(&at.get())) {
            let whole = u64::from(size.bytes());
            let part = at.get() * whole..unused.end * whole;
            tuning.draft.zero_first(part);
            bytes = volume.block(at)?;
        }
        // What is in use now was not before: it is in a step, with what lay behind it.
        if !is_zero(&bytes, keep) {
            bytes.get_mut(keep..).unwrap_or_default().fill(0);
            tuning
                .draft
                .write(size.offset_of(at).unwrap_or(u64::MAX), &bytes)?;
        }
    }
    Ok(())
}

/// Whether a block holds zeros from a byte on.
fn is_zero(block: &[u8], from: usize) -> bool {
    let rest = block.get(from..).unwrap_or_default();
    rest.iter().all(|byte| *byte == 0)
}
