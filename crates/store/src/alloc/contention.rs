//! Groups that a CPU avoids for a while because other CPUs take inodes there.
//!
//! Files go to the group of their directory. When several CPUs fill one directory, the lock of that
//! group, its bitmap and its counts go back and forth between their caches. So a CPU that finds
//! others at it avoids the group for a while and takes its inodes in another one of the same flex
//! group, whose inode tables lie side by side.
//!
//! This is a hint: stores that others overwrite do no harm, and a CPU that comes back too early
//! finds out again.

use super::Alloc;
use crate::meta::Seq;
use extant_format::Group;
use extant_format::geometry::Geometry;
use extant_sync::PerCpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// Groups that a CPU avoids at a time, at most.
const NOTES: usize = 16;
/// Transactions for which a CPU avoids a group.
const LASTING: u32 = 2;

/// The groups that each CPU avoids.
#[derive(Debug)]
pub(super) struct ContendedGroups(PerCpu<Notes>);

/// The groups that one CPU avoids, each in the place of its number modulo [`NOTES`]. The high half
/// is the group plus 1, the low half that of the number of the transaction in which other CPUs were
/// found in the group.
type Notes = [AtomicU64; NOTES];

impl ContendedGroups {
    pub(super) fn new() -> Self {
        Self(PerCpu::new(|_| Notes::default()))
    }

    fn note_of(&self, cpu: usize, group: u32) -> Option<&AtomicU64> {
        self.0.get(cpu)?.get(group as usize % NOTES)
    }

    /// Notes that a CPU met others in `group`, in transaction `now`.
    fn note(&self, cpu: usize, group: u32, now: Seq) {
        if let Some(note) = self.note_of(cpu, group) {
            let low = now.get() as u32;
            note.store(
                (u64::from(group) + 1) << 32 | u64::from(low),
                Ordering::Relaxed,
            );
        }
    }

    /// Whether a CPU avoids `group` in transaction `now`.
    fn avoids(&self, cpu: usize, group: u32, now: Seq) -> bool {
        let note = self.note_of(cpu, group);
        let note = note.map_or(0, |note| note.load(Ordering::Relaxed));
        let age = (now.get() as u32).wrapping_sub(note as u32);
        note >> 32 == u64::from(group) + 1 && age < LASTING
    }
}

impl Alloc {
    /// Chooses the group in which a CPU takes inodes for files whose directory is in group `home`.
    pub(super) fn inode_home(&self, home: u32, cpu: usize, now: Seq) -> u32 {
        if self.contended.avoids(cpu, home, now) {
            alternate_group(self.volume.geometry(), home, cpu)
        } else {
            home
        }
    }

    /// Makes a CPU that met others in `group` avoid it for a while, if there is another one to go
    /// to. Returns whether it does.
    pub(super) fn avoid_for_a_while(&self, group: Group, cpu: usize, now: Seq) -> bool {
        let group = group.get();
        let avoids = alternate_group(self.volume.geometry(), group, cpu) != group;
        if avoids {
            self.contended.note(cpu, group, now);
        }
        avoids
    }
}

/// Chooses the group that a CPU uses instead of `group`: one of the same flex group, each CPU's
/// another one while there are enough, the first of them behind `group`. Returns `group` itself
/// where flex groups are of one group.
pub(super) fn alternate_group(geometry: &Geometry, group: u32, cpu: usize) -> u32 {
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
    fn a_cpu_avoids_a_group_for_two_transactions_and_of_that_group_only() {
        let contended = ContendedGroups::new();
        for seq in [5, u64::from(u32::MAX)] {
            let after = |n| Seq::new(seq + n);
            contended.note(0, 3, after(0));
            assert!(contended.avoids(0, 3, after(0)) && contended.avoids(0, 3, after(1)));
            assert!(!contended.avoids(0, 3, after(2)));
            assert!(!contended.avoids(0, 3 + NOTES as u32, after(0)));
            assert!(!contended.avoids(0, 4, after(0)));
            assert!(!contended.avoids(1, 3, after(0)));
        }
        // Another group in the same place is the one that is known.
        contended.note(0, 3, Seq::new(9));
        contended.note(0, 3 + NOTES as u32, Seq::new(9));
        assert!(!contended.avoids(0, 3, Seq::new(9)));
        // CPUs that there are no notes for.
        contended.note(1 << 20, 3, Seq::new(9));
        assert!(!contended.avoids(1 << 20, 3, Seq::new(9)));
    }
}
