//! Inodes of which nothing can be kept: what lies in their place was never an inode, or is one no
//! more.
//!
//! One wrong bit gives a wrong checksum, and at most one field that contradicts another. Where the
//! checksum is wrong and many fields are, none says anything: not the type, not the owner, not the
//! map. To take such an inode for a file would make set-ID files and devices of noise. Where inodes
//! have no checksums, one more field must be wrong, the fragment that no system uses among them.

use crate::bytes::{le16, le32};
use crate::inode::subject;
use crate::volume::Volume;
use extant_format::inode::rules::{Report, looks_like_extents};
use extant_format::inode::{FileType, Inode, InodeFlags};
use extant_format::{Ino, indirect};

/// So many contradictions are not one fault.
const ENOUGH: u32 = 4;
/// The address of a fragment, which no system ever used.
const FRAGMENT: usize = 0x70;

/// How many fields of an inode contradict each other or the file system, if its checksum is not
/// right and they are many.
pub(crate) fn contradictions(volume: &Volume, ino: Ino, slot: &[u8]) -> Option<u32> {
    if volume.seed.is_none() {
        // The one look that most inodes take.
        if le32(slot, FRAGMENT) == 0 {
            return None;
        }
        let inode = volume.parse_inode(slot, ino, &mut |_| {})?;
        let count = count(volume, ino, &inode, slot);
        return (count > ENOUGH).then_some(count);
    }
    let mut is_wrong = false;
    let inode = volume.parse_inode(slot, ino, &mut |e| is_wrong |= e.is_checksum())?;
    if !is_wrong {
        return None;
    }
    let count = count(volume, ino, &inode, slot);
    (count >= ENOUGH).then_some(count)
}

fn count(volume: &Volume, ino: Ino, inode: &Inode, slot: &[u8]) -> u32 {
    let file_type = inode.file_type();
    let extra = usize::from(le16(slot, 128));
    let blocks = volume.geo.blocks_count();
    let size = u64::from(volume.block_size().bytes());
    let subject = subject(volume, ino, inode, slot);
    let mut broken = volume.rules.broken(&subject);
    let has_wrong_flags = broken.any(|rule| matches!(rule.report, Report::Flags));
    let sectors = blocks.saturating_mul(size / 512);
    [
        file_type.is_none(),
        slot.len() > 128 && (extra > slot.len() - 128 || extra % 4 != 0),
        le32(slot, FRAGMENT) != 0,
        file_type.is_none() || has_wrong_flags,
        inode.dtime != 0 && inode.links != 0,
        inode.file_acl.get() != 0 && !volume.physical().contains(&inode.file_acl.get()),
        inode.sectors(volume.block_size()) > sectors,
        file_type.is_some_and(|file_type| !has_possible_map(volume, inode, file_type)),
        file_type.is_some_and(|t| t != FileType::Regular)
            && inode.size > blocks.saturating_mul(size),
    ]
    .into_iter()
    .map(u32::from)
    .sum()
}

/// Whether what lies in the place of the map can be one of the form that the inode says.
fn has_possible_map(volume: &Volume, inode: &Inode, file_type: FileType) -> bool {
    if inode.flags.contains(InodeFlags::INLINE_DATA) || file_type == FileType::Symlink {
        return true;
    }
    if !matches!(file_type, FileType::Regular | FileType::Directory) {
        // A device number, or nothing.
        return inode.map.iter().skip(8).all(|byte| *byte == 0);
    }
    if inode.flags.contains(InodeFlags::EXTENTS) {
        return looks_like_extents(inode);
    }
    let physical = volume.physical();
    let pointers = indirect::root_pointers(&inode.map);
    let mut used = pointers.iter().filter(|pointer| **pointer != 0);
    used.all(|pointer| physical.contains(&u64::from(*pointer)))
}
