//! Files that wait to be deleted or cut: the list through the inodes, and the orphan file.

use crate::error::Result;
use crate::inode::fs_seed;
use crate::maps;
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::features::{Compat, RoCompat};
use extant_format::inode::{FileType, Inode};
use extant_format::orphan_file::{OrphanBlock, block_seed};
use extant_format::{Ino, Pblk};
use std::collections::HashSet;

/// Linux does not mount with an orphan file of more blocks.
const BLOCKS_MAX: u64 = 512;

/// All orphans. `recovered` says that what is judged comes out of a journal: the file system was
/// not closed then.
pub(crate) fn collect(volume: &Volume, recovered: bool, sink: &mut Sink) -> Result<HashSet<Ino>> {
    let mut orphans = HashSet::new();
    list(volume, &mut orphans, sink)?;
    let was_closed = !recovered && !volume.sb.needs_recovery();
    file(volume, was_closed, &mut orphans, sink)?;
    if !orphans.is_empty() {
        let text = format!(
            "{} files wait to be deleted or cut at the next mount",
            orphans.len()
        );
        sink.say(Code::OrphansPending, Place::FILE_SYSTEM, text);
    }
    Ok(orphans)
}

/// Says what Linux does with orphans where the superblock remembers errors: it gives up a list, and
/// mounts nothing for reading where a file holds some.
pub(crate) fn with_errors(volume: &Volume, orphans: &HashSet<Ino>, sink: &mut Sink) {
    let code = if volume.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
        Code::OrphanFile
    } else {
        Code::OrphanList
    };
    if !orphans.is_empty() {
        let text = "files wait to be deleted or cut, which Linux does not do while the file system remembers errors";
        sink.say(code, Place::FILE_SYSTEM, text);
    }
}

/// Whether an inode can be an orphan at all.
fn is_possible(volume: &Volume, ino: Ino) -> bool {
    let sb = &volume.sb;
    let own = [sb.orphan_file_ino(), sb.journal_ino()];
    let mut own = own.into_iter().chain(sb.quota_inodes());
    (sb.first_ino().get()..=volume.geo.inodes_count()).contains(&ino.get())
        && !own.any(|own| own == Some(ino))
}

/// The inode of an orphan, or why Linux does not take it for one: it deletes files without a link,
/// and cuts those with one to their size.
fn candidate(volume: &Volume, ino: Ino) -> Result<std::result::Result<Inode, &'static str>> {
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(Err("an inode that cannot be read"));
    };
    let can_be_cut = match inode.file_type() {
        None => return Ok(Err("an inode that is not in use")),
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => !volume.rules.is_fast_symlink(&inode),
        Some(_) => false,
    };
    Ok(if inode.links == 0 || can_be_cut {
        Ok(inode)
    } else {
        Err("a file with a link and without a length that could be cut")
    })
}

/// Whether the last word of a block of the orphan file, where its checksum is if there are any, is
/// not zero.
fn has_checksum(block: &[u8]) -> bool {
    block.last_chunk() != Some(&[0; 4])
}

fn list(volume: &Volume, orphans: &mut HashSet<Ino>, sink: &mut Sink) -> Result<()> {
    let mut next = volume.sb.orphan_list_head();
    while let Some(ino) = next {
        let place = Place::ino(ino);
        if !is_possible(volume, ino) {
            let text = "the list of orphans names an inode that cannot be one";
            sink.say(Code::OrphanList, place, text);
            return Ok(());
        }
        if !orphans.insert(ino) {
            let text = "the list of orphans is a circle";
            sink.say(Code::OrphanList, place, text);
            return Ok(());
        }
        let inode = match candidate(volume, ino)? {
            Ok(inode) => inode,
            Err(why) => {
                let text = format!("the list of orphans names {why}");
                sink.say(Code::OrphanList, place, text);
                orphans.remove(&ino);
                return Ok(());
            }
        };
        next = inode.next_orphan();
    }
    Ok(())
}

fn file(
    volume: &Volume,
    was_closed: bool,
    orphans: &mut HashSet<Ino>,
    sink: &mut Sink,
) -> Result<()> {
    if !volume.has_compat(Compat::ORPHAN_FILE) {
        return Ok(());
    }
    let Some(ino) = volume.sb.orphan_file_ino() else {
        let text = "the feature orphan_file is on, but no orphan file is named";
        sink.say(Code::OrphanFile, Place::FILE_SYSTEM, text);
        return Ok(());
    };
    let place = Place::ino(ino);
    if !volume.has_compat(Compat::HAS_JOURNAL) {
        let text = "there is an orphan file, but no journal";
        sink.say(Code::OrphanFile, place, text);
    }
    let Some((_, inode)) = volume.inode(ino)? else {
        sink.say(Code::OrphanFile, place, "the inode cannot be read");
        return Ok(());
    };
    if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
        let text = "the inode is no regular file with a link";
        sink.say(Code::OrphanFile, place, text);
        return Ok(());
    }
    let size = volume.block_size();
    let blocks = inode.size >> size.log2();
    let runs = maps::runs(volume, ino, &inode)?;
    let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
    if mapped != blocks || inode.size & (u64::from(size.bytes()) - 1) != 0 {
        let what = "mapped blocks of the orphan file";
        sink.number(Code::OrphanFile, place, what, mapped, blocks);
    }
    if blocks > BLOCKS_MAX {
        let what = "blocks of the orphan file";
        sink.number(Code::OrphanFile, place, what, blocks, BLOCKS_MAX);
        return Ok(());
    }
    let may_hold = volume.has_ro_compat(RoCompat::ORPHAN_PRESENT);
    let (known, mut is_empty) = (sink.total(), true);
    for run in runs {
        for i in 0..run.len.min(BLOCKS_MAX as u32) {
            let at = Pblk::new(run.pblk + u64::from(i));
            let place = place.at_block(at);
            let bytes = volume.block(at)?;
            let seed = volume
                .seed
                .map(|_| block_seed(fs_seed(volume), ino, inode.generation, at));
            let block = match OrphanBlock::parse(&bytes, size, seed) {
                Ok(block) => block,
                Err(e) => {
                    sink.format(Code::OrphanFile, place, e);
                    continue;
                }
            };
            if volume.seed.is_none() && !may_hold && has_checksum(&bytes) {
                let text = "an empty block has a checksum, which nothing asks for";
                sink.say(Code::OrphanFile, place, text);
            }
            for (slot, orphan) in block.orphans() {
                is_empty = false;
                if !is_possible(volume, orphan) {
                    let text = format!("slot {slot} names inode {orphan}, which cannot be one");
                    sink.say(Code::OrphanFile, place, text);
                } else if !may_hold {
                    let text =
                        format!("slot {slot} names inode {orphan}, but the file should be empty");
                    sink.say(Code::OrphanFile, place, text);
                } else if let Err(why) = candidate(volume, orphan)? {
                    let text = format!("slot {slot} names inode {orphan}, {why}");
                    sink.say(Code::OrphanFile, place, text);
                } else if !orphans.insert(orphan) {
                    let text = format!("slot {slot} names inode {orphan}, which is named already");
                    sink.say(Code::OrphanFile, place, text);
                }
            }
        }
    }
    // A mount turns the feature on before there is an orphan, and a clean end turns it off.
    if may_hold && is_empty && was_closed && sink.total() == known {
        let text = "the superblock says that the file holds orphans, and it is empty";
        sink.say(Code::OrphanFile, place, text);
    }
    Ok(())
}
