//! Bitmaps and counts of every group against what is in use, and the sums in the superblock.

use crate::blockset::BlockSet;
use crate::error::Result;
use crate::inode_table::InodeTable;
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Pass, Place, Progress};
use extant_format::bitmap;
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFlags, GroupState};
use extant_format::{Group, Ino, Pblk};
use rayon::prelude::*;

/// What is said of a group with inodes that says that it has none.
const UNUSED_BUT_USED: &str = "the inodes are said to be unused, and some are in use";

/// What the groups sum up to.
#[derive(Debug)]
pub(crate) struct Sums {
    pub(crate) sink: Sink,
    pub(crate) free_clusters: u64,
    pub(crate) free_inodes: u64,
}

impl Sums {
    fn new() -> Self {
        Self {
            sink: Sink::new(),
            free_clusters: 0,
            free_inodes: 0,
        }
    }

    fn absorb(mut self, other: Self) -> Self {
        self.sink.absorb(other.sink);
        self.free_clusters += other.free_clusters;
        self.free_inodes += other.free_inodes;
        self
    }
}

/// Compares bitmaps and counts. `used` are all clusters in use.
pub(crate) fn run(
    volume: &Volume,
    used: &BlockSet,
    table: &InodeTable,
    progress: &dyn Progress,
) -> Result<Sums> {
    let groups = volume.geo.groups_count();
    progress.begin(Pass::Bitmaps, groups.into());
    (0..groups)
        .into_par_iter()
        .try_fold(Sums::new, |mut sums, group| {
            if let Some(state) = volume.groups.get(group as usize) {
                blocks(volume, Group::new(group), state, used, &mut sums)?;
                inodes(volume, Group::new(group), state, table, &mut sums)?;
            }
            progress.advance(1);
            Ok(sums)
        })
        .try_reduce(Sums::new, |a, b| Ok(a.absorb(b)))
}

pub(crate) fn fill(set: &BlockSet, first: u64, bits: u32, map: &mut [u8]) {
    set.runs(first..first + u64::from(bits), &mut |run| {
        bitmap::set_range(map, (run.start - first) as u32..(run.end - first) as u32);
    });
}

/// The clusters that are in use in a group whose bitmap was never written: Linux makes such a
/// bitmap of the group's own structures alone, as far as they lie in it. What others keep there
/// would be handed out.
pub(crate) fn own_structures(volume: &Volume, group: Group, state: &GroupState) -> BlockSet {
    let mut own = BlockSet::default();
    let mut take = |blocks: std::ops::Range<u64>| own.add(volume.clusters_of(blocks));
    if let Ok(header) = volume.geo.group_header(group)
        && let Ok(first) = volume.geo.group_first_block(group)
        && header.end() > first
    {
        take(first.get()..header.end().get());
    }
    let desc = &state.desc;
    for block in [desc.block_bitmap.get(), desc.inode_bitmap.get()] {
        take(block..block.saturating_add(1));
    }
    let table = desc.inode_table.get();
    take(table..table.saturating_add(volume.geo.inode_table_blocks().into()));
    own
}

/// Whether the group may be shorter than others: the bits past its end are set in its bitmap, so
/// that must be written.
pub(crate) fn is_last(volume: &Volume, group: Group) -> bool {
    group.get() + 1 == volume.geo.groups_count()
}

/// The block bitmap of a group as it is stored, `None` if it was never written, or if it is not
/// known where it lies or what its checksum says.
pub(crate) fn believed(volume: &Volume, group: Group) -> Result<Option<Vec<u8>>> {
    let state = volume.groups.get(group.get() as usize);
    let Some(state) = state.filter(|state| state.located) else {
        return Ok(None);
    };
    if state.says(GroupFlags::BLOCK_UNINIT) {
        return Ok(None);
    }
    let bits = volume.block(state.desc.block_bitmap)?;
    let is_right = volume.seed.is_none_or(|seed| {
        let per_group = volume.geo.clusters_per_group();
        let computed = bitmap::checksum(seed.value(), &bits, per_group);
        let size = volume.geo.desc_size();
        state.desc.block_bitmap_csum_matches(computed, size)
    });
    Ok(is_right.then_some(bits))
}

