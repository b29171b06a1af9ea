//! Snapshots see everything, and each kind of difference is found.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use extant_testkit::tree::{Compare, Entry, Holes, Kind, Time, Tree};

fn sample(root: &Path) {
    fs::create_dir_all(root.join("dir/below")).unwrap();
    fs::write(root.join("dir/file"), b"content").unwrap();
    fs::hard_link(root.join("dir/file"), root.join("dir/below/link")).unwrap();
    std::os::unix::fs::symlink("dir/file", root.join("symlink")).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"bad\xffname")), b"").unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(3 << 30).unwrap();
    sparse.write_all_at(b"far", 2 << 30).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(root.join("dir/file"), "user.name", b"value", flags).unwrap();
    fs::set_permissions(root.join("dir/file"), fs::Permissions::from_mode(0o4711)).unwrap();
}

#[test]
fn a_snapshot_sees_types_links_holes_and_xattrs() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let tree = Tree::snapshot(dir.path());
    assert_eq!(tree.len(), 8);
    let file = tree.get("dir/file").unwrap();
    assert_eq!((file.mode, file.nlink), (0o4711, 2));
    assert_eq!(file.inode, tree.get("dir/below/link").unwrap().inode);
    assert_eq!(file.xattrs[b"user.name".as_slice()], b"value");
    assert_eq!(
        tree.get("symlink").unwrap().kind,
        Kind::Symlink(b"dir/file".to_vec())
    );
    assert!(tree.get(b"bad\xffname").is_some());
    let Kind::File {
        size,
        data: Some(data),
        ..
    } = &tree.get("sparse").unwrap().kind
    else {
        panic!("not a file with a data map");
    };
    assert_eq!(*size, 3 << 30);
    assert_eq!(data.len(), 1);
    assert!(data[0].contains(&(2 << 30)) && data[0].end - data[0].start <= 1 << 20);
    // Reading a directory or a symlink may move its access time.
    let compare = Compare {
        atime: false,
        ..Compare::same_image()
    };
    tree.assert_same(&Tree::snapshot(dir.path()), &compare);
}

