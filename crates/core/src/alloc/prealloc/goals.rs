//! Where a file should have its next blocks.

use super::FileState;
use crate::fs::Fs;
use crate::inode::LiveInode;
use crate::map::{self, Target};
use extant_format::{Group, Ino, Lblk, Pblk};
use extant_sync::PerCpu;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A file that goes on further away than this from its last blocks begins anew behind them.
const FAR: u32 = 1 << 15;
/// Runs of the map that are looked at before a hole.
const MOST_PIECES: usize = 16;
/// Groups for each place of the array of goals, at least.
const GROUPS_EACH: u32 = 4;

/// Groups where files begin that are not small, by a hash of the inode's number. Each file goes on from
/// its own last blocks then.
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

    fn of(&self, ino: Ino) -> Option<&AtomicU32> {
        self.groups.get(ino.get() as usize % self.used)
    }

    /// Notes that a file found its first blocks in `group`.
    fn note(&self, ino: Ino, group: Group) {
        if let Some(goal) = self.of(ino)
            && goal.load(Ordering::Relaxed) != group.get()
        {
            goal.store(group.get(), Ordering::Relaxed);
        }
    }
}

/// Where a file had its last blocks: hints, which nobody relies on.
#[derive(Debug)]
pub(super) struct Last {
    /// Behind them; 0 if it had none yet.
    pblk: AtomicU64,
    /// The logical block that follows.
    lblk: AtomicU32,
}

impl Last {
    pub(super) fn new() -> Self {
        Self {
            pblk: AtomicU64::new(0),
            lblk: AtomicU32::new(0),
        }
    }

    /// The logical block and the block that follow the last ones.
    pub(super) fn get(&self) -> Option<(u32, Pblk)> {
        let pblk = self.pblk.load(Ordering::Relaxed);
        (pblk != 0).then(|| (self.lblk.load(Ordering::Relaxed), Pblk::new(pblk)))
    }

    pub(super) fn set(&self, lblk: u32, pblk: Pblk) {
        self.lblk.store(lblk, Ordering::Relaxed);
        self.pblk.store(pblk.get(), Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.pblk.store(0, Ordering::Relaxed);
    }
}

impl Fs {
    /// Where blocks of the file from `lblk` on should lie: `beside` its neighbours if it has any, else as
    /// far from its last blocks as in the file.
    pub(super) fn goal_of(
        &self,
        live: &LiveInode,
        state: &FileState,
        lblk: u32,
        beside: Option<Pblk>,
    ) -> Pblk {
        if let Some(beside) = beside {
            return beside;
        }
        if let Some((next, pblk)) = state.last.get() {
            let at = if lblk >= next {
                let ahead = Some(lblk - next).filter(|ahead| *ahead <= FAR);
                pblk.get().saturating_add(ahead.unwrap_or(0).into())
            } else {
                let back = Some(next - lblk).filter(|back| *back <= FAR);
                pblk.get().saturating_sub(back.unwrap_or(0).into())
            };
            return Pblk::new(at);
        }
        let group = self.alloc().ok().and_then(|alloc| {
            let goal = alloc.prealloc.goals.of(live.ino())?;
            Some(Group::new(goal.load(Ordering::Relaxed)))
        });
        group
            .and_then(|group| self.geometry().group_first_block(group).ok())
            .unwrap_or_else(|| self.near_inode(live.ino()))
    }

    /// The part of `window` that lies in the same hole of the map as `lblk`, and where its first block joins
    /// what is mapped before or behind the hole.
    ///
    /// A file that goes on where it had its last blocks needs neither.
    pub(super) fn hole_of(
        &self,
        live: &LiveInode,
        state: &FileState,
        lblk: u32,
        window: Range<u32>,
    ) -> (Range<u32>, Option<Pblk>) {
        if state.last.get().is_some_and(|(next, _)| next == lblk) && window.start == lblk {
            return (window, None);
        }
        let image = live.snapshot();
        if image.disk().blocks == 0 {
            return (window, None);
        }
        // Hints: if the map changes meanwhile or is broken, others will notice.
        let at = |lblk: u32| map::lookup(self, &image, Lblk::new(lblk)).ok();
        let Some(here) = at(lblk).filter(|here| here.target == Target::Hole) else {
            return (window, None);
        };
        let next = u32::try_from(here.end()).unwrap_or(u32::MAX);
        let mut start = lblk;
        if window.start < lblk {
            let before = map::Runs::over(self, &image, window.start.into()..lblk.into());
            // In a window of more pieces nothing before is worth the search.
            let last = before.take(MOST_PIECES).last();
            if let Some(Ok(run)) = last
                && run.target == Target::Hole
                && run.end() == u64::from(lblk)
            {
                start = run.lblk.get();
            }
        }
        let behind = || {
            let pblk = at(start.checked_sub(1)?)?.target.pblk()?;
            pblk.get().checked_add(1).map(Pblk::new)
        };
        let ahead = || {
            let distance = Some(next - start).filter(|distance| *distance <= FAR)?;
            let pblk = at(next)?.target.pblk()?;
            pblk.get().checked_sub(distance.into()).map(Pblk::new)
        };
        // Where a window is filled in any order, what lies behind the hole was placed like this too; what lies
        // before it may end at blocks of others.
        let beside = match next <= window.end {
            true => ahead().or_else(behind),
            false => behind().or_else(ahead),
        };
        let end = window.end.min(next);
        (start..end, beside)
    }

    /// Notes that a file which had no blocks so far, and is not small, has its first ones at `start`.
    pub(super) fn note_goal(&self, live: &LiveInode, state: &FileState, start: Pblk) {
        if state.last.get().is_none()
            && let Ok(alloc) = self.alloc()
            && let Ok((group, _)) = self.geometry().bitmap_position(start)
        {
            alloc.prealloc.goals.note(live.ino(), group);
        }
    }
}
