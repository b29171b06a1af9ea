//! Windows: bounds and read-only views.

use extant_blockdev::{
    BlockDevice, DeviceError, MemoryDevice, Request, SharedDevice, WindowDevice,
};
use std::sync::Arc;

#[test]
fn a_window_must_lie_on_its_device() {
    let below: SharedDevice = Arc::new(MemoryDevice::new(10_000));
    for (start, len) in [(0, 10_001), (10_000, 1), (1, u64::MAX), (u64::MAX, 1)] {
        let err = WindowDevice::new(Arc::clone(&below), start, len).expect_err("not on the device");
        assert!(
            matches!(err, DeviceError::BadWindow { size: 10_000, .. }),
            "{err}"
        );
    }
    assert!(WindowDevice::from_offset(Arc::clone(&below), 10_001).is_err());
    let rest = WindowDevice::from_offset(below, 9_000).expect("the rest");
    assert_eq!((rest.start(), rest.size()), (9_000, 1_000));
}

#[test]
fn nothing_outside_the_window_can_be_reached() {
    let below: SharedDevice = Arc::new(MemoryDevice::new(10_000));
    below.write_at(0, &[5; 10_000]).expect("a write");
    let window = WindowDevice::new(Arc::clone(&below), 1_000, 2_000).expect("a window");
    assert!(window.write_at(1_999, &[0; 2]).is_err());
    assert!(window.zero(0, 2_001).is_err());
    assert!(window.discard(2_000, 1).is_err());
    assert!(window.read_at(u64::MAX, &mut [0; 2]).is_err());
    window
        .direct()
        .expect("memory below")
        .copy_in(1_999, &[0; 2])
        .expect_err("past the end");
    let batch = vec![
        Request::Zero {
            offset: 0,
            len: 2_001,
        },
        Request::read(0, 1),
    ];
    let done = window.submit(batch).wait();
    assert!(done[0].result.is_err() && done[1].result.is_ok());
    window.zero(0, 2_000).expect("the whole window");
    let mut all = [0; 10_000];
    below.read_at(0, &mut all).expect("a read");
    let expected: Vec<u8> = (0..10_000)
        .map(|i| if (1_000..3_000).contains(&i) { 0 } else { 5 })
        .collect();
    assert!(all[..] == expected);
    assert_eq!(
        window
            .data_extents(0..9_999)
            .expect("extents")
            .last()
            .expect("one")
            .end,
        2_000
    );
}

#[test]
fn a_read_only_window_refuses_every_change() {
    let below: SharedDevice = Arc::new(MemoryDevice::new(10_000));
    let window = WindowDevice::new(below, 0, 10_000)
        .expect("a window")
        .read_only();
    assert!(window.is_read_only());
    for result in [
        window.write_at(0, &[1]),
        window.zero(0, 1),
        window.discard(0, 1),
        window.direct().expect("memory below").copy_in(0, &[1]),
        window
            .submit(vec![Request::Zero { offset: 0, len: 1 }])
            .wait_all()
            .map(drop),
    ] {
        let err = result.expect_err("read only");
        assert!(matches!(err, DeviceError::ReadOnly { .. }), "{err}");
    }
}

#[test]
fn copies_are_whole_within_parts_of_a_window_that_are_parts_of_the_device() {
    let below: SharedDevice = Arc::new(MemoryDevice::new(1 << 20));
    let whole_within = |device: &dyn BlockDevice| {
        let memory = device.direct().expect("memory below");
        memory.whole_within()
    };
    let part = whole_within(&*below);
    assert_eq!(part, 64 << 10);
    for (start, expected) in [
        (0, part),
        (3 * part, part),
        (part / 2, part / 2),
        (part + 4096 * 3, 4096),
        (part + 513, 1),
    ] {
        let window = WindowDevice::new(below.clone(), start, 100_000).expect("a window");
        assert_eq!(whole_within(&window), expected, "from {start} on");
        // No part of it reaches into another one of the device.
        for at in (0..100_000 / expected * expected).step_by(expected as usize) {
            assert_eq!((start + at) / part, (start + at + expected - 1) / part);
        }
    }
}
