//! Collects nodes and names in any order and puts them in canonical order.
//!
//! | module | owns |
//! |---|---|
//! | `canonical` | putting what was collected in order, in place |
//! | `index` | finding names |
//! | `reopen` | a builder again of a tree that was finished |
//! | `layered` | what only sources above others need: names that go, nodes of another tree |
//! | `ground` | a file system that is there, below the tree |

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use extant_format::NAME_MAX;
use rayon::slice::ParallelSliceMut;

use super::data::DataStore;
use super::error::{SourceError, SourceResult};
use super::model::{DataExtent, FileType, Node, NodeId, Times, Tree, Xattr};
use super::rows::{Coverage, FileAt, FileRow, NONE, Origin, Payload, Rows, count};
use canonical::Canonical;
pub(super) use ground::cleaned;
use index::Index;

mod canonical;
mod ground;
mod index;
mod layered;
mod reopen;

/// Longest symbolic link target Linux takes, in bytes.
pub const SYMLINK_MAX: usize = 4095;
/// In the place of a node whose name was taken away.
const GONE: NodeId = NodeId(NONE);
/// Bytes from which on a value of an attribute is kept once.
const SHARED_VALUE_MIN: usize = 256;

/// What every kind of node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits with set-id and sticky bits; type bits are ignored.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The four times.
    pub times: Times,
    /// Extended attributes in any order; of two with one name the later counts.
    pub xattrs: Vec<Xattr>,
    /// Flags of `chattr`, as `FS_IOC_GETFLAGS` gives them. Those that a user cannot set on ext4 are
    /// ignored, and all on what is neither a regular file nor a directory.
    pub flags: u32,
}

impl Meta {
    /// Makes a node of root's, without attributes, all times the same.
    #[must_use]
    pub fn plain(mode: u16, times: Times) -> Self {
        Self {
            mode,
            uid: 0,
            gid: 0,
            times,
            xattrs: Vec::new(),
            flags: 0,
        }
    }
}

