//! Where the metadata of the file system itself lies.

use crate::layout::{Draft, PlanResult};
use crate::metadata::FinalMetadata;
use extant_format::group_desc::GroupFlags;
use extant_format::superblock::SUPERBLOCK_OFFSET;
use extant_format::{Group, Pblk};

/// Blocks that hold metadata of the file system itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    pub(super) pblk: u64,
    pub(super) blocks: u32,
    pub(super) what: What,
}

/// What such blocks hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The superblock, or a group's backup of it.
    Superblock(Group),
    /// The table of descriptors, from this one of its blocks on.
    Descriptors(u32),
    BlockBitmap(Group),
    InodeBitmap(Group),
    /// The part of a group's inode table that is in use.
    Table(Group),
    /// A block that the draft keeps.
    Kept,
}

/// Everything that [`write_metadata`](crate::metadata::write_metadata) writes, and the tables of
/// the inodes before `end_ino`, in order of the device.
///
/// # Errors
/// The geometry does not hold a group of its own.
pub(super) fn list(draft: &Draft, done: &FinalMetadata, end_ino: u32) -> PlanResult<Vec<Fixed>> {
    let layout = draft.layout();
    let geometry = layout.geometry();
    let block_len = geometry.block_size().len();
    let mut list: Vec<Fixed> = draft
        .blocks()
        .map(|(at, content)| Fixed {
            pblk: at.get(),
            blocks: content.len().div_ceil(block_len) as u32,
            what: What::Kept,
        })
        .collect();
    let mut add = |at: Pblk, blocks: u32, what| {
        list.push(Fixed {
            pblk: at.get(),
            blocks,
            what,
        });
    };
    let primary = SUPERBLOCK_OFFSET >> geometry.block_size().log2();
    add(Pblk::new(primary), 1, What::Superblock(Group::new(0)));
    let per_group = geometry.inodes_per_group();
    for ((group, desc), place) in geometry.groups().zip(&done.descs).zip(layout.places()) {
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            add(desc.block_bitmap, 1, What::BlockBitmap(group));
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            add(desc.inode_bitmap, 1, What::InodeBitmap(group));
        }
        let before = u64::from(group.get()) * u64::from(per_group);
        let inodes = u64::from(end_ino - 1).saturating_sub(before);
        let inodes = inodes.min(per_group.into()) as u32;
        if inodes > 0 {
            let blocks = inodes.div_ceil(geometry.inodes_per_block());
            add(place.inode_table, blocks, What::Table(group));
        }
        let header = geometry.group_header(group)?;
        let descs = header.descs;
        // The last ones of a table may lie past its end where groups were to come.
        let all = geometry.desc_blocks().saturating_sub(header.first_desc);
        let blocks = (descs.end - descs.start) as u32;
        if blocks > 0 && blocks <= all {
            let what = What::Descriptors(header.first_desc);
            add(Pblk::new(descs.start), blocks, what);
        }
        if let Some(at) = header.super_block.filter(|_| group.get() > 0) {
            add(at, 1, What::Superblock(group));
        }
    }
    list.sort_unstable_by_key(|fixed| fixed.pblk);
    Ok(list)
}
