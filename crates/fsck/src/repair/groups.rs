//! Group descriptors: where bitmaps and tables lie, and parts of inode tables that were taken for
//! unused.

use super::draft::Draft;
use super::superblock::copies_of_descriptors;
use super::trial::is_better;
use super::work::Work;
use crate::error::Result;
use crate::scan::inodes_to_look_at;
use crate::survey::Survey;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFlags, GroupState};
use extant_format::{Group, Ino, Pblk};
use std::collections::BTreeSet;

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    locations(work)?;
    if work.draft.has(Code::GroupLocation) && work.has(Code::GroupLocation) {
        return Ok(());
    }
    hidden_inodes(work)
}

/// Writes the descriptor of a group.
pub(super) fn put(work: &mut Work<'_>, group: Group, desc: &GroupDesc) -> Result<()> {
    let volume = work.volume();
    let (offset, bytes) = encoded(volume, group, desc, &volume.sb.desc_checksum())?;
    work.draft.write(offset, &bytes)
}

/// Gives all descriptors, as they are, checksums of another kind.
pub(super) fn seal_all(draft: &Draft, volume: &Volume, sums: &DescChecksum) -> Result<()> {
    for (group, state) in volume.geo.groups().zip(&volume.groups) {
        put_sealed(draft, volume, group, &state.desc, sums)?;
    }
    Ok(())
}

/// Writes a descriptor with a checksum of this kind.
pub(super) fn put_sealed(
    draft: &Draft,
    volume: &Volume,
    group: Group,
    desc: &GroupDesc,
    sums: &DescChecksum,
) -> Result<()> {
    let (offset, bytes) = encoded(volume, group, desc, sums)?;
    draft.write(offset, &bytes)
}

fn encoded(
    volume: &Volume,
    group: Group,
    desc: &GroupDesc,
    sums: &DescChecksum,
) -> Result<(u64, Vec<u8>)> {
    let (block, at) = volume.geo.desc_position(group)?;
    let start = volume.block_size().offset_of(block).unwrap_or(u64::MAX);
    let offset = start.saturating_add(at.into());
    let mut bytes = vec![0; volume.geo.desc_size() as usize];
    volume.read_bytes(offset, &mut bytes)?;
    desc.encode(&mut bytes, group, sums)?;
    Ok((offset, bytes))
}

/// Takes places from a copy of the descriptors where a check then finds fewer errors.
fn locations(work: &mut Work<'_>) -> Result<()> {
    const SUSPICIOUS: &[Code] = &[
        Code::GroupLocation,
        Code::MetadataOverlap,
        Code::GroupChecksum,
        Code::BlockOfMetadata,
    ];
    let suspects: BTreeSet<Group> = work
        .findings(SUSPICIOUS)
        .filter_map(|finding| finding.place.group)
        .collect();
    let lost = work.findings(&[Code::RootMissing]).next().is_some();
    if suspects.is_empty() && !lost {
        return Ok(());
    }
    let volume = work.volume();
    let inodes = work.survey.report.totals.inodes;
    let inodes = inodes.saturating_sub(inodes_seen_twice(work.survey));
    for (places, all) in candidates(volume)? {
        let mut writes = Vec::new();
        let mut groups = Vec::new();
        for (group, copy) in places {
            let Some(state) = volume.groups.get(group.get() as usize) else {
                continue;
            };
            if !all && !suspects.contains(&group) {
                continue;
            }
            if let Some(desc) = with_places(volume, group, state, &copy) {
                writes.push(encoded(volume, group, &desc, &volume.sb.desc_checksum())?);
                groups.push(group);
            }
        }
        let block_size = volume.block_size().bytes();
        let now = &work.survey.report;
        let device = work.draft.device();
        if !writes.is_empty() && is_better(device, block_size, &writes, now, inodes)? {
            for (offset, bytes) in writes {
                work.draft.write(offset, &bytes)?;
            }
            for group in groups {
                let text = "places of bitmaps and inode table are those that fit what lies there";
                work.fix(Code::GroupLocation, Place::group(group), text);
            }
            return Ok(());
        }
    }
    Ok(())
}

/// Inodes in use of groups whose table lies over that of a group before them: the same ones once
/// more.
fn inodes_seen_twice(survey: &Survey) -> u64 {
    let volume = &survey.volume;
    let len = u64::from(volume.geo.inode_table_blocks());
    let groups = volume
        .groups
        .iter()
        .zip(0..)
        .filter(|(state, _)| state.located);
    let mut tables: Vec<(u64, u32)> = groups
        .map(|(state, group)| (state.desc.inode_table.get(), group))
        .collect();
    tables.sort_unstable();
    let doubled = tables.windows(2).filter_map(|pair| match *pair {
        [(before, _), (table, group)] if table < before + len => Some(group),
        _ => None,
    });
    let in_use = |group: u32| {
        let summaries = survey.table.group(group).iter();
        summaries.filter(|summary| summary.is_in_use()).count() as u64
    };
    doubled.map(in_use).sum()
}

