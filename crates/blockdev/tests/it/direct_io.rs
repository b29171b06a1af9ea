//! Direct I/O for callers of any alignment.

use extant_blockdev::{AlignedBuf, BlockDevice, DeviceError, FileDevice, FileOptions, Request};
use std::fs;
use std::io::{self, Write};
use std::thread;
use tempfile::TempDir;

/// Prints a named skip if the file system of the temporary directory has no direct I/O.
pub(crate) fn direct_io_is_missing(dir: &TempDir) -> bool {
    let path = dir.path().join("probe");
    match FileOptions::create(4096).direct(true).open(path) {
        Err(err @ DeviceError::NoDirectIo { .. }) => {
            let required = std::env::var_os("EXTANT_REQUIRE_FACILITIES").is_some_and(|v| v == "1");
            assert!(!required, "direct I/O is required: {err}");
            let test = thread::current().name().unwrap_or("test").to_owned();
            let _ = writeln!(io::stderr(), "SKIPPED: needs direct I/O ({err}): {test}");
            true
        }
        opened => {
            opened.expect("a file");
            false
        }
    }
}

fn direct(dir: &TempDir, size: u64) -> FileDevice {
    let options = FileOptions::create(size).direct(true);
    let path = dir.path().join("image");
    options.open(path).expect("a file with direct I/O")
}

#[test]
fn unaligned_writes_keep_their_neighbours() {
    let dir = TempDir::new().expect("a directory");
    if direct_io_is_missing(&dir) {
        return;
    }
    let device = direct(&dir, 1 << 20);
    assert!(device.is_direct());
    device.write_at(0, &vec![1; 1 << 20]).expect("a write");
    device.write_at(1024, &[2; 1024]).expect("a superblock");
    device
        .write_at(100_001, &[3; 70_003])
        .expect("an awkward write");
    let mut expected = vec![1; 1 << 20];
    expected[1024..2048].fill(2);
    expected[100_001..170_004].fill(3);
    let mut got = vec![0; 1 << 20];
    device.read_at(0, &mut got).expect("a read");
    assert!(got == expected);
    device.flush().expect("a flush");
    assert!(fs::read(dir.path().join("image")).expect("the file") == expected);
}

#[test]
fn a_tail_that_fills_no_sector_keeps_its_length() {
    let dir = TempDir::new().expect("a directory");
    if direct_io_is_missing(&dir) {
        return;
    }
    let size = 3 * 4096 + 100;
    let device = direct(&dir, size);
    device
        .write_at(0, &vec![7; size as usize])
        .expect("a write of everything");
    device
        .write_at(size - 1, &[8])
        .expect("a write of the last byte");
    assert_eq!(
        fs::metadata(dir.path().join("image"))
            .expect("the file")
            .len(),
        size
    );
    let mut got = [0; 200];
    device
        .read_at(size - 200, &mut got)
        .expect("a read of the end");
    assert!(got[..199].iter().all(|&byte| byte == 7) && got[199] == 8);
}

#[test]
fn unaligned_writers_of_one_sector_do_not_lose_each_others_bytes() {
    let dir = TempDir::new().expect("a directory");
    if direct_io_is_missing(&dir) {
        return;
    }
    let device = direct(&dir, 64 << 10);
    thread::scope(|scope| {
        for t in 0..8_u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..50_u8 {
                    for sector in 0..4 {
                        let offset = sector * 4096 + t * 512;
                        device
                            .write_at(offset, &[round + t as u8; 512])
                            .expect("a write");
                    }
                }
            });
        }
    });
    for sector in 0..4 {
        for t in 0..8_u64 {
            let mut got = [0; 512];
            device
                .read_at(sector * 4096 + t * 512, &mut got)
                .expect("a read");
            assert_eq!(got, [49 + t as u8; 512]);
        }
    }
}

#[test]
fn aligned_batches_go_through_as_they_are() {
    let dir = TempDir::new().expect("a directory");
    if direct_io_is_missing(&dir) {
        return;
    }
    let device = direct(&dir, 1 << 20);
    let blocks = (0..100_u64)
        .map(|i| Request::write(i * 4096, AlignedBuf::copy_of(&[i as u8; 4096])))
        .chain([Request::Flush]);
    device
        .submit(blocks.collect())
        .wait_all()
        .expect("a batch of writes");
    let reads = (0..100_u64)
        .map(|i| Request::read(i * 4096, 4096))
        .collect();
    let read = device.submit(reads).wait_all().expect("a batch of reads");
    for (i, request) in read.into_iter().enumerate() {
        let buf = request.into_read_buf().expect("a read");
        assert!(buf.iter().all(|&byte| byte == i as u8));
    }
}

#[test]
fn reads_past_the_cache_take_any_place_and_see_what_the_file_has() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("image");
    // A tail that fills no sector, and a device that otherwise goes through the page cache.
    let size = (1 << 20) + 700;
    let device = FileDevice::create(&path, size).expect("a file");
    let expected: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
    device.write_at(0, &expected).expect("a write");
    for (at, len) in [(0, 1024), (1000, 5000), (size - 1000, 1000), (4096, 4096)] {
        let mut got = vec![0; len];
        device.read_uncached_at(at, &mut got).expect("a read");
        let at = at as usize;
        assert!(got == expected[at..at + len], "{at}+{len}");
    }
    // What somebody else writes meanwhile is seen by the next read.
    let other = fs::OpenOptions::new().write(true).open(&path);
    std::os::unix::fs::FileExt::write_all_at(&other.expect("the file"), &[7; 300], 1000)
        .expect("a write");
    let mut got = [0; 300];
    device.read_uncached_at(1000, &mut got).expect("a read");
    assert_eq!(got, [7; 300]);
    let past = device.read_uncached_at(size - 10, &mut got);
    assert!(matches!(past, Err(DeviceError::OutOfRange { .. })));
}