fn blocks(
    volume: &Volume,
    group: Group,
    state: &GroupState,
    used: &BlockSet,
    sums: &mut Sums,
) -> Result<()> {
    let Ok(bits) = volume.geo.clusters_in_group(group) else {
        return Ok(());
    };
    let place = Place::group(group);
    let per_group = volume.geo.clusters_per_group();
    let first = u64::from(group.get()) * u64::from(per_group);
    let size = volume.block_size().len();
    let mut expected = vec![0; size];
    fill(used, first, bits, &mut expected);
    let free = bitmap::count_clear(&expected, 0..bits);
    sums.free_clusters += u64::from(free);
    if state.desc.free_clusters != free {
        let what = "free clusters of the group";
        let found = state.desc.free_clusters;
        sums.sink
            .number(Code::GroupFreeBlocks, place, what, found, free);
    }
    if !state.located {
        return Ok(());
    }
    let mut found = vec![0; size];
    let unwritten = state.says(GroupFlags::BLOCK_UNINIT);
    if unwritten {
        if is_last(volume, group) {
            let text = "the last group says that its block bitmap was never written, which no group with an end of its own may";
            sums.sink.say(Code::GroupFlags, place, text);
        }
        let own = own_structures(volume, group, state);
        fill(&own, first, bits, &mut found);
    } else {
        volume.read(state.desc.block_bitmap, &mut found)?;
        let place = place.at_block(state.desc.block_bitmap);
        if let Some(seed) = volume.seed {
            let computed = bitmap::checksum(seed.value(), &found, per_group);
            let size = volume.geo.desc_size();
            if !state.desc.block_bitmap_csum_matches(computed, size) {
                let (what, stored) = ("checksum", state.desc.block_bitmap_csum);
                sums.sink
                    .number(Code::BlockBitmapChecksum, place, what, stored, computed);
            }
        }
        if !bitmap::padding_is_set(&found, bits) {
            let text = "the bits past the end of the group are not all set";
            sums.sink.say(Code::BlockBitmapPadding, place, text);
        }
    }
    let base = volume.block_of_cluster(first);
    let name = |bit: u32| {
        let block = base.get() + (u64::from(bit) << volume.geo.cluster_bits());
        Pblk::new(block).to_string()
    };
    if let Some(text) = difference(&found, &expected, bits, "blocks", name) {
        let code = if unwritten {
            Code::GroupFlags
        } else {
            Code::BlockBitmap
        };
        sums.sink.say(code, place, text);
    }
    Ok(())
}

