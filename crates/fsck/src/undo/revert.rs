//! What was there, put back.

use super::batch::{self, Kind, MAGICS, damaged};
use super::{BLOCK, PRIMARY, RECORD_MAX, SECTOR, Sums, bytes_of, half_way};
use crate::bytes::{le32, le64};
use crate::error::{Error, Result};
use extant_blockdev::BlockDevice;
use extant_format::superblock::SUPERBLOCK_OFFSET;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;

/// Bytes of a record of what was there before its content.
const RECORD: usize = 24;
/// Where the UUID lies on the device.
const UUID_AT: u64 = SUPERBLOCK_OFFSET + 0x68;

/// Whether a file begins as one of this format does. Refuses one that begins as a format does that
/// is read by other versions alone.
pub(crate) fn is_of_this_kind(file: &mut dyn Read) -> Result<bool> {
    let mut magic = [0; 8];
    file.read_exact(&mut magic)
        .map_err(|e| crate::repair::undo_cut_off(e, "this is no undo file"))?;
    let is_of_this = MAGICS.iter().any(|(of_this, _)| **of_this == magic);
    let is_known = is_of_this
        || crate::repair::UNDO_MAGICS
            .iter()
            .any(|(of, _)| **of == magic);
    match magic.strip_prefix(b"EXTUNDO") {
        Some([version]) if version.is_ascii_digit() && !is_known => Err(damaged(
            "the undo file was made by another version of extant, which takes it back",
        )),
        _ => Ok(is_of_this),
    }
}

/// A part of what was there.
enum Was<'a> {
    Bytes(&'a [u8]),
    Zeros,
}

