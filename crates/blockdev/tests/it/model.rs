//! Every device does what a plain vector of bytes does.

use crate::direct_io::direct_io_is_missing;
use extant_blockdev::{
    AlignedBuf, BlockDevice, CowDevice, FileDevice, FileOptions, MemoryDevice, OverlayDevice,
    Request, SharedDevice, WindowDevice,
};
use extant_testkit::rng::seed_from_env;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use tempfile::TempDir;

/// Not a multiple of any alignment, so that the end is awkward, and longer than a chunk.
const SIZE: u64 = 300_000 + 17;

#[derive(Debug, Clone)]
enum Op {
    Write {
        offset: u64,
        len: usize,
        byte: u8,
    },
    WriteVectored {
        offset: u64,
        lens: Vec<usize>,
        byte: u8,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    Read {
        offset: u64,
        len: usize,
    },
    ReadVectored {
        offset: u64,
        lens: Vec<usize>,
    },
    Batch {
        offset: u64,
        lens: Vec<usize>,
        byte: u8,
    },
    Flush,
}

/// Places and lengths that are often aligned and sometimes reach past the end.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..SIZE + 50,
        (0..SIZE / 512).prop_map(|n| n * 512),
        (0..SIZE / 4096).prop_map(|n| n * 4096)
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..2000_usize,
        (0..40_usize).prop_map(|n| n * 4096),
        0..200_000_usize
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let lens = || prop::collection::vec(length(), 0..5);
    prop_oneof![
        3 => (place(), length(), 1..255_u8).prop_map(|(offset, len, byte)| Op::Write { offset, len, byte }),
        1 => (place(), lens(), 1..255_u8).prop_map(|(offset, lens, byte)| Op::WriteVectored { offset, lens, byte }),
        1 => (place(), length()).prop_map(|(offset, len)| Op::Zero { offset, len: len as u64 }),
        2 => (place(), length()).prop_map(|(offset, len)| Op::Read { offset, len }),
        1 => (place(), lens()).prop_map(|(offset, lens)| Op::ReadVectored { offset, lens }),
        1 => (place(), lens(), 1..255_u8).prop_map(|(offset, lens, byte)| Op::Batch { offset, lens, byte }),
        1 => Just(Op::Flush),
    ]
}

/// Bytes that differ from place to place, so that a shifted copy is noticed.
fn pattern(len: usize, byte: u8) -> Vec<u8> {
    (0..len).map(|i| byte.wrapping_add((i / 7) as u8)).collect()
}

fn range(model: &[u8], offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len)?;
    (end <= model.len()).then_some(start..end)
}

fn apply(device: &dyn BlockDevice, model: &mut [u8], op: &Op) {
    match op {
        Op::Write { offset, len, byte } => {
            let data = pattern(*len, *byte);
            let result = device.write_at(*offset, &data);
            match range(model, *offset, *len) {
                Some(range) => {
                    result.expect("a write on the device");
                    model[range].copy_from_slice(&data);
                }
                None => assert!(result.is_err(), "wrote past the end"),
            }
        }
        Op::WriteVectored { offset, lens, byte } => {
            let parts: Vec<Vec<u8>> = lens.iter().map(|len| pattern(*len, *byte)).collect();
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let result = device.write_vectored_at(*offset, &slices);
            let data = parts.concat();
            match range(model, *offset, data.len()) {
                Some(range) => {
                    result.expect("a vectored write on the device");
                    model[range].copy_from_slice(&data);
                }
                None => assert!(result.is_err() || data.is_empty(), "wrote past the end"),
            }
        }
        Op::Zero { offset, len } => {
            let result = device.zero(*offset, *len);
            match range(model, *offset, *len as usize) {
                Some(range) => {
                    result.expect("zeroes on the device");
                    model[range].fill(0);
                }
                None => assert!(result.is_err(), "zeroed past the end"),
            }
        }
        Op::Read { offset, len } => {
            let mut got = vec![0xee; *len];
            let result = device.read_at(*offset, &mut got);
            match range(model, *offset, *len) {
                Some(range) => {
                    result.expect("a read on the device");
                    assert!(
                        got == model[range],
                        "read {len} bytes at {offset}: wrong content"
                    );
                }
                None => assert!(result.is_err(), "read past the end"),
            }
        }
        Op::ReadVectored { offset, lens } => {
            let mut parts: Vec<Vec<u8>> = lens.iter().map(|len| vec![0xee; *len]).collect();
            let mut slices: Vec<IoSliceMut<'_>> =
                parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            let result = device.read_vectored_at(*offset, &mut slices);
            let got = parts.concat();
            match range(model, *offset, got.len()) {
                Some(range) => {
                    result.expect("a vectored read on the device");
                    assert!(
                        got == model[range],
                        "vectored read at {offset}: wrong content"
                    );
                }
                None => assert!(result.is_err() || got.is_empty(), "read past the end"),
            }
        }
        Op::Batch { offset, lens, byte } => apply_batch(device, model, *offset, lens, *byte),
        Op::Flush => device.flush().expect("a flush"),
    }
}

