//! Changing what the files of a tree have.

use std::collections::HashMap;
use std::sync::Arc;

use super::builder::settable_flags;
use super::error::SourceResult;
use super::model::{NodeId, Times, Timestamp, Tree, Xattr};
use super::rows::count;

/// Changes the attributes of files, of which those with equal ones share a set.
#[derive(Debug)]
pub(crate) struct Editor<'t> {
    tree: &'t mut Tree,
    /// The row of each set.
    sets: HashMap<Arc<[Xattr]>, u32>,
    /// The row of a set with another value of the attribute that was set last.
    known: HashMap<(u32, u32), u32>,
}

impl<'t> Editor<'t> {
    /// Begins to change a tree.
    pub(crate) fn new(tree: &'t mut Tree) -> Self {
        let rows = (0..).zip(&tree.rows.xattrs);
        let sets = rows.map(|(row, set)| (Arc::clone(set), row)).collect();
        Self {
            tree,
            sets,
            known: HashMap::new(),
        }
    }

    /// The tree as it is now.
    pub(crate) const fn tree(&self) -> &Tree {
        self.tree
    }

    /// Gives a file other owners.
    pub(crate) fn set_owners(
        &mut self,
        id: NodeId,
        user: Option<u32>,
        group: Option<u32>,
    ) -> SourceResult<()> {
        self.tree.rows.change(id, |node| {
            node.uid = user.unwrap_or(node.uid);
            node.gid = group.unwrap_or(node.gid);
        })
    }

    /// Gives a file other permission bits, with set-id and sticky bits. Its access list is told
    /// elsewhere.
    pub(crate) fn set_permissions(&mut self, id: NodeId, bits: u16) -> SourceResult<()> {
        self.tree.rows.change(id, |node| {
            if node.kind() != super::FileType::Symlink {
                node.mode = (node.mode & !0o7777) | (bits & 0o7777);
            }
        })
    }

    /// Gives a file other flags of `chattr`.
    pub(crate) fn set_flags(&mut self, id: NodeId, flags: u32) -> SourceResult<()> {
        self.tree.rows.change(id, |node| {
            node.flags = settable_flags(node.kind(), flags);
        })
    }

    /// Gives a file another time of its last change and access.
    pub(crate) fn set_modified(&mut self, id: NodeId, time: Timestamp) -> SourceResult<()> {
        self.tree.rows.change(id, |node| {
            node.times = Times::new(time, time, node.times.ctime(), node.times.crtime());
        })
    }

    /// Replaces one attribute, or takes it away. A value that many files get may have a `key` of
    /// its own, by which the way from one set to the next is found again.
    pub(crate) fn set_xattr(
        &mut self,
        id: NodeId,
        name: &[u8],
        value: Option<&[u8]>,
        key: Option<u32>,
    ) -> SourceResult<()> {
        let old = self.tree.rows.xattr_set(id);
        let way = key.map(|key| (old, key));
        if let Some(&row) = way.and_then(|way| self.known.get(&way)) {
            return self.tree.rows.change(id, |node| node.xattrs = row);
        }
        let others = self.tree.rows.xattrs[old as usize].iter();
        let mut set: Vec<Xattr> = others.filter(|x| *x.name != *name).cloned().collect();
        if let Some(value) = value {
            let at = set.partition_point(|x| *x.name < *name);
            let (name, value) = (Box::from(name), Arc::from(value));
            set.insert(at, Xattr { name, value });
        }
        let row = self.intern(set)?;
        self.tree.rows.change(id, |node| node.xattrs = row)?;
        if let Some(way) = way {
            self.known.insert(way, row);
        }
        Ok(())
    }

    fn intern(&mut self, set: Vec<Xattr>) -> SourceResult<u32> {
        let set: Arc<[Xattr]> = set.into();
        if let Some(&row) = self.sets.get(&set) {
            return Ok(row);
        }
        let row = count("sets of extended attributes", self.tree.rows.xattrs.len())?;
        self.tree.rows.xattrs.push(Arc::clone(&set));
        self.sets.insert(set, row);
        Ok(row)
    }
}
