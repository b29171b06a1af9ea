//! Groups behind the last one.
//!
//! Descriptors of new groups go into the blocks that were reserved for them, or, where those are
//! too few, into the new groups themselves (`meta_bg`), so that nothing that is in use moves.

use super::super::draft::Draft;
use super::super::options::Options;
use super::super::rounds::{look, rounds};
use super::super::superblock;
use super::{forget_reserved, nothing_overlaps, refused, with_blocks};
use crate::error::Result;
use crate::survey::Survey;
use crate::{Code, Place, Progress};
use extant_blockdev::BlockDevice;
use extant_format::features::{Compat, Incompat};
use extant_format::geometry::Geometry;
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFlags};
use extant_format::superblock::Superblock;
use extant_format::{Group, Pblk};

pub(super) fn grow(
    device: &dyn BlockDevice,
    draft: &mut Draft,
    survey: &Survey,
    blocks: u64,
    options: Options,
    progress: &dyn Progress,
) -> Result<Survey> {
    let old = &survey.volume;
    let sb = with_room_for_descriptors(&old.sb, &with_blocks(&old.sb, blocks)?)?;
    let geo = Geometry::new(&sb);
    if old.has_compat(Compat::RESIZE_INODE) {
        forget_reserved(draft, old)?;
    }
    draft.put_superblock(&sb)?;
    for index in old.geo.desc_blocks()..geo.desc_blocks() {
        let at = geo.desc_block(index)?;
        draft.write(byte(&geo, at), &vec![0; geo.block_size().len()])?;
    }
    let kind = sb.desc_checksum();
    for group in (old.geo.groups_count()..geo.groups_count()).map(Group::new) {
        let desc = new_group(&old.geo, &geo, group, kind != DescChecksum::None)?;
        let table = u64::from(geo.inode_table_blocks()) << geo.block_size().log2();
        device.zero(byte(&geo, desc.inode_table), table)?;
        for bitmap in [desc.block_bitmap, desc.inode_bitmap] {
            draft.write(byte(&geo, bitmap), &vec![0; geo.block_size().len()])?;
        }
        let mut bytes = vec![0; geo.desc_size() as usize];
        desc.encode(&mut bytes, group, &kind)?;
        let (at, inside) = geo.desc_position(group)?;
        draft.write(byte(&geo, at) + u64::from(inside), &bytes)?;
    }
    let text = format!("{blocks} blocks, were {}", old.geo.blocks_count());
    draft.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    // What copies say must not be taken for better.
    let survey = look(draft, progress)?;
    nothing_overlaps(&survey)?;
    superblock::refresh_backups(&survey, draft, options)?;
    let survey = rounds(draft, options, progress)?;
    superblock::refresh_backups(&survey, draft, options)?;
    look(draft, progress)
}

fn byte(geo: &Geometry, at: Pblk) -> u64 {
    geo.block_size().offset_of(at).unwrap_or(u64::MAX)
}

/// `then`, with places for the descriptors of its groups.
fn with_room_for_descriptors(now: &Superblock, then: &Superblock) -> Result<Superblock> {
    let (old, new) = (Geometry::new(now), Geometry::new(then));
    let more = new.desc_blocks().saturating_sub(old.desc_blocks());
    let old_blocks = old.desc_blocks();
    if now.has_incompat(Incompat::META_BG) {
        // Behind the superblocks there is room for those that are there.
        return Ok(then.with(|raw| {
            let first = raw.first_meta_bg.get().min(old_blocks);
            raw.first_meta_bg.set(first);
        })?);
    }
    if more == 0 {
        return Ok(then.clone());
    }
    let reserved = old.reserved_gdt_blocks();
    if now.has_compat(Compat::RESIZE_INODE) && more <= reserved {
        return Ok(then.with(|raw| raw.reserved_gdt_blocks.set((reserved - more) as u16))?);
    }
    let compat = now.features().compat - Compat::RESIZE_INODE;
    let incompat = now.features().incompat | Incompat::META_BG;
    let then = then.with(|raw| {
        raw.reserved_gdt_blocks.set(0);
        raw.feature_compat.set(compat.bits());
        raw.feature_incompat.set(incompat.bits());
        raw.first_meta_bg.set(old_blocks);
    })?;
    if Geometry::new(&then).classic_desc_blocks() == old_blocks {
        Ok(then)
    } else {
        Err(refused(
            "there is no room for the descriptors of so many groups",
        ))
    }
}

/// The descriptor of a new group, with its bitmaps and table in the first group of its flexible
/// group if all of these fit there, and otherwise in itself.
fn new_group(old: &Geometry, geo: &Geometry, group: Group, uninit: bool) -> Result<GroupDesc> {
    let table = u64::from(geo.inode_table_blocks());
    let flex = geo.groups_per_flex().max(1);
    let leader = group.get() - group.get() % flex;
    let together = flex.min(geo.groups_count() - leader);
    let header = geo.group_header(Group::new(leader))?;
    let room = u64::from(geo.blocks_in_group(Group::new(leader))?);
    let fits = header.blocks() + u64::from(together) * (2 + table) <= room;
    let (start, place, together) = if leader >= old.groups_count() && fits {
        (
            header.end().get(),
            u64::from(group.get() - leader),
            together,
        )
    } else {
        (geo.group_header(group)?.end().get(), 0, 1)
    };
    let mut flags = GroupFlags::empty();
    if uninit {
        flags |= GroupFlags::INODE_UNINIT | GroupFlags::INODE_ZEROED;
        if group.get() + 1 < geo.groups_count() {
            flags |= GroupFlags::BLOCK_UNINIT;
        }
    }
    Ok(GroupDesc {
        block_bitmap: Pblk::new(start + place),
        inode_bitmap: Pblk::new(start + u64::from(together) + place),
        inode_table: Pblk::new(start + 2 * u64::from(together) + place * table),
        flags,
        free_inodes: geo.inodes_per_group(),
        itable_unused: if uninit { geo.inodes_per_group() } else { 0 },
        ..GroupDesc::default()
    })
}