#[test]
fn paths_longer_than_the_kernel_takes_are_walked() {
    let dir = tempfile::tempdir().unwrap();
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
    let empty = rustix::fs::Mode::empty();
    let mut fd = rustix::fs::open(dir.path(), flags, empty).unwrap();
    let name = "n".repeat(200);
    for _ in 0..40 {
        rustix::fs::mkdirat(&fd, &name, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        fd = rustix::fs::openat(&fd, &name, flags, empty).unwrap();
    }
    let tree = Tree::snapshot(dir.path());
    assert_eq!(tree.len(), 41);
    assert_eq!(tree.entries.keys().map(Vec::len).max(), Some(40 * 201 - 1));
}

/// Changes one entry of a small tree and gives the difference found, as text.
fn after(path: &str, change: impl FnOnce(&mut Entry)) -> Vec<String> {
    let left = small();
    let mut right = left.clone();
    change(right.entries.get_mut(path.as_bytes()).unwrap());
    let compare = Compare {
        holes: Holes::Same(4096),
        ..Compare::same_image()
    };
    left.diff(&right, &compare)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn small() -> Tree {
    let mut hasher = extant_testkit::tree::ContentHasher::new();
    hasher.write(&[1; 8192]);
    let digest = hasher.finish();
    let mut tree = Tree::new();
    let mut entry = |path: &str, inode, kind| {
        let mut entry = Entry::new(kind);
        entry.inode = inode;
        entry.nlink = 1;
        entry.atime = Some(Time::new(5, 6));
        entry.ctime = Some(Time::new(5, 6));
        entry.blocks = Some(16);
        entry.xattrs.insert(b"user.a".to_vec(), b"1".to_vec());
        tree.insert(path, entry);
    };
    entry("", 2, Kind::Directory);
    let data = Some(std::iter::once(0..8192).collect());
    entry(
        "f",
        3,
        Kind::File {
            size: 8192,
            digest,
            data: data.clone(),
        },
    );
    entry(
        "g",
        3,
        Kind::File {
            size: 8192,
            digest,
            data,
        },
    );
    entry("l", 4, Kind::Symlink(b"target".to_vec()));
    entry("c", 5, Kind::CharDevice(1, 3));
    tree
}

#[test]
fn each_kind_of_difference_is_found() {
    let found = |path: &str, expected: &str, change: fn(&mut Entry)| {
        let differences = after(path, change);
        assert!(differences.len() == 1, "{expected}: {differences:?}");
        assert!(
            differences[0].contains(expected),
            "{expected}: {differences:?}"
        );
    };
    assert_eq!(after("f", |_| {}), Vec::<String>::new());
    found("", "/: mode: 0000 left, 0700 right", |e| e.mode = 0o700);
    found("f", "/f: owner: 0:0 left, 1:0 right", |e| e.uid = 1);
    found("f", "owner: 0:0 left, 0:9 right", |e| e.gid = 9);
    found("f", "mtime: 0.000000000 left, -1.000000005 right", |e| {
        e.mtime = Time::new(-1, 5)
    });
    found("f", "atime: 5.000000006 left, 5.000000007", |e| {
        e.atime = Some(Time::new(5, 7))
    });
    found("f", "ctime: ", |e| e.ctime = Some(Time::new(6, 6)));
    found("f", "link count: 1 left, 2 right", |e| e.nlink = 2);
    found("f", "allocated: 16 sectors left, 8 right", |e| {
        e.blocks = Some(8)
    });
    found("f", "xattr user.a missing on the right", |e| {
        e.xattrs.clear()
    });
    found("f", "xattr user.b only on the right", |e| {
        e.xattrs.insert(b"user.b".to_vec(), vec![]);
    });
    found("f", "xattr user.a: \"1\" left, \"2\" right", |e| {
        e.xattrs.insert(b"user.a".to_vec(), b"2".to_vec());
    });
    found("l", "target: \"target\" left, \"else\" right", |e| {
        e.kind = Kind::Symlink(b"else".to_vec());
    });
    found("c", "device: 1:3 left, 1:5 right", |e| {
        e.kind = Kind::CharDevice(1, 5)
    });
    found("c", "type: character device left, fifo right", |e| {
        e.kind = Kind::Fifo
    });
    found("f", "size: 8192 bytes left, 9 right", |e| {
        file(e).0.clone_from(&9)
    });
    found("f", "content of 8192 bytes differs", |e| file(e).1.0 += 1);
    found("f", "holes: data at 0..8192 left", |e| {
        *file(e).2 = Some(std::iter::once(0..4096).collect());
    });
    found("f", "holes: data at 0..12288 right", |e| {
        *file(e).2 = Some(std::iter::once(0..12_000).collect());
    });
    let unlinked = after("f", |e| e.inode = 77);
    assert!(unlinked[0].contains("/f: links: one inode with /f left, a single name right"));
    assert_eq!(
        unlinked.len(),
        2,
        "both names are no longer links: {unlinked:?}"
    );
}

type FileParts<'a> = (
    &'a mut u64,
    &'a mut extant_testkit::tree::Digest,
    &'a mut Option<Vec<std::ops::Range<u64>>>,
);

fn file(entry: &mut Entry) -> FileParts<'_> {
    match &mut entry.kind {
        Kind::File { size, digest, data } => (size, digest, data),
        other => panic!("{} is no file", other.name()),
    }
}

#[test]
fn missing_and_extra_entries_are_found_unless_ignored() {
    let left = small();
    let mut right = left.clone();
    right.entries.remove(b"c".as_slice());
    right.insert("new", Entry::new(Kind::Fifo));
    right.insert("lost+found", Entry::new(Kind::Directory));
    let found: Vec<String> = left
        .diff(&right, &Compare::default())
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected = [
        "/c: character device missing on the right",
        "/new: fifo only on the right",
    ];
    assert_eq!(found, expected);
}

#[test]
fn zeros_may_become_holes_but_not_the_other_way() {
    let left = small();
    let mut right = left.clone();
    for path in ["f", "g"] {
        *file(right.entries.get_mut(path.as_bytes()).unwrap()).2 = Some(Vec::new());
    }
    let compare = Compare {
        holes: Holes::NoneLost(4096),
        ..Compare::default()
    };
    assert_eq!(left.diff(&right, &compare), []);
    assert_eq!(right.diff(&left, &compare).len(), 2);
}
