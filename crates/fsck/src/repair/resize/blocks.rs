//! Other places for blocks that lie behind the new end.

use super::super::map_builder::{Builder, is_mapped, salvage};
use super::super::work::Work;
use super::numbers::no_room;
use crate::error::Result;
use crate::inode::fs_seed;
use crate::maps::{Piece, Run};
use crate::report::Sink;
use crate::{Code, Place};
use extant_format::features::Compat;
use extant_format::inode::{FileType, Inode};
use extant_format::orphan_file::block_seed;
use extant_format::xattr::seal_block;
use extant_format::{Ino, Pblk};
use std::collections::HashMap;

/// What becomes of the content of a file's blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// No check looks at it: it is copied when all else is known.
    Opaque,
    /// It looks at the first block only.
    Log,
    Looked,
    /// With a checksum that starts from where a block lies.
    Orphans,
}

/// Moves all that lies in clusters from `end` on to free ones before it.
pub(super) fn vacate(work: &mut Work<'_>, end: u64) -> Result<()> {
    let attributes = attributes(work, end)?;
    let mut moved = 0u64;
    let inodes: Vec<Ino> = work.survey.table.in_use().map(|(ino, _)| ino).collect();
    for ino in inodes {
        let volume = work.volume();
        let Some((_, inode)) = volume.inode(ino)? else {
            continue;
        };
        if let Some(to) = attributes.get(&inode.file_acl) {
            work.edit_inode(ino, |inode, _| inode.file_acl = *to)?;
        }
        let resize = ino == Ino::RESIZE && volume.has_compat(Compat::RESIZE_INODE);
        if !resize && is_mapped(volume, ino, &inode) {
            moved += file(work, ino, &inode, end)?;
        }
    }
    let text = format!("{moved} blocks have other places");
    work.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    journal_backup(work)
}

/// Moves attribute blocks; returns where they were and are.
fn attributes(work: &mut Work<'_>, end: u64) -> Result<HashMap<Pblk, Pblk>> {
    let mut moved = HashMap::new();
    let blocks = work.survey.xattr_blocks.clone();
    for (from, _) in blocks {
        let volume = work.volume();
        if volume.cluster_of(from.get()) < end || moved.contains_key(&from) {
            continue;
        }
        let mut bytes = volume.block(from)?;
        let to = work.new_block()?.ok_or_else(no_room)?;
        if volume.seed.is_some() {
            seal_block(&mut bytes, fs_seed(volume), to);
        }
        work.put_block(to, &bytes)?;
        moved.insert(from, to);
    }
    Ok(moved)
}

fn content_of(work: &Work<'_>, ino: Ino, inode: &Inode) -> Content {
    let sb = &work.volume().sb;
    let raw = sb.raw();
    if raw.orphan_file_inum.get() == ino.get() && sb.has_compat(Compat::ORPHAN_FILE) {
        return Content::Orphans;
    }
    if sb.journal_ino() == Some(ino) {
        return Content::Log;
    }
    let quota = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
    let is_named = quota.iter().any(|named| named.get() == ino.get());
    let plain = inode.file_type() == Some(FileType::Regular)
        && ino >= sb.first_ino()
        && !is_named
        && !work.survey.table.get(ino).is_ea_inode();
    if plain {
        Content::Opaque
    } else {
        Content::Looked
    }
}

