//! Copies what a builder has collected into a tree in canonical order.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::data::{DataStore, LateFlags};
use super::super::model::{Coverage, Entry, NO_DATA, Name, NodeId, Origin, Payload, Tree};
use super::{Link, NONE, TreeBuilder};

/// Copies a builder's content into a tree in canonical order.
pub(super) struct Canonical {
    from: TreeBuilder,
    /// Sorted by parent and name.
    links: Vec<Link>,
    /// New number of each old node.
    renumber: Vec<u32>,
    /// New number of each old attribute set.
    xattr_renumber: Vec<u32>,
    to: Tree,
}

impl Canonical {
    pub(super) fn new(from: TreeBuilder, links: Vec<Link>) -> Self {
        let to = Tree {
            nodes: Vec::with_capacity(from.nodes.len()),
            entries: Vec::with_capacity(links.len()),
            names: Vec::with_capacity(from.names.len()),
            files: Vec::with_capacity(from.files.len()),
            extents: Vec::with_capacity(from.extents.len()),
            inline: Vec::with_capacity(from.inline.len()),
            xattrs: vec![Arc::from([])],
            stores: vec![DataStore::Memory],
            source_paths: HashMap::new(),
            late_flags: LateFlags::default(),
            warnings: Vec::new(),
        };
        let mut xattr_renumber = vec![NONE; from.xattrs.len()];
        xattr_renumber[0] = 0;
        Self {
            renumber: vec![NONE; from.nodes.len()],
            xattr_renumber,
            links,
            from,
            to,
        }
    }

    pub(super) fn run(mut self, stores: Vec<DataStore>) -> Tree {
        self.place(NodeId::ROOT, NodeId::ROOT, Name::default());
        let mut stack = vec![(NodeId::ROOT, NodeId::ROOT)];
        while let Some((old, new)) = stack.pop() {
            let below = stack.len();
            self.visit(old, new, &mut stack);
            stack[below..].reverse();
        }
        if stores.iter().any(|s| matches!(s, DataStore::Directory(_))) {
            self.to.late_flags = LateFlags::of(self.to.nodes.len());
        }
        for (old, path) in std::mem::take(&mut self.from.source_paths) {
            if let Some(&new) = self.renumber.get(old.index()).filter(|new| **new != NONE) {
                self.to.source_paths.insert(NodeId(new), path);
            }
        }
        self.to.stores = stores;
        self.to
    }

    /// Numbers the children of a directory and puts its subdirectories on the stack.
    fn visit(&mut self, old: NodeId, new: NodeId, stack: &mut Vec<(NodeId, NodeId)>) {
        let first = self.to.entries.len() as u32;
        let start = self.links.partition_point(|l| l.parent < old);
        let mut subdirs = 0;
        let mut row = start;
        while let Some(&link) = self.links.get(row).filter(|l| l.parent == old) {
            row += 1;
            let name = self.copy_name(link.name);
            let node = match self.renumber[link.node.index()] {
                NONE => self.place(link.node, new, name),
                number => NodeId(number),
            };
            self.to.entries.push(Entry { name, node });
            let child = &mut self.to.nodes[node.index()];
            if child.is_dir() {
                subdirs += 1;
                stack.push((link.node, node));
            } else {
                child.nlink += 1;
            }
        }
        let len = (row - start) as u32;
        let dir = &mut self.to.nodes[new.index()];
        dir.payload = Payload::Directory { first, len };
        dir.nlink = 2 + subdirs;
    }

    /// Gives an old node its new number.
    fn place(&mut self, old: NodeId, parent: NodeId, name: Name) -> NodeId {
        let new = NodeId(self.to.nodes.len() as u32);
        self.renumber[old.index()] = new.0;
        let mut node = self.from.nodes[old.index()].clone();
        node.parent = parent;
        node.name = name;
        node.nlink = 0;
        node.xattrs = self.copy_xattrs(node.xattrs);
        node.payload = match node.payload {
            Payload::File(row) if row != NO_DATA => Payload::File(self.copy_file(row, node.size)),
            Payload::Symlink { at, len } => {
                let to = self.to.names.len() as u32;
                let target = &self.from.names[at as usize..at as usize + len as usize];
                self.to.names.extend_from_slice(target);
                Payload::Symlink { at: to, len }
            }
            other => other,
        };
        self.to.nodes.push(node);
        new
    }

    fn copy_name(&mut self, name: Name) -> Name {
        let at = self.to.names.len() as u32;
        self.to.names.extend_from_slice(self.from.bytes_of(name));
        Name { at, len: name.len }
    }

    fn copy_xattrs(&mut self, row: u32) -> u32 {
        let new = &mut self.xattr_renumber[row as usize];
        if *new == NONE {
            *new = self.to.xattrs.len() as u32;
            self.to
                .xattrs
                .push(Arc::clone(&self.from.xattrs[row as usize]));
        }
        *new
    }

    fn copy_file(&mut self, row: u32, size: u64) -> u32 {
        let mut file = self.from.files[row as usize];
        if let Coverage::Sparse { first, len } = &mut file.coverage {
            let old = *first as usize;
            *first = self.to.extents.len() as u32;
            let extents = &self.from.extents[old..old + *len as usize];
            self.to.extents.extend_from_slice(extents);
        }
        if let Origin::Inline { at } = &mut file.origin {
            let old = *at as usize;
            *at = self.to.inline.len() as u64;
            let bytes = &self.from.inline[old..old + size as usize];
            self.to.inline.extend_from_slice(bytes);
        }
        let new = self.to.files.len() as u32;
        self.to.files.push(file);
        new
    }
}
