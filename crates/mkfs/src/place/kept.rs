//! Places of nodes and pieces as they are kept: a few bytes each, and the rest only where it is
//! needed.

use super::{AttrPlans, Content, Maps, NodeAttrs, Piece, Placed};
use crate::source::NodeId;
use extant_format::Ino;

/// Where nodes are. A node with one run from its first block on takes five bytes beside the run,
/// and one without blocks no more.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// A kind, and a number in the order of the processor.
    rows: Vec<[u8; 5]>,
    whole: Vec<Placed>,
}

/// Kinds of rows.
const NOTHING: u8 = 0;
/// With the number of the run.
const ONE_RUN: u8 = 1;
/// With a row of `whole`.
const WHOLE: u8 = 2;

/// What does not stand in a row, and is asked of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) is_dir: bool,
    /// Its attributes, without their block.
    pub(super) attrs: NodeAttrs,
    /// Blocks in an allocation unit, as a power of two.
    pub(super) cluster_bits: u32,
}

impl Places {
    pub(super) fn with_capacity(nodes: usize) -> Self {
        Self {
            rows: Vec::with_capacity(nodes),
            whole: Vec::new(),
        }
    }

    /// Adds the place of the next node.
    pub(super) fn push(&mut self, placed: &Placed, about: About, maps: &Maps) {
        let row = self.row_of(placed, about, maps);
        self.rows.push(row);
    }

    /// Replaces the place of a node.
    pub(super) fn put(&mut self, id: NodeId, placed: &Placed, about: About, maps: &Maps) {
        let [kind, a, b, c, d] = self.rows[id.index()];
        if kind == WHOLE {
            self.whole[u32::from_ne_bytes([a, b, c, d]) as usize] = *placed;
            return;
        }
        self.rows[id.index()] = self.row_of(placed, about, maps);
    }

    fn row_of(&mut self, placed: &Placed, about: About, maps: &Maps) -> [u8; 5] {
        let runs = maps.run_numbers(placed.map);
        let kinds = [(NOTHING, 0), (ONE_RUN, runs.start)];
        let found = kinds
            .into_iter()
            .find(|&(kind, number)| simple(kind, number, about, maps) == Some(*placed));
        let (kind, number) = found.unwrap_or_else(|| {
            self.whole.push(*placed);
            (WHOLE, self.whole.len() as u32 - 1)
        });
        let [a, b, c, d] = number.to_ne_bytes();
        [kind, a, b, c, d]
    }

    /// The place of a node.
    pub(super) fn get(&self, id: NodeId, about: About, maps: &Maps) -> Placed {
        let [kind, a, b, c, d] = self.rows[id.index()];
        let number = u32::from_ne_bytes([a, b, c, d]);
        simple(kind, number, about, maps).unwrap_or_else(|| self.whole[number as usize])
    }
}

/// The place that a row stands for, if it stands for one alone.
fn simple(kind: u8, number: u32, about: About, maps: &Maps) -> Option<Placed> {
    let nothing = Placed {
        attrs: about.attrs,
        ..Placed::default()
    };
    match kind {
        NOTHING => Some(nothing),
        ONE_RUN => {
            let (map, run) = maps.one_run(number)?;
            let clusters = run.len.div_ceil(1 << about.cluster_bits);
            Some(Placed {
                map,
                charged: u64::from(clusters) << about.cluster_bits,
                dir_blocks: if about.is_dir { run.len } else { 0 },
                ..nothing
            })
        }
        _ => None,
    }
}

/// What a run of blocks holds: a kind, and two numbers.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
struct Kept {
    kind: Kind,
    /// A run, or what says itself where it lies.
    number: u32,
    owner: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    File,
    Seal,
    Directory,
    Symlink,
    Tree,
    AttrBlock,
    AttrValue,
}

/// All pieces, nine bytes each.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    list: Vec<Kept>,
}

