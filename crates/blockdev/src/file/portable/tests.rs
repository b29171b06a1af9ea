//! Files as other systems have them, tried on this one.

use super::*;
use crate::MemoryDevice;
use std::sync::Arc;

fn in_file(size: u64) -> (tempfile::TempDir, PathBuf, FileDevice) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk.img");
    let device = FileDevice::create(&path, size).expect("a device");
    (dir, path, device)
}

#[test]
fn what_is_written_is_read_and_the_rest_is_zeroes() {
    let (_dir, _path, device) = in_file(1 << 20);
    let memory = Arc::new(MemoryDevice::new(1 << 20));
    for (at, len) in [
        (0_u64, 1_usize),
        (4095, 4098),
        (70_000, 65_536),
        ((1 << 20) - 7, 7),
    ] {
        let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
        device.write_at(at, &data).expect("written");
        memory.write_at(at, &data).expect("written");
    }
    device.zero(5000, 1000).expect("zeroed");
    memory.zero(5000, 1000).expect("zeroed");
    let (mut found, mut wanted) = (vec![1; 1 << 20], vec![2; 1 << 20]);
    device.read_at(0, &mut found).expect("read");
    memory.read_at(0, &mut wanted).expect("read");
    assert!(found == wanted);
    device.flush().expect("flushed");
}

#[test]
fn ranges_outside_and_files_cut_meanwhile_are_told() {
    let (_dir, path, device) = in_file(8192);
    let mut buf = [0; 16];
    let outside = device.read_at(8180, &mut buf).expect_err("outside");
    assert!(matches!(outside, DeviceError::OutOfRange { .. }));
    let outside = device.write_at(u64::MAX, &buf).expect_err("outside");
    assert!(matches!(outside, DeviceError::OutOfRange { .. }));
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    file.set_len(4096).expect("cut");
    let shrunk = device.read_at(4090, &mut buf).expect_err("cut");
    assert!(
        matches!(shrunk, DeviceError::Shrunk { offset: 4096, .. }),
        "{shrunk}"
    );
}

#[test]
fn a_second_writer_is_refused_until_the_first_has_gone() {
    let (_dir, path, device) = in_file(4096);
    let refused = FileDevice::open(&path).expect_err("locked");
    assert!(matches!(refused, DeviceError::InUse { .. }), "{refused}");
    let refused = hold_for_replacing(&path).expect_err("locked");
    assert!(matches!(refused, DeviceError::InUse { .. }), "{refused}");
    drop(device);
    let held = hold_for_replacing(&path).expect("free").expect("there");
    drop(held);
    let device = FileDevice::open(&path).expect("free");
    device.grow(10_000).expect("grown");
    assert_eq!(device.size(), 10_000);
    assert_eq!(fs::metadata(&path).expect("there").len(), 10_000);
}

#[test]
fn what_cannot_be_had_here_is_refused_by_name() {
    let (dir, path, device) = in_file(4096);
    drop(device);
    let refused = FileDevice::open_read_only(dir.path()).expect_err("a directory");
    assert!(
        matches!(refused, DeviceError::NotADevice { .. }),
        "{refused}"
    );
    let direct = FileOptions::read_only().direct(true);
    let refused = FileDevice::open_with(&direct, &path).expect_err("direct");
    assert!(
        matches!(refused, DeviceError::NoDirectIo { .. }),
        "{refused}"
    );
    let uring = FileOptions::read_only().backend(Backend::IoUring);
    FileDevice::open_with(&uring, &path).expect_err("no such backend");
    let reader = FileDevice::open_read_only(&path).expect("readable");
    let refused = reader.write_at(0, &[1]).expect_err("for reading");
    assert!(matches!(refused, DeviceError::ReadOnly { .. }), "{refused}");
    let data = reader.next_data(10, 8192).expect("no holes are known");
    assert_eq!(data, Some(10..4096));
}
