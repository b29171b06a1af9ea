//! Devices whose transfers go through io_uring.

use crate::direct_io::direct_io_is_missing;
use extant_blockdev::{
    AlignedBuf, Backend, BlockDevice, DeviceError, FileDevice, FileOptions, Request,
};
use extant_testkit::rng::{Rng, seed_from_env};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::thread;
use tempfile::TempDir;

const SIZE: usize = 8 << 20;

/// Prints a named skip if the host does not allow io_uring.
fn io_uring_is_missing(dir: &TempDir) -> bool {
    let path = dir.path().join("ring-probe");
    let options = FileOptions::create(4096).backend(Backend::IoUring);
    match options.open(path) {
        Ok(device) => {
            assert_eq!(device.backend(), Backend::IoUring);
            false
        }
        Err(err) => {
            let required = std::env::var_os("EXTANT_REQUIRE_FACILITIES").is_some_and(|v| v == "1");
            assert!(!required, "io_uring is required: {err}");
            let test = thread::current().name().unwrap_or("test").to_owned();
            let _ = writeln!(io::stderr(), "SKIPPED: needs io_uring ({err}): {test}");
            true
        }
    }
}

/// A device of each kind that there is here.
fn devices(dir: &TempDir) -> Vec<FileDevice> {
    let open = |name: &str, direct: bool| {
        let options = FileOptions::create(SIZE as u64).backend(Backend::IoUring);
        let device = options.direct(direct).open(dir.path().join(name));
        device.expect("a device")
    };
    let mut devices = vec![open("cached", false)];
    if !direct_io_is_missing(dir) {
        devices.push(open("direct", true));
    }
    devices
}

#[test]
fn which_way_transfers_go_can_be_said() {
    let dir = TempDir::new().expect("a directory");
    let open = |backend| {
        let options = FileOptions::create(4096).backend(backend);
        options.open(dir.path().join("image"))
    };
    let system = open(Backend::System).expect("a device");
    assert_eq!(system.backend(), Backend::System);
    drop(system);
    match open(Backend::IoUring) {
        Ok(device) => assert_eq!(device.backend(), Backend::IoUring),
        Err(e) => assert!(e.to_string().contains("io_uring"), "{e}"),
    }
    // Whatever the host has.
    let device = open(Backend::Auto).expect("a device");
    assert_ne!(device.backend(), Backend::Auto);
}

#[test]
fn batches_of_any_size_do_what_memory_does() {
    let dir = TempDir::new().expect("a directory");
    if io_uring_is_missing(&dir) {
        return;
    }
    let mut rng = Rng::new(seed_from_env("io_uring batches"));
    for device in devices(&dir) {
        let mut expected = vec![0; SIZE];
        for round in 0..60 {
            // More than a ring takes at once.
            let blocks = rng.between(1, 300) as usize;
            let mut free: Vec<usize> = (0..SIZE / 4096).collect();
            let mut batch = Vec::new();
            let mut reads = Vec::new();
            for _ in 0..blocks {
                let at = free.swap_remove(rng.below(free.len() as u64) as usize) * 4096;
                if rng.one_in(40) {
                    batch.push(Request::Flush);
                }
                // Some are aligned to nothing.
                let (skip, len) = match rng.below(12) {
                    0 => (7, 1000),
                    1 => (512, 512),
                    _ => (0, 4096),
                };
                let range = at + skip..at + skip + len;
                if rng.one_in(2) {
                    let mut bytes = vec![0; len];
                    rng.fill(&mut bytes);
                    expected[range.clone()].copy_from_slice(&bytes);
                    batch.push(Request::write(
                        range.start as u64,
                        AlignedBuf::copy_of(&bytes),
                    ));
                } else {
                    reads.push((batch.len(), range.clone()));
                    batch.push(Request::read(range.start as u64, len));
                }
            }
            if round % 2 == 0 {
                batch.retain(|r| r.range().is_none_or(|(at, len)| (at | len) % 4096 == 0));
                reads.clear();
                // What was dropped was not written.
                device.read_at(0, &mut expected).expect("a read");
                for request in &batch {
                    if let Request::Write { offset, buf } = request {
                        expected[*offset as usize..][..buf.len()].copy_from_slice(buf);
                    }
                }
            }
            let done = device.submit(batch).wait_all().expect("all succeed");
            for (number, range) in reads {
                let Request::Read { buf, .. } = &done[number] else {
                    panic!("a read comes back as such");
                };
                assert!(buf[..] == expected[range], "round {round}");
            }
        }
        let mut found = vec![0; SIZE];
        device.read_at(0, &mut found).expect("a read");
        assert!(found == expected);
    }
}

