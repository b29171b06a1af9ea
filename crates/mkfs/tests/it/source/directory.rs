//! The directory source.

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use extant_mkfs::source::{
    Excludes, Normalisation, ScanOptions, SourceError, TimePolicy, Timestamp, Tree, scan_directory,
};
use rustix::fs::{Mode, OFlags};

use super::*;

fn scan(path: &Path) -> Tree {
    scan_directory(path, &ScanOptions::default()).unwrap()
}

fn full_fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    populate(dir.path());
    populate_long(dir.path());
    set_xattrs(dir.path());
    set_xattr(
        &dir.path().join("dir/sub"),
        "system.posix_acl_default",
        &acl_value(),
    );
    let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
    set_times(dir.path(), &mut 0);
    set_mtime(&dir.path().join("empty"), -5, 999_999_999);
    dir
}

#[test]
fn a_tree_is_what_lstat_says() {
    let dir = full_fixture();
    assert_same(&scan(dir.path()), dir.path(), ALL);
}

#[test]
fn the_machines_own_files_are_scanned_right() {
    let path = Path::new("/usr/share/doc");
    assert_same(&scan(path), path, ALL);
}

#[test]
fn holes_are_kept() {
    let dir = full_fixture();
    let tree = scan(dir.path());
    let runs = |name: &str| -> Vec<_> {
        tree.extents(tree.lookup(name).unwrap())
            .map(|e| (e.logical, e.len))
            .collect()
    };
    assert_eq!(
        runs("sparse"),
        [(65536, 8192), (1 << 20, 8192), (3 << 20, 8192)]
    );
    assert_eq!(runs("hole"), []);
    assert_eq!(runs("file"), [(0, 100_000)]);
    assert_eq!(runs("many holes").len(), 59);
}

#[test]
fn order_and_threads_do_not_show() {
    let make = |reverse: bool| {
        let dir = tempfile::tempdir().unwrap();
        let mut names: Vec<usize> = (0..1500).collect();
        if reverse {
            names.reverse();
        }
        for i in names {
            let sub = dir
                .path()
                .join(format!("{}", i % 37))
                .join(format!("{}", i % 3));
            fs::create_dir_all(&sub).unwrap();
            fs::write(sub.join(format!("f{i}")), format!("{i}")).unwrap();
            if i % 100 == 0 {
                fs::write(dir.path().join(format!("shared{i}")), b"x").unwrap();
                fs::hard_link(
                    dir.path().join(format!("shared{i}")),
                    sub.join(format!("h{i}")),
                )
                .unwrap();
            }
        }
        dir
    };
    let (one, two) = (make(false), make(true));
    let scan_with = |dir: &Path, threads| {
        let mut options = ScanOptions::default();
        options.threads = NonZero::new(threads);
        scan_directory(dir, &options).unwrap()
    };
    let tree = scan_with(one.path(), 1);
    assert_eq!(tree, scan_with(one.path(), 5));
    // The other directory has other inodes and times; everything else is the same.
    let other = scan_with(two.path(), 4);
    assert_eq!(tree.len(), other.len());
    for id in tree.ids() {
        assert_eq!(tree.path(id), other.path(id));
        assert_eq!(tree.node(id).size, other.node(id).size);
        assert_eq!(tree.node(id).nlink, other.node(id).nlink);
    }
    let per_node = tree.memory_bytes() / tree.len();
    assert!(per_node < 250, "{per_node} bytes for each node");
}

