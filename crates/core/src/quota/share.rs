//! What inodes are counted as, and what a transaction changes of that.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::mutants::{Mutant, is_on};
use extant_format::inode::InodeFlags;
use extant_format::quota::{QuotaEntry, QuotaKind};
use extant_format::{BlockSize, Ino};
use std::collections::BTreeMap;

/// What one inode adds to the use of its owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// User, group and project.
    owners: [u32; 3],
    /// Bytes of space.
    space: u64,
    /// 1 and one for each attribute value in an inode of its own, or 0 for what is not there.
    inodes: u64,
}

impl Share {
    /// That of an inode that is not there yet, or no longer.
    pub(crate) const NOTHING: Self = Self {
        owners: [0; 3],
        space: 0,
        inodes: 0,
    };

    #[cfg(test)]
    pub(super) fn made(owners: [u32; 3], space: u64) -> Self {
        Self {
            owners,
            space,
            inodes: 1,
        }
    }

    pub(super) fn owners(self) -> [u32; 3] {
        self.owners
    }

    pub(super) fn space(self) -> u64 {
        self.space
    }

    pub(super) fn inodes(self) -> u64 {
        self.inodes
    }

    /// That of an inode as its record says it. A value in an inode of its own is each inode's that
    /// has it: space is among that of the record, and the inode that holds it is nobody's.
    pub(crate) fn of(inode: &Inode, size: BlockSize) -> Self {
        let disk = inode.disk();
        let is_gone = inode.is_freed() && !is_on(Mutant::FreedStillCounted);
        if is_gone || disk.flags.contains(InodeFlags::EA_INODE) {
            return Self::NOTHING;
        }
        Self {
            owners: [disk.uid, disk.gid, disk.project.unwrap_or(0)],
            space: disk.sectors(size).saturating_mul(512),
            inodes: 1 + u64::from(inode.values()),
        }
    }
}

/// More or less use of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    space: i128,
    inodes: i128,
}

impl Change {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The entry with this change. Where the file said less than was in use, nothing is left.
    pub(super) fn apply(self, entry: QuotaEntry) -> QuotaEntry {
        let sum = |now: u64, change: i128| {
            let sum = i128::from(now).saturating_add(change).max(0);
            u64::try_from(sum).unwrap_or(u64::MAX)
        };
        QuotaEntry {
            space: sum(entry.space, self.space),
            inodes: sum(entry.inodes, self.inodes),
            ..entry
        }
    }
}

/// What a transaction changes of what owners use.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    changes: [BTreeMap<u32, Change>; 3],
}

impl Tally {
    /// An inode that was counted as `before` is counted as `after` from now on.
    pub(crate) fn add(&mut self, before: Share, after: Share) {
        if before == after {
            return;
        }
        for (share, sign) in [(before, -1), (after, 1)] {
            if share == Share::NOTHING {
                continue;
            }
            for (changes, owner) in self.changes.iter_mut().zip(share.owners) {
                let change = changes.entry(owner).or_default();
                change.space += i128::from(share.space) * sign;
                change.inodes += i128::from(share.inodes) * sign;
            }
        }
    }

    /// The changes of this kind, by owner.
    pub(super) fn of(&self, kind: QuotaKind) -> &BTreeMap<u32, Change> {
        let [user, group, project] = &self.changes;
        match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
            QuotaKind::Project => project,
        }
    }
}

impl Fs {
    /// Whether the space of this inode is somebody's, and not the file system's own.
    pub(crate) fn has_owner(&self, ino: Ino) -> bool {
        let superblock = self.superblock();
        let is_own = ino < superblock.first_ino() && ino != Ino::ROOT
            || superblock.orphan_file_ino() == Some(ino)
            || superblock.quota_inodes().contains(&Some(ino));
        !is_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(owners: [u32; 3], space: u64) -> Share {
        Share {
            owners,
            space,
            inodes: 1,
        }
    }

    #[test]
    fn a_tally_moves_what_changes_owner_and_forgets_what_cancels_out() {
        let mut tally = Tally::default();
        tally.add(share([1, 5, 0], 4096), share([2, 5, 0], 8192));
        tally.add(Share::NOTHING, share([3, 6, 7], 0));
        tally.add(share([3, 6, 7], 0), Share::NOTHING);
        tally.add(share([9, 9, 9], 1), share([9, 9, 9], 1));
        let users = tally.of(QuotaKind::User);
        assert_eq!(users.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        let entry = QuotaEntry {
            space: 5000,
            inodes: 3,
            space_hard: 77,
            ..QuotaEntry::of(1)
        };
        let after = users[&1].apply(entry);
        assert_eq!((after.space, after.inodes, after.space_hard), (904, 2, 77));
        let after = users[&2].apply(QuotaEntry::of(2));
        assert_eq!((after.space, after.inodes), (8192, 1));
        assert!(users[&3].is_none());
        let groups = tally.of(QuotaKind::Group);
        let after = groups[&5].apply(entry);
        assert_eq!((after.space, after.inodes), (9096, 3));
        assert!(tally.of(QuotaKind::Project)[&7].is_none());
    }

    #[test]
    fn less_than_nothing_is_nothing() {
        let mut tally = Tally::default();
        tally.add(share([1, 1, 1], 4096), Share::NOTHING);
        let after = tally.of(QuotaKind::User)[&1].apply(QuotaEntry::of(1));
        assert_eq!(after, QuotaEntry::of(1));
    }
}
