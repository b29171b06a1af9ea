//! The tar source, on archives made by the system's `tar` and by hand.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extant_mkfs::source::{Excludes, SourceResult, TarOptions, Tree, read_tar, read_tar_stream};

pub(super) use extant_testkit::layers::Tar;

use super::*;

/// Runs the system's tar on all of a directory.
fn tar(dir: &Path, to: &Path, args: &[&str]) {
    let output = Command::new("tar")
        .args(["--numeric-owner", "-C"])
        .arg(dir)
        .arg("-cf")
        .arg(to)
        .args(args)
        .arg(".")
        .output()
        .expect("tar is needed");
    assert!(output.status.success(), "{output:?}");
}

fn options(dir: &Path) -> TarOptions {
    let mut options = TarOptions::default();
    options.spool_dir = dir.to_owned();
    options
}

/// A reader that gives one byte, then a few, then many, as pipes do.
struct Trickle<R>(R, usize);

impl<R: Read> Read for Trickle<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.1 = (self.1 * 3 + 1) % 70_000;
        let n = buf.len().min(self.1.max(1));
        self.0.read(&mut buf[..n])
    }
}

fn read_both_ways(archive: &Path, spool: &Path) -> [Tree; 2] {
    let stream = Trickle(File::open(archive).unwrap(), 0);
    [
        read_tar(archive, &options(spool)).unwrap(),
        read_tar_stream(stream, archive, &options(spool)).unwrap(),
    ]
}

