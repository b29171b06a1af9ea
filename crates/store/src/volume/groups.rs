//! Group descriptors.
//!
//! A block of descriptors is metadata like any other: it comes through the cache, which bounds its
//! memory however many groups an image claims to have. A descriptor is checked each time it is
//! unpacked, by itself: a bad one does not hide its neighbours. A caller that adds up all of them
//! reads around the cache, in large pieces.

use super::Volume;
use crate::{Error, InPlace, Place, Result};
use extant_format::geometry::Geometry;
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFlags};
use extant_format::superblock::Superblock;
use extant_format::{Expected, FormatError, Group, Pblk, Structure};
use std::ops::Range;

/// Most bytes of descriptors read at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of descriptors that come into the cache together.
const READAHEAD_BYTES: u32 = 16 << 10;

/// How the descriptors of a file system are found and checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    checksum: DescChecksum,
    /// First block of the descriptors to believe in place of the primary ones.
    backup: Option<Pblk>,
}

impl Groups {
    pub(super) fn new(superblock: &Superblock, backup: Option<Pblk>) -> Self {
        Self {
            checksum: superblock.desc_checksum(),
            backup,
        }
    }

    /// Where the first of the descriptors that lie side by side is, and how many blocks they take.
    fn classic(&self, geometry: &Geometry) -> (u64, u32) {
        let count = geometry.classic_desc_blocks();
        let first = match self.backup {
            Some(first) => first.get(),
            None => geometry.desc_block(0).map_or(0, Pblk::get),
        };
        (first, count)
    }

    /// The block of descriptors number `index`.
    fn address(&self, geometry: &Geometry, index: u32) -> Result<Pblk> {
        let (first, count) = self.classic(geometry);
        if index < count {
            Ok(Pblk::new(first.saturating_add(index.into())))
        } else {
            geometry.desc_block(index).in_place(Place::Superblock)
        }
    }

    /// Unpacks and checks one descriptor.
    fn unpack(&self, geometry: &Geometry, group: Group, bytes: &[u8]) -> Result<GroupDesc> {
        GroupDesc::parse(bytes, group, &self.checksum)
            .and_then(|desc| desc.validate(group, geometry).map(|()| desc))
            .in_place(Place::Group(group))
    }
}

impl Volume {
    /// The descriptor of `group` as it was when the file system was opened, if nothing has loaded
    /// the group since.
    ///
    /// # Errors
    /// When there is no such group, the device fails, or the descriptor breaks the format.
    pub fn stored_group(&self, group: Group) -> Result<GroupDesc> {
        let geometry = &self.geometry;
        let place = Place::Group(group);
        if group.get() >= geometry.groups_count() {
            let last = u64::from(geometry.groups_count()).saturating_sub(1);
            let what = Structure::GroupDescriptor;
            let found = group.get().into();
            let source = FormatError::new(what, "group", found, Expected::AtMost(last));
            return Err(Error::corrupt(place, source));
        }
        let per_block = geometry.descs_per_block().max(1);
        let index = group.get() / per_block;
        let block = self.groups.address(geometry, index)?;
        let (first, count) = self.groups.classic(geometry);
        if index < count {
            let window = READAHEAD_BYTES >> geometry.block_size().log2();
            self.prefetch_around(block, window, first..first.saturating_add(count.into()));
        }
        // Each descriptor has a checksum of its own; the block has none.
        let bytes = self.metadata(block, place, Structure::GroupDescriptor, None, |_| Ok(()))?;
        let size = geometry.desc_size() as usize;
        let at = (group.get() % per_block) as usize * size;
        let bytes = bytes.get(at..at.saturating_add(size)).unwrap_or(&[]);
        self.groups.unpack(geometry, group, bytes)
    }

    /// Brings the descriptors of these groups into memory with one batch of reads, for devices that
    /// have many requests under way at once. A hint.
    pub fn groups_ahead(&self, groups: impl Iterator<Item = Group>) {
        let geometry = &self.geometry;
        let per_block = geometry.descs_per_block().max(1);
        let window = (READAHEAD_BYTES >> geometry.block_size().log2()).max(1);
        let mut blocks: Vec<Pblk> = Vec::new();
        let mut last = None;
        for group in groups {
            let first = group.get() / per_block / window * window;
            if last != Some(first) {
                last = Some(first);
                let end = first.saturating_add(window).min(geometry.desc_blocks());
                blocks.extend((first..end).flat_map(|index| self.groups.address(geometry, index)));
            }
        }
        self.cache.prefetch_all(blocks);
    }

    /// The blocks with the bitmaps of a group, as far as the device has them.
    pub fn stored_bitmaps(&self, desc: &GroupDesc) -> impl Iterator<Item = Pblk> + use<> {
        let may_be_absent = self.groups.checksum != DescChecksum::None;
        let of = |block, none| {
            let is_absent = may_be_absent && desc.flags.contains(none);
            (!is_absent).then_some(block)
        };
        let bitmaps = [
            of(desc.block_bitmap, GroupFlags::BLOCK_UNINIT),
            of(desc.inode_bitmap, GroupFlags::INODE_UNINIT),
        ];
        bitmaps.into_iter().flatten()
    }

    /// Calls `visit` with every descriptor, ascending by group. They are read in large pieces
    /// around the cache, and memory for one piece is all it takes.
    ///
    /// # Errors
    /// When the device fails, or a descriptor breaks the format.
    pub fn for_each_group(&self, visit: impl FnMut(Group, &GroupDesc)) -> Result<()> {
        self.for_each_group_in(0..self.geometry.desc_blocks(), visit)
    }

    /// Calls `visit` as [`for_each_group`](Self::for_each_group) does, with the descriptors of
    /// these blocks alone, by their number in the table.
    pub(crate) fn for_each_group_in(
        &self,
        blocks: Range<u32>,
        mut visit: impl FnMut(Group, &GroupDesc),
    ) -> Result<()> {
        let geometry = &self.geometry;
        let here = geometry.descs_per_block() as usize;
        let block_size = geometry.block_size();
        let size = geometry.desc_size().max(32) as usize;
        let most = (READ_BYTES / block_size.len()).max(1);
        let mut bytes = Vec::new();
        let mut groups = geometry.groups().skip(blocks.start as usize * here);
        let mut index = blocks.start;
        while index < blocks.end {
            let address = self.groups.address(geometry, index)?;
            let most = most.min((blocks.end - index) as usize);
            let together = self.side_by_side(index, address, most);
            bytes.resize(together as usize * block_size.len(), 0);
            let offset = block_size.offset_of(address).unwrap_or(u64::MAX);
            self.device.read_at(offset, &mut bytes)?;
            for block in bytes.chunks_exact(block_size.len()) {
                for (bytes, group) in block.chunks_exact(size).zip(groups.by_ref().take(here)) {
                    visit(group, &self.groups.unpack(geometry, group, bytes)?);
                }
            }
            index += together;
        }
        Ok(())
    }

    /// How many descriptor blocks from number `index` on, which lies at `address`, follow each
    /// other on the device: at least 1, at most `most`.
    fn side_by_side(&self, index: u32, address: Pblk, most: usize) -> u32 {
        let left = self.geometry.desc_blocks() - index;
        let most = left.min(u32::try_from(most).unwrap_or(u32::MAX));
        (1..most)
            .take_while(|&step| {
                let next = self.groups.address(&self.geometry, index + step);
                next.is_ok_and(|next| address.checked_add(step.into()) == Some(next))
            })
            .count() as u32
            + 1
    }
}
