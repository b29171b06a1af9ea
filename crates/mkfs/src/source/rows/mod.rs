//! Nodes as they are kept: 40 bytes for each, and what many have alike once.
//!
//! | what | where |
//! |---|---|
//! | owner, mode, flags, attributes, number of names, source | [`Common`]: a row for each different set |
//! | the time of the last change | in the node, in eight bytes |
//! | the other three times | nowhere if they are equal to it, else a row of 24 bytes |
//! | where the data of an archive's file is | in the node |
//! | how a directory's file is known again | a row of 24 bytes |
//! | names | one after the other, each behind its length |
//!
//! Builder and tree share this: a tree is finished by putting nodes in another order, in place.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{SourceError, SourceResult};
use super::model::{DataExtent, FileType, Node, NodeId, Timestamp, Xattr};
use clock::Clock;

mod clock;

/// In the place of a number where there is none.
pub(crate) const NONE: u32 = u32::MAX;

/// A count that fits the 32 bits a tree has for it.
pub(crate) fn count(what: &'static str, n: usize) -> SourceResult<u32> {
    u32::try_from(n)
        .ok()
        .filter(|&n| n != NONE)
        .ok_or(SourceError::TooMany {
            what,
            limit: u64::from(NONE) - 1,
        })
}

/// What only one kind of node has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Payload {
    /// A fifo or socket.
    Nothing,
    /// A range of a tree's entries; in a builder only their number counts.
    Directory { first: u32, len: u32 },
    /// A range of the names.
    Symlink { at: u32, len: u16 },
    /// A device number.
    Device { major: u32, minor: u32 },
    /// Where the data of a regular file is.
    File(FileAt),
}

impl Payload {
    fn pack(self) -> u64 {
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        match self {
            Self::Nothing => 0,
            Self::Directory { first, len } => pair(first, len),
            Self::Symlink { at, len } => pair(at, len.into()),
            Self::Device { major, minor } => pair(major, minor),
            Self::File(at) => at.0,
        }
    }

    fn unpack(kind: FileType, packed: u64) -> Self {
        let (low, high) = (packed as u32, (packed >> 32) as u32);
        match kind {
            FileType::Directory => Self::Directory {
                first: low,
                len: high,
            },
            FileType::Symlink => Self::Symlink {
                at: low,
                len: high as u16,
            },
            FileType::CharDevice | FileType::BlockDevice => Self::Device {
                major: low,
                minor: high,
            },
            FileType::Regular => Self::File(FileAt(packed)),
            FileType::Fifo | FileType::Socket => Self::Nothing,
        }
    }
}

/// Where the data of a regular file is: a place, with what it is a place of in the upper two bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileAt(u64);

impl FileAt {
    /// Nothing is stored.
    pub(crate) const NOWHERE: Self = Self(0);

    const BITS: u32 = 62;
    /// A dense file in an archive.
    const ARCHIVE: u64 = 1;
    /// A row of [`Rows::files`].
    const ROW: u64 = 2;
    /// A dense file in [`Rows::inline`].
    const INLINE: u64 = 3;

    const fn new(of: u64, place: u64) -> Self {
        Self(of << Self::BITS | place)
    }

    const fn place(self) -> u64 {
        self.0 & ((1 << Self::BITS) - 1)
    }
}

/// Where stored bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Origin {
    /// The file of the directory source at the node's path.
    Path {
        dev: u64,
        ino: u64,
        mtime_sec: i64,
        mtime_nsec: u32,
    },
    /// The archive or spool file; a dense file starts there.
    Archive { at: u64 },
    /// The bytes that the tree itself has, a dense file starts there.
    Inline { at: u64 },
    /// An inode of an image.
    Image { ino: u32 },
}

impl Origin {
    /// Where byte 0 of a dense file is.
    pub(crate) const fn base(&self) -> u64 {
        match *self {
            Self::Path { .. } | Self::Image { .. } => 0,
            Self::Archive { at } | Self::Inline { at } => at,
        }
    }
}

/// A range of the extents, or one extent over the whole file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Coverage {
    Dense,
    Sparse { first: u32, len: u32 },
}

/// A regular file with data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileRow {
    pub(crate) origin: Origin,
    pub(crate) coverage: Coverage,
}

