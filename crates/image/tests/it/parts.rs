//! Partitions by number and by label, and windows.

use extant_blockdev::{BlockDevice, FileDevice};
use extant_image::{How, ImageLocation, PartitionName};
use extant_testkit::tool::tool;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A disk whose partitions begin with their number; the labels are those given.
fn disk(dir: &Path, labels: &[&str]) -> PathBuf {
    let path = dir.join("disk");
    let device = FileDevice::create(&path, 16 << 20).expect("room");
    let mut parts = Vec::new();
    for (at, label) in (1u64..).zip(labels) {
        let start = at * 2048;
        parts.push(format!("--new={at}:{start}:{}", start + 2047));
        if !label.is_empty() {
            parts.push(format!("--change-name={at}:{label}"));
        }
        let byte = u8::try_from(at).expect("few");
        device.write_at(start * 512, &[byte; 512]).expect("room");
    }
    drop(device);
    tool("sgdisk").args(parts).arg(&path).ok();
    path
}

/// The first byte at a location below a directory, or the sentence.
fn first(disk: &Path, fragment: &str, how: &How) -> Result<u8, String> {
    let mut text = OsString::from(disk);
    text.push(fragment);
    let location = ImageLocation::parse(text).map_err(|e| e.to_string())?;
    let device = location.open(how).map_err(|e| e.to_string())?;
    let mut byte = [0];
    device.read_at(0, &mut byte).map_err(|e| e.to_string())?;
    Ok(byte[0])
}

#[test]
fn partitions_have_numbers_and_labels() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(
        dir.path(),
        &["boot", "EFI system", "twice", "twice", "", "h\u{e9}/x"],
    );
    let how = How::reading();
    assert_eq!(first(&disk, "#1", &how), Ok(1));
    assert_eq!(first(&disk, "#EFI system", &how), Ok(2));
    // What cannot be told from a path inside is no label here.
    assert!(first(&disk, "#h\u{e9}/x", &how).is_err());
    let default = How::reading().partition(PartitionName::Label("h\u{e9}/x".to_owned()));
    assert_eq!(first(&disk, "", &default), Ok(6));
    assert_eq!(first(&disk, "#2", &default), Ok(2));
    // Stronger than the offset for all images.
    assert_eq!(first(&disk, "#2", &How::reading().offset(1 << 20)), Ok(2));
    assert_eq!(first(&disk, "", &How::reading().offset(3 << 20)), Ok(3));
    for (fragment, says) in [
        (
            "#twice",
            "several partitions have the label \"twice\": write the number of one, #3 or #4",
        ),
        (
            "#root",
            "no partition with the label \"root\": it has 1 (\"boot\"), 2 (\"EFI system\")",
        ),
        ("#9", "has no partition 9"),
    ] {
        let e = first(&disk, fragment, &how).expect_err(fragment);
        assert!(e.contains(says), "{fragment}: {e}");
    }
    let both = How::reading()
        .offset(1)
        .partition(PartitionName::Label("boot".to_owned()));
    assert!(
        first(&disk, "", &both)
            .expect_err("both")
            .contains("only one can say")
    );
}

#[test]
fn an_mbr_has_no_labels() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let device = FileDevice::create(&path, 16 << 20).expect("room");
    let mut record = [0; 512];
    record[446 + 4] = 0x83;
    record[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    record[446 + 12..446 + 16].copy_from_slice(&2048u32.to_le_bytes());
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    device.write_at(0, &record).expect("room");
    drop(device);
    assert_eq!(first(&path, "#1", &How::reading()), Ok(0));
    let e = first(&path, "#root", &How::reading()).expect_err("no labels");
    assert!(e.contains("since it has an MBR: write the number"), "{e}");
}

#[test]
fn writes_go_to_the_part_and_nowhere_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk(dir.path(), &["one", "two"]);
    let before = std::fs::read(&disk).expect("the disk");
    let mut text = OsString::from(&disk);
    text.push("#two");
    let device = ImageLocation::parse(text)
        .expect("a path")
        .open(&How::writing().length(4096))
        .expect("a partition");
    assert_eq!(device.size(), 4096);
    device.write_at(0, &[9; 4096]).expect("room");
    assert!(device.write_at(4096, &[9]).is_err());
    device.flush().expect("durable");
    let mut expected = before;
    expected[2 << 20..(2 << 20) + 4096].fill(9);
    assert!(std::fs::read(&disk).expect("the disk") == expected);
}
