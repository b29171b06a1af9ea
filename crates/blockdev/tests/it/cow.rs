//! Changes that go elsewhere: the base is not touched, and parts of a block meet in one block.

use extant_blockdev::{
    BlockDevice, CowDevice, DeviceError, DeviceResult, MemoryDevice, SharedDevice,
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

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

/// A device that is read when the test lets it be.
#[derive(Debug)]
struct Held {
    device: SharedDevice,
    begins: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl BlockDevice for Held {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        "held".to_owned()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.begins.send(()).expect("the test waits");
        self.goes_on
            .lock()
            .expect("no panic")
            .recv()
            .expect("the test goes on");
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        unreachable!("the base stays as it is")
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}

#[test]
fn a_block_that_is_changed_wholly_while_its_base_is_copied_keeps_the_change() {
    /// A thread that waits for its turn is not answered, and goes on when the copy is done.
    const TO_ANSWER: Duration = Duration::from_millis(200);
    type Change = fn(&CowDevice) -> DeviceResult<()>;
    let changes: [(&str, u8, Change); 3] = [
        ("write", 3, |device| device.write_at(0, &[3; 3 * 4096])),
        ("zero", 0, |device| device.zero(0, 3 * 4096)),
        ("discard", 0, |device| device.discard(0, 3 * 4096)),
    ];
    for (name, byte, change) in changes {
        let (begins, begun) = channel();
        let (go_on, goes_on) = channel();
        let held = Held {
            device: base(),
            begins,
            goes_on: Mutex::new(goes_on),
        };
        let elsewhere: SharedDevice = Arc::new(MemoryDevice::new(SIZE as u64));
        let device = CowDevice::new(Arc::new(held), elsewhere).expect("a device");
        let mut start = vec![0; 3 * 4096];
        thread::scope(|scope| {
            let device = &device;
            let part = scope.spawn(move || device.write_at(4096, &[2; 512]));
            begun.recv().expect("the base of the block is read");
            let (answers, answered) = channel();
            scope.spawn(move || answers.send(change(device)));
            let early = answered.recv_timeout(TO_ANSWER);
            go_on.send(()).expect("the copy goes on");
            part.join().expect("no panic").expect("a write");
            let whole = early.or_else(|_| answered.recv()).expect("an answer");
            whole.unwrap_or_else(|e| panic!("{name}: {e}"));
        });
        device.read_at(0, &mut start).expect("a read");
        // The part was written before the whole, or after it.
        let part = &start[4096..4096 + 512];
        assert!(
            part.iter().all(|&found| found == byte) || part == [2; 512],
            "{name}: {part:?}"
        );
        let mut rest = start[..4096].iter().chain(&start[4096 + 512..]);
        assert!(rest.all(|&found| found == byte), "{name} was lost");
    }
}
