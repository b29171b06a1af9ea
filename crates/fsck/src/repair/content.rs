//! What inodes hold themselves: symbolic links, inline data, attributes.

use super::work::{Work, delete};
use crate::bytes::{le16, le32};
use crate::encryption::Context;
use crate::error::Result;
use crate::report::Sink;
use crate::volume::Volume;
use crate::{maps, xattr};
use extant_format::Ino;
use extant_format::inode::rules::looks_like_extents;
use extant_format::inode::{FileType, Inode, InodeFlags, MAP_BYTES};
use extant_format::xattr::name::{AttributeName, INLINE_DATA};
use extant_format::xattr::{
    Attribute, ENTRY_HEADER_LEN, EaInode, INODE_HEADER_LEN, MAGIC, NewValue, encode_in_inode,
};

/// Gives a symbolic link the length that its target has; one without a target is deleted.
pub(super) fn symlink(
    work: &mut Work<'_>,
    ino: Ino,
    inode: &mut Inode,
    slot: &mut [u8],
) -> Result<()> {
    let volume = work.volume();
    let now = work.deletion_time();
    if inode.flags.contains(InodeFlags::ENCRYPT) {
        return encrypted_symlink(work, ino, inode, slot);
    }
    if super::entries::is_inline(volume, inode) {
        let mut target = inode.map.to_vec();
        target.extend_from_slice(xattr::inline_value(volume, inode, slot).unwrap_or_default());
        let len = target.iter().position(|byte| *byte == 0);
        let len = len.unwrap_or(target.len());
        if len < MAP_BYTES {
            // Short enough for the map alone, where such a link is looked for.
            make_short(inode, &target, len);
            rewrite(volume, inode, slot, Content::Dropped)?;
        } else {
            let rest = target.get(MAP_BYTES..len).unwrap_or_default();
            rewrite(volume, inode, slot, Content::Kept(Some(rest)))?;
        }
        set_target_len(inode, len, target.len(), now);
        return Ok(());
    }
    if !crate::special::has_map(volume, inode, FileType::Symlink) {
        let len = inode.map.iter().position(|byte| *byte == 0);
        if len.is_none()
            && let Some(last) = inode.map.last_mut()
        {
            *last = 0;
        }
        set_target_len(inode, len.unwrap_or(MAP_BYTES - 1), MAP_BYTES, now);
        return Ok(());
    }
    let runs = maps::runs(volume, ino, inode)?;
    let one = runs.len() == 1 && runs.iter().all(|run| run.lblk == 0 && run.len == 1);
    let Some(at) = maps::lookup(&runs, 0) else {
        delete(inode, now);
        return Ok(());
    };
    let mut bytes = volume.block(at)?;
    let len = bytes.iter().position(|byte| *byte == 0);
    let len = match len {
        Some(len) => len,
        None => {
            if let Some(last) = bytes.last_mut() {
                *last = 0;
            }
            work.put_block(at, &bytes)?;
            bytes.len() - 1
        }
    };
    if len < MAP_BYTES {
        // Short enough for the map, where such a link is looked for.
        make_short(inode, &bytes, len);
    } else if !one {
        let first: Vec<maps::Run> = runs
            .iter()
            .take(1)
            .map(|run| maps::Run { len: 1, ..*run })
            .collect();
        if super::map_builder::Builder::rebuild(work, ino, &first)?
            && let Some((_, new)) = volume.inode(ino)?
        {
            inode.map = new.map;
        }
    }
    set_target_len(inode, len, bytes.len(), now);
    Ok(())
}

/// Whether the block with the target of a symbolic link, if it has one, is the link's alone.
pub(super) fn owns_target(work: &Work<'_>, ino: Ino) -> Result<bool> {
    let volume = work.volume();
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(true);
    };
    let apart = super::entries::is_inline(volume, &inode)
        || !crate::special::has_map(volume, &inode, FileType::Symlink);
    if apart {
        return Ok(true);
    }
    let runs = maps::runs(volume, ino, &inode)?;
    Ok(maps::lookup(&runs, 0).is_none_or(|at| work.owns(at)))
}

