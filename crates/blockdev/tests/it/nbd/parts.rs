//! Changes of parts of the server's blocks, by several threads and devices of one process.

use super::Running;
use extant_blockdev::{AlignedBuf, BlockDevice, Request};
use extant_testkit::rng::{Rng, seed_from_env};
use std::io::IoSlice;
use std::thread;
use tempfile::TempDir;

/// Bytes of the server's smallest block, how many there are, and threads that share each of them.
const BLOCK: u64 = 64 << 10;
const BLOCKS: u64 = 4;
const THREADS: u64 = 4;
/// Bytes that one thread after the other has: some cross the bounds of blocks.
const STRIPE: u64 = 1000;

/// nbdkit over a file, with blocks of which no part can be written or read.
fn whole_blocks_only(dir: &TempDir) -> (Running, std::path::PathBuf) {
    let path = dir.path().join("raw");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(BLOCKS * BLOCK).expect("a size");
    let running = Running::nbdkit(&[
        "--filter=blocksize-policy",
        "file",
        &path.display().to_string(),
        "blocksize-minimum=65536",
        "blocksize-preferred=65536",
        "blocksize-error-policy=error",
    ]);
    (running, path)
}

/// Writes bytes in one of the ways that a device has.
fn put(device: &dyn BlockDevice, way: u64, pieces: &[(u64, Vec<u8>)]) {
    match way {
        0 => {
            for (offset, bytes) in pieces {
                device.write_at(*offset, bytes).expect("a write");
            }
        }
        1 => {
            for (offset, bytes) in pieces {
                let (front, back) = bytes.split_at(bytes.len() / 3);
                let slices = [IoSlice::new(front), IoSlice::new(back)];
                device.write_vectored_at(*offset, &slices).expect("a write");
            }
        }
        _ => {
            let write = |(offset, bytes): &(u64, Vec<u8>)| {
                Request::write(*offset, AlignedBuf::copy_of(bytes))
            };
            let batch = pieces.iter().map(write).chain([Request::Flush]).collect();
            device.submit(batch).wait_all().expect("a batch");
        }
    }
}

#[test]
fn threads_and_devices_that_change_parts_of_one_block_lose_nothing() {
    const ROUNDS: u64 = 12;
    let seed = seed_from_env("parts of blocks");
    let dir = TempDir::new().expect("a directory");
    let (running, path) = whole_blocks_only(&dir);
    let devices = [running.open(), running.open()];
    let size = BLOCKS * BLOCK;
    let stripes = size / STRIPE;
    let content = |stripe: u64, round: u64| {
        let mut bytes = vec![0; STRIPE as usize];
        Rng::new(seed ^ (stripe << 20) ^ round).fill(&mut bytes);
        bytes
    };
    thread::scope(|scope| {
        for me in 0..THREADS {
            let device = &devices[(me % 2) as usize];
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let own = (me..stripes).step_by(THREADS as usize);
                    // A batch at a time, some of which change several parts of a block.
                    let own: Vec<u64> = own.collect();
                    for some in own.chunks(5) {
                        let piece = |stripe: &u64| (stripe * STRIPE, content(*stripe, round));
                        let pieces: Vec<_> = some.iter().map(piece).collect();
                        put(device, (round + me) % 3, &pieces);
                    }
                }
            });
        }
    });
    for device in &devices {
        device.flush().expect("a flush");
    }
    let found = std::fs::read(&path).expect("the file behind");
    for stripe in 0..stripes {
        let range = (stripe * STRIPE) as usize..((stripe + 1) * STRIPE) as usize;
        assert!(
            found[range] == content(stripe, ROUNDS - 1)[..],
            "seed {seed:#x}: stripe {stripe}"
        );
    }
}

#[test]
fn a_batch_changes_and_reads_parts_of_blocks_beside_whole_ones() {
    let dir = TempDir::new().expect("a directory");
    let (running, path) = whole_blocks_only(&dir);
    let device = running.open();
    let size = (BLOCKS * BLOCK) as usize;
    let mut model: Vec<u8> = (0..size).map(|n| (n / 77) as u8).collect();
    device.write_at(0, &model).expect("a write");
    // Two in one block, one over three of them, one whole, at both ends of the export.
    let parts = [
        (0, 10),
        (500, 20),
        (BLOCK as usize - 7, 2 * BLOCK as usize + 14),
        (size - 3, 3),
    ];
    let mut batch = Vec::new();
    for (number, (offset, len)) in parts.into_iter().enumerate() {
        let bytes = vec![200 + number as u8; len];
        model[offset..offset + len].copy_from_slice(&bytes);
        batch.push(Request::write(offset as u64, AlignedBuf::copy_of(&bytes)));
    }
    batch.push(Request::Flush);
    batch.push(Request::read(3, 100_000));
    batch.push(Request::read(BLOCK, BLOCK as usize));
    batch.push(Request::Write {
        offset: 77,
        buf: AlignedBuf::zeroed(0).into(),
    });
    batch.push(Request::read(u64::MAX - 5, 10));
    let done = device.submit(batch).wait();
    let (last, rest) = done.split_last().expect("requests");
    assert!(last.result.is_err(), "behind the end");
    assert!(rest.iter().all(|done| done.result.is_ok()), "{rest:?}");
    let mut reads = done
        .into_iter()
        .filter_map(|done| done.request.into_read_buf());
    assert!(reads.next().expect("a read")[..] == model[3..100_003]);
    assert!(reads.next().expect("a read")[..] == model[BLOCK as usize..][..BLOCK as usize]);
    let found = std::fs::read(&path).expect("the file behind");
    assert!(found == model);
}

#[test]
fn what_fails_of_a_block_fails_for_each_that_changes_a_part_of_it() {
    // The filter is nearer to the client than the one that makes errors.
    let running = Running::nbdkit(&[
        "--filter=blocksize-policy",
        "--filter=error",
        "memory",
        "size=1M",
        "blocksize-minimum=65536",
        "blocksize-preferred=65536",
        "blocksize-error-policy=error",
        "error-pwrite-rate=100%",
        "error=ENOSPC",
    ]);
    let device = running.open();
    let write = |offset| Request::write(offset, AlignedBuf::zeroed(512));
    let read = Request::read(3 * BLOCK, 512);
    let done = device.submit(vec![write(0), read, write(1024)]).wait();
    let errors: Vec<_> = done
        .iter()
        .map(|done| done.result.as_ref().err().map(|e| e.errno()))
        .collect();
    assert_eq!(errors, [Some(28), None, Some(28)]);
    assert_eq!(device.write_at(5, &[1]).expect_err("an error").errno(), 28);
    // Nobody has a turn at the block any more.
    assert_eq!(device.write_at(7, &[1]).expect_err("an error").errno(), 28);
}
