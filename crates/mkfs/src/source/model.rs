//! The plan's input: every name, inode and data extent of a source, compact in memory.
//!
//! A tree is a handful of vectors: nodes, directory entries, one arena of names, and side tables
//! for what few nodes have (sparse extents, extended attributes); `rows` keeps the nodes. A file of
//! an archive takes 49 bytes and the length of its name; one of a directory, which has four times
//! and is known again by its inode number, another 52.
//!
//! # Canonical order
//!
//! Directories are visited depth first, names in byte order; a visit numbers the directory's
//! children consecutively. So [`NodeId`] order is the order of the names, the files of one
//! directory are neighbours, and a file with several names is where its first name is.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::base::Over;
use super::data::{DataStore, LateFlags};
use super::oci::Unproven;
use super::rows::{Coverage, FileRow, Origin, Payload, Rows};
pub use extant_format::inode::{FileType, Timestamp};

/// Index of a node in its [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    /// Returns the index, for tables with a row for each node.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the node with this index.
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// The four times of an inode, stored without padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    secs: [i64; 4],
    nanos: [u32; 4],
}

impl Times {
    /// Returns the four times.
    #[must_use]
    pub const fn new(
        atime: Timestamp,
        mtime: Timestamp,
        ctime: Timestamp,
        crtime: Timestamp,
    ) -> Self {
        Self {
            secs: [atime.secs, mtime.secs, ctime.secs, crtime.secs],
            nanos: [atime.nanos, mtime.nanos, ctime.nanos, crtime.nanos],
        }
    }

    /// Makes all four the same.
    #[must_use]
    pub const fn all(t: Timestamp) -> Self {
        Self::new(t, t, t, t)
    }

    pub(crate) const fn seconds(&self) -> &[i64; 4] {
        &self.secs
    }

    const fn get(&self, which: usize) -> Timestamp {
        Timestamp {
            secs: self.secs[which],
            nanos: self.nanos[which],
        }
    }

    /// Returns the last access.
    #[must_use]
    pub const fn atime(&self) -> Timestamp {
        self.get(0)
    }

    /// Returns the last change of the content.
    #[must_use]
    pub const fn mtime(&self) -> Timestamp {
        self.get(1)
    }

    /// Returns the last change of the inode.
    #[must_use]
    pub const fn ctime(&self) -> Timestamp {
        self.get(2)
    }

    /// Creation.
    #[must_use]
    pub const fn crtime(&self) -> Timestamp {
        self.get(3)
    }
}

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xattr {
    /// The full name with its namespace (`user.note`, `security.capability`).
    pub name: Box<[u8]>,
    /// The value as the system call gives it; `system.posix_acl_*` in the encoding of the
    /// system call (version 2), not ext4's.
    pub value: Arc<[u8]>,
}

/// A run of bytes of a regular file that are stored; what no extent covers is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// First byte in the file.
    pub logical: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
    /// Where the bytes are in what [`FileData::file`](super::FileData::file) reads.
    pub at: u64,
}

/// How a file in a directory source is recognised again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Modification time when scanned.
    pub mtime: Timestamp,
}

/// Where the data of a regular file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'t> {
    /// Nothing is stored: the file is empty, or one hole.
    Empty,
    /// These bytes, from offset 0.
    Inline(&'t [u8]),
    /// A file of the directory source, opened by [`Tree::open`].
    File(Identity),
    /// The archive, or the spool file its data was put in; see [`Tree::extents`].
    Archive,
    /// The inode with this number in an image.
    Image(u32),
}

/// What a directory holds: a name and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place among the names.
    pub(crate) name: u32,
    pub(crate) node: NodeId,
}

impl Entry {
    /// Returns the node that has this name.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }
}

/// One inode of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Size in bytes: of the data, or of a symbolic link's target; 0 for everything else.
    pub size: u64,
    /// Access, modification, change and creation time.
    pub times: Times,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; of a directory: 2 and one for each directory in it.
    pub nlink: u32,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u16,
    /// Flags of `chattr`, as the system numbers them ([`Meta::flags`](super::Meta::flags)).
    ///
    /// Of a file of a directory that has content they are read with it: [`Tree::flags`] has them.
    pub(crate) flags: u32,
    pub(crate) parent: NodeId,
    pub(crate) xattrs: u32,
    /// Which of the sources has its data: a place in `Tree::stores`.
    pub(crate) source: u32,
    pub(crate) payload: Payload,
}

impl Node {
    /// Returns what the node is.
    #[must_use]
    pub fn kind(&self) -> FileType {
        // A builder only takes modes that have a kind.
        FileType::from_mode_bits(self.mode).unwrap_or(FileType::Regular)
    }

    /// Returns whether the node is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// Returns the directory that has the first name of this node; the root's is the root.
    #[must_use]
    pub const fn parent(&self) -> NodeId {
        self.parent
    }

