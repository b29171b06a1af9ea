//! Telling the device of all that is free, when somebody asks for it.
//!
//! What is told of is taken first, as if for a file, and given back after the device has answered:
//! nobody gets a block between the look and the answer, and no lock of a group is held meanwhile.
//! The allocator bitmap says what may be taken, so what is in use, what waits for data on its way
//! and what was freed by a transaction that has not committed is never told of.
//!
//! It is done in pieces, each of which is a change of its own: freezing waits for one piece, and no
//! more than one is missing from the free space. What is left of free space that is nearly used up
//! is taken while requests wait that find none. Free blocks that are all promised to data on its
//! way are left alone.

use super::Alloc;
use super::share::Share;
use crate::{Error, InPlace, Place, Result};
use extant_format::Group;
use std::ops::Range;

/// Clusters that are taken at once, and while space is short.
const MOST: u32 = 1 << 13;
const MOST_WHILE_SHORT: u32 = 256;
/// Runs that are taken at once.
const RUNS: usize = 1024;

/// What is to be told of, in bytes of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// Where it begins.
    pub start: u64,
    /// How long it is; what lies past the end counts for nothing.
    pub len: u64,
    /// The length from which on free runs are told of.
    pub min_len: u64,
}

/// What is left to be told of a group.
#[derive(Debug)]
pub struct TrimPart {
    group: Group,
    /// Clusters of the group.
    left: Range<u32>,
    /// Clusters of a run that is long enough.
    least: u32,
}

impl TrimPart {
    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}

/// A part of a group's free runs, taken.
#[derive(Debug)]
struct Batch {
    runs: Vec<Range<u32>>,
    /// Where to go on.
    next: u32,
}

impl Batch {
    fn clusters(&self) -> u32 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }
}

