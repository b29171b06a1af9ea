//! What a walk asks for before it needs it, where a request takes a round trip.
//!
//! All of it is hints: what cannot be read shows when it is needed. They cost reads that a device
//! at hand need not make, so a caller asks [`in_flight`] first.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::{dir, map};
use extant_format::{Group, Ino};
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

/// What of inodes is asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The first blocks of directories.
    Directories,
    /// Those, and the nodes below the roots of maps.
    Maps,
    /// The nodes below the roots of maps, and blocks of attributes.
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
        if what == Ahead::Attributes && inode.disk().file_acl.get() != 0 {
            blocks.push(inode.disk().file_acl);
        }
    }
    fs.cache().prefetch_all(blocks);
    if what != Ahead::Attributes {
        dir::read_ahead(fs, inodes.map(|inode| &**inode));
    }
}
