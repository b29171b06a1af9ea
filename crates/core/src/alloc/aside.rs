//! Which CPUs keep out of which groups because others take inodes there.
//!
//! Files go to the group of their directory. When several CPUs fill one directory, the lock of that group, its bitmap and
//! its counts go back and forth between their caches. So a CPU that finds others at it leaves the group to them for a while
//! and takes its inodes in another one of the same flex group, whose inode tables lie side by side.
//!
//! This is a hint: stores that others overwrite do no harm, and a CPU that comes back too early finds out again.

use super::Alloc;
use crate::meta::Seq;
use extant_format::Group;
use extant_format::geometry::Geometry;
use extant_sync::PerCpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// Groups that a CPU keeps out of at a time, at most.
const NOTES: usize = 16;
/// Transactions for which it does.
const LASTING: u32 = 2;

/// For each CPU the groups that it keeps out of.
#[derive(Debug)]
pub(super) struct Aside(PerCpu<Notes>);

/// Each in the place of its number modulo [`NOTES`]: the group and 1 in the high half, in the low one that of the number
/// of the transaction in which it was found to be used by others.
type Notes = [AtomicU64; NOTES];

impl Aside {
    pub(super) fn new() -> Self {
        Self(PerCpu::new(|_| Notes::default()))
    }

    fn note_of(&self, cpu: usize, group: u32) -> Option<&AtomicU64> {
        self.0.get(cpu)?.get(group as usize % NOTES)
    }

    /// Notes that a CPU met others in a group.
    fn note(&self, cpu: usize, group: u32, now: Seq) {
        if let Some(note) = self.note_of(cpu, group) {
            let low = now.get() as u32;
            note.store(
                (u64::from(group) + 1) << 32 | u64::from(low),
                Ordering::Relaxed,
            );
        }
    }

    /// Whether a CPU keeps out of a group.
    fn holds(&self, cpu: usize, group: u32, now: Seq) -> bool {
        let note = self.note_of(cpu, group);
        let note = note.map_or(0, |note| note.load(Ordering::Relaxed));
        let age = (now.get() as u32).wrapping_sub(note as u32);
        note >> 32 == u64::from(group) + 1 && age < LASTING
    }
}

impl Alloc {
    /// Where a CPU takes inodes for files whose directory is in group `home`.
    pub(super) fn inode_home(&self, home: u32, cpu: usize, now: Seq) -> u32 {
        match self.aside.holds(cpu, home, now) {
            true => beside(self.volume.geometry(), home, cpu),
            false => home,
        }
    }

    /// A CPU takes turns with others at a group. Whether it goes elsewhere for a while.
    pub(super) fn go_aside(&self, group: Group, cpu: usize, now: Seq) -> bool {
        let group = group.get();
        let goes = beside(self.volume.geometry(), group, cpu) != group;
        if goes {
            self.aside.note(cpu, group, now);
        }
        goes
    }
}

/// The group of a CPU's own beside `group`: of the same flex group, each CPU's another one while there are enough, and the
/// first behind `group`. The same if groups are no parts of larger ones.
pub(super) fn beside(geometry: &Geometry, group: u32, cpu: usize) -> u32 {
    let groups = geometry.groups_count().max(1);
    let flex = geometry.groups_per_flex().max(1);
    let first = group - group % flex;
    // The last flex group may be shorter.
    let flex = flex.min(groups.saturating_sub(first)).max(1);
    let others = (flex - 1).max(1) as usize;
    first + (group % flex + cpu.wrapping_rem(others) as u32 + 1) % flex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_keeps_out_of_a_group_for_two_transactions_and_of_that_group_only() {
        let aside = Aside::new();
        for seq in [5, u64::from(u32::MAX)] {
            let after = |n| Seq::new(seq + n);
            aside.note(0, 3, after(0));
            assert!(aside.holds(0, 3, after(0)) && aside.holds(0, 3, after(1)));
            assert!(!aside.holds(0, 3, after(2)));
            assert!(!aside.holds(0, 3 + NOTES as u32, after(0)));
            assert!(!aside.holds(0, 4, after(0)));
            assert!(!aside.holds(1, 3, after(0)));
        }
        // Another group in the same place is the one that is known.
        aside.note(0, 3, Seq::new(9));
        aside.note(0, 3 + NOTES as u32, Seq::new(9));
        assert!(!aside.holds(0, 3, Seq::new(9)));
        // CPUs that there are no notes for.
        aside.note(1 << 20, 3, Seq::new(9));
        assert!(!aside.holds(1 << 20, 3, Seq::new(9)));
    }
}
