//! Copies of the superblock and of descriptors that stay as an older image has them.
//!
//! Of a copy, Linux and checkers need where things lie. Counts of what is free and times are those
//! of the day when it was made: Linux changes them in the first copy alone. So an image that shall
//! be like an older one keeps the copies of that, as long as all else in them is still true.

use super::FinalMetadata;
use extant_format::Group;
use extant_format::features::Incompat;
use extant_format::geometry::Geometry;
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::superblock::{RawSuperblock, SUPERBLOCK_LEN, Superblock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The copies of an older image, by the number of the group they are in.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormerCopies {
    groups: BTreeMap<u32, FormerCopy>,
}

/// What a group has.
#[derive(Clone, Debug)]
pub(crate) struct FormerCopy {
    pub(crate) superblock: Vec<u8>,
    pub(crate) descriptors: Arc<[u8]>,
}

impl FormerCopies {
    /// Adds what a group has. Tables that are the same are held once.
    pub(crate) fn add(&mut self, group: u32, superblock: Vec<u8>, descriptors: &[u8]) {
        let last = self.groups.values().next_back();
        let descriptors = match last.filter(|last| *last.descriptors == *descriptors) {
            Some(last) => Arc::clone(&last.descriptors),
            None => descriptors.into(),
        };
        let copy = FormerCopy {
            superblock,
            descriptors,
        };
        self.groups.insert(group, copy);
    }

    /// The copies in a group, if they are still true of what is made. `superblock` and
    /// `descriptors` are those that would be written there.
    pub(crate) fn still_true(
        &self,
        group: Group,
        superblock: &[u8],
        descriptors: &[u8],
        geometry: &Geometry,
        done: &FinalMetadata,
    ) -> Option<&FormerCopy> {
        let copy = self.groups.get(&group.get())?;
        // With `meta_bg`, what lies in a group may be no copy.
        let is_copy = !done.superblock.has_incompat(Incompat::META_BG)
            && copy.descriptors.len() == descriptors.len();
        let is_true = is_copy
            && says_the_same(&copy.superblock, superblock)
            && descriptors_are_true(&copy.descriptors, geometry, done);
        is_true.then_some(copy)
    }
}

/// Whether two superblocks differ in counts and times alone.
fn says_the_same(old: &[u8], new: &[u8]) -> bool {
    let lasting = |bytes: &[u8]| -> Option<[u8; SUPERBLOCK_LEN]> {
        let superblock = Superblock::parse(bytes).ok()?;
        Some(superblock.with(forget).ok()?.encode())
    };
    lasting(new).is_some_and(|new| lasting(old) == Some(new))
}

/// Takes out what a copy need not have as the first superblock has it.
fn forget(raw: &mut RawSuperblock) {
    for count in [
        &mut raw.free_blocks_count_lo,
        &mut raw.free_blocks_count_hi,
        &mut raw.free_inodes_count,
        &mut raw.mtime,
        &mut raw.wtime,
        &mut raw.lastcheck,
        &mut raw.mkfs_time,
    ] {
        count.set(0);
    }
    for high in [
        &mut raw.mtime_hi,
        &mut raw.wtime_hi,
        &mut raw.lastcheck_hi,
        &mut raw.mkfs_time_hi,
    ] {
        *high = 0;
    }
    raw.mnt_count.set(0);
    raw.kbytes_written.set(0);
}

/// Whether descriptors say of each group where its bitmaps and its table lie, and of no group that
/// is in use that it is not.
fn descriptors_are_true(table: &[u8], geometry: &Geometry, done: &FinalMetadata) -> bool {
    let size = geometry.desc_size() as usize;
    let per_block = geometry.descs_per_block() as usize;
    let block_len = geometry.block_size().len();
    let sum = done.superblock.desc_checksum();
    geometry.groups().zip(&done.descs).all(|(group, new)| {
        let index = group.get() as usize;
        let at = index / per_block * block_len + index % per_block * size;
        let bytes = table.get(at..at + size);
        let old = bytes.and_then(|bytes| GroupDesc::parse(bytes, group, &sum).ok());
        old.is_some_and(|old| {
            let is_zeroed = new.flags.contains(GroupFlags::INODE_ZEROED);
            old.block_bitmap == new.block_bitmap
                && old.inode_bitmap == new.inode_bitmap
                && old.inode_table == new.inode_table
                && new.flags.contains(old.flags)
                && (is_zeroed || old.itable_unused <= new.itable_unused)
        })
    })
}
