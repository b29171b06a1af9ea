//! Making a file system that is closed and sound larger or smaller.
//!
//! As a repair, it is worked out in memory first and checked: see [`Plan`]. Source: "Layout" and
//! "Meta Block Groups" in the kernel's ext4 documentation.

mod blocks;
mod grow;
mod numbers;
mod shrink;

pub(super) use numbers::open_tables;

use super::draft::Draft;
use super::options::Options;
use super::plan::Plan;
use super::tune;
use crate::error::{Error, Result};
use crate::report::Sink;
use crate::survey::Survey;
use crate::volume::{Volume, find_superblock};
use crate::{Code, Progress};
use extant_blockdev::SharedDevice;
use extant_format::Ino;
use extant_format::features::{Compat, Incompat};
use extant_format::geometry::Geometry;
use extant_format::superblock::{RawSuperblock, Superblock};
use std::cmp::Ordering;
use std::sync::Arc;

/// Blocks that a last group must have beyond its own structures to be worth having.
const LEAST_IN_GROUP: u64 = 50;

/// How large a file system is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many blocks, or the nearest number below that is possible.
    Blocks(u64),
    /// As few blocks as what is in it needs, or a few more.
    Minimum,
}

/// Times that a size near the least is tried, a little larger each time.
const TRIES: u32 = 24;

/// Rounds in which a file system is made as small as possible; each makes room for the next, and
/// two or three do.
pub const ROUNDS_MAX: u32 = 16;

/// What is said of a plan whose result a check finds fault with.
pub const UNSOUND: &str = "the file system would not be sound afterwards";

/// Finds out to how many blocks the file system at byte 0 of `device` can be brought down, by as
/// many rounds as make it smaller. Writes nothing.
///
/// # Errors
/// As for [`plan`]; where a check finds fault with the result of the first round.
pub fn minimum(mut device: SharedDevice, options: Options, progress: &dyn Progress) -> Result<u64> {
    let mut least = crate::primary_superblock(&*device)?.blocks_count();
    for round in 0..ROUNDS_MAX {
        let plan = match plan(device, Size::Minimum, options, progress) {
            Ok(plan) if plan.is_complete() => plan,
            // As far as the round before came.
            Ok(_) | Err(Error::Refused { .. }) if round > 0 => break,
            Ok(_) => {
                return Err(Error::Refused {
                    why: UNSOUND.into(),
                });
            }
            Err(e) => return Err(e),
        };
        // What files hold is not copied, and nothing here looks at it.
        device = plan.changes.device();
        let blocks = crate::primary_superblock(&*device)?.blocks_count();
        if blocks >= least {
            break;
        }
        least = blocks;
    }
    Ok(least)
}

/// Finds out how to give the file system at byte 0 of `device` another size. What is behind a file
/// system that grows is zeroed where tables will lie; otherwise nothing is written.
///
/// # Errors
/// As for [`super::plan`]; a file system that was not closed or is not sound; a device that is too
/// short; a size that the format, or what is in the file system, does not allow.
pub fn plan(
    device: SharedDevice,
    size: Size,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    let sb = find_superblock(&*device, &mut Sink::new())?;
    super::special::refuse_if_in_use(&*device, &sb)?;
    let mut blocks = match size {
        Size::Blocks(blocks) => return to(&device, &sb, blocks, options, progress),
        Size::Minimum => {
            let draft = Draft::new(Arc::clone(&device), sb.block_size().bytes());
            shrink::least(&tune::sound(&draft, &sb, progress)?)
        }
    };
    for _ in 0..TRIES {
        match to(&device, &sb, blocks, options, progress) {
            Err(Error::Refused { .. }) if blocks < sb.blocks_count() => {
                let more = (blocks / 64).max(64);
                blocks = blocks.saturating_add(more).min(sb.blocks_count());
            }
            done => return done,
        }
    }
    to(&device, &sb, sb.blocks_count(), options, progress)
}

fn to(
    device: &SharedDevice,
    sb: &Superblock,
    blocks: u64,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    let target = possible(sb, blocks)?;
    let needed = target.saturating_mul(sb.block_size().bytes().into());
    if device.size() < needed {
        let size = device.size();
        return Err(Error::TooShort { size, needed });
    }
    let mut draft = Draft::new(Arc::clone(device), sb.block_size().bytes());
    let survey = tune::sound(&draft, sb, progress)?;
    let survey = match target.cmp(&sb.blocks_count()) {
        Ordering::Equal => survey,
        Ordering::Greater => grow::grow(&**device, &mut draft, &survey, target, options, progress)?,
        Ordering::Less => shrink::shrink(&mut draft, survey, target, options, progress)?,
    };
    Ok(Plan::new(draft, survey))
}

fn refused(why: impl Into<String>) -> Error {
    Error::Refused { why: why.into() }
}

