//! A file tree as a value.
//!
//! A [`Tree`] is filled by [`Tree::snapshot`] from a mounted file system, by a
//! [`TreePlan`](crate::plan::TreePlan) from what it will plant, or by a reader under test through
//! [`Tree::insert`]; [`Tree::diff`] tells two apart in sentences.

mod content;
mod diff;
mod snapshot;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

pub use content::{ContentHasher, Digest};
pub use diff::{Compare, Difference, Holes};

/// Everything below one root directory, by path relative to it (`b""` is the root itself).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// The entries; parents sort before their children.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// One name in a tree and the inode behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is, with what belongs to that kind only.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky (`0o7777`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count as reported; 0 when unknown.
    pub nlink: u64,
    /// Names with the same number are hard links of one inode; 0 when unknown. The number itself is
    /// never compared.
    pub inode: u64,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last access, when recorded.
    pub atime: Option<Time>,
    /// Time of the last change of the inode, when recorded.
    pub ctime: Option<Time>,
    /// Allocated space in units of 512 bytes, when recorded.
    pub blocks: Option<u64>,
    /// Extended attributes by full name (`user.x`, `system.posix_acl_access`).
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The file types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Bytes from the first to the end of file.
        size: u64,
        /// Digest of the content; holes and zeros are the same to it.
        digest: Digest,
        /// Where there is data (not holes), when recorded: ascending, disjoint, in bytes.
        data: Option<Vec<Range<u64>>>,
    },
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device, major and minor number.
    CharDevice(u32, u32),
    /// A block device, major and minor number.
    BlockDevice(u32, u32),
}

impl Kind {
    /// Returns the name of the file type.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Directory => "directory",
            Kind::File { .. } => "file",
            Kind::Symlink(_) => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharDevice(..) => "character device",
            Kind::BlockDevice(..) => "block device",
        }
    }
}

/// A point in time; seconds may be negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC.
    pub sec: i64,
    /// Nanoseconds within the second, always counted forward.
    pub nsec: u32,
}

impl Time {
    /// Returns a point in time.
    pub fn new(sec: i64, nsec: u32) -> Time {
        Time { sec, nsec }
    }

    /// Makes a time of the standard library's clock type.
    pub fn from_system(time: SystemTime) -> Time {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Time::new(after.as_secs().cast_signed(), after.subsec_nanos()),
            Err(e) => {
                let before = e.duration();
                let sec = -before.as_secs().cast_signed();
                match before.subsec_nanos() {
                    0 => Time::new(sec, 0),
                    nsec => Time::new(sec - 1, 1_000_000_000 - nsec),
                }
            }
        }
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.sec, self.nsec)
    }
}

impl Entry {
    /// Returns an entry of this kind: mode 0, owned by 0:0, at time 0, identity and counts unknown.
    pub fn new(kind: Kind) -> Entry {
        Entry {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            inode: 0,
            mtime: Time::default(),
            atime: None,
            ctime: None,
            blocks: None,
            xattrs: BTreeMap::new(),
        }
    }
}

impl Tree {
    /// Returns an empty tree.
    pub fn new() -> Tree {
        Tree::default()
    }

    /// Adds or replaces the entry at `path` (relative, without a leading slash).
    pub fn insert(&mut self, path: impl Into<Vec<u8>>, entry: Entry) {
        self.entries.insert(path.into(), entry);
    }

    /// Returns the entry at `path`.
    pub fn get(&self, path: impl AsRef<[u8]>) -> Option<&Entry> {
        self.entries.get(path.as_ref())
    }

    /// Returns the number of entries, the root included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether nothing is there, not even a root.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
