//! What an older image has of a tree: numbers and blocks that stay.

use super::changed::{Changed, Groups};
use super::space::Space;
use super::{
    Content, FAST_SYMLINK_MAX, FileMap, Numbering, PlaceResult, Placer, Run, Shape, Taken,
    logical_blocks, use_of,
};
use crate::layout::RunSet;
use crate::metadata::FormerCopies;
use crate::source::{FileType, NodeId, Tree};
use extant_format::Ino;
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
    lost_found: Vec<FormerRun>,
    /// Blocks of what is not in the tree.
    gone: Vec<Range<u64>>,
    copies: FormerCopies,
}

#[derive(Clone, Debug, Default)]
struct Node {
    ino: u32,
    /// Names in a directory.
    names: Option<u64>,
    attr_block: Option<u64>,
    runs: Vec<FormerRun>,
}

/// Runs that a file may keep, one after another, before what has become of it is left alone.
const CUTS_MAX: usize = 4;

/// Blocks that a file keeps.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// In order of the file.
    pub(super) runs: Vec<Run>,
    /// Logical blocks that have no place yet, in order.
    pub(super) missing: Vec<Range<u64>>,
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

    /// Says which blocks a directory has there, a regular file, or a symbolic link that has one.
    /// Runs are in order of the file, and blocks are of the same size in both images. Those that
    /// another file or the file system itself has taken are not used.
    pub fn blocks(&mut self, id: NodeId, runs: Vec<FormerRun>) {
        self.nodes.entry(id).or_default().runs = runs;
    }

    /// Says how many names a directory has there, without `.` and `..`.
    pub fn names(&mut self, id: NodeId, count: u64) {
        self.nodes.entry(id).or_default().names = Some(count);
    }

    /// Says which block a node has there for its attributes.
    pub fn attr_block(&mut self, id: NodeId, pblk: u64) {
        self.nodes.entry(id).or_default().attr_block = Some(pblk);
    }

    /// Says which blocks `lost+found` has there, where the tree has none.
    pub fn lost_found(&mut self, runs: Vec<FormerRun>) {
        self.lost_found = runs;
    }

    /// Says which blocks something has there that is not in the tree.
    pub fn gone(&mut self, blocks: Range<u64>) {
        self.gone.push(blocks);
    }

    /// Says which copy of the superblock (1024 bytes) and of the descriptors (whole blocks) a group
    /// has there that is not the first. They stay as they are if they are still true but for counts
    /// and times.
    pub fn copies(&mut self, group: u32, superblock: Vec<u8>, descriptors: &[u8]) {
        self.copies.add(group, superblock, descriptors);
    }

    /// The copies that may stay.
    pub(crate) fn former_copies(&self) -> &FormerCopies {
        &self.copies
    }

    /// The number of a node there; 0 if it has none.
    pub(crate) fn ino(&self, id: NodeId) -> u32 {
        self.nodes.get(&id).map_or(0, |node| node.ino)
    }

    /// Whether a directory has the names there that it has in the tree, and for the same inodes.
    fn has_names(&self, tree: &Tree, numbering: &Numbering, id: NodeId) -> bool {
        let entries = tree.entries(id);
        let names = self.nodes.get(&id).and_then(|node| node.names);
        names == Some(entries.len() as u64)
            && entries.iter().all(|entry| {
                let child = entry.node();
                self.ino(child) == numbering.ino(child).get()
            })
    }

    /// Takes those blocks of a node that hold these logical blocks out of what is free, if they
    /// are.
    fn claim(
        &self,
        id: NodeId,
        ranges: impl Iterator<Item = Range<u64>>,
        shape: &Shape,
        used: &mut RunSet,
    ) -> Option<Box<Kept>> {
        claim(&self.nodes.get(&id)?.runs, ranges, shape, used)
    }

    /// Takes the block for attributes of a node out of what is free, if it is.
    fn claim_attr_block(&self, id: NodeId, shape: &Shape, used: &mut RunSet) -> Option<u64> {
        let pblk = self.nodes.get(&id)?.attr_block?;
        let run = Run {
            lblk: 0,
            len: 1,
            pblk,
        };
        claim_runs(&[run], shape, used).then_some(pblk)
    }
}

