//! Images named by path, partition and address.

use extant::image::{How, ImageLocation, PartitionName};
use extant::{Filesystem, MountOptions};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::tool::tool;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of the partition.
const PART: u64 = 16 << 20;

#[test]
fn a_partition_is_opened_by_what_is_written_for_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, part) = (dir.path().join("disk"), dir.path().join("part"));
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&disk)
        .expect("a file");
    file.set_len(PART + (2 << 20)).expect("a size");
    let args = ["-n", "3:2048:34815", "-c", "3:root"];
    tool("sgdisk").args(args).arg(&disk).ok();
    mke2fs(&part, PART, &["-t", "ext4"]);
    let bytes = std::fs::read(&part).expect("a file system");
    file.write_all_at(&bytes, 1 << 20).expect("room");
    let named = |partition: &str| format!("{}#{partition}", disk.display());
    let fs = Filesystem::open_writable(named("root")).expect("the partition");
    fs.write("/file", "text").expect("room");
    fs.close().expect("durable");
    let fs = Filesystem::open(named("3")).expect("the partition");
    assert_eq!(fs.read_to_string("/file").expect("the file"), "text");
    drop(fs);
    let how = How::reading().partition(PartitionName::Label("root".to_owned()));
    let location = ImageLocation::file(&disk);
    let fs = Filesystem::open_location(&location, &how, MountOptions::read_only());
    assert!(fs.expect("the partition").exists("/file").expect("a look"));
    let mut bytes = vec![0; PART as usize];
    file.read_exact_at(&mut bytes, 1 << 20)
        .expect("the partition");
    std::fs::write(&part, bytes).expect("room");
    assert_clean(&part);
    for (text, says) in [
        (named("boot"), "no partition with the label \"boot\""),
        ("nbd:///x".to_owned(), "the host is missing"),
        (
            format!("nbd+unix:///?socket={}", dir.path().join("gone").display()),
            "gone",
        ),
    ] {
        let e = Filesystem::open(&text)
            .expect_err("nothing is there")
            .to_string();
        assert!(e.contains(says), "{text}: {e}");
    }
    // A file of just this name is meant by it.
    std::fs::copy(&part, named("3")).expect("room");
    Filesystem::open_writable(named("3"))
        .expect("the file")
        .write("/own", "1")
        .expect("room");
    let fs = Filesystem::open_location(&location, &how, MountOptions::read_only());
    assert!(!fs.expect("the partition").exists("/own").expect("a look"));
}
