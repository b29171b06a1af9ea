//! The operations, as values.

use std::fmt;

use crate::tree::Time;

/// What cannot be opened: a device that no driver answers for, or a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A socket.
    Socket,
    /// A character device: major and minor number.
    Char(u32, u32),
    /// A block device: major and minor number.
    Block(u32, u32),
}

impl Node {
    /// What stands for nothing.
    pub const WHITEOUT: Node = Node::Char(0, 0);
}

/// One operation. Paths are relative to the root of the lane, without leading slash. A symlink at
/// the end of a path is not followed: what needs a file refuses it with `ELOOP`, as opening with
/// `O_NOFOLLOW` does. Symlinks lead nowhere, so a path through one gives `ENOENT`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the arguments of the system calls"
)]
pub enum Op {
    /// Makes a new, empty file owned by 0:0 (`O_CREAT | O_EXCL`).
    Create { path: String, mode: u16 },
    /// Makes a directory owned by 0:0.
    Mkdir { path: String, mode: u16 },
    /// Makes a symbolic link owned by 0:0.
    Symlink { path: String, target: String },
    /// Makes a device or a socket owned by 0:0.
    Mknod { path: String, mode: u16, node: Node },
    /// Gives a file another name.
    Link { from: String, to: String },
    /// Removes a name of something that is no directory.
    Unlink { path: String },
    /// Removes an empty directory.
    Rmdir { path: String },
    /// Renames, replacing what has the new name if that is possible.
    Rename { from: String, to: String },
    /// Renames, replacing nothing.
    RenameNew { from: String, to: String },
    /// Renames, and leaves a whiteout (a device of number 0:0) under the old name.
    Whiteout { from: String, to: String },
    /// Lets two names stand for each other's files.
    Exchange { from: String, to: String },
    /// Makes a file without a name in the directory that `path` leads to (`O_TMPFILE`), and then
    /// gives it that name.
    Temporary { path: String, mode: u16 },
    /// Writes bytes that [`tagged`](super::tagged) gives.
    Write { path: String, offset: u64, len: u64 },
    /// Reserves blocks; without `keep` the file grows if it ends before the range does.
    Allocate {
        path: String,
        offset: u64,
        len: u64,
        keep: bool,
    },
    /// Makes a hole, or with `keeps_space` zeros that have space; the size stays.
    Zero {
        path: String,
        offset: u64,
        len: u64,
        keeps_space: bool,
    },
    /// Takes a range out of a file, or with `insert` puts a hole into it. Both ends are multiples
    /// of 4096.
    Shift {
        path: String,
        offset: u64,
        len: u64,
        insert: bool,
    },
    /// Sets the size of a file.
    Truncate { path: String, size: u64 },
    /// Sets the permission bits.
    Chmod { path: String, mode: u16 },
    /// Sets owner and group.
    Chown { path: String, uid: u32, gid: u32 },
    /// Sets the modification time (and the access time, which is not judged).
    Utimens { path: String, mtime: Time },
    /// Gives an extended attribute a value of `len` bytes, which
    /// [`xattr_value`](super::xattr_value) gives.
    SetXattr {
        path: String,
        name: String,
        len: usize,
    },
    /// Removes an extended attribute.
    RemoveXattr { path: String, name: String },
    /// Sets the flag `nodump`, or takes it away.
    NoDump { path: String, on: bool },
    /// Gives a directory the access control list that what is made in it inherits, or takes it
    /// away; which one [`default_acl`](super::default_acl) says.
    Inherit { path: String, on: bool },
    /// `fsync` of a file or directory.
    Fsync { path: String },
    /// `fdatasync` of a file or directory.
    Fdatasync { path: String },
    /// `syncfs`.
    Syncfs,
}