/// Takes those blocks of runs that hold these logical blocks out of what is free, if they are.
fn claim(
    runs: &[FormerRun],
    ranges: impl Iterator<Item = Range<u64>>,
    shape: &Shape,
    used: &mut RunSet,
) -> Option<Box<Kept>> {
    let kept = kept_of(runs, ranges);
    let is_worth = !kept.runs.is_empty() && kept.missing.len() <= CUTS_MAX;
    (is_worth && claim_runs(&kept.runs, shape, used)).then(|| Box::new(kept))
}

/// What of these logical blocks is in runs, which are in order.
fn kept_of(runs: &[FormerRun], ranges: impl Iterator<Item = Range<u64>>) -> Kept {
    let mut kept = Kept::default();
    let end_of = |run: &FormerRun| u64::from(run.lblk) + u64::from(run.len);
    let mut runs = runs.iter().peekable();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            while runs.next_if(|run| end_of(run) <= at).is_some() {}
            let (start, end) = match runs.peek() {
                Some(run) => (u64::from(run.lblk), end_of(run).min(range.end)),
                None => (range.end, range.end),
            };
            if let Some(run) = runs.peek().filter(|_| start <= at) {
                kept.runs.push(Run {
                    lblk: at as u32,
                    len: (end - at) as u32,
                    pblk: run.pblk.saturating_add(at - start),
                });
                at = end;
            } else {
                let until = start.min(range.end);
                kept.missing.push(at..until);
                at = until;
            }
        }
    }
    kept
}

/// Takes all these blocks out of what is free, or none of them.
fn claim_runs(runs: &[Run], shape: &Shape, used: &mut RunSet) -> bool {
    // Units of space are blocks here.
    if shape.cluster_bits > 0 {
        return false;
    }
    let mut claimed: Vec<Range<u64>> = Vec::with_capacity(runs.len());
    for run in runs {
        let Some(start) = run.pblk.checked_sub(shape.first_data_block) else {
            return false;
        };
        let units = start..start.saturating_add(run.len.into());
        let at = shape.free.partition_point(|free| free.end <= units.start);
        let free = shape.free.get(at);
        let is_free = free.is_some_and(|free| free.start <= units.start && units.end <= free.end);
        if !is_free || used.touches(units.clone()) {
            return false;
        }
        claimed.push(units);
    }
    claimed.sort_unstable_by_key(|units| units.start);
    if claimed.windows(2).any(|two| two[0].end > two[1].start) {
        return false;
    }
    for units in claimed {
        used.insert(units);
    }
    true
}

