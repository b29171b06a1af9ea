//! A builder again of a tree that was finished, so that more can be put into it.

use std::sync::Arc;

use super::super::data::DataStore;
use super::super::error::SourceResult;
use super::super::model::{NodeId, Times, Tree};
use super::super::oci::Unproven;
use super::super::rows::{NONE, Origin, Payload};
use super::ground::Ground;
use super::{Content, Link, SHARED_VALUE_MIN, TreeBuilder};

/// What a builder does not have of a tree, for when it is finished again.
#[derive(Debug)]
pub(crate) struct Aside {
    stores: Vec<DataStore>,
    unproven: Vec<Unproven>,
    warnings: Vec<String>,
}

impl Aside {
    /// Takes over where the data of another tree is, of one source, and gives the number that the
    /// source has here.
    pub(crate) fn begin_source(&mut self, tree: &mut Tree) -> u32 {
        let number = self.stores.len() as u32;
        self.stores.append(&mut tree.stores);
        self.unproven.append(&mut tree.unproven);
        self.warnings.append(&mut tree.warnings);
        number
    }
}

impl TreeBuilder {
    /// Takes a tree apart. Identifiers of nodes stay.
    pub(crate) fn reopen(tree: Tree) -> (Self, Aside) {
        // Their first name may be given to another file, and another one come first.
        let several: Vec<(NodeId, Box<[u8]>)> = tree
            .ids()
            .filter(|id| tree.node(*id).nlink > 1 && !tree.node(*id).is_dir())
            .filter(|id| {
                let row = tree.file_row(*id);
                row.is_some_and(|row| matches!(row.origin, Origin::Path { .. }))
            })
            .map(|id| (id, tree.source_parts(id).join(&b'/').into_boxed_slice()))
            .collect();
        let mut links = Vec::with_capacity(tree.entries.len());
        for parent in tree.ids() {
            links.extend(tree.entries(parent).iter().map(|entry| Link {
                parent,
                node: entry.node,
                name: entry.name,
                next: NONE,
            }));
        }
        let Tree {
            rows,
            entries: _,
            stores,
            mut source_paths,
            unproven,
            warnings,
            late_flags: _,
            over,
        } = tree;
        source_paths.extend(several);
        let sets = (0..).zip(&rows.xattrs);
        let xattr_index = sets.map(|(row, set)| (Arc::clone(set), row)).collect();
        let values = rows.xattrs.iter().flat_map(|set| set.iter());
        let values = values.map(|xattr| &xattr.value);
        let values = values.filter(|value| value.len() >= SHARED_VALUE_MIN);
        let values = values.map(Arc::clone).collect();
        let builder = Self {
            rows,
            links,
            xattr_index,
            values,
            by_name: None,
            source: 0,
            source_paths,
            ground: over.map(|over| Box::new(Ground::again(*over))),
        };
        let aside = Aside {
            stores,
            unproven,
            warnings,
        };
        (builder, aside)
    }

    /// Gives a regular file other content, and all its times.
    pub(crate) fn set_content(
        &mut self,
        id: NodeId,
        content: Content<'_>,
        times: Times,
    ) -> SourceResult<()> {
        let (size, payload): (u64, Payload) = self.store(content)?;
        let source = self.source;
        self.rows.change(id, |node| {
            node.size = size;
            node.payload = payload;
            node.times = times;
            node.source = source;
        })
    }

    /// Finishes what [`reopen`](Self::reopen) began.
    pub(crate) fn finish_again(self, aside: Aside) -> SourceResult<Tree> {
        let mut tree = self.finish_with(aside.stores)?;
        tree.unproven = aside.unproven;
        tree.warnings = aside.warnings;
        Ok(tree)
    }
}
