//! A whole file system as the engine sees it, in the form the oracles give.

use extant_core::dir::{self, Cookie};
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode};
use extant_core::{data, xattr};
use extant_format::Ino;
use extant_testkit::tree::{ContentHasher, Entry, Kind, Time, Tree};
use std::ops::ControlFlow;

/// A name of a listing, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: Ino,
    pub(crate) file_type: Option<FileType>,
    pub(crate) next: Cookie,
}

/// All names from `from` on.
pub(crate) fn list_from(fs: &Fs, dir: &Inode, from: Cookie) -> extant_core::Result<Vec<Listed>> {
    let mut names = Vec::new();
    dir::readdir(fs, dir, from, |entry| {
        names.push(Listed {
            name: entry.name.to_vec(),
            ino: entry.ino,
            file_type: entry.file_type,
            next: entry.next,
        });
        ControlFlow::<()>::Continue(())
    })?;
    Ok(names)
}

/// All names, with `.` and `..`.
pub(crate) fn list(fs: &Fs, dir: &Inode) -> Vec<Listed> {
    list_from(fs, dir, Cookie::START).unwrap()
}

/// All names but `.` and `..`.
pub(crate) fn list_children(fs: &Fs, dir: &Inode) -> Vec<Listed> {
    let mut names = list(fs, dir);
    names.retain(|n| n.name != b"." && n.name != b"..");
    names
}

/// The inode at a path of names separated by `/`, found by lookups.
pub(crate) fn at_path(fs: &Fs, path: &str) -> std::sync::Arc<Inode> {
    let mut inode = fs.inode(Ino::ROOT).unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let found = dir::lookup(fs, &inode, name.as_bytes()).unwrap();
        let found = found.unwrap_or_else(|| panic!("no {name} in inode {}", inode.ino()));
        inode = fs.inode(found.ino).unwrap();
    }
    inode
}

/// Everything below the root. On the way checks that lookups agree with listings.
pub(crate) fn tree_of(fs: &Fs) -> Tree {
    let mut tree = Tree::new();
    let root = fs.inode(Ino::ROOT).unwrap();
    let mut todo = vec![(Vec::new(), root)];
    while let Some((path, inode)) = todo.pop() {
        if inode.is_dir() {
            for listed in list(fs, &inode) {
                let looked_up = dir::lookup(fs, &inode, &listed.name).unwrap().unwrap();
                assert_eq!(looked_up.ino, listed.ino);
                assert_eq!(looked_up.file_type, listed.file_type);
                let child = fs.inode(listed.ino).unwrap();
                if let Some(file_type) = listed.file_type {
                    assert_eq!(file_type, child.file_type());
                }
                if listed.name == b"." {
                    assert_eq!(listed.ino, inode.ino());
                } else if listed.name != b".." {
                    let mut path = path.clone();
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(&listed.name);
                    todo.push((path, child));
                }
            }
        }
        tree.insert(path, entry_of(fs, &inode));
    }
    tree
}

fn entry_of(fs: &Fs, inode: &Inode) -> Entry {
    let meta = inode.metadata(fs.block_size());
    let device = || {
        let device = meta.device.unwrap();
        (device.major, device.minor)
    };
    let kind = match inode.file_type() {
        FileType::Directory => Kind::Directory,
        FileType::Regular => Kind::File {
            size: meta.size,
            digest: digest_of(fs, inode),
            data: None,
        },
        FileType::Symlink => Kind::Symlink(fs.read_link(inode).unwrap()),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharDevice => Kind::CharDevice(device().0, device().1),
        FileType::BlockDevice => Kind::BlockDevice(device().0, device().1),
    };
    let mut entry = Entry::new(kind);
    entry.mode = meta.mode.permissions();
    entry.uid = meta.uid;
    entry.gid = meta.gid;
    entry.nlink = meta.links.into();
    entry.inode = meta.ino.get().into();
    entry.mtime = Time::new(meta.mtime.secs, meta.mtime.nanos);
    xattr::for_each(fs, inode, |name, value| {
        let again = xattr::get(fs, inode, name).unwrap();
        assert_eq!(again, value);
        entry.xattrs.insert(name.to_vec(), value.to_vec());
        ControlFlow::<()>::Continue(())
    })
    .unwrap();
    let names = xattr::list(fs, inode).unwrap();
    assert!(names.iter().all(|name| entry.xattrs.contains_key(name)));
    assert_eq!(names.len(), entry.xattrs.len());
    entry
}

fn digest_of(fs: &Fs, inode: &Inode) -> extant_testkit::tree::Digest {
    struct Hashing(ContentHasher);
    impl data::Sink for Hashing {
        type Error = std::convert::Infallible;
        fn data(&mut self, _: u64, bytes: &[u8]) -> Result<(), Self::Error> {
            self.0.write(bytes);
            Ok(())
        }
        fn hole(&mut self, _: u64, len: u64) -> Result<(), Self::Error> {
            self.0.skip(len);
            Ok(())
        }
    }
    let mut sink = Hashing(ContentHasher::new());
    let Ok(()) = data::stream(fs, inode, &mut sink).unwrap();
    sink.0.finish()
}
