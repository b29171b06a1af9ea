//! Where journal blocks lie on the device.

use crate::{JournalError, JournalResult};
use extant_format::{BlockSize, Pblk};

/// A run of journal blocks that lie side by side on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRun {
    /// First journal block: a logical block of the journal inode.
    pub first: u32,
    /// Blocks in the run.
    pub len: u32,
    /// Where the first of them lies.
    pub start: Pblk,
}

/// The runs of a journal: sorted by journal block, without gaps, from block 0 on.
#[derive(Debug)]
pub(crate) struct LogMap {
    runs: Vec<LogRun>,
    len: u32,
}

impl LogMap {
    pub(crate) fn new(runs: Vec<LogRun>) -> JournalResult<Self> {
        let len = check_runs(&runs)?;
        if len == 0 {
            return Err(JournalError::Mapping { block: 0 });
        }
        Ok(Self { runs, len })
    }

    /// Blocks in all runs.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Where journal block `block` lies, and how many blocks from it on lie side by side.
    pub(crate) fn locate(&self, block: u32) -> JournalResult<(Pblk, u32)> {
        let unmapped = JournalError::Mapping { block };
        let at = self.runs.partition_point(|run| run.first <= block);
        let Some(run) = at.checked_sub(1).and_then(|i| self.runs.get(i)) else {
            return Err(unmapped);
        };
        let offset = block - run.first;
        match run.start.checked_add(u64::from(offset)) {
            Some(start) if offset < run.len => Ok((start, run.len - offset)),
            _ => Err(unmapped),
        }
    }

    /// The byte on the device where journal block `block` starts, and how many blocks from it on
    /// lie side by side.
    pub(crate) fn offset(&self, block: u32, size: BlockSize) -> JournalResult<(u64, u32)> {
        let (start, together) = self.locate(block)?;
        match size.offset_of(start) {
            Some(offset) => Ok((offset, together)),
            None => Err(JournalError::Mapping { block }),
        }
    }

    /// The runs by their place on the device.
    pub(crate) fn by_place(&self) -> Vec<LogRun> {
        let mut runs = self.runs.clone();
        runs.sort_unstable_by_key(|run| run.start);
        runs
    }

    /// The runs by their place on the device: first block, and the block after the last.
    pub(crate) fn places(&self) -> Vec<(u64, u64)> {
        let mut places: Vec<_> = self
            .runs
            .iter()
            .map(|run| {
                let start = run.start.get();
                (start, start.saturating_add(u64::from(run.len)))
            })
            .collect();
        places.sort_unstable();
        places
    }
}

/// The number of blocks in `runs`, if they cover a range from block 0 without gaps.
fn check_runs(runs: &[LogRun]) -> JournalResult<u32> {
    let mut next = 0u32;
    for run in runs {
        let gap = JournalError::Mapping {
            block: next.min(run.first),
        };
        if run.first != next || run.len == 0 {
            return Err(gap);
        }
        next = next.checked_add(run.len).ok_or(gap)?;
    }
    Ok(next)
}
