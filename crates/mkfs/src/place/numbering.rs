//! Inode numbers of a tree's nodes.
//!
//! Numbers follow the tree's canonical order. Where there are more of them than are needed, they do
//! so in stretches that end at names which say so ([`Marks`]), each with some numbers left over:
//! one more file gives new numbers to its own stretch and to no other. Beside an older image, a
//! node that is in it has the number it has there.

use super::regions::Marks;
use super::{LOST_AND_FOUND, Shape};
use crate::layout::RunSet;
use crate::source::{NodeId, Tree};
use extant_format::Ino;
use std::ops::Range;

/// Fewest and most nodes of a stretch that has numbers left over.
const STRETCH_MIN: u32 = 256;
const STRETCH_MAX: u32 = 1024;
/// One in so many names ends a stretch.
const STRETCH_MARK: u32 = 256;
/// Of so many numbers of a stretch, one is left over.
const SHARE_LEFT: u32 = 8;
/// Stretches begin at multiples of this, so that few more or less seldom move the next.
const STRETCH_STEP: u64 = 64;

/// Nodes in a row with numbers in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    node: u32,
    ino: u32,
    len: u32,
}

/// Inode numbers of a tree's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Numbering {
    lost_found_ino: Ino,
    lost_found: Option<NodeId>,
    /// In order of the nodes.
    stretches: Vec<Stretch>,
    /// Indices of `stretches` in order of the numbers; empty where that is the same.
    by_ino: Vec<u32>,
    end: u64,
}

impl Numbering {
    /// Numbers that follow one another.
    pub(crate) fn dense(tree: &Tree, shape: &Shape) -> Self {
        let mut numbering = Self::empty(tree, shape);
        let mut next = shape.first_ino;
        for id in numbering.others(tree) {
            numbering.give(id, next);
            next += 1;
        }
        numbering.end = next.into();
        numbering
    }

    /// Numbers with room in between, if there are so many that `spare` are left.
    pub(crate) fn apart(tree: &Tree, shape: &Shape, spare: u64) -> Option<Self> {
        let marks = Marks::new(tree);
        let mut numbering = Self::empty(tree, shape);
        let mut next = u64::from(shape.first_ino);
        let mut len = 0;
        for id in numbering.others(tree) {
            let ends = len >= STRETCH_MIN && marks.of(id).is_multiple_of(STRETCH_MARK);
            if ends || len >= STRETCH_MAX {
                // Numbers count from 1, and blocks of the table from 0.
                let end = next + u64::from(len / SHARE_LEFT);
                next = (end - 1).next_multiple_of(STRETCH_STEP) + 1;
                len = 0;
            }
            numbering.give(id, u32::try_from(next).ok()?);
            next += 1;
            len += 1;
        }
        numbering.end = next;
        (next - 1 + spare <= u64::from(shape.inodes_count)).then_some(numbering)
    }

    /// The numbers that nodes had (0: none). New ones have those of `first` that are free, and then
    /// free numbers behind those of their neighbours. `None` if they do not suffice, with `spare`
    /// behind them.
    pub(crate) fn kept(
        tree: &Tree,
        shape: &Shape,
        old: impl Fn(NodeId) -> u32,
        first: &[Range<u64>],
        spare: u64,
    ) -> Option<Self> {
        let count = u64::from(shape.inodes_count);
        let all = u64::from(shape.first_ino)..(count + 1).saturating_sub(spare);
        let mut numbering = Self::empty(tree, shape);
        let mut taken = RunSet::new();
        let mut numbers = vec![0; tree.len()];
        for id in numbering.others(tree) {
            let ino = u64::from(old(id));
            if all.contains(&ino) && !taken.contains(ino) {
                taken.insert(ino..ino + 1);
                numbers[id.index()] = ino as u32;
            }
        }
        let mut goal = all.start;
        let within = |range: &Range<u64>| range.start.max(all.start)..range.end.min(all.end);
        let mut first = first.iter().map(within).peekable();
        for id in numbering.others(tree) {
            let number = &mut numbers[id.index()];
            if *number == 0 {
                let mut early = None;
                while let Some(range) = first.peek_mut() {
                    early = taken.first_gap(range.start, range.end, 1, range.end);
                    if let Some(free) = early {
                        range.start = free + 1;
                        break;
                    }
                    first.next();
                }
                let free = early
                    .or_else(|| taken.first_gap(goal, all.end, 1, all.end))
                    .or_else(|| taken.first_gap(all.start, all.end, 1, all.end))?;
                taken.insert(free..free + 1);
                *number = free as u32;
            }
            goal = u64::from(*number) + 1;
            let number = *number;
            numbering.give(id, number);
        }
        let last = taken.runs_in(all.clone()).last();
        numbering.end = last.map_or(all.start, |run| run.end);
        let mut by_ino: Vec<u32> = (0..numbering.stretches.len() as u32).collect();
        by_ino.sort_unstable_by_key(|&index| numbering.stretches[index as usize].ino);
        numbering.by_ino = by_ino;
        Some(numbering)
    }

