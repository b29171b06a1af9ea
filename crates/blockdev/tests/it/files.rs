//! The file device: opening, locking, holes, files that change below.

use extant_blockdev::{BlockDevice, DeviceError, FileDevice, FileOptions};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

fn scratch() -> TempDir {
    TempDir::new().expect("a directory")
}

#[test]
fn a_second_writer_is_refused_until_the_first_is_gone() {
    let dir = scratch();
    let path = dir.path().join("image");
    let first = FileDevice::create(&path, 1 << 20).expect("a file");
    first.write_at(0, b"mine").expect("a write");
    for options in [FileOptions::read_write(), FileOptions::create(5)] {
        let err = options.open(&path).expect_err("it is open for writing");
        assert!(matches!(err, DeviceError::InUse { .. }));
        let text = err.to_string();
        assert!(text.contains("image") && text.contains("in use"), "{text}");
    }
    assert_eq!(
        fs::metadata(&path).expect("the file").len(),
        1 << 20,
        "nothing was truncated"
    );
    let reader = FileDevice::open_read_only(&path).expect("readers are let in");
    let mut got = [0; 4];
    reader.read_at(0, &mut got).expect("a read");
    assert_eq!(&got, b"mine");
    drop(first);
    FileDevice::open(&path).expect("the lock is gone");
}

#[test]
fn a_device_open_for_reading_refuses_every_change() {
    let dir = scratch();
    let path = dir.path().join("image");
    fs::write(&path, [1; 8192]).expect("a file");
    let device = FileDevice::open_read_only(&path).expect("a device");
    assert!(device.is_read_only());
    for result in [
        device.write_at(0, &[0]),
        device.zero(0, 512),
        device.discard(0, 512),
        device.set_len(1),
    ] {
        let err = result.expect_err("read only");
        assert!(matches!(err, DeviceError::ReadOnly { .. }), "{err}");
    }
    device.flush().expect("nothing to flush");
    assert_eq!(fs::read(&path).expect("the file"), [1; 8192]);
}

#[test]
fn only_files_and_block_devices_are_devices() {
    let dir = scratch();
    let cases = [
        (dir.path(), "a directory"),
        (Path::new("/dev/null"), "a character device"),
    ];
    for (path, kind) in cases {
        let err = FileDevice::open_read_only(path).expect_err("not a device");
        assert!(err.to_string().contains(kind), "{err}");
    }
    let missing = dir.path().join("missing");
    let err = FileDevice::open(&missing).expect_err("no file");
    assert!(matches!(err, DeviceError::Open { .. }));
    assert!(err.to_string().contains("missing"), "{err}");
    assert!(!missing.exists(), "opening does not create");
}

#[test]
fn creating_anew_refuses_what_exists_and_leaves_nothing_when_it_fails() {
    let dir = scratch();
    let path = dir.path().join("image");
    fs::write(&path, b"keep").expect("a file");
    FileOptions::create_new(100)
        .open(&path)
        .expect_err("it exists");
    assert_eq!(fs::read(&path).expect("the file"), b"keep");
    let other = dir.path().join("other");
    FileOptions::create_new(u64::MAX / 2 + 2)
        .open(&other)
        .expect_err("no file is that long");
    assert!(!other.exists());
}

#[test]
fn a_file_that_shrank_is_reported_with_its_old_size() {
    let dir = scratch();
    let path = dir.path().join("image");
    let device = FileDevice::create(&path, 1 << 20).expect("a file");
    let cut = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("the file");
    cut.set_len(10_000).expect("a shorter file");
    let err = device
        .read_at(8_192, &mut [0; 4096])
        .expect_err("the data is gone");
    let DeviceError::Shrunk { offset, size, .. } = &err else {
        panic!("{err}")
    };
    assert_eq!((*offset, *size), (10_000, 1 << 20));
}

#[test]
fn zeroes_and_growth_take_no_space() {
    let dir = scratch();
    let path = dir.path().join("image");
    let device = FileDevice::create(&path, 8 << 20).expect("a file");
    device.write_at(0, &vec![1; 8 << 20]).expect("a write");
    device.flush().expect("a flush");
    let full = fs::metadata(&path).expect("the file").blocks();
    device.zero(1 << 20, 6 << 20).expect("zeroes");
    let holed = fs::metadata(&path).expect("the file").blocks();
    assert!(
        holed < full / 2,
        "{holed} of {full} sectors are still in use"
    );
    let extents = device.data_extents(0..8 << 20).expect("extents");
    assert_eq!(extents, [0..1 << 20, 7 << 20..8 << 20]);
    device.set_len(1 << 40).expect("a long file");
    assert_eq!(device.size(), 1 << 40);
    assert_eq!(fs::metadata(&path).expect("the file").blocks(), holed);
    device
        .write_at((1 << 40) - 3, b"end")
        .expect("a write at the new end");
}

#[test]
fn errors_name_the_file_and_the_numbers() {
    let dir = scratch();
    let path = dir.path().join("image");
    let device = FileDevice::create(&path, 1000).expect("a file");
    let err = device
        .read_at(900, &mut [0; 200])
        .expect_err("past the end");
    let text = err.to_string();
    for part in ["read 200 bytes", "offset 900", "image", "1000"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_file_can_be_opened_again_at_once_while_other_threads_start_processes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    FileDevice::create(&path, 4096).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                std::process::Command::new("true").status().unwrap();
            }
        });
        let opened = (0..2000).try_for_each(|_| FileDevice::open(&path).map(drop));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.unwrap();
    });
}
