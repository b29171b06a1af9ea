//! Nodes of an extent tree while it is being changed.

use crate::Result;
use crate::{InPlace, Place};
use extant_format::extent::{
    self, Entries as Encoded, Extent, ExtentNode, IndexEntry, MAX_UNWRITTEN_LEN, MAX_WRITTEN_LEN,
};
use extant_format::{FormatResult, Lblk, Pblk};
use std::ops::Range;

/// Where a node is stored.
#[derive(Debug)]
pub(super) enum Home<B> {
    /// In the inode.
    Root,
    /// In a block, of which this is the image that was read.
    Block(Pblk, B),
    /// In a block that is allocated when it is known how many are needed.
    New(Option<Pblk>),
}

/// A node, taken apart.
#[derive(Debug)]
pub(super) struct Node<B> {
    pub(super) home: Home<B>,
    /// Levels below.
    pub(super) depth: u16,
    pub(super) entries: Entries<B>,
    /// Whether it differs from what is stored.
    pub(super) changed: bool,
    /// Whether it grew at its end: then the file is filled on there.
    pub(super) grew_at_end: bool,
}

/// What a node holds.
#[derive(Debug)]
pub(super) enum Entries<B> {
    Extents(Vec<Extent>),
    Children(Vec<Child<B>>),
}

/// An entry of an inner node.
#[derive(Debug)]
pub(super) struct Child<B> {
    /// First logical block it may map.
    pub(super) lblk: Lblk,
    pub(super) node: Slot<B>,
}

#[derive(Debug)]
pub(super) enum Slot<B> {
    /// Not looked at.
    Stored(Pblk),
    Loaded(Box<Node<B>>),
}

impl<B> Node<B> {
    /// Takes a node apart that was validated.
    pub(super) fn decode(bytes: &[u8], home: Home<B>, place: Place) -> Result<Self> {
        let node = ExtentNode::parse(bytes).in_place(place)?;
        let entries = if node.is_leaf() {
            Entries::Extents(node.extents().collect())
        } else {
            Entries::Children(
                node.index_entries()
                    .map(|entry| Child {
                        lblk: entry.lblk,
                        node: Slot::Stored(entry.child),
                    })
                    .collect(),
            )
        };
        Ok(Self {
            home,
            depth: node.header().depth,
            entries,
            changed: false,
            grew_at_end: false,
        })
    }

    /// Returns a node that is stored nowhere yet.
    pub(super) fn new(depth: u16, entries: Entries<B>) -> Self {
        Self {
            home: Home::New(None),
            depth,
            entries,
            changed: true,
            grew_at_end: false,
        }
    }

    /// Entries in use.
    pub(super) fn len(&self) -> usize {
        match &self.entries {
            Entries::Extents(extents) => extents.len(),
            Entries::Children(children) => children.len(),
        }
    }

    /// Returns the first logical block it maps.
    pub(super) fn first(&self) -> Option<Lblk> {
        match &self.entries {
            Entries::Extents(extents) => extents.first().map(|e| e.lblk),
            Entries::Children(children) => children.first().map(|c| c.lblk),
        }
    }

    /// Returns the block it is stored in, once that is known.
    pub(super) fn block(&self) -> Option<Pblk> {
        match &self.home {
            Home::Root => None,
            Home::Block(block, _) => Some(*block),
            Home::New(block) => *block,
        }
    }

    /// Writes it into `bytes`: the map of an inode, or a block. All new children have their blocks.
    pub(super) fn encode(&self, bytes: &mut [u8]) -> FormatResult<()> {
        match &self.entries {
            Entries::Extents(extents) => extent::build_node(bytes, Encoded::Extents(extents)),
            Entries::Children(children) => {
                let index: Vec<_> = children
                    .iter()
                    .map(|child| IndexEntry {
                        lblk: child.lblk,
                        child: child.block().unwrap_or_default(),
                    })
                    .collect();
                extent::build_node(bytes, Encoded::Index(self.depth, &index))
            }
        }
    }
}

impl<B> Entries<B> {
    /// Takes away what comes after the first `at` entries.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Extents(extents) => Self::Extents(extents.split_off(at.min(extents.len()))),
            Self::Children(children) => Self::Children(children.split_off(at.min(children.len()))),
        }
    }
}

impl<B> Child<B> {
    pub(super) fn block(&self) -> Option<Pblk> {
        match &self.node {
            Slot::Stored(block) => Some(*block),
            Slot::Loaded(node) => node.block(),
        }
    }
}

/// Returns the part of `extent` that lies in `range`, if there is any.
pub(super) fn clip(extent: &Extent, range: &Range<u64>) -> Option<Extent> {
    let first = u64::from(extent.lblk.get());
    let start = first.max(range.start);
    let end = extent.end().min(range.end);
    (start < end).then(|| Extent {
        // Between two blocks of an extent.
        lblk: Lblk::new(start as u32),
        len: (end - start) as u32,
        pblk: Pblk::new(extent.pblk.get() + (start - first)),
        unwritten: extent.unwritten,
    })
}

/// `a` and `b` as one extent, if they can be.
pub(super) fn joined(a: &Extent, b: &Extent) -> Option<Extent> {
    let limit = if a.unwritten {
        MAX_UNWRITTEN_LEN
    } else {
        MAX_WRITTEN_LEN
    };
    let continues = a.unwritten == b.unwritten
        && a.end() == u64::from(b.lblk.get())
        && a.pblk.get() + u64::from(a.len) == b.pblk.get()
        && a.len + b.len <= limit;
    continues.then_some(Extent {
        len: a.len + b.len,
        ..*a
    })
}

/// Appends `extent`, joined with the last one if it can be.
pub(super) fn push_joined(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) => match joined(last, &extent) {
            Some(both) => *last = both,
            None => extents.push(extent),
        },
        None => extents.push(extent),
    }
}
