//! The form in which preallocations of a file are kept.

use super::tree::{Blocks, PaTree};
#[cfg(feature = "baseline")]
use crate::alloc::baseline::list::PaList;
use crate::volume::Cluster;
use std::ops::Range;

/// What is kept ready for a file: see [`PaTree`].
#[derive(Debug)]
pub(super) enum Store {
    Tree(PaTree),
    #[cfg(feature = "baseline")]
    List(PaList),
}

impl Default for Store {
    fn default() -> Self {
        Self::Tree(PaTree::default())
    }
}

/// Asks whichever form it is.
macro_rules! ask {
    ($store:expr, $form:ident => $answer:expr) => {
        match $store {
            Store::Tree($form) => $answer,
            #[cfg(feature = "baseline")]
            Store::List($form) => $answer,
        }
    };
}

impl Store {
    /// Goes on as a list of at most `most`, if it is empty.
    #[cfg(feature = "baseline")]
    pub(super) fn become_list(&mut self, most: Option<usize>) {
        if let (Self::Tree(tree), Some(most)) = (&self, most)
            && tree.is_empty()
        {
            *self = Self::List(PaList::new(most));
        }
    }

    /// See [`PaTree::len`].
    pub(super) fn len(&self) -> usize {
        ask!(self, form => form.len())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Tree(tree) => tree.is_empty(),
            #[cfg(feature = "baseline")]
            Self::List(list) => list.len() == 0,
        }
    }

    /// See [`PaTree::take`].
    pub(super) fn take(&mut self, lblk: u32, len: u32) -> Option<Blocks> {
        ask!(self, form => form.take(lblk, len))
    }

    /// See [`PaTree::move_up`]. Lists stay as they are.
    pub(super) fn move_up(&mut self, from: u32, start: Cluster, to: u32) {
        match self {
            Self::Tree(tree) => tree.move_up(from, start, to),
            #[cfg(feature = "baseline")]
            Self::List(_) => {}
        }
    }

    /// See [`PaTree::gap`].
    pub(super) fn gap(&self, lblk: u32) -> Range<u32> {
        ask!(self, form => form.gap(lblk))
    }

    /// See [`PaTree::insert`].
    pub(super) fn insert(&mut self, lblk: u32, blocks: Blocks, left: impl FnMut(Blocks)) {
        ask!(self, form => form.insert(lblk, blocks, left));
    }

    /// See [`PaTree::split_off`].
    pub(super) fn split_off(&mut self, lblk: u32) -> Vec<Blocks> {
        ask!(self, form => form.split_off(lblk))
    }

    /// See [`PaTree::iter`].
    #[cfg(feature = "inspect")]
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = (u32, Blocks)> + '_> {
        ask!(self, form => Box::new(form.iter()))
    }
}
