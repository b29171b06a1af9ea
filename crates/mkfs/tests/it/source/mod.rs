//! Sources: what a directory or an archive holds is what the tree says.

mod archive;
mod beside_tar;
mod containers;
mod directory;
mod hostile_archives;
mod images;
mod layers;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use extant_mkfs::source::{FileType, NodeId, Tree};
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags};

/// What a comparison leaves out, because an archive format cannot say it.
#[derive(Clone, Copy)]
struct Compare {
    nanoseconds: bool,
    xattrs: bool,
    holes: bool,
}

const ALL: Compare = Compare {
    nanoseconds: true,
    xattrs: true,
    holes: true,
};

/// Bytes that do not repeat, so that a piece at the wrong place shows.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|e| panic!("set {name} of {}: {e}", path.display()));
}

fn set_mtime(path: &Path, sec: i64, nsec: i64) {
    let time = Timespec {
        tv_sec: sec,
        tv_nsec: nsec,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A sparse file: data of 8 KiB at each of these offsets.
fn write_sparse(path: &Path, offsets: &[u64], size: u64) {
    let file = File::create(path).unwrap();
    for &offset in offsets {
        file.write_all_at(&pattern(offset, 8192), offset).unwrap();
    }
    file.set_len(size).unwrap();
}

/// Fills `root` with one of everything an archive of short names can hold.
fn populate(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("dir/sub/empty")).unwrap();
    fs::write(at("file"), pattern(1, 100_000)).unwrap();
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("dir/one"), b"1").unwrap();
    fs::write(at("dir/exact"), pattern(2, 1024)).unwrap();
    fs::set_permissions(at("dir/one"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(at("dir/sub"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::hard_link(at("dir/one"), at("another name")).unwrap();
    fs::hard_link(at("dir/one"), at("dir/sub/third")).unwrap();
    symlink("dir/one", at("link")).unwrap();
    symlink("../nowhere", at("dir/broken")).unwrap();
    fs::hard_link(at("link"), at("link too")).unwrap();
    let non_utf8 = root.join(OsStr::from_bytes(b"not \xff\xfe utf-8\n"));
    fs::write(non_utf8, b"bytes").unwrap();
    let special = |name: &str, kind, dev| {
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), dev)
    };
    special("fifo", rustix::fs::FileType::Fifo, 0).unwrap();
    if rustix::process::geteuid().is_root() {
        let chr = rustix::fs::FileType::CharacterDevice;
        let blk = rustix::fs::FileType::BlockDevice;
        special("char", chr, rustix::fs::makedev(1, 3)).unwrap();
        special("block", blk, rustix::fs::makedev(259, 70_000)).unwrap();
        std::os::unix::fs::lchown(at("dir/exact"), Some(123), Some(2_000_000)).unwrap();
    } else {
        println!("skipped: devices and owners (needs root)");
    }
    write_sparse(&at("sparse"), &[65536, 1 << 20, 3 << 20], 5 << 20);
    write_sparse(&at("hole"), &[], 1 << 20);
    let many: Vec<u64> = (1..60).map(|i| i * 65536).collect();
    write_sparse(&at("many holes"), &many, 60 * 65536 - 5000);
}

/// Adds long names, which old formats cannot hold.
fn populate_long(root: &Path) {
    let name = "n".repeat(255);
    let deep = root.join("d".repeat(200)).join("e".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join(&name), b"long").unwrap();
    fs::hard_link(deep.join(&name), root.join("short")).unwrap();
    fs::hard_link(deep.join(&name), deep.join("again")).unwrap();
    symlink("t".repeat(300), root.join("long link")).unwrap();
}

/// Gives every file its own modification time.
fn set_times(dir: &Path, next: &mut i64) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            set_times(&path, next);
        } else {
            *next += 1;
            set_mtime(&path, 1_000_000_000 + *next, 123_456_000 + *next);
        }
    }
    *next += 1;
    set_mtime(dir, 1_000_000_000 + *next, 987_654_000 + *next);
}

/// Compares a whole tree with a directory. Directories' access times are not looked at:
/// comparing changes them.
fn assert_same(tree: &Tree, dir: &Path, how: Compare) {
    let mut seen = HashMap::new();
    assert_same_node(tree, NodeId::ROOT, dir, how, &mut seen);
    let inodes: std::collections::HashSet<_> = seen.values().collect();
    assert_eq!(inodes.len(), seen.len(), "two inodes for one node");
    assert_eq!(seen.len(), tree.len(), "nodes nobody reached");
}