/// Moves what one file has behind the end; returns how many blocks that are.
fn file(work: &mut Work<'_>, ino: Ino, inode: &Inode, end: u64) -> Result<u64> {
    let volume = work.volume();
    let mut nodes = false;
    let mut data = false;
    crate::maps::walk(
        volume,
        ino,
        inode,
        &mut Sink::new(),
        &mut |piece| match piece {
            Piece::Node(at) => nodes |= volume.cluster_of(at.get()) >= end,
            Piece::Data(run) => {
                data |= volume.cluster_of(run.pblk + u64::from(run.len) - 1) >= end;
            }
        },
    )?;
    if !nodes && !data {
        return Ok(0);
    }
    let runs = salvage(volume, ino, inode)?;
    let (new, copies) = placed(work, &runs, end)?;
    if !Builder::rebuild(work, ino, &new)? {
        return Err(no_room());
    }
    let content = content_of(work, ino, inode);
    let size = volume.block_size();
    let mut moved = 0;
    for (from, to, len) in copies {
        moved += len;
        if matches!(content, Content::Opaque | Content::Log) {
            let shift = size.log2();
            work.draft.copy(from << shift, to << shift, len << shift);
            let first = runs.first().filter(|run| run.lblk == 0);
            if content == Content::Log && first.is_some_and(|run| run.pblk == from) {
                let bytes = volume.block(Pblk::new(from))?;
                work.put_block(Pblk::new(to), &bytes)?;
            }
            continue;
        }
        for i in 0..len {
            let mut bytes = volume.block(Pblk::new(from + i))?;
            let to = Pblk::new(to + i);
            if content == Content::Orphans && volume.seed.is_some() {
                let seed = block_seed(fs_seed(volume), ino, inode.generation, to);
                // A file system that is sound has no orphans.
                extant_format::orphan_file::encode(&[], &mut bytes, Some(seed));
            }
            work.put_block(to, &bytes)?;
        }
    }
    Ok(moved)
}

/// From, to, blocks.
type Copies = Vec<(u64, u64, u64)>;

/// The runs of a file with places before the end, and what is to be copied there.
fn placed(work: &mut Work<'_>, runs: &[Run], end: u64) -> Result<(Vec<Run>, Copies)> {
    let volume = work.volume();
    let ratio = volume.cluster_ratio();
    let first = volume.geo.first_data_block().get();
    let mut new: Vec<Run> = Vec::new();
    let mut copies: Copies = Vec::new();
    // A cluster of the device may hold several runs of a file.
    let mut last: Option<(u64, u64)> = None;
    for run in runs {
        let mut done = 0;
        while done < run.len {
            let pblk = run.pblk + u64::from(done);
            let cluster = volume.cluster_of(pblk);
            let within = (pblk - first) % ratio;
            let len = (ratio - within).min(u64::from(run.len - done)) as u32;
            let target = match last {
                _ if cluster < end => cluster,
                Some((from, to)) if from == cluster => to,
                _ => volume.cluster_of(work.new_block()?.ok_or_else(no_room)?.get()),
            };
            last = Some((cluster, target));
            let place = volume.block_of_cluster(target).get() + within;
            if target != cluster && !run.unwritten {
                match copies.last_mut() {
                    Some((from, to, count)) if *from + *count == pblk && *to + *count == place => {
                        *count += u64::from(len);
                    }
                    _ => copies.push((pblk, place, len.into())),
                }
            }
            new.push(Run {
                lblk: run.lblk + done,
                len,
                pblk: place,
                unwritten: run.unwritten,
            });
            done += len;
        }
    }
    Ok((joined(&new), copies))
}

fn joined(runs: &[Run]) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last)
                if last.unwritten == run.unwritten
                    && last.lblk + last.len == run.lblk
                    && last.pblk + u64::from(last.len) == run.pblk =>
            {
                last.len += run.len;
            }
            _ => joined.push(*run),
        }
    }
    joined
}

/// Has the superblock's copy of the journal's map say what the inode says.
fn journal_backup(work: &mut Work<'_>) -> Result<()> {
    let sb = work.superblock()?;
    let Some(ino) = sb.journal_backup().and(sb.journal_ino()) else {
        return Ok(());
    };
    let Some((_, inode)) = work.volume().inode(ino)? else {
        return Ok(());
    };
    let words = inode.map.as_chunks::<4>().0;
    let sb = sb.with(|raw| {
        for (to, from) in raw.jnl_blocks.iter_mut().zip(words) {
            to.set(u32::from_le_bytes(*from));
        }
    })?;
    work.put_superblock(&sb)
}
