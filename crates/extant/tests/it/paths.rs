//! Paths: links, `..`, limits and errors.

use crate::support::{Image, plan};
use extant::Filesystem;
use std::io::ErrorKind;
use std::path::Path;

fn kind(fs: &Filesystem, path: &str) -> ErrorKind {
    fs.metadata(path).expect_err(path).kind()
}

#[test]
fn links_are_resolved_inside_the_file_system() {
    let image = Image::of(&plan());
    let fs = image.open();
    let file = fs.metadata("/a/b/c/file").unwrap().ino();
    for path in [
        "to-file",
        "/to-dir/c/file",
        "a/./b//c/file",
        "/a/b/../b/c/file",
        "slash/c/file",
    ] {
        assert_eq!(fs.metadata(path).unwrap().ino(), file, "{path}");
    }
    let top = fs.metadata("top").unwrap().ino();
    for path in [
        "/a/b/up",
        "/to-dir/up",
        "far-up",
        "/../../top",
        "a/../../../top",
        "chain39",
    ] {
        assert_eq!(fs.metadata(path).unwrap().ino(), top, "{path}");
    }
    assert!(fs.metadata("/").unwrap().is_dir());
    assert!(fs.metadata("..").unwrap().is_dir());
}

#[test]
fn the_last_link_stands_for_itself_where_that_is_asked_for() {
    let image = Image::of(&plan());
    let fs = image.open();
    assert!(fs.symlink_metadata("to-dir").unwrap().is_symlink());
    assert!(fs.symlink_metadata("to-dir/").unwrap().is_dir());
    assert!(fs.symlink_metadata("to-dir/.").unwrap().is_dir());
    assert_eq!(fs.read_link("to-dir").unwrap(), Path::new("/a/b"));
    assert_eq!(
        fs.read_link("top").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn errors_are_those_of_the_system() {
    let image = Image::of(&plan());
    let fs = image.open();
    assert_eq!(kind(&fs, "missing"), ErrorKind::NotFound);
    assert_eq!(kind(&fs, ""), ErrorKind::NotFound);
    assert_eq!(kind(&fs, "nowhere"), ErrorKind::NotFound);
    assert_eq!(kind(&fs, "top/x"), ErrorKind::NotADirectory);
    assert_eq!(kind(&fs, "top/"), ErrorKind::NotADirectory);
    assert_eq!(kind(&fs, "top/.."), ErrorKind::NotADirectory);
    assert_eq!(fs.metadata("loop").unwrap_err().errno(), 40);
    assert_eq!(fs.metadata("chain40").unwrap_err().errno(), 40);
    assert_eq!(kind(&fs, &"n".repeat(256)), ErrorKind::InvalidFilename);
    let e = fs.open_file("a").unwrap_err();
    assert_eq!(e.to_string(), "a: is a directory");
    assert_eq!(std::io::Error::from(e).kind(), ErrorKind::IsADirectory);
    assert!(!fs.exists("nowhere").unwrap());
    assert!(!fs.exists("top/x").unwrap());
    assert!(fs.exists("to-file").unwrap());
    assert!(fs.exists("loop").is_err());
}

#[test]
fn what_is_no_file_system_is_said_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.img");
    std::fs::write(&path, vec![0; 64 << 10]).unwrap();
    let e = Filesystem::open(&path).unwrap_err();
    assert!(e.to_string().contains("x.img"), "{e}");
    let e = Filesystem::open(dir.path().join("gone")).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
}
