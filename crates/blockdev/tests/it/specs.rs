//! From what a user says to a device.

use crate::direct_io::direct_io_is_missing;
use extant_blockdev::{BlockDevice, DeviceError, FileDevice, OpenSpec};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::require;
use std::fs;
use tempfile::TempDir;

fn image(dir: &TempDir) -> std::path::PathBuf {
    let path = dir.path().join("disk.img");
    let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i / 1000) as u8).collect();
    fs::write(&path, bytes).expect("an image");
    path
}

#[test]
fn an_offset_and_a_length_make_a_window() {
    let dir = TempDir::new().expect("a directory");
    let spec = OpenSpec::read_only(image(&dir)).offset(40_000);
    let device = spec.open().expect("a device");
    assert_eq!(device.size(), 60_000);
    let device = spec.length(2_000).open().expect("a device");
    let mut got = [0; 2_000];
    device.read_at(0, &mut got).expect("a read");
    assert_eq!((device.size(), got[0], got[1_999]), (2_000, 40, 41));
    let err = device.write_at(0, &[1]).expect_err("read only");
    assert!(
        err.to_string().contains("disk.img from byte 40000"),
        "{err}"
    );
}

#[test]
fn direct_and_writable_devices_are_opened_as_asked() {
    let dir = TempDir::new().expect("a directory");
    if direct_io_is_missing(&dir) {
        return;
    }
    let path = image(&dir);
    let spec = OpenSpec::read_write(&path).direct(true).offset(512);
    let device = spec.open().expect("a device");
    device.write_at(1, b"written").expect("a write");
    device.flush().expect("a flush");
    assert_eq!(fs::read(&path).expect("the file")[513..520], *b"written");
    let err = OpenSpec::read_write(&path)
        .open()
        .expect_err("already open");
    assert!(matches!(err, DeviceError::InUse { .. }));
}

#[test]
fn contradictions_and_places_off_the_image_are_explained() {
    let dir = TempDir::new().expect("a directory");
    let path = image(&dir);
    let cases = [
        (
            OpenSpec::read_only(&path).offset(1).partition(2),
            "both partition 2 and offset 1",
        ),
        (
            OpenSpec::read_only(&path).offset(200_000),
            "ends at byte 100000",
        ),
        (
            OpenSpec::read_only(&path).length(100_001),
            "ends at byte 100000",
        ),
        (
            OpenSpec::read_only(&path).partition(1),
            "no partition table",
        ),
    ];
    for (spec, part) in cases {
        let text = spec.open().expect_err("not there").to_string();
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_block_special_file_has_its_own_size_and_is_opened_by_one_writer() {
    require!(Root, LoopDevices);
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("disk.img");
    fs::write(&path, vec![6; 1 << 20]).expect("an image");
    let node = LoopDevice::attach(&path, Access::ReadWrite).expect("a loop device");
    let device = FileDevice::open(node.path()).expect("a block device");
    assert_eq!((device.size(), device.logical_sector()), (1 << 20, 512));
    let err = FileDevice::open(node.path()).expect_err("one writer");
    assert!(matches!(err, DeviceError::InUse { .. }), "{err}");
    device.write_at(5_000, b"block").expect("a write");
    device.zero(8_192, 65_536).expect("zeroes");
    device
        .zero(100_001, 10)
        .expect("zeroes that fill no sector");
    device.discard(0, 4_096).expect("a discard");
    device.flush().expect("a flush");
    let mut got = [1; 20];
    device.read_at(99_996, &mut got).expect("a read");
    assert_eq!(got[..], [[6; 5].as_slice(), &[0; 10], &[6; 5]].concat());
    device.read_at(8_192, &mut got).expect("a read");
    assert_eq!(got, [0; 20]);
    let extents = device.data_extents(0..1 << 20).expect("extents");
    assert_eq!(extents, vec![0..1_u64 << 20; 1]);
    let err = device.set_len(2 << 20).expect_err("it cannot grow");
    assert!(
        matches!(
            err,
            DeviceError::TooSmall {
                available: 1_048_576,
                ..
            }
        ),
        "{err}"
    );
    drop(device);
    let err = FileDevice::create(node.path(), 2 << 20).expect_err("it cannot grow");
    assert!(matches!(err, DeviceError::TooSmall { .. }), "{err}");
    let device = FileDevice::create(node.path(), 1000).expect("it is large enough");
    device.read_at(5_000, &mut got[..5]).expect("a read");
    assert_eq!((device.size(), &got[..5]), (1 << 20, &b"block"[..]));
}
