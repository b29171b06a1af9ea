//! Taking blocks, committing them, giving them back, freeing them.

use super::freed::FreedExtent;
use super::search::{Near, Search};
use super::{Alloc, FreedKind, Request, Taken};
use crate::journal::Handle;
use crate::mutants::{Mutant, is_on};
use crate::volume::Cluster;
use crate::{Error, InPlace, Place, Result};
use extant_format::{Expected, FormatError, Group, Pblk, Structure};
use std::ops::Range;

impl Alloc {
    /// Takes blocks: near the goal if there are enough side by side, elsewhere otherwise. They are
    /// the caller's alone, and nobody's on the device, until
    /// [`commit_blocks`](Self::commit_blocks). May wait for the device.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when fewer blocks than needed are free to the caller, or nowhere as many
    /// side by side. If [`pending_free_blocks`](Self::pending_free_blocks) is not 0, a commit
    /// brings more.
    pub fn take_blocks(&self, request: &Request) -> Result<Taken<'_>> {
        let most = self.volume.geometry().clusters_per_group();
        let size = self.volume.cluster_size();
        let min = size.count(request.min.max(1));
        let want = size.count(request.len).max(min).min(most);
        if min > want {
            return Err(Error::NoSpace);
        }
        // What is kept ready for files comes after what is needed.
        self.with_room(min.into(), || {
            let budget = self.space.take(min, want, || request.share(self));
            let budget = budget.ok_or(Error::NoSpace)?;
            let taken = self.take_charged(self.near_goal(request), budget, min);
            let found = taken.as_ref().map_or(0, Taken::clusters);
            self.space.give(budget - found);
            taken
        })
    }

    /// As [`take_blocks`](Self::take_blocks), for blocks that are promised: the promise of as many
    /// clusters as are taken is used up.
    pub fn take_promised(&self, request: &Request) -> Result<Taken<'_>> {
        let most = self.volume.geometry().clusters_per_group();
        let size = self.volume.cluster_size();
        let want = size.count(request.len).clamp(1, most);
        let min = size.count(request.min.max(1));
        let taken = self.take_charged(self.near_goal(request), want, min)?;
        self.note_promised(-i64::from(taken.clusters()));
        Ok(taken)
    }

    fn near_goal(&self, request: &Request) -> Near {
        Near {
            goal: self.volume.cluster_size().of(request.goal),
            room: 0,
            below_32_bits: request.below_32_bits,
        }
    }

    /// As [`take_blocks`](Self::take_blocks), for at most `want` clusters that the caller has been
    /// granted. Of the grant, what was taken is used up; the rest stays the caller's.
    pub(super) fn take_charged(&self, near: Near, want: u32, min: u32) -> Result<Taken<'_>> {
        let (group, run) = Search::new(self, near, want, min).run()?;
        let (first, clusters) = self.clusters_of(group, &run);
        Ok(Taken::new(self, first, clusters))
    }

    /// Makes taken blocks owned on the device, in the transaction of `handle`, which also maps
    /// them. Changes one group and the superblock.
    ///
    /// # Errors
    /// Only if the allocator contradicts itself; then the blocks are given back.
    pub fn commit_blocks(&self, handle: &Handle<'_>, taken: Taken<'_>) -> Result<()> {
        if taken.is_empty() {
            return Ok(());
        }
        let (group, run) = self.run_of(taken.first(), taken.clusters())?;
        handle.touch_superblock();
        let (loaded, mut state) = self.lock_group(group)?;
        // Under the lock: from here on its bitmaps stay in memory until the commit.
        self.touch_group(handle, group, loaded);
        state.commit(run);
        drop(state);
        self.free.add(-i64::from(taken.clusters()));
        taken.disarm();
        Ok(())
    }

    /// Frees the clusters of blocks that an inode owned, in the transaction of `handle`, which also
    /// unmaps the last blocks in them. Changes each group they lie in and the superblock.
    ///
    /// They can be taken again after it has committed. Data that this transaction also allocated is
    /// free at once: after a crash nobody has it, whatever is durable by then.
    ///
    /// # Errors
    /// When some of the blocks lie outside the file system, hold its fixed metadata, or are not in
    /// use; then nothing is freed.
    pub fn free_blocks(
        &self,
        handle: &Handle<'_>,
        start: Pblk,
        len: u32,
        kind: FreedKind,
    ) -> Result<()> {
        let pieces = self.check_owned(start, len)?;
        handle.touch_superblock();
        for piece in pieces {
            let (group, run) = piece?;
            let mut back = 0;
            let mut wait = Vec::new();
            let (loaded, mut state) = self.lock_group(group)?;
            self.touch_group(handle, group, loaded);
            state.release(run.clone());
            if kind == FreedKind::Data && self.reuses_at_once() {
                state.split_by_age(run.clone(), |state, run, is_new| {
                    if is_new {
                        state.return_taken(&run);
                        back += run.end - run.start;
                    } else {
                        wait.push(run)
                    }
                });
            } else {
                wait.push(run.clone());
            }
            drop(state);
            self.free.add((run.end - run.start).into());
            // After the bits are clear: a thread that may take blocks finds some.
            self.space.give(back);
            for run in wait {
                self.free_later(handle, group, run, kind)?;
            }
        }
        if is_on(Mutant::FreedTooEarly) {
            self.release_freed(handle.seq());
        }
        Ok(())
    }

    /// Has the groups of blocks that are about to be freed in the transaction of `handle` in memory
    /// until it commits, so that freeing them does not meet the device when they are unmapped
    /// already.
    ///
    /// # Errors
    /// When a group cannot be read. What is broken is left to [`free_blocks`](Self::free_blocks),
    /// which says so: a file with such blocks can be deleted.
    pub fn hold_groups(&self, handle: &Handle<'_>, blocks: &[(Pblk, u32)]) -> Result<()> {
        for &(start, len) in blocks {
            if !self.volume.geometry().contains(start, len.into()) {
                continue;
            }
            for piece in self.pieces(start, len) {
                let locked = piece.and_then(|(group, _)| Ok((group, self.lock_group(group)?)));
                match locked {
                    // Under the lock: from here on its bitmaps stay.
                    Ok((group, (loaded, _state))) => self.touch_group(handle, group, loaded),
                    Err(error) if error.is_corruption() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Has blocks wait for the commit.
    fn free_later(
        &self,
        handle: &Handle<'_>,
        group: Group,
        run: Range<u32>,
        kind: FreedKind,
    ) -> Result<()> {
        #[cfg(feature = "baseline")]
        let _alone = self.forms.goal_and_freed();
        let look = self.freed.push(FreedExtent {
            seq: handle.seq(),
            group,
            run,
            kind,
        });
        if look && self.is_much_pending() {
            self.journal.request_commit_soon();
        }
        Ok(())
    }

    /// Gives taken clusters back, when a [`Taken`] is dropped.
    pub(super) fn give_back(&self, first: Cluster, clusters: u32) {
        if self.return_to_group(first, clusters) {
            self.space.give(clusters);
        }
    }

    /// Returns runs of taken clusters to the one group they lie in, not to the space that may be
    /// taken.
    pub(super) fn return_all_to_group(&self, runs: &[(Cluster, u32)]) {
        let group = runs.first().map(|(first, len)| self.run_of(*first, *len));
        let Some(Ok((group, _))) = group else { return };
        // Cannot fail: the clusters were taken, so the group is in memory.
        let Ok((_, mut state)) = self.lock_group(group) else {
            return;
        };
        for (first, len) in runs {
            if let Ok((_, run)) = self.run_of(*first, *len) {
                state.return_taken(&run);
            }
        }
    }

    /// Returns taken clusters to their group, not to the space that may be taken.
    pub(super) fn return_to_group(&self, first: Cluster, clusters: u32) -> bool {
        // None can fail: the clusters were taken, so the group is in memory.
        let Ok((group, run)) = self.run_of(first, clusters) else {
            return false;
        };
        let Ok((_, mut state)) = self.lock_group(group) else {
            return false;
        };
        state.return_taken(&run);
        true
    }

    /// Refuses blocks that are not in use, or the file system's own metadata: nothing may be
    /// written there for a file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and [`Error::BlockOutOfRange`] for such blocks; when a bitmap cannot be
    /// read.
    pub fn check_in_use(&self, start: Pblk, len: u32) -> Result<()> {
        self.check_owned(start, len).map(drop)
    }

    /// Checks that blocks may be freed, and cuts them where groups end.
    fn check_owned(
        &self,
        start: Pblk,
        len: u32,
    ) -> Result<impl Iterator<Item = Result<(Group, Range<u32>)>>> {
        let blocks = start.get()..start.get().saturating_add(len.into());
        if !self.volume.geometry().contains(start, len.into()) {
            return Err(Error::BlockOutOfRange {
                block: Pblk::new(blocks.end.saturating_sub(1).max(start.get())),
                blocks: self.volume.geometry().blocks_count(),
            });
        }
        let blocks = self.volume.cluster_size().around(&blocks);
        let wrong = |block: u64, said| {
            let expected = Expected::Said(said);
            let source = FormatError::new(Structure::BlockBitmap, "freed block", block, expected);
            Error::corrupt(Place::Block(Pblk::new(block)), source)
        };
        if let Some(kept) = self.first_kept(blocks) {
            let said = "a block that files may own, not the file system's own metadata";
            return Err(wrong(kept.get(), said));
        }
        for piece in self.pieces(start, len) {
            let (group, run) = piece?;
            let (_, state) = self.lock_group(group)?;
            let bits = state.blocks.bits();
            if let Some(clear) = extant_format::bitmap::next_clear(bits, run.start, run.end) {
                drop(state);
                let (block, _) = self.blocks_of(group, &(clear..clear + 1));
                return Err(wrong(block.get(), "a block in use"));
            }
        }
        Ok(self.pieces(start, len))
    }

    /// The clusters of blocks, cut where groups end.
    pub(super) fn pieces(
        &self,
        start: Pblk,
        len: u32,
    ) -> impl Iterator<Item = Result<(Group, Range<u32>)>> {
        let size = self.volume.cluster_size();
        let (mut next, mut left) = (size.of(start), 0);
        if let Some(last) = len.checked_sub(1) {
            let last = size.of(Pblk::new(start.get().saturating_add(last.into())));
            // Fewer than blocks.
            left = (last.get() - next.get()) as u32 + 1;
        }
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let piece = self.run_of(next, left).map(|(group, run)| {
                let end = run.end.min(self.volume.geometry().clusters_per_group());
                left -= end - run.start;
                next = next.plus(end - run.start);
                (group, run.start..end)
            });
            if piece.is_err() {
                left = 0;
            }
            Some(piece)
        })
    }

    /// The group of a cluster, and where `len` clusters from it on lie in the group, or past its
    /// end.
    fn run_of(&self, first: Cluster, len: u32) -> Result<(Group, Range<u32>)> {
        let start = self.volume.cluster_size().block(first);
        let split = self.volume.geometry().bitmap_position(start);
        let (group, at) = split.in_place(Place::Block(start))?;
        Ok((group, at..at.saturating_add(len)))
    }

    /// Clusters of a group, by their numbers on the device.
    pub(super) fn clusters_of(&self, group: Group, run: &Range<u32>) -> (Cluster, u32) {
        let (start, _) = self.blocks_of(group, run);
        (self.volume.cluster_size().of(start), run.end - run.start)
    }

    /// The blocks of clusters of a group.
    pub(super) fn blocks_of(&self, group: Group, run: &Range<u32>) -> (Pblk, u32) {
        let geometry = self.volume.geometry();
        let first = u64::from(group.get()) * u64::from(geometry.blocks_per_group());
        let at = u64::from(run.start) << geometry.cluster_bits();
        let start = geometry.first_data_block().get() + first + at;
        let len = (run.end - run.start) << geometry.cluster_bits();
        (Pblk::new(start), len)
    }
}
