//! What an image is said to be, by the library's own door.
#![cfg(feature = "formats")]

use extant_image::{How, ImageFormat, ImageLocation};
use extant_testkit::oracle::mke2fs;
use std::fs::File;
use std::os::unix::fs::FileExt;

#[test]
fn what_is_said_goes_before_what_is_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    mke2fs(&path, 8 << 20, &["-t", "ext4"]);
    let location = ImageLocation::file(&path);
    let open = |format: Option<&str>| {
        let format = format.map(|word| word.parse::<ImageFormat>().expect("a word"));
        location.open_disk(&How::reading().format(format))
    };
    let opened = open(None).expect("raw");
    assert!(opened.container.is_none() && opened.is_file);
    let file = File::options().write(true).open(&path).expect("the disk");
    file.write_all_at(b"QFI\xfb\0\0\0\x03", 0).expect("room");
    let error = open(None).expect_err("two marks").to_string();
    assert!(error.contains("--image-format raw"), "{error}");
    let opened = open(Some("raw")).expect("raw");
    assert!(opened.container.is_none() && opened.is_file);
    assert_eq!(opened.device.size(), 8 << 20);
    // The mark is there, and what is behind it is no image.
    let error = open(Some("qcow2")).expect_err("damaged").to_string();
    assert!(error.contains("qcow2"), "{error}");
    let error = open(Some("simg")).expect_err("no mark").to_string();
    assert!(error.contains("has no mark of one"), "{error}");
    assert!(error.starts_with(&path.display().to_string()), "{error}");
}
