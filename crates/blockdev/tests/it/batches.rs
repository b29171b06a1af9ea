//! Batches: order, barriers, results.

use extant_blockdev::{
    AlignedBuf, BUFFER_ALIGN, BlockDevice, DeviceError, MemoryDevice, Request, SharedDevice,
    WindowDevice,
};
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use std::sync::Arc;

#[test]
fn buffers_start_on_a_page_boundary() {
    for len in [0, 1, 511, 4096, 4097, 1 << 20] {
        let buf = AlignedBuf::zeroed(len);
        assert_eq!(buf.len(), len);
        assert_eq!(buf.as_ptr().addr() % BUFFER_ALIGN, 0);
        assert_eq!(buf.clone().as_ptr().addr() % BUFFER_ALIGN, 0);
    }
    assert_eq!(&AlignedBuf::copy_of(b"extant")[..], b"extant");
}

#[test]
fn a_failure_before_a_barrier_cancels_what_follows_it() {
    let device = MemoryDevice::new(8192);
    let block = || AlignedBuf::copy_of(&[7; 4096]);
    let done = device
        .submit(vec![
            Request::write(8192, block()),
            Request::write(0, block()),
            Request::Flush,
            Request::write(4096, block()),
        ])
        .wait();
    assert!(matches!(
        done[0].result,
        Err(DeviceError::OutOfRange { offset: 8192, .. })
    ));
    assert!(
        done[1].result.is_ok(),
        "before the barrier, requests are independent"
    );
    assert!(matches!(done[2].result, Err(DeviceError::Cancelled)));
    assert!(matches!(done[3].result, Err(DeviceError::Cancelled)));
    let mut after = [1; 4096];
    device.read_at(4096, &mut after).expect("a read");
    assert_eq!(after, [0; 4096], "a cancelled write does not happen");
}

#[test]
fn a_flush_that_fails_cancels_what_follows_it() {
    let memory = Arc::new(MemoryDevice::new(8192));
    let faulty = Arc::new(FaultDevice::new(memory.clone()));
    let window = WindowDevice::new(faulty.clone(), 0, 8192).expect("a window");
    let devices: [SharedDevice; 2] = [faulty.clone(), Arc::new(window)];
    for device in devices {
        faulty.inject(FaultRule::fail_nth(IoKind::Flush, 0));
        let write = |at| Request::write(at, AlignedBuf::copy_of(&[7; 4096]));
        let batch = vec![write(0), Request::Flush, write(4096), Request::Flush];
        let done = device.submit(batch).wait();
        assert!(done[0].result.is_ok());
        assert!(matches!(done[1].result, Err(DeviceError::Io { .. })));
        assert!(matches!(done[2].result, Err(DeviceError::Cancelled)));
        assert!(matches!(done[3].result, Err(DeviceError::Cancelled)));
        let mut after = [1; 4096];
        memory.read_at(4096, &mut after).expect("a read");
        assert_eq!(after, [0; 4096], "a cancelled write does not happen");
    }
    let counts = faulty.counts();
    assert_eq!((counts.writes, counts.flushes), (2, 2));
}

#[test]
fn waiting_for_all_gives_the_first_real_failure() {
    let device = MemoryDevice::new(4096);
    let batch = vec![
        Request::read(0, 512),
        Request::read(9999, 512),
        Request::Flush,
    ];
    let err = device
        .submit(batch)
        .wait_all()
        .expect_err("a read past the end");
    assert!(
        matches!(err, DeviceError::OutOfRange { offset: 9999, .. }),
        "{err}"
    );
    let requests = device
        .submit(vec![Request::read(0, 512)])
        .wait_all()
        .expect("a read");
    assert_eq!(requests.len(), 1);
}

#[test]
fn shared_buffers_go_to_two_places() {
    let device = WindowDevice::new(Arc::new(MemoryDevice::new(1 << 20)), 4096, 65536);
    let device = device.expect("a window");
    let image = Arc::new(AlignedBuf::copy_of(&[9; 4096]));
    let batch = vec![
        Request::write(0, Arc::clone(&image)),
        Request::Flush,
        Request::write(32768, image),
        Request::Zero { offset: 0, len: 1 },
        Request::Discard {
            offset: 8192,
            len: 4096,
        },
    ];
    device.submit(batch).wait_all().expect("a batch");
    let mut got = [0; 2];
    device.read_at(32768, &mut got).expect("a read");
    assert_eq!(got, [9, 9]);
    device.read_at(0, &mut got).expect("a read");
    assert_eq!(got, [0, 9]);
}