/// A record of what was there.
enum Record<'a> {
    Kept(Range<u64>, Was<'a>),
    /// Sums of the sectors of what the block with the superblock becomes.
    Becomes(&'a [u8]),
}

/// Hands out the records of a batch. All of them lie on a device of `size` bytes, and begin where
/// blocks do.
fn records<'a>(
    mut bytes: &'a [u8],
    size: u64,
    sums: Sums,
    each: &mut dyn FnMut(Record<'a>) -> Result<()>,
) -> Result<()> {
    while !bytes.is_empty() {
        let Some((head, rest)) = bytes.split_at_checked(RECORD) else {
            return Err(damaged("a record of the undo file is cut"));
        };
        bytes = rest;
        let (start, len) = (le64(head, 0), le64(head, 8));
        let end = start.checked_add(len).filter(|end| *end <= size && len > 0);
        let end = end.filter(|end| {
            start.is_multiple_of(BLOCK) && (end.is_multiple_of(BLOCK) || *end == size)
        });
        let Some(end) = end else {
            return Err(damaged("a record of the undo file lies nowhere"));
        };
        match le32(head, 16) {
            0 if len <= RECORD_MAX => {
                let Some((content, rest)) = bytes.split_at_checked(len as usize) else {
                    return Err(damaged("a record of the undo file is cut"));
                };
                bytes = rest;
                each(Record::Kept(start..end, Was::Bytes(content)))?;
            }
            1 => each(Record::Kept(start..end, Was::Zeros))?,
            2 if len <= BLOCK => {
                let sums = (len as usize).div_ceil(SECTOR) * sums.len();
                let Some((sums, rest)) = bytes.split_at_checked(sums) else {
                    return Err(damaged("a record of the undo file is cut"));
                };
                bytes = rest;
                each(Record::Becomes(sums))?;
            }
            _ => {
                return Err(damaged(
                    "a record of the undo file is of no kind that is known",
                ));
            }
        }
    }
    Ok(())
}

/// What an undo file says of a device.
struct Known {
    /// The number of the undo file.
    file: u64,
    /// How contents are told apart.
    kind: Sums,
    /// Sums of blocks after the changes, by the first of each run.
    sums: BTreeMap<u64, Vec<u8>>,
    /// Sums of the sectors of what the block with the superblock became, each time.
    became: Vec<Vec<u8>>,
    /// What that block held.
    primary: Option<Vec<u8>>,
    /// Blocks that are kept, and as many as the end says.
    count: u64,
    ended: Option<u64>,
}

impl Known {
    fn new(page: &batch::Page) -> Self {
        Self {
            file: page.number,
            kind: page.sums,
            sums: BTreeMap::new(),
            became: Vec::new(),
            primary: None,
            count: 0,
            ended: None,
        }
    }

    /// Whether a block has become this.
    fn is_after(&self, block: u64, content: &[u8]) -> bool {
        let Some((first, sums)) = self.sums.range(..=block).next_back() else {
            return false;
        };
        let index = usize::try_from(block - first).unwrap_or(usize::MAX);
        let sum = sums.chunks_exact(self.kind.len()).nth(index);
        sum.is_some_and(|sum| self.kind.is_of(content, sum))
    }

    fn take_sums(&mut self, mut bytes: &[u8]) -> Result<()> {
        let cut = || damaged("sums of the undo file are cut");
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at_checked(12).ok_or_else(cut)?;
            let len = le32(head, 8) as usize * self.kind.len();
            let (sums, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
            self.sums.insert(le64(head, 0) / BLOCK, sums.to_vec());
            bytes = rest;
        }
        Ok(())
    }

    fn take(&mut self, kind: Kind, bytes: &[u8], size: u64) -> Result<()> {
        match kind {
            Kind::Sums => self.take_sums(bytes),
            Kind::End => {
                self.ended = Some(le64(bytes, 0));
                Ok(())
            }
            Kind::Kept => records(bytes, size, self.kind, &mut |record| {
                match record {
                    Record::Becomes(sums) => self.became.push(sums.to_vec()),
                    Record::Kept(range, was) => {
                        self.count += (range.end - range.start).div_ceil(BLOCK);
                        let at = PRIMARY * BLOCK;
                        if range.contains(&at) {
                            let len = (BLOCK.min(range.end - at)) as usize;
                            let from = (at - range.start) as usize;
                            let block = match was {
                                Was::Bytes(bytes) => {
                                    bytes.get(from..from + len).map(<[u8]>::to_vec)
                                }
                                Was::Zeros => Some(vec![0; len]),
                            };
                            self.primary = block;
                        }
                    }
                }
                Ok(())
            }),
        }
    }

    /// What the block with the superblock holds while a part is put back.
    fn marked(&self) -> Option<Vec<u8>> {
        half_way::marked(PRIMARY * BLOCK, self.primary.as_ref()?, Some(self.file))
    }

    /// Whether the block with the superblock may hold this: each of its sectors, since the write of
    /// it that was the last may have arrived in part, that of the mark too.
    fn is_known_primary(&self, now: &[u8]) -> bool {
        let Some(before) = &self.primary else {
            return true;
        };
        let marked = self.marked();
        let contents = [Some(before), marked.as_ref()];
        let contents: Vec<&[u8]> = contents.into_iter().flatten().map(Vec::as_slice).collect();
        let became: Vec<&[u8]> = self.became.iter().map(Vec::as_slice).collect();
        self.kind.know_by_sectors(now, &contents, &became)
    }
}

fn refused(why: impl Into<String>) -> Error {
    Error::Refused { why: why.into() }
}

fn check_size(made_for: u64, size: u64) -> Result<()> {
    if made_for == size {
        return Ok(());
    }
    let text = format!("the undo file is for a device of {made_for} bytes, this has {size}");
    Err(damaged(&text))
}

/// Refuses a device that is another one, or was written since. Returns whether a part is put back
/// already.
fn check_whole(device: &dyn BlockDevice, known: &Known, uuid: &[u8; 16]) -> Result<bool> {
    if known.ended.is_some_and(|count| count != known.count) {
        return Err(damaged("records of the undo file are missing"));
    }
    if known.primary.is_none() {
        if known.ended.is_none() && known.count > 0 {
            return Err(refused(
                "the command was cut off, and its undo file does not hold the superblock, which alone would tell \
                 whether the file system was written since. Nothing is taken back",
            ));
        }
        let mut now = [0; 16];
        if device.size() >= UUID_AT + 16 {
            device.read_at(UUID_AT, &mut now)?;
        }
        return if now == *uuid {
            Ok(false)
        } else {
            let why = "the undo file is for a file system with another UUID. Nothing is taken back";
            Err(refused(why))
        };
    }
    let range = bytes_of(PRIMARY..PRIMARY + 1, device.size());
    let mut now = vec![0; (range.end - range.start) as usize];
    device.read_at(range.start, &mut now)?;
    if known.is_known_primary(&now) {
        return Ok(known.marked().is_some_and(|marked| now == marked));
    }
    Err(refused(
        "the superblock is neither what it was before the changes nor what they made of it: the file system was \
         opened by another program since, or the undo file is for another one. Nothing is taken back",
    ))
}

/// Refuses blocks that are neither as they were nor as they became. Only a file with an end tells.
fn check_record(
    device: &dyn BlockDevice,
    known: &Known,
    range: &Range<u64>,
    was: &Was<'_>,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + RECORD_MAX);
        let mut now = vec![0; (end - at) as usize];
        device.read_at(at, &mut now)?;
        for (i, block) in now.chunks(BLOCK as usize).enumerate() {
            let offset = at + i as u64 * BLOCK;
            let number = offset / BLOCK;
            let is_as_before = match was {
                Was::Zeros => block.iter().all(|byte| *byte == 0),
                Was::Bytes(bytes) => {
                    let from = (offset - range.start) as usize;
                    bytes.get(from..from + block.len()) == Some(block)
                }
            };
            let is_known = is_as_before
                || known.is_after(number, block)
                || (number == PRIMARY && known.is_known_primary(block));
            if !is_known {
                return Err(refused(format!(
                    "the {} bytes from byte {offset} on are neither what they were before the changes nor what they \
                     became: the file system was written since, or the undo file is for another one. Nothing is \
                     taken back",
                    block.len()
                )));
            }
        }
        at = end;
    }
    Ok(())
}

