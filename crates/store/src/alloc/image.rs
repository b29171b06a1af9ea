//! What commit takes of a group, and what it makes of that.

use super::bits::Bitmap;
use super::group::Loaded;
use super::{Alloc, GROUPS};
use crate::journal::{CapturedItem, Handle, Images, LogItem, Numbers, Seq};
use crate::mutants::{Mutant, is_on};
use crate::volume::Volume;
use crate::{Error, InPlace, Place, Result};
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::{Expected, FormatError, Group, Pblk, Structure};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A group as it was when the transaction was drained. Taking it costs a few counts.
#[derive(Clone, Debug)]
pub struct GroupImage {
    group: Group,
    desc: GroupDesc,
    blocks: Bitmap,
    inodes: Bitmap,
    blocks_changed: bool,
    inodes_changed: bool,
}

/// Blocks of the log that a group takes: two bitmaps, and the block with the descriptor.
const BLOCKS: u32 = 3;

/// The groups that a transaction changed.
struct CapturedGroups<'a> {
    alloc: &'a Alloc,
    images: Vec<GroupImage>,
}

impl LogItem for Alloc {
    fn capture(&self, _: Seq, numbers: &mut Numbers) -> Result<Option<Box<dyn CapturedItem + '_>>> {
        let groups = numbers.take(GROUPS);
        if groups.is_empty() {
            return Ok(None);
        }
        let images = groups
            .into_iter()
            .map(|group| self.group_image(Group::new(group)))
            .collect::<Result<_>>()?;
        Ok(Some(Box::new(CapturedGroups {
            alloc: self,
            images,
        })))
    }

    fn committed(&self, seq: Seq) {
        self.release_freed(seq);
    }
}

impl CapturedItem for CapturedGroups<'_> {
    fn encode(self: Box<Self>, _: Seq, images: &mut Images) -> Result<()> {
        for (block, bytes) in self.alloc.encode_groups(&self.images)? {
            images.add(block, bytes);
        }
        Ok(())
    }
}

impl Alloc {
    /// Registers a group, whose bitmaps or descriptor are about to change.
    pub(super) fn touch_group(&self, handle: &Handle<'_>, group: Group, loaded: &Loaded) {
        handle.touch_number(GROUPS, group.get(), BLOCKS, &loaded.touched);
    }

    /// The image of a group that the transaction has changed. Called once for each when no handle
    /// is inside.
    ///
    /// # Errors
    /// When the group was never loaded, so that nothing can have changed it: a defect.
    pub fn group_image(&self, group: Group) -> Result<GroupImage> {
        let slot = self.slot(group)?;
        let loaded = slot.loaded().ok_or(Error::InvalidInput(
            "the image of a group that nobody changed",
        ))?;
        let mut state = slot.lock(loaded).ok_or(Error::Internal(
            "a group left memory before its change was committed",
        ))?;
        let image = GroupImage {
            group,
            desc: state.desc,
            blocks: if is_on(Mutant::AllocatorBitmapStored) {
                Bitmap::new(&state.space.used(state.blocks.bits().len()))
            } else {
                state.blocks.clone()
            },
            inodes: state.inodes.clone(),
            blocks_changed: std::mem::take(&mut state.blocks_changed),
            inodes_changed: std::mem::take(&mut state.inodes_changed),
        };
        state.before = state.blocks.clone();
        Ok(image)
    }

    /// Turns images of groups into images of blocks: their bitmaps, and the blocks of descriptors,
    /// each once. Checksums are computed here. Reads nothing from the device.
    ///
    /// Calls for different transactions come in the order of the transactions.
    ///
    /// # Errors
    /// When a group has no place among the descriptors, which no group that was loaded has.
    pub fn encode_groups(&self, images: &[GroupImage]) -> Result<Vec<(Pblk, Arc<[u8]>)>> {
        let mut encoded = Vec::with_capacity(images.len() * 2);
        let mut by_block: BTreeMap<u32, Vec<(Group, GroupDesc)>> = BTreeMap::new();
        for image in images {
            let desc = image.sealed(&self.volume);
            if image.blocks_changed {
                encoded.push((desc.block_bitmap, image.blocks.image()));
            }
            if image.inodes_changed {
                encoded.push((desc.inode_bitmap, image.inodes.image()));
            }
            let index = image.group.get() / self.volume.geometry().descs_per_block().max(1);
            by_block.entry(index).or_default().push((image.group, desc));
        }
        if is_on(Mutant::DescriptorsSkipped) {
            by_block.clear();
        }
        for (index, descs) in by_block {
            let block = self.desc_block(index)?;
            let mut bytes = block.lock();
            let Some(bytes) = bytes.as_mut() else {
                let what = Structure::GroupDescriptor;
                let expected = Expected::Said("in memory with its group");
                let source = FormatError::new(what, "block", index.into(), expected);
                return Err(Error::corrupt(Place::Superblock, source));
            };
            for (group, desc) in descs {
                self.encode_descriptor(Arc::make_mut(bytes), group, &desc)?;
            }
            let place = self.volume.geometry().desc_block(index);
            encoded.push((place.in_place(Place::Superblock)?, Arc::clone(bytes)));
        }
        Ok(encoded)
    }

    fn encode_descriptor(&self, block: &mut [u8], group: Group, desc: &GroupDesc) -> Result<()> {
        let place = Place::Group(group);
        let (_, at) = self
            .volume
            .geometry()
            .desc_position(group)
            .in_place(place)?;
        let end = at.saturating_add(self.volume.geometry().desc_size());
        let bytes = block.get_mut(at as usize..end as usize).unwrap_or_default();
        desc.encode(bytes, group, &self.volume.superblock().desc_checksum())
            .in_place(place)
    }
}

/// Brings the checksums of the bitmaps in a descriptor up to date.
pub(super) fn seal(volume: &Volume, desc: &mut GroupDesc, blocks: &Bitmap, inodes: &Bitmap) {
    if !volume.superblock().has_metadata_csum() {
        return;
    }
    let geometry = volume.geometry();
    let seed = volume.superblock().checksum_seed();
    // An uninitialised bitmap has none that anybody looks at: what the descriptor had stays.
    if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        desc.block_bitmap_csum = blocks.checksum(seed, geometry.clusters_per_group());
    }
    if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
        desc.inode_bitmap_csum = inodes.checksum(seed, geometry.inodes_per_group());
    }
}

impl GroupImage {
    /// The descriptor, with the checksums of the bitmaps.
    fn sealed(&self, volume: &Volume) -> GroupDesc {
        let mut desc = self.desc;
        seal(volume, &mut desc, &self.blocks, &self.inodes);
        desc
    }
}
