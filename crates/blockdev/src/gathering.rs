//! Changes that go to a device that is far in batches, and to others one by one.

use crate::{AlignedBuf, BlockDevice, DeviceResult, Request};

/// Bytes that are gathered before they are sent.
const MOST_BYTES: usize = 8 << 20;
/// Requests that are.
const MOST_REQUESTS: usize = 1024;

/// Gathers changes for a device where each request takes a round trip, and sends many together;
/// those that continue each other are one request. Other devices get each at once.
///
/// Changes between two flushes must not overlap. An error may be about a change that was asked for
/// before. What was gathered is on the device when [`Gathering::end`] returns.
#[must_use = "what was gathered is not sent before the end"]
#[derive(Debug)]
pub struct Gathering<'d> {
    device: &'d dyn BlockDevice,
    is_far: bool,
    requests: Vec<Request>,
    /// Bytes of them.
    bytes: usize,
    /// What was written last, and where: more may continue it.
    run: Vec<u8>,
    start: u64,
}

impl<'d> Gathering<'d> {
    /// Makes one that has nothing yet.
    pub fn new(device: &'d dyn BlockDevice) -> Self {
        Self {
            device,
            is_far: device.in_flight() > 1,
            requests: Vec::new(),
            bytes: 0,
            run: Vec::new(),
            start: 0,
        }
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// What the device fails with.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> DeviceResult<()> {
        if !self.is_far {
            return self.device.write_at(offset, bytes);
        }
        if offset != self.start + self.run.len() as u64 {
            self.end_run();
        }
        if self.run.is_empty() {
            self.start = offset;
        }
        self.run.extend_from_slice(bytes);
        self.bytes += bytes.len();
        self.send_if_many()
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// What the device fails with.
    pub fn zero(&mut self, offset: u64, len: u64) -> DeviceResult<()> {
        if !self.is_far {
            return self.device.zero(offset, len);
        }
        self.end_run();
        self.requests.push(Request::Zero { offset, len });
        self.send_if_many()
    }

    /// Has all before durable before anything that comes is begun.
    ///
    /// # Errors
    /// What the device fails with.
    pub fn flush(&mut self) -> DeviceResult<()> {
        if !self.is_far {
            return self.device.flush();
        }
        self.end_run();
        self.requests.push(Request::Flush);
        Ok(())
    }

    /// Sends what is left, and waits for it.
    ///
    /// # Errors
    /// What the device fails with.
    pub fn end(mut self) -> DeviceResult<()> {
        self.send()
    }

    fn end_run(&mut self) {
        if !self.run.is_empty() {
            let bytes = AlignedBuf::copy_of(&self.run);
            self.requests.push(Request::write(self.start, bytes));
            self.run.clear();
        }
    }

    fn send_if_many(&mut self) -> DeviceResult<()> {
        if self.bytes >= MOST_BYTES || self.requests.len() >= MOST_REQUESTS {
            return self.send();
        }
        Ok(())
    }

    fn send(&mut self) -> DeviceResult<()> {
        self.end_run();
        self.bytes = 0;
        let batch = std::mem::take(&mut self.requests);
        if batch.is_empty() {
            return Ok(());
        }
        self.device.submit(batch).wait_all().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Completion, MemoryDevice};
    use std::sync::Mutex;

    /// A device that is far or at hand, and notes the batches that it got.
    #[derive(Debug)]
    struct Noting {
        inner: MemoryDevice,
        in_flight: usize,
        batches: Mutex<Vec<usize>>,
        single: Mutex<usize>,
    }

    impl Noting {
        fn new(in_flight: usize) -> Self {
            Self {
                inner: MemoryDevice::new(64 << 20),
                in_flight,
                batches: Mutex::default(),
                single: Mutex::default(),
            }
        }
    }

    impl BlockDevice for Noting {
        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
            self.inner.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
            *self.single.lock().unwrap() += 1;
            self.inner.write_at(offset, buf)
        }

        fn flush(&self) -> DeviceResult<()> {
            *self.single.lock().unwrap() += 1;
            self.inner.flush()
        }

        fn submit(&self, batch: Vec<Request>) -> Completion {
            self.batches.lock().unwrap().push(batch.len());
            self.inner.submit(batch)
        }

        fn in_flight(&self) -> usize {
            self.in_flight
        }
    }

    #[test]
    fn what_is_far_gets_a_batch_and_what_is_at_hand_each_request() {
        for (in_flight, expected, single) in [(16, vec![4, 1], 0), (1, vec![], 6)] {
            let device = Noting::new(in_flight);
            let mut gathering = Gathering::new(&device);
            gathering.write(4096, &[1; 4096]).unwrap();
            gathering.write(8192, &[2; 4096]).unwrap();
            gathering.write(0, &[3; 512]).unwrap();
            gathering.flush().unwrap();
            gathering.write(1024, &[4; 512]).unwrap();
            gathering.end().unwrap();
            let mut gathering = Gathering::new(&device);
            gathering.zero(4096, 512).unwrap();
            gathering.end().unwrap();
            assert_eq!(*device.batches.lock().unwrap(), expected);
            assert_eq!(*device.single.lock().unwrap(), single);
            let mut found = vec![9; 12288];
            device.read_at(0, &mut found).unwrap();
            let parts = [
                (0..512, 3),
                (512..1024, 0),
                (1024..1536, 4),
                (4096..4608, 0),
                (4608..8192, 1),
                (8192..12288, 2),
            ];
            for (range, byte) in parts {
                assert!(found[range].iter().all(|found| *found == byte), "{byte}");
            }
        }
    }

    #[test]
    fn what_is_gathered_stays_small() {
        let device = Noting::new(16);
        let mut gathering = Gathering::new(&device);
        for n in 0..20 {
            gathering.write(n << 20, &[n as u8 + 1; 1 << 20]).unwrap();
        }
        gathering.end().unwrap();
        // All of it continues itself.
        assert_eq!(*device.batches.lock().unwrap(), [1, 1, 1]);
        let mut byte = [0];
        device.read_at(19 << 20, &mut byte).unwrap();
        assert_eq!(byte, [20]);
    }
}
