//! What a file system that is closed and sound has no use for, and giving it back.
//!
//! A whole check says what is in use, and refuses where bitmaps say anything else: nothing is given
//! back on a bitmap's word alone. Free blocks are discarded. Parts of inode tables, and what an
//! empty log holds, are made zeros, because what lies there may be read later: the first when an
//! inode beside it is made, the second when a log that has wrapped is replayed.

use super::draft::Draft;
use super::{special, tune};
use crate::Progress;
use crate::error::{Error, Result};
use crate::maps;
use crate::report::Sink;
use crate::survey::Survey;
use crate::volume::find_superblock;
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, Request, SharedDevice};
use extant_format::Pblk;
use extant_format::jbd2::JournalSuperblock;
use std::ops::Range;
use std::sync::Arc;

/// Requests that are made of the device at once.
const BATCH: usize = 256;
/// Bytes of the largest unit that pieces are cut to, whatever a device prefers.
const UNIT_MAX: u64 = 64 << 10;

/// What a file system has no use for, as far as its device holds something there.
#[derive(Debug)]
pub struct Spare {
    device: SharedDevice,
    /// Bytes of the device, ascending.
    free: Vec<Range<u64>>,
    tables: Vec<Range<u64>>,
    log: Vec<Range<u64>>,
}

/// Bytes, by what they are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Amounts {
    /// Blocks that are free.
    pub free: u64,
    /// Blocks of inode tables without an inode in use.
    pub tables: u64,
    /// Blocks of an empty log behind its superblock.
    pub log: u64,
}

impl Amounts {
    /// Returns all of them together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.free + self.tables + self.log
    }
}

/// Finds out what the file system at byte 0 of `device` has no use for, and writes nothing. What
/// the device says is a hole is left out, and so is what is less than a unit of the device, which
/// gives nothing back.
///
/// # Errors
/// As for [`super::plan`]; a file system that was not closed or is not sound.
pub fn find(device: SharedDevice, progress: &dyn Progress) -> Result<Spare> {
    let sb = find_superblock(&*device, &mut Sink::new())?;
    let block_size = sb.block_size();
    let end = sb.blocks_count().saturating_mul(block_size.bytes().into());
    if device.size() < end {
        let size = device.size();
        return Err(Error::TooShort { size, needed: end });
    }
    special::refuse_if_in_use(&*device, &sb)?;
    let draft = Draft::new(Arc::clone(&device), block_size.bytes());
    let survey = tune::sound(&draft, &sb, progress)?;
    let held = device.data_extents(0..end)?;
    let shift = block_size.log2();
    let unit = u64::from(device.preferred_io()).clamp(1, UNIT_MAX);
    let of = |blocks: Vec<Range<u64>>| {
        let whole_units = |run: &Range<u64>| {
            let start = (run.start << shift).next_multiple_of(unit);
            start..(run.end << shift) / unit * unit
        };
        let bytes = blocks.iter().map(whole_units);
        common(bytes.filter(|run| run.start < run.end), &held)
    };
    Ok(Spare {
        free: of(free_blocks(&survey)),
        tables: of(unused_tables(&survey)),
        log: of(old_log(&survey)?),
        device,
    })
}

/// The parts of ascending `ranges` that lie in ascending `held`.
fn common(ranges: impl Iterator<Item = Range<u64>>, held: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut from = 0;
    for range in ranges {
        from += held[from..].partition_point(|held| held.end <= range.start);
        let inside = held[from..]
            .iter()
            .take_while(|held| held.start < range.end);
        found.extend(inside.map(|held| held.start.max(range.start)..held.end.min(range.end)));
    }
    found
}

/// Blocks in no cluster that is in use.
fn free_blocks(survey: &Survey) -> Vec<Range<u64>> {
    let volume = &survey.volume;
    let all = volume.geo.clusters_count();
    let mut free = Vec::new();
    let mut at = 0;
    let mut until = |used: Range<u64>| {
        if at < used.start {
            free.push(at..used.start);
        }
        at = used.end;
    };
    survey.used.runs(0..all, &mut until);
    until(all..all);
    let first = |cluster: u64| volume.block_of_cluster(cluster).get();
    let end = volume.geo.blocks_count();
    let blocks = free
        .iter()
        .map(|run| first(run.start)..first(run.end).min(end));
    blocks.collect()
}

