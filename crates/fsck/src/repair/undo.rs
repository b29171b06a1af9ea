//! Undo files: what blocks held before they were changed.
//!
//! All numbers are little-endian. A file is a header, a record for each block in any order, and an
//! end:
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | `EXTUNDO7` |
//! | 8..16 | size of the device in bytes |
//! | 16..32 | UUID of the file system before |
//! | 32..48 | UUID of the file system after |
//! | 48..52 | CRC32C of what is before |
//!
//! | bytes | record |
//! |---|---|
//! | 0..8 | byte of the device where the block begins |
//! | 8..11 | length of the block, not 0 |
//! | 11 | how many other contents it has; and 128 if the block is put back after all others |
//! | 12.. | what it held |
//! | 8 each | the sum of each sector of each other content: between steps, and after the change |
//! | 4 | CRC32C of the record |
//!
//! The end is a record of length 0 whose first field is the number of records: a file without it
//! was not finished, and nothing was written to the image then. Records of blocks that are put back
//! after the others come last.
//!
//! A loss of power may leave a part of a block that was being written. A sector, of 512 bytes, is
//! written whole or not at all: so sums are those of sectors. The last one may be shorter. A sum is
//! the first 8 bytes of SHA-256. In `EXTUNDO4`, which is read as well, it is a CRC32C, of 4 bytes:
//! that of a block that ends with a CRC32C of its own is the same whatever is in it.

use super::draft::Changes;
use super::in_progress;
use super::whole::Whole;
use crate::error::{Error, Result};
use crate::undo::{SECTOR, Sums, half_way};
use extant_blockdev::BlockDevice;
use extant_format::checksum::Crc32c;
use extant_format::superblock::SUPERBLOCK_OFFSET;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};

/// How files begin, and how they tell contents apart; the first is the one that is written.
pub(crate) const MAGICS: [(&[u8; 8], Sums); 2] =
    [(b"EXTUNDO7", Sums::Sha256), (b"EXTUNDO4", Sums::Crc32c)];
const SUMS: Sums = Sums::Sha256;
const HEADER: usize = 52;
/// Bytes of a record before what the block held.
const RECORD: usize = 12;
/// Where the UUID lies on the device.
const UUID_AT: u64 = SUPERBLOCK_OFFSET + 0x68;
/// No block is longer.
const LEN_MAX: u32 = 1 << 20;
/// The bits of a record's third field that are the length; those above it count other contents; the
/// highest one says that the block is put back last.
const LEN_BITS: u32 = 24;
const OTHERS_MAX: u32 = 0x7f;
const HELD: u32 = 1 << 31;

fn sum(bytes: &[u8]) -> [u8; 4] {
    Crc32c::INIT.update(bytes).value().to_le_bytes()
}

fn uuid_of(device: &dyn BlockDevice) -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    device.read_at(UUID_AT, &mut uuid)?;
    Ok(uuid)
}

/// Writes the undo file of `changes` for a device of `size` bytes. Making it durable is the
/// caller's.
///
/// # Errors
/// Of the device, and of the file.
pub fn write_undo(changes: &Changes, out: &mut dyn Write) -> Result<u64> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGICS[0].0);
    header.extend_from_slice(&changes.base().size().to_le_bytes());
    header.extend_from_slice(&uuid_of(&**changes.base())?);
    header.extend_from_slice(&uuid_of(&*changes.device())?);
    header.extend_from_slice(&sum(&header));
    out.write_all(&header).map_err(Error::Undo)?;
    let mut count = 0u64;
    // The first block of a journal that moves is copied, and written as well: one record of it.
    let written: BTreeSet<u64> = changes.offsets().collect();
    for (to, from) in changes.copies().filter(|(to, _)| !written.contains(to)) {
        if let Some(kept) = kept_of_copy(changes, to, from)? {
            record(out, &kept, false).map_err(Error::Undo)?;
            count += 1;
        }
    }
    let mut one = |offset: u64, is_held: bool| {
        if let Some(kept) = kept(changes, offset)? {
            record(out, &kept, is_held).map_err(Error::Undo)?;
            count += 1;
        }
        Ok::<_, Error>(())
    };
    for offset in changes
        .offsets()
        .filter(|at| !changes.is_put_back_last(*at))
    {
        one(offset, false)?;
    }
    for offset in changes.offsets().filter(|at| changes.is_put_back_last(*at)) {
        one(offset, true)?;
    }
    let end = Record {
        offset: count,
        ..Record::default()
    };
    record(out, &end, false).map_err(Error::Undo)?;
    Ok(count)
}

/// What is kept of a block.
#[derive(Default)]
struct Record {
    offset: u64,
    before: Vec<u8>,
    /// Sums of the sectors of what it holds meanwhile and after the change.
    others: Vec<Vec<u8>>,
}

