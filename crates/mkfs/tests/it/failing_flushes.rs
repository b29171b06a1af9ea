//! Flushes that fail while a file system is made: nothing is written after them.

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_mkfs::defaults::FormatOptions;
use extant_mkfs::metadata::{Target, format_empty};
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use std::sync::Arc;

const SIZE: usize = 16 << 20;
const SUPERBLOCK: std::ops::Range<usize> = 1024..2048;
/// Where in it the magic number is.
const MAGIC: std::ops::Range<usize> = 1080..1082;

#[test]
fn nothing_is_written_after_a_flush_that_failed() {
    let options = FormatOptions::reproducible(SIZE as u64, 1_600_000_000, b"test");
    for in_flight in [1, 32] {
        for good in 0..4 {
            let memory = Arc::new(MemoryDevice::from_image(&vec![0xff; SIZE]));
            let device = FaultDevice::new(memory.clone()).far(in_flight);
            device.inject(FaultRule::fail_nth(IoKind::Flush, good));
            let made = format_empty(&device, &options, Target::Unknown);
            assert_eq!(made.is_err(), good < 3, "{good} of {in_flight}");
            let mut found = vec![0; SIZE];
            memory.read_at(0, &mut found).unwrap();
            match good {
                // What the old superblock told of is there while that may be.
                0 => assert!(found[SUPERBLOCK.end..].iter().all(|byte| *byte == 0xff)),
                // There is no superblock before all that it tells of is durable.
                1 => assert!(found[SUPERBLOCK].iter().all(|byte| *byte == 0)),
                _ => assert_eq!(found[MAGIC], [0x53, 0xef]),
            }
        }
    }
}