/// Puts back what an undo file kept, as [`crate::repair::revert`] says.
pub(crate) fn revert<R: Read>(
    device: &dyn BlockDevice,
    mut open: impl FnMut() -> io::Result<R>,
) -> Result<u64> {
    let size = device.size();
    let page = batch::read_page(&mut open().map_err(Error::Undo)?)?;
    check_size(page.size, size)?;
    let mut known = Known::new(&page);
    let (_, has_end) =
        batch::read_all(&mut open, &mut |kind, bytes| known.take(kind, bytes, size))?;
    let is_half_way = check_whole(device, &known, &page.uuid)?;
    let mut each_kept = |each: &mut dyn FnMut(Range<u64>, Was<'_>) -> Result<()>| {
        batch::read_all(&mut open, &mut |kind, bytes| {
            if kind != Kind::Kept {
                return Ok(());
            }
            records(bytes, size, page.sums, &mut |record| match record {
                Record::Kept(range, was) => each(range, was),
                Record::Becomes(_) => Ok(()),
            })
        })
    };
    // With the mark, nothing but this has written since. A block that was being put back when power
    // was lost may be neither.
    if has_end && !is_half_way {
        each_kept(&mut |range, was| check_record(device, &known, &range, &was))?;
    }
    let at = PRIMARY * BLOCK;
    if let Some(before) = &known.primary {
        device.write_at(at, known.marked().as_ref().unwrap_or(before))?;
        device.flush()?;
    }
    each_kept(&mut |range, was| put_back(device, range, &was))?;
    device.flush()?;
    if let Some(before) = &known.primary {
        device.write_at(at, before)?;
        device.flush()?;
    }
    Ok(known.count)
}

/// Puts back what is not the block with the superblock.
fn put_back(device: &dyn BlockDevice, range: Range<u64>, was: &Was<'_>) -> Result<()> {
    let primary = PRIMARY * BLOCK..(PRIMARY + 1) * BLOCK;
    let parts = [
        range.start..range.end.min(primary.start),
        range.start.max(primary.end)..range.end,
    ];
    for part in parts.into_iter().filter(|part| part.start < part.end) {
        match was {
            Was::Zeros => device.zero(part.start, part.end - part.start)?,
            Was::Bytes(bytes) => {
                let from = (part.start - range.start) as usize;
                let to = (part.end - range.start) as usize;
                device.write_at(part.start, bytes.get(from..to).unwrap_or_default())?;
            }
        }
    }
    Ok(())
}