/// What is different between a bitmap as found and as expected, as a sentence.
fn difference(
    found: &[u8],
    expected: &[u8],
    bits: u32,
    things: &str,
    name: impl Fn(u32) -> String,
) -> Option<String> {
    let whole = bits as usize / 8;
    if found.get(..whole) == expected.get(..whole) && bits.is_multiple_of(8) {
        return None;
    }
    let (mut missing, mut extra) = ((0u32, None), (0u32, None));
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        if a == b {
            continue;
        }
        for bit in (i as u32 * 8..i as u32 * 8 + 8).take_while(|bit| *bit < bits) {
            match (bitmap::test(found, bit), bitmap::test(expected, bit)) {
                (false, true) => {
                    missing.0 += 1;
                    missing.1.get_or_insert(bit);
                }
                (true, false) => {
                    extra.0 += 1;
                    extra.1.get_or_insert(bit);
                }
                _ => {}
            }
        }
    }
    let mut parts = Vec::new();
    if let (count, Some(first)) = missing {
        parts.push(format!(
            "{count} {things} in use are marked free, the first is {}",
            name(first)
        ));
    }
    if let (count, Some(first)) = extra {
        parts.push(format!(
            "{count} free {things} are marked in use, the first is {}",
            name(first)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn inodes(
    volume: &Volume,
    group: Group,
    state: &GroupState,
    table: &InodeTable,
    sums: &mut Sums,
) -> Result<()> {
    let place = Place::group(group);
    let bits = volume.geo.inodes_per_group();
    let size = volume.block_size().len();
    let mut expected = vec![0; size];
    let mut dirs = 0u32;
    for (i, summary) in table.group(group.get()).iter().enumerate() {
        if summary.is_in_use() {
            bitmap::set(&mut expected, i as u32);
            dirs += u32::from(summary.is_dir());
        }
    }
    let free = bitmap::count_clear(&expected, 0..bits);
    sums.free_inodes += u64::from(free);
    let desc = &state.desc;
    if desc.free_inodes != free {
        let what = "free inodes of the group";
        let found = desc.free_inodes;
        sums.sink
            .number(Code::GroupFreeInodes, place, what, found, free);
    }
    if desc.used_dirs != dirs {
        let what = "directories of the group";
        sums.sink
            .number(Code::GroupUsedDirs, place, what, desc.used_dirs, dirs);
    }
    if volume.sb.desc_checksum() == DescChecksum::None {
        never_used(place, desc, free < bits, &mut sums.sink);
        unused_but_named(volume, group, desc, &expected, &mut sums.sink);
    }
    if !state.located {
        return Ok(());
    }
    if state.trusted && desc.itable_unused > bits {
        let what = "unused inodes of the table";
        let found = desc.itable_unused;
        sums.sink
            .number(Code::GroupUnusedCount, place, what, found, bits);
    }
    if state.says(GroupFlags::INODE_UNINIT) {
        // Those of the first group are looked at all the same: the file system's own are there.
        if free < bits {
            sums.sink.say(Code::GroupFlags, place, UNUSED_BUT_USED);
        }
        return Ok(());
    }
    let mut found = vec![0; size];
    volume.read(desc.inode_bitmap, &mut found)?;
    let place = place.at_block(desc.inode_bitmap);
    if let Some(seed) = volume.seed {
        let computed = bitmap::checksum(seed.value(), &found, bits);
        if !desc.inode_bitmap_csum_matches(computed, volume.geo.desc_size()) {
            let (what, stored) = ("checksum", desc.inode_bitmap_csum);
            sums.sink
                .number(Code::InodeBitmapChecksum, place, what, stored, computed);
        }
    }
    if !bitmap::padding_is_set(&found, bits) {
        let text = "the bits past the end of the group are not all set";
        sums.sink.say(Code::InodeBitmapPadding, place, text);
    }
    let first = u64::from(group.get()) * u64::from(bits) + 1;
    let name = |bit: u32| (first + u64::from(bit)).to_string();
    let unused = state.unused_inodes();
    let looked_at = bits.checked_sub(unused).unwrap_or(bits);
    if let Some(bit) = bitmap::next_set(&found, looked_at, bits) {
        let text = format!(
            "inode {} is marked in use, but the table is said to be unused from inode {} on",
            name(bit),
            name(looked_at)
        );
        sums.sink
            .say(Code::GroupUnusedInodes, Place::group(group), text);
    }
    if let Some(text) = difference(&found, &expected, bits, "inodes", name) {
        let place = Place::group(group);
        sums.sink.say(Code::InodeBitmap, place, text);
    }
    Ok(())
}

/// What a descriptor without a checksum says was never used: no reader believes it, but it is wrong
/// of a group with inodes.
fn never_used(place: Place, desc: &GroupDesc, has_inodes: bool, sink: &mut Sink) {
    if desc.flags.contains(GroupFlags::INODE_UNINIT) && has_inodes {
        sink.say(Code::GroupFlags, place, UNUSED_BUT_USED);
    } else if desc
        .flags
        .intersects(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT)
    {
        let text = "blocks or inodes are said to be unused, which only a checksum vouches for";
        sink.say(Code::GroupFlagsUnused, place, text);
    }
    if desc.itable_unused != 0 {
        let what = "unused inodes of the table";
        sink.number(
            Code::GroupFlagsUnused,
            place,
            what,
            desc.itable_unused,
            0u64,
        );
    }
}

/// Looks for inodes of users in the part of a table that a descriptor without a checksum says was
/// never used.
fn unused_but_named(volume: &Volume, group: Group, desc: &GroupDesc, used: &[u8], sink: &mut Sink) {
    let bits = volume.geo.inodes_per_group();
    let base = u64::from(group.get()) * u64::from(bits) + 1;
    // More than the group has are those of groups before it, too; more than there are then are none
    // at all.
    let end = base + u64::from(bits);
    let Some(unused_from) = end.checked_sub(u64::from(desc.itable_unused)) else {
        return;
    };
    let first = unused_from.saturating_sub(base) as u32;
    // Of the file system's own inodes only the root directory has a name.
    let has_name = |bit: u32| {
        let ino = base + u64::from(bit);
        ino == u64::from(Ino::ROOT.get()) || ino >= u64::from(volume.sb.first_ino().get())
    };
    let mut from = first;
    while let Some(bit) = bitmap::next_set(used, from, bits) {
        if has_name(bit) {
            let text = format!(
                "inode {} is in use, but the table is said to be unused from inode {} on",
                base + u64::from(bit),
                base + u64::from(first)
            );
            sink.say(Code::GroupUnusedInodes, Place::group(group), text);
            return;
        }
        from = bit + 1;
    }
}

/// Compares the superblock's counts with the sums.
pub(crate) fn superblock(volume: &Volume, sums: &mut Sums) {
    let place = Place::FILE_SYSTEM;
    let free = sums.free_clusters << volume.geo.cluster_bits();
    let found = volume.sb.free_blocks_count();
    if found != free {
        let what = "free blocks";
        sums.sink
            .number(Code::SuperblockFreeBlocks, place, what, found, free);
    }
    let found = u64::from(volume.sb.free_inodes_count());
    if found != sums.free_inodes {
        let what = "free inodes";
        let free = sums.free_inodes;
        sums.sink
            .number(Code::SuperblockFreeInodes, place, what, found, free);
    }
}
