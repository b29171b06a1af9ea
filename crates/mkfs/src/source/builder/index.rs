//! Finding names: links by the hash of directory and name.

use std::hash::{BuildHasher, RandomState};

use super::super::model::NodeId;
use super::super::rows::{NONE, Rows};
use super::{GONE, Link};

/// Fewest chains.
const LEAST: usize = 64;

/// The heads of chains of links, as many as there are links or up to twice as many.
#[derive(Debug)]
pub(super) struct Index {
    heads: Vec<u32>,
    hasher: RandomState,
}

impl Index {
    /// Makes the index of all links.
    pub(super) fn new(links: &mut [Link], rows: &Rows) -> Self {
        let mut index = Self {
            heads: Vec::new(),
            hasher: RandomState::new(),
        };
        index.build(links, rows);
        index
    }

    /// Adds the last link.
    pub(super) fn add(&mut self, links: &mut [Link], rows: &Rows) {
        if links.len() > self.heads.len() {
            self.build(links, rows);
        } else if let Some(row) = links.len().checked_sub(1) {
            self.chain(row, links, rows);
        }
    }

    /// The link with this name in a directory that was added last, if its node is not gone.
    pub(super) fn find(
        &self,
        links: &[Link],
        rows: &Rows,
        parent: NodeId,
        name: &[u8],
    ) -> Option<u32> {
        let mut row = self.heads[self.slot(parent, name)];
        while row != NONE {
            let link = &links[row as usize];
            let is_it = link.parent == parent && rows.name_at(link.name) == name;
            if is_it && link.node != GONE {
                return Some(row);
            }
            row = link.next;
        }
        None
    }

    fn build(&mut self, links: &mut [Link], rows: &Rows) {
        // Not both at once.
        self.heads = Vec::new();
        self.heads = vec![NONE; (links.len() + 1).next_power_of_two().max(LEAST)];
        for row in 0..links.len() {
            self.chain(row, links, rows);
        }
    }

    fn chain(&mut self, row: usize, links: &mut [Link], rows: &Rows) {
        let link = &mut links[row];
        let slot = self.slot(link.parent, rows.name_at(link.name));
        link.next = std::mem::replace(&mut self.heads[slot], row as u32);
    }

    fn slot(&self, parent: NodeId, name: &[u8]) -> usize {
        // There is a power of two of them.
        self.hasher.hash_one((parent.0, name)) as usize & (self.heads.len() - 1)
    }
}
