//! The net under a repair: before a byte is written, what can be reached by name and read before it
//! is compared with what could be after it.
//!
//! It knows nothing of the stages, and reads both file systems anew: the device with what its
//! journal holds, as a mount would have it, and the draft. A file is the same as long as its inode
//! is; a name that is another, in `lost+found` or elsewhere, is one all the same. What may differ:
//! names, times, flags, counts and where things lie; a size that was too small for what is mapped,
//! so that more can be read; what a damaged map hid; a type that contradicts the content.
//!
//! | module | owns |
//! |---|---|
//! | `view` | a file system as a reader sees it |
//! | `walk` | what is reachable, and by which path |
//! | `compare` | one file on both sides |
//! | `loss` | what is told |
//!
//! # Invariants
//! - Only files are compared whose inode, map, attributes or content lie in blocks that change;
//!   blocks that both sides have in common are not read.
//! - Memory follows the number of inodes that are reachable (a bit for each) and the size of one
//!   directory level.

mod compare;
mod loss;
mod view;
mod walk;

pub use loss::{Loss, Lost};

use super::draft::Draft;
use crate::error::{Error, Result};
use crate::maps::Piece;
use compare::{Changed, Sides};
use extant_blockdev::SharedDevice;
use extant_format::Ino;
use extant_format::inode::FileType;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use view::{Seen, View};
use walk::{Reach, paths, walk};

/// Losses that are kept in full; what is beyond is only counted.
const KEPT: usize = 1000;
/// Behind the number of every inode.
const ALL: u64 = 1 << 32;

/// How many files can be reached and read.
pub(super) fn reachable(device: SharedDevice) -> Result<u64> {
    let view = View::new(device)?;
    let (reach, _) = crate::side_by_side(|| walk(&view, &|_| Ok(false)))?;
    let mut count = 0;
    reach
        .inodes
        .runs(0..ALL, &mut |run| count += run.end - run.start);
    Ok(count)
}

/// What a draft would lose: the first of it, and how many files in all.
pub(super) fn losses(draft: &Draft) -> Result<(Vec<Loss>, u64)> {
    let changed = changed(draft)?;
    if changed.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let before = match View::new(draft.mounted()) {
        Ok(view) => view,
        Err(e @ Error::Device(_)) => return Err(e),
        // It cannot be read.
        Err(_) => return Ok((Vec::new(), 0)),
    };
    let after = View::new(draft.device())?;
    let sides = Sides {
        before: &before,
        after: &after,
        changed: &changed,
    };
    let all_moved = has_moved(&before, &after);
    let (reach, mut found) = crate::side_by_side(|| -> Result<_> {
        let touches = |seen: &Seen| Ok(all_moved || is_touched(&sides, seen)?);
        let (reach, touched) = walk(&before, &touches)?;
        let mut found = files(&sides, &touched)?;
        names(&sides, &reach, &touched, &mut found)?;
        Ok((reach, found))
    })?;
    forget_unreadable(&before, &mut found)?;
    let count = found.len() as u64;
    let kept: BTreeMap<Ino, Lost> = found.into_iter().take(KEPT).collect();
    let paths = paths(
        &before,
        &reach,
        &kept.keys().copied().collect::<BTreeSet<_>>(),
    )?;
    let named = kept.into_iter().map(|(ino, what)| Loss {
        ino,
        path: paths.get(&ino).cloned().unwrap_or_default(),
        what,
    });
    Ok((named.collect(), count))
}

/// The blocks that the two sides have not in common.
fn changed(draft: &Draft) -> Result<Changed> {
    let mut changed = Changed::default();
    let size = draft.block_size() as usize;
    let device = draft.mounted();
    for block in draft.written_blocks() {
        let offset = block * size as u64;
        let len = (size as u64).min(device.size().saturating_sub(offset)) as usize;
        let mut before = vec![0; len];
        device.read_at(offset, &mut before)?;
        if before != draft.read(offset, len)? {
            changed.push(block);
        }
    }
    Ok(changed)
}

/// Whether the sides read inodes and blocks by other rules.
fn has_moved(before: &View, after: &View) -> bool {
    let (a, b) = (&before.volume, &after.volume);
    a.geo != b.geo || a.features != b.features || a.sb.checksum_seed() != b.sb.checksum_seed()
}

