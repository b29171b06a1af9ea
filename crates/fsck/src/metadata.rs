//! The blocks of the file system's own structures: superblocks, descriptors, bitmaps, inode tables.

use crate::blockset::BlockSet;
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::{Group, Pblk};
use std::ops::Range;

/// What the file system's own structures take.
#[derive(Default)]
pub(crate) struct Fixed {
    /// Clusters.
    pub(crate) clusters: BlockSet,
    /// Blocks that several structures lie in.
    pub(crate) contested: BlockSet,
}

/// What all fixed structures take.
pub(crate) fn fixed(volume: &Volume, sink: &mut Sink) -> Fixed {
    let mut blocks = BlockSet::default();
    let mut clusters = BlockSet::default();
    let mut contested = BlockSet::default();
    let end = volume.geo.blocks_count();
    let mut take = |place: Place, what: &str, range: Range<u64>, sink: &mut Sink| {
        let range = range.start.min(end)..range.end.min(end);
        if range.is_empty() {
            return;
        }
        let mut again = None;
        blocks.insert(range.clone(), &mut |both| {
            again.get_or_insert(both.start);
            contested.add(both);
        });
        if let Some(block) = again {
            let text = format!("the {what} lies over another structure");
            sink.say(
                Code::MetadataOverlap,
                place.at_block(Pblk::new(block)),
                text,
            );
        }
        clusters.add(volume.clusters_of(range));
    };
    let one = |block: Pblk| block.get()..block.get() + 1;
    for group in volume.geo.groups() {
        let place = Place::group(group);
        if let Ok(header) = volume.geo.group_header(group) {
            if let Some(block) = header.super_block {
                let first = volume.geo.group_first_block(group).unwrap_or(block);
                take(place, "superblock", first.get()..block.get() + 1, sink);
            }
            take(place, "descriptor table", header.descs.clone(), sink);
            take(place, "reserve for descriptors", header.reserved_gdt, sink);
        }
    }
    let table = u64::from(volume.geo.inode_table_blocks());
    for (i, state) in volume.groups.iter().enumerate() {
        if !state.located {
            continue;
        }
        let place = Place::group(Group::new(i as u32));
        let desc = &state.desc;
        take(place, "block bitmap", one(desc.block_bitmap), sink);
        take(place, "inode bitmap", one(desc.inode_bitmap), sink);
        let first = desc.inode_table.get();
        take(
            place,
            "inode table",
            first..first.saturating_add(table),
            sink,
        );
    }
    if let Some(block) = volume.sb.mmp_block()
        && volume.physical().contains(&block.get())
    {
        let place = Place::FILE_SYSTEM;
        take(place, "multiple-mount protection block", one(block), sink);
    }
    Fixed {
        clusters,
        contested,
    }
}
