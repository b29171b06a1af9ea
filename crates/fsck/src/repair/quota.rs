//! Quota files, written anew with what is in use and the limits they had.

use super::map_builder::Builder;
use super::work::Work;
use crate::bytes::{le32, le64};
use crate::error::Result;
use crate::maps::{self, Run};
use crate::quota::{BLOCK, DEPTH, ENTRY, FILE_MAX, LEAF_HEADER, MAGICS, entries_of};
use crate::{Code, Place};
use extant_format::inode::FileType;
use extant_format::{Ino, Pblk};
use std::collections::BTreeMap;

/// Where an entry says how many inodes are in use.
const INODES_AT: usize = 24;
const ENTRIES_PER_LEAF: usize = (BLOCK - LEAF_HEADER) / ENTRY;

/// Bytes of an entry by id.
type Entries = BTreeMap<u32, [u8; ENTRY]>;

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    let wrong = work.by_inode(&[Code::QuotaUsage, Code::QuotaFile]);
    let inodes = work.volume().sb.quota_inodes();
    for (kind, ino) in inodes.into_iter().enumerate() {
        let Some(ino) = ino else { continue };
        if wrong.contains_key(&ino)
            || (work.draft.count() > 0 && counts_otherwise(work, ino, kind)?)
        {
            one(work, ino, kind)?;
        }
    }
    Ok(())
}

/// Whether a file that was right so far, as inline links may be counted or not, does not say what
/// `e2fsck` counts: once anything has changed it may be right by chance alone.
fn counts_otherwise(work: &Work<'_>, ino: Ino, kind: usize) -> Result<bool> {
    let Some(usages) = work.survey.usages.get(kind) else {
        return Ok(false);
    };
    let with_links = || usages.iter().filter(|(_, usage)| usage.inline_links > 0);
    let volume = work.volume();
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(false);
    };
    if with_links().next().is_none() {
        return Ok(false);
    }
    let entries = entries_of(&maps::read_file(volume, ino, &inode, FILE_MAX)?);
    let said = |id: &u32| entries.get(id).map_or(0, |entry| le64(entry, INODES_AT));
    let differs = with_links().any(|(id, usage)| said(id) != usage.of_e2fsck().inodes);
    Ok(differs)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + value.len()) {
        to.copy_from_slice(value);
    }
}

fn one(work: &mut Work<'_>, ino: Ino, kind: usize) -> Result<()> {
    let volume = work.volume();
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    if inode.file_type() != Some(FileType::Regular) {
        return Ok(());
    }
    let old = maps::read_file(volume, ino, &inode, FILE_MAX)?;
    if may_be_written(&old, ino, kind) {
        put_usage(work, ino, kind, &old)?;
    }
    Ok(())
}

/// Fills a new quota file; returns whether there was room.
pub(super) fn make(work: &mut Work<'_>, ino: Ino, kind: usize) -> Result<bool> {
    put_usage(work, ino, kind, &[])
}

/// Writes a quota file with what is in use, and the limits in `old`; returns whether there was
/// room.
fn put_usage(work: &mut Work<'_>, ino: Ino, kind: usize, old: &[u8]) -> Result<bool> {
    let (Some(usages), Some(magic)) = (work.survey.usages.get(kind), MAGICS.get(kind)) else {
        return Ok(false);
    };
    let mut entries = Entries::new();
    for (id, bytes) in entries_of(old) {
        let mut entry = [0; ENTRY];
        put(&mut entry, 0, &bytes);
        put(&mut entry, 24, &[0; 8]);
        put(&mut entry, 48, &[0; 8]);
        entries.insert(id, entry);
    }
    for (id, usage) in usages {
        let usage = usage.of_e2fsck();
        let entry = entries.entry(*id).or_insert([0; ENTRY]);
        put(entry, 0, &id.to_le_bytes());
        put(entry, 24, &usage.inodes.to_le_bytes());
        put(entry, 48, &usage.bytes.to_le_bytes());
    }
    let info = if le32(old, 0) == *magic {
        old.get(8..20).unwrap_or(&[0; 12]).to_vec()
    } else {
        // A week of grace for blocks and inodes.
        [604_800u32.to_le_bytes(), 604_800u32.to_le_bytes(), [0; 4]].concat()
    };
    let file = encode(*magic, &info, &entries);
    let has_room = write(work, ino, &file)?;
    if has_room {
        let text = format!("written anew, with what {} ids use", entries.len());
        work.fix(Code::QuotaUsage, Place::ino(ino), text);
    }
    Ok(has_room)
}