/// Whether anything that a file consists of changes.
fn is_touched(sides: &Sides<'_>, seen: &Seen) -> Result<bool> {
    if is_inode_touched(sides, seen)? {
        return Ok(true);
    }
    if sides
        .before
        .volume
        .has_incompat(extant_format::features::Incompat::EA_INODE)
    {
        for ino in sides.before.value_inodes(seen)? {
            let Some((slot, inode)) = sides.before.volume.inode(ino)? else {
                continue;
            };
            let value = Seen {
                ino,
                slot,
                inode,
                file_type: FileType::Regular,
                is_inline: false,
            };
            if is_inode_touched(sides, &value)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn is_inode_touched(sides: &Sides<'_>, seen: &Seen) -> Result<bool> {
    let volume = &sides.before.volume;
    let at = volume.inode_offset(seen.ino);
    let Some(offset) = at.filter(|_| at == sides.after.volume.inode_offset(seen.ino)) else {
        return Ok(true);
    };
    let log2 = volume.block_size().log2();
    let blocks = offset >> log2..((offset + seen.slot.len() as u64 - 1) >> log2) + 1;
    if sides.changed.touch(&blocks) {
        let mut slot = vec![0; seen.slot.len()];
        sides.after.volume.read_bytes(offset, &mut slot)?;
        if slot != seen.slot {
            return Ok(true);
        }
    }
    let attributes = seen.inode.file_acl.get();
    let mut touched = sides
        .changed
        .touch(&(attributes..attributes.saturating_add(1)));
    sides.before.walk(seen, &mut |piece| {
        touched |= match piece {
            Piece::Node(block) => sides.changed.touch(&(block.get()..block.get() + 1)),
            Piece::Data(run) => sides
                .changed
                .touch(&(run.pblk..run.pblk + u64::from(run.len))),
        };
    })?;
    Ok(touched)
}

/// What each of some inodes would lose, by number.
fn files(sides: &Sides<'_>, touched: &[Ino]) -> Result<BTreeMap<Ino, Lost>> {
    let found = touched
        .par_iter()
        .map(|ino| {
            let seen = sides.before.inode(*ino)?;
            let lost = seen.map(|seen| sides.compare(&seen)).transpose()?;
            Ok::<_, Error>(lost.flatten().map(|lost| (*ino, lost)))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// What no name leads to any more. As long as no directory names less than before, that cannot be.
fn names(
    sides: &Sides<'_>,
    reach: &Reach,
    touched: &[Ino],
    found: &mut BTreeMap<Ino, Lost>,
) -> Result<()> {
    let is_less = touched
        .par_iter()
        .map(|ino| names_less(sides, reach, *ino))
        .collect::<Result<Vec<bool>>>()?;
    if !is_less.contains(&true) {
        return Ok(());
    }
    let (now, _) = walk(sides.after, &|_| Ok(false))?;
    reach.inodes.runs(0..ALL, &mut |run| {
        for ino in run {
            let ino = Ino::new(u32::try_from(ino).unwrap_or(u32::MAX));
            if !now.contains(ino) {
                found.entry(ino).or_insert(Lost::Name);
            }
        }
    });
    Ok(())
}

/// Whether a directory has no name any more for a readable inode that it had one for.
fn names_less(sides: &Sides<'_>, reach: &Reach, ino: Ino) -> Result<bool> {
    let Some(old) = sides.before.inode(ino)? else {
        return Ok(false);
    };
    if old.file_type != FileType::Directory {
        return Ok(false);
    }
    let mut had = BTreeSet::new();
    sides.before.names(&old, &mut |ino, _| {
        if reach.contains(ino) {
            had.insert(ino);
        }
    })?;
    if let Some(new) = sides.after.inode(ino)?
        && new.file_type == FileType::Directory
    {
        sides.after.names(&new, &mut |ino, _| {
            had.remove(&ino);
        })?;
    }
    Ok(!had.is_empty())
}

/// Leaves out directories of which no block could be read before, and symbolic links whose target
/// could not: but not those that are files by their map.
fn forget_unreadable(before: &View, found: &mut BTreeMap<Ino, Lost>) -> Result<()> {
    let mut readable = Vec::new();
    for (ino, lost) in std::mem::take(found) {
        let is_unreadable = match before.inode(ino)? {
            Some(seen) if seen.file_type == FileType::Directory => {
                !before.names(&seen, &mut |_, _| {})?
            }
            Some(seen) if seen.file_type == FileType::Symlink => {
                before.target(&seen)?.is_none() && !before.is_file_called_link(&seen)?
            }
            _ => false,
        };
        if !is_unreadable {
            readable.push((ino, lost));
        }
    }
    found.extend(readable);
    Ok(())
}

#[cfg(test)]
mod tests;
