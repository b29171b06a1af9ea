//! What only sources above others need: names that go, and nodes of another tree.

use std::sync::Arc;

use super::super::error::SourceResult;
use super::super::model::{Coverage, FileType, NO_DATA, Name, Node, NodeId, Origin, Payload};
use super::super::model::{Tree, Xattr};
use super::{Content, GONE, Stored, TreeBuilder, count};

impl TreeBuilder {
    /// Says which source the files come from that are added from now on: a place in the list that
    /// [`finish_with`](TreeBuilder::finish_with) gets.
    pub(crate) fn set_source(&mut self, source: u32) {
        self.source = source;
    }

    /// Takes a name away, and gives the node that had it.
    pub(crate) fn unlink(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let row = self.find(parent, name)?;
        let node = std::mem::replace(&mut self.links[row as usize].node, GONE);
        if let Payload::Directory { len, .. } = &mut self.nodes[parent.index()].payload {
            *len = len.saturating_sub(1);
        }
        if self.kind(node) == FileType::Directory {
            self.nodes[node.index()].nlink = 0;
        }
        Some(node)
    }

    /// Takes away all names in the root directory, and gives them with their nodes.
    pub(crate) fn unlink_root(&mut self) -> Vec<(Box<[u8]>, NodeId)> {
        let is_in_root = |link: &&super::Link| link.parent == NodeId::ROOT && link.node != GONE;
        let names: Vec<Box<[u8]>> = self
            .links
            .iter()
            .filter(is_in_root)
            .map(|link| Box::from(self.bytes_of(link.name)))
            .collect();
        names
            .into_iter()
            .filter_map(|name| {
                let node = self.unlink(NodeId::ROOT, &name)?;
                Some((name, node))
            })
            .collect()
    }

    /// Adds a node as it is in another tree, with no name yet. Of a directory nothing comes along
    /// that is in it.
    pub(crate) fn add_from(&mut self, tree: &Tree, id: NodeId) -> SourceResult<NodeId> {
        let new = NodeId(count("files", self.nodes.len())?);
        let old = tree.node(id);
        let payload = match old.payload {
            Payload::Directory { .. } => Payload::Directory { first: 0, len: 0 },
            Payload::Symlink { .. } => {
                let target = tree.symlink_target(id).unwrap_or_default();
                self.store(Content::Symlink(target))?.1
            }
            Payload::File(row) if row != NO_DATA => {
                let row = &tree.files[row as usize];
                let content = match (row.origin, row.coverage) {
                    (Origin::Inline { at }, _) => {
                        let from = at as usize;
                        Content::Inline(&tree.inline[from..from + old.size as usize])
                    }
                    (origin, Coverage::Dense) => Content::Stored(Stored {
                        size: old.size,
                        origin,
                        extents: None,
                    }),
                    (origin, Coverage::Sparse { first, len }) => Content::Stored(Stored {
                        size: old.size,
                        origin,
                        extents: Some(&tree.extents[first as usize..][..len as usize]),
                    }),
                };
                self.store(content)?.1
            }
            other => other,
        };
        let xattrs = self.intern_set(Arc::clone(tree.xattrs(id)))?;
        self.nodes.push(Node {
            nlink: 0,
            name: Name::default(),
            parent: NodeId::ROOT,
            xattrs,
            payload,
            ..old.clone()
        });
        Ok(new)
    }

    /// Adds a directory that is as another one, with nothing in it: to take its place.
    pub(crate) fn add_emptied(&mut self, dir: NodeId) -> SourceResult<NodeId> {
        let new = NodeId(count("files", self.nodes.len())?);
        self.nodes.push(Node {
            payload: Payload::Directory { first: 0, len: 0 },
            ..self.nodes[dir.index()].clone()
        });
        Ok(new)
    }

    /// Gives a directory what another tree says of one.
    pub(crate) fn set_meta_from(
        &mut self,
        id: NodeId,
        tree: &Tree,
        from: NodeId,
    ) -> SourceResult<()> {
        let xattrs = self.intern_set(Arc::clone(tree.xattrs(from)))?;
        let from = tree.node(from);
        let node = &mut self.nodes[id.index()];
        node.mode = from.mode;
        node.flags = from.flags;
        node.uid = from.uid;
        node.gid = from.gid;
        node.times = from.times;
        node.xattrs = xattrs;
        Ok(())
    }

    /// Sets one extended attribute of a node.
    pub(crate) fn set_xattr(&mut self, id: NodeId, xattr: Xattr) -> SourceResult<()> {
        let mut set = self.xattrs[self.nodes[id.index()].xattrs as usize].to_vec();
        set.push(xattr);
        self.nodes[id.index()].xattrs = self.intern(set)?;
        Ok(())
    }

    /// Returns the device number of a node that is a device.
    pub(crate) fn rdev(&self, id: NodeId) -> Option<(u32, u32)> {
        self.nodes[id.index()].rdev()
    }

    /// Has the data of a file read from this path of its directory source, whatever its names are
    /// then. The path that was said first stays.
    pub(crate) fn keep_source_path(&mut self, id: NodeId, path: impl FnOnce() -> Vec<u8>) {
        let Payload::File(row) = self.nodes[id.index()].payload else {
            return;
        };
        let row = self.files.get(row as usize);
        if row.is_some_and(|row| matches!(row.origin, Origin::Path { .. })) {
            let path = || path().into_boxed_slice();
            self.source_paths.entry(id).or_insert_with(path);
        }
    }
}