/// Whether an inode is a quota file, or has the number that no user's file can have.
fn may_be_written(old: &[u8], ino: Ino, kind: usize) -> bool {
    let usual = [Some(Ino::USER_QUOTA), Some(Ino::GROUP_QUOTA), None];
    MAGICS.get(kind) == Some(&le32(old, 0)) || usual.get(kind) == Some(&Some(ino))
}

/// A whole quota file.
fn encode(magic: u32, info: &[u8], entries: &Entries) -> Vec<u8> {
    let mut blocks: Vec<Vec<u8>> = vec![vec![0; BLOCK]; 2];
    let mut room = 0;
    let all: Vec<_> = entries.iter().collect();
    for some in all.chunks(ENTRIES_PER_LEAF) {
        let leaf = blocks.len();
        let mut bytes = vec![0; BLOCK];
        put(&mut bytes, 8, &(some.len() as u16).to_le_bytes());
        for (i, (id, entry)) in some.iter().enumerate() {
            let mut entry = **entry;
            if entry.iter().all(|byte| *byte == 0) {
                // All zeros mean that the place is free.
                put(&mut entry, 64, &1u64.to_le_bytes());
            }
            put(&mut bytes, LEAF_HEADER + i * ENTRY, &entry);
            refer(&mut blocks, **id, leaf);
        }
        // Nodes of the tree may have been added meanwhile.
        let at = blocks.iter().position(Vec::is_empty).unwrap_or(leaf);
        if let Some(place) = blocks.get_mut(at) {
            *place = bytes;
        }
        if some.len() < ENTRIES_PER_LEAF {
            room = leaf as u32;
        }
    }
    let count = blocks.len() as u32;
    if let Some(header) = blocks.first_mut() {
        put(header, 0, &magic.to_le_bytes());
        put(header, 4, &1u32.to_le_bytes());
        put(header, 8, info);
        put(header, 20, &count.to_le_bytes());
        put(header, 28, &room.to_le_bytes());
    }
    blocks.concat()
}

/// Has the tree lead from `id` to `leaf`, whose place is kept if it is the next.
fn refer(blocks: &mut Vec<Vec<u8>>, id: u32, leaf: usize) {
    if blocks.len() == leaf {
        blocks.push(Vec::new());
    }
    let mut node = 1;
    for level in 0..DEPTH {
        let digit = (id >> (24 - 8 * level)) & 0xff;
        let at = digit as usize * 4;
        let mut next = blocks.get(node).map_or(0, |bytes| le32(bytes, at)) as usize;
        if next == 0 {
            next = if level + 1 == DEPTH {
                leaf
            } else {
                blocks.len()
            };
            if level + 1 < DEPTH {
                blocks.push(vec![0; BLOCK]);
            }
            if let Some(bytes) = blocks.get_mut(node) {
                put(bytes, at, &(next as u32).to_le_bytes());
            }
        }
        node = next;
    }
}

/// Writes the content of a file of the file system's own; returns whether there was room.
fn write(work: &mut Work<'_>, ino: Ino, content: &[u8]) -> Result<bool> {
    let volume = work.volume();
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(false);
    };
    let size = volume.block_size();
    let needed = size.blocks_for(content.len() as u64);
    let ratio = volume.cluster_ratio();
    let old = maps::runs(volume, ino, &inode)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut lblk = 0;
    while lblk < needed {
        let len = ratio.min(needed - lblk) as u32;
        let there = maps::lookup(&old, lblk as u32).filter(|at| work.owns(*at));
        let there = there.filter(|_| {
            let last = lblk as u32 + len - 1;
            maps::lookup(&old, last).is_some()
        });
        let at = match there {
            Some(at) => Some(at),
            None => work.new_block()?,
        };
        let Some(at) = at else { return Ok(false) };
        runs.push(Run {
            lblk: lblk as u32,
            len,
            pblk: at.get(),
            unwritten: false,
        });
        lblk += u64::from(len);
    }
    if !Builder::rebuild(work, ino, &runs)? {
        return Ok(false);
    }
    let mut chunks = content.chunks(size.len());
    for run in &runs {
        for i in 0..u64::from(run.len) {
            let mut bytes = chunks.next().unwrap_or_default().to_vec();
            bytes.resize(size.len(), 0);
            work.put_block(Pblk::new(run.pblk + i), &bytes)?;
        }
    }
    let len = content.len() as u64;
    work.edit_inode(ino, |inode, _| inode.size = len)
}
