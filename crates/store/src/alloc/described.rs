//! What the descriptors of all groups say, read once, when the file system is opened.
//!
//! Of most file systems that is done in no time. One of 1 TiB with blocks of 1 KiB has 131,072
//! groups, whose descriptors lie in 8,192 places: two threads read a half of them each.

use super::fixed::{Fixed, FixedBuilder};
use super::group::Slot;
use super::order::OrderIndex;
use crate::volume::Volume;
use crate::{Error, Place, Result};
use extant_format::Group;
use extant_format::error::FormatError;
use extant_format::group_desc::{DescChecksum, GroupDesc};
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

/// Fewer groups than so many are read by one thread: another one would hardly have begun.
const SHARED_FROM: u32 = 1 << 15;

/// What the descriptors say.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) slots: Vec<Slot>,
    pub(super) fixed: Fixed,
    /// Free clusters, free inodes and directories.
    pub(super) free: u64,
    pub(super) inodes: u64,
    pub(super) dirs: u64,
}

/// What some descriptors say that follow each other.
#[derive(Debug, Default)]
struct Part {
    slots: Vec<Slot>,
    fixed: FixedBuilder,
    free: u64,
    inodes: u64,
    dirs: u64,
    /// The first that has a count which cannot be.
    wrong: Option<(Group, FormatError)>,
}

impl Described {
    /// Reads all descriptors. Puts the groups into `index`, which is empty.
    ///
    /// # Errors
    /// When the device fails, a descriptor is damaged, or two groups claim one block.
    pub(super) fn read(volume: &Volume, index: &OrderIndex) -> Result<Self> {
        let geometry = volume.geometry();
        let is_shared = geometry.groups_count() >= SHARED_FROM
            && thread::available_parallelism().is_ok_and(|threads| threads.get() > 1);
        let all = Part::read(volume, index, is_shared)?;
        if let Some((group, source)) = all.wrong {
            return Err(Error::corrupt(Place::Group(group), source));
        }
        Ok(Self {
            slots: all.slots,
            fixed: all.fixed.finish(geometry)?,
            free: all.free,
            inodes: all.inodes,
            dirs: all.dirs,
        })
    }
}

impl Part {
    /// Reads all descriptors, with two threads if that `is_shared`.
    fn read(volume: &Volume, index: &OrderIndex, is_shared: bool) -> Result<Self> {
        let geometry = volume.geometry();
        let (blocks, groups) = (geometry.desc_blocks(), geometry.groups_count() as usize);
        if !is_shared {
            return Self::of(volume, index, 0..blocks, groups);
        }
        let half = blocks / 2;
        let behind = || Self::of(volume, index, half..blocks, groups.div_ceil(2));
        let (front, behind) = thread::scope(|scope| {
            let started = thread::Builder::new().spawn_scoped(scope, behind);
            let front = Self::of(volume, index, 0..half, groups);
            let behind = match started {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The system has no more threads.
                Err(_) => behind(),
            };
            (front, behind)
        });
        let mut all = front?;
        all.append(behind?);
        Ok(all)
    }

    /// Reads the descriptors of these blocks, with room for `groups`.
    fn of(volume: &Volume, index: &OrderIndex, blocks: Range<u32>, groups: usize) -> Result<Self> {
        let geometry = volume.geometry();
        let has_sums = volume.superblock().desc_checksum() != DescChecksum::None;
        let table_blocks = geometry.inode_table_blocks();
        let mut part = Self {
            slots: Vec::with_capacity(groups),
            ..Self::default()
        };
        let mut filler = index.filler();
        volume.for_each_group_in(blocks, |group, desc| {
            let checked = if has_sums {
                desc.validate_counts(group, geometry)
            } else {
                // Without checksums nobody looks at how many inodes were never used.
                let believed = GroupDesc {
                    itable_unused: 0,
                    ..*desc
                };
                believed.validate_counts(group, geometry)
            };
            if let Err(source) = checked {
                part.wrong.get_or_insert((group, source));
            }
            part.slots.push(Slot::new(group, desc));
            filler.add(group.get(), desc.free_clusters);
            part.fixed.add(group, desc, table_blocks);
            part.free += u64::from(desc.free_clusters);
            part.inodes += u64::from(desc.free_inodes);
            part.dirs += u64::from(desc.used_dirs);
        })?;
        filler.finish();
        Ok(part)
    }

    /// Adds what the descriptors behind say.
    fn append(&mut self, mut next: Self) {
        self.slots.append(&mut next.slots);
        self.fixed.append(next.fixed);
        self.free += next.free;
        self.inodes += next.inodes;
        self.dirs += next.dirs;
        self.wrong = self.wrong.take().or(next.wrong);
    }
}
