//! Where bitmaps and inode tables go.
//!
//! Without `flex_bg` each group holds its own. With it, the block bitmaps of a flexible group
//! lie together at its start, then its inode bitmaps, then its tables, stepping around backup
//! superblocks: one long read fetches the metadata of many groups, and the groups behind are free
//! for data.

use super::{GroupPlace, PlanError, PlanResult, RunSet};
use extant_format::geometry::Geometry;
use extant_format::{Group, Pblk};

/// Takes superblocks and descriptors of every group.
pub(super) fn take_headers(geometry: &Geometry, space: &mut RunSet) -> PlanResult<()> {
    for group in geometry.groups() {
        let start = geometry.group_first_block(group)?.get();
        let header = geometry.group_header(group)?;
        let end = header.end().get();
        if end > geometry.blocks_count() {
            return Err(no_room("the copies of descriptors", end - start, 0));
        }
        let holds_anything = header.super_block.is_some() || end > start;
        if holds_anything {
            space.insert(start..end);
        }
    }
    Ok(())
}

fn no_room(what: &'static str, needed: u64, free: u64) -> PlanError {
    PlanError::NoSpace { what, needed, free }
}

/// Places bitmaps and tables of all groups and takes their blocks.
pub(super) fn place_tables(
    geometry: &Geometry,
    stride: u64,
    space: &mut RunSet,
) -> PlanResult<Vec<GroupPlace>> {
    let mut places: Vec<GroupPlace> = Vec::with_capacity(geometry.groups_count() as usize);
    for group in geometry.groups() {
        let place = if geometry.groups_per_flex() > 1 {
            place_in_flex(geometry, group, places.last(), space)?
        } else {
            place_in_group(geometry, group, stride, space)?
        };
        places.push(place);
    }
    Ok(places)
}

fn take(
    space: &mut RunSet,
    geometry: &Geometry,
    (from, before): (u64, u64),
    len: u64,
) -> PlanResult<Pblk> {
    let start = space
        .first_gap(from, before, len, geometry.blocks_count())
        .ok_or_else(|| no_room("a bitmap or inode table", len, 0))?;
    space.insert(start..start + len);
    Ok(Pblk::new(start))
}

fn place_in_group(
    geometry: &Geometry,
    group: Group,
    stride: u64,
    space: &mut RunSet,
) -> PlanResult<GroupPlace> {
    let first = geometry.group_first_block(group)?.get();
    let last = geometry.group_last_block(group)?.get();
    let table = u64::from(geometry.inode_table_blocks());
    let mut bitmaps = first;
    if stride > 0 {
        // Spread the bitmaps over the disks of a RAID.
        let after = space.first_gap(first, last, 1, last + 1).unwrap_or(first) + table;
        if after < last {
            bitmaps = after + stride * u64::from(group.get()) % (last - after + 1);
        }
        if bitmaps >= last {
            bitmaps = first;
        }
    }
    let end = last + 1;
    let mut bitmap = || {
        take(space, geometry, (bitmaps, end), 1).or_else(|_| take(space, geometry, (first, end), 1))
    };
    Ok(GroupPlace {
        block_bitmap: bitmap()?,
        inode_bitmap: bitmap()?,
        inode_table: take(space, geometry, (first, end), table)?,
    })
}

/// A flexible group while its bitmaps and tables are placed.
struct Flex<'a> {
    geometry: &'a Geometry,
    /// First block of the flexible group.
    first: u64,
    /// One past its last block.
    end: u64,
    /// Groups from the current one to its end.
    left: u64,
}

impl Flex<'_> {
    /// Takes `len` blocks at `wish` if they are free; otherwise starts a new place with room for
    /// all groups left, or, where there is none, for this one.
    fn take(&self, space: &mut RunSet, wish: Option<u64>, len: u64) -> PlanResult<Pblk> {
        if let Some(start) = wish
            && start + len <= self.geometry.blocks_count()
            && !space.touches(start..start + len)
        {
            space.insert(start..start + len);
            return Ok(Pblk::new(start));
        }
        let roomy = (self.left * len).min(u64::from(self.geometry.blocks_per_group()) / 4);
        let device_end = self.geometry.blocks_count();
        let start = space
            .first_gap(self.first, self.end, roomy.max(len), device_end)
            .or_else(|| space.first_gap(self.first, self.end, len, device_end))
            .ok_or_else(|| no_room("a bitmap or inode table", len, 0))?;
        space.insert(start..start + len);
        Ok(Pblk::new(start))
    }
}

fn place_in_flex(
    geometry: &Geometry,
    group: Group,
    before: Option<&GroupPlace>,
    space: &mut RunSet,
) -> PlanResult<GroupPlace> {
    let per_flex = geometry.groups_per_flex();
    let first_group = group.get() & !(per_flex - 1);
    let last_group = (group.get() | (per_flex - 1)).min(geometry.groups_count() - 1);
    let flex = Flex {
        geometry,
        first: geometry.group_first_block(Group::new(first_group))?.get(),
        end: geometry.group_last_block(Group::new(last_group))?.get() + 1,
        left: u64::from(last_group - group.get() + 1),
    };
    let table_len = u64::from(geometry.inode_table_blocks());
    // Behind the same structure of the group before; in the first group of a flexible group,
    // behind the room its bitmaps will take.
    let before = before.filter(|_| group.get() != first_group);
    let behind = |of: fn(&GroupPlace) -> Pblk, len| before.map(|place| of(place).get() + len);

    let block_bitmap = flex.take(space, behind(|p| p.block_bitmap, 1), 1)?;
    // A group alone in its flexible group leaves room for the ones that growth will add.
    let room = if flex.left == 1 {
        u64::from(per_flex)
    } else {
        flex.left
    };
    let wish = behind(|p| p.inode_bitmap, 1).unwrap_or(block_bitmap.get() + room);
    let inode_bitmap = flex.take(space, Some(wish), 1)?;
    let wish = behind(|p| p.inode_table, table_len).unwrap_or(inode_bitmap.get() + room);
    let inode_table = flex.take(space, Some(wish), table_len)?;
    Ok(GroupPlace {
        block_bitmap,
        inode_bitmap,
        inode_table,
    })
}