impl Placer<'_> {
    /// Has what is the same in an older image stay where it is, and places the rest around it.
    pub(super) fn place_like(&mut self, former: &Former, groups: &Groups) -> PlaceResult<()> {
        let mut used = RunSet::new();
        let mut kept = Vec::with_capacity(self.tree.len());
        for id in self.tree.ids() {
            kept.push(self.claim(id, former, &mut used)?);
        }
        self.kept = kept;
        if self.plan.numbering.lost_found().is_none() {
            let blocks = u64::from(self.plan.shape.lost_found_blocks);
            let runs = &former.lost_found;
            self.kept_lost_found = claim(
                runs,
                std::iter::once(0..blocks),
                &self.plan.shape,
                &mut used,
            );
        }
        self.claim_attr_blocks(former, &mut used);
        let changed = self.changed_anyway(former, groups);
        self.plan.space = Space::around(&self.plan.shape.free, used, changed);
        self.place_all()
    }

    /// The blocks of a node that stay.
    fn claim(
        &self,
        id: NodeId,
        former: &Former,
        used: &mut RunSet,
    ) -> PlaceResult<Option<Box<Kept>>> {
        let shape = &self.plan.shape;
        Ok(match self.tree.kind(id) {
            FileType::Regular => {
                let log2 = shape.block_size.log2();
                let blocks = logical_blocks(self.tree, id, log2);
                let seal = shape.seal_of(self.tree, id);
                former.claim(id, blocks.chain(seal), shape, used)
            }
            FileType::Directory => {
                let blocks = u64::from(self.directory_shape(id)?.0);
                former.claim(id, std::iter::once(0..blocks), shape, used)
            }
            FileType::Symlink if self.tree.node(id).size > FAST_SYMLINK_MAX as u64 => {
                former.claim(id, std::iter::once(0..1), shape, used)
            }
            _ => None,
        })
    }

    /// Says of all nodes which block of attributes they have, and has those stay that can.
    fn claim_attr_blocks(&mut self, former: &Former, used: &mut RunSet) {
        let plan = &mut self.plan;
        for id in self.tree.ids() {
            let Some(index) = plan.attrs.block_for(self.tree.xattr_set(id)) else {
                continue;
            };
            self.attr_blocks.insert(id, index);
            if plan.attrs.block_address(index).is_none()
                && let Some(pblk) = former.claim_attr_block(id, &plan.shape, used)
            {
                plan.attrs.put_block(index, pblk);
                plan.pieces.push_attr_block(index);
            }
        }
    }

    /// The chunks of what is new, of directories with other names, and of what is gone.
    fn changed_anyway(&self, former: &Former, groups: &Groups) -> Changed {
        let numbering = &self.plan.numbering;
        let mut changed = Changed::new(groups);
        for id in self.tree.ids().skip(1) {
            let ino = numbering.ino(id);
            if former.ino(id) != ino.get() {
                changed.mark_inode(ino);
            }
        }
        for (id, kept) in self.tree.ids().zip(&self.kept) {
            let Some(kept) = kept else {
                continue;
            };
            let is_dir = self.tree.kind(id) == FileType::Directory;
            let is_the_same = !is_dir || former.has_names(self.tree, numbering, id);
            if is_the_same && kept.missing.is_empty() {
                continue;
            }
            for run in &kept.runs {
                changed.mark_blocks(run.pblk..run.pblk + u64::from(run.len));
            }
        }
        for blocks in &former.gone {
            changed.mark_blocks(blocks.clone());
        }
        changed
    }

    /// Maps blocks that are taken already, and takes space for those of the file that are missing.
    pub(super) fn place_kept(
        &mut self,
        ino: Ino,
        kept: Kept,
        border: u64,
        content: impl Fn(u32) -> Content,
    ) -> PlaceResult<(FileMap, u64)> {
        let what = use_of(content(0));
        let mut taken = Taken {
            border,
            ..Taken::default()
        };
        let mut missing = kept.missing.into_iter().peekable();
        for run in kept.runs {
            while let Some(range) = missing.next_if(|range| range.start < run.lblk.into()) {
                self.take_range(range, what, &mut taken)?;
            }
            // Where blocks are kept, clusters are blocks.
            taken.clusters += u64::from(run.len);
            taken.push(run);
        }
        for range in missing {
            self.take_range(range, what, &mut taken)?;
        }
        self.map_runs(ino, &taken.runs, taken.clusters, content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lblk: u32, len: u32, pblk: u64) -> FormerRun {
        FormerRun { lblk, len, pblk }
    }

    #[test]
    fn what_has_grown_or_shrunk_keeps_the_rest() {
        let old = [run(0, 4, 100), run(10, 5, 200)];
        let kept = |ranges: &[Range<u64>]| {
            let kept = kept_of(&old, ranges.iter().cloned());
            let runs = kept.runs.iter().map(|run| (run.lblk, run.len, run.pblk));
            (runs.collect::<Vec<_>>(), kept.missing)
        };
        let both = vec![(0, 4, 100), (10, 5, 200)];
        assert_eq!(kept(&[0..4, 10..15]), (both.clone(), vec![]));
        assert_eq!(kept(&[0..6, 9..16]), (both, vec![4..6, 9..10, 15..16]));
        assert_eq!(
            kept(&[2..3, 12..13]),
            (vec![(2, 1, 102), (12, 1, 202)], vec![])
        );
        // A run that goes on behind the end of the first range is cut there.
        assert_eq!(
            kept(&[0..12, 12..14]),
            (
                vec![(0, 4, 100), (10, 2, 200), (12, 2, 202)],
                std::iter::once(4..10).collect()
            )
        );
        assert_eq!(kept(&[20..22, 30..31]), (vec![], vec![20..22, 30..31]));
    }
}