/// Puts the first `len` bytes of a target into the map.
fn make_short(inode: &mut Inode, target: &[u8], len: usize) {
    inode
        .flags
        .remove(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
    inode.map = [0; MAP_BYTES];
    for (to, from) in inode.map.iter_mut().zip(target.iter().take(len)) {
        *to = *from;
    }
}

fn set_target_len(inode: &mut Inode, len: usize, room: usize, now: u32) {
    if len == 0 {
        delete(inode, now);
    } else {
        inode.size = len.min(room) as u64;
    }
}

/// Shortest target as ciphertext: one block of the cipher.
const CIPHERTEXT_MIN: usize = 16;

/// Gives a symbolic link whose target is ciphertext the length that is stored before that; one
/// without is deleted.
fn encrypted_symlink(work: &Work<'_>, ino: Ino, inode: &mut Inode, slot: &[u8]) -> Result<()> {
    let volume = work.volume();
    let is_encrypted = matches!(Context::of(volume, inode, slot)?, Context::Policy(_));
    if crate::special::is_text(inode) && !is_encrypted {
        // The flag is what is wrong.
        return Ok(());
    }
    let length = |bytes: &[u8], room: usize| {
        let len = usize::from(le16(bytes, 0)) + 2;
        (CIPHERTEXT_MIN + 2..room).contains(&len).then_some(len)
    };
    let len = if super::entries::is_inline(volume, inode) {
        let value = xattr::inline_value(volume, inode, slot).unwrap_or_default();
        let room = MAP_BYTES + value.len();
        length(&inode.map, room + 1).filter(|len| *len == room)
    } else {
        let has_map = inode.flags.contains(InodeFlags::EXTENTS)
            || crate::special::has_map(volume, inode, FileType::Symlink);
        match length(&inode.map, MAP_BYTES).filter(|_| !has_map) {
            Some(len) => Some(len),
            None => match maps::lookup(&maps::runs(volume, ino, inode)?, 0) {
                Some(at) => length(&volume.block(at)?, volume.block_size().len()),
                None => None,
            },
        }
    };
    // Of the two lengths of a target in the map the other may be the right one.
    let fits = (CIPHERTEXT_MIN as u64 + 2..MAP_BYTES as u64).contains(&inode.size);
    let in_map = !crate::special::has_map(volume, inode, FileType::Symlink)
        && !super::entries::is_inline(volume, inode);
    match len {
        Some(len) => inode.size = len as u64,
        None if fits && in_map => {
            let stored = (inode.size as u16 - 2).to_le_bytes();
            for (to, from) in inode.map.iter_mut().zip(stored) {
                *to = from;
            }
        }
        None => delete(inode, work.deletion_time()),
    }
    Ok(())
}

/// Takes away a flag of inline data that says what is not so: without the attribute Linux reads the
/// map, and this one is a map. What is no inline data must not be cut as such.
pub(super) fn drop_false_inline_flag(
    volume: &Volume,
    ino: Ino,
    inode: &mut Inode,
    slot: &[u8],
) -> Result<()> {
    let is_flagged = super::entries::is_inline(volume, inode);
    if !is_flagged || xattr::inline_value(volume, inode, slot).is_some() {
        return Ok(());
    }
    let mut judged = inode.clone();
    judged.flags.remove(InodeFlags::INLINE_DATA);
    if looks_like_extents(&judged) {
        judged.flags.insert(InodeFlags::EXTENTS);
    }
    let file_type = judged.file_type();
    let has_map = file_type.is_some_and(|kind| crate::special::has_map(volume, &judged, kind));
    if has_map && is_counted_map(volume, ino, &judged)? {
        *inode = judged;
    }
    Ok(())
}

/// Whether a map is a sound one whose blocks are counted in the inode: short text may pass for
/// pointers, but has none.
pub(super) fn is_counted_map(volume: &Volume, ino: Ino, inode: &Inode) -> Result<bool> {
    if inode.flags.contains(InodeFlags::EXTENTS) {
        return Ok(looks_like_extents(inode));
    }
    let mut blocks = 0u64;
    let mut sink = Sink::new();
    maps::walk(volume, ino, inode, &mut sink, &mut |piece| {
        blocks += match piece {
            maps::Piece::Node(_) => 1,
            maps::Piece::Data(run) => run.len.into(),
        };
    })?;
    let sectors = blocks.saturating_mul(u64::from(volume.block_size().bytes()) / 512);
    Ok(sink.total() == 0 && sectors <= inode.sectors(volume.block_size()))
}

/// Gives inline data the attribute that its second part lies in, and a size that fits.
pub(super) fn inline_data(volume: &Volume, inode: &mut Inode, slot: &mut [u8]) -> Result<()> {
    if xattr::inline_value(volume, inode, slot).is_none() {
        // Without it Linux reads the map as one: what is sound so was never inline.
        let judged = Inode {
            flags: inode.flags - InodeFlags::INLINE_DATA,
            ..inode.clone()
        };
        let is_link = judged.file_type() == Some(FileType::Symlink);
        if is_link && volume.rules.is_fast_symlink(&judged) {
            inode.flags.remove(InodeFlags::INLINE_DATA);
            return Ok(());
        }
        rewrite(volume, inode, slot, Content::Kept(None))?;
        let room = xattr::inline_value(volume, inode, slot).map_or(0, <[u8]>::len);
        inode.size = inode.size.min((MAP_BYTES + room) as u64);
    }
    if inode.file_type() == Some(FileType::Directory) {
        let room = xattr::inline_value(volume, inode, slot).map_or(0, <[u8]>::len);
        inode.size = (MAP_BYTES + room) as u64;
    }
    Ok(())
}

/// Keeps the attributes in an inode that are sound.
pub(super) fn attributes(volume: &Volume, inode: &Inode, slot: &mut [u8]) -> Result<()> {
    let content = if super::entries::is_inline(volume, inode) {
        Content::Kept(None)
    } else {
        Content::Unchanged
    };
    rewrite(volume, inode, slot, content)
}

/// Takes away the attribute of inline data, of an inode that has a map now.
pub(super) fn drop_inline(work: &mut Work<'_>, ino: Ino) -> Result<()> {
    let volume = work.volume();
    let Some((mut slot, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    rewrite(volume, &inode, &mut slot, Content::Dropped)?;
    work.put_inode(ino, &inode, &mut slot)
}

/// What becomes of the attribute of inline data.
#[derive(Clone, Copy)]
enum Content<'a> {
    /// It stays if it is there.
    Unchanged,
    /// It is there, with this value if one is given.
    Kept(Option<&'a [u8]>),
    /// It goes.
    Dropped,
}

fn rewrite(volume: &Volume, inode: &Inode, slot: &mut [u8], content: Content<'_>) -> Result<()> {
    let old = inode.xattr_region(slot, volume.inode_size()).to_vec();
    let base = old.get(INODE_HEADER_LEN..).unwrap_or_default();
    let mut found = if le32(&old, 0) == MAGIC {
        salvage(volume, base, 0)?
    } else {
        Vec::new()
    };
    let has_it = found.iter().any(|attribute| attribute.name == INLINE_DATA);
    let value = match content {
        Content::Kept(Some(rest)) => Some(rest),
        Content::Kept(None) if !has_it => Some(&[][..]),
        _ => None,
    };
    if value.is_some() || matches!(content, Content::Dropped) {
        found.retain(|attribute| attribute.name != INLINE_DATA);
    }
    if let Some(rest) = value {
        found.insert(
            0,
            Attribute {
                name: INLINE_DATA,
                value: NewValue::Bytes(rest),
            },
        );
    }
    let range = inode.xattr_range(volume.inode_size());
    let Some(region) = slot.get_mut(range) else {
        return Ok(());
    };
    while !encode_in_inode(region, &found) && found.pop().is_some() {}
    Ok(())
}

/// The attributes of an area that can be made out: names and values inside it, values apart from
/// each other.
pub(super) fn salvage<'a>(
    volume: &Volume,
    base: &'a [u8],
    first: usize,
) -> Result<Vec<Attribute<'a>>> {
    let max = volume.geo.inodes_count();
    let mut found: Vec<Attribute<'a>> = Vec::new();
    let mut values: Vec<(usize, usize)> = Vec::new();
    let mut at = first;
    while le32(base, at) != 0 && at + ENTRY_HEADER_LEN <= base.len() {
        let name_len = base.get(at).copied().map_or(0, usize::from);
        let index = base.get(at + 1).copied().unwrap_or(0);
        let start = at + ENTRY_HEADER_LEN;
        let Some(suffix) = base.get(start..start + name_len) else {
            break;
        };
        let (offset, ino) = (usize::from(le16(base, at + 2)), le32(base, at + 4));
        let size = le32(base, at + 8);
        at = start + ((name_len + 3) & !3);
        let name = AttributeName { index, suffix };
        let impossible = index == 0 || suffix.contains(&0);
        if impossible || found.iter().any(|attribute| attribute.name == name) {
            continue;
        }
        let value = if ino != 0 {
            match value_in_inode(volume, Ino::new(ino.min(max)), size)? {
                Some(value) if ino <= max => value,
                _ => continue,
            }
        } else {
            let end = offset.saturating_add(size as usize);
            let overlaps = values.iter().any(|(a, b)| offset < *b && *a < end);
            match base.get(offset..end) {
                _ if size == 0 => NewValue::Bytes(&[]),
                Some(bytes) if !overlaps => {
                    values.push((offset, end));
                    NewValue::Bytes(bytes)
                }
                _ => continue,
            }
        };
        found.push(Attribute { name, value });
    }
    // A value over the entries is none.
    let entries_end = at + 4;
    found.retain(|attribute| match attribute.value {
        NewValue::Bytes(bytes) if !bytes.is_empty() => {
            let start = bytes.as_ptr() as usize - base.as_ptr() as usize;
            start >= entries_end
        }
        _ => true,
    });
    Ok(found)
}

/// The value that an inode holds, if it is of that kind.
fn value_in_inode(volume: &Volume, ino: Ino, size: u32) -> Result<Option<NewValue<'static>>> {
    if !volume.has_incompat(extant_format::features::Incompat::EA_INODE) {
        return Ok(None);
    }
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(None);
    };
    let regular = inode.file_type() == Some(FileType::Regular) && inode.links > 0;
    let own = EaInode::from_inode(&inode).filter(|_| regular && inode.size != 0);
    Ok(own.map(|own| {
        let size = u32::try_from(inode.size).unwrap_or(size);
        NewValue::InInode {
            ino,
            size,
            hash: own.hash,
        }
    }))
}
