//! Files of the file system's own that the superblock names by number. A number may be that of a
//! user's file, or of one with another use: that one is left alone, and the right one looked for.
//! So it is if the file is gone.

use super::entries::naming;
use super::work::Work;
use crate::bytes::le32;
use crate::error::Result;
use crate::quota::MAGICS;
use crate::volume::Volume;
use crate::{Code, Place, maps};
use extant_format::Ino;
use extant_format::features::{Compat, RoCompat};
use extant_format::inode::FileType;
use extant_format::orphan_file::OrphanBlock;
use extant_format::superblock::Superblock;
use std::collections::HashSet;

/// Blocks of an orphan file that are looked at: if the first is damaged, others say what it is.
const ORPHAN_BLOCKS: usize = 8;
/// The inodes that quota files of users and of groups have.
const USUAL: [Option<Ino>; 3] = [Some(Ino::USER_QUOTA), Some(Ino::GROUP_QUOTA), None];

/// The kind of a quota file of projects.
const PROJECTS: usize = 2;

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    quotas(work)?;
    orphan_file(work)?;
    super::special::mmp_place(work)
}

/// Whether an inode is a user's: a directory has a name for it.
pub(super) fn is_users(work: &Work<'_>, ino: Ino) -> Result<bool> {
    let names = naming(work.survey, &HashSet::from([ino]))?;
    Ok(ino >= work.volume().sb.first_ino() && names.contains_key(&ino))
}

/// Gives up files that the superblock names though their features are off: a change of features
/// was cut off that had announced them. What looks like another file is left alone. The numbers go
/// by the rules about fields.
pub(super) fn forget_announced(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    let raw = volume.sb.raw();
    let mut announced = Vec::new();
    if !volume.has_compat(Compat::ORPHAN_FILE) {
        announced.push((raw.orphan_file_inum, None));
    }
    if !volume.has_ro_compat(RoCompat::QUOTA) {
        announced.push((raw.prj_quota_inum, Some(PROJECTS)));
    }
    for (number, kind) in announced {
        let ino = Ino::new(number.get());
        let is_possible = ino >= volume.sb.first_ino() && ino.get() <= volume.geo.inodes_count();
        if !is_possible || is_users(work, ino)? {
            continue;
        }
        let is_it = match kind {
            None => is_orphan_file(volume, ino)?,
            Some(kind) => blocks(volume, ino, 1)?.iter().any(|b| is_quota(b, kind)),
        };
        if let Some(offset) = volume.inode_offset(ino).filter(|_| is_it) {
            let nothing = vec![0; usize::from(volume.inode_size())];
            work.draft.write(offset, &nothing)?;
            let text = "it was being made for a feature that is off, and is gone";
            work.fix(Code::InodeUnattached, Place::ino(ino), text);
        }
    }
    Ok(())
}

fn quotas(work: &mut Work<'_>) -> Result<()> {
    let wrong = work.by_inode(&[Code::QuotaFile]);
    let volume = work.volume();
    let named = volume.sb.quota_inodes();
    for (kind, ino) in named.into_iter().enumerate() {
        let Some(ino) = ino.filter(|ino| wrong.contains_key(ino)) else {
            continue;
        };
        let is_right = |ino| Ok(blocks(volume, ino, 1)?.iter().any(|b| is_quota(b, kind)));
        // A file under the number that is kept for it is written anew.
        let is_usual = USUAL.get(kind) == Some(&Some(ino)) && is_regular(volume, ino)?;
        let is_named_twice = named.iter().filter(|other| **other == Some(ino)).count() > 1;
        let is_ours = is_usual && !is_named_twice || is_right(ino)? && !is_users(work, ino)?;
        if is_ours {
            continue;
        }
        let found = match USUAL.get(kind).copied().flatten() {
            Some(usual) if is_right(usual)? => Some(usual),
            _ => nameless(work, is_right)?,
        };
        let number = found.map_or(0, Ino::get);
        let sb = work.superblock()?.with(|raw| {
            let fields = [
                &mut raw.usr_quota_inum,
                &mut raw.grp_quota_inum,
                &mut raw.prj_quota_inum,
            ];
            if let Some(field) = fields.into_iter().nth(kind) {
                field.set(number);
            }
        })?;
        work.put_superblock(&sb)?;
        let text = match found {
            Some(found) => format!("the quota file is inode {found}: inode {ino} is none"),
            None => format!("no quota file is named: inode {ino} is none"),
        };
        work.fix(Code::QuotaFile, Place::ino(ino), text);
    }
    Ok(())
}