#[test]
fn depth_is_not_limited_by_path_max() {
    let dir = tempfile::tempdir().unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
    let name = "x".repeat(100);
    for _ in 0..100 {
        rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&at, "leaf", create, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    let tree = scan(dir.path());
    assert_eq!(tree.len(), 102);
    let leaf = tree.ids().last().unwrap();
    let mut buf = [0; 4];
    tree.read_at(leaf, 0, &mut buf).unwrap();
    assert_eq!(&buf, b"deep");
}

#[test]
fn a_file_that_changes_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let error = |change: &dyn Fn()| {
        let _ = fs::remove_file(&path);
        fs::write(&path, pattern(7, 10_000)).unwrap();
        set_mtime(&path, 1000, 0);
        let tree = scan(dir.path());
        let id = tree.lookup("f").unwrap();
        change();
        let error = tree.open(id).unwrap_err();
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        error
    };
    let gone = error(&|| fs::remove_file(&path).unwrap());
    assert!(matches!(gone, SourceError::Vanished { .. }), "{gone}");
    let swapped = error(&|| {
        fs::write(dir.path().join("g"), b"other").unwrap();
        fs::rename(dir.path().join("g"), &path).unwrap();
    });
    assert!(matches!(swapped, SourceError::Vanished { .. }), "{swapped}");
    let linked = error(&|| {
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
    });
    assert!(matches!(linked, SourceError::Vanished { .. }), "{linked}");
    let shrunk = error(&|| {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(9_999).unwrap();
    });
    assert!(
        matches!(&shrunk, SourceError::Changed { field: "size", found, expected, .. }
            if found == "9999" && expected == "10000"),
        "{shrunk}"
    );
    let touched = error(&|| set_mtime(&path, 1001, 0));
    assert!(
        matches!(
            touched,
            SourceError::Changed {
                field: "modification time",
                ..
            }
        ),
        "{touched}"
    );
}

#[test]
fn a_file_that_shrinks_while_it_is_open_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, pattern(7, 10_000)).unwrap();
    let tree = scan(dir.path());
    let data = tree.open(tree.lookup("f").unwrap()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(5_000).unwrap();
    let mut buf = vec![0; 10_000];
    let error = data.read_at(0, &mut buf).unwrap_err();
    assert!(
        matches!(error, SourceError::Changed { field: "size", .. }),
        "{error}"
    );
    assert!(data.check_unchanged().is_err());
}

#[test]
fn a_directory_that_cannot_be_listed_is_an_error() {
    let missing = scan_directory(Path::new("/no/such/place"), &ScanOptions::default());
    assert!(missing.unwrap_err().to_string().contains("/no/such/place"));
    if rustix::process::geteuid().is_root() {
        println!("skipped: permissions (root may read everything)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
    let error = scan_directory(dir.path(), &ScanOptions::default()).unwrap_err();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(error.to_string().contains("locked"), "{error}");
}

#[test]
fn excluded_names_stay_out() {
    let dir = full_fixture();
    let mut options = ScanOptions::default();
    options.excludes = Excludes::new(["*hole*", "/dir/sub/", "fifo"]).unwrap();
    let tree = scan_directory(dir.path(), &options).unwrap();
    for out in ["hole", "many holes", "dir/sub", "dir/sub/third", "fifo"] {
        assert_eq!(tree.lookup(out), None, "{out}");
    }
    let one = tree.lookup("dir/one").unwrap();
    assert_eq!(tree.node(one).nlink, 2, "the excluded name does not count");
    assert!(tree.lookup("file").is_some());
}

#[test]
fn normalisation_leaves_data_readable() {
    let dir = full_fixture();
    let mut tree = scan(dir.path());
    let latest = Timestamp::from_secs(1_000_000_010);
    tree.normalise(&Normalisation {
        owner: Some("7:8".parse().unwrap()),
        times: TimePolicy::Clamp(latest),
        root_owner: Some("9".parse().unwrap()),
        root_mode: Some(0o700),
    });
    for id in tree.ids() {
        let node = tree.node(id);
        let times = node.times;
        assert!(times.mtime() <= latest);
        assert_eq!(times.atime(), times.mtime());
        assert_eq!(times.ctime(), times.mtime());
        assert_eq!(times.crtime(), times.mtime());
        if id == NodeId::ROOT {
            assert_eq!((node.uid, node.mode), (9, 0o40_700));
        } else {
            assert_eq!((node.uid, node.gid), (7, 8));
        }
        tree.open(id).unwrap();
    }
    assert!(tree.ids().any(|id| tree.node(id).times.mtime() < latest));
    tree.normalise(&Normalisation {
        times: TimePolicy::Set(Timestamp::from_secs(-3)),
        ..Normalisation::default()
    });
    assert!(tree.ids().all(|id| tree.node(id).times.ctime().secs == -3));
}
