//! Which clusters a change frees: those of which it leaves nothing mapped.

use super::draft::{Draft, Source, child_context, load, position};
use super::node::{Entries, Node, clip};
use crate::Result;
use crate::volume::ClusterSize;
use extant_format::extent::NodeContext;
use extant_format::{Ino, Pblk};
use std::ops::Range;

/// What becomes of the clusters in which blocks were unmapped.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// Runs of whole ones in which nothing is mapped any more, in blocks.
    pub(super) runs: Vec<(Pblk, u32)>,
    /// Whether there are others.
    pub(super) some_stay: bool,
}

impl<S: Source> Draft<S> {
    /// Which clusters are free now, where a cluster is more than a block.
    ///
    /// # Errors
    /// When a node cannot be read.
    pub(super) fn freed_clusters(&mut self, size: ClusterSize) -> Result<Freed> {
        let mut freed: Vec<Range<u64>> = Vec::new();
        let mut some_stay = false;
        for extent in self.freed.clone() {
            let start = extent.pblk.get();
            let blocks = start..start + u64::from(extent.len);
            let mut whole = size.around(&blocks);
            let each = u64::from(size.blocks());
            // What lies between the first and the last one is unmapped as a whole.
            if self.holds(size, extent.lblk.get(), whole.start)? {
                whole.start += each;
                some_stay = true;
            }
            let last = extent.lblk.get().saturating_add(extent.len - 1);
            if whole.start < whole.end && self.holds(size, last, whole.end - each)? {
                whole.end -= each;
                some_stay = true;
            }
            // Its neighbour may have freed one of them.
            match freed.last_mut() {
                Some(other) if other.start < whole.end && whole.start < other.end => {
                    other.start = other.start.min(whole.start);
                    other.end = other.end.max(whole.end);
                }
                _ if whole.is_empty() => {}
                _ => freed.push(whole),
            }
        }
        let runs = freed.into_iter();
        // Fewer than a file can have.
        let runs = runs.map(|run| (Pblk::new(run.start), (run.end - run.start) as u32));
        Ok(Freed {
            runs: runs.collect(),
            some_stay,
        })
    }

    /// Returns what was unmapped.
    pub(super) fn unmapped(&self) -> Vec<(Pblk, u32)> {
        let freed = self.freed.iter();
        freed.map(|extent| (extent.pblk, extent.len)).collect()
    }

    /// Tells whether the cluster that begins with block `first` still holds a block of the logical
    /// cluster of `lblk`.
    fn holds(&mut self, size: ClusterSize, lblk: u32, first: u64) -> Result<bool> {
        let lblk = u64::from(lblk);
        let search = Search {
            logical: size.around(&(lblk..lblk + 1)),
            physical: first..first + u64::from(size.blocks()),
        };
        search.below(&self.source, self.ino, &mut self.root, &self.root_context)
    }
}

/// A search for an extent that maps some of these logical blocks to some of these blocks.
struct Search {
    logical: Range<u64>,
    physical: Range<u64>,
}

impl Search {
    fn below<S: Source>(
        &self,
        source: &S,
        ino: Ino,
        node: &mut Node<S::Block>,
        context: &NodeContext,
    ) -> Result<bool> {
        let depth = node.depth;
        let children = match &mut node.entries {
            Entries::Extents(extents) => {
                let from = extents.partition_point(|extent| extent.end() <= self.logical.start);
                let parts = extents.iter().skip(from);
                let mut parts = parts.map_while(|extent| clip(extent, &self.logical));
                return Ok(parts.any(|part| self.physical.contains(&part.pblk.get())));
            }
            Entries::Children(children) => children,
        };
        for i in position(children, self.logical.start)..children.len() {
            let mut below = child_context(children, i, context);
            if below.logical.start >= self.logical.end {
                break;
            }
            let loaded = load(source, ino, depth, &mut children[i], &mut below)?;
            if self.below(source, ino, loaded, &below)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
