//! Puts what a builder has collected in canonical order, in place: nodes change places, links
//! become entries.

use super::super::base::Over;
use super::super::data::{DataStore, LateFlags};
use super::super::error::SourceResult;
use super::super::model::{Entry, FileType, NodeId, Tree};
use super::super::rows::{NONE, Rows};
use super::{Link, TreeBuilder};

/// What is put in order.
pub(super) struct Canonical {
    rows: Rows,
    /// Sorted by parent and name: the entries of a directory are a range.
    links: Vec<Link>,
    /// New number of each old node.
    numbers: Vec<u32>,
    /// The next number.
    next: u32,
}

impl Canonical {
    /// Takes what a builder has, with its links sorted by parent and name, and gives the tree.
    ///
    /// # Errors
    ///
    /// [`SourceError::TooMany`](super::SourceError::TooMany).
    pub(super) fn run(
        mut from: TreeBuilder,
        links: Vec<Link>,
        stores: Vec<DataStore>,
        over: Option<Over>,
    ) -> SourceResult<Tree> {
        let source_paths = std::mem::take(&mut from.source_paths);
        let mut this = Self {
            numbers: vec![NONE; from.rows.len()],
            rows: from.rows,
            links,
            next: 0,
        };
        this.visit_all()?;
        let len = this.next as usize;
        let Self {
            mut rows,
            links,
            mut numbers,
            next,
        } = this;
        // What has no name comes last, and goes.
        let nameless = numbers.iter_mut().filter(|number| **number == NONE);
        for (number, free) in nameless.zip(next..) {
            *number = free;
        }
        let entries = links
            .into_iter()
            .map(|link| Entry {
                name: link.name,
                node: NodeId(numbers[link.node.index()]),
            })
            .collect();
        let source_paths = source_paths
            .into_iter()
            .map(|(old, path)| (NodeId(numbers[old.index()]), path))
            .filter(|(new, _)| new.index() < len)
            .collect();
        let over = over.map(|over| Box::new(over.renumbered(&numbers, len)));
        rows.arrange(numbers, len);
        let is_directory = |store: &DataStore| matches!(store, DataStore::Directory(_));
        let late_flags = if stores.iter().any(is_directory) {
            LateFlags::of(len)
        } else {
            LateFlags::default()
        };
        Ok(Tree {
            rows,
            entries,
            stores,
            source_paths,
            late_flags,
            over,
            unproven: Vec::new(),
            warnings: Vec::new(),
        })
    }

    fn visit_all(&mut self) -> SourceResult<()> {
        self.place(NodeId::ROOT, NodeId::ROOT, 0)?;
        let mut stack = vec![NodeId::ROOT];
        while let Some(dir) = stack.pop() {
            let below = stack.len();
            self.visit(dir, &mut stack)?;
            stack[below..].reverse();
        }
        Ok(())
    }

    /// Numbers the children of a directory and puts its subdirectories on the stack.
    fn visit(&mut self, dir: NodeId, stack: &mut Vec<NodeId>) -> SourceResult<()> {
        let new = NodeId(self.numbers[dir.index()]);
        let first = self.links.partition_point(|link| link.parent < dir);
        let below = stack.len();
        let mut row = first;
        while let Some(&link) = self.links.get(row).filter(|link| link.parent == dir) {
            row += 1;
            if self.numbers[link.node.index()] != NONE {
                self.rows.count_name(link.node)?;
                continue;
            }
            self.place(link.node, new, link.name)?;
            if self.rows.kind(link.node) == FileType::Directory {
                stack.push(link.node);
            }
        }
        let entries = (first as u32, (row - first) as u32);
        self.rows.fill(dir, entries, (stack.len() - below) as u32)
    }

    /// Gives a node its number.
    fn place(&mut self, node: NodeId, parent: NodeId, name: u32) -> SourceResult<()> {
        self.numbers[node.index()] = self.next;
        self.next += 1;
        self.rows.place(node, parent, name)
    }
}
