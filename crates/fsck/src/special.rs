//! Inodes that are not plain files: symbolic links, devices, inline data, the inode that keeps room
//! for descriptors.

use crate::bytes::{le16, le32};
use crate::error::Result;
use crate::maps;
use crate::report::Sink;
use crate::scan::Scan;
use crate::volume::Volume;
use crate::{Code, Place, xattr};
use extant_format::features::Incompat;
use extant_format::inode::rules::looks_like_extents;
use extant_format::inode::{FileType, Inode, InodeFlags, MAP_BYTES};
use extant_format::{Group, Ino, Pblk, indirect};

/// Whether the map of an inode without inline data leads to blocks.
pub(crate) fn has_map(volume: &Volume, inode: &Inode, file_type: FileType) -> bool {
    match file_type {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => {
            // A target in a block has one pointer, whatever the size says of a target that fills
            // the map. With more of them, or with another size, it is in a block all the same,
            // where one is counted that holds a target.
            let rest = inode.map.get(4..).unwrap_or_default();
            let pointer_alone = rest.iter().all(|byte| *byte == 0);
            inode.flags.contains(InodeFlags::EXTENTS)
                || looks_like_extents(inode)
                || inode.size >= MAP_BYTES as u64 && pointer_alone
                || !volume.rules.is_fast_symlink(inode) && leads_to_a_target(volume, inode)
        }
        _ => false,
    }
}

/// Whether the first pointer of a map leads to a block that holds a target and nothing else: one
/// that is too long for the map, or as long as the size says.
fn leads_to_a_target(volume: &Volume, inode: &Inode) -> bool {
    let first = le32(&inode.map, 0).into();
    if first == 0 || !volume.physical().contains(&first) {
        return false;
    }
    let is_target = |bytes: Vec<u8>| {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        let fits = len >= MAP_BYTES || len > 0 && len as u64 == inode.size;
        fits && bytes.iter().skip(len).all(|byte| *byte == 0)
    };
    volume.block(Pblk::new(first)).is_ok_and(is_target)
}

/// Whether the map of a symbolic link is a target as long as the size says, whatever the flags are.
pub(crate) fn is_text(inode: &Inode) -> bool {
    let end = inode.map.iter().position(|byte| *byte == 0);
    inode.file_type() == Some(FileType::Symlink)
        && end.is_some_and(|end| end > 0 && end as u64 == inode.size)
}

/// Checks the length of a target inside the map. An encrypted one has its own length before it; of
/// those that Linux, too, reads from the map the rules about fields say more.
pub(crate) fn fast_symlink(volume: &Volume, place: Place, inode: &Inode, sink: &mut Sink) {
    if inode.flags.contains(InodeFlags::ENCRYPT) {
        let length = u64::from(le16(&inode.map, 0)) + 2;
        if length != inode.size {
            sink.number(Code::Symlink, place, "size", inode.size, length);
        }
    } else if !is_text(inode) && !volume.rules.is_fast_symlink(inode) {
        let length = inode.map.iter().position(|byte| *byte == 0);
        let length = length.unwrap_or(MAP_BYTES) as u64;
        sink.number(Code::Symlink, place, "size", inode.size, length);
    }
}

/// Whether what is said to be a symbolic link is a file by its map: that one is sound, the inode
/// counts all its blocks, and they hold more than a target.
pub(crate) fn is_file_called_link(volume: &Volume, ino: Ino, inode: &Inode) -> Result<bool> {
    if inode.file_type() != Some(FileType::Symlink) || is_text(inode) {
        return Ok(false);
    }
    let is_tree = inode.flags.contains(InodeFlags::EXTENTS) || looks_like_extents(inode);
    let mut judged = inode.clone();
    judged.flags.set(InodeFlags::EXTENTS, is_tree);
    let mut runs = Vec::new();
    let mut blocks = 0u64;
    let mut sink = Sink::new();
    maps::walk(volume, ino, &judged, &mut sink, &mut |piece| {
        blocks += match &piece {
            maps::Piece::Node(_) => 1,
            maps::Piece::Data(run) => run.len.into(),
        };
        if let maps::Piece::Data(run) = piece {
            runs.push(run);
        }
    })?;
    let sectors = blocks.saturating_mul(u64::from(volume.block_size().bytes()) / 512);
    let is_counted = sectors <= inode.sectors(volume.block_size());
    if sink.total() != 0 || runs.is_empty() || !is_counted {
        return Ok(false);
    }
    let one_block = runs.len() == 1 && runs.iter().all(|run| run.lblk == 0 && run.len == 1);
    match maps::lookup(&runs, 0).filter(|_| one_block) {
        Some(at) => Ok(!can_be_target(&volume.block(at)?, inode)),
        None => Ok(true),
    }
}