/// What is kept of the block at a byte; `None` if it holds the same all the time. The superblock
/// says meanwhile that a check is due.
fn kept(changes: &Changes, offset: u64) -> Result<Option<Record>> {
    let base = changes.base();
    let size = u64::from(changes.block_size());
    let len = size.min(base.size().saturating_sub(offset)) as usize;
    let mut before = vec![0; len];
    base.read_at(offset, &mut before)?;
    let is_primary = offset == in_progress::primary(size);
    if let Some(whole) = changes.whole() {
        return kept_by_whole(changes, whole, offset, before, is_primary);
    }
    let last = changes.steps_count().saturating_sub(1);
    let after = changes.after_step(last, offset, len)?;
    let mut others = Vec::new();
    if after != before {
        others.push(SUMS.of_sectors(&after));
    }
    if changes.is_zeroed_first(offset) {
        let zeros = vec![0; len];
        let sums = SUMS.of_sectors(&zeros);
        if zeros != before && !others.contains(&sums) {
            others.push(sums);
        }
    }
    for step in 0..last {
        let mut contents = Vec::new();
        if is_primary {
            contents.extend(in_progress::before_emptying(changes, step)?);
            contents.push(in_progress::after_step(changes, step)?);
        } else {
            contents.push(changes.after_step(step, offset, len)?);
        }
        for meanwhile in contents {
            let sums = SUMS.of_sectors(&meanwhile);
            if meanwhile != before && !others.contains(&sums) {
                others.push(sums);
            }
        }
    }
    let is_same = others.is_empty() && !is_primary;
    Ok((!is_same).then_some(Record {
        offset,
        before,
        others,
    }))
}

/// What is kept of a block that nothing uses, to which content of a file is copied: an earlier undo
/// file may count on what lies there.
fn kept_of_copy(changes: &Changes, to: u64, from: u64) -> Result<Option<Record>> {
    let base = changes.base();
    let mut before = vec![0; changes.block_size() as usize];
    let mut after = before.clone();
    base.read_at(to, &mut before)?;
    base.read_at(from, &mut after)?;
    let others = vec![SUMS.of_sectors(&after)];
    Ok((after != before).then_some(Record {
        offset: to,
        before,
        others,
    }))
}

/// What is kept of a block where changes are made as a whole: the log, or the block itself, is
/// written once, but for the superblock.
fn kept_by_whole(
    changes: &Changes,
    whole: &Whole,
    offset: u64,
    before: Vec<u8>,
    is_primary: bool,
) -> Result<Option<Record>> {
    let after = match whole.in_log(changes, offset)? {
        Some(content) => content,
        None => changes.content(offset)?,
    };
    let mut contents = Vec::new();
    if is_primary {
        contents = whole.primaries(&before, &after);
    }
    if changes.is_zeroed_first(offset) {
        contents.push(vec![0; before.len()]);
    }
    contents.push(after);
    contents.retain(|content| *content != before);
    let mut others: Vec<Vec<u8>> = Vec::new();
    for content in contents {
        let sums = SUMS.of_sectors(&content);
        if !others.contains(&sums) {
            others.push(sums);
        }
    }
    let is_same = others.is_empty() && !is_primary;
    Ok((!is_same).then_some(Record {
        offset,
        before,
        others,
    }))
}

fn record(out: &mut dyn Write, kept: &Record, is_held: bool) -> io::Result<()> {
    let others = u32::try_from(kept.others.len()).unwrap_or(u32::MAX);
    if others > OTHERS_MAX {
        return Err(io::Error::other("a block changes in too many steps"));
    }
    let held = if is_held { HELD } else { 0 };
    let sums = kept.others.iter().map(Vec::len).sum::<usize>();
    let mut record = Vec::with_capacity(RECORD + kept.before.len() + sums + 4);
    record.extend_from_slice(&kept.offset.to_le_bytes());
    let fields = kept.before.len() as u32 | others << LEN_BITS | held;
    record.extend_from_slice(&fields.to_le_bytes());
    record.extend_from_slice(&kept.before);
    record.extend(kept.others.iter().flatten());
    record.extend_from_slice(&sum(&record));
    out.write_all(&record)
}

/// Why a part of an undo file cannot be read; `what` if the file ends before that.
pub(crate) fn cut_off(e: io::Error, what: &str) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => damaged(what),
        _ => Error::Undo(e),
    }
}

fn damaged(what: &str) -> Error {
    Error::Undo(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
}

/// A block of an undo file.
struct Kept<'a> {
    offset: u64,
    before: &'a [u8],
    /// Sums of the sectors of each other content, one behind the other.
    others: &'a [u8],
    /// It is put back when all others are.
    is_held: bool,
    /// How contents are told apart.
    sums: Sums,
}

