//! Free clusters for what a repair has to put somewhere.
//!
//! # Invariants
//! - Nothing is handed out that any map claims. What the bitmaps on the disk call free comes first:
//!   a map that could not be read in whole may claim more than is known.

use crate::blockset::BlockSet;
use crate::error::Result;
use crate::survey::Survey;
use crate::volume::Volume;
use extant_format::group_desc::GroupFlags;
use extant_format::{Pblk, bitmap};
use std::ops::Range;
use std::sync::Arc;

/// Which groups are still to be searched, and whether bitmaps are believed.
#[derive(Clone, Copy)]
struct Cursor {
    group: u32,
    careful: bool,
}

pub(super) struct Space {
    taken: BlockSet,
    /// Others that are left alone.
    apart: Option<Arc<BlockSet>>,
    /// Free runs of the group searched last, in reverse.
    runs: Vec<Range<u64>>,
    next: Option<Cursor>,
    /// Clusters from this one on are not taken.
    end: u64,
}

impl Space {
    pub(super) fn new() -> Self {
        Self::below(u64::MAX)
    }

    /// Of what lies before a cluster.
    pub(super) fn below(end: u64) -> Self {
        Self {
            end,
            taken: BlockSet::default(),
            apart: None,
            runs: Vec::new(),
            next: Some(Cursor {
                group: 0,
                careful: true,
            }),
        }
    }

    /// Leaves alone what is in a set, too.
    pub(super) fn besides(mut self, set: &BlockSet) -> Self {
        let taken = &mut self.taken;
        set.runs(0..self.end, &mut |run| taken.add(run));
        self
    }

    /// Leaves alone what is in a set that others have too, if there is one.
    pub(super) fn apart_from(mut self, set: Option<Arc<BlockSet>>) -> Self {
        self.apart = set;
        self
    }

    /// The first block of a free cluster, which is no longer free; `None` when all are in use.
    pub(super) fn take(&mut self, survey: &Survey) -> Result<Option<Pblk>> {
        loop {
            if let Some(run) = self.runs.last_mut() {
                let cluster = run.start;
                run.start += 1;
                if run.is_empty() {
                    self.runs.pop();
                }
                let is_behind = cluster >= self.end;
                let is_apart = self.apart.as_ref().is_some_and(|set| set.contains(cluster));
                if is_behind
                    || is_apart
                    || survey.used.contains(cluster)
                    || self.taken.contains(cluster)
                {
                    continue;
                }
                self.taken.add(cluster..cluster + 1);
                return Ok(Some(survey.volume.block_of_cluster(cluster)));
            }
            let Some(cursor) = self.next else {
                return Ok(None);
            };
            self.search(survey, cursor)?;
        }
    }

    fn search(&mut self, survey: &Survey, cursor: Cursor) -> Result<()> {
        let volume = &survey.volume;
        let groups = volume.geo.groups_count();
        self.next = match (cursor.group + 1 < groups, cursor.careful) {
            (true, careful) => Some(Cursor {
                group: cursor.group + 1,
                careful,
            }),
            (false, true) => Some(Cursor {
                group: 0,
                careful: false,
            }),
            (false, false) => None,
        };
        let Some((first, mut map)) = claimed(survey, cursor.group) else {
            return Ok(());
        };
        if cursor.careful {
            for (to, from) in map.iter_mut().zip(on_disk(volume, cursor.group)?) {
                *to |= from;
            }
        }
        let group = extant_format::Group::new(cursor.group);
        let bits = volume.geo.clusters_in_group(group).unwrap_or(0);
        self.runs = bitmap::clear_runs(&map, 0..bits)
            .map(|run| first + u64::from(run.start)..first + u64::from(run.end))
            .collect();
        self.runs.reverse();
        Ok(())
    }
}

/// The first cluster of a group, and a bitmap of what is claimed in it.
fn claimed(survey: &Survey, group: u32) -> Option<(u64, Vec<u8>)> {
    let volume = &survey.volume;
    let bits = volume
        .geo
        .clusters_in_group(extant_format::Group::new(group))
        .ok()?;
    let first = u64::from(group) * u64::from(volume.geo.clusters_per_group());
    let mut map = vec![0; volume.block_size().len()];
    crate::bitmaps::fill(&survey.used, first, bits, &mut map);
    Some((first, map))
}

/// The block bitmap of a group as it lies on the disk; empty if it was never written or cannot be
/// found.
pub(super) fn on_disk(volume: &Volume, group: u32) -> Result<Vec<u8>> {
    match volume.groups.get(group as usize) {
        Some(state) if state.located && !state.says(GroupFlags::BLOCK_UNINIT) => {
            volume.block(state.desc.block_bitmap)
        }
        _ => Ok(Vec::new()),
    }
}