/// Whether bytes are a target, and zeros from there on; an encrypted one has its own length before
/// it.
fn can_be_target(bytes: &[u8], inode: &Inode) -> bool {
    let end = if inode.flags.contains(InodeFlags::ENCRYPT) {
        Some(usize::from(le16(bytes, 0)) + 2)
    } else {
        bytes.iter().position(|byte| *byte == 0)
    };
    let rest = end.filter(|end| *end > 0).and_then(|end| bytes.get(end..));
    rest.is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}

/// A target in one block.
pub(crate) fn slow_symlink(
    volume: &Volume,
    ino: Ino,
    inode: &Inode,
    sink: &mut Sink,
) -> Result<()> {
    let place = Place::ino(ino);
    let runs = maps::runs(volume, ino, inode)?;
    let size = volume.block_size().len();
    let one_block = runs.len() == 1 && runs.iter().all(|run| run.lblk == 0 && run.len == 1);
    let Some(block) = maps::lookup(&runs, 0).filter(|_| one_block) else {
        let text = "a symbolic link has one block, and no holes";
        sink.say(Code::Symlink, place, text);
        return Ok(());
    };
    let bytes = volume.block(block)?;
    let found = bytes.iter().position(|byte| *byte == 0).unwrap_or(size) as u64;
    let encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
    let length = if encrypted {
        u64::from(le16(&bytes, 0)) + 2
    } else {
        found
    };
    let place = place.at_block(block);
    if length != inode.size || inode.size >= size as u64 {
        sink.number(Code::Symlink, place, "size", inode.size, length);
    } else if length < MAP_BYTES as u64 && !encrypted {
        let text = format!("a target of {length} bytes lies in a block, and would fit the inode");
        sink.say(Code::Symlink, place, text);
    }
    Ok(())
}

/// Devices, pipes and sockets: no size, nothing in the map but a device number.
pub(crate) fn device(place: Place, file_type: FileType, inode: &Inode, sink: &mut Sink) {
    if inode.size != 0 {
        sink.number(Code::SpecialFile, place, "size", inode.size, 0u64);
    }
    // The old form of a device number lies in the first word, the wide one in the second.
    let used = match (file_type.is_device(), le32(&inode.map, 0)) {
        (false, _) => 0,
        (true, 0) => 8,
        (true, _) => 4,
    };
    let rest = inode.map.get(used..).unwrap_or_default();
    if rest.iter().any(|byte| *byte != 0) {
        let text = "bytes in the map behind the device number";
        sink.say(Code::SpecialFileUnused, place, text);
    }
}

/// A directory in the inode: as large as what is stored of it. A file may be larger, and a hole
/// from there on.
pub(crate) fn inline_data(volume: &Volume, ino: Ino, inode: &Inode, slot: &[u8], sink: &mut Sink) {
    let Some(value) = xattr::inline_value(volume, inode, slot) else {
        return;
    };
    let room = (MAP_BYTES + value.len()) as u64;
    if inode.file_type() == Some(FileType::Directory) && inode.size != room {
        let place = Place::ino(ino);
        sink.number(Code::InlineData, place, "size", inode.size, room);
    }
}

/// Whether an inode has what inline data has, its attribute and a size that fits, and only the flag
/// is missing.
pub(crate) fn lacks_inline_flag(volume: &Volume, inode: &Inode, slot: &[u8]) -> bool {
    let flagged = InodeFlags::INLINE_DATA | InodeFlags::EXTENTS;
    if !volume.has_incompat(Incompat::INLINE_DATA) || inode.flags.intersects(flagged) {
        return false;
    }
    let Some(value) = xattr::inline_value(volume, inode, slot) else {
        return false;
    };
    let room = (MAP_BYTES + value.len()) as u64;
    let fits = match inode.file_type() {
        Some(FileType::Regular) => (1..=room).contains(&inode.size),
        Some(FileType::Directory | FileType::Symlink) => inode.size == room,
        _ => false,
    };
    fits && inode.map.iter().any(|byte| *byte != 0)
}

/// The most blocks that a directory can map: those of 2 GiB, whatever the features say.
pub(crate) fn dir_blocks_max(volume: &Volume) -> u64 {
    (1 << 31) >> volume.block_size().log2()
}