/// What many nodes have alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Common {
    uid: u32,
    gid: u32,
    nlink: u32,
    flags: u32,
    xattrs: u32,
    source: u32,
    mode: u16,
}

impl Common {
    const fn of(node: &Node) -> Self {
        Self {
            uid: node.uid,
            gid: node.gid,
            nlink: node.nlink,
            flags: node.flags,
            xattrs: node.xattrs,
            source: node.source,
            mode: node.mode,
        }
    }

    fn kind(&self) -> FileType {
        // A builder only takes modes that have a kind.
        FileType::from_mode_bits(self.mode).unwrap_or(FileType::Regular)
    }
}

/// The different sets of what nodes have alike. The first one is the root's and nobody else's.
#[derive(Debug, Default)]
struct Commons {
    rows: Vec<Common>,
    index: HashMap<Common, u32>,
    /// The row that was asked for last: neighbours are alike.
    last: u32,
}

impl Commons {
    fn row_of(&mut self, common: &Common) -> SourceResult<u32> {
        if self.last > 0 && self.rows.get(self.last as usize) == Some(common) {
            return Ok(self.last);
        }
        self.last = match self.index.get(common) {
            Some(&row) => row,
            None => {
                let row = count("different owners and modes", self.rows.len())?;
                if row > 0 {
                    self.index.insert(*common, row);
                }
                self.rows.push(*common);
                row
            }
        };
        Ok(self.last)
    }
}

/// One node.
#[derive(Clone, Copy, Debug)]
struct Row {
    size: u64,
    mtime: u64,
    payload: u64,
    /// The other times: a row of [`Clock`].
    others: u32,
    /// A row of [`Commons`].
    common: u32,
    /// The first name, and what has it; 0 is none.
    name: u32,
    parent: u32,
}

/// A file that is not said by its place in an archive alone.
#[derive(Clone, Copy, Debug)]
struct FilePart {
    /// The inode number in a directory source or an image, or the place in an archive.
    at: u64,
    /// The time of the last change in a directory source.
    mtime: u64,
    /// One more than the row of the device, 0 in an archive, or [`FilePart::OF_IMAGE`].
    device: u32,
    /// One more than a row of [`Rows::sparse`], or 0 if all is stored.
    sparse: u32,
}

impl FilePart {
    /// In the place of a device: the file is an inode of an image.
    const OF_IMAGE: u32 = NONE;
}

/// All nodes, in the order they were added in or the canonical one.
#[derive(Debug)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    commons: Commons,
    clock: Clock,
    names: Vec<u8>,
    files: Vec<FilePart>,
    devices: Vec<u64>,
    /// Ranges of the extents.
    sparse: Vec<(u32, u32)>,
    pub(crate) extents: Vec<DataExtent>,
    pub(crate) inline: Vec<u8>,
    /// Row 0 is the empty set.
    pub(crate) xattrs: Vec<Arc<[Xattr]>>,
}

