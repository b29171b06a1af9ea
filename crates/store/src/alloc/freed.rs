//! Blocks freed by transactions that have not committed.
//!
//! They are free on the device to come, but must not be handed out: after a crash their old owner
//! may have them again. Each CPU has a list of its own; commit merges them and returns them to
//! their groups.

use super::{Alloc, FreedKind};
use crate::Result;
use crate::meta::Seq;
use extant_format::Group;
#[cfg(feature = "inspect")]
use extant_format::Pblk;
use extant_sync::{LockClass, Mutex, PendingSum, PerCpu, Rank, ShardedCounter};
use std::ops::Range;

static FREED: LockClass = LockClass::new("freed blocks", Rank::Freed);

/// Freed blocks that are never too many to wait for the next commit.
const FEW_PENDING: u64 = 1024;
/// Freed blocks may be one part in this many of the free ones before a commit is due.
const PENDING_SHARE: u64 = 4;
/// Extents that may wait for a commit before one is due: they take memory.
const MOST_EXTENTS: u64 = 1 << 16;
/// An extent of as many blocks makes a look at the whole worth its cost.
const LARGE: u32 = 256;
/// So do as many extents.
const MANY: usize = 16;

/// A freed extent: clusters of one group.
#[derive(Clone, Debug)]
pub(super) struct FreedExtent {
    pub(super) seq: Seq,
    pub(super) group: Group,
    pub(super) run: Range<u32>,
    #[cfg_attr(
        not(feature = "inspect"),
        expect(dead_code, reason = "tests tell what was freed")
    )]
    pub(super) kind: FreedKind,
}

/// All freed extents that wait for a commit.
#[derive(Debug)]
pub(super) struct Freed {
    lists: PerCpu<Mutex<Vec<FreedExtent>>>,
    /// Whether the device is told what is free.
    discards: bool,
    /// Blocks that came into the lists and are not given back yet to the space there is.
    blocks: PendingSum,
    /// Extents in the lists.
    extents: ShardedCounter,
}

impl Freed {
    /// Nothing yet. `discards` says whether the device is told of what is free after each commit.
    pub(super) fn new(discards: bool) -> Self {
        Self {
            discards,
            lists: PerCpu::new(|_| Mutex::new(&FREED, Vec::new())),
            blocks: PendingSum::new(),
            extents: ShardedCounter::new(),
        }
    }

    /// Whether the device is told what is free.
    pub(super) fn discards(&self) -> bool {
        self.discards
    }

    /// Adds an extent. Returns whether it is time to look at how much waits: not each time, as that
    /// looks at what every CPU has.
    pub(super) fn push(&self, extent: FreedExtent) -> bool {
        let blocks = extent.run.end - extent.run.start;
        self.blocks.come(blocks);
        self.extents.inc();
        let mut list = self.lists.local().lock();
        list.push(extent);
        blocks >= LARGE || list.len().is_multiple_of(MANY)
    }

    /// Blocks that are in the lists or on their way back. Never fewer than there are at some moment
    /// of the call, so a thread that finds none has nothing to wait for.
    pub(super) fn pending(&self) -> i64 {
        self.blocks.sum()
    }

    /// Notes that blocks are back in the space there is: a thread that no longer finds them pending
    /// finds them there.
    fn note_returned(&self, blocks: u32) {
        self.blocks.leave(blocks);
    }

    /// Whether the lists take more memory than they should.
    fn is_long(&self) -> bool {
        self.extents.count() > MOST_EXTENTS
    }

    /// Takes out what transactions up to `upto` freed, in order of place, with neighbours merged.
    fn take(&self, upto: Seq) -> Vec<(Group, Range<u32>)> {
        let mut taken = Vec::new();
        for list in self.lists.iter() {
            taken.extend(
                list.lock()
                    .extract_if(.., |extent| extent.seq <= upto)
                    .map(|extent| (extent.group, extent.run)),
            );
        }
        self.extents
            .add(-i64::try_from(taken.len()).unwrap_or(i64::MAX));
        taken.sort_unstable_by_key(|(group, run)| (*group, run.start));
        taken.dedup_by(|next, last| {
            let joins = last.0 == next.0 && last.1.end == next.1.start;
            if joins {
                last.1.end = next.1.end;
            }
            joins
        });
        taken
    }
}

