//! What is done, and the exit code for it, where nothing reads what the programs tell.

use super::Links;
use extant_testkit::oracle::{assert_clean, debugfs_write, dumpe2fs_header};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs one of ours whose standard output is a pipe that is closed at the other end.
fn unread(links: &Links, name: &str, args: &[&str]) -> i32 {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(links.arg(&format!("bin/{name}")));
    command.args(args).stdin(Stdio::null()).stdout(writer);
    let status = command.status().expect("a program of ours");
    status.code().expect("an exit code")
}

#[test]
fn a_reader_that_is_gone_decides_nothing() {
    let links = Links::new();
    let image = links.arg("image");
    let path = Path::new(&image);
    assert_eq!(unread(&links, "mkfs.ext4", &["-v", &image, "16M"]), 0);
    assert_clean(path);
    assert_eq!(
        unread(&links, "tune2fs", &["-c", "7", "-L", "set", &image]),
        0
    );
    let header = dumpe2fs_header(path);
    assert_eq!(header.field("Filesystem volume name"), "set");
    assert_eq!(header.number("Maximum mount count"), 7);
    assert_eq!(unread(&links, "resize2fs", &[&image, "32M"]), 0);
    assert_eq!(dumpe2fs_header(path).number("Block count"), 32_768);
    assert_eq!(unread(&links, "e2label", &[&image]), 0);
    assert_eq!(unread(&links, "dumpe2fs", &[&image]), 0);
    assert_eq!(unread(&links, "e2fsck", &["-p", &image]), 0);

    debugfs_write(path, &["sif <2> links_count 9", "ssv free_blocks_count 77"]);
    let damaged = fs::read(&image).unwrap();
    assert_eq!(unread(&links, "e2fsck", &["-fn", &image]), 4);
    assert!(fs::read(&image).unwrap() == damaged);
    for mode in ["-fp", "-fy"] {
        fs::write(&image, &damaged).unwrap();
        assert_eq!(unread(&links, "e2fsck", &[mode, &image]), 1, "{mode}");
        assert_clean(path);
    }
    assert_eq!(unread(&links, "fsck.ext4", &["-n", "/nonexistent"]), 8);
}
