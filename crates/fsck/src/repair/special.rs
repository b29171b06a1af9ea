//! The inode that keeps room for descriptors, and multiple-mount protection.

use super::work::Work;
use crate::error::{Error, Result};
use crate::inode::fs_seed;
use crate::special::{backups, usual_size_of_resize_inode};
use crate::volume::Volume;
use crate::{Code, Place};
use extant_blockdev::BlockDevice;
use extant_format::features::Compat;
use extant_format::inode::{FileType, InodeFlags, Mode};
use extant_format::mmp::{MmpBlock, MmpState};
use extant_format::superblock::Superblock;
use extant_format::{Group, Ino, Pblk, indirect};

/// Refuses a file system that another machine has open: its block of multiple-mount protection
/// changes.
pub(super) fn refuse_if_in_use(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    let Some(offset) = sb.mmp_block().and_then(|at| sb.block_size().offset_of(at)) else {
        return Ok(());
    };
    let read = || -> Result<Option<MmpBlock>> {
        let mut bytes = vec![0; sb.block_size().len()];
        if device
            .check_range("read", offset, bytes.len() as u64)
            .is_err()
        {
            return Ok(None);
        }
        device.read_at(offset, &mut bytes)?;
        Ok(MmpBlock::parse(&bytes, None).ok())
    };
    let Some(first) = read()?.filter(|mmp| mmp.state != MmpState::Clean) else {
        return Ok(());
    };
    let in_use = |by: &MmpBlock| {
        let name = by.node_name.split(|byte| *byte == 0).next();
        let node = name.unwrap_or_default().escape_ascii().to_string();
        Err(Error::InUse { node })
    };
    if first.state == MmpState::Fsck {
        // A check may not say for long that it goes on.
        return in_use(&first);
    }
    std::thread::sleep(first.watch(sb.raw().mmp_update_interval.get())?);
    match read()? {
        Some(second) if second.state != first.state => in_use(&second),
        _ => Ok(()),
    }
}

/// Has another block taken for multiple-mount protection where the one that is named is none, and
/// something else's or outside.
pub(super) fn mmp_place(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    let Some(at) = volume.sb.mmp_block().filter(|_| work.has(Code::Mmp)) else {
        return Ok(());
    };
    let is_inside = volume.physical().contains(&at.get());
    if is_inside && (work.is_alone(at) || MmpBlock::parse(&volume.block(at)?, None).is_ok()) {
        return Ok(());
    }
    let Some(new) = work.new_block()? else {
        return Ok(());
    };
    let sb = work
        .superblock()?
        .with(|raw| raw.mmp_block.set(new.get()))?;
    work.put_superblock(&sb)?;
    write_mmp(work, new, None)?;
    let text = format!("it is in block {new}: {at} is none");
    work.fix(Code::Mmp, Place::block(at), text);
    Ok(())
}

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    mmp(work)?;
    let about_resize = work.has(Code::ResizeInode)
        || work
            .findings(&[Code::InodeBlocks])
            .any(|finding| finding.place.ino == Some(Ino::RESIZE));
    if about_resize {
        resize_inode(work)?;
    }
    Ok(())
}

fn mmp(work: &mut Work<'_>) -> Result<()> {
    if !work.has(Code::Mmp) && !work.has(Code::MmpInUse) {
        return Ok(());
    }
    let volume = work.volume();
    let Some(at) = volume.sb.mmp_block() else {
        return Ok(());
    };
    if !volume.physical().contains(&at.get()) || !work.is_alone(at) {
        return Ok(());
    }
    let old = MmpBlock::parse(&volume.block(at)?, None).ok();
    write_mmp(work, at, old)?;
    work.fix(
        Code::Mmp,
        Place::block(at),
        "nobody has the file system open",
    );
    Ok(())
}

/// The record of multiple-mount protection that says that the file system is open nowhere.
pub(super) fn clean_mmp(volume: &Volume, now: u32, old: Option<MmpBlock>) -> [u8; MmpBlock::LEN] {
    let interval = volume.sb.raw().mmp_update_interval.get();
    let mmp = MmpBlock {
        state: MmpState::Clean,
        time: u64::from(now),
        node_name: old.as_ref().map_or([0; 64], |old| old.node_name),
        device_name: old.as_ref().map_or([0; 32], |old| old.device_name),
        check_interval: interval.max(MmpBlock::MIN_CHECK_INTERVAL),
    };
    mmp.encode(volume.seed.map(|_| fs_seed(volume)))
}

/// Writes a block that says that the file system is not open anywhere.
pub(super) fn write_mmp(work: &mut Work<'_>, at: Pblk, old: Option<MmpBlock>) -> Result<()> {
    let volume = work.volume();
    let mut bytes = match old {
        Some(_) => volume.block(at)?,
        None => vec![0; volume.block_size().len()],
    };
    let record = clean_mmp(volume, work.now, old);
    if let Some(to) = bytes.get_mut(..MmpBlock::LEN) {
        to.copy_from_slice(&record);
    }
    work.put_block(at, &bytes)
}

/// Builds the inode anew that keeps room for descriptors.
fn resize_inode(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    if !volume.has_compat(Compat::RESIZE_INODE) {
        return Ok(());
    }
    let geo = &volume.geo;
    let reserved = geo.reserved_gdt_blocks();
    let Ok(header) = geo.group_header(Group::new(0)) else {
        return Ok(());
    };
    let mut range = header.reserved_gdt.clone();
    if !range.all(|block| work.is_alone(Pblk::new(block))) {
        // Something else is wrong: what lies there is not written over.
        return Ok(());
    }
    let groups = backups(volume);
    let per_block = indirect::pointers_per_block(volume.block_size());
    let Some(root) = work.new_block()? else {
        return Ok(());
    };
    let mut top = vec![0u32; per_block as usize];
    for i in 0..reserved {
        let block = header.reserved_gdt.start + u64::from(i);
        let slot = (geo.classic_desc_blocks() + i) % per_block;
        if let Some(pointer) = top.get_mut(slot as usize) {
            *pointer = block as u32;
        }
        let copies: Vec<u32> = groups
            .iter()
            .map(|group| (block + u64::from(*group) * u64::from(geo.blocks_per_group())) as u32)
            .collect();
        let mut bytes = vec![0; volume.block_size().len()];
        indirect::encode_pointers(&mut bytes, &copies);
        if volume.block(Pblk::new(block))? != bytes {
            work.put_block(Pblk::new(block), &bytes)?;
        }
    }
    let mut bytes = vec![0; volume.block_size().len()];
    indirect::encode_pointers(&mut bytes, &top);
    work.put_block(root, &bytes)?;
    let blocks = 1 + u64::from(reserved) * (1 + groups.len() as u64);
    let sectors = (blocks * volume.cluster_ratio()) << (volume.block_size().log2() - 9);
    let size = usual_size_of_resize_inode(volume);
    work.edit_inode(Ino::RESIZE, |inode, _| {
        let mut pointers = [0; indirect::ROOT_POINTERS];
        if let Some(pointer) = pointers.get_mut(13) {
            *pointer = root.get() as u32;
        }
        inode.map = indirect::encode_root(&pointers);
        inode.mode = Mode::new(FileType::Regular, 0o600);
        inode.flags = InodeFlags::empty();
        inode.links = 1;
        inode.dtime = 0;
        inode.size = size;
        inode.blocks = sectors;
        inode.file_acl = Pblk::new(0);
    })?;
    let text = format!("built anew, over {reserved} reserved blocks");
    work.fix(Code::ResizeInode, Place::ino(Ino::RESIZE), text);
    Ok(())
}
