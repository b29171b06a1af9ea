//! Where a file should have its next blocks.

use super::FileState;
use crate::alloc::Alloc;
use crate::volume::Cluster;
use extant_format::{Group, Ino};
use extant_sync::PerCpu;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A file that goes on further away than this from its last blocks begins anew behind them.
pub const FAR: u32 = 1 << 15;
/// Groups for each place of the array of goals, at least.
const GROUPS_EACH: u32 = 4;

/// Groups where files begin that are not small, by a hash of the inode's number. Each file goes on
/// from its own last blocks then, and begins anew where these began.
#[derive(Debug)]
pub(super) struct Goals {
    groups: PerCpu<AtomicU32>,
    /// How many of them are in use.
    used: usize,
}

impl Goals {
    /// For a file system of `groups` groups: the places begin spread over them.
    pub(super) fn new(groups: u32) -> Self {
        let mut goals = Self {
            groups: PerCpu::default(),
            used: 1,
        };
        goals.used = goals
            .groups
            .len()
            .min((groups / GROUPS_EACH) as usize)
            .max(1);
        let each = groups / goals.used as u32;
        for (at, group) in goals.groups.iter().take(goals.used).enumerate() {
            group.store(at as u32 * each, Ordering::Relaxed);
        }
        goals
    }

    pub(super) fn of(&self, ino: Ino) -> Option<&AtomicU32> {
        self.groups.get(ino.get() as usize % self.used)
    }
}

/// Where a file had its last clusters: hints, which nobody relies on.
#[derive(Debug)]
pub(super) struct Last {
    /// Behind them; 0 if it had none yet.
    place: AtomicU64,
    /// The logical cluster that follows.
    lblk: AtomicU32,
    /// Whether they came off a run for small files, behind which there is no place for it.
    of_run: AtomicBool,
    /// Where it last began, or went on away from what lay before, when it was not small: for when
    /// it begins anew; 0 if it never did.
    begin: AtomicU64,
}

impl Last {
    pub(super) fn new() -> Self {
        Self {
            place: AtomicU64::new(0),
            lblk: AtomicU32::new(0),
            of_run: AtomicBool::new(false),
            begin: AtomicU64::new(0),
        }
    }

    /// The logical cluster and the cluster that follow the last ones.
    pub(super) fn get(&self) -> Option<(u32, Cluster)> {
        let place = self.place.load(Ordering::Relaxed);
        (place != 0).then(|| (self.lblk.load(Ordering::Relaxed), Cluster::new(place)))
    }

    /// Returns what follows the last clusters of a file that is no longer small: none if these lie
    /// in a run for small files.
    fn of_large(&self) -> Option<(u32, Cluster)> {
        self.get().filter(|_| !self.of_run.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, lblk: u32, place: Cluster, of_run: bool) {
        self.lblk.store(lblk, Ordering::Relaxed);
        self.of_run.store(of_run, Ordering::Relaxed);
        self.place.store(place.get(), Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.place.store(0, Ordering::Relaxed);
    }
}

impl Alloc {
    /// Where logical clusters of the file from `lblk` on should lie: `beside` its neighbours if it
    /// has any, else as far from its last blocks as in the file.
    pub(super) fn goal_of(
        &self,
        ino: Ino,
        state: &FileState,
        lblk: u32,
        beside: Option<Cluster>,
    ) -> Cluster {
        if let Some(beside) = beside {
            return beside;
        }
        if let Some((next, place)) = state.last.of_large() {
            if lblk >= next {
                let ahead = Some(lblk - next).filter(|ahead| *ahead <= FAR);
                return place.plus(ahead.unwrap_or(0));
            }
            let back = Some(next - lblk).filter(|back| *back <= FAR);
            return place.minus(back.unwrap_or(0));
        }
        let begin = state.last.begin.load(Ordering::Relaxed);
        if begin != 0 {
            return Cluster::new(begin);
        }
        let goal = self.prealloc.goals.of(ino);
        let group = goal.map(|goal| Group::new(goal.load(Ordering::Relaxed)));
        // Behind a run for small files, if that is in the same group.
        if let Some((_, place)) = state.last.get()
            && self.cluster_group(place.minus(1)) == group
        {
            return place;
        }
        let block = group
            .and_then(|group| self.volume.geometry().group_first_block(group).ok())
            .unwrap_or_else(|| self.volume.near_inode(ino));
        self.volume.cluster_size().of(block)
    }

    /// Notes that a file which is not small has `clusters` more at `start`. If they do not lie
    /// behind its last ones, it begins there when it is cut to nothing and grows again: so files
    /// that meet in a group part for good, and each comes to a place that is large enough.
    ///
    /// When they are its first, but for those out of runs for small files, the goal of files to
    /// come stays where it is while there is room for as many.
    pub(super) fn note_goal(&self, ino: Ino, state: &FileState, start: Cluster, clusters: u32) {
        let last = state.last.of_large();
        let begin = &state.last.begin;
        if last.is_some_and(|(_, place)| place == start)
            || begin.load(Ordering::Relaxed) == start.get()
        {
            return;
        }
        begin.store(start.get(), Ordering::Relaxed);
        if last.is_none()
            && let Some(goal) = self.prealloc.goals.of(ino)
            && let Some(group) = self.cluster_group(start)
        {
            let old = goal.load(Ordering::Relaxed);
            if old != group.get() && !self.index.has_block(old, clusters) {
                goal.store(group.get(), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_goals_are_spread_and_each_is_for_its_own_files() {
        for groups in [1, 3, 8, 100, 5000] {
            let goals = Goals::new(groups);
            let places = goals.groups.len().min(groups as usize / 4).max(1);
            let goal = |ino: usize| {
                let goal = goals.of(Ino::new(ino as u32)).unwrap();
                goal.load(Ordering::Relaxed)
            };
            let begin: Vec<u32> = (0..places).map(goal).collect();
            assert!(begin.is_sorted_by(|a, b| a < b) && begin[places - 1] < groups);
            // As far from each other as there is room for.
            let gaps = begin.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(gaps.into_iter().all(|gap| gap == groups / places as u32));
            goals
                .of(Ino::new(11))
                .unwrap()
                .store(groups - 1, Ordering::Relaxed);
            for ino in 0..3 * places {
                let own = if ino % places == 11 % places {
                    groups - 1
                } else {
                    begin[ino % places]
                };
                assert_eq!(goal(ino), own, "{groups} groups, inode {ino}");
            }
        }
    }
}