/// Writes that follow each other, a barrier, and reads of the same places.
fn apply_batch(device: &dyn BlockDevice, model: &mut [u8], offset: u64, lens: &[usize], byte: u8) {
    let mut batch = Vec::new();
    let mut at = offset;
    for len in lens {
        batch.push(Request::write(
            at,
            AlignedBuf::copy_of(&pattern(*len, byte)),
        ));
        at += *len as u64;
    }
    batch.push(Request::Flush);
    let mut at = offset;
    for len in lens {
        batch.push(Request::read(at, *len));
        at += *len as u64;
    }
    let done = device.submit(batch).wait();
    assert_eq!(done.len(), 2 * lens.len() + 1, "every request comes back");
    let mut at = offset;
    let mut fine = true;
    for (len, ended) in lens.iter().zip(&done) {
        match range(model, at, *len) {
            Some(range) => {
                assert!(
                    ended.result.is_ok(),
                    "a write on the device: {:?}",
                    ended.result
                );
                model[range].copy_from_slice(&pattern(*len, byte));
            }
            None => {
                assert!(ended.result.is_err(), "wrote past the end");
                fine = false;
            }
        }
        at += *len as u64;
    }
    let mut at = offset;
    for (len, ended) in lens.iter().zip(done.into_iter().skip(lens.len() + 1)) {
        assert_eq!(
            ended.result.is_ok(),
            fine,
            "reads run when everything before the flush did"
        );
        let (start, _) = ended.request.range().expect("a read has a place");
        assert_eq!(start, at, "requests come back with their own offsets");
        if fine {
            let got = ended.request.into_read_buf().expect("a read has a buffer");
            assert!(got[..] == model[range(model, at, *len).expect("it was written")]);
        }
        at += *len as u64;
    }
}

fn check_against_model(name: &str, cases: u32, make: impl Fn() -> SharedDevice) {
    let seed = seed_from_env(name);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, rng)
        .run(&prop::collection::vec(op(), 1..30), |ops| {
            let device = make();
            assert_eq!(device.size(), SIZE);
            let mut model = vec![0; SIZE as usize];
            for op in &ops {
                apply(&*device, &mut model, op);
            }
            let mut all = vec![0; SIZE as usize];
            device.read_at(0, &mut all).expect("the whole device");
            assert!(all == model, "the device ends up with the model's content");
            check_holes(&*device, &model);
            Ok(())
        })
        .unwrap_or_else(|err| panic!("{name}, seed {seed}: {err}"));
}

/// What is not in a data extent is zero, and extents are in order.
fn check_holes(device: &dyn BlockDevice, model: &[u8]) {
    let mut covered = 0;
    for extent in device.data_extents(0..SIZE).expect("data extents") {
        assert!(extent.start >= covered && extent.end > extent.start && extent.end <= SIZE);
        let hole = &model[covered as usize..extent.start as usize];
        assert!(hole.iter().all(|&byte| byte == 0), "a hole holds data");
        covered = extent.end;
    }
    assert!(
        model[covered as usize..].iter().all(|&byte| byte == 0),
        "the last hole holds data"
    );
}

#[test]
fn a_memory_device_is_a_vector_of_bytes() {
    check_against_model("memory", 200, || Arc::new(MemoryDevice::new(SIZE)));
}

#[test]
fn a_file_device_is_a_vector_of_bytes() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("image");
    check_against_model("file", 100, || {
        Arc::new(FileDevice::create(&path, SIZE).expect("a file"))
    });
}

#[test]
fn a_direct_file_device_is_a_vector_of_bytes() {
    let dir = TempDir::new().expect("a directory");
    if direct_io_is_missing(&dir) {
        return;
    }
    let path = dir.path().join("image");
    let options = FileOptions::create(SIZE).direct(true);
    check_against_model("direct file", 60, || {
        Arc::new(options.open(&path).expect("a file"))
    });
}

#[test]
fn an_nbd_export_is_a_vector_of_bytes() {
    // One server for all: what the last case wrote is written over.
    let (_server, device) = crate::nbd::in_memory(SIZE);
    let device = Arc::new(device);
    check_against_model("nbd export", 40, || {
        device.zero(0, SIZE).expect("zeroes");
        Arc::<extant_blockdev::NbdDevice>::clone(&device)
    });
}

#[test]
fn a_window_is_a_vector_of_bytes() {
    check_against_model("window", 100, || {
        let below = Arc::new(MemoryDevice::new(SIZE + 12_345));
        Arc::new(WindowDevice::new(below, 5_000, SIZE).expect("a window"))
    });
}

#[test]
fn an_overlay_that_keeps_writes_is_a_vector_of_bytes() {
    check_against_model("overlay", 100, || {
        let below = Arc::new(MemoryDevice::new(SIZE));
        Arc::new(OverlayDevice::new(below, 1024).keep_writes())
    });
}

#[test]
fn a_device_whose_changes_go_elsewhere_is_a_vector_of_bytes() {
    check_against_model("changes elsewhere", 100, || {
        let below = Arc::new(MemoryDevice::new(SIZE));
        let changes = Arc::new(MemoryDevice::new(SIZE));
        Arc::new(CowDevice::new(below, changes).expect("room for changes"))
    });
}

#[test]
fn an_overlay_that_spills_writes_is_a_vector_of_bytes() {
    check_against_model("overlay with a spool", 100, || {
        let below = Arc::new(MemoryDevice::new(SIZE));
        let spool = Arc::new(MemoryDevice::new(SIZE));
        let overlay = OverlayDevice::new(below, 1024).spill_writes(spool, 5 * 1024);
        Arc::new(overlay.expect("a spool that is long enough"))
    });
}
