//! Other numbers for inodes whose groups go.

use super::super::entries::{blocks_of, is_inline, seal};
use super::super::map_builder::{Builder, is_mapped, salvage};
use super::super::work::Work;
use super::super::{dirs, groups};
use super::refused;
use crate::error::Result;
use crate::maps::Piece;
use crate::report::Sink;
use crate::{Code, Place};
use extant_format::checksum::Crc32c;
use extant_format::dir;
use extant_format::features::Compat;
use extant_format::group_desc::GroupFlags;
use extant_format::inode::InodeFlags;
use extant_format::{Group, Ino};
use std::collections::{BTreeMap, HashSet};

/// Inodes by their old numbers.
type Numbers = BTreeMap<Ino, Ino>;

/// Gives all inodes behind the number `last` one that is free; returns whether there were any.
pub(super) fn renumber(work: &mut Work<'_>, last: u32) -> Result<bool> {
    let numbers = chosen(work, last)?;
    if numbers.is_empty() {
        return Ok(false);
    }
    for (old, new) in &numbers {
        one(work, *old, *new)?;
    }
    open_tables(work, &numbers)?;
    let now = |ino: Ino| numbers.get(&ino).copied().unwrap_or(ino);
    let dirs = work.survey.dirs.clone();
    for dir in dirs {
        directory(work, now(dir), now(dir) != dir, &now)?;
    }
    let text = format!("{} inodes have other numbers", numbers.len());
    work.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    Ok(true)
}

fn chosen(work: &Work<'_>, last: u32) -> Result<Numbers> {
    let (survey, sb) = (work.survey, &work.volume().sb);
    let bound = special(work);
    let mut free = (sb.first_ino().get()..=last).map(Ino::new);
    let mut numbers = Numbers::new();
    for (ino, summary) in survey.table.in_use() {
        if ino.get() <= last {
            continue;
        }
        if sb.has_compat(Compat::STABLE_INODES) {
            let why = "inodes would get other numbers, from which keys of encrypted files may come (stable_inodes)";
            return Err(refused(why));
        }
        if summary.is_ea_inode() || bound.contains(&ino) {
            return Err(refused(format!(
                "inode {ino} would get another number, and is known by it elsewhere than in directories"
            )));
        }
        let Some(new) = free.find(|ino| !survey.table.get(*ino).is_in_use()) else {
            return Err(refused(format!("more than {last} inodes are in use")));
        };
        numbers.insert(ino, new);
    }
    Ok(numbers)
}

/// The inodes that the superblock names.
fn special(work: &Work<'_>) -> HashSet<Ino> {
    let raw = work.volume().sb.raw();
    let named = [
        raw.journal_inum,
        raw.usr_quota_inum,
        raw.grp_quota_inum,
        raw.prj_quota_inum,
        raw.orphan_file_inum,
        raw.last_orphan,
    ];
    named.iter().map(|ino| Ino::new(ino.get())).collect()
}

/// Moves one inode. The blocks of its map have checksums that start from its number.
fn one(work: &mut Work<'_>, old: Ino, new: Ino) -> Result<()> {
    let volume = work.volume();
    let Some((mut slot, inode)) = volume.inode(old)? else {
        return Ok(());
    };
    let mut nodes = false;
    let mut runs = Vec::new();
    if is_mapped(volume, old, &inode) && inode.flags.contains(InodeFlags::EXTENTS) {
        crate::maps::walk(volume, old, &inode, &mut Sink::new(), &mut |piece| {
            nodes |= matches!(piece, Piece::Node(_));
        })?;
        runs = salvage(volume, old, &inode)?;
    }
    work.put_inode(new, &inode, &mut slot)?;
    let offset = volume.inode_offset(old).unwrap_or(u64::MAX);
    work.draft.write(offset, &vec![0; slot.len()])?;
    if nodes && volume.seed.is_some() && !Builder::rebuild(work, new, &runs)? {
        return Err(no_room());
    }
    Ok(())
}

pub(super) fn no_room() -> crate::Error {
    refused("what is in the file system does not fit into so many blocks")
}

/// Has those parts of inode tables looked at that were not in use. Free numbers were taken in
/// order, so nothing lies between them and what was.
pub(in super::super) fn open_tables(work: &mut Work<'_>, numbers: &Numbers) -> Result<()> {
    let volume = work.volume();
    let mut used: BTreeMap<u32, u32> = BTreeMap::new();
    for new in numbers.values() {
        let location = volume.geo.locate_inode(*new)?;
        let most = used.entry(location.group.get()).or_default();
        *most = (*most).max(location.index + 1);
    }
    for (group, used) in used {
        let Some(state) = volume.groups.get(group as usize) else {
            continue;
        };
        let mut desc = state.desc;
        let unused = volume.geo.inodes_per_group().saturating_sub(used);
        desc.itable_unused = if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            unused
        } else {
            desc.itable_unused.min(unused)
        };
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        if desc != state.desc {
            groups::put(work, Group::new(group), &desc)?;
        }
    }
    Ok(())
}

/// Has the entries of a directory name the new numbers. Its blocks have checksums that start from
/// its own.
fn directory(work: &mut Work<'_>, dir: Ino, moved: bool, now: &dyn Fn(Ino) -> Ino) -> Result<()> {
    let volume = work.volume();
    let Some((_, inode)) = volume.inode(dir)? else {
        return Ok(());
    };
    if is_inline(volume, &inode) {
        return if dirs::renumber_inline(work, dir, now)? {
            Ok(())
        } else {
            Err(refused(format!(
                "directory {dir} has no room for its entries"
            )))
        };
    }
    let layout = volume.dir_layout(inode.flags);
    let seed = volume.inode_seed(dir, &inode).unwrap_or(Crc32c::INIT);
    let indexed = inode.flags.contains(InodeFlags::INDEX);
    for (lblk, at) in blocks_of(volume, dir, &inode)? {
        let mut bytes = volume.block(at)?;
        let named: Vec<(usize, Ino)> = dir::entries(&bytes, &layout)
            .flatten()
            .filter_map(|entry| Some((entry.offset, entry.ino?)))
            .filter(|(_, ino)| now(*ino) != *ino)
            .collect();
        if named.is_empty() && !moved {
            continue;
        }
        for (offset, ino) in named {
            if let Some(to) = bytes.get_mut(offset..offset + 4) {
                to.copy_from_slice(&now(ino).get().to_le_bytes());
            }
        }
        if layout.checksums {
            seal(&mut bytes, &layout, lblk, indexed, seed);
        }
        work.put_block(at, &bytes)?;
    }
    Ok(())
}