impl Alloc {
    /// Cuts a range into parts of groups that have free runs as long as is asked for.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a range that begins behind the end or is shorter than a block,
    /// or runs longer than a group.
    pub fn trim_parts(
        &self,
        range: TrimRange,
    ) -> Result<impl Iterator<Item = Result<TrimPart>> + '_> {
        let geometry = self.volume.geometry();
        let shift = self.volume.block_size().log2();
        let (start, count) = (range.start >> shift, range.len >> shift);
        let least = (range.min_len >> shift).div_ceil(self.volume.cluster_size().blocks().into());
        let least = u32::try_from(least)
            .ok()
            .filter(|least| *least <= geometry.clusters_per_group())
            .ok_or(Error::InvalidInput("no free run is longer than a group"))?
            .max(1);
        if start >= geometry.blocks_count() || count == 0 {
            return Err(Error::InvalidInput(
                "there is nothing in the range that is to be trimmed",
            ));
        }
        let blocks = start..start.saturating_add(count).min(geometry.blocks_count());
        let part = move |group| self.trim_part(group, &blocks, least).transpose();
        Ok(geometry.groups().filter_map(part))
    }

    /// The part of `blocks` that lies in a group; `None` if there is none, or the group has no free
    /// run of `least` clusters.
    fn trim_part(&self, group: Group, blocks: &Range<u64>, least: u32) -> Result<Option<TrimPart>> {
        let geometry = self.volume.geometry();
        let place = Place::Group(group);
        let first = geometry.group_first_block(group).in_place(place)?.get();
        let behind = first + u64::from(geometry.blocks_in_group(group).in_place(place)?);
        let (from, to) = (blocks.start.max(first), blocks.end.min(behind));
        if from >= to || self.slot(group)?.free() < least {
            return Ok(None);
        }
        let bits = geometry.cluster_bits();
        // Below the blocks of a group, which fit 32 bits.
        let cluster = |block: u64| ((block - first) >> bits) as u32;
        Ok(Some(TrimPart {
            group,
            left: cluster(from)..cluster(to - 1) + 1,
            least,
        }))
    }

    /// Tells the device of the next free runs of a part, as many as are taken at once; of `part`
    /// what comes behind them is left. Returns how many bytes that were. The caller is within a
    /// change.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the device cannot do anything about it; when the device fails,
    /// or the group is damaged.
    pub fn trim_next(&self, part: &mut TrimPart) -> Result<u64> {
        // What is spared now may be wanted before it is given back: requests that find no space
        // wait for it.
        let _alone = self.prealloc.keep_waiting();
        let (group, least) = (part.group, part.least);
        let mut batch = self.take_spare_runs(group, part.left.clone(), least)?;
        if batch.runs.is_empty() && batch.next < part.left.end {
            // Nothing can be spared: a small piece.
            batch = self.take_last_runs(group, part.left.clone(), least)?;
        }
        part.left.start = batch.next;
        let clusters = u64::from(self.tell(group, &batch)?);
        Ok(clusters << self.volume.geometry().cluster_bits() << self.volume.block_size().log2())
    }

    /// Tells the device of what was taken, and gives it back.
    fn tell(&self, group: Group, batch: &Batch) -> Result<u32> {
        let size = self.volume.block_size();
        let mut told = Ok(());
        for run in &batch.runs {
            let (start, len) = self.blocks_of(group, run);
            let offset = size.offset_of(start).unwrap_or(u64::MAX);
            let bytes = u64::from(len) << size.log2();
            told = match self.volume.device().try_discard(offset, bytes) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Error::Unsupported {
                    features: "discarding on this device".to_owned(),
                }),
                Err(e) => Err(e.into()),
            };
            if told.is_err() {
                break;
            }
        }
        let clusters = batch.clusters();
        if clusters > 0 {
            let (_, mut state) = self.lock_group(group)?;
            for run in &batch.runs {
                state.return_taken(run);
            }
            drop(state);
            // After the bits are clear: a thread that may take blocks finds some.
            self.space.give(clusters);
        }
        told.map(|()| clusters)
    }

    /// Takes free runs as far as they can be spared.
    fn take_spare_runs(&self, group: Group, within: Range<u32>, least: u32) -> Result<Batch> {
        self.take_runs(group, within, least, MOST, |clusters| {
            self.space.take_spare(clusters).then_some(clusters)
        })
    }

    /// Takes free runs as far as they are promised to nobody, though others may look for just
    /// these.
    fn take_last_runs(&self, group: Group, within: Range<u32>, least: u32) -> Result<Batch> {
        let end = within.end;
        let take = |clusters| self.space.take(1, clusters, || Share::Reserve);
        let mut batch = self.take_runs(group, within, least, MOST_WHILE_SHORT, take)?;
        if batch.runs.is_empty() {
            batch.next = end;
        }
        Ok(batch)
    }

    /// Takes free runs that are long enough, at most so many clusters, of which `grant` says how
    /// many may be taken.
    fn take_runs(
        &self,
        group: Group,
        within: Range<u32>,
        least: u32,
        most: u32,
        grant: impl Fn(u32) -> Option<u32>,
    ) -> Result<Batch> {
        let (_, mut state) = self.lock_group(group)?;
        let mut batch = Batch {
            runs: Vec::new(),
            next: within.end,
        };
        let mut left = most;
        for run in state.space.runs(within) {
            // What was cut off a long run goes on with the rest of it, which may be short.
            if run.end - run.start < least && !state.space.is_free(run.start.wrapping_sub(1)) {
                continue;
            }
            let wanted = left.min(run.end - run.start);
            let granted = if batch.runs.len() < RUNS && wanted > 0 {
                grant(wanted).unwrap_or(0)
            } else {
                0
            };
            if granted > 0 {
                batch.runs.push(run.start..run.start + granted);
            }
            left -= granted;
            if granted < run.end - run.start {
                batch.next = run.start + granted;
                break;
            }
        }
        for run in &batch.runs {
            state.take(run);
        }
        Ok(batch)
    }
}
