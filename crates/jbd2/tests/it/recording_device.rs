//! A device in memory that remembers what was written and flushed, gives back what a crash at any
//! moment could have left, and fails when it is told to.

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, MemoryDevice};
use extant_testkit::rng::Rng;
use std::io::{Error, IoSlice};
use std::sync::Mutex;

/// The unit that a device writes as a whole.
const SECTOR: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write(usize, Vec<u8>),
    Flush,
}

#[derive(Debug)]
pub(crate) struct RecordingDevice {
    memory: MemoryDevice,
    base: Vec<u8>,
    ops: Mutex<Vec<Op>>,
    /// Operations left until one fails.
    fuse: Mutex<Option<usize>>,
    /// What it says of requests under way.
    in_flight: usize,
}

impl RecordingDevice {
    pub(crate) fn new(image: &[u8]) -> Self {
        Self {
            memory: MemoryDevice::from_image(image),
            base: image.to_vec(),
            ops: Mutex::default(),
            fuse: Mutex::default(),
            in_flight: 1,
        }
    }

    /// One that says that each request takes a round trip.
    pub(crate) fn far(image: &[u8]) -> Self {
        Self {
            in_flight: 32,
            ..Self::new(image)
        }
    }

    /// Lets `good` more writes and flushes succeed, then one fail, half done.
    pub(crate) fn fail_after(&self, good: usize) {
        *self.fuse.lock().unwrap() = Some(good);
    }

    pub(crate) fn ops(&self) -> Vec<Op> {
        self.ops.lock().unwrap().clone()
    }

    pub(crate) fn op_count(&self) -> usize {
        self.ops.lock().unwrap().len()
    }

    /// What the device holds now.
    pub(crate) fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.base.len()];
        self.memory.read_at(0, &mut image).unwrap();
        image
    }

    pub(crate) fn crashes(&self) -> Crashes {
        Crashes {
            durable: self.base.clone(),
            in_flight: Vec::new(),
        }
    }

    /// The error of this operation, if it is the one to fail.
    fn burn(&self, op: &'static str) -> Option<DeviceError> {
        let mut fuse = self.fuse.lock().unwrap();
        match *fuse {
            Some(0) => {
                *fuse = None;
                Some(DeviceError::Io {
                    op,
                    device: self.name(),
                    offset: 0,
                    len: 0,
                    source: Error::other("told to fail"),
                })
            }
            Some(n) => {
                *fuse = Some(n - 1);
                None
            }
            None => None,
        }
    }
}

impl BlockDevice for RecordingDevice {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let failure = self.burn("write");
        let done = if failure.is_some() {
            buf.len() / 2
        } else {
            buf.len()
        };
        self.memory.write_at(offset, &buf[..done])?;
        let op = Op::Write(offset as usize, buf[..done].to_vec());
        self.ops.lock().unwrap().push(op);
        failure.map_or(Ok(()), Err)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let whole: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.write_at(offset, &whole)
    }

    fn flush(&self) -> DeviceResult<()> {
        if let Some(failure) = self.burn("flush") {
            return Err(failure);
        }
        self.ops.lock().unwrap().push(Op::Flush);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// Follows the operations of a device, and knows what a crash could leave at each of them.
pub(crate) struct Crashes {
    durable: Vec<u8>,
    in_flight: Vec<(usize, Vec<u8>)>,
}

impl Crashes {
    pub(crate) fn follow(&mut self, op: &Op) {
        match op {
            Op::Write(offset, bytes) => self.in_flight.push((*offset, bytes.clone())),
            Op::Flush => {
                for (offset, bytes) in self.in_flight.drain(..) {
                    self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
    }

    /// Images a crash could leave: nothing and all of what is in flight, all but one write and one
    /// write alone, and `samples` choices of sectors.
    pub(crate) fn images(&self, rng: &mut Rng, samples: u32) -> Vec<Vec<u8>> {
        let mut images = vec![self.durable.clone()];
        let writes = self.in_flight.len();
        if writes == 0 {
            return images;
        }
        images.push(self.with(|_, _| true));
        if writes > 1 {
            for one in [rng.below(writes as u64) as usize, writes - 1] {
                images.push(self.with(|write, _| write == one));
                images.push(self.with(|write, _| write != one));
            }
        }
        for _ in 0..samples {
            let odds = 1 + rng.below(4);
            let picked = self.with(|_, _| rng.below(5) < odds);
            images.push(picked);
        }
        images
    }

    fn with(&self, mut reached: impl FnMut(usize, usize) -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        for (write, (offset, bytes)) in self.in_flight.iter().enumerate() {
            for (sector, piece) in bytes.chunks(SECTOR).enumerate() {
                if reached(write, sector) {
                    let at = offset + sector * SECTOR;
                    image[at..at + piece.len()].copy_from_slice(piece);
                }
            }
        }
        image
    }
}
