//! The tree: its root, `lost+found`, files without a name, `..`, and link counts.

use super::dirs::{add, first_block, set_parent};
use super::map_builder::Builder;
use super::work::Work;
use crate::connectivity::{LINKS_MAX, links_wanted, parent_of};
use crate::error::Result;
use crate::maps::Run;
use crate::scan::inodes_to_look_at;
use crate::{Code, Place};
use extant_format::dir::{EntryType, NewEntry};
use extant_format::features::{Incompat, RoCompat};
use extant_format::group_desc::GroupFlags;
use extant_format::inode::{FileType, Inode, InodeFlags, MAP_BYTES, Mode, Timestamp};
use extant_format::{Group, Ino};

/// Whether all names were read: what is not named could have been named in what was not.
fn all_was_read(work: &Work<'_>) -> bool {
    let unread = [
        Code::DirAbandoned,
        Code::MapAbandoned,
        Code::ClaimsAbandoned,
        Code::DirHole,
        Code::DirEntry,
    ];
    !unread.iter().any(|code| work.has(*code))
}

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    if work.has(Code::RootMissing) {
        return new_root(work);
    }
    if !all_was_read(work) {
        return Ok(());
    }
    let lost = unattached(work);
    if !lost.is_empty() || work.has(Code::LostFound) {
        attach(work, &lost)?;
    }
    for &(dir, found) in &work.survey.dotdots {
        let expected = match dir {
            Ino::ROOT => Some(Ino::ROOT),
            _ => parent_of(&work.survey.parents, dir),
        };
        if let Some(expected) = expected.filter(|expected| *expected != found)
            && set_parent(work, dir, expected)?
        {
            let text = format!("`..` names inode {expected}, named {found}");
            work.fix(Code::DirDotDot, Place::ino(dir), text);
        }
    }
    Ok(())
}

/// Inodes in use without a name, with their types as entries name them.
fn unattached(work: &Work<'_>) -> Vec<(Ino, u8)> {
    let survey = work.survey;
    let mut found = Vec::new();
    for (ino, summary) in survey.table.in_use() {
        let apart = summary.is_nameless() || summary.is_ea_inode() || summary.kind == 0;
        if apart || summary.is_orphan() || ino == Ino::ROOT {
            continue;
        }
        let has_name = if summary.is_dir() {
            parent_of(&survey.parents, ino).is_some()
        } else {
            survey.names.get(ino) > 0
        };
        if !has_name {
            found.push((ino, summary.kind));
        }
    }
    found
}

fn attach(work: &mut Work<'_>, lost: &[(Ino, u8)]) -> Result<()> {
    let mut target = None;
    super::entries::each(work.survey, Ino::ROOT, &mut |_, entry| {
        if entry.name == b"lost+found" {
            target = entry.ino;
        }
    })?;
    let dir = match target {
        Some(ino) if work.survey.table.get(ino).is_dir() && !is_encrypted(work, ino)? => ino,
        // The name is something else's, or no name can be made there.
        Some(_) => Ino::ROOT,
        None => return new_lost_found(work),
    };
    for (ino, kind) in lost {
        let name = format!("#{ino}");
        let kind = if work.volume().has_incompat(Incompat::FILETYPE) {
            EntryType::from_raw(*kind)
        } else {
            EntryType::Unknown
        };
        let entry = NewEntry::new(*ino, name.as_bytes(), kind);
        if add(work, dir, &entry)? {
            let code = match kind {
                EntryType::Directory => Code::DirUnattached,
                _ => Code::InodeUnattached,
            };
            let text = format!("it had no name, and is called \"{name}\" in inode {dir} now");
            work.fix(code, Place::ino(*ino), text);
        }
    }
    Ok(())
}

fn is_encrypted(work: &Work<'_>, dir: Ino) -> Result<bool> {
    let found = work.volume().inode(dir)?;
    Ok(found.is_some_and(|(_, inode)| inode.flags.contains(InodeFlags::ENCRYPT)))
}

/// A directory of one block.
fn new_dir(work: &mut Work<'_>, ino: Ino, parent: Ino, permissions: u16) -> Result<bool> {
    let volume = work.volume();
    let (Some(offset), Some(at)) = (volume.inode_offset(ino), work.new_block()?) else {
        return Ok(false);
    };
    let mut slot = vec![0; usize::from(volume.inode_size())];
    let mut inode = Inode::parse(&slot, &volume.inode_context(ino))?;
    let now = Timestamp {
        secs: i64::from(work.now),
        ..Timestamp::default()
    };
    inode.mode = Mode::new(FileType::Directory, permissions);
    inode.links = 2;
    inode.extra_isize = 32.min(volume.inode_size().saturating_sub(128));
    (inode.mtime, inode.ctime, inode.atime) = (now, now, now);
    inode.crtime = (inode.extra_isize > 0).then_some(now);
    inode.size = volume.block_size().bytes().into();
    inode.map = [0; MAP_BYTES];
    if volume.has_incompat(Incompat::EXTENTS) {
        inode.flags.insert(InodeFlags::EXTENTS);
    }
    let sectors = volume.cluster_ratio() << (volume.block_size().log2() - 9);
    inode.blocks = sectors;
    inode.encode(&mut slot, &volume.inode_context(ino))?;
    work.draft.write(offset, &slot)?;
    let run = Run {
        lblk: 0,
        len: 1,
        pblk: at.get(),
        unwritten: false,
    };
    Builder::rebuild(work, ino, &[run])?;
    let bytes = first_block(work, ino, &inode, parent);
    work.put_block(at, &bytes)?;
    Ok(true)
}

