//! The unimproved forms, to compare with: what the allocator replaced, run in the same engine on
//! the same work.

pub(super) mod list;

use crate::volume::Cluster;
use extant_sync::{LockClass, Mutex, MutexGuard, Rank};
use std::sync::OnceLock;

static GOAL: LockClass = LockClass::new("one goal and the freed list", Rank::Group);

/// Which mechanisms work as they did before they were improved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Preallocations of a file are a list that is walked, each with a lock of its own: at most so
    /// many.
    pub preallocation_list: Option<usize>,
    /// One goal for all files that are not small, under the one lock that also guards what was
    /// freed; all of that waits for the commit.
    pub one_goal: bool,
    /// A search waits for groups that others use.
    pub waits_for_groups: bool,
}

impl Baseline {
    /// All of them, with lists of any length.
    #[must_use]
    pub fn all() -> Self {
        Self {
            preallocation_list: Some(usize::MAX),
            one_goal: true,
            waits_for_groups: true,
        }
    }
}

/// The forms in use.
#[derive(Debug)]
pub(super) struct Forms {
    chosen: OnceLock<Baseline>,
    /// Behind the last clusters any file took.
    goal: Mutex<Cluster>,
}

impl Default for Forms {
    fn default() -> Self {
        Self {
            chosen: OnceLock::new(),
            goal: Mutex::new(&GOAL, Cluster::default()),
        }
    }
}

impl Forms {
    fn chosen(&self) -> Baseline {
        self.chosen.get().copied().unwrap_or_default()
    }

    pub(super) fn waits_for_groups(&self) -> bool {
        self.chosen().waits_for_groups
    }

    /// All that is freed waits for the commit in the list beside the one goal.
    pub(super) fn frees_late(&self) -> bool {
        self.chosen().one_goal
    }

    /// How many preallocations the list of a file has at most, if they are in a list.
    pub(super) fn preallocation_list(&self) -> Option<usize> {
        self.chosen().preallocation_list
    }

    /// The one goal, if it is in use, locked together with what was freed.
    pub(super) fn goal_and_freed(&self) -> Option<MutexGuard<'_, Cluster>> {
        self.chosen().one_goal.then(|| self.goal.lock())
    }
}

impl super::Alloc {
    /// Returns the allocator with these forms.
    pub fn with(self, baseline: Baseline) -> Self {
        let _ = self.forms.chosen.set(baseline);
        self
    }
}
