//! Groups that go.
//!
//! First inodes of groups that go get other numbers, then blocks behind the new end get other
//! places, and only then is the end moved.

use super::super::draft::Draft;
use super::super::options::Options;
use super::super::rounds::{look, rounds};
use super::super::space::Space;
use super::super::work::Work;
use super::super::{bitmaps, groups, superblock};
use super::{blocks, forget_reserved, nothing_overlaps, numbers, refused, with_blocks};
use crate::error::Result;
use crate::report::Sink;
use crate::survey::Survey;
use crate::{Code, Place, Progress, metadata};
use extant_format::Group;
use extant_format::features::{Compat, Incompat};
use extant_format::geometry::Geometry;
use extant_format::group_desc::GroupFlags;
use extant_format::indirect::pointers_per_block;
use extant_format::superblock::Superblock;

pub(super) fn shrink(
    draft: &mut Draft,
    survey: Survey,
    blocks: u64,
    options: Options,
    progress: &dyn Progress,
) -> Result<Survey> {
    let sb = with_fewer_descriptors(&survey.volume.sb, &with_blocks(&survey.volume.sb, blocks)?)?;
    let geo = Geometry::new(&sb);
    check_places(&survey, &geo)?;
    let end = survey.volume.cluster_of(blocks);
    let before = survey.volume.geo.blocks_count();
    // What is in use now is not written before all is known, also if other numbers have freed it.
    let first = survey;
    let mut work = Work::new(&first, draft, options);
    work.space = Space::below(end);
    let renumbered = if numbers::renumber(&mut work, geo.inodes_count())? {
        Some(look(draft, progress)?)
    } else {
        None
    };
    let survey = renumbered.as_ref().unwrap_or(&first);
    let mut work = Work::new(survey, draft, options);
    work.space = Space::below(end).besides(&first.used);
    blocks::vacate(&mut work, end)?;
    if survey.volume.has_compat(Compat::RESIZE_INODE) {
        forget_reserved(draft, &survey.volume)?;
    }
    let last = Group::new(geo.groups_count().saturating_sub(1));
    if let Some(state) = survey.volume.groups.get(last.get() as usize) {
        let mut desc = state.desc;
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        groups::put(&mut Work::new(survey, draft, options), last, &desc)?;
    }
    // The copy of the journal's map in it may have changed.
    let moved = draft.superblock()?;
    let sb = sb.with(|raw| raw.jnl_blocks = moved.raw().jnl_blocks)?;
    draft.put_superblock(&sb)?;
    let text = format!("{blocks} blocks, were {before}");
    draft.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    // What copies say must not be taken for better: neither they nor bitmaps may be wrong when that
    // is asked.
    let survey = look(draft, progress)?;
    nothing_overlaps(&survey)?;
    superblock::refresh_backups(&survey, draft, options)?;
    bitmaps::fix(&mut Work::new(&survey, draft, options))?;
    let survey = rounds(draft, options, progress)?;
    superblock::refresh_backups(&survey, draft, options)?;
    look(draft, progress)
}

/// `then`, with what is left of the descriptors' blocks reserved, so that what lies behind them
/// stays there.
fn with_fewer_descriptors(now: &Superblock, then: &Superblock) -> Result<Superblock> {
    let (old, new) = (Geometry::new(now), Geometry::new(then));
    let fewer = old.desc_blocks().saturating_sub(new.desc_blocks());
    let most = pointers_per_block(old.block_size());
    Ok(then.with(|raw| {
        if !now.has_incompat(Incompat::META_BG) && now.has_compat(Compat::RESIZE_INODE) {
            let reserved = (old.reserved_gdt_blocks() + fewer).min(most);
            raw.reserved_gdt_blocks.set(reserved as u16);
        }
    })?)
}

/// Refuses an end before the bitmaps and tables of groups that stay.
fn check_places(survey: &Survey, geo: &Geometry) -> Result<()> {
    let end = geo.blocks_count();
    let tables = u64::from(geo.inode_table_blocks());
    for (group, state) in geo.groups().zip(&survey.volume.groups) {
        let desc = &state.desc;
        let places = [
            desc.block_bitmap.get() + 1,
            desc.inode_bitmap.get() + 1,
            desc.inode_table.get() + tables,
            geo.group_header(group)?.end().get(),
        ];
        let mmp = survey.volume.sb.mmp_block();
        if places.iter().any(|place| *place > end) || mmp.is_some_and(|at| at.get() >= end) {
            return Err(refused(format!(
                "structures of group {group}, which stays, lie behind block {end}"
            )));
        }
    }
    Ok(())
}

/// The least number of blocks that may hold what is there; a little more may be needed for maps.
pub(super) fn least(survey: &Survey) -> u64 {
    let volume = &survey.volume;
    let fixed = metadata::fixed(volume, &mut Sink::new()).clusters;
    let all = volume.geo.clusters_count();
    let count = |set: &crate::blockset::BlockSet, range| {
        let mut sum = 0;
        set.runs(range, &mut |run| sum += run.end - run.start);
        sum
    };
    let used = count(&survey.used, 0..all);
    let inodes = volume
        .sb
        .inodes_count()
        .saturating_sub(volume.sb.free_inodes_count());
    let fits = |blocks: u64| {
        let Ok(sb) = super::possible(&volume.sb, blocks).and_then(|n| with_blocks(&volume.sb, n))
        else {
            return false;
        };
        let geo = Geometry::new(&sb);
        let end = volume.cluster_of(geo.blocks_count());
        let gone = count(&fixed, end..all);
        let behind = count(&survey.used, end..all) - gone;
        // Maps in new blocks, while the old ones are still in use.
        let maps = behind / 64 + 16;
        check_places(survey, &geo).is_ok()
            && inodes <= geo.inodes_count()
            && used - gone + maps <= end
    };
    let (mut low, mut high) = (0, volume.geo.blocks_count());
    while low + 1 < high {
        let middle = low.midpoint(high);
        if fits(middle) {
            high = middle
        } else {
            low = middle
        }
    }
    high
}