#[test]
fn every_format_of_the_systems_tar_is_read() {
    for (format, long, nanoseconds) in [
        ("--format=ustar", false, false),
        ("--format=oldgnu", true, false),
        ("--format=gnu", true, false),
        ("--format=pax", true, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        populate(dir.path());
        if long {
            populate_long(dir.path());
        }
        set_times(dir.path(), &mut 0);
        let out = tempfile::tempdir().unwrap();
        let archive = out.path().join("t.tar");
        tar(dir.path(), &archive, &[format]);
        for tree in read_both_ways(&archive, out.path()) {
            let how = Compare {
                nanoseconds,
                xattrs: false,
                holes: false,
            };
            assert_same(&tree, dir.path(), how);
        }
    }
}

#[test]
fn sparse_members_keep_their_holes() {
    for args in [
        ["--format=oldgnu", "-S"].as_slice(),
        &["--format=gnu", "-S"],
        &["--format=pax", "-S", "--sparse-version=0.0"],
        &["--format=pax", "-S", "--sparse-version=0.1"],
        &["--format=pax", "-S", "--sparse-version=1.0"],
        &["--format=pax", "-S", "--hole-detection=raw"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        populate(dir.path());
        populate_long(dir.path());
        let out = tempfile::tempdir().unwrap();
        let archive = out.path().join("t.tar");
        tar(dir.path(), &archive, args);
        for tree in read_both_ways(&archive, out.path()) {
            let how = Compare {
                nanoseconds: false,
                xattrs: false,
                holes: true,
            };
            assert_same(&tree, dir.path(), how);
        }
    }
}

#[test]
fn attributes_and_access_control_lists_come_along() {
    let dir = tempfile::tempdir().unwrap();
    populate(dir.path());
    set_xattrs(dir.path());
    let sub = dir.path().join("dir/sub");
    set_xattr(&sub, "system.posix_acl_default", &acl_value());
    set_xattr(
        &dir.path().join("file"),
        "system.posix_acl_access",
        &acl_value(),
    );
    set_times(dir.path(), &mut 0);
    let out = tempfile::tempdir().unwrap();
    let archive = out.path().join("t.tar");
    let args = ["--format=pax", "--xattrs", "--xattrs-include=*", "--acls"];
    tar(dir.path(), &archive, &args);
    for tree in read_both_ways(&archive, out.path()) {
        let how = Compare {
            holes: false,
            ..ALL
        };
        assert_same(&tree, dir.path(), how);
    }
}

#[test]
fn compressed_archives_are_recognised() {
    let dir = tempfile::tempdir().unwrap();
    populate(dir.path());
    let out = tempfile::tempdir().unwrap();
    let plain = out.path().join("t.tar");
    tar(dir.path(), &plain, &["--format=pax"]);
    let bytes = fs::read(&plain).unwrap();
    let (head, tail) = bytes.split_at(bytes.len() / 2 + 77);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::stream::encode_all(bytes, 1).unwrap();
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    for packed in [
        gzip(&bytes),
        [gzip(head), gzip(tail)].concat(),
        [gzip(&bytes), vec![0; 100]].concat(),
        zstd(&bytes),
        [zstd(head), zstd(tail)].concat(),
        [skippable.to_vec(), zstd(&bytes)].concat(),
    ] {
        let path = out.path().join("t.packed");
        fs::write(&path, &packed).unwrap();
        for tree in read_both_ways(&path, out.path()) {
            let how = Compare {
                xattrs: false,
                holes: false,
                ..ALL
            };
            assert_same(&tree, dir.path(), how);
        }
        // Cut anywhere, it is an error.
        for cut in [packed.len() / 3, packed.len() / 2] {
            let short = std::io::Cursor::new(packed[..cut].to_vec());
            let result = read_tar_stream(short, Path::new("short"), &options(out.path()));
            assert!(result.is_err());
        }
    }
    let mut damaged = gzip(&bytes);
    let middle = damaged.len() - 6;
    damaged[middle] ^= 1;
    let result = read_tar_stream(
        std::io::Cursor::new(damaged),
        Path::new("x.gz"),
        &options(out.path()),
    );
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("x.gz") && error.contains("damaged"),
        "{error}"
    );
    let xz = std::io::Cursor::new(b"\xfd7zXZ\0rest".to_vec());
    let error = read_tar_stream(xz, Path::new("x"), &TarOptions::default()).unwrap_err();
    assert!(error.to_string().contains("xz"), "{error}");
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    populate(dir.path());
    let mut child = Command::new("tar")
        .args(["--numeric-owner", "--format=pax", "-b", "2000", "-c", "-C"])
        .arg(dir.path())
        .arg(".")
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar is needed");
    let stdout = child.stdout.take().unwrap();
    let tree = read_tar_stream(stdout, Path::new("-"), &TarOptions::default()).unwrap();
    assert!(child.wait().unwrap().success());
    let how = Compare {
        xattrs: false,
        holes: false,
        ..ALL
    };
    assert_same(&tree, dir.path(), how);
}

fn read(bytes: &[u8]) -> SourceResult<Tree> {
    let stream = std::io::Cursor::new(bytes.to_vec());
    let streamed = read_tar_stream(stream, Path::new("test.tar"), &TarOptions::default());
    // In place and as a stream: the same tree but for where the data is, or the same error.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let placed = read_tar(file.path(), &TarOptions::default());
    match (&streamed, &placed) {
        (Ok(a), Ok(b)) => {
            assert_eq!(a.len(), b.len());
            for id in a.ids() {
                assert_eq!(contents(a, id), contents(b, id));
                assert_eq!(a.path(id), b.path(id));
            }
        }
        (Err(_), Err(_)) => {}
        other => panic!("{other:?}"),
    }
    placed
}

fn contents(tree: &Tree, id: NodeId) -> Vec<u8> {
    let mut bytes = vec![0; tree.node(id).size.min(1 << 20) as usize];
    tree.read_at(id, 0, &mut bytes).unwrap();
    bytes
}

fn content(tree: &Tree, path: &str) -> Option<Vec<u8>> {
    Some(contents(tree, tree.lookup(path)?))
}

#[test]
fn later_members_replace_earlier_ones() {
    let tar = Tar::new()
        .file("a", b"old")
        .member("hard", b'1', "a", b"")
        .file("./a", b"new")
        .member("dir/", b'5', "", b"")
        .file("dir/x", b"x")
        .member("dir", b'5', "", b"")
        .file("becomes", b"file")
        .member("becomes/", b'5', "", b"")
        .file("becomes/inner", b"i")
        .member("gone", b'5', "", b"")
        .member("gone", b'2', "a", b"");
    let tree = read(&tar.end()).unwrap();
    assert_eq!(content(&tree, "a").unwrap(), b"new");
    assert_eq!(content(&tree, "hard").unwrap(), b"old");
    assert_eq!(content(&tree, "dir/x").unwrap(), b"x");
    assert_eq!(content(&tree, "becomes/inner").unwrap(), b"i");
    assert_eq!(tree.node(tree.lookup("a").unwrap()).nlink, 1);
    assert_eq!(tree.node(NodeId::ROOT).nlink, 4);
    assert!(tree.symlink_target(tree.lookup("gone").unwrap()).is_some());
}

#[test]
fn missing_directories_are_made_and_the_root_is_described() {
    let tree = read(&Tar::new().file("/abs/b/c", b"c").end()).unwrap();
    assert_eq!(content(&tree, "abs/b/c").unwrap(), b"c");
    let made = tree.node(tree.lookup("abs").unwrap());
    assert_eq!(
        (made.mode, made.uid, made.times.mtime().secs),
        (0o40_755, 0, 1000)
    );
    assert_eq!(tree.node(NodeId::ROOT).times.mtime().secs, 1000);
    let tree = read(&Tar::new().member("./", b'5', "", b"").end()).unwrap();
    let root = tree.node(NodeId::ROOT);
    assert_eq!((root.mode, root.uid, root.gid), (0o40_644, 1, 2));
}

#[test]
fn hard_links_find_their_targets_wherever_they_are() {
    let tar = Tar::new()
        .member("first", b'1', "later", b"")
        .file("later", b"data")
        .member("l", b'2', "x", b"")
        .member("l2", b'1', "./l", b"")
        .member("later", b'1', "later", b"");
    let tree = read(&tar.end()).unwrap();
    assert_eq!(tree.lookup("first"), tree.lookup("later"));
    assert_eq!(tree.lookup("l"), tree.lookup("l2"));
    assert_eq!(tree.node(tree.lookup("first").unwrap()).nlink, 2);
}

#[test]
fn extended_headers_win_over_the_header() {
    let tar = Tar::new()
        .pax(b'g', &[("uid", "70000"), ("mtime", "5.5"), ("gid", "3")])
        .pax(
            b'x',
            &[
                ("path", "real/name"),
                ("mtime", "-7.25"),
                ("atime", "1"),
                ("ctime", "2.000000001"),
                ("LIBARCHIVE.creationtime", "3"),
                ("uid", "4000000000"),
                ("SCHILY.xattr.user.x", "y"),
                ("LIBARCHIVE.xattr.user.x", "eQ"),
                ("RHT.security.selinux", "system_u:object_r:bin_t:s0"),
                ("SCHILY.xattr.foreign.space", "dropped"),
                ("comment", "ignored"),
            ],
        )
        .file("short", b"d")
        .file("plain", b"p");
    let tree = read(&tar.end()).unwrap();
    let id = tree.lookup("real/name").unwrap();
    let node = tree.node(id);
    assert_eq!((node.uid, node.gid), (4_000_000_000, 3));
    let times = node.times;
    assert_eq!((times.mtime().secs, times.mtime().nanos), (-8, 750_000_000));
    assert_eq!(times.atime().secs, 1);
    assert_eq!(times.ctime().nanos, 1);
    assert_eq!(times.crtime().secs, 3);
    let names: Vec<_> = tree.xattrs(id).iter().map(|x| x.name.to_vec()).collect();
    assert_eq!(names, [b"security.selinux".as_slice(), b"user.x"]);
    assert_eq!(&*tree.xattrs(id)[1].value, b"y");
    let plain = tree.node(tree.lookup("plain").unwrap());
    assert_eq!((plain.uid, plain.times.mtime().secs), (70_000, 5));
}

#[test]
fn excluded_members_stay_out_and_lend_their_data() {
    let tar = Tar::new()
        .file("out/a", b"data")
        .file("b.o", b"object")
        .member("kept", b'1', "b.o", b"")
        .member("also", b'1', "out/a", b"");
    let archive = tempfile::NamedTempFile::new().unwrap();
    fs::write(archive.path(), tar.end()).unwrap();
    let mut options = TarOptions::default();
    options.excludes = Excludes::new(["/out", "*.o"]).unwrap();
    let tree = read_tar(archive.path(), &options).unwrap();
    assert_eq!(tree.len(), 3);
    assert_eq!(content(&tree, "kept").unwrap(), b"object");
    assert_eq!(content(&tree, "also").unwrap(), b"data");
}

#[test]
fn an_archive_may_end_without_its_end_marker_but_only_between_members() {
    let whole = Tar::new().file("a", &[7; 600]).file("b", b"b");
    let bytes = whole.0;
    assert_eq!(read(&bytes).unwrap().len(), 3);
    let padded = [bytes.clone(), vec![0; 10_240]].concat();
    assert_eq!(read(&padded).unwrap().len(), 3);
    assert!(read(&padded).unwrap().concerns(256).is_empty());
    let told = read(&bytes).unwrap().concerns(256);
    assert!(told[0].contains("cut short"), "{told:?}");
    for cut in 1..bytes.len() {
        let boundary = [512 + 1024].contains(&cut);
        let result = read_tar_stream(
            std::io::Cursor::new(bytes[..cut].to_vec()),
            &PathBuf::from("t"),
            &TarOptions::default(),
        );
        assert_eq!(result.is_ok(), boundary, "cut at {cut}");
    }
}