/// The inode that keeps blocks for more descriptors: a doubly indirect map whose blocks are the
/// reserved ones behind the primary descriptors, each with pointers to its copies in the backups.
/// It has its uppermost block also where none are reserved, as `mke2fs` makes it.
pub(crate) fn resize_inode(volume: &Volume, inode: &Inode, scan: &mut Scan) -> Result<()> {
    let place = Place::ino(Ino::RESIZE);
    let geo = &volume.geo;
    let reserved = geo.reserved_gdt_blocks();
    let pointers = indirect::root_pointers(&inode.map);
    let root = pointers.get(13).copied().unwrap_or(0);
    if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
        let text = "the inode is no regular file with a link";
        scan.sink.say(Code::ResizeInode, place, text);
    }
    let others = pointers.iter().enumerate().any(|(i, p)| i != 13 && *p != 0);
    if others || !volume.physical().contains(&root.into()) {
        let text = format!("its map must be one doubly indirect block, found {root}");
        scan.sink.say(Code::ResizeInode, place, text);
        return Ok(());
    }
    let cluster = volume.cluster_of(root.into());
    scan.claims.claim(cluster..cluster + 1);
    let per_block = indirect::pointers_per_block(volume.block_size());
    let top = volume.block(Pblk::new(root.into()))?;
    let header = geo.group_header(Group::new(0));
    let first = header.map_or(0, |header| header.reserved_gdt.start);
    let backups: Vec<u32> = backups(volume);
    let mut wrong = 0u32;
    for i in 0..reserved {
        let slot = (geo.classic_desc_blocks() + i) % per_block;
        let expected = first + u64::from(i);
        let found = u64::from(indirect::pointer(&top, slot as usize));
        if found != expected {
            wrong += 1;
            let place = place.at_block(Pblk::new(root.into()));
            scan.sink
                .number(Code::ResizeInode, place, "pointer", found, expected);
        } else {
            wrong += copies(volume, &backups, expected, place, scan)?;
        }
        if wrong > 16 {
            break;
        }
    }
    let ours = |slot: u32| (slot + per_block - geo.classic_desc_blocks() % per_block) % per_block;
    let stray = (0..per_block)
        .filter(|slot| ours(*slot) >= reserved)
        .map(|slot| indirect::pointer(&top, slot as usize))
        .find(|pointer| *pointer != 0);
    if let Some(pointer) = stray {
        wrong += 1;
        let place = place.at_block(Pblk::new(root.into()));
        scan.sink
            .number(Code::ResizeInode, place, "pointer", pointer, 0u64);
    }
    if wrong == 0 {
        size_of_resize_inode(volume, inode, backups.len() as u64, scan);
        let blocks = 1 + u64::from(reserved) * (1 + backups.len() as u64);
        let expected = (blocks * volume.cluster_ratio()) << (volume.block_size().log2() - 9);
        let found = inode.sectors(volume.block_size());
        if found != expected {
            let what = "count of 512-byte blocks";
            scan.sink
                .number(Code::InodeBlocks, place, what, found, expected);
        }
    }
    Ok(())
}

/// Looks at the size of that inode: behind its last block, and no larger than its map can be.
fn size_of_resize_inode(volume: &Volume, inode: &Inode, copies: u64, scan: &mut Scan) {
    let geo = &volume.geo;
    let per_block = u64::from(indirect::pointers_per_block(volume.block_size()));
    let slots = (0..geo.reserved_gdt_blocks()).map(|i| geo.classic_desc_blocks() + i);
    let last = slots.map(|slot| u64::from(slot) % per_block).max();
    let before = u64::from(indirect::DIRECT) + per_block;
    let log2 = volume.block_size().log2();
    let least = match (last, copies.checked_sub(1)) {
        (Some(slot), Some(copy)) => (before + slot * per_block + copy) << log2,
        _ => 0,
    };
    let most = indirect::blocks_reached(volume.block_size()) << log2;
    if !(least..=most).contains(&inode.size) {
        let expected = usual_size_of_resize_inode(volume);
        let place = Place::ino(Ino::RESIZE);
        scan.sink
            .number(Code::ResizeInode, place, "size", inode.size, expected);
    }
}

/// The size that the inode has that keeps room for descriptors: as much as a doubly indirect map
/// reaches.
pub(crate) fn usual_size_of_resize_inode(volume: &Volume) -> u64 {
    let per_block = u64::from(indirect::pointers_per_block(volume.block_size()));
    let reach = per_block * per_block + per_block + u64::from(indirect::DIRECT);
    reach << volume.block_size().log2()
}

/// The groups besides the first that keep copies of the descriptors.
pub(crate) fn backups(volume: &Volume) -> Vec<u32> {
    let groups = volume.geo.groups().skip(1);
    groups
        .filter(|group| volume.geo.has_super(*group))
        .map(Group::get)
        .collect()
}

/// Checks the pointers of one reserved block to its copies; returns how many are wrong.
fn copies(
    volume: &Volume,
    backups: &[u32],
    block: u64,
    place: Place,
    scan: &mut Scan,
) -> Result<u32> {
    let bytes = volume.block(Pblk::new(block))?;
    let per_group = u64::from(volume.geo.blocks_per_group());
    let mut wrong = 0;
    for (i, group) in backups.iter().enumerate() {
        let expected = block + u64::from(*group) * per_group;
        let found = u64::from(indirect::pointer(&bytes, i));
        if found != expected {
            wrong += 1;
            let place = place.at_block(Pblk::new(block));
            scan.sink
                .number(Code::ResizeInode, place, "pointer", found, expected);
        }
    }
    let stray = indirect::pointers(&bytes)
        .skip(backups.len())
        .find(|pointer| *pointer != 0);
    if let Some(pointer) = stray {
        wrong += 1;
        let place = place.at_block(Pblk::new(block));
        scan.sink
            .number(Code::ResizeInode, place, "pointer", pointer, 0u64);
    }
    Ok(wrong)
}