/// Blocks of inode tables in which no inode is in use.
fn unused_tables(survey: &Survey) -> Vec<Range<u64>> {
    let volume = &survey.volume;
    let per_block = volume.geo.inodes_per_block() as usize;
    let blocks = u64::from(volume.geo.inode_table_blocks());
    let mut unused: Vec<Range<u64>> = Vec::new();
    for (group, state) in (0..).zip(&volume.groups) {
        let table = state.desc.inode_table.get();
        let mut take = |run: Range<u64>| match unused.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => unused.push(run),
        };
        // Those behind the last inode in use are not listed.
        let listed = survey.table.group(group).chunks(per_block.max(1));
        let count = listed.len() as u64;
        for (at, inodes) in (table..).zip(listed) {
            if !inodes.iter().any(|inode| inode.is_in_use()) {
                take(at..at + 1);
            }
        }
        if count < blocks {
            take(table + count..table + blocks);
        }
    }
    unused.sort_unstable_by_key(|run| run.start);
    unused
}

/// Blocks of a log in which nothing waits, but for its superblock.
fn old_log(survey: &Survey) -> Result<Vec<Range<u64>>> {
    let volume = &survey.volume;
    let Some(ino) = volume.sb.journal_ino() else {
        return Ok(Vec::new());
    };
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(Vec::new());
    };
    let runs = maps::runs(volume, ino, &inode)?;
    let first = runs.first().filter(|run| run.lblk == 0);
    let Some(first) = first.map(|run| Pblk::new(run.pblk)) else {
        return Ok(Vec::new());
    };
    let superblock = volume.block(first)?;
    let is_empty = JournalSuperblock::parse(&superblock).is_ok_and(|log| log.start == 0);
    if !is_empty {
        return Ok(Vec::new());
    }
    let mut blocks: Vec<Range<u64>> = Vec::new();
    for run in runs {
        let skipped = u64::from(run.lblk == 0);
        blocks.push(run.pblk + skipped..run.pblk + u64::from(run.len));
    }
    blocks.sort_unstable_by_key(|run| run.start);
    Ok(blocks)
}

impl Spare {
    /// Returns how much would be given back.
    #[must_use]
    pub fn amounts(&self) -> Amounts {
        let sum = |ranges: &[Range<u64>]| ranges.iter().map(|run| run.end - run.start).sum();
        Amounts {
            free: sum(&self.free),
            tables: sum(&self.tables),
            log: sum(&self.log),
        }
    }

    /// Gives it back, and makes that durable. Nothing else may have changed the device since it was
    /// looked at. Whatever a crash leaves of this is sound.
    ///
    /// # Errors
    /// [`Error::Refused`] when the device cannot discard anything, and nothing is changed then; of
    /// the device.
    pub fn give_back(&self) -> Result<()> {
        let mut free = &self.free[..];
        // One alone says whether it can be done at all.
        if let Some((first, rest)) = free.split_first() {
            let len = first.end - first.start;
            if !self.device.try_discard(first.start, len)? {
                let why = "what the image lies in cannot give space back";
                return Err(Error::Refused { why: why.into() });
            }
            free = rest;
        }
        let device = &*self.device;
        ask(device, free, |offset, len| Request::Discard { offset, len })?;
        for ranges in [&self.tables, &self.log] {
            ask(device, ranges, |offset, len| Request::Zero { offset, len })?;
        }
        Ok(self.device.flush()?)
    }
}

/// Makes requests for ranges of the device, some at once.
fn ask(
    device: &dyn BlockDevice,
    ranges: &[Range<u64>],
    request: impl Fn(u64, u64) -> Request,
) -> DeviceResult<()> {
    for some in ranges.chunks(BATCH) {
        let batch = some
            .iter()
            .map(|run| request(run.start, run.end - run.start));
        let done = device.submit(batch.collect()).wait();
        let failed = done.into_iter().find_map(|done| done.result.err());
        failed.map_or(Ok::<(), DeviceError>(()), Err)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::common;

    #[test]
    fn what_two_lists_have_in_common_is_cut_at_both_their_ends() {
        let held = [2..4, 6..9, 12..20];
        let of = |ranges: &[std::ops::Range<u64>]| common(ranges.iter().cloned(), &held);
        assert_eq!(of(&[0..5, 5..30]), [2..4, 6..9, 12..20]);
        assert_eq!(
            of(&[0..3, 3..7, 8..13, 19..25]),
            [2..3, 3..4, 6..7, 8..9, 12..13, 19..20]
        );
        assert_eq!(of(&[0..2, 4..6, 9..12, 20..21]), []);
        assert_eq!(common(held.iter().cloned(), &[]), []);
    }
}