fn assert_same_node(
    tree: &Tree,
    id: NodeId,
    path: &Path,
    how: Compare,
    seen: &mut HashMap<NodeId, u64>,
) {
    let meta = path.symlink_metadata().unwrap();
    let node = tree.node(id);
    let at = path.display();
    assert_eq!(u32::from(node.mode), meta.mode(), "{at}: mode");
    assert_eq!(
        (node.uid, node.gid),
        (meta.uid(), meta.gid()),
        "{at}: owner"
    );
    let mtime = node.times.mtime();
    assert_eq!(mtime.secs, meta.mtime(), "{at}: mtime");
    if how.nanoseconds {
        assert_eq!(i64::from(mtime.nanos), meta.mtime_nsec(), "{at}: mtime ns");
    }
    if how.xattrs {
        assert_same_xattrs(tree, id, path);
    }
    let before = seen.insert(id, meta.ino());
    assert!(
        before.is_none_or(|ino| ino == meta.ino()),
        "{at}: one node for two inodes"
    );
    let kind = meta.file_type();
    if kind.is_dir() {
        assert_same_entries(tree, id, path, how, seen);
        return;
    }
    assert_eq!(u64::from(node.nlink), meta.nlink(), "{at}: links");
    if kind.is_symlink() {
        let target = fs::read_link(path).unwrap();
        assert_eq!(tree.symlink_target(id), Some(target.as_os_str().as_bytes()));
        assert_eq!(node.size, target.as_os_str().len() as u64);
    } else if kind.is_file() {
        assert_eq!(node.size, meta.len(), "{at}: size");
        assert_same_data(tree, id, path, how);
    } else if kind.is_char_device() || kind.is_block_device() {
        let dev = meta.rdev();
        let expected = (rustix::fs::major(dev), rustix::fs::minor(dev));
        assert_eq!(node.rdev(), Some(expected), "{at}: device");
    } else {
        assert!(matches!(node.kind(), FileType::Fifo | FileType::Socket));
    }
}

fn assert_same_entries(
    tree: &Tree,
    id: NodeId,
    path: &Path,
    how: Compare,
    seen: &mut HashMap<NodeId, u64>,
) {
    let mut names: Vec<Vec<u8>> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name().as_bytes().to_vec())
        .collect();
    names.sort();
    let found: Vec<&[u8]> = tree.children(id).map(|(name, _)| name).collect();
    assert_eq!(found, names, "{}: names", path.display());
    let mut subdirs = 0;
    for (name, child) in tree.children(id) {
        subdirs += u32::from(tree.node(child).is_dir());
        let path = path.join(OsStr::from_bytes(name));
        assert_same_node(tree, child, &path, how, seen);
    }
    assert_eq!(tree.node(id).nlink, 2 + subdirs, "{}", path.display());
}

fn assert_same_data(tree: &Tree, id: NodeId, path: &Path, how: Compare) {
    let expected = fs::read(path).unwrap();
    let data = tree.open(id).unwrap();
    let mut found = vec![0xaa; expected.len() + 10];
    data.read_at(0, &mut found).unwrap();
    assert!(found[..expected.len()] == expected, "{}", path.display());
    assert!(found[expected.len()..].iter().all(|&b| b == 0));
    // Pieces at odd places, against the whole.
    for (offset, len) in [(1, 7), (4095, 3), (65_000, 1000), (1 << 20, 9000)] {
        let mut piece = vec![0xaa; len];
        data.read_at(offset as u64, &mut piece).unwrap();
        let end = expected.len().min(offset + len);
        let whole = expected.get(offset..end).unwrap_or_default();
        assert!(&piece[..whole.len()] == whole, "{}", path.display());
        assert!(piece[whole.len()..].iter().all(|&b| b == 0));
    }
    data.check_unchanged().unwrap();
    let mut end = 0;
    for extent in data.extents() {
        assert!(extent.logical >= end && extent.len > 0, "{extent:?}");
        end = extent.logical + extent.len;
        assert!(end <= data.size());
    }
    let stored: u64 = data.extents().map(|e| e.len).sum();
    if how.holes {
        let blocks = path.symlink_metadata().unwrap().blocks() * 512;
        assert!(stored <= blocks, "{}: {stored} > {blocks}", path.display());
    }
}

fn assert_same_xattrs(tree: &Tree, id: NodeId, path: &Path) {
    let mut list = vec![0u8; 4096];
    let n = rustix::fs::llistxattr(path, &mut list).unwrap();
    let mut names: Vec<&[u8]> = list[..n]
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    let found: Vec<&[u8]> = tree.xattrs(id).iter().map(|x| &*x.name).collect();
    assert_eq!(found, names, "{}: attributes", path.display());
    for xattr in tree.xattrs(id).iter() {
        let mut value = vec![0u8; 70_000];
        let n = rustix::fs::lgetxattr(path, &*xattr.name, &mut value).unwrap();
        assert!(*xattr.value == value[..n], "{}", path.display());
    }
}

/// Gives some files of [`populate`] extended attributes of every namespace we may set.
fn set_xattrs(root: &Path) {
    set_xattr(&root.join("file"), "user.note", b"hello\0world\n");
    set_xattr(&root.join("file"), "user.a=b%c", b"");
    set_xattr(&root.join("dir"), "user.note", b"hello\0world\n");
    set_xattr(&root.join("dir/one"), "user.big", &pattern(3, 3000));
    if rustix::process::geteuid().is_root() {
        set_xattr(&root.join("dir/exact"), "trusted.x", b"t");
        set_xattr(&root.join("link"), "trusted.on.link", b"l");
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        set_xattr(&root.join("file"), "security.capability", &capability);
    } else {
        println!("skipped: trusted and security attributes (needs root)");
    }
}

/// A POSIX access control list in the system call's encoding: one user more, and a mask.
fn acl_value() -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    for (tag, perm, id) in [
        (1u16, 7u16, u32::MAX),
        (2, 5, 54_321),
        (4, 5, u32::MAX),
        (16, 5, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}
