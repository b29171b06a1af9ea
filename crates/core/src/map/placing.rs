//! Where blocks of a file go whose place is given: those of a logical cluster of which others are
//! mapped.
//!
//! See [`ClusterSize`] for how blocks lie in clusters. Where a cluster is a block, no place is
//! given.

use super::Walk;
use crate::Result;
use crate::alloc::Taken;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::volume::ClusterSize;
use extant_format::{Lblk, Pblk};

/// Returns the first block of the cluster that logical cluster `logical` of a file lies in, if any
/// of it is mapped.
///
/// # Errors
/// As for [`lookup`](super::lookup).
pub(crate) fn cluster_of(fs: &Fs, inode: &Inode, logical: u32) -> Result<Option<Pblk>> {
    let size = fs.cluster_size();
    let first = u64::from(logical) << size.bits();
    let mut walk = Walk::over(first..first + u64::from(size.blocks()));
    while let Some(run) = walk.next(fs, inode)? {
        if let Some(pblk) = run.target.pblk() {
            return Ok(Some(size.first_of(pblk)));
        }
    }
    Ok(None)
}

/// Finds the places of blocks that nothing maps, one run behind the other.
#[derive(Debug)]
pub(crate) struct Placer {
    size: ClusterSize,
    /// The last logical cluster that was given a place, and its first block.
    last: Option<(u32, Pblk)>,
}

impl Placer {
    pub(crate) fn new(fs: &Fs) -> Self {
        Self {
            size: fs.cluster_size(),
            last: None,
        }
    }

    /// Returns where `lblk` has to lie because of others in its logical cluster, and how many
    /// blocks of that follow, itself included. `read` looks at the map as it is: it is told the
    /// logical cluster.
    ///
    /// # Errors
    /// What `read` says.
    pub(crate) fn given(
        &self,
        lblk: u32,
        read: impl FnOnce(u32) -> Result<Option<Pblk>>,
    ) -> Result<Option<(Pblk, u32)>> {
        if self.size.is_block() {
            return Ok(None);
        }
        let logical = self.size.logical(lblk);
        let first = match self.last {
            Some((last, first)) if last == logical => Some(first),
            _ => read(logical)?,
        };
        Ok(first.map(|first| self.within(lblk, first, 1)))
    }

    /// Of `len` blocks from `lblk` on, which nothing maps, those that may be taken at once: without
    /// the rest of the last logical cluster, where that goes on behind them with blocks that may be
    /// mapped.
    pub(crate) fn contiguous_len(&self, lblk: u32, len: u32) -> u32 {
        let last = self.size.inside(lblk.wrapping_add(len));
        match len.checked_sub(last) {
            Some(whole) if whole > 0 => whole,
            _ => len,
        }
    }

    /// Of clusters that begin with block `first` and were taken for `lblk` and what lies behind it:
    /// where it lies, and how many blocks follow, itself included.
    pub(crate) fn give(&mut self, lblk: u32, first: Pblk, clusters: u32) -> (Pblk, u32) {
        if let Some(more) = clusters.checked_sub(1) {
            let last = first.get() + (u64::from(more) << self.size.bits());
            self.last = Some((self.size.logical(lblk) + more, Pblk::new(last)));
        }
        self.within(lblk, first, clusters)
    }

    fn within(&self, lblk: u32, first: Pblk, clusters: u32) -> (Pblk, u32) {
        let inside = self.size.inside(lblk);
        let pblk = Pblk::new(first.get() + u64::from(inside));
        (pblk, (clusters << self.size.bits()).saturating_sub(inside))
    }
}

/// Places for blocks of a file: what was taken, and where each run of logical blocks lies.
#[derive(Debug, Default)]
pub(crate) struct Places<'f> {
    pub(crate) taken: Vec<Taken<'f>>,
    pub(crate) runs: Vec<(Lblk, Pblk, u32)>,
}

impl<'f> Places<'f> {
    /// Finds places for `len` blocks of a file from `lblk` on, which nothing maps. `take` takes up
    /// to so many blocks for a run that begins at a logical cluster, behind the block it is told if
    /// there is one.
    ///
    /// # Errors
    /// What `take` says; as for [`lookup`](super::lookup).
    pub(crate) fn find(
        fs: &'f Fs,
        inode: &Inode,
        lblk: u32,
        len: u32,
        mut take: impl FnMut(Option<Pblk>, u32) -> Result<Taken<'f>>,
    ) -> Result<Self> {
        let mut places = Self::default();
        let mut placer = Placer::new(fs);
        let (mut at, mut left) = (lblk, len);
        while left > 0 {
            let given = placer.given(at, |logical| cluster_of(fs, inode, logical))?;
            let (pblk, here) = match given {
                Some(given) => given,
                None => {
                    let last = places.runs.last();
                    let behind = last.and_then(|(_, at, len)| at.checked_add((*len).into()));
                    let inside = fs.cluster_size().inside(at);
                    let len = placer.contiguous_len(at, left);
                    let taken = take(behind, len.saturating_add(inside))?;
                    let given = placer.give(at, taken.start(), taken.clusters());
                    places.taken.push(taken);
                    given
                }
            };
            let here = here.min(left);
            places.runs.push((Lblk::new(at), pblk, here));
            at = at.saturating_add(here);
            left -= here;
        }
        Ok(places)
    }
}
