//! Small files side by side: each CPU has a run of blocks out of which it serves them.
//!
//! A file's blocks come off the front of the run, so files that are written one after the other lie
//! one behind the other, and taking blocks for one touches no group. The runs of two CPUs begin in
//! different groups, which these change when the blocks become a file's; both near the inode, if
//! groups are parts of larger ones.

use super::{FileRequest, FileState};
use crate::Result;
use crate::alloc::contention::alternate_group;
use crate::alloc::search::Near;
use crate::alloc::{Alloc, Taken};
use crate::volume::Cluster;
use extant_format::{Group, Ino};
use extant_sync::{LockClass, Mutex, PerCpu, Rank};

static LOCALITY: LockClass = LockClass::new("locality group", Rank::Locality);

/// A file up to this size is small, in bytes.
pub(super) const SMALL: u64 = 64 << 10;
/// Bytes of a run.
const RUN: u64 = 2 << 20;
/// Most clusters of a run.
const MOST: u32 = 512;

/// The runs.
#[derive(Debug)]
pub(super) struct Locality {
    runs: PerCpu<Mutex<Run>>,
}

/// Clusters that nobody has yet.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: Cluster,
    len: u32,
}

impl Run {
    /// Takes `len` clusters off the front, which it has.
    fn pop(&mut self, len: u32) -> Cluster {
        let start = self.start;
        self.start = start.plus(len);
        self.len -= len;
        start
    }
}

impl Locality {
    pub(super) fn new() -> Self {
        Self {
            runs: PerCpu::new(|_| Mutex::new(&LOCALITY, Run::default())),
        }
    }

    /// Takes out all clusters of all runs.
    pub(super) fn drain(&self) -> Vec<(Cluster, u32)> {
        let runs = self.runs.iter().map(|run| std::mem::take(&mut *run.lock()));
        let runs = runs.filter(|run| run.len > 0);
        runs.map(|run| (run.start, run.len)).collect()
    }
}

impl Alloc {
    /// Takes `len` clusters for a small file from this CPU's run; `None` if there is none and no
    /// space to spare for one, or if the file goes on elsewhere. They have been charged.
    pub(super) fn take_small(
        &self,
        ino: Ino,
        state: &FileState,
        ask: &FileRequest,
        below_32_bits: bool,
    ) -> Result<Option<Taken<'_>>> {
        let runs = &self.prealloc.locality.runs;
        let cpu = runs.local_index();
        let Some(local) = runs.get(cpu) else {
            return Ok(None);
        };
        let mut run = local.lock();
        // One that has blocks grows, and only goes on where it can go on behind them.
        let last = state.last.get();
        if last.is_some_and(|(lblk, pblk)| (lblk, pblk) != (ask.lblk.get(), run.start)) {
            return Ok(None);
        }
        // Without extents a cluster is a block.
        if below_32_bits && run.start.plus(run.len).get() > u64::from(u32::MAX) {
            return Ok(None);
        }
        if run.len >= ask.len {
            let start = run.pop(ask.len);
            return Ok(Some(Taken::new(self, start, ask.len)));
        }
        let rest = *run;
        drop(run);
        if last.is_some() {
            return Ok(None);
        }
        // What went from the group meanwhile is used again, before the run comes to another group.
        let group = match rest.start.get() {
            0 => self.group_beside(ino, cpu),
            _ => self.cluster_group(rest.start.minus(1)),
        };
        let first = group.and_then(|group| self.volume.geometry().group_first_block(group).ok());
        let goal = first.unwrap_or_else(|| self.volume.near_inode(ino));
        let goal = self.volume.cluster_size().of(goal);
        let log2 = self.volume.block_size().log2() + self.volume.cluster_size().bits();
        let want = ((RUN >> log2) as u32).clamp(ask.len, MOST.max(ask.len));
        if !self.space.take_spare(want) {
            return Ok(None);
        }
        let near = Near {
            goal,
            room: 0,
            below_32_bits,
        };
        let Ok(mut taken) = self.take_charged(near, want, ask.len) else {
            self.space.give(want);
            return Ok(None);
        };
        self.space.give(want - taken.clusters());
        let own = taken.split_front(ask.len);
        // What is left of the run before is small, and goes back.
        let new = Run {
            start: taken.first(),
            len: taken.clusters(),
        };
        taken.disarm();
        let mut run = local.lock();
        let old = if run.len <= new.len {
            std::mem::replace(&mut *run, new)
        } else {
            new
        };
        drop(run);
        if old.len > 0 {
            self.give_back(old.start, old.len);
        }
        Ok(Some(own))
    }

    /// Where the first run of a CPU should lie for the file that needs one: in the flex group of
    /// its inode, each CPU's in another group, and the first behind that of the inode, where larger
    /// files may begin.
    fn group_beside(&self, ino: Ino, cpu: usize) -> Option<Group> {
        let geometry = self.volume.geometry();
        let group = geometry.locate_inode(ino).ok()?.group.get();
        Some(Group::new(alternate_group(geometry, group, cpu)))
    }
}