fn new_root(work: &mut Work<'_>) -> Result<()> {
    let first = work.volume().sb.first_ino();
    let files = work.survey.table.in_use();
    if files.filter(|(ino, _)| *ino >= first).count() == 0 {
        // Nothing is left that it could lead to: something else is wrong.
        return Ok(());
    }
    if new_dir(work, Ino::ROOT, Ino::ROOT, 0o755)? {
        let text = "a new root directory was made";
        work.fix(Code::RootMissing, Place::ino(Ino::ROOT), text);
    }
    Ok(())
}

fn new_lost_found(work: &mut Work<'_>) -> Result<()> {
    let Some(ino) = free_inode(work)? else {
        return Ok(());
    };
    if !new_dir(work, ino, Ino::ROOT, 0o700)? {
        return Ok(());
    }
    let kind = if work.volume().has_incompat(Incompat::FILETYPE) {
        EntryType::Directory
    } else {
        EntryType::Unknown
    };
    let entry = NewEntry::new(ino, b"lost+found", kind);
    if add(work, Ino::ROOT, &entry)? {
        let text = format!("lost+found was made, inode {ino}");
        work.fix(Code::LostFound, Place::FILE_SYSTEM, text);
    }
    Ok(())
}

/// An inode that is neither in use nor reserved, in a part of a table that is looked at.
fn free_inode(work: &mut Work<'_>) -> Result<Option<Ino>> {
    let survey = work.survey;
    let volume = work.volume();
    for group in volume.geo.groups() {
        let per_group = volume.geo.inodes_per_group();
        let looked_at = inodes_to_look_at(volume, group.get());
        for index in 0..per_group {
            let Ok(ino) = volume.geo.inode_at(group, index) else {
                break;
            };
            let is_in_use = survey.table.get(ino).is_in_use();
            let is_reserved = work.draft.reserved().inodes.contains(&ino);
            if ino < volume.sb.first_ino() || is_in_use || is_reserved {
                continue;
            }
            if index >= looked_at {
                open_table(work, group, index)?;
            }
            return Ok(Some(ino));
        }
    }
    Ok(None)
}

/// Has the table of a group be looked at up to `index`.
fn open_table(work: &mut Work<'_>, group: Group, index: u32) -> Result<()> {
    let volume = work.volume();
    let Some(state) = volume.groups.get(group.get() as usize) else {
        return Ok(());
    };
    let mut desc = state.desc;
    desc.flags.remove(GroupFlags::INODE_UNINIT);
    desc.itable_unused = volume.geo.inodes_per_group().saturating_sub(index + 1);
    super::groups::put(work, group, &desc)
}

/// Link counts, once every inode has its names.
pub(super) fn links(work: &mut Work<'_>) -> Result<()> {
    if !all_was_read(work) || work.has(Code::RootMissing) {
        return Ok(());
    }
    let survey = work.survey;
    let has_links = work.volume().has_ro_compat(RoCompat::DIR_NLINK);
    for (ino, summary) in survey.table.in_use() {
        // What holds the value of an attribute has one link, however many refer to it.
        let is_value = summary.is_ea_inode() && !summary.is_orphan();
        let apart = summary.is_nameless() || summary.is_ea_inode() || summary.kind == 0;
        let counted = match is_value && summary.links > 1 {
            true => 1,
            false if apart => 0,
            false => survey.names.get(ino),
        };
        if counted == 0 {
            continue;
        }
        if summary.is_dir() && counted > LINKS_MAX && !has_links {
            return turn_on_dir_nlink(work);
        }
        let Some(wanted) = links_wanted(summary, counted, has_links) else {
            continue;
        };
        let Ok(wanted) = u16::try_from(wanted) else {
            continue;
        };
        work.edit_inode(ino, |inode, _| inode.links = wanted)?;
        let text = format!("link count is {wanted}, was {}", summary.links);
        work.fix(Code::LinkCount, Place::ino(ino), text);
    }
    Ok(())
}

/// Turns on the feature by which directories have any number of subdirectories.
fn turn_on_dir_nlink(work: &mut Work<'_>) -> Result<()> {
    let sb = work.superblock()?.with(|raw| {
        let bits = raw.feature_ro_compat.get() | RoCompat::DIR_NLINK.bits();
        raw.feature_ro_compat.set(bits);
    })?;
    work.put_superblock(&sb)?;
    let text = "feature dir_nlink is on: a directory has more subdirectories than can be counted";
    work.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    Ok(())
}
