//! The root directory where it lies in its inode, from which Linux does not mount.

use super::content::drop_inline;
use super::dirs::{add, first_block, inline_entries};
use super::entries::is_inline;
use super::map_builder::Builder;
use super::work::Work;
use crate::error::Result;
use crate::maps::Run;
use crate::{Code, Place};
use extant_format::Ino;
use extant_format::features::Incompat;
use extant_format::inode::{FileType, InodeFlags, MAP_BYTES};

/// Gives the root directory a block, with the names that its inode holds.
pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    let is_found = work
        .findings(&[Code::InlineData])
        .any(|finding| finding.place.ino == Some(Ino::ROOT));
    if !is_found {
        return Ok(());
    }
    let Some((slot, inode)) = volume.inode(Ino::ROOT)? else {
        return Ok(());
    };
    let is_dir = inode.file_type() == Some(FileType::Directory);
    if !is_dir || inode.blocks != 0 || !is_inline(volume, &inode) {
        return Ok(());
    }
    let (kept, _) = inline_entries(work, &inode, &slot, Ino::ROOT);
    let Some(at) = work.new_block()? else {
        return Ok(());
    };
    work.edit_inode(Ino::ROOT, |inode, _| {
        inode.flags.remove(InodeFlags::INLINE_DATA);
        if volume.has_incompat(Incompat::EXTENTS) {
            inode.flags.insert(InodeFlags::EXTENTS);
        }
        inode.size = volume.block_size().bytes().into();
        inode.map = [0; MAP_BYTES];
        inode.blocks = volume.cluster_ratio() << (volume.block_size().log2() - 9);
    })?;
    drop_inline(work, Ino::ROOT)?;
    let run = Run {
        lblk: 0,
        len: 1,
        pblk: at.get(),
        unwritten: false,
    };
    Builder::rebuild(work, Ino::ROOT, &[run])?;
    let bytes = first_block(work, Ino::ROOT, &inode, Ino::ROOT);
    work.put_block(at, &bytes)?;
    for entry in &kept {
        add(work, Ino::ROOT, &entry.as_new())?;
    }
    let text = format!(
        "the root directory has a block, with its {} names",
        kept.len()
    );
    work.fix(Code::InlineData, Place::ino(Ino::ROOT), text);
    Ok(())
}
