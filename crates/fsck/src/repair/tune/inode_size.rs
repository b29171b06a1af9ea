//! Larger inodes: tables that take more blocks, and lie elsewhere.
//!
//! The new tables lie in blocks that nothing used, so that the old ones are whole until descriptors
//! and the superblock follow. What inodes hold is copied, attributes inside them too; behind it
//! there are zeros.

use super::super::groups;
use super::{Tuning, refused};
use crate::error::Result;
use crate::inode::fs_seed;
use crate::scan::inodes_to_look_at;
use crate::volume::Volume;
use extant_format::inode::seal_slot;
use extant_format::superblock::Superblock;
use extant_format::{Group, Ino, Pblk};
use std::ops::Range;

/// Bytes of an inode that has no extra fields.
const FIXED: usize = 128;
/// Where an inode says how many bytes of extra fields it has.
const EXTRA_AT: usize = 128;
/// Extra fields of inodes that had none: as far as the times that any inode has. When it was made
/// is not known.
const EXTRA: u16 = 16;
/// Bytes of inodes that are copied, which are in memory until all are known.
const BYTES_MAX: u64 = 1 << 30;

/// Gives inodes so many bytes.
pub(super) fn grow(tuning: &mut Tuning<'_>, bytes: u32) -> Result<()> {
    let volume = &tuning.survey.volume;
    let (now, most) = (u32::from(volume.inode_size()), volume.block_size().bytes());
    if bytes == now {
        return Ok(());
    }
    if bytes < now {
        return Err(refused(&format!(
            "inodes have {now} bytes, and do not get smaller: `extant mkfs --from` makes another image of the files"
        )));
    }
    let size = u16::try_from(bytes)
        .ok()
        .filter(|size| size.is_power_of_two());
    let Some(size) = size.filter(|_| bytes <= most) else {
        return Err(refused(&format!(
            "inodes can have a power of two of bytes, at most {most} here, not {bytes}"
        )));
    };
    if volume.sb.raw().rev_level.get() == 0 {
        return Err(refused(
            "inodes of revision 0 of the format have 128 bytes: turn a feature on before, by a command of its own (such \
             as large_file), or repair the file system if there are flags already: that makes it revision 1",
        ));
    }
    let then = volume.sb.with(|raw| raw.inode_size.set(size))?;
    let new = volume.with_superblock(&then);
    let places = places(tuning, &new)?;
    let mut copied = 0;
    for (group, place) in volume.geo.groups().zip(&places) {
        copied += table(tuning, &new, group, *place)?;
        if copied > BYTES_MAX {
            return Err(refused("more than 1 GiB of inodes would be copied"));
        }
    }
    for ((group, state), place) in volume.geo.groups().zip(&volume.groups).zip(&places) {
        let mut desc = state.desc;
        desc.inode_table = *place;
        groups::put_sealed(tuning.draft, volume, group, &desc, &then.desc_checksum())?;
    }
    let then = with_overhead(&then, volume, &new)?;
    tuning.put(&then)?;
    tuning.settle()
}

/// What the file system's own structures take, with larger tables.
fn with_overhead(then: &Superblock, volume: &Volume, new: &Volume) -> Result<Superblock> {
    let clusters = |of: &Volume| {
        let blocks = u64::from(of.geo.inode_table_blocks());
        u64::from(of.geo.groups_count()) * blocks.div_ceil(of.cluster_ratio())
    };
    let more = clusters(new).saturating_sub(clusters(volume));
    Ok(then.with(|raw| {
        // Linux adds it up itself where it is not there.
        let overhead = u64::from(raw.overhead_clusters.get());
        if overhead > 0 {
            raw.overhead_clusters.set((overhead + more) as u32);
        }
    })?)
}

