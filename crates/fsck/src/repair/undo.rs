//! Undo files: what blocks held before they were changed.
//!
//! All numbers are little-endian. A file is a header, a record for each block in any order, and an end:
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | `EXTUNDO2` |
//! | 8..16 | size of the device in bytes |
//! | 16..32 | UUID of the file system before |
//! | 32..48 | UUID of the file system after |
//! | 48..52 | CRC32C of what is before |
//!
//! | bytes | record |
//! |---|---|
//! | 0..8 | byte of the device where the block begins |
//! | 8..12 | length of the block, not 0 |
//! | 12..16 | CRC32C of what it holds after the change |
//! | 16.. | what it held |
//! | 4 | CRC32C of the record |
//!
//! The end is a record of length 0 whose first field is the number of records: a file without it was not finished,
//! and nothing was written to the image then.

use super::draft::Changes;
use super::under_way;
use crate::error::{Error, Result};
use extant_blockdev::BlockDevice;
use extant_format::checksum::Crc32c;
use extant_format::superblock::SUPERBLOCK_OFFSET;
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"EXTUNDO2";
const HEADER: usize = 52;
/// Bytes of a record before what the block held.
const RECORD: usize = 16;
/// Where the UUID lies on the device.
const UUID_AT: u64 = SUPERBLOCK_OFFSET + 0x68;
/// No block is longer.
const LEN_MAX: u32 = 1 << 20;

fn sum(bytes: &[u8]) -> [u8; 4] {
    Crc32c::INIT.update(bytes).value().to_le_bytes()
}

fn uuid_of(device: &dyn BlockDevice) -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    device.read_at(UUID_AT, &mut uuid)?;
    Ok(uuid)
}

/// Writes the undo file of `changes` for a device of `size` bytes. Making it durable is the caller's.
///
/// # Errors
/// Of the device, and of the file.
pub fn write_undo(changes: &Changes, out: &mut dyn Write) -> Result<u64> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&changes.base().size().to_le_bytes());
    header.extend_from_slice(&uuid_of(&**changes.base())?);
    header.extend_from_slice(&uuid_of(&*changes.device())?);
    header.extend_from_slice(&sum(&header));
    out.write_all(&header).map_err(Error::Undo)?;
    let mut count = 0u64;
    for change in changes.iter() {
        let change = change?;
        record(out, change.offset, sum(&change.after), &change.before).map_err(Error::Undo)?;
        count += 1;
    }
    record(out, count, [0; 4], &[]).map_err(Error::Undo)?;
    Ok(count)
}

fn record(out: &mut dyn Write, first: u64, after: [u8; 4], bytes: &[u8]) -> io::Result<()> {
    let mut record = Vec::with_capacity(RECORD + bytes.len() + 4);
    record.extend_from_slice(&first.to_le_bytes());
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(&after);
    record.extend_from_slice(bytes);
    record.extend_from_slice(&sum(&record));
    out.write_all(&record)
}

fn damaged(what: &str) -> Error {
    Error::Undo(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

/// A block of an undo file.
struct Kept<'a> {
    offset: u64,
    before: &'a [u8],
    /// CRC32C of what the block holds after the change.
    after: &'a [u8],
}

/// Reads an undo file for `device` once, and hands each block to `each`. Returns the number of blocks.
fn read(
    file: &mut dyn Read,
    device: &dyn BlockDevice,
    each: &mut dyn FnMut(Kept<'_>) -> Result<()>,
) -> Result<u64> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header).map_err(Error::Undo)?;
    let (covered, stored) = header.split_at(HEADER - 4);
    if !covered.starts_with(MAGIC) || sum(covered) != stored {
        return Err(damaged("this is no undo file"));
    }
    let (made_for, size) = (crate::bytes::le64(covered, 8), device.size());
    if made_for != size {
        let text = format!("the undo file is for a device of {made_for} bytes, this has {size}");
        return Err(damaged(&text));
    }
    let mut count = 0;
    loop {
        let mut bytes = vec![0; RECORD];
        file.read_exact(&mut bytes).map_err(Error::Undo)?;
        let first = crate::bytes::le64(&bytes, 0);
        let len = crate::bytes::le32(&bytes, 8);
        if len > LEN_MAX {
            return Err(damaged("a record of the undo file is too long"));
        }
        bytes.resize(RECORD + len as usize + 4, 0);
        let (_, rest) = bytes.split_at_mut(RECORD);
        file.read_exact(rest).map_err(Error::Undo)?;
        let (covered, stored) = bytes.split_at(RECORD + len as usize);
        if sum(covered) != stored {
            return Err(damaged("a record of the undo file is damaged"));
        }
        if len == 0 {
            return match first == count {
                true => Ok(count),
                false => Err(damaged("records of the undo file are missing")),
            };
        }
        let (fields, before) = covered.split_at(RECORD);
        each(Kept {
            offset: first,
            before,
            after: fields.get(12..).unwrap_or_default(),
        })?;
        count += 1;
    }
}

