//! What a walk asks for before it needs it, where a request takes a round trip.
//!
//! All of it is hints: what cannot be read shows when it is needed. They cost reads that a device
//! at hand need not make, so a caller asks [`in_flight`] first.

use crate::fs::Fs;
use crate::inode::{Bulkstat, BulkstatWay, FileType, Inode};
use crate::map::{Runs, Target};
use crate::{dir, map};
use extant_format::group_desc::{DescChecksum, GroupFlags};
use extant_format::{Group, Ino, Pblk};
use std::sync::Arc;

/// Inodes whose records are asked for together.
const TOGETHER: usize = 4096;

/// How many requests are worth having under way at once; 1 where the device answers at once, so
/// that nothing need be asked for ahead.
pub fn in_flight(fs: &Fs) -> usize {
    fs.device().in_flight().max(1)
}

/// Returns how many threads that read large pieces, each another one, are quicker than one that
/// reads them all: as many as a server takes connections from. 1 for other devices.
pub fn parallel_reads(fs: &Fs) -> usize {
    let device = fs.device();
    // What takes several large writes at a time gives several pieces at a time.
    if device.is_served() {
        device.parallel_writes().max(1)
    } else {
        1
    }
}

/// Tells whether a large file is better written past memory, from its beginning to its end, in
/// pieces that begin and end at multiples of `align` bytes: to a server at hand, which takes data
/// as it comes. Where requests take a round trip, more of them are under way when data is written
/// back from memory.
pub fn takes_streams(fs: &Fs, align: u64) -> bool {
    fs.device().is_served() && in_flight(fs) < 2 && u64::from(fs.sector()) <= align
}

/// Brings the records of inodes into memory, as those of a directory's entries.
pub fn inodes_ahead(fs: &Fs, inos: &[Ino]) {
    for some in inos.chunks(TOGETHER) {
        fs.inodes_ahead(some);
    }
}

/// Inodes of a file system of which all are brought into memory for a walk through all of it, at
/// most: some mebibytes of inode tables.
const MOST_INODES: u32 = 24 << 10;

/// Brings into memory what a walk through all of a file system asks for, if that is not too much:
/// all inodes, and what they refer to. The number of round trips then does not follow from how deep
/// directories lie.
pub fn whole_ahead(fs: &Fs, what: Ahead) {
    let groups = fs.geometry().groups_count();
    if groups > MOST_GROUPS {
        return;
    }
    let all = || (0..groups).map(Group::new);
    fs.groups_ahead(all());
    let has_unused = fs.superblock().desc_checksum() != DescChecksum::None;
    let per_group = fs.geometry().inodes_per_group();
    let (mut inodes, mut bitmaps) = (0_u32, Vec::new());
    for group in all() {
        let Ok(desc) = fs.group(group) else { return };
        let used = match has_unused {
            true if desc.flags.contains(GroupFlags::INODE_UNINIT) => 0,
            true => per_group.saturating_sub(desc.itable_unused),
            false => per_group,
        };
        if used > 0 {
            bitmaps.push(desc.inode_bitmap);
            inodes = inodes.saturating_add(used);
        }
    }
    if inodes > MOST_INODES {
        return;
    }
    fs.cache().prefetch_all(bitmaps);
    let how = Bulkstat::new(BulkstatWay::Cache, in_flight(fs));
    let (_, found) = fs.bulkstat_fold(how, Vec::new, |found: &mut Vec<Ino>, ino, result| {
        if result.is_ok() {
            found.push(ino);
        }
    });
    for some in found.concat().chunks(TOGETHER) {
        let load = |ino: &Ino| fs.inode(*ino).ok();
        let inodes: Vec<Arc<Inode>> = some.iter().filter_map(load).collect();
        content_ahead(fs, inodes.iter(), what);
    }
}

/// Inodes from which on it is worth asking for what making them takes.
const MANY: usize = 64;
/// Groups of a file system of which all are asked for, at most.
const MOST_GROUPS: u32 = 256;
/// Bytes of inode tables that are asked for at most.
const MOST_BYTES: u64 = 16 << 20;

/// Brings into memory what making so many directories and files takes, if that is much: bitmaps,
/// and the parts of the inode tables where directories spread over most of the groups.
pub fn making_ahead(fs: &Fs, directories: usize, files: usize) {
    let geometry = fs.geometry();
    let groups = geometry.groups_count();
    let all = directories.saturating_add(files);
    let Ok(alloc) = fs.alloc() else { return };
    if in_flight(fs) < 2 || all < MANY || groups > MOST_GROUPS {
        return;
    }
    let per_group = geometry.inodes_per_group().max(1);
    let of_all = u32::try_from(all).unwrap_or(u32::MAX);
    let spread = u32::try_from(directories).unwrap_or(u32::MAX);
    let used = spread.saturating_add(of_all / per_group).min(groups).max(1);
    let inodes = if used > groups / 2 {
        // Half as many again as a fair share, as directories are not all alike.
        let share = of_all.div_ceil(used);
        let most = MOST_BYTES / u64::from(groups) / u64::from(geometry.inode_size().max(1));
        share
            .saturating_add(share / 2)
            .min(u32::try_from(most).unwrap_or(u32::MAX))
    } else {
        0
    };
    alloc.groups_ahead(Group::new(0), groups, inodes);
}

/// Has the background write back what files have in memory, if that is some mebibytes: so that a
/// link carries it while a caller that makes many files goes on.
pub fn write_behind(fs: &Fs) {
    if in_flight(fs) > 1 {
        fs.data().write_behind();
    }
}

/// What of inodes is asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The first blocks of directories.
    Directories,
    /// Those, and the nodes below the roots of maps.
    Maps,
    /// The nodes below the roots of maps, blocks of attributes, and targets of symbolic links.
    Attributes,
}

/// Brings what inodes refer to into memory.
pub fn content_ahead<'a>(
    fs: &Fs,
    inodes: impl Iterator<Item = &'a Arc<Inode>> + Clone,
    what: Ahead,
) {
    let mut blocks = Vec::new();
    for inode in inodes.clone() {
        if what != Ahead::Directories || inode.is_dir() {
            map::nodes_below_root(inode, |block| blocks.push(block));
        }
        if what == Ahead::Attributes {
            let attributes = inode.disk().file_acl;
            blocks.extend(Some(attributes).filter(|block| block.get() != 0));
            blocks.extend(target_block(fs, inode));
        }
    }
    fs.cache().prefetch_all(blocks);
    if what != Ahead::Attributes {
        dir::read_ahead(fs, inodes.map(|inode| &**inode));
    }
}

/// The block with the target of a symbolic link, where that is not in the inode.
fn target_block(fs: &Fs, inode: &Inode) -> Option<Pblk> {
    let is_link = inode.file_type() == FileType::Symlink;
    if !is_link || inode.is_inline() || fs.is_fast_symlink(inode) {
        return None;
    }
    match Runs::over(fs, inode, 0..1).next()?.ok()?.target {
        Target::Written(block) => Some(block),
        _ => None,
    }
}
