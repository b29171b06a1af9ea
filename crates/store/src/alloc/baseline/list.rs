//! Preallocations of a file in a list, newest first, each with a lock of its own.

use crate::volume::Cluster;
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::VecDeque;
use std::ops::Range;

static ONE: LockClass = LockClass::new("preallocation", Rank::Locality);

/// Blocks side by side.
type Blocks = (Cluster, u32);

/// Unused blocks that wait for `lblk` and those behind.
#[derive(Clone, Copy, Debug)]
struct Run {
    lblk: u32,
    start: Cluster,
    len: u32,
}

impl Run {
    fn end(&self) -> u32 {
        self.lblk.saturating_add(self.len)
    }

    /// What is left of it from `lblk` on.
    fn from(&self, lblk: u32) -> Self {
        let skip = lblk.saturating_sub(self.lblk).min(self.len);
        Self {
            lblk: self.lblk + skip,
            start: Cluster::new(self.start.get() + u64::from(skip)),
            len: self.len - skip,
        }
    }
}

/// The list. What it does is what a tree does; see there.
#[derive(Debug)]
pub(in crate::alloc) struct PaList {
    runs: VecDeque<Mutex<Run>>,
    most: usize,
}

impl PaList {
    pub(in crate::alloc) fn new(most: usize) -> Self {
        Self {
            runs: VecDeque::new(),
            most: most.max(1),
        }
    }

    pub(in crate::alloc) fn len(&self) -> usize {
        self.runs.len()
    }

    fn push(&mut self, run: Run) {
        if run.len > 0 {
            self.runs.push_front(Mutex::new(&ONE, run));
        }
    }

    pub(in crate::alloc) fn take(&mut self, lblk: u32, len: u32) -> Option<Blocks> {
        let covers = |run: &Mutex<Run>| {
            let run = run.lock();
            (run.lblk..run.end()).contains(&lblk)
        };
        let at = self.runs.iter().position(covers)?;
        let whole = *self.runs.get(at)?.lock();
        let taken = whole.from(lblk);
        let len = len.min(taken.len);
        let rest = taken.from(lblk + len);
        let front = lblk - whole.lblk;
        if front > 0 {
            self.runs.get(at)?.lock().len = front;
        } else {
            self.runs.remove(at);
        }
        self.push(rest);
        Some((taken.start, len))
    }

    pub(in crate::alloc) fn gap(&self, lblk: u32) -> Range<u32> {
        self.runs.iter().fold(0..u32::MAX, |gap, run| {
            let run = run.lock();
            if run.lblk <= lblk {
                gap.start.max(run.end())..gap.end
            } else {
                gap.start..gap.end.min(run.lblk)
            }
        })
    }

    pub(in crate::alloc) fn insert(
        &mut self,
        lblk: u32,
        (start, len): Blocks,
        mut left: impl FnMut(Blocks),
    ) {
        let mut rest = Run { lblk, start, len };
        while rest.len > 0 {
            let gap = self.gap(rest.lblk);
            let taken = gap.start.max(rest.lblk).min(rest.end());
            let behind = rest.from(taken);
            if taken > rest.lblk {
                left((rest.start, taken - rest.lblk));
                rest = behind;
                continue;
            }
            let own = gap.end.max(rest.lblk + 1).min(rest.end());
            let next = rest.from(own);
            self.push(Run {
                len: own - rest.lblk,
                ..rest
            });
            rest = next;
        }
        while self.runs.len() > self.most {
            if let Some(oldest) = self.runs.pop_back() {
                let run = oldest.into_inner();
                left((run.start, run.len));
            }
        }
    }

    pub(in crate::alloc) fn split_off(&mut self, lblk: u32) -> Vec<Blocks> {
        let mut out = Vec::new();
        self.runs.retain_mut(|run| {
            let run = run.get_mut();
            let behind = run.from(lblk);
            if behind.len > 0 {
                out.push((behind.start, behind.len));
            }
            run.len -= behind.len;
            run.len > 0
        });
        out
    }

    #[cfg(any(test, feature = "inspect"))]
    pub(in crate::alloc) fn iter(&self) -> impl Iterator<Item = (u32, Blocks)> + '_ {
        self.runs.iter().map(|run| {
            let run = run.lock();
            (run.lblk, (run.start, run.len))
        })
    }
}
