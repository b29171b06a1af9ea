//! Block numbers of 32 or 64 bits: descriptors of 32 or 64 bytes.
//!
//! Descriptors of 64 bytes take twice the blocks. These come out of the blocks that are reserved
//! for descriptors, so that nothing that is in use moves, and go back there.

use super::super::groups;
use super::super::reseal::bitmap_sums;
use super::super::resize::forget_reserved;
use super::features::{EXTENTS, WIDE, switch_raw};
use super::{Tuning, refused};
use crate::error::Result;
use crate::inode::fs_seed;
use extant_format::features::{Compat, Incompat};
use extant_format::geometry::Geometry;
use extant_format::indirect::pointers_per_block;
use extant_format::superblock::Superblock;

/// Bytes of a descriptor.
const WIDE_DESC: u16 = 64;

/// Turns the feature on, which needs extents: where these are not on, they come with it.
pub(super) fn widen(tuning: &mut Tuning<'_>) -> Result<()> {
    let then = tuning.survey.volume.sb.with(|raw| {
        switch_raw(raw, EXTENTS, true);
        switch_raw(raw, WIDE, true);
        raw.desc_size.set(WIDE_DESC);
    })?;
    change(tuning, &then)
}

pub(super) fn narrow(tuning: &mut Tuning<'_>) -> Result<()> {
    if tuning.survey.volume.geo.blocks_count() > u64::from(u32::MAX) {
        return Err(refused(
            "more than 4,294,967,295 blocks need the feature 64bit",
        ));
    }
    let then = tuning.survey.volume.sb.with(|raw| {
        switch_raw(raw, WIDE, false);
        raw.desc_size.set(0);
    })?;
    change(tuning, &then)
}

fn change(tuning: &mut Tuning<'_>, then: &Superblock) -> Result<()> {
    let volume = &tuning.survey.volume;
    if volume.has_incompat(Incompat::META_BG) {
        return Err(refused(
            "descriptors lie with their groups (meta_bg), where others do not find them: make the file system anew",
        ));
    }
    let then = with_room(&volume.sb, then)?;
    let new = volume.with_superblock(&then);
    let sums = then.desc_checksum();
    super::checksums::zero_never_used(tuning)?;
    if volume.has_compat(Compat::RESIZE_INODE) {
        forget_reserved(tuning.draft, volume)?;
    }
    // Bytes behind the descriptors are zero.
    for index in 0..new.geo.desc_blocks() {
        let at = new.geo.desc_block(index)?;
        let offset = new.block_size().offset_of(at).unwrap_or(u64::MAX);
        tuning
            .draft
            .write(offset, &vec![0; new.block_size().len()])?;
    }
    for (group, state) in volume.geo.groups().zip(&volume.groups) {
        let mut desc = state.desc;
        if new.geo.desc_size() < 64 {
            // Only a half of each is stored.
            desc.block_bitmap_csum &= 0xffff;
            desc.inode_bitmap_csum &= 0xffff;
        } else if volume.seed.is_some() {
            (desc.block_bitmap_csum, desc.inode_bitmap_csum) =
                bitmap_sums(volume, fs_seed(volume), state, u32::MAX)?;
        }
        groups::put_sealed(tuning.draft, &new, group, &desc, &sums)?;
    }
    tuning.put(&then)?;
    tuning.settle()
}

/// `then`, with as many blocks reserved for descriptors that what lies behind stays there.
fn with_room(now: &Superblock, then: &Superblock) -> Result<Superblock> {
    let (old, new) = (Geometry::new(now), Geometry::new(then));
    let (before, after) = (old.desc_blocks(), new.desc_blocks());
    let all = before + old.reserved_gdt_blocks();
    if after > all {
        return Err(refused(&format!(
            "descriptors would take {after} blocks, and there is room for {all}: make the file system anew with 64bit"
        )));
    }
    if !now.has_compat(Compat::RESIZE_INODE) {
        return Ok(then.clone());
    }
    let most = pointers_per_block(old.block_size());
    let reserved = (all - after).min(most);
    Ok(then.with(|raw| raw.reserved_gdt_blocks.set(reserved as u16))?)
}
