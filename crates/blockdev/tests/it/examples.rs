//! The examples.

use extant_blockdev::{AlignedBuf, BlockDevice, MemoryDevice, Request, SharedDevice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[path = "../../examples/custom_device.rs"]
#[allow(dead_code, reason = "its main is for a program of its own")]
mod custom_device;
#[path = "../../examples/from_memory.rs"]
#[allow(dead_code, reason = "its main is for a program of its own")]
mod from_memory;

use custom_device::Counted;

/// A disk of 4 MiB with a boot record of one Linux partition from sector 2048 on, all of it that is
/// left.
fn disk() -> Vec<u8> {
    let mut disk = vec![0; 4 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let entry = &mut disk[446..462];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
    entry[12..16].copy_from_slice(&6144_u32.to_le_bytes());
    disk
}

#[test]
fn partitions_in_memory_are_told_with_their_content() {
    let lines = from_memory::describe(&disk()).unwrap();
    assert_eq!(lines, ["1: 3145728 bytes, Zeros"]);
    assert!(from_memory::describe(&[0; 1 << 20]).is_err(), "no table");
}

#[test]
fn a_change_that_is_tried_stays_in_memory() {
    let disk = disk();
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&disk));
    assert_eq!(
        from_memory::try_change(device.clone(), &[7; 5000]).unwrap(),
        2
    );
    let mut after = vec![1; disk.len()];
    device.read_at(0, &mut after).unwrap();
    assert!(after == disk, "the device below was written to");
}

#[test]
fn a_device_of_ones_own_sees_batches_and_zeroes_as_reads_and_writes() {
    let counted = Counted::new(Arc::new(MemoryDevice::new(1 << 20)));
    let batch = vec![
        Request::write(4096, AlignedBuf::copy_of(&[1; 100])),
        Request::write(0, AlignedBuf::copy_of(&[2; 20])),
    ];
    counted.submit(batch).wait_all().unwrap();
    counted.zero(8192, 4096).unwrap();
    let mut buf = [0; 100];
    counted.read_at(4096, &mut buf).unwrap();
    assert_eq!(buf, [1; 100]);
    assert_eq!(counted.written.load(Ordering::Relaxed), 100 + 20 + 4096);
    assert_eq!(counted.read.load(Ordering::Relaxed), 100);
    assert!(counted.read_at(1 << 20, &mut buf).is_err(), "past the end");
}
