//! The memory device: sparse and shared.

use extant_blockdev::{BlockDevice, MemoryDevice};
use std::thread;

const TIB: u64 = 1 << 40;

#[test]
fn sixteen_tebibytes_cost_what_was_touched() {
    let device = MemoryDevice::new(16 * TIB);
    device
        .write_at(16 * TIB - 5, b"about")
        .expect("a write at the end");
    device
        .write_at(3 * TIB, b"there")
        .expect("a write in the middle");
    let mut got = [0; 5];
    device.read_at(16 * TIB - 5, &mut got).expect("a read");
    assert_eq!(&got, b"about");
    assert!(device.allocated_bytes() <= 2 * 64 * 1024);

    let extents = device.data_extents(0..16 * TIB).expect("data extents");
    assert_eq!(extents.len(), 2);
    assert!(extents[0].contains(&(3 * TIB)) && extents[1].contains(&(16 * TIB - 1)));

    device.zero(0, 16 * TIB).expect("zeroes everywhere");
    assert_eq!(device.allocated_bytes(), 0);
    assert!(
        device
            .data_extents(0..16 * TIB)
            .expect("data extents")
            .is_empty()
    );
}

#[test]
fn an_image_is_copied_without_its_zeroes() {
    let mut image = vec![0; 1 << 20];
    image[700_000] = 1;
    let device = MemoryDevice::from_image(&image);
    assert_eq!(device.allocated_bytes(), 64 * 1024);
    let mut got = vec![1; image.len()];
    device.read_at(0, &mut got).expect("a read");
    assert!(got == image);
}

#[test]
fn direct_memory_sees_what_was_written() {
    let device = MemoryDevice::new(1 << 20);
    let memory = device.direct().expect("memory is memory");
    memory
        .copy_in(65_530, b"across a chunk")
        .expect("a copy in");
    memory.persist(65_530..65_544).expect("durable");
    let mut got = [0; 14];
    device.read_at(65_530, &mut got).expect("a read");
    assert_eq!(&got, b"across a chunk");
    memory
        .copy_out((1 << 20) - 1, &mut got)
        .expect_err("past the end");
}

#[test]
fn threads_that_write_next_to_each_other_do_not_disturb() {
    let device = MemoryDevice::new(1 << 20);
    const THREADS: u64 = 8;
    thread::scope(|scope| {
        for t in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                for i in (t..1000).step_by(THREADS as usize) {
                    let block = [t as u8 + 1; 1000];
                    device.write_at(i * 1000, &block).expect("a write");
                    let mut got = [0; 1000];
                    device.read_at(i * 1000, &mut got).expect("a read");
                    assert_eq!(got, block);
                }
            });
        }
    });
    for i in 0..1000 {
        let mut got = [0; 1000];
        device.read_at(i * 1000, &mut got).expect("a read");
        assert_eq!(got, [(i % THREADS) as u8 + 1; 1000]);
    }
}

#[test]
fn copies_within_a_part_are_whole() {
    let device = MemoryDevice::new(1 << 20);
    let memory = device.direct().expect("memory is memory");
    let part = memory.whole_within();
    // To the end of a part.
    let (at, len) = (2 * part - 9_000, 9_000);
    memory.copy_in(at, &vec![1; len]).expect("a copy in");
    thread::scope(|scope| {
        for own in [1_u8, 2] {
            scope.spawn(move || {
                let bytes = vec![own; len];
                for _ in 0..2_000 {
                    memory.copy_in(at, &bytes).expect("a copy in");
                }
            });
        }
        let mut found = vec![0; len];
        for _ in 0..2_000 {
            memory.copy_out(at, &mut found).expect("a copy out");
            assert!(found.iter().all(|byte| *byte == found[0]));
        }
    });
}