impl Alloc {
    /// Blocks that are free on the device to come, but only after the next commit may be used.
    #[must_use]
    pub fn pending_free_blocks(&self) -> u64 {
        self.freed.blocks.count()
    }

    /// Whether so much of the free space waits for a commit, or in so many pieces, that one is due.
    pub(super) fn is_much_pending(&self) -> bool {
        if self.freed.is_long() {
            return true;
        }
        let pending = self.freed.blocks.count();
        pending > FEW_PENDING && pending > self.free.count() / PENDING_SHARE
    }

    /// Calls `visit` with each extent that transactions up to `upto` freed and that has not been
    /// released.
    #[cfg(feature = "inspect")]
    pub fn for_each_freed(&self, upto: Seq, mut visit: impl FnMut(Pblk, u32, FreedKind)) {
        for list in self.freed.lists.iter() {
            let extents: Vec<_> = list.lock().clone();
            for extent in extents.iter().filter(|extent| extent.seq <= upto) {
                let (start, len) = self.blocks_of(extent.group, &extent.run);
                visit(start, len, extent.kind);
            }
        }
    }

    /// Returns what transactions up to `upto` freed to its groups: they have committed, and no old
    /// image of a metadata block among them will be written any more.
    pub(crate) fn release_freed(&self, upto: Seq) {
        let extents = self.freed.take(upto);
        if self.freed.discards {
            self.discard_extents(&extents);
        }
        for of_group in extents.chunk_by(|a, b| a.0 == b.0) {
            // Cannot fail: the group is in memory as long as they wait.
            if let Err(error) = self.return_extents(of_group) {
                crate::event!(error, %error, "freed blocks cannot be returned to their group");
            }
        }
    }

    /// Tells the device that nobody needs the content of these, before anybody gets them.
    fn discard_extents(&self, extents: &[(Group, Range<u32>)]) {
        let size = self.volume.block_size();
        for (group, run) in extents {
            let (start, len) = self.blocks_of(*group, run);
            let offset = size.offset_of(start).unwrap_or(u64::MAX);
            let bytes = u64::from(len) << size.log2();
            // A hint: what comes of it concerns nobody.
            if let Err(error) = self.volume.device().discard(offset, bytes) {
                crate::event!(debug, %error, "the device cannot discard");
                return;
            }
        }
    }

    fn return_extents(&self, extents: &[(Group, Range<u32>)]) -> Result<()> {
        let Some((group, _)) = extents.first() else {
            return Ok(());
        };
        let (_, mut state) = self.lock_group(*group)?;
        let mut blocks = 0;
        for (_, run) in extents {
            state.return_taken(run);
            blocks += run.end - run.start;
        }
        drop(state);
        // After the bits are clear: a thread that may take blocks finds some. They are pending
        // until they are there, so that no thread that finds no space takes that for the whole
        // truth.
        self.space.give(blocks);
        self.freed.note_returned(blocks);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pieces_are_too_many_however_small_and_come_out_merged() {
        let freed = Freed::new(false);
        let piece = |at: u32| FreedExtent {
            seq: Seq::new(1 + u64::from(at % 2)),
            group: Group::new(at / 30_000),
            run: at % 30_000..at % 30_000 + 1,
            kind: FreedKind::Data,
        };
        let looks = (0..70_000).filter(|at| freed.push(piece(*at))).count();
        assert!(looks > 1000 && freed.is_long());
        let odd = freed.take(Seq::new(1));
        assert_eq!(odd.len(), 35_000);
        assert!(!freed.is_long());
        // What the other transaction freed touches nothing that was not taken.
        assert_eq!(freed.take(Seq::new(2)).len(), 35_000);
        for at in 0..70_000 {
            freed.push(piece(at));
        }
        let all = freed.take(Seq::new(2));
        let group = |n: u32, len: u32| (Group::new(n), 0..len);
        assert_eq!(all, [group(0, 30_000), group(1, 30_000), group(2, 10_000)]);
        assert_eq!(freed.extents.sum(), 0);
    }
}