impl Rows {
    /// No nodes yet; the first one is to be the root.
    pub(crate) fn new() -> Self {
        Self {
            rows: Vec::new(),
            commons: Commons::default(),
            clock: Clock::new(),
            // The name that is none.
            names: vec![0],
            files: Vec::new(),
            devices: Vec::new(),
            sparse: Vec::new(),
            extents: Vec::new(),
            inline: Vec::new(),
            xattrs: vec![Arc::from([])],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    fn common(&self, id: NodeId) -> &Common {
        &self.commons.rows[self.rows[id.index()].common as usize]
    }

    pub(crate) fn get(&self, id: NodeId) -> Node {
        let row = &self.rows[id.index()];
        let common = &self.commons.rows[row.common as usize];
        Node {
            size: row.size,
            times: self.clock.unpack_all(row.mtime, row.others),
            uid: common.uid,
            gid: common.gid,
            nlink: common.nlink,
            mode: common.mode,
            flags: common.flags,
            xattrs: common.xattrs,
            source: common.source,
            parent: NodeId(row.parent),
            payload: Payload::unpack(common.kind(), row.payload),
        }
    }

    pub(crate) fn kind(&self, id: NodeId) -> FileType {
        self.common(id).kind()
    }

    pub(crate) fn size(&self, id: NodeId) -> u64 {
        self.rows[id.index()].size
    }

    pub(crate) fn xattr_set(&self, id: NodeId) -> u32 {
        self.common(id).xattrs
    }

    pub(crate) fn source(&self, id: NodeId) -> u32 {
        self.common(id).source
    }

    pub(crate) fn parent(&self, id: NodeId) -> NodeId {
        NodeId(self.rows[id.index()].parent)
    }

    pub(crate) fn payload(&self, id: NodeId) -> Payload {
        Payload::unpack(self.kind(id), self.rows[id.index()].payload)
    }

    /// Adds a node that has no name.
    pub(crate) fn push(&mut self, node: &Node) -> SourceResult<NodeId> {
        let id = NodeId(count("files", self.rows.len())?);
        let (mtime, others) = self.clock.pack_all(&node.times)?;
        self.rows.push(Row {
            size: node.size,
            mtime,
            payload: node.payload.pack(),
            others,
            common: self.commons.row_of(&Common::of(node))?,
            name: 0,
            parent: 0,
        });
        Ok(id)
    }

    /// Adds a directory that is as another one, and is called as that is; nothing is in it.
    pub(crate) fn push_emptied(&mut self, dir: NodeId) -> SourceResult<NodeId> {
        let new = self.push(&Node {
            payload: Payload::Directory { first: 0, len: 0 },
            ..self.get(dir)
        })?;
        self.rows[new.index()].name = self.rows[dir.index()].name;
        Ok(new)
    }

    /// Changes a node; its name stays.
    pub(crate) fn change(&mut self, id: NodeId, how: impl FnOnce(&mut Node)) -> SourceResult<()> {
        let old = self.get(id);
        let mut node = old;
        how(&mut node);
        let common = Common::of(&node);
        if id == NodeId::ROOT {
            self.commons.rows[0] = common;
        } else if common != Common::of(&old) {
            self.rows[id.index()].common = self.commons.row_of(&common)?;
        }
        if node.times != old.times {
            let (mtime, others) = self.clock.pack_all(&node.times)?;
            let row = &mut self.rows[id.index()];
            (row.mtime, row.others) = (mtime, others);
        }
        let row = &mut self.rows[id.index()];
        row.size = node.size;
        row.payload = node.payload.pack();
        Ok(())
    }

    /// Counts one name more or less in a directory.
    pub(crate) fn count_entry(&mut self, dir: NodeId, by: i32) {
        let row = &mut self.rows[dir.index()].payload;
        let len = ((*row >> 32) as u32).saturating_add_signed(by);
        *row = u64::from(len) << 32 | u64::from(*row as u32);
    }

    /// Gives an owner to those of all nodes but the root that `is_meant` names.
    pub(crate) fn set_owners(
        &mut self,
        uid: u32,
        gid: Option<u32>,
        is_meant: impl Fn(NodeId) -> bool,
    ) {
        // What became of each row.
        let mut changed = vec![NONE; self.commons.rows.len()];
        let nodes = (0..).map(NodeId).zip(&mut self.rows).skip(1);
        for (_, row) in nodes.filter(|(id, _)| is_meant(*id)) {
            let changed = &mut changed[row.common as usize];
            if *changed == NONE {
                *changed = self.commons.rows.len() as u32;
                let common = self.commons.rows[row.common as usize];
                let gid = gid.unwrap_or(common.gid);
                self.commons.rows.push(Common { uid, gid, ..common });
            }
            row.common = *changed;
        }
        self.index_commons(|_| true);
    }

    /// Changes what the root has.
    pub(crate) fn change_root(&mut self, how: impl FnOnce(&mut u32, &mut u32, &mut u16)) {
        if let Some(root) = self.commons.rows.first_mut() {
            how(&mut root.uid, &mut root.gid, &mut root.mode);
        }
    }

    /// Gives the nodes that `is_meant` names one time each, made of their last change.
    pub(crate) fn set_times(
        &mut self,
        is_meant: impl Fn(NodeId) -> bool,
        how: impl Fn(Timestamp) -> Timestamp,
    ) {
        let nodes = (0..).map(NodeId).zip(&mut self.rows);
        for (_, row) in nodes.filter(|(id, _)| is_meant(*id)) {
            let old = self.clock.unpack(row.mtime);
            let new = how(old);
            if new != old {
                row.mtime = self.clock.pack(new);
            }
            row.others = 0;
        }
        if self.rows.iter().all(|row| row.others == 0) {
            self.clock.forget_others();
        }
    }

    fn index_commons(&mut self, is_used: impl Fn(u32) -> bool) {
        let rows = (0..).zip(&self.commons.rows).skip(1);
        self.commons.index = rows
            .filter(|(row, _)| is_used(*row))
            .map(|(row, common)| (*common, row))
            .collect();
        self.commons.last = 0;
    }

    /// Keeps a name, and gives its place.
    pub(crate) fn add_name(&mut self, name: &[u8]) -> SourceResult<u32> {
        count("bytes of names", self.names.len() + 1 + name.len())?;
        let at = self.names.len() as u32;
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name);
        Ok(at)
    }

    /// The name at a place.
    pub(crate) fn name_at(&self, at: u32) -> &[u8] {
        let at = at as usize;
        &self.names[at + 1..][..usize::from(self.names[at])]
    }

    /// The place of the first name of a node; 0 if it has none.
    pub(crate) fn name_of(&self, id: NodeId) -> u32 {
        self.rows[id.index()].name
    }

    pub(crate) fn set_name(&mut self, id: NodeId, name: u32) {
        self.rows[id.index()].name = name;
    }

    /// Keeps the target of a symbolic link.
    pub(crate) fn add_target(&mut self, target: &[u8]) -> SourceResult<Payload> {
        count("bytes of names", self.names.len() + target.len())?;
        let at = self.names.len() as u32;
        self.names.extend_from_slice(target);
        Ok(Payload::Symlink {
            at,
            len: target.len() as u16,
        })
    }

    pub(crate) fn target(&self, id: NodeId) -> Option<&[u8]> {
        match self.payload(id) {
            Payload::Symlink { at, len } => Some(&self.names[at as usize..][..usize::from(len)]),
            _ => None,
        }
    }

    /// Keeps where the data of a file is.
    pub(crate) fn add_file(&mut self, file: FileRow) -> SourceResult<FileAt> {
        let end = 1 << FileAt::BITS;
        let (at, mtime, device) = match (file.origin, file.coverage) {
            (Origin::Archive { at }, Coverage::Dense) if at < end => {
                return Ok(FileAt::new(FileAt::ARCHIVE, at));
            }
            (Origin::Inline { at }, _) => return Ok(FileAt::new(FileAt::INLINE, at)),
            (Origin::Archive { at }, _) => (at, 0, 0),
            (Origin::Image { ino }, _) => (ino.into(), 0, FilePart::OF_IMAGE),
            (
                Origin::Path {
                    dev,
                    ino,
                    mtime_sec,
                    mtime_nsec,
                },
                _,
            ) => {
                let mtime = self.clock.pack(Timestamp {
                    secs: mtime_sec,
                    nanos: mtime_nsec,
                });
                (ino, mtime, 1 + self.device(dev)?)
            }
        };
        let sparse = match file.coverage {
            Coverage::Dense => 0,
            Coverage::Sparse { first, len } => {
                self.sparse.push((first, len));
                count("sparse files", self.sparse.len())?
            }
        };
        let row = self.files.len() as u64;
        self.files.push(FilePart {
            at,
            mtime,
            device,
            sparse,
        });
        Ok(FileAt::new(FileAt::ROW, row))
    }

    fn device(&mut self, dev: u64) -> SourceResult<u32> {
        // Neighbours are on one device.
        let found = self.devices.iter().rposition(|known| *known == dev);
        if let Some(row) = found {
            return Ok(row as u32);
        }
        self.devices.push(dev);
        Ok(count("devices", self.devices.len())? - 1)
    }

    /// Where the data of a regular file is; `None` if nothing is stored.
    pub(crate) fn file(&self, id: NodeId) -> Option<FileRow> {
        let Payload::File(file) = self.payload(id) else {
            return None;
        };
        let at = file.place();
        let coverage = Coverage::Dense;
        match file.0 >> FileAt::BITS {
            FileAt::ARCHIVE => Some(FileRow {
                origin: Origin::Archive { at },
                coverage,
            }),
            FileAt::INLINE => Some(FileRow {
                origin: Origin::Inline { at },
                coverage,
            }),
            FileAt::ROW => Some(self.file_of(&self.files[at as usize])),
            _ => None,
        }
    }

    fn file_of(&self, part: &FilePart) -> FileRow {
        let origin = match part.device.checked_sub(1) {
            None => Origin::Archive { at: part.at },
            Some(_) if part.device == FilePart::OF_IMAGE => Origin::Image {
                ino: part.at as u32,
            },
            Some(device) => {
                let mtime = self.clock.unpack(part.mtime);
                Origin::Path {
                    dev: self.devices[device as usize],
                    ino: part.at,
                    mtime_sec: mtime.secs,
                    mtime_nsec: mtime.nanos,
                }
            }
        };
        let coverage = match part.sparse.checked_sub(1) {
            None => Coverage::Dense,
            Some(row) => {
                let (first, len) = self.sparse[row as usize];
                Coverage::Sparse { first, len }
            }
        };
        FileRow { origin, coverage }
    }

    /// Memory, in bytes, without the values of extended attributes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.commons.rows.capacity() * size_of::<Common>()
            + self.commons.index.capacity() * size_of::<(Common, u32)>()
            + self.clock.memory_bytes()
            + self.names.capacity()
            + self.files.capacity() * size_of::<FilePart>()
            + self.sparse.capacity() * size_of::<(u32, u32)>()
            + self.extents.capacity() * size_of::<DataExtent>()
            + self.inline.capacity()
            + self.xattrs.capacity() * size_of::<Arc<[Xattr]>>()
    }
}

