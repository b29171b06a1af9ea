//! Writing files where a cluster is more than a block.
//!
//! Blocks of a logical cluster of which something is mapped, or has its place, go there and cost
//! nothing; the others get a cluster together.
//!
//! # Invariants
//!
//! - A logical cluster has one place: what the map says comes before what a write has chosen.
//! - What was unmapped and lies in a cluster that the file kept is not written to before a crash
//!   can no more bring the old map back: see [`FileCache::commit_detached`].

use crate::Result;
use crate::alloc::{FileRequest, Taken};
use crate::data::cache::FileCache;
use crate::data::cache::folio::{Folio, rows};
use crate::data::io::WriteIo;
use crate::data::reserve::preallocation;
use crate::data::reserve::promises::Claim;
use crate::data::writeback::{Batch, WritebackRun, WritebackState};
use crate::fs::Fs;
use crate::inode::Held;
use crate::map::{self, Placer};
use crate::meta::Seq;
use extant_format::{Lblk, Pblk};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl FileCache {
    /// Notes that the transaction `seq` unmaps blocks of clusters that stay the file's. Writeback
    /// is kept away.
    pub(crate) fn note_detached(&self, seq: Seq) {
        self.detached.store(seq.get(), Ordering::Release);
    }

    /// Tells whether blocks were unmapped of clusters that stayed the file's, by a transaction that
    /// is not known to be durable.
    #[inline]
    pub(in crate::data) fn has_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire) != Seq::NONE.get()
    }

    /// Sees to it that blocks of the file may be written to which were unmapped before: after a
    /// crash none has what it held then. The caller keeps others from unmapping more.
    ///
    /// # Errors
    /// What stopped the journal.
    #[inline]
    pub(in crate::data) fn commit_detached(&self, fs: &Fs) -> Result<()> {
        if self.has_detached() {
            self.commit_detached_now(fs)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn commit_detached_now(&self, fs: &Fs) -> Result<()> {
        fs.commit(Seq::new(self.detached.load(Ordering::Acquire)))?;
        self.detached.store(Seq::NONE.get(), Ordering::Release);
        Ok(())
    }
}

impl<'f> WriteIo<'f> {
    /// Of the logical clusters of `holes`, blocks of a folio, those of which nothing is mapped;
    /// none where a cluster is a block.
    pub(in crate::data) fn unmapped_clusters(&self, folio: &Folio, holes: u64) -> Result<Vec<u32>> {
        let size = self.fs.cluster_size();
        let mut found = Vec::new();
        if size.is_block() {
            return Ok(found);
        }
        let mut next = 0;
        for row in rows(holes) {
            let lblk = (folio.first_block(self.log2) + u64::from(row.start)) as u32;
            let clusters = size.touched(lblk, row.end - row.start);
            for logical in clusters.start.max(next)..clusters.end {
                let read =
                    || map::stable(self.live, |image| map::cluster_of(self.fs, image, logical));
                let start = u64::from(logical) << size.bits();
                if self.is_past_map(start)? || read()?.is_none() {
                    found.push(logical);
                }
            }
            next = clusters.end;
        }
        Ok(found)
    }

    /// Finds places for the pieces of `batch` that have none, and sees to it that those that have
    /// one lie in the cluster they have to.
    pub(in crate::data) fn place_in_clusters(&self, batch: &mut Batch<'f>) -> Result<()> {
        let size = self.fs.cluster_size();
        let pieces = std::mem::take(&mut batch.pieces);
        // Nobody else changes the map now.
        let image = self.live.snapshot();
        let mut placer = Placer::new(self.fs);
        let scattered = pieces
            .iter()
            .filter(|p| p.kind == WritebackState::New)
            .count()
            > 1;
        for mut piece in pieces {
            if matches!(
                piece.kind,
                WritebackState::Written | WritebackState::Unwritten
            ) {
                batch.pieces.push(piece);
                continue;
            }
            while piece.len > 0 {
                let lblk = piece.lblk as u32;
                let read = |logical| map::cluster_of(self.fs, &image, logical);
                let (kind, pblk, here) = match placer.given(lblk, read)? {
                    Some((pblk, here)) => {
                        if piece.kind == WritebackState::Placed && pblk != piece.pblk {
                            self.unplace(lblk, 1);
                        }
                        (WritebackState::Joined, pblk, here)
                    }
                    None if piece.kind == WritebackState::Placed => {
                        let first = size.first_of(piece.pblk);
                        let (pblk, here) = placer.give(lblk, first, 1);
                        (WritebackState::Placed, pblk, here)
                    }
                    None => {
                        let len = placer.contiguous_len(lblk, piece.len);
                        let (first, clusters) = self.take_clusters(batch, lblk, len, scattered)?;
                        let (pblk, here) = placer.give(lblk, first, clusters);
                        (WritebackState::New, pblk, here)
                    }
                };
                let here = here.min(piece.len);
                batch.pieces.push(WritebackRun {
                    len: here,
                    pblk,
                    kind,
                    ..piece
                });
                piece.lblk += u64::from(here);
                piece.len -= here;
                piece.pblk = Pblk::new(piece.pblk.get().saturating_add(here.into()));
            }
        }
        Ok(())
    }

    /// Takes clusters for the first of `len` blocks from `lblk` on: where they begin, and how many.
    fn take_clusters(
        &self,
        batch: &mut Batch<'f>,
        lblk: u32,
        len: u32,
        scattered: bool,
    ) -> Result<(Pblk, u32)> {
        let size = self.fs.cluster_size();
        let (clusters, reserved) = match self.cache.claim(size.touched(lblk, len)) {
            Claim::Promised(clusters) => (clusters, true),
            Claim::Free(clusters) => (clusters, false),
        };
        let end = u64::from(clusters.end) << size.bits();
        let ask = FileRequest {
            lblk: Lblk::new(lblk),
            len: len.min((end - u64::from(lblk)) as u32),
            size: self.live.live_size(),
            reserved,
            no_prealloc: scattered,
            // The write was let in, for whichever user.
            privileged: true,
        };
        let taken = preallocation::take_for(self.fs, self.live, &ask);
        let found = taken.as_ref().map_or(0, Taken::clusters);
        if reserved {
            self.cache
                .unclaim(self.alloc, clusters.start + found..clusters.end);
        }
        let taken = taken?;
        self.cache.caches.count_places(false, taken.len().into());
        let start = taken.start();
        let promise = reserved.then_some(clusters.start);
        batch.taken.push_back((taken, promise));
        Ok((start, found))
    }

    /// Gives up the places that writes have chosen for the logical clusters of `len` blocks from
    /// `lblk` on.
    pub(in crate::data) fn unplace(&self, lblk: u32, len: u32) {
        let size = self.fs.cluster_size();
        for (_, pblk, len) in self.cache.placed.take(size, lblk, len.into()) {
            drop(Taken::from_raw(self.alloc, pblk, len));
        }
    }

    /// Returns how many blocks of pieces are delayed.
    pub(in crate::data) fn delayed_in(&self, pieces: &[WritebackRun]) -> u32 {
        let mut delayed = 0;
        for piece in pieces {
            self.for_each_part(piece, |folio, blocks| {
                delayed += (folio.read().delayed & blocks).count_ones();
            });
        }
        delayed
    }

    /// Returns the logical clusters of a piece.
    pub(in crate::data) fn clusters_of(&self, piece: &WritebackRun) -> Range<u32> {
        let size = self.fs.cluster_size();
        size.touched(piece.lblk as u32, piece.len)
    }
}

/// Tells whether a truncation of the file to `size` bytes cuts a logical cluster in two.
pub(in crate::data) fn cuts_cluster(fs: &Fs, size: u64) -> bool {
    let log2 = fs.block_size().log2() + fs.cluster_size().bits();
    !fs.cluster_size().is_block() && size & ((1 << log2) - 1) != 0
}

/// Promises another place to what is delayed of the logical cluster that a truncation to `size`
/// bytes cuts in two. For a caller that holds `op` exclusively.
///
/// # Errors
/// [`NoSpace`](crate::Error::NoSpace).
pub(in crate::data) fn promise_cut(fs: &Fs, held: &Held, size: u64) -> Result<()> {
    let block = (size >> fs.block_size().log2()) as u32;
    match held.file_cache() {
        // Given back when nothing is delayed any more.
        Some(cache) if cache.delayed() > 0 => {
            cache.promise_again(fs, fs.alloc()?, held, [fs.cluster_size().logical(block)])
        }
        _ => Ok(()),
    }
}