    /// Returns the major and the minor number of a device.
    #[must_use]
    pub const fn rdev(&self) -> Option<(u32, u32)> {
        match self.payload {
            Payload::Device { major, minor } => Some((major, minor)),
            _ => None,
        }
    }
}

/// Everything a source holds but the bytes of its files.
///
/// Equality is about what would be in the image and where its data is, not about which
/// directory or archive is open.
#[derive(Debug)]
pub struct Tree {
    pub(crate) rows: Rows,
    pub(crate) entries: Vec<Entry>,
    /// Where data is, for each of the sources.
    pub(crate) stores: Vec<DataStore>,
    /// Files of a directory source that are not where their first name says: a name that another
    /// source gave them may come before.
    pub(crate) source_paths: HashMap<NodeId, Box<[u8]>>,
    /// Flags that were read when files were opened, by node.
    pub(crate) late_flags: LateFlags,
    /// The file system that it lies over, if it does.
    pub(crate) over: Option<Box<Over>>,
    /// Layers that are still to be compared with their digests.
    pub(crate) unproven: Vec<Unproven>,
    /// What reading the source had to say.
    pub(crate) warnings: Vec<String>,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.ids().all(|id| self.is_same(other, id))
    }
}

impl Tree {
    /// Whether a node is the same in another tree, with its names, attributes and the place of its
    /// data.
    fn is_same(&self, other: &Self, id: NodeId) -> bool {
        let (mine, its) = (self.node(id), other.node(id));
        let about = |node: &Node| {
            let owners = (node.uid, node.gid, node.mode, node.flags);
            (owners, node.size, node.times, node.nlink, node.parent)
        };
        about(&mine) == about(&its)
            && (mine.xattrs, mine.rdev()) == (its.xattrs, its.rdev())
            && self.first_name(id) == other.first_name(id)
            && self.xattrs(id) == other.xattrs(id)
            && self.symlink_target(id) == other.symlink_target(id)
            && self.data(id) == other.data(id)
            && self.extents(id).eq(other.extents(id))
            && self.children(id).eq(other.children(id))
    }