/// What puts nodes in canonical order.
impl Rows {
    /// Gives a node its first name in the directory that will have this number.
    pub(crate) fn place(&mut self, id: NodeId, parent: NodeId, name: u32) -> SourceResult<()> {
        let row = &mut self.rows[id.index()];
        row.parent = parent.0;
        row.name = name;
        let common = self.common(id);
        if common.nlink == 1 || common.kind() == FileType::Directory {
            return Ok(());
        }
        self.change(id, |node| node.nlink = 1)
    }

    /// Counts another name of a node.
    pub(crate) fn count_name(&mut self, id: NodeId) -> SourceResult<()> {
        self.change(id, |node| node.nlink += 1)
    }

    /// Says what a directory holds: a range of the entries, and how many of them are directories.
    pub(crate) fn fill(
        &mut self,
        dir: NodeId,
        entries: (u32, u32),
        directories: u32,
    ) -> SourceResult<()> {
        let (first, len) = entries;
        self.rows[dir.index()].payload = Payload::Directory { first, len }.pack();
        let nlink = 2 + directories;
        if self.common(dir).nlink == nlink {
            return Ok(());
        }
        self.change(dir, |node| node.nlink = nlink)
    }

    /// Gives each node the number that `numbers` has for it, a permutation that leaves the root
    /// where it is, and forgets those from `len` on.
    pub(crate) fn arrange(&mut self, mut numbers: Vec<u32>, len: usize) {
        for at in 0..numbers.len() {
            loop {
                let to = numbers[at] as usize;
                if to == at {
                    break;
                }
                self.rows.swap(at, to);
                numbers.swap(at, to);
            }
        }
        self.rows.truncate(len);
        self.number_xattrs();
    }

    /// Numbers the sets of attributes in the order in which nodes have them, so that it does not
    /// depend on the order they were added in, and forgets those that none has.
    fn number_xattrs(&mut self) {
        let mut numbers = vec![NONE; self.xattrs.len()];
        numbers[0] = 0;
        let mut sets = vec![Arc::clone(&self.xattrs[0])];
        let mut is_used = vec![false; self.commons.rows.len()];
        for row in &self.rows {
            if std::mem::replace(&mut is_used[row.common as usize], true) {
                continue;
            }
            let set = &mut self.commons.rows[row.common as usize].xattrs;
            let number = &mut numbers[*set as usize];
            if *number == NONE {
                *number = sets.len() as u32;
                sets.push(Arc::clone(&self.xattrs[*set as usize]));
            }
            *set = *number;
        }
        self.xattrs = sets;
        self.index_commons(|row| is_used[row as usize]);
    }
}

#[cfg(test)]
mod tests;