#[test]
fn a_failure_before_a_barrier_cancels_what_follows_it() {
    let dir = TempDir::new().expect("a directory");
    if io_uring_is_missing(&dir) {
        return;
    }
    let path = dir.path().join("image");
    let options = FileOptions::create(1 << 20).backend(Backend::IoUring);
    let device = options.open(&path).expect("a device");
    // Cut behind its back: reads past the end find nothing.
    let file = std::fs::File::options().write(true).open(&path);
    file.and_then(|file| file.set_len(8192)).expect("a cut");
    let done = device
        .submit(vec![
            Request::read(512 << 10, 4096),
            Request::write(0, AlignedBuf::copy_of(&[7; 4096])),
            Request::Flush,
            Request::write(4096, AlignedBuf::copy_of(&[7; 4096])),
            Request::Flush,
        ])
        .wait();
    assert!(
        matches!(done[0].result, Err(DeviceError::Shrunk { .. })),
        "{:?}",
        done[0].result
    );
    assert!(done[1].result.is_ok());
    for late in &done[2..] {
        assert!(matches!(late.result, Err(DeviceError::Cancelled)));
    }
    let mut found = [1; 8192];
    device.read_at(0, &mut found).expect("a read");
    assert_eq!(found[..4096], [7; 4096]);
    assert_eq!(found[4096..], [0; 4096]);
}

#[test]
fn large_transfers_go_in_pieces_and_arrive_whole() {
    let dir = TempDir::new().expect("a directory");
    if io_uring_is_missing(&dir) {
        return;
    }
    let mut rng = Rng::new(seed_from_env("io_uring large transfers"));
    for device in devices(&dir) {
        let mut expected = AlignedBuf::zeroed(SIZE);
        rng.fill(&mut expected);
        device.write_at(0, &expected).expect("a write");
        let mut found = AlignedBuf::zeroed(SIZE);
        device.read_at(0, &mut found).expect("a read");
        assert!(found[..] == expected[..]);
        for round in 0..20 {
            // Slices of many lengths, all of them pages.
            let mut lens = Vec::new();
            let mut left = SIZE / 4096;
            while left > 0 {
                let most = if rng.one_in(4) { 400 } else { 3 };
                let len = rng.between(1, most).min(left as u64) as usize;
                lens.push(len * 4096);
                left -= len;
            }
            rng.fill(&mut expected[..4096 * 9]);
            let mut rest = &expected[..];
            let slices: Vec<IoSlice<'_>> = lens
                .iter()
                .map(|&len| {
                    let (now, after) = rest.split_at(len);
                    rest = after;
                    IoSlice::new(now)
                })
                .collect();
            device.write_vectored_at(0, &slices).expect("a write");
            found.fill(0);
            let mut rest = &mut found[..];
            let mut slices = Vec::new();
            for &len in &lens {
                let (now, after) = rest.split_at_mut(len);
                rest = after;
                slices.push(IoSliceMut::new(now));
            }
            device.read_vectored_at(0, &mut slices).expect("a read");
            assert!(found[..] == expected[..], "round {round}");
        }
    }
}

#[test]
fn many_threads_use_a_device_at_once() {
    let dir = TempDir::new().expect("a directory");
    if io_uring_is_missing(&dir) {
        return;
    }
    for device in devices(&dir) {
        thread::scope(|scope| {
            for number in 0..8_u8 {
                let device = &device;
                scope.spawn(move || {
                    let start = u64::from(number) << 20;
                    for round in 0..40_u8 {
                        let batch = (0..64).map(|i| {
                            let bytes = [number ^ round ^ i; 4096];
                            let at = start + u64::from(i) * 4096;
                            Request::write(at, AlignedBuf::copy_of(&bytes))
                        });
                        device.submit(batch.collect()).wait_all().expect("writes");
                        let batch = (0..64_u64).map(|i| Request::read(start + i * 4096, 4096));
                        let done = device.submit(batch.collect()).wait_all().expect("reads");
                        for (i, request) in (0..).zip(done) {
                            let buf = request.into_read_buf().expect("a read");
                            assert_eq!(buf[..], [number ^ round ^ i; 4096]);
                        }
                    }
                });
            }
        });
    }
}
