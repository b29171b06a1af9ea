//! What only sources above others need: names that go, and nodes of another tree.

use std::sync::Arc;

use super::super::error::SourceResult;
use super::super::model::{FileType, Node, NodeId, Tree, Xattr};
use super::super::rows::{Coverage, FileAt, Origin, Payload};
use super::{Content, GONE, Stored, TreeBuilder};

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
        self.rows.count_entry(parent, -1);
        if self.kind(node) == FileType::Directory {
            self.rows.set_name(node, 0);
        }
        Some(node)
    }

    /// Takes away all names in the root directory, and gives them with their nodes.
    pub(crate) fn unlink_root(&mut self) -> Vec<(Box<[u8]>, NodeId)> {
        self.fetch_all(NodeId::ROOT);
        let is_in_root = |link: &&super::Link| link.parent == NodeId::ROOT && link.node != GONE;
        let names: Vec<Box<[u8]>> = self
            .links
            .iter()
            .filter(is_in_root)
            .map(|link| Box::from(self.rows.name_at(link.name)))
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
        let old = tree.node(id);
        let payload = match old.payload {
            Payload::Directory { .. } => Payload::Directory { first: 0, len: 0 },
            Payload::Symlink { .. } => {
                let target = tree.symlink_target(id).unwrap_or_default();
                self.store(Content::Symlink(target))?.1
            }
            Payload::File(_) => match tree.file_row(id) {
                None => Payload::File(FileAt::NOWHERE),
                Some(row) => {
                    let content = match (row.origin, row.coverage) {
                        (Origin::Inline { at }, _) => {
                            let from = at as usize;
                            Content::Inline(&tree.rows.inline[from..from + old.size as usize])
                        }
                        (origin, Coverage::Dense) => Content::Stored(Stored {
                            size: old.size,
                            origin,
                            extents: None,
                        }),
                        (origin, Coverage::Sparse { first, len }) => Content::Stored(Stored {
                            size: old.size,
                            origin,
                            extents: Some(&tree.rows.extents[first as usize..][..len as usize]),
                        }),
                    };
                    self.store(content)?.1
                }
            },
            other => other,
        };
        let xattrs = self.intern_set(Arc::clone(tree.xattrs(id)))?;
        self.rows.push(&Node {
            nlink: 1,
            parent: NodeId::ROOT,
            xattrs,
            source: self.source,
            payload,
            ..old
        })
    }

    /// Adds a directory that is as another one, with nothing in it: to take its place.
    pub(crate) fn add_emptied(&mut self, dir: NodeId) -> SourceResult<NodeId> {
        self.rows.push_emptied(dir)
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
        self.describe(id);
        self.rows.change(id, |node| {
            node.mode = from.mode;
            node.flags = from.flags;
            node.uid = from.uid;
            node.gid = from.gid;
            node.times = from.times;
            node.xattrs = xattrs;
        })
    }

    /// Sets one extended attribute of a node.
    pub(crate) fn set_xattr(&mut self, id: NodeId, xattr: Xattr) -> SourceResult<()> {
        let set = self.rows.xattr_set(id) as usize;
        let mut set = self.rows.xattrs[set].to_vec();
        set.push(xattr);
        let set = self.intern(set)?;
        self.describe(id);
        self.rows.change(id, |node| node.xattrs = set)
    }

    /// Returns the device number of a node that is a device.
    pub(crate) fn rdev(&self, id: NodeId) -> Option<(u32, u32)> {
        self.rows.get(id).rdev()
    }

    /// Has the data of a file read from this path of its directory source, whatever its names are
    /// then. The path that was said first stays.
    pub(crate) fn keep_source_path(&mut self, id: NodeId, path: impl FnOnce() -> Vec<u8>) {
        let row = self.rows.file(id);
        if row.is_some_and(|row| matches!(row.origin, Origin::Path { .. })) {
            let path = || path().into_boxed_slice();
            self.source_paths.entry(id).or_insert_with(path);
        }
    }
}