/// Descriptors that may name the right places.
type Places = Vec<(Group, GroupDesc)>;

/// Where bitmaps and tables may lie: as copies of the descriptors say, and where they are put when
/// a file system is made. First for suspect groups alone, then (`true`) for all.
fn candidates(volume: &Volume) -> Result<Vec<(Places, bool)>> {
    let per_block = volume.geo.descs_per_block();
    let size = volume.geo.desc_size() as usize;
    let mut found: Vec<Places> = Vec::new();
    for index in 0..volume.geo.desc_blocks() {
        for block in copies_of_descriptors(volume, index) {
            let copy = volume.block(block)?;
            let descs = copy.chunks_exact(size).take(per_block as usize);
            let places = descs.enumerate().filter_map(|(i, bytes)| {
                let group = Group::new(index * per_block + i as u32);
                Some((group, GroupDesc::parse_unverified(bytes).ok()?))
            });
            found.push(places.collect());
        }
    }
    let flex = volume.geo.groups_per_flex().max(1);
    for together in [flex, 1] {
        let groups = volume.geo.groups();
        let places = groups.filter_map(|group| Some((group, as_made(volume, group, together)?)));
        found.push(places.collect());
    }
    let all: Vec<(Places, bool)> = found.iter().map(|places| (places.clone(), true)).collect();
    let some = found.into_iter().map(|places: Places| (places, false));
    Ok(some.chain(all).collect())
}

/// Where a group's bitmaps and table are put when a file system is made, with so many groups
/// sharing a place.
fn as_made(volume: &Volume, group: Group, together: u32) -> Option<GroupDesc> {
    let place = u64::from(group.get() % together);
    let first = Group::new(group.get() - group.get() % together);
    let start = volume.geo.group_header(first).ok()?.end().get();
    let together = u64::from(together);
    let table = place * u64::from(volume.geo.inode_table_blocks());
    Some(GroupDesc {
        block_bitmap: Pblk::new(start + place),
        inode_bitmap: Pblk::new(start + together + place),
        inode_table: Pblk::new(start + 2 * together + table),
        ..GroupDesc::default()
    })
}

/// The descriptor of a group with the places that a copy of it names, if they are possible and
/// others. What it says that saves work is not believed unless its checksum is right: with the
/// places it gets a new one.
fn with_places(
    volume: &Volume,
    group: Group,
    state: &GroupState,
    copy: &GroupDesc,
) -> Option<GroupDesc> {
    let mut moved = GroupDesc {
        block_bitmap: copy.block_bitmap,
        inode_bitmap: copy.inode_bitmap,
        inode_table: copy.inode_table,
        ..state.desc
    };
    if moved == state.desc || moved.validate(group, &volume.geo).is_err() {
        return None;
    }
    if !state.trusted {
        moved.flags = copy.flags & GroupFlags::INODE_ZEROED;
        moved.itable_unused = 0;
    }
    Some(moved)
}

/// Has all inodes of a group looked at whose bitmap or whose names say that one was passed over.
fn hidden_inodes(work: &mut Work<'_>) -> Result<()> {
    let mut groups: BTreeSet<Group> = work
        .findings(&[Code::GroupUnusedInodes])
        .filter_map(|finding| finding.place.group)
        .collect();
    for ino in named_but_unused(work)? {
        if let Some(group) = passed_over(work.volume(), ino)? {
            groups.insert(group);
        }
    }
    for group in groups {
        let Some(state) = work.volume().groups.get(group.get() as usize) else {
            continue;
        };
        let mut desc = state.desc;
        desc.itable_unused = 0;
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        if desc == state.desc {
            continue;
        }
        put(work, group, &desc)?;
        let text = "no part of the inode table is taken for unused";
        work.fix(Code::GroupUnusedInodes, Place::group(group), text);
    }
    Ok(())
}

/// The inodes that entries name which are not in use.
fn named_but_unused(work: &mut Work<'_>) -> Result<BTreeSet<Ino>> {
    let mut found = BTreeSet::new();
    for dir in work.by_inode(&[Code::DirEntryUnused]).into_keys() {
        super::entries::each(work.survey, dir, &mut |_, entry| {
            if let Some(ino) = entry.ino
                && !work.survey.table.get(ino).is_in_use()
            {
                found.insert(ino);
            }
        })?;
    }
    Ok(found)
}

/// The group of an inode that was not looked at, if what lies there is an inode in use.
fn passed_over(volume: &Volume, ino: Ino) -> Result<Option<Group>> {
    let Ok(location) = volume.geo.locate_inode(ino) else {
        return Ok(None);
    };
    if location.index < inodes_to_look_at(volume, location.group.get()) {
        return Ok(None);
    }
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(None);
    };
    Ok((inode.links > 0 && inode.file_type().is_some()).then_some(location.group))
}