    /// Returns the number of nodes (inodes), the root included; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a tree has a root")]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns all nodes in canonical order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.rows.len() as u32).map(NodeId)
    }

    /// Returns the node `id`, which must be of this tree.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Node {
        self.rows.get(id)
    }

    /// Returns what the node `id` is.
    #[must_use]
    pub fn kind(&self, id: NodeId) -> FileType {
        self.rows.kind(id)
    }

    /// Returns what a directory holds, in byte order of the names; empty for anything else.
    #[must_use]
    pub fn entries(&self, id: NodeId) -> &[Entry] {
        match self.rows.payload(id) {
            Payload::Directory { first, len } => {
                &self.entries[first as usize..first as usize + len as usize]
            }
            _ => &[],
        }
    }

    /// Returns the name of an entry.
    #[must_use]
    pub fn name(&self, entry: &Entry) -> &[u8] {
        self.rows.name_at(entry.name)
    }

    /// Returns the names and nodes in a directory, in byte order of the names.
    pub fn children(
        &self,
        id: NodeId,
    ) -> impl DoubleEndedIterator<Item = (&[u8], NodeId)> + ExactSizeIterator {
        self.entries(id).iter().map(|e| (self.name(e), e.node))
    }

    /// Returns the node called `name` in the directory `id`.
    #[must_use]
    pub fn child(&self, id: NodeId, name: &[u8]) -> Option<NodeId> {
        let entries = self.entries(id);
        let i = entries.binary_search_by(|e| self.name(e).cmp(name)).ok()?;
        Some(entries[i].node)
    }

    /// Returns the node at a path of names separated by `/`, from the root. Links are not followed.
    #[must_use]
    pub fn lookup(&self, path: impl AsRef<[u8]>) -> Option<NodeId> {
        path.as_ref()
            .split(|&b| b == b'/')
            .filter(|part| !part.is_empty())
            .try_fold(NodeId::ROOT, |dir, part| self.child(dir, part))
    }

    /// Returns the first name of a node; empty for the root.
    #[must_use]
    pub fn first_name(&self, id: NodeId) -> &[u8] {
        self.rows.name_at(self.rows.name_of(id))
    }

    /// Returns the path of a node from the root by its first name, without a leading `/`; empty for
    /// the root.
    #[must_use]
    pub fn path(&self, id: NodeId) -> PathBuf {
        let mut bytes = Vec::new();
        for (i, part) in self.path_parts(id).iter().enumerate() {
            if i > 0 {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(part);
        }
        PathBuf::from(OsStr::from_bytes(&bytes))
    }

    /// The names on the way from the root to a node.
    pub(crate) fn path_parts(&self, id: NodeId) -> Vec<&[u8]> {
        let mut parts = Vec::new();
        let mut at = id;
        while at != NodeId::ROOT {
            parts.push(self.first_name(at));
            at = self.rows.parent(at);
        }
        parts.reverse();
        parts
    }

    /// Returns the extended attributes of a node, in byte order of their names. Nodes with the same
    /// attributes share one set.
    #[must_use]
    pub fn xattrs(&self, id: NodeId) -> &Arc<[Xattr]> {
        &self.rows.xattrs[self.xattr_set(id) as usize]
    }

    /// Returns the number of the node's set of extended attributes: equal for nodes with equal
    /// sets, 0 for none, below [`xattr_sets`](Self::xattr_sets).
    #[must_use]
    pub fn xattr_set(&self, id: NodeId) -> u32 {
        self.rows.xattr_set(id)
    }

    /// Returns how many different sets of extended attributes there are, the empty one included.
    #[must_use]
    pub fn xattr_sets(&self) -> usize {
        self.rows.xattrs.len()
    }

    /// Returns the target of a symbolic link; `None` for anything else.
    #[must_use]
    pub fn symlink_target(&self, id: NodeId) -> Option<&[u8]> {
        self.rows.target(id)
    }

    /// Returns where the data of a regular file comes from; [`Data::Empty`] for anything else.
    #[must_use]
    pub fn data(&self, id: NodeId) -> Data<'_> {
        let Some(row) = self.file_row(id) else {
            return Data::Empty;
        };
        match row.origin {
            Origin::Path {
                dev,
                ino,
                mtime_sec,
                mtime_nsec,
            } => Data::File(Identity {
                dev,
                ino,
                mtime: Timestamp {
                    secs: mtime_sec,
                    nanos: mtime_nsec,
                },
            }),
            Origin::Archive { .. } => Data::Archive,
            Origin::Image { ino } => Data::Image(ino),
            Origin::Inline { at } => {
                let from = at as usize;
                Data::Inline(&self.rows.inline[from..from + self.rows.size(id) as usize])
            }
        }
    }

    /// Returns the stored runs of a regular file in ascending order; they do not overlap or touch
    /// the same byte twice, and end at or before the file's size.
    #[must_use]
    pub fn extents(&self, id: NodeId) -> Extents<'_> {
        let size = self.rows.size(id);
        match self.file_row(id) {
            None => Extents::default(),
            Some(row) => match row.coverage {
                Coverage::Dense => Extents {
                    dense: Some(DataExtent {
                        logical: 0,
                        len: size,
                        at: row.origin.base(),
                    }),
                    rest: [].iter(),
                },
                Coverage::Sparse { first, len } => Extents {
                    dense: None,
                    rest: self.rows.extents[first as usize..][..len as usize].iter(),
                },
            },
        }
    }

    /// The extents of a file that end after `offset`.
    pub(crate) fn extents_after(&self, id: NodeId, offset: u64) -> Extents<'_> {
        let mut extents = self.extents(id);
        let rest = extents.rest.as_slice();
        let skip = rest.partition_point(|e| e.logical.saturating_add(e.len) <= offset);
        extents.rest = rest.get(skip..).unwrap_or_default().iter();
        extents
    }

    /// Returns the sum of the stored bytes of all regular files.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.ids()
            .flat_map(|id| self.extents(id))
            .fold(0u64, |sum, e| sum.saturating_add(e.len))
    }

    /// Returns the memory the tree takes, in bytes, without the values of extended attributes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Where the data of a file is that is stored outside of the tree.
    pub(crate) fn store_of(&self, id: NodeId) -> Option<&DataStore> {
        self.file_row(id)?;
        self.stores.get(self.rows.source(id) as usize)
    }

    /// The names on the way from the root of the directory source that has a file.
    pub(crate) fn source_parts(&self, id: NodeId) -> Vec<&[u8]> {
        match self.source_paths.get(&id) {
            Some(path) => path.split(|&b| b == b'/').collect(),
            None => self.path_parts(id),
        }
    }

    pub(crate) fn file_row(&self, id: NodeId) -> Option<FileRow> {
        self.rows.file(id)
    }
}

/// Iterator over the stored runs of a file, see [`Tree::extents`].
#[derive(Clone, Debug, Default)]
pub struct Extents<'t> {
    dense: Option<DataExtent>,
    rest: std::slice::Iter<'t, DataExtent>,
}

impl Iterator for Extents<'_> {
    type Item = DataExtent;

    fn next(&mut self) -> Option<DataExtent> {
        self.dense.take().or_else(|| self.rest.next().copied())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.rest.len() + usize::from(self.dense.is_some());
        (n, Some(n))
    }
}

impl ExactSizeIterator for Extents<'_> {}