/// Reads an undo file for `device` once, and hands each block to `each`. Returns the number of
/// blocks.
fn read(
    file: &mut dyn Read,
    device: &dyn BlockDevice,
    each: &mut dyn FnMut(Kept<'_>) -> Result<()>,
) -> Result<u64> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header)
        .map_err(|e| cut_off(e, "this is no undo file"))?;
    let (covered, stored) = header.split_at(HEADER - 4);
    let known = MAGICS.iter().find(|(magic, _)| covered.starts_with(*magic));
    let Some((_, kind)) = known.filter(|_| sum(covered) == stored) else {
        return Err(damaged("this is no undo file"));
    };
    let (made_for, size) = (crate::bytes::le64(covered, 8), device.size());
    if made_for != size {
        let text = format!("the undo file is for a device of {made_for} bytes, this has {size}");
        return Err(damaged(&text));
    }
    let mut count = 0;
    loop {
        let mut bytes = vec![0; RECORD];
        let missing = "the undo file ends too early: it was not finished, and then nothing was written to \
                       the image, or a part of it is lost";
        file.read_exact(&mut bytes)
            .map_err(|e| cut_off(e, missing))?;
        let first = crate::bytes::le64(&bytes, 0);
        let fields = crate::bytes::le32(&bytes, 8);
        let len = fields & ((1 << LEN_BITS) - 1);
        let others = (fields >> LEN_BITS & OTHERS_MAX) as usize;
        let sums = others * kind.len() * (len as usize).div_ceil(SECTOR);
        if len > LEN_MAX {
            return Err(damaged("a record of the undo file is too long"));
        }
        bytes.resize(RECORD + len as usize + sums + 4, 0);
        let (_, rest) = bytes.split_at_mut(RECORD);
        file.read_exact(rest).map_err(|e| cut_off(e, missing))?;
        let (covered, stored) = bytes.split_at(RECORD + len as usize + sums);
        if sum(covered) != stored {
            return Err(damaged("a record of the undo file is damaged"));
        }
        if len == 0 {
            return if first == count {
                Ok(count)
            } else {
                Err(damaged("records of the undo file are missing"))
            };
        }
        let contents = covered.get(RECORD..).unwrap_or_default();
        let (before, others) = contents.split_at(len as usize);
        each(Kept {
            offset: first,
            before,
            others,
            is_held: fields & HELD != 0,
            sums: *kind,
        })?;
        count += 1;
    }
}

/// Refuses a device on which a sector of the block is neither as it was nor as it was made: it was
/// written since, or it is another file system.
fn check(device: &dyn BlockDevice, kept: &Kept<'_>) -> Result<()> {
    let len = kept.before.len();
    device.check_range("restore", kept.offset, len as u64)?;
    let mut now = vec![0; len];
    device.read_at(kept.offset, &mut now)?;
    let marks = [
        in_progress::marked(kept.offset, kept.before),
        half_way::marked(kept.offset, kept.before, None),
    ];
    let mut contents = vec![kept.before];
    contents.extend(marks.iter().flatten().map(Vec::as_slice));
    let of_block = kept.sums.len() * len.div_ceil(SECTOR).max(1);
    let others = kept.others.chunks_exact(of_block);
    let others: Vec<&[u8]> = others.collect();
    let is_known = kept.sums.know_by_sectors(&now, &contents, &others);
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

/// Puts back what an undo file kept, of either kind: reads all of it first, so that a damaged one,
/// and one for a file system that was written since, changes nothing. Of a file without an end,
/// which a command that was cut off left, the superblock alone tells that; a last part of the file
/// that is not whole was never written to the image.
///
/// Then, each after a flush, the superblock is put back, but for a feature that nothing knows:
/// until all is back, no program makes sense of the image, and none here or of e2fsprogs repairs,
/// mounts or changes it. Everything else follows, of planned changes the journal's superblock last;
/// and then the superblock as it was. A crash leaves what can be put back again. `open` opens the
/// file from its start. Returns the number of blocks.
///
/// # Errors
/// A file that is damaged, of another version or for another device; a block that is neither as it
/// was before nor after the changes, nor meanwhile; the device.
pub fn revert<R: Read>(
    device: &dyn BlockDevice,
    mut open: impl FnMut() -> io::Result<R>,
) -> Result<u64> {
    let mut file = open().map_err(Error::Undo)?;
    if crate::undo::is_of_this_kind(&mut file)? {
        return crate::undo::revert(device, open);
    }
    let mut file = open().map_err(Error::Undo)?;
    let mut superblock = None;
    read(&mut file, device, &mut |kept| {
        check(device, &kept)?;
        if kept.offset == in_progress::primary(kept.before.len() as u64) {
            superblock = Some((kept.offset, kept.before.to_vec()));
        }
        Ok(())
    })?;
    check_uuid(device, &mut open().map_err(Error::Undo)?)?;
    let first = superblock.as_ref().map(|(offset, _)| *offset);
    if let Some((offset, before)) = &superblock {
        let marked = half_way::marked(*offset, before, None);
        device.write_at(*offset, marked.as_ref().unwrap_or(before))?;
        device.flush()?;
    }
    let mut file = open().map_err(Error::Undo)?;
    let mut are_held = false;
    let count = read(&mut file, device, &mut |kept| {
        if kept.is_held && !are_held {
            device.flush()?;
            are_held = true;
        }
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