/// What a new node is, and what only its kind has.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// A directory, empty so far.
    Directory,
    /// A symbolic link and its target.
    Symlink(&'a [u8]),
    /// A regular file of this size that is one hole (or empty).
    Hole(u64),
    /// A regular file with these bytes, kept in memory.
    Inline(&'a [u8]),
    /// A regular file whose bytes are elsewhere.
    Stored(Stored<'a>),
    /// A device; the kind is [`FileType::CharDevice`] or [`FileType::BlockDevice`].
    Device {
        /// Which of the two.
        kind: FileType,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A regular file whose bytes stay where they are. Made by this crate's sources, and with
/// [`Stored::of_image`].
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    pub(crate) size: u64,
    pub(crate) origin: Origin,
    /// `None`: every byte is stored.
    pub(crate) extents: Option<&'a [DataExtent]>,
}

impl Content<'_> {
    fn kind(&self) -> FileType {
        match self {
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Hole(_) | Self::Inline(_) | Self::Stored(_) => FileType::Regular,
            Self::Device { kind, .. } if *kind == FileType::BlockDevice => *kind,
            Self::Device { .. } => FileType::CharDevice,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
        }
    }
}

/// A name given to a node, in the order it was given.
#[derive(Clone, Copy, Debug)]
struct Link {
    parent: NodeId,
    node: NodeId,
    /// Its place among the names.
    name: u32,
    /// Next link with a hash of the same place.
    next: u32,
}

/// Builds a [`Tree`]. Node 0 is the root from the start.
///
/// Identifiers given out by a builder are its own: [`finish`](Self::finish) numbers the nodes anew.
#[derive(Debug)]
pub struct TreeBuilder {
    rows: Rows,
    links: Vec<Link>,
    xattr_index: HashMap<Arc<[Xattr]>, u32>,
    /// Large values of attributes, which sets have in common.
    values: HashSet<Arc<[u8]>>,
    /// Once anybody looked a name up.
    by_name: Option<Index>,
    /// The source that files come from which are added now.
    source: u32,
    /// Where files of a directory are in it, if another source gave them a name of its own.
    source_paths: HashMap<NodeId, Box<[u8]>>,
    /// The file system that the tree lies over.
    ground: Option<Box<ground::Ground>>,
}

impl TreeBuilder {
    /// Makes a tree of nothing but a root directory.
    ///
    /// # Errors
    ///
    /// None today; the signature is that of [`add`](Self::add).
    pub fn new(root: Meta) -> SourceResult<Self> {
        let mut builder = Self {
            rows: Rows::new(),
            links: Vec::new(),
            xattr_index: HashMap::from([(Arc::from([]), 0)]),
            values: HashSet::new(),
            by_name: None,
            source: 0,
            source_paths: HashMap::new(),
            ground: None,
        };
        builder.add(root, Content::Directory)?;
        Ok(builder)
    }

    /// Adds a node that has no name yet; a node without a name does not get into the tree.
    ///
    /// # Errors
    ///
    /// [`SourceError::TooMany`] beyond 2^32 nodes or bytes of names,
    /// [`SourceError::SymlinkTarget`] for an empty target or one too long.
    pub fn add(&mut self, meta: Meta, content: Content<'_>) -> SourceResult<NodeId> {
        let kind = content.kind();
        let (size, payload) = self.store(content)?;
        let xattrs = self.intern(meta.xattrs)?;
        self.rows.push(&Node {
            size,
            times: meta.times,
            uid: meta.uid,
            gid: meta.gid,
            // Of most files it stays.
            nlink: 1,
            mode: kind.mode_bits() | permissions(kind, meta.mode),
            flags: settable_flags(kind, meta.flags),
            parent: NodeId::ROOT,
            xattrs,
            source: self.source,
            payload,
        })
    }

    fn store(&mut self, content: Content<'_>) -> SourceResult<(u64, Payload)> {
        Ok(match content {
            Content::Directory => (0, Payload::Directory { first: 0, len: 0 }),
            Content::Symlink(target) => {
                if target.is_empty() || target.len() > SYMLINK_MAX {
                    return Err(SourceError::SymlinkTarget {
                        path: PathBuf::new(),
                        found: target.len(),
                    });
                }
                (target.len() as u64, self.rows.add_target(target)?)
            }
            Content::Hole(size) => (size, Payload::File(FileAt::NOWHERE)),
            Content::Inline([]) => (0, Payload::File(FileAt::NOWHERE)),
            Content::Inline(bytes) => {
                let at = self.rows.inline.len() as u64;
                self.rows.inline.extend_from_slice(bytes);
                let file = FileRow {
                    origin: Origin::Inline { at },
                    coverage: Coverage::Dense,
                };
                let file = self.rows.add_file(file)?;
                (bytes.len() as u64, Payload::File(file))
            }
            Content::Stored(stored) => self.store_file(&stored)?,
            Content::Device { major, minor, .. } => (0, Payload::Device { major, minor }),
            Content::Fifo | Content::Socket => (0, Payload::Nothing),
        })
    }

    fn store_file(&mut self, stored: &Stored<'_>) -> SourceResult<(u64, Payload)> {
        let coverage = match stored.extents {
            _ if stored.size == 0 => return Ok((0, Payload::File(FileAt::NOWHERE))),
            Some([]) => return Ok((stored.size, Payload::File(FileAt::NOWHERE))),
            None => Coverage::Dense,
            Some([one])
                if one.logical == 0 && one.len == stored.size && one.at == stored.origin.base() =>
            {
                Coverage::Dense
            }
            Some(extents) => {
                let first = count("sparse extents", self.rows.extents.len())?;
                count("sparse extents", self.rows.extents.len() + extents.len())?;
                self.rows.extents.extend_from_slice(extents);
                let len = extents.len() as u32;
                Coverage::Sparse { first, len }
            }
        };
        let origin = stored.origin;
        let file = self.rows.add_file(FileRow { origin, coverage })?;
        Ok((stored.size, Payload::File(file)))
    }

    fn intern(&mut self, mut set: Vec<Xattr>) -> SourceResult<u32> {
        if set.is_empty() {
            return Ok(0);
        }
        // Stable, so of two with one name the later comes last; it is the one kept.
        set.sort_by(|a, b| a.name.cmp(&b.name));
        set.reverse();
        set.dedup_by(|later, kept| later.name == kept.name);
        set.reverse();
        if let Some(&row) = self.xattr_index.get(&set[..]) {
            return Ok(row);
        }
        for xattr in &mut set {
            self.share_value(&mut xattr.value);
        }
        self.intern_set(set.into())
    }

    /// Takes a large value that another set has in place of one like it: ext4 stores one for many
    /// files.
    fn share_value(&mut self, value: &mut Arc<[u8]>) {
        if value.len() < SHARED_VALUE_MIN {
            return;
        }
        match self.values.get(&*value) {
            Some(known) => *value = Arc::clone(known),
            None => {
                self.values.insert(Arc::clone(value));
            }
        }
    }

    /// The row of a set in the order that sets have.
    fn intern_set(&mut self, set: Arc<[Xattr]>) -> SourceResult<u32> {
        if let Some(&row) = self.xattr_index.get(&set) {
            return Ok(row);
        }
        let row = count("sets of extended attributes", self.rows.xattrs.len())?;
        self.rows.xattrs.push(Arc::clone(&set));
        self.xattr_index.insert(set, row);
        Ok(row)
    }

    /// Replaces what every kind of node has.
    ///
    /// # Errors
    ///
    /// [`SourceError::TooMany`] beyond 2^32 sets of attributes.
    pub fn set_meta(&mut self, id: NodeId, meta: Meta) -> SourceResult<()> {
        let xattrs = self.intern(meta.xattrs)?;
        let kind = self.kind(id);
        self.describe(id);
        self.rows.change(id, |node| {
            node.mode = (node.mode & !0o7777) | permissions(kind, meta.mode);
            node.flags = settable_flags(kind, meta.flags);
            node.uid = meta.uid;
            node.gid = meta.gid;
            node.times = meta.times;
            node.xattrs = xattrs;
        })
    }

    /// Returns the kind of a node.
    #[must_use]
    pub fn kind(&self, id: NodeId) -> FileType {
        self.rows.kind(id)
    }

    /// Gives a node a name in a directory. That the name is free is the caller's to know
    /// ([`lookup`](Self::lookup)); [`finish`](Self::finish) checks.
    ///
    /// # Errors
    ///
    /// [`SourceError::Name`] for a name ext4 cannot store and for a second name of a directory,
    /// [`SourceError::TooMany`].
    pub fn link(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> SourceResult<()> {
        if let Some(problem) = name_problem(name) {
            return Err(SourceError::Name {
                directory: PathBuf::new(),
                name: String::from_utf8_lossy(name).into_owned(),
                problem,
            });
        }
        if self.kind(parent) != FileType::Directory {
            return Err(SourceError::Name {
                directory: PathBuf::new(),
                name: String::from_utf8_lossy(name).into_owned(),
                problem: "is in something that is not a directory",
            });
        }
        let is_directory = self.kind(node) == FileType::Directory;
        if is_directory && (node == NodeId::ROOT || self.rows.name_of(node) > 0) {
            return Err(SourceError::Name {
                directory: PathBuf::new(),
                name: String::from_utf8_lossy(name).into_owned(),
                problem: "names a directory that has a name already",
            });
        }
        count("names", self.links.len())?;
        let name = self.rows.add_name(name)?;
        if is_directory {
            self.rows.set_name(node, name);
        }
        self.rows.count_entry(parent, 1);
        self.links.push(Link {
            parent,
            node,
            name,
            next: NONE,
        });
        if let Some(index) = &mut self.by_name {
            index.add(&mut self.links, &self.rows);
        }
        Ok(())
    }

    /// Returns the node with this name in a directory. The first call builds an index of all names.
    pub fn lookup(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let row = self.find(parent, name)?;
        Some(self.links[row as usize].node)
    }

    /// The target of a symbolic link.
    pub(crate) fn symlink_target(&self, id: NodeId) -> Option<&[u8]> {
        self.rows.target(id)
    }

    /// Gives an existing name to another node that has none yet, or is no directory.
    pub(crate) fn relink(&mut self, parent: NodeId, name: &[u8], node: NodeId) {
        if let Some(row) = self.find(parent, name) {
            self.links[row as usize].node = node;
        }
    }

    /// Whether a directory has any name in it.
    pub(crate) fn has_entries(&self, dir: NodeId) -> bool {
        matches!(self.rows.payload(dir), Payload::Directory { len, .. } if len > 0)
    }

    fn find(&mut self, parent: NodeId, name: &[u8]) -> Option<u32> {
        let (links, rows) = (&mut self.links, &self.rows);
        let index = self.by_name.get_or_insert_with(|| Index::new(links, rows));
        let found = index.find(links, rows, parent, name);
        found.or_else(|| self.fetch(parent, name))
    }

    /// Returns the tree of everything that can be reached from the root.
    ///
    /// # Errors
    ///
    /// [`SourceError::Name`] if a directory has a name twice.
    pub fn finish(self) -> SourceResult<Tree> {
        self.finish_with(vec![DataStore::Memory])
    }

    /// As [`finish`](Self::finish), with where the data of each source is.
    pub(crate) fn finish_with(mut self, stores: Vec<DataStore>) -> SourceResult<Tree> {
        self.by_name = None;
        let over = self.take_ground()?;
        let mut links = std::mem::take(&mut self.links);
        links.retain(|link| link.node != GONE);
        let bytes = |at| self.rows.name_at(at);
        extant_host::side_by_side(|| {
            links.par_sort_unstable_by(|a, b| {
                (a.parent, bytes(a.name)).cmp(&(b.parent, bytes(b.name)))
            });
        });
        let twice = links
            .windows(2)
            .find(|w| w[0].parent == w[1].parent && bytes(w[0].name) == bytes(w[1].name));
        if let Some(pair) = twice {
            return Err(SourceError::Name {
                directory: PathBuf::new(),
                name: String::from_utf8_lossy(bytes(pair[0].name)).into_owned(),
                problem: "is there twice",
            });
        }
        Canonical::run(self, links, stores, over)
    }
}

/// The permission bits of a node. Linux shows no others than these of a symbolic link, whatever an
/// archive says.
fn permissions(kind: FileType, mode: u16) -> u16 {
    match kind {
        FileType::Symlink => 0o777,
        _ => mode & 0o7777,
    }
}

/// In the place of flags: they are read when the file is opened for its content.
pub(crate) const FLAGS_LATER: u32 = u32::MAX;

/// The flags that ext4 lets users set on a file of this kind. A flag that needs a feature is not
/// among them.
pub(crate) fn settable_flags(kind: FileType, flags: u32) -> u32 {
    if flags == FLAGS_LATER && kind == FileType::Regular {
        return flags;
    }
    // Secure removal, undeletion, compression, synchronous, immutable, append only, no dump, no
    // access time, data journalling, no tail merging.
    const FILES: u32 = 0xff | 0x4000 | 0x8000;
    // Synchronous directory, top of a hierarchy.
    const DIRECTORIES: u32 = FILES | 0x1_0000 | 0x2_0000;
    match kind {
        FileType::Regular => flags & FILES,
        FileType::Directory => flags & DIRECTORIES,
        _ => 0,
    }
}

/// What makes a name impossible in ext4.
pub(crate) fn name_problem(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.len() > NAME_MAX {
        Some("is longer than 255 bytes")
    } else if name == b"." || name == b".." {
        Some("is reserved")
    } else if name.contains(&b'/') {
        Some("has a slash in it")
    } else if name.contains(&0) {
        Some("has a NUL byte in it")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Data, Timestamp};
    use super::*;

    fn meta() -> Meta {
        Meta::plain(0o644, Times::all(Timestamp::from_secs(5)))
    }

    #[test]
    fn large_values_of_attributes_are_kept_once() {
        let mut b = TreeBuilder::new(meta()).unwrap();
        let large = vec![7; SHARED_VALUE_MIN];
        for number in 0..3 {
            let attribute = |name: &[u8], value: &[u8]| Xattr {
                name: name.into(),
                value: value.into(),
            };
            let mut meta = meta();
            meta.xattrs = vec![
                attribute(b"user.large", &large),
                attribute(b"user.own", &[number]),
            ];
            let file = b.add(meta, Content::Fifo).unwrap();
            b.link(NodeId::ROOT, &[b'a' + number], file).unwrap();
        }
        let tree = b.finish().unwrap();
        let values = tree.children(NodeId::ROOT).map(|(_, id)| {
            let set = tree.xattrs(id);
            assert_eq!((set.len(), &*set[0].value), (2, &large[..]));
            Arc::as_ptr(&set[0].value).cast::<u8>()
        });
        let values: Vec<*const u8> = values.collect();
        assert_eq!(values.len(), 3);
        assert!(values.iter().all(|value| *value == values[0]));
    }

    #[test]
    fn the_order_of_adding_does_not_show() {
        let build = |order: &[usize]| {
            let mut b = TreeBuilder::new(meta()).unwrap();
            let dir = b.add(meta(), Content::Directory).unwrap();
            let file = b.add(meta(), Content::Inline(b"hello")).unwrap();
            let link = b.add(meta(), Content::Symlink(b"b/x")).unwrap();
            let names: [(NodeId, &[u8], NodeId); 4] = [
                (NodeId::ROOT, b"b", dir),
                (dir, b"x", file),
                (NodeId::ROOT, b"a", link),
                (NodeId::ROOT, b"c", file),
            ];
            for &i in order {
                let (parent, name, node) = names[i];
                b.link(parent, name, node).unwrap();
            }
            b.finish().unwrap()
        };
        let tree = build(&[0, 1, 2, 3]);
        assert_eq!(tree, build(&[3, 1, 0, 2]));
        assert_eq!(tree.len(), 4);
        let file = tree.lookup("b/x").unwrap();
        assert_eq!(tree.lookup("/c"), Some(file));
        assert_eq!(tree.node(file).nlink, 2);
        assert_eq!(tree.node(NodeId::ROOT).nlink, 3);
        assert_eq!(tree.data(file), Data::Inline(b"hello"));
        assert_eq!(tree.path(file), PathBuf::from("c"));
        let mut buf = [1u8; 6];
        tree.read_at(file, 1, &mut buf).unwrap();
        assert_eq!(&buf, b"ello\0\0");
        assert_eq!(
            tree.symlink_target(tree.lookup("a").unwrap()),
            Some(b"b/x".as_slice())
        );
    }

    #[test]
    fn names_ext4_cannot_store_are_refused() {
        let mut b = TreeBuilder::new(meta()).unwrap();
        let f = b.add(meta(), Content::Fifo).unwrap();
        for name in [
            b"".as_slice(),
            b".",
            b"..",
            b"a/b",
            b"a\0b",
            &[b'x'; NAME_MAX + 1],
        ] {
            assert!(b.link(NodeId::ROOT, name, f).is_err(), "{name:?}");
        }
        b.link(NodeId::ROOT, &[0xff; NAME_MAX], f).unwrap();
        b.link(NodeId::ROOT, &[0xff; NAME_MAX], f).unwrap();
        assert!(matches!(b.finish(), Err(SourceError::Name { .. })));
    }
}
