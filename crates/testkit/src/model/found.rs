//! A recovered tree, with content.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FileType, IFlags};

use super::Node;
use crate::tree::Time;

/// What was found under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: FoundKind,
    /// Permission bits (`0o7777`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count; 0 when unknown.
    pub nlink: u64,
    /// Number of the inode, the same for all its names.
    pub inode: u64,
    /// Modification time.
    pub mtime: Time,
    /// Values of `user.` attributes and of access control lists, by name.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Whether it has the flag `nodump`; of what cannot be opened that may not be known.
    pub no_dump: Option<bool>,
}

/// What can be under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// The parts that were read, by offset, ascending and disjoint; zeros between them.
        data: Vec<(u64, Vec<u8>)>,
    },
    /// A symbolic link.
    Symlink(String),
    /// A device or a socket.
    Node(Node),
    /// Anything else, by name.
    Other(String),
}

impl FoundKind {
    pub(super) fn name(&self) -> &str {
        match self {
            FoundKind::Directory => "a directory",
            FoundKind::File { .. } => "a file",
            FoundKind::Symlink(_) => "a symlink",
            FoundKind::Node(Node::Socket) => "a socket",
            FoundKind::Node(Node::Char(..)) => "a character device",
            FoundKind::Node(Node::Block(..)) => "a block device",
            FoundKind::Other(name) => name,
        }
    }
}

/// A tree as it was found after recovery, by path from the root of the file system (which is `""`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// What was found.
    pub entries: BTreeMap<String, Found>,
}

impl Recovered {
    /// Nothing.
    pub fn new() -> Recovered {
        Recovered::default()
    }

    /// Adds or replaces the entry at `path`.
    pub fn insert(&mut self, path: impl Into<String>, found: Found) {
        self.entries.insert(path.into(), found);
    }

    /// Returns everything below `root` on a mounted file system. Names that are no UTF-8 are shown
    /// as such.
    ///
    /// # Errors
    ///
    /// What reading it returned.
    pub fn of_directory(root: &Path) -> io::Result<Recovered> {
        let mut all = Recovered::new();
        let mut pending = vec![(String::new(), root.to_path_buf())];
        all.insert("", found_at(root)?);
        while let Some((dir, place)) = pending.pop() {
            for item in fs::read_dir(place)? {
                let item = item?;
                let name = item.file_name().to_string_lossy().into_owned();
                let path = match dir.as_str() {
                    "" => name,
                    _ => format!("{dir}/{name}"),
                };
                let found = found_at(&item.path())?;
                if found.kind == FoundKind::Directory {
                    pending.push((path.clone(), item.path()));
                }
                all.insert(path, found);
            }
        }
        Ok(all)
    }
}

fn found_at(path: &Path) -> io::Result<Found> {
    let meta = fs::symlink_metadata(path)?;
    let kind = if meta.is_dir() {
        FoundKind::Directory
    } else if meta.is_file() {
        FoundKind::File {
            size: meta.len(),
            data: content(path, &meta)?,
        }
    } else if meta.is_symlink() {
        FoundKind::Symlink(fs::read_link(path)?.to_string_lossy().into_owned())
    } else {
        let device = (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        match FileType::from_raw_mode(meta.mode()) {
            FileType::Socket => FoundKind::Node(Node::Socket),
            FileType::CharacterDevice => FoundKind::Node(Node::Char(device.0, device.1)),
            FileType::BlockDevice => FoundKind::Node(Node::Block(device.0, device.1)),
            _ => FoundKind::Other(format!("something of mode {:o}", meta.mode())),
        }
    };
    Ok(Found {
        kind,
        mode: (meta.mode() & 0o7777) as u16,
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink(),
        inode: meta.ino(),
        mtime: Time::new(meta.mtime(), meta.mtime_nsec() as u32),
        xattrs: xattrs(path)?,
        no_dump: if meta.is_dir() || meta.is_file() {
            Some(rustix::fs::ioctl_getflags(File::open(path)?)?.contains(IFlags::NODUMP))
        } else {
            None
        },
    })
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut all = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0) {
        if name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") {
            let mut value = vec![0; 1 << 16];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
            value.truncate(len);
            all.insert(String::from_utf8_lossy(name).into_owned(), value);
        }
    }
    Ok(all)
}

/// The pieces of a file with something in them.
fn content(path: &Path, meta: &Metadata) -> io::Result<Vec<(u64, Vec<u8>)>> {
    let file = File::open(path)?;
    let mut parts = Vec::new();
    let mut at = 0;
    while at < meta.len() {
        let start = match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start))?.min(meta.len());
        if start >= end {
            break;
        }
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start)?;
        parts.push((start, bytes));
        at = end;
    }
    Ok(parts)
}

/// Fills `buf` from byte `offset` of a file's parts, with zeros between them.
pub(super) fn read_parts(parts: &[(u64, Vec<u8>)], offset: u64, buf: &mut [u8]) {
    buf.fill(0);
    let end = offset + buf.len() as u64;
    let first = parts.partition_point(|(at, bytes)| at + bytes.len() as u64 <= offset);
    for (at, bytes) in &parts[first..] {
        if *at >= end {
            break;
        }
        let from = offset.max(*at);
        let to = end.min(at + bytes.len() as u64);
        buf[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
    }
}