/// Refuses a device on which the block is neither as it was nor as it was made: somebody wrote it since, or it is
/// another file system.
fn check(device: &dyn BlockDevice, kept: &Kept<'_>) -> Result<()> {
    let len = kept.before.len();
    device.check_range("restore", kept.offset, len as u64)?;
    let mut now = vec![0; len];
    device.read_at(kept.offset, &mut now)?;
    let is_known = now == kept.before
        || sum(&now) == kept.after
        || under_way::marked(kept.offset, kept.before).is_some_and(|marked| now == marked);
    if is_known {
        return Ok(());
    }
    Err(Error::Refused {
        why: format!(
            "the {len} bytes from byte {} on are neither what they were before the changes nor what they were made: \
             the file system was written since, or the undo file is for another one. Nothing is taken back",
            kept.offset
        ),
    })
}

/// Refuses a file system with another UUID than before and after the changes.
fn check_uuid(device: &dyn BlockDevice, file: &mut dyn Read) -> Result<()> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header).map_err(Error::Undo)?;
    let now = uuid_of(device)?;
    let [before, after] = [16..32, 32..48].map(|range| header.get(range));
    if [before, after].contains(&Some(&now[..])) {
        return Ok(());
    }
    Err(Error::Refused {
        why: "the undo file is for a file system with another UUID. Nothing is taken back"
            .to_owned(),
    })
}

/// Puts back what an undo file kept: reads all of it first, so that a damaged one, and one for a file system that was
/// written since, changes nothing; then writes and flushes, the superblock last, which asks for a check before: a crash
/// leaves what can be put back again. `open` opens the file from its start. Returns the number
/// of blocks.
///
/// # Errors
/// A file that is damaged or for another device; a block that is neither as it was before nor after the changes; the
/// device.
pub fn revert<R: Read>(
    device: &dyn BlockDevice,
    mut open: impl FnMut() -> io::Result<R>,
) -> Result<u64> {
    let mut file = open().map_err(Error::Undo)?;
    let mut superblock = None;
    read(&mut file, device, &mut |kept| {
        check(device, &kept)?;
        if kept.offset == under_way::primary(kept.before.len() as u64) {
            superblock = Some((kept.offset, kept.before.to_vec()));
        }
        Ok(())
    })?;
    check_uuid(device, &mut open().map_err(Error::Undo)?)?;
    let first = superblock.as_ref().map(|(offset, _)| *offset);
    if let Some((offset, before)) = &superblock
        && let Some(marked) = under_way::marked(*offset, before)
    {
        device.write_at(*offset, &marked)?;
        device.flush()?;
    }
    let mut file = open().map_err(Error::Undo)?;
    let count = read(&mut file, device, &mut |kept| {
        if first != Some(kept.offset) {
            device.write_at(kept.offset, kept.before)?;
        }
        Ok(())
    })?;
    device.flush()?;
    if let Some((offset, before)) = superblock {
        device.write_at(offset, &before)?;
        device.flush()?;
    }
    Ok(count)
}