fn orphan_file(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    if !volume.has_compat(Compat::ORPHAN_FILE) {
        return Ok(());
    }
    let is_right = |ino| is_orphan_file(volume, ino);
    let Some(ino) = volume.sb.orphan_file_ino() else {
        let found = nameless(work, is_right)?;
        name_orphan_file(work, found)?;
        let text = match found {
            Some(found) => format!("the orphan file is inode {found}"),
            None => "feature orphan_file is off: there is no orphan file".to_owned(),
        };
        work.fix(Code::OrphanFile, Place::FILE_SYSTEM, text);
        return Ok(());
    };
    // What waits in the file is done first.
    if !volume.has_compat(Compat::HAS_JOURNAL) && work.survey.orphans.is_empty() {
        if is_right(ino)? && !is_users(work, ino)? {
            let offset = volume.inode_offset(ino).unwrap_or(u64::MAX);
            let nothing = vec![0; usize::from(volume.inode_size())];
            work.draft.write(offset, &nothing)?;
        }
        name_orphan_file(work, None)?;
        let text = "feature orphan_file is off, and the file is gone: there is no journal";
        work.fix(Code::OrphanFile, Place::ino(ino), text);
        return Ok(());
    }
    if !work.has(Code::OrphanFile) || is_right(ino)? && !is_users(work, ino)? {
        return Ok(());
    }
    let found = nameless(work, is_right)?;
    name_orphan_file(work, found)?;
    let text = match found {
        Some(found) => format!("the orphan file is inode {found}: inode {ino} is none"),
        None => format!("there is no orphan file: inode {ino} is none"),
    };
    work.fix(Code::OrphanFile, Place::ino(ino), text);
    Ok(())
}

/// Has the superblock name this orphan file, or none, and then without the feature.
fn name_orphan_file(work: &mut Work<'_>, found: Option<Ino>) -> Result<()> {
    let sb = work.superblock()?;
    let sb = match found {
        Some(found) => sb.with(|raw| raw.orphan_file_inum.set(found.get()))?,
        None => without_orphan_file(&sb)?,
    };
    work.put_superblock(&sb)
}

/// The superblock of a file system without an orphan file.
pub(super) fn without_orphan_file(sb: &Superblock) -> Result<Superblock> {
    Ok(sb.with(|raw| {
        let (compat, ro_compat) = (Compat::ORPHAN_FILE.bits(), RoCompat::ORPHAN_PRESENT.bits());
        raw.orphan_file_inum.set(0);
        raw.feature_compat.set(raw.feature_compat.get() & !compat);
        raw.feature_ro_compat
            .set(raw.feature_ro_compat.get() & !ro_compat);
    })?)
}

/// A regular file without a name that is the one looked for.
fn nameless(work: &Work<'_>, is_right: impl Fn(Ino) -> Result<bool>) -> Result<Option<Ino>> {
    let survey = work.survey;
    let regular = crate::inode_table::kind_of(Some(FileType::Regular));
    let first = work.volume().sb.first_ino();
    for (ino, summary) in survey.table.in_use() {
        let may_be = ino >= first && summary.kind == regular && survey.names.get(ino) == 0;
        if may_be && !summary.is_nameless() && is_right(ino)? {
            return Ok(Some(ino));
        }
    }
    Ok(None)
}

/// Whether the number of an inode is that of a regular file with a link.
fn is_regular(volume: &Volume, ino: Ino) -> Result<bool> {
    let found = volume.inode(ino)?;
    Ok(found
        .is_some_and(|(_, inode)| inode.file_type() == Some(FileType::Regular) && inode.links > 0))
}

/// Whether a block of a regular file has the magic number of an orphan file's.
pub(super) fn is_orphan_file(volume: &Volume, ino: Ino) -> Result<bool> {
    let size = volume.block_size();
    let is_one = |block: &Vec<u8>| OrphanBlock::parse(block, size, None).is_ok();
    Ok(blocks(volume, ino, ORPHAN_BLOCKS)?.iter().any(is_one))
}

/// The first blocks of a regular file that are mapped.
fn blocks(volume: &Volume, ino: Ino, most: usize) -> Result<Vec<Vec<u8>>> {
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(Vec::new());
    };
    if !is_regular(volume, ino)? {
        return Ok(Vec::new());
    }
    let runs = maps::runs(volume, ino, &inode)?;
    let all = (0..most as u32).filter_map(|lblk| maps::lookup(&runs, lblk));
    all.map(|at| volume.block(at)).collect()
}

fn is_quota(block: &[u8], kind: usize) -> bool {
    MAGICS.get(kind) == Some(&le32(block, 0))
}
