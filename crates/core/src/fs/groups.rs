//! Group descriptors, read when first needed.
//!
//! A large image has a hundred thousand descriptors and most openings touch a few: a block of
//! descriptors is read, checked and unpacked when one of its groups is first asked for. Two threads
//! that ask at once may both read it; the first to finish is kept.

use crate::{Error, InPlace, Place, Result};
use extant_blockdev::SharedDevice;
use extant_format::geometry::Geometry;
use extant_format::group_desc::{DescChecksum, GroupDesc};
use extant_format::superblock::Superblock;
use extant_format::{Expected, FormatError, Group, Pblk, Structure};
use std::sync::OnceLock;

/// Most bytes of descriptors read at once.
const READ_BYTES: usize = 1 << 20;

/// The descriptors of a file system.
pub struct Groups {
    /// One slot for each descriptor block.
    blocks: Box<[OnceLock<Box<[Slot]>>]>,
    checksum: DescChecksum,
    /// First block of the descriptors to believe in place of the primary ones.
    backup: Option<Pblk>,
}

/// A descriptor, or what is wrong with it: one bad descriptor does not hide its neighbours.
type Slot = std::result::Result<GroupDesc, FormatError>;

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups")
            .field("blocks", &self.blocks.len())
            .field("checksum", &self.checksum)
            .finish_non_exhaustive()
    }
}

impl Groups {
    pub(super) fn new(superblock: &Superblock, geometry: &Geometry, backup: Option<Pblk>) -> Self {
        Self {
            blocks: (0..geometry.desc_blocks())
                .map(|_| OnceLock::new())
                .collect(),
            checksum: superblock.desc_checksum(),
            backup,
        }
    }

    /// The descriptor of `group`.
    ///
    /// # Errors
    /// When there is no such group, the device fails, or the descriptor breaks the format.
    pub fn get(
        &self,
        device: &SharedDevice,
        geometry: &Geometry,
        group: Group,
    ) -> Result<GroupDesc> {
        let place = Place::Group(group);
        if group.get() >= geometry.groups_count() {
            let last = u64::from(geometry.groups_count()).saturating_sub(1);
            let expected = Expected::AtMost(last);
            let source = FormatError::new(
                Structure::GroupDescriptor,
                "group",
                group.get().into(),
                expected,
            );
            return Err(Error::corrupt(place, source));
        }
        let per_block = geometry.descs_per_block().max(1);
        let index = group.get() / per_block;
        let slots = match self.loaded(index) {
            Some(slots) => slots,
            None => {
                self.load(device, geometry, index, 1)?;
                self.loaded(index).unwrap_or(&[])
            }
        };
        match slots.get((group.get() % per_block) as usize) {
            Some(slot) => slot.in_place(place),
            None => Err(Error::corrupt(
                place,
                FormatError::short(Structure::GroupDescriptor, slots.len(), 1),
            )),
        }
    }

    /// Reads every descriptor that is not in memory yet, in large pieces.
    ///
    /// # Errors
    /// When the device fails.
    pub fn load_all(&self, device: &SharedDevice, geometry: &Geometry) -> Result<()> {
        let most = (READ_BYTES / geometry.block_size().len()).max(1) as u32;
        let mut index = 0;
        while index < geometry.desc_blocks() {
            if self.loaded(index).is_some() {
                index += 1;
                continue;
            }
            let mut count = 1;
            while count < most
                && index + count < geometry.desc_blocks()
                && self.loaded(index + count).is_none()
                && self.follows(geometry, index + count)
            {
                count += 1;
            }
            self.load(device, geometry, index, count)?;
            index += count;
        }
        Ok(())
    }

    fn loaded(&self, index: u32) -> Option<&[Slot]> {
        self.blocks.get(index as usize)?.get().map(|slots| &**slots)
    }

    fn address(&self, geometry: &Geometry, index: u32) -> Result<Pblk> {
        match self.backup {
            Some(first) if index < geometry.classic_desc_blocks() => {
                Ok(Pblk::new(first.get().saturating_add(index.into())))
            }
            _ => geometry.desc_block(index).in_place(Place::Superblock),
        }
    }

    /// Whether descriptor block `index` lies right after the one before it.
    fn follows(&self, geometry: &Geometry, index: u32) -> bool {
        let address = |index| self.address(geometry, index).ok();
        match (index.checked_sub(1).and_then(address), address(index)) {
            (Some(before), Some(this)) => before.checked_add(1) == Some(this),
            _ => false,
        }
    }

    fn load(
        &self,
        device: &SharedDevice,
        geometry: &Geometry,
        first: u32,
        count: u32,
    ) -> Result<()> {
        let block_size = geometry.block_size();
        let address = self.address(geometry, first)?;
        let mut bytes = vec![0; block_size.len() * count as usize];
        let offset = block_size.offset_of(address).unwrap_or(u64::MAX);
        device.read_at(offset, &mut bytes)?;
        for (index, block) in (first..).zip(bytes.chunks_exact(block_size.len())) {
            if let Some(cell) = self.blocks.get(index as usize) {
                // Lost to another thread that read the same bytes: nothing to do.
                let _ = cell.set(self.unpack(geometry, index, block));
            }
        }
        Ok(())
    }

    fn unpack(&self, geometry: &Geometry, index: u32, block: &[u8]) -> Box<[Slot]> {
        let per_block = geometry.descs_per_block();
        let first = index.saturating_mul(per_block);
        let count = geometry.groups_count().saturating_sub(first).min(per_block);
        block
            .chunks_exact(geometry.desc_size().max(32) as usize)
            .zip(first..first.saturating_add(count))
            .map(|(bytes, group)| {
                let group = Group::new(group);
                let desc = GroupDesc::parse(bytes, group, &self.checksum)?;
                desc.validate(group, geometry)?;
                Ok(desc)
            })
            .collect()
    }
}

impl super::Fs {
    /// The descriptor of `group`.
    ///
    /// # Errors
    /// When there is no such group, the device fails, or the descriptor breaks the format.
    pub fn group(&self, group: Group) -> Result<GroupDesc> {
        self.groups.get(&self.device, &self.geometry, group)
    }
}
