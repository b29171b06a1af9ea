//! Files that wait to be deleted or cut: what a mount would do with them is done.

use super::map_builder::{Builder, salvage};
use super::system_files::is_orphan_file;
use super::work::Work;
use crate::error::Result;
use crate::inode::fs_seed;
use crate::maps::Run;
use crate::{Code, Place, special};
use extant_format::features::RoCompat;
use extant_format::inode::{Inode, InodeFlags};
use extant_format::orphan_file::{block_seed, encode};
use extant_format::{Ino, Pblk};

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    let broken = work.has(Code::OrphanList) || work.has(Code::OrphanFile);
    if work.survey.orphans.is_empty() && !broken {
        return Ok(());
    }
    let mut orphans: Vec<Ino> = work.survey.orphans.iter().copied().collect();
    orphans.sort_unstable();
    for ino in orphans {
        finish(work, ino)?;
    }
    let mut sb = work.superblock()?;
    if sb.orphan_list_head().is_some() {
        sb.set_orphan_list_head(None);
        work.put_superblock(&sb)?;
        work.fix(Code::OrphanList, Place::FILE_SYSTEM, "emptied");
    }
    file(work)
}

/// Deletes or cuts one file.
fn finish(work: &mut Work<'_>, ino: Ino) -> Result<()> {
    let volume = work.volume();
    let place = Place::ino(ino);
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    if ino == Ino::ROOT {
        return Ok(());
    }
    if inode.links == 0 {
        let now = work.deletion_time();
        work.edit_inode(ino, |inode, _| inode.dtime = now)?;
        work.fix(Code::OrphansPending, place, "deleted: it has no name");
        return Ok(());
    }
    if let Some(file_type) = inode.file_type()
        && special::has_map(volume, &inode, file_type)
        && !inode.flags.contains(InodeFlags::INLINE_DATA)
    {
        cut(work, ino, &inode)?;
    }
    work.edit_inode(ino, |inode, _| inode.dtime = 0)?;
    let text = format!("cut to its size of {} bytes", inode.size);
    work.fix(Code::OrphansPending, place, text);
    Ok(())
}

/// Takes away the blocks past a file's end, and clears the rest of its last one.
fn cut(work: &mut Work<'_>, ino: Ino, inode: &Inode) -> Result<()> {
    let volume = work.volume();
    let size = volume.block_size();
    let end = size.blocks_for(inode.size);
    let runs = salvage(volume, ino, inode)?;
    let kept: Vec<Run> = runs
        .iter()
        .filter(|run| u64::from(run.lblk) < end)
        .map(|run| Run {
            len: u64::from(run.len).min(end - u64::from(run.lblk)) as u32,
            ..*run
        })
        .collect();
    if kept != runs {
        Builder::rebuild(work, ino, &kept)?;
    }
    let used = (inode.size & (u64::from(size.bytes()) - 1)) as usize;
    let last = end.checked_sub(1).and_then(|n| u32::try_from(n).ok());
    // Zeros would not be zeros in an encrypted block, and in a shared one another's content.
    let may_clear = !inode.flags.contains(InodeFlags::ENCRYPT)
        && !volume.has_ro_compat(RoCompat::SHARED_BLOCKS);
    if used > 0
        && may_clear
        && let Some(at) = last.and_then(|lblk| crate::maps::lookup(&kept, lblk))
        && work.owns(at)
    {
        let mut bytes = volume.block(at)?;
        if let Some(rest) = bytes.get_mut(used..) {
            rest.fill(0);
        }
        work.put_block(at, &bytes)?;
    }
    Ok(())
}

/// Empties the orphan file.
fn file(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    let Some(ino) = volume.sb.orphan_file_ino() else {
        return Ok(());
    };
    let place = Place::ino(ino);
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    if !is_orphan_file(volume, ino)? {
        return Ok(());
    }
    let size = volume.block_size();
    let mut emptied = 0u32;
    for run in crate::maps::runs(volume, ino, &inode)? {
        for i in 0..run.len {
            let at = Pblk::new(run.pblk + u64::from(i));
            let seed = volume.seed;
            let seed = seed.map(|_| block_seed(fs_seed(volume), ino, inode.generation, at));
            let mut empty = vec![0; size.len()];
            encode(&[], &mut empty, seed);
            if volume.block(at)? != empty && work.owns(at) {
                work.put_block(at, &empty)?;
                emptied += 1;
            }
        }
    }
    if emptied > 0 {
        let text = format!("{emptied} blocks of the orphan file were emptied");
        work.fix(Code::OrphanFile, place, text);
    }
    let mut sb = work.superblock()?;
    if sb.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
        sb.set_orphan_present(false);
        work.put_superblock(&sb)?;
        work.fix(Code::OrphanFile, place, "marked as empty");
    }
    Ok(())
}