/// Where pieces lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Where<'p> {
    pub(super) maps: &'p Maps,
    pub(super) attrs: &'p AttrPlans,
}

impl Where<'_> {
    fn piece(&self, kept: Kept) -> Piece {
        let (number, owner) = (kept.number, kept.owner);
        let of_run = |content: &dyn Fn(u32) -> Content| {
            let run = self.maps.run(number);
            Piece {
                pblk: run.pblk,
                blocks: run.len,
                content: content(run.lblk),
            }
        };
        let block = |pblk, content| Piece {
            pblk,
            blocks: 1,
            content,
        };
        match kept.kind {
            Kind::File => of_run(&|lblk| Content::File {
                node: NodeId(owner),
                lblk,
            }),
            Kind::Seal => of_run(&|lblk| Content::Seal {
                node: NodeId(owner),
                lblk,
            }),
            Kind::Directory => of_run(&|lblk| Content::Directory {
                ino: Ino::new(owner),
                lblk,
            }),
            Kind::Symlink => of_run(&|_| Content::Symlink {
                node: NodeId(owner),
            }),
            Kind::AttrValue => of_run(&|lblk| Content::AttrValue { index: owner, lblk }),
            Kind::Tree => {
                let content = Content::Tree {
                    ino: Ino::new(owner),
                    index: number,
                };
                block(self.maps.tree_block(number), content)
            }
            Kind::AttrBlock => {
                let pblk = self.attrs.block_address(number).unwrap_or(0);
                block(pblk, Content::AttrBlock { index: number })
            }
        }
    }
}

impl Pieces {
    /// Adds the blocks of a run; `content` is what they hold.
    pub(super) fn push_run(&mut self, run: u32, content: Content) {
        let (kind, owner) = match content {
            Content::File { node, .. } => (Kind::File, node.0),
            Content::Seal { node, .. } => (Kind::Seal, node.0),
            Content::Directory { ino, .. } => (Kind::Directory, ino.get()),
            Content::Symlink { node } => (Kind::Symlink, node.0),
            Content::AttrValue { index, .. } => (Kind::AttrValue, index),
            // Of these there are no runs.
            Content::Tree { ino, .. } => (Kind::Tree, ino.get()),
            Content::AttrBlock { index } => (Kind::AttrBlock, index),
        };
        self.list.push(Kept {
            kind,
            number: run,
            owner,
        });
    }

    /// Adds a block of a map.
    pub(super) fn push_tree(&mut self, index: u32, ino: Ino) {
        self.list.push(Kept {
            kind: Kind::Tree,
            number: index,
            owner: ino.get(),
        });
    }

    /// Adds a block of extended attributes.
    pub(super) fn push_attr_block(&mut self, index: u32) {
        self.list.push(Kept {
            kind: Kind::AttrBlock,
            number: index,
            owner: 0,
        });
    }

    /// Puts the pieces in the order of the device.
    pub(super) fn sort(&mut self, place: Where<'_>) {
        let key = |kept: &Kept| place.piece(*kept).pblk;
        if !self.list.is_sorted_by_key(key) {
            self.list.sort_unstable_by_key(key);
        }
    }

    /// The pieces that end after a block, in the order of the device.
    pub(super) fn after<'p>(&'p self, block: u64, place: Where<'p>) -> InOrder<'p> {
        let ends_before = |kept: &Kept| {
            let piece = place.piece(*kept);
            piece.pblk + u64::from(piece.blocks) <= block
        };
        let first = self.list.partition_point(ends_before);
        InOrder {
            list: self.list[first..].iter(),
            place,
        }
    }
}

/// Iterator over pieces in the order of the device.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<'p> {
    list: std::slice::Iter<'p, Kept>,
    place: Where<'p>,
}

impl Iterator for InOrder<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        self.list.next().map(|kept| self.place.piece(*kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_stays_small() {
        assert_eq!(size_of::<Kept>(), 9);
    }
}