/// The superblock with so many blocks, and the groups and inodes that follow from it.
fn with_blocks(sb: &Superblock, blocks: u64) -> Result<Superblock> {
    let raw = sb.raw();
    let first = u64::from(raw.first_data_block.get());
    let per_group = u64::from(raw.blocks_per_group.get());
    let groups = blocks.saturating_sub(first).div_ceil(per_group);
    let inodes = groups.saturating_mul(raw.inodes_per_group.get().into());
    let Ok(inodes) = u32::try_from(inodes) else {
        return Err(refused(format!(
            "{groups} groups of {} inodes are more inodes than there are numbers",
            raw.inodes_per_group.get()
        )));
    };
    // The share that is reserved stays.
    let reserved = u128::from(sb.reserved_blocks_count()) * u128::from(blocks)
        / u128::from(sb.blocks_count().max(1));
    let reserved = u64::try_from(reserved).unwrap_or(u64::MAX);
    // Those that are used stay so.
    let used = sb.inodes_count().saturating_sub(sb.free_inodes_count());
    let descs =
        u64::from(sb.block_size().bytes()) / u64::from(Geometry::new(sb).desc_size().max(1));
    let desc_blocks = groups.div_ceil(descs.max(1));
    let mut changed = sb.with(|raw| {
        raw.blocks_count_lo.set(blocks as u32);
        raw.blocks_count_hi.set((blocks >> 32) as u32);
        raw.inodes_count.set(inodes);
        raw.r_blocks_count_lo.set(reserved as u32);
        raw.r_blocks_count_hi.set((reserved >> 32) as u32);
        raw.free_inodes_count.set(inodes.saturating_sub(used));
        // Linux adds it up when it mounts.
        raw.overhead_clusters.set(0);
        // Blocks of descriptors from this one on lie with their groups: there is none behind the
        // last.
        let first = u64::from(raw.first_meta_bg.get()).min(desc_blocks);
        raw.first_meta_bg.set(first as u32);
        if raw.feature_compat.get() & Compat::SPARSE_SUPER2.bits() != 0 {
            place_backups(raw, sb.groups_count(), groups as u32);
        }
    })?;
    changed.set_free_blocks_count(sb.free_blocks_count().min(blocks));
    Ok(changed)
}

/// With `sparse_super2` the two groups with copies are the second and the last, of which that
/// moves. A copy comes only into a group that is new: where none was, files may lie.
fn place_backups(raw: &mut RawSuperblock, before: u32, groups: u32) {
    let [first, second] = &mut raw.backup_bgs;
    if groups <= before {
        // The one that was last has no room for a copy that was not there.
        for copy in [first, second] {
            if copy.get() >= groups {
                copy.set(0);
            }
        }
        return;
    }
    if before == 1 && first.get() == 0 {
        first.set(1);
    }
    let is_last = second.get() == before.saturating_sub(1);
    let is_wanted = second.get() == 0 && first.get() != 0;
    if groups > 2 && (is_wanted || (is_last && second.get() != 0)) {
        second.set(groups - 1);
    }
}

/// The number of blocks nearest to `blocks` that a file system can have: of whole clusters, and
/// with a last group that has room for more than its own structures.
fn possible(sb: &Superblock, blocks: u64) -> Result<u64> {
    let per_cluster = 1 << Geometry::new(sb).cluster_bits();
    let blocks = blocks - blocks % per_cluster;
    if blocks > u64::from(u32::MAX) && !sb.has_incompat(Incompat::BIT64) {
        return Err(refused(format!(
            "without the feature 64bit there are at most {} blocks",
            u32::MAX
        )));
    }
    let raw = sb.raw();
    let first = u64::from(raw.first_data_block.get());
    let per_group = u64::from(raw.blocks_per_group.get());
    if blocks <= first + LEAST_IN_GROUP || per_group == 0 {
        return Err(refused(format!("{blocks} blocks are no file system")));
    }
    let rest = (blocks - first) % per_group;
    if rest == 0 {
        return Ok(blocks);
    }
    let then = with_blocks(sb, blocks)?;
    let geo = Geometry::new(&then);
    let last = extant_format::Group::new(geo.groups_count().saturating_sub(1));
    let own = geo.group_header(last)?.blocks() + 2 + u64::from(geo.inode_table_blocks());
    if rest >= own + LEAST_IN_GROUP || last.get() == 0 {
        return Ok(blocks);
    }
    Ok(blocks - rest)
}

/// Refuses a layout in which structures lie where something else is: before copies are written
/// there.
fn nothing_overlaps(survey: &Survey) -> Result<()> {
    let codes = [Code::MetadataOverlap, Code::BlockShared];
    if !codes.iter().any(|code| survey.report.has(*code)) {
        return Ok(());
    }
    let why = "structures would lie where something else is";
    let mut findings = survey.report.findings.iter();
    Err(refused(
        match findings.find(|finding| codes.contains(&finding.code)) {
            Some(finding) => format!("{why}: {finding}"),
            None => why.to_owned(),
        },
    ))
}

/// Empties the inode that keeps blocks for descriptors: a repair builds it anew, over what is left
/// of them.
pub(super) fn forget_reserved(draft: &Draft, volume: &Volume) -> Result<()> {
    let Some((mut slot, mut inode)) = volume.inode(Ino::RESIZE)? else {
        return Ok(());
    };
    inode.map.fill(0);
    inode.blocks = 0;
    inode.size = 0;
    inode.encode(&mut slot, &volume.inode_context(Ino::RESIZE))?;
    let offset = volume.inode_offset(Ino::RESIZE).unwrap_or(u64::MAX);
    draft.write(offset, &slot)
}
