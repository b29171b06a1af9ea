//! What an older image has of a tree: numbers and blocks that stay.

use super::space::Space;
use super::{PlaceResult, Placer, Run, Shape, logical_blocks};
use crate::layout::RunSet;
use crate::source::{FileType, NodeId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of a file of an older image that lie in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerRun {
    /// First block in the file.
    pub lblk: u32,
    /// Number of blocks.
    pub len: u32,
    /// First block of the file system.
    pub pblk: u64,
}

/// What an older image has of the nodes of a tree, for an image that shall be like it
/// ([`BuildOptions::like`](crate::BuildOptions::like)).
#[derive(Clone, Debug, Default)]
pub struct Former {
    nodes: BTreeMap<NodeId, Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    ino: u32,
    runs: Vec<FormerRun>,
}

impl Former {
    /// Says that nothing is known of the older image.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says which number a node has there.
    pub fn number(&mut self, id: NodeId, ino: u32) {
        self.nodes.entry(id).or_default().ino = ino;
    }

    /// Says which blocks a directory has there, or a regular file. Runs are
    /// in order of the file, and blocks are of the same size in both images. Those that another
    /// file or the file system itself has taken are not used.
    pub fn blocks(&mut self, id: NodeId, runs: Vec<FormerRun>) {
        self.nodes.entry(id).or_default().runs = runs;
    }

    /// The number of a node there; 0 if it has none.
    pub(crate) fn ino(&self, id: NodeId) -> u32 {
        self.nodes.get(&id).map_or(0, |node| node.ino)
    }

    /// Takes the blocks of a node out of those that are free, if they are and if they hold exactly
    /// these logical blocks.
    pub(crate) fn claim(
        &self,
        id: NodeId,
        ranges: impl Iterator<Item = Range<u64>>,
        shape: &Shape,
        used: &mut RunSet,
    ) -> Option<Vec<Run>> {
        let node = self.nodes.get(&id).filter(|node| !node.runs.is_empty())?;
        // Units of space are blocks here.
        if shape.cluster_bits > 0 || !holds(&node.runs, ranges) {
            return None;
        }
        let mut claimed: Vec<Range<u64>> = Vec::with_capacity(node.runs.len());
        for run in &node.runs {
            let start = run.pblk.checked_sub(shape.first_data_block)?;
            let units = start..start.checked_add(run.len.into())?;
            let at = shape.free.partition_point(|free| free.end <= units.start);
            let is_free = shape
                .free
                .get(at)
                .is_some_and(|free| free.start <= units.start && units.end <= free.end);
            if !is_free || used.touches(units.clone()) {
                return None;
            }
            claimed.push(units);
        }
        claimed.sort_unstable_by_key(|units| units.start);
        if claimed.windows(2).any(|two| two[0].end > two[1].start) {
            return None;
        }
        for units in claimed {
            used.insert(units);
        }
        let runs = node.runs.iter().map(|run| Run {
            lblk: run.lblk,
            len: run.len,
            pblk: run.pblk,
        });
        Some(runs.collect())
    }
}

/// Whether runs, in order, cover these ranges and nothing else.
fn holds(runs: &[FormerRun], ranges: impl Iterator<Item = Range<u64>>) -> bool {
    let mut runs = runs.iter().peekable();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let Some(run) = runs.next() else {
                return false;
            };
            let end = u64::from(run.lblk) + u64::from(run.len);
            if u64::from(run.lblk) != at || run.len == 0 || end > range.end {
                return false;
            }
            at = end;
        }
    }
    runs.next().is_none()
}

impl Placer<'_> {
    /// Has what is the same in an older image stay where it is, and places the rest around it.
    pub(super) fn place_like(&mut self, former: &Former) -> PlaceResult<()> {
        let mut used = RunSet::new();
        let mut kept = vec![None; self.tree.len()];
        for id in self.tree.ids() {
            let shape = &self.plan.shape;
            kept[id.index()] = match self.tree.kind(id) {
                FileType::Regular => {
                    let log2 = shape.block_size.log2();
                    let blocks = logical_blocks(self.tree, id, log2);
                    let seal = shape.seal_of(self.tree, id);
                    former.claim(id, blocks.chain(seal), shape, &mut used)
                }
                FileType::Directory => {
                    let blocks = u64::from(self.directory_shape(id)?.0);
                    former.claim(id, std::iter::once(0..blocks), shape, &mut used)
                }
                _ => None,
            };
        }
        self.kept = kept;
        self.plan.space = Space::around(&self.plan.shape.free, used);
        self.place_all()
    }
}
