//! Changes that go elsewhere: the base is not touched, and parts of a block meet in one block.

use extant_blockdev::{BlockDevice, CowDevice, DeviceError, MemoryDevice, SharedDevice};
use std::sync::Arc;
use std::thread;

const SIZE: usize = 64 * 4096 + 100;

fn base() -> SharedDevice {
    let device = MemoryDevice::new(SIZE as u64);
    device.write_at(0, &[1; SIZE]).expect("a write");
    Arc::new(device)
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut all = vec![0; device.size() as usize];
    device.read_at(0, &mut all).expect("a read");
    all
}

#[test]
fn changes_are_seen_where_they_were_made_and_the_base_stays_as_it_is() {
    let base = base();
    let changes = Arc::new(MemoryDevice::new(SIZE as u64));
    let device = CowDevice::new(Arc::clone(&base), changes).expect("a device");
    assert!(!device.is_read_only());
    let mut expected = vec![1; SIZE];
    for (at, len) in [(0, 1), (4095, 2), (8192, 4096), (SIZE - 150, 150)] {
        device.write_at(at as u64, &vec![2; len]).expect("a write");
        expected[at..at + len].fill(2);
    }
    device.zero(10_000, 30_000).expect("zeroes");
    expected[10_000..40_000].fill(0);
    device.flush().expect("nothing to do");
    assert!(content(&device) == expected);
    // Only whole blocks go, and read as zeroes.
    device.discard(50_000, 10_000).expect("a discard");
    expected[53_248..57_344].fill(0);
    assert!(content(&device) == expected);
    assert!(content(&*base).iter().all(|&byte| byte == 1));
    let past = device.write_at(SIZE as u64 - 1, &[0; 2]);
    assert!(matches!(past, Err(DeviceError::OutOfRange { .. })));
}

#[test]
fn a_device_for_changes_that_is_too_small_is_refused() {
    let changes = Arc::new(MemoryDevice::new(SIZE as u64 - 1));
    let refused = CowDevice::new(base(), changes).expect_err("too small");
    assert!(
        matches!(refused, DeviceError::OutOfRange { .. }),
        "{refused}"
    );
}

#[test]
fn threads_that_change_parts_of_the_same_blocks_lose_nothing() {
    for _ in 0..20 {
        let changes = Arc::new(MemoryDevice::new(SIZE as u64));
        let device = CowDevice::new(base(), changes).expect("a device");
        thread::scope(|scope| {
            for part in 0..4_u8 {
                let device = &device;
                scope.spawn(move || {
                    for block in 0..64 {
                        let at = block * 4096 + u64::from(part) * 1024;
                        device.write_at(at, &[10 + part; 1000]).expect("a write");
                    }
                });
            }
        });
        let mut expected = vec![1; SIZE];
        for block in 0..64 {
            for part in 0..4 {
                let at = block * 4096 + part * 1024;
                expected[at..at + 1000].fill(10 + part as u8);
            }
        }
        assert!(content(&device) == expected);
    }
}