impl Op {
    /// Changes every path, for example to put a lane's operation in its place.
    #[must_use]
    pub fn map_paths(&self, change: impl Fn(&str) -> String) -> Op {
        let mut op = self.clone();
        match &mut op {
            Op::Link { from, to }
            | Op::Rename { from, to }
            | Op::RenameNew { from, to }
            | Op::Whiteout { from, to }
            | Op::Exchange { from, to } => {
                *from = change(from);
                *to = change(to);
            }
            Op::Create { path, .. }
            | Op::Temporary { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Symlink { path, .. }
            | Op::Mknod { path, .. }
            | Op::Unlink { path }
            | Op::Rmdir { path }
            | Op::Write { path, .. }
            | Op::Allocate { path, .. }
            | Op::Zero { path, .. }
            | Op::Shift { path, .. }
            | Op::Truncate { path, .. }
            | Op::Chmod { path, .. }
            | Op::Chown { path, .. }
            | Op::Utimens { path, .. }
            | Op::SetXattr { path, .. }
            | Op::RemoveXattr { path, .. }
            | Op::NoDump { path, .. }
            | Op::Inherit { path, .. }
            | Op::Fsync { path }
            | Op::Fdatasync { path } => *path = change(path),
            Op::Syncfs => {}
        }
        op
    }

    /// Returns whether it only makes earlier operations durable.
    pub fn is_sync(&self) -> bool {
        matches!(self, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Syncfs)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, mode } => write!(f, "create {path} {mode:o}"),
            Op::Mkdir { path, mode } => write!(f, "mkdir {path} {mode:o}"),
            Op::Symlink { path, target } => write!(f, "symlink {path} -> {target}"),
            Op::Mknod { path, mode, node } => write!(f, "mknod {path} {mode:o} {node:?}"),
            Op::Link { from, to } => write!(f, "link {from} {to}"),
            Op::Unlink { path } => write!(f, "unlink {path}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Rename { from, to } => write!(f, "rename {from} {to}"),
            Op::RenameNew { from, to } => write!(f, "rename {from} {to}, replacing nothing"),
            Op::Whiteout { from, to } => write!(f, "rename {from} {to}, leaving a whiteout"),
            Op::Exchange { from, to } => write!(f, "exchange {from} {to}"),
            Op::Temporary { path, mode } => write!(f, "link a temporary file as {path} {mode:o}"),
            Op::Write { path, offset, len } => write!(f, "write {path} {offset}+{len}"),
            Op::Allocate {
                path,
                offset,
                len,
                keep,
            } => {
                let size = if *keep { " keeping the size" } else { "" };
                write!(f, "allocate {path} {offset}+{len}{size}")
            }
            Op::Zero {
                path,
                offset,
                len,
                keeps_space,
            } => {
                let verb = if *keeps_space { "zero" } else { "punch" };
                write!(f, "{verb} {path} {offset}+{len}")
            }
            Op::Shift {
                path,
                offset,
                len,
                insert,
            } => {
                let verb = if *insert { "insert" } else { "collapse" };
                write!(f, "{verb} {path} {offset}+{len}")
            }
            Op::Truncate { path, size } => write!(f, "truncate {path} {size}"),
            Op::Chmod { path, mode } => write!(f, "chmod {path} {mode:o}"),
            Op::Chown { path, uid, gid } => write!(f, "chown {path} {uid}:{gid}"),
            Op::Utimens { path, mtime } => write!(f, "utimens {path} {mtime}"),
            Op::SetXattr { path, name, len } => write!(f, "setxattr {path} {name} of {len}"),
            Op::RemoveXattr { path, name } => write!(f, "removexattr {path} {name}"),
            Op::NoDump { path, on } => {
                write!(f, "chattr {}d {path}", if *on { '+' } else { '-' })
            }
            Op::Inherit { path, on } => {
                let verb = if *on { "set" } else { "remove" };
                write!(f, "{verb} the default list of {path}")
            }
            Op::Fsync { path } => write!(f, "fsync {path}"),
            Op::Fdatasync { path } => write!(f, "fdatasync {path}"),
            Op::Syncfs => f.write_str("syncfs"),
        }
    }
}
