//! Undo files: what blocks held before they were changed.
//!
//! All numbers are little-endian. A file is a header, a record for each block in any order, and an end:
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | `EXTUNDO1` |
//! | 8..16 | size of the device in bytes |
//! | 16..24 | byte of the device where the file system begins (told, not used) |
//! | 24..28 | CRC32C of what is before |
//!
//! | bytes | record |
//! |---|---|
//! | 0..8 | byte of the device where the block begins |
//! | 8..12 | length of the block, not 0 |
//! | 12.. | what it held |
//! | 4 | CRC32C of the record |
//!
//! The end is a record of length 0 whose first field is the number of records: a file without it was not finished,
//! and nothing was written to the image then.

use super::draft::Changes;
use crate::error::{Error, Result};
use extant_blockdev::BlockDevice;
use extant_format::checksum::Crc32c;
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"EXTUNDO1";
const HEADER: usize = 28;
/// No block is longer.
const LEN_MAX: u32 = 1 << 20;

fn sum(bytes: &[u8]) -> [u8; 4] {
    Crc32c::INIT.update(bytes).value().to_le_bytes()
}

/// Writes the undo file of `changes` for a device of `size` bytes. Making it durable is the caller's.
///
/// # Errors
/// Of the device, and of the file.
pub fn write_undo(changes: &Changes, out: &mut dyn Write) -> Result<u64> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&changes.base().size().to_le_bytes());
    header.extend_from_slice(&0u64.to_le_bytes());
    header.extend_from_slice(&sum(&header));
    out.write_all(&header).map_err(Error::Undo)?;
    let mut count = 0u64;
    for change in changes.iter() {
        let change = change?;
        record(out, change.offset, &change.before).map_err(Error::Undo)?;
        count += 1;
    }
    record(out, count, &[]).map_err(Error::Undo)?;
    Ok(count)
}

fn record(out: &mut dyn Write, first: u64, bytes: &[u8]) -> io::Result<()> {
    let mut record = Vec::with_capacity(bytes.len() + 16);
    record.extend_from_slice(&first.to_le_bytes());
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
    record.extend_from_slice(&sum(&record));
    out.write_all(&record)
}

fn damaged(what: &str) -> Error {
    Error::Undo(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

/// Reads an undo file once, and hands each block to `each`. Returns the number of blocks.
fn read(
    file: &mut dyn Read,
    size: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header).map_err(Error::Undo)?;
    let (covered, stored) = header.split_at(HEADER - 4);
    if !covered.starts_with(MAGIC) || sum(covered) != stored {
        return Err(damaged("this is no undo file"));
    }
    let made_for = crate::bytes::le64(covered, 8);
    if made_for != size {
        let text = format!("the undo file is for a device of {made_for} bytes, this has {size}");
        return Err(damaged(&text));
    }
    let mut count = 0;
    loop {
        let mut bytes = vec![0; 12];
        file.read_exact(&mut bytes).map_err(Error::Undo)?;
        let first = crate::bytes::le64(&bytes, 0);
        let len = crate::bytes::le32(&bytes, 8);
        if len > LEN_MAX {
            return Err(damaged("a record of the undo file is too long"));
        }
        bytes.resize(12 + len as usize + 4, 0);
        let (_, rest) = bytes.split_at_mut(12);
        file.read_exact(rest).map_err(Error::Undo)?;
        let (covered, stored) = bytes.split_at(12 + len as usize);
        if sum(covered) != stored {
            return Err(damaged("a record of the undo file is damaged"));
        }
        if len == 0 {
            return match first == count {
                true => Ok(count),
                false => Err(damaged("records of the undo file are missing")),
            };
        }
        each(first, covered.get(12..).unwrap_or_default())?;
        count += 1;
    }
}

/// Puts back what an undo file kept: reads all of it first, so that a damaged one changes nothing, then writes and
/// flushes. `open` opens the file from its start. Returns the number of blocks.
///
/// # Errors
/// A file that is damaged or for another device; the device.
pub fn revert<R: Read>(
    device: &dyn BlockDevice,
    mut open: impl FnMut() -> io::Result<R>,
) -> Result<u64> {
    let size = device.size();
    let mut file = open().map_err(Error::Undo)?;
    read(&mut file, size, &mut |offset, bytes| {
        device.check_range("restore", offset, bytes.len() as u64)?;
        Ok(())
    })?;
    let mut file = open().map_err(Error::Undo)?;
    let count = read(&mut file, size, &mut |offset, bytes| {
        device.write_at(offset, bytes)?;
        Ok(())
    })?;
    device.flush()?;
    Ok(count)
}
