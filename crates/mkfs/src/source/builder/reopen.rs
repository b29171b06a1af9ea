//! A builder again of a tree that was finished, so that more can be put into it.

use std::hash::RandomState;
use std::sync::Arc;

use super::super::data::DataStore;
use super::super::error::SourceResult;
use super::super::model::{NodeId, Payload, Times, Tree};
use super::{Content, Link, NONE, TreeBuilder};

/// What a builder does not have of a tree, for when it is finished again.
#[derive(Debug)]
pub(crate) struct Aside {
    stores: Vec<DataStore>,
    warnings: Vec<String>,
}

impl TreeBuilder {
    /// Takes a tree apart. Identifiers of nodes stay.
    pub(crate) fn reopen(tree: Tree) -> (Self, Aside) {
        let Tree {
            mut nodes,
            entries,
            names,
            files,
            extents,
            inline,
            xattrs,
            stores,
            source_paths,
            warnings,
            late_flags: _,
        } = tree;
        let mut links = Vec::with_capacity(entries.len());
        for (index, node) in nodes.iter_mut().enumerate() {
            // Of a directory it says in a builder whether it has its name, and of others nothing.
            node.nlink = u32::from(node.is_dir());
            let Payload::Directory { first, len } = node.payload else {
                continue;
            };
            links.extend(
                entries[first as usize..][..len as usize]
                    .iter()
                    .map(|entry| Link {
                        parent: NodeId(index as u32),
                        node: entry.node,
                        name: entry.name,
                        next: NONE,
                    }),
            );
        }
        let rows = (0..).zip(&xattrs);
        let xattr_index = rows.map(|(row, set)| (Arc::clone(set), row)).collect();
        let builder = Self {
            nodes,
            links,
            names,
            files,
            extents,
            inline,
            xattrs,
            xattr_index,
            by_name: None,
            hasher: RandomState::new(),
            source: 0,
            source_paths,
        };
        (builder, Aside { stores, warnings })
    }

    /// Gives a regular file other content, and all its times.
    pub(crate) fn set_content(
        &mut self,
        id: NodeId,
        content: Content<'_>,
        times: Times,
    ) -> SourceResult<()> {
        let (size, payload) = self.store(content)?;
        let node = &mut self.nodes[id.index()];
        node.size = size;
        node.payload = payload;
        node.times = times;
        Ok(())
    }

    /// Finishes what [`reopen`](Self::reopen) began.
    pub(crate) fn finish_again(self, aside: Aside) -> SourceResult<Tree> {
        let mut tree = self.finish_with(aside.stores)?;
        tree.warnings = aside.warnings;
        Ok(tree)
    }
}