/// A place for the table of each group: blocks in a row that nothing used. Without flexible groups,
/// a table lies in its own group.
fn places(tuning: &Tuning<'_>, new: &Volume) -> Result<Vec<Pblk>> {
    let volume = &tuning.survey.volume;
    let mut used = tuning.survey.used.clone();
    if let Some(before) = tuning.draft.in_use() {
        before.runs(0..volume.geo.clusters_count(), &mut |run| used.add(run));
    }
    let blocks = new.geo.inode_table_blocks();
    let clusters = u64::from(blocks).div_ceil(volume.cluster_ratio());
    let all = 0..volume.geo.clusters_count();
    let of_groups = |groups: Range<u32>| {
        let per_group = u64::from(volume.geo.clusters_per_group());
        u64::from(groups.start) * per_group..(u64::from(groups.end) * per_group).min(all.end)
    };
    let mut places = Vec::new();
    for group in volume.geo.groups() {
        let number = group.get();
        let own = of_groups(number..number + 1);
        let searched = if volume.geo.has_flex_bg() {
            let flex = volume.geo.groups_per_flex().max(1);
            let leader = number - number % flex;
            vec![of_groups(leader..leader + flex), all.clone()]
        } else {
            vec![own]
        };
        let mut found = searched
            .into_iter()
            .filter_map(|range| used.first_gap(range, clusters));
        let Some(cluster) = found.next() else {
            return Err(no_room(volume, group, blocks));
        };
        used.add(cluster..cluster + clusters);
        places.push(volume.block_of_cluster(cluster));
    }
    Ok(places)
}

fn no_room(volume: &Volume, group: Group, blocks: u32) -> crate::Error {
    let place = if volume.geo.has_flex_bg() {
        "in a row".to_owned()
    } else {
        format!("in a row in group {group}, where it has to lie without flex_bg")
    };
    refused(&format!(
        "a larger inode table takes {blocks} blocks, and there are not so many free ones {place}: make room, or the \
         file system larger; `extant mkfs --from` makes another image of the files"
    ))
}

/// Writes the table of a group to another place; returns how many bytes were copied.
fn table(tuning: &Tuning<'_>, new: &Volume, group: Group, place: Pblk) -> Result<u64> {
    let survey = &tuning.survey;
    let volume = &survey.volume;
    let size = volume.block_size();
    let start = size.offset_of(place).unwrap_or(u64::MAX);
    let len = u64::from(new.geo.inode_table_blocks()) << size.log2();
    tuning.draft.zero_first(start..start + len);
    let (old_len, new_len) = (
        usize::from(volume.inode_size()),
        usize::from(new.inode_size()),
    );
    let looked_at = inodes_to_look_at(volume, group.get());
    let first = group.get() * volume.geo.inodes_per_group() + 1;
    let Some(from) = volume.inode_offset(Ino::new(first)) else {
        return Ok(0);
    };
    let mut old = vec![0; looked_at as usize * old_len];
    volume.read_bytes(from, &mut old)?;
    let per_block = size.len() / new_len.max(1);
    let mut copied = 0;
    let blocks = old.chunks(per_block.max(1) * old_len);
    for ((number, slots), at) in (0..).zip(blocks).zip((start..).step_by(size.len())) {
        if slots.iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut block = vec![0; size.len()];
        let pairs = slots
            .chunks_exact(old_len)
            .zip(block.chunks_exact_mut(new_len));
        for (i, (from, to)) in (0..).zip(pairs) {
            let ino = Ino::new(first + number * per_block as u32 + i);
            if let Some(head) = to.get_mut(..old_len) {
                head.copy_from_slice(from);
            }
            if old_len == FIXED
                && survey.table.get(ino).is_in_use()
                && let Some(extra) = to.get_mut(EXTRA_AT..EXTRA_AT + 2)
            {
                extra.copy_from_slice(&EXTRA.to_le_bytes());
            }
            if new.seed.is_some() {
                seal_slot(to, fs_seed(new), ino);
            }
        }
        tuning.draft.write(at, &block)?;
        copied += block.len() as u64;
    }
    Ok(copied)
}
