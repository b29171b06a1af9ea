//! Data of a device that is memory: copied straight between callers and the device.
//!
//! There is no other copy, so nothing has to agree with anything. Each write is seen as a whole.
//! Where the device sees to that itself, within parts of it (`DirectMemory::whole_within`), a write
//! over data inside one part holds `op` shared, as reads do; all other writes hold it exclusively.
//! Writing over blocks that hold data takes no handle. What was copied is durable once the device
//! was told to persist it, which `fsync` does; blocks that become the file's are written as to any
//! device, before they do. Of a device where copies are durable at once nothing is noted.
//!
//! # Invariants
//!
//! - What was copied and is not durable is noted, and the file is on the list of dirty ones.

use crate::Result;
use crate::data::cache::FileCache;
use crate::data::direct::{read_known, read_shared, retried, write_exclusive, write_shared};
use crate::data::dispatch::Way;
use crate::data::io::{Position, WriteOptions, inside_file};
use crate::fs::Fs;
use crate::inode::{Held, LiveInode};
use crate::mutants::{Mutant, is_on};
use extant_blockdev::DirectMemory;
use extant_sync::{LockClass, Mutex, Rank};
use std::ops::Range;
use std::sync::Arc;

static UNPERSISTED: LockClass = LockClass::new("copies to persist", Rank::Leaf);

/// Ranges of the device that are noted apart; more become one.
const MOST_RANGES: usize = 64;

/// Ranges of the device, in bytes, that were copied to and not persisted.
#[derive(Debug)]
pub(in crate::data) struct Unpersisted(Mutex<Vec<Range<u64>>>);

impl Default for Unpersisted {
    fn default() -> Self {
        Self(Mutex::new(&UNPERSISTED, Vec::new()))
    }
}

impl Unpersisted {
    /// Notes a range. Whether it is the first.
    fn note(&self, range: Range<u64>) -> bool {
        let mut ranges = self.0.lock();
        let count = ranges.len();
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(last) if last.start <= range.start && range.end <= last.end => {}
            _ if count < MOST_RANGES => ranges.push(range),
            _ => {
                let start = ranges.iter().map(|r| r.start).min();
                let end = ranges.iter().map(|r| r.end).max();
                let start = start.map_or(range.start, |start| start.min(range.start));
                let end = end.map_or(range.end, |end| end.max(range.end));
                ranges.clear();
                ranges.push(start..end);
            }
        }
        count == 0
    }
}

impl FileCache {
    /// Tells whether something was copied to the device that may be lost.
    pub(in crate::data) fn has_unpersisted(&self) -> bool {
        let bypass = self.bypass.get();
        bypass.is_some_and(|bypass| !bypass.unpersisted.0.lock().is_empty())
    }
}

/// Returns the device as memory, if it is used so.
fn memory(fs: &Fs) -> Option<&dyn DirectMemory> {
    if fs.data().way() == Way::Dax {
        fs.device().direct()
    } else {
        None
    }
}

/// Reads from byte `offset` of a file, if it is a regular one and what is known of it says that
/// this lies in one row; `None` otherwise, where nothing was read.
#[inline]
pub(in crate::data) fn read_known_row(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &mut [u8],
) -> Result<Option<usize>> {
    let Some(file) = held.file_cache() else {
        return Ok(None);
    };
    let _shared = held.op().read();
    read_known(fs, held, file, offset, buf)
}

/// Reads from byte `offset` of a regular file.
pub(in crate::data) fn read(fs: &Fs, held: &Held, offset: u64, buf: &mut [u8]) -> Result<usize> {
    if inside_file(held, offset, buf.len()) == 0 {
        return Ok(0);
    }
    // What is found out about the map is kept there.
    let file = held.file_cache_in(fs);
    let _shared = held.op().read();
    read_shared(fs, held, file, offset, buf)
}

/// Writes at byte `offset` of a file, if that is over data, and the device sees to it that it is
/// whole. `None` otherwise, where nothing was written.
#[inline]
pub(in crate::data) fn write_known_row(
    fs: &Fs,
    held: &Held,
    offset: u64,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<Option<usize>> {
    match held.file_cache() {
        Some(file) => write_shared(fs, held, file, offset, buf, options, Way::Dax),
        None => Ok(None),
    }
}

/// Writes at byte `offset` of a regular file, or at its end. Returns where, and how much.
pub(in crate::data) fn write(
    fs: &Fs,
    held: &Held,
    to: Position,
    buf: &[u8],
    options: WriteOptions<'_>,
) -> Result<(u64, usize)> {
    let file = held.file_cache_in(fs);
    retried(fs, held, || {
        write_exclusive(fs, held, file, to, buf, options, Way::Dax)
    })
}

/// Tells whether the device sees to it that a copy of `len` bytes to byte `offset` of it is whole.
#[inline]
pub(in crate::data) fn is_whole(fs: &Fs, offset: u64, len: usize) -> bool {
    let part = memory(fs).map_or(0, DirectMemory::whole_within);
    let (Some(mask), Some(more)) = (part.checked_sub(1), (len as u64).checked_sub(1)) else {
        return false;
    };
    let last = offset.saturating_add(more);
    offset & !mask == last & !mask || is_on(Mutant::PartsShared)
}

/// Fills `buf` from byte `offset` of the device.
pub(in crate::data) fn get(fs: &Fs, offset: u64, buf: &mut [u8]) -> Result<()> {
    match memory(fs) {
        None => fs.device().read_at(offset, buf)?,
        Some(memory) => memory.copy_out(offset, buf)?,
    }
    Ok(())
}

/// Writes `data` at byte `offset` of the device, for `live`.
pub(in crate::data) fn put(
    fs: &Fs,
    live: &Arc<LiveInode>,
    file: &FileCache,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    let Some(memory) = memory(fs) else {
        return Ok(fs.device().write_at(offset, data)?);
    };
    memory.copy_in(offset, data)?;
    if memory.is_persistent_on_copy() {
        return Ok(());
    }
    let unpersisted = &file.bypass().unpersisted;
    if unpersisted.note(offset..offset + data.len() as u64) {
        file.list(live);
    }
    Ok(())
}

/// Makes durable what was copied for the file. The caller keeps others from writing it back: the
/// next one finds either nothing left, or what failed.
pub(in crate::data) fn persist(fs: &Fs, file: &FileCache) -> Result<()> {
    let (Some(memory), Some(bypass)) = (memory(fs), file.bypass.get()) else {
        return Ok(());
    };
    let unpersisted = &bypass.unpersisted;
    let ranges = std::mem::take(&mut *unpersisted.0.lock());
    for (i, range) in ranges.iter().enumerate() {
        if let Err(e) = memory.persist(range.clone()) {
            // It is as much in danger as before.
            for range in &ranges[i..] {
                unpersisted.note(range.clone());
            }
            return Err(e.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_was_copied_is_in_a_range_to_persist() {
        let noted = Unpersisted::default();
        assert!(noted.note(4096..8192));
        assert!(!noted.note(8192..12_288));
        assert!(noted.0.lock().iter().eq([&(4096..12_288)]));
        for i in 0..1000 {
            let start = i * 7919 % 1000 * 4096;
            noted.note(start..start + 4096);
            let ranges = noted.0.lock().clone();
            assert!(ranges.len() <= MOST_RANGES);
            assert!(
                ranges
                    .iter()
                    .any(|r| r.start <= start && start + 4096 <= r.end)
            );
        }
    }
}