    fn empty(tree: &Tree, shape: &Shape) -> Self {
        let lost_found = tree
            .child(NodeId::ROOT, LOST_AND_FOUND)
            .filter(|id| tree.node(*id).is_dir());
        Self {
            lost_found_ino: shape.lost_found_ino,
            lost_found,
            stretches: Vec::new(),
            by_ino: Vec::new(),
            end: 0,
        }
    }

    /// The nodes whose number is not fixed.
    fn others(&self, tree: &Tree) -> impl Iterator<Item = NodeId> + use<> {
        let lost_found = self.lost_found;
        tree.ids().skip(1).filter(move |id| Some(*id) != lost_found)
    }

    fn give(&mut self, id: NodeId, ino: u32) {
        let node = id.index() as u32;
        match self.stretches.last_mut() {
            Some(last) if last.node + last.len == node && last.ino + last.len == ino => {
                last.len += 1;
            }
            _ => self.stretches.push(Stretch { node, ino, len: 1 }),
        }
    }

    /// The source's own `lost+found`, which takes the place of an empty one.
    pub(crate) fn lost_found(&self) -> Option<NodeId> {
        self.lost_found
    }

    /// The number of `lost+found`.
    pub(crate) fn lost_found_ino(&self) -> Ino {
        self.lost_found_ino
    }

    /// The number of a node: the root is 2, `lost+found` where a checker expects it.
    pub(crate) fn ino(&self, id: NodeId) -> Ino {
        if id == NodeId::ROOT {
            return Ino::ROOT;
        }
        if self.lost_found == Some(id) {
            return self.lost_found_ino;
        }
        let node = id.index() as u32;
        let at = self.stretches.partition_point(|s| s.node <= node);
        let stretch = self.stretches[at - 1];
        Ino::new(stretch.ino + (node - stretch.node))
    }

    /// Whether the numbers of a node and of the one before it do not follow one another.
    pub(crate) fn begins_stretch(&self, id: NodeId) -> bool {
        let node = id.index() as u32;
        let found = self.stretches.binary_search_by_key(&node, |s| s.node);
        found.is_ok()
    }

    /// The node with a number, if it has one.
    pub(crate) fn node(&self, ino: Ino) -> Option<NodeId> {
        if ino == Ino::ROOT {
            return Some(NodeId::ROOT);
        }
        if ino == self.lost_found_ino {
            return self.lost_found;
        }
        let ino = ino.get();
        let stretch = if self.by_ino.is_empty() {
            let at = self.stretches.partition_point(|s| s.ino <= ino);
            self.stretches.get(at.checked_sub(1)?)?
        } else {
            let of = |index: u32| &self.stretches[index as usize];
            let at = self.by_ino.partition_point(|&index| of(index).ino <= ino);
            of(*self.by_ino.get(at.checked_sub(1)?)?)
        };
        let offset = ino - stretch.ino;
        (offset < stretch.len).then(|| NodeId::from_index(stretch.node + offset))
    }

    /// The first number after all nodes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The numbers in use, in runs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.stretches.iter().map(|s| s.ino..s.ino + s.len)
    }
}
