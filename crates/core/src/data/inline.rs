//! Content that lies inside the inode: reading and changing it there, and files that outgrow it.
//!
//! A regular file that is made where the file system has `inline_data` begins so, and stays so
//! while what it holds fits beside its attributes. Its content is in the record, so each change is
//! a transaction's like any other of the record, and no folio has any of it. Once it has left it
//! does not come back.

use crate::alloc::Request;
use crate::clock::now;
use crate::data::io::{Position, WriteOptions, check_changeable, device_offset, inside_file};
use crate::data::stored::read::read_inline;
use crate::data::times::stamp;
use crate::fs::Fs;
use crate::inode::{Held, Inode};
use crate::map::MapGuard;
use crate::xattr::LEAVE_CREDITS;
use crate::{Error, Result, xattr};
use extant_format::inode::MAP_BYTES;
use extant_sync::pin;

/// Reads from byte `offset` of a file whose content lies in its inode. Returns how much was read;
/// `None` for any other file.
///
/// # Errors
/// When the attributes in the inode break the format.
pub(super) fn read(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Result<Option<usize>> {
    let len = inside_file(held, offset, buf.len());
    let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else {
        return Ok(Some(0));
    };
    let image = held.snapshot();
    if image.is_inline() {
        read_inline(fs, &image, offset, buf).map(Some)
    } else {
        Ok(None)
    }
}

/// Writes to a file whose content lies in its inode, if what it holds then fits there. Returns
/// where, and how much. `None` for any other file, and for one that had to outgrow its inode, where
/// nothing has been written yet.
///
/// # Errors
/// As for [`check_changeable`] and [`outgrow`]; when the attributes in the inode break the format.
pub(super) fn write(
    fs: &Fs,
    held: &Held,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<Option<(u64, usize)>> {
    let written = write_inside(fs, held, to, buf, options)?;
    if written.is_none() {
        outgrow(fs, held)?;
    }
    Ok(written)
}

fn write_inside(
    fs: &Fs,
    held: &Held,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<Option<(u64, usize)>> {
    let _alone = held.op().write();
    let image = held.snapshot();
    if !image.is_inline() {
        return Ok(None);
    }
    check_changeable(&image)?;
    let start = match to {
        Position::Byte(at) => at,
        Position::End => image.size(),
    };
    if buf.is_empty() {
        return Ok(Some((start, 0)));
    }
    let end = start.saturating_add(buf.len() as u64);
    let Some(mut content) = content_of_size(fs, &image, image.size().max(end))? else {
        return Ok(None);
    };
    let Some(part) = content.get_mut(start as usize..end as usize) else {
        return Ok(None);
    };
    part.copy_from_slice(buf);
    if attributes_around(fs, &image, &content)?.is_none() {
        return Ok(None);
    }
    xattr::take_away(fs, held, options.actor)?;
    replace(fs, held, &content, options)?;
    Ok(Some((start, buf.len())))
}

/// Returns what a file whose content lies in its inode holds once it has this size, if that fits
/// there; `None` also for any other file. The caller holds `op` exclusively: [`replace`] is the
/// next step.
///
/// # Errors
/// When the attributes in the inode break the format.
pub(super) fn resized_alone(fs: &Fs, held: &Held, size: u64) -> Result<Option<Vec<u8>>> {
    let image = held.snapshot();
    if !image.is_inline() {
        return Ok(None);
    }
    let Some(content) = content_of_size(fs, &image, size)? else {
        return Ok(None);
    };
    let around = attributes_around(fs, &image, &content)?;
    Ok(around.map(|_| content))
}

/// Returns the first `size` bytes of what lies in an inode, zeros behind its end; `None` if no
/// inode has room for so much.
fn content_of_size(fs: &Fs, image: &Inode, size: u64) -> Result<Option<Vec<u8>>> {
    if size > u64::from(fs.geometry().inode_size()) {
        return Ok(None);
    }
    let mut content = vec![0; size as usize];
    fs.inline_data(image)?.read(0, &mut content);
    Ok(Some(content))
}

/// Returns the attributes of an inode with the part of `content` that the map has no room for;
/// `None` if they have none either.
fn attributes_around(fs: &Fs, image: &Inode, content: &[u8]) -> Result<Option<Box<[u8]>>> {
    let rest = content.get(MAP_BYTES..).unwrap_or_default();
    fs.xattrs_with_content(image, Some(rest))
}

/// Puts `content`, for which there is room, in the place of what lies in an inode. The caller holds
/// `op` exclusively.
///
/// # Errors
/// When the attributes in the inode break the format; what stopped the journal.
pub(super) fn replace(
    fs: &Fs,
    held: &Held,
    content: &[u8],
    options: WriteOptions<'_>,
) -> Result<()> {
    let xattrs = attributes_around(fs, &held.snapshot(), content)?.ok_or(Error::NoSpace)?;
    let mut map = [0; MAP_BYTES];
    map.iter_mut()
        .zip(content)
        .for_each(|(to, from)| *to = *from);
    let time = now();
    let handle = fs.start(1)?;
    held.live().note_datasync(&handle);
    held.live().update(&handle, |inode| {
        inode.set_xattr_region(xattrs);
        let disk = inode.disk_mut();
        disk.map = map;
        disk.size = content.len() as u64;
        stamp(disk, time, options);
    })
}

/// Gives a file whose content lies in its inode a block for that, so that it can be changed. Does
/// nothing to any other.
///
/// # Errors
/// As for [`check_changeable`]: what may not be changed stays as it is. [`Error::NoSpace`]; when
/// the attributes in the inode break the format; what the device says.
pub(super) fn outgrow(fs: &Fs, held: &Held) -> Result<()> {
    if !held.image(&pin()).is_inline() {
        return Ok(());
    }
    let _alone = held.op().write();
    outgrow_alone(fs, held)
}

/// Gives a file whose content lies in its inode a block, as [`outgrow`] does. The caller holds `op`
/// exclusively.
pub(super) fn outgrow_alone(fs: &Fs, held: &Held) -> Result<()> {
    let image = held.snapshot();
    if !image.is_inline() {
        return Ok(());
    }
    check_changeable(&image)?;
    match move_out(fs, held) {
        Err(Error::NoSpace) if fs.is_space_pending() => {
            fs.commit(fs.journal()?.running())?;
            move_out(fs, held)
        }
        moved => moved,
    }
}

fn move_out(fs: &Fs, held: &Held) -> Result<()> {
    let image = held.snapshot();
    let mut block = vec![0; fs.block_size().len()];
    // Zeros behind what is stored, of which there may be more than a block: those become a hole.
    fs.inline_data(&image)?.read(0, &mut block);
    let taken = match image.size() {
        0 => None,
        _ => Some(fs.alloc()?.take_blocks(&Request {
            goal: fs.near_inode(image.ino()),
            len: 1,
            min: 1,
            below_32_bits: true,
            privileged: false,
        })?),
    };
    if let Some(taken) = &taken {
        let failures = fs.flush_failures();
        fs.device()
            .write_at(device_offset(fs, taken.start(), 0)?, &block)?;
        held.note_data(fs, failures);
    }
    let handle = fs.start(LEAVE_CREDITS)?;
    let guard = MapGuard::lock(held);
    fs.leave_inode(&handle, held, &guard, taken, image.size())
}
