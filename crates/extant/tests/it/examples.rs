//! The examples, run on images that mke2fs made and e2fsck judges.

use crate::support::Blank;
use extant::Filesystem;
use std::path::Path;

#[path = "../../examples/change_file.rs"]
#[allow(dead_code, reason = "its main is for a program of its own")]
mod change_file;
#[path = "../../examples/read_file.rs"]
#[allow(dead_code, reason = "its main is for a program of its own")]
mod read_file;

fn shown(image: &Path, path: &str) -> String {
    let mut out = Vec::new();
    read_file::show(image, Path::new(path), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_file_that_is_replaced_is_read_back_by_the_other_example() {
    let image = Blank::new(32);
    let path = Path::new("/etc/motd");
    change_file::replace(image.path(), path, b"first\n").unwrap();
    image.check();
    assert_eq!(shown(image.path(), "/etc/motd"), "first\n");
    change_file::replace(image.path(), path, b"second, and longer\n").unwrap();
    image.check();
    assert_eq!(shown(image.path(), "/etc/motd"), "second, and longer\n");
    assert_eq!(shown(image.path(), "/etc"), "          19 motd\n");
    let before = std::fs::read(image.path()).unwrap();
    assert!(shown(image.path(), "/").contains("lost+found"));
    assert!(
        before == std::fs::read(image.path()).unwrap(),
        "reading wrote"
    );
}

#[test]
fn what_the_examples_cannot_do_they_say() {
    let image = Blank::new(32);
    let e = read_file::show(image.path(), Path::new("/none"), &mut Vec::new()).unwrap_err();
    assert_eq!(e.to_string(), "/none: no such file or directory");
    let held = Filesystem::open_writable(image.path()).unwrap();
    let e = change_file::replace(image.path(), Path::new("/a"), b"").unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::ResourceBusy, "{e}");
    held.close().unwrap();
    image.check();
}
