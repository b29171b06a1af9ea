//! Devices of which each call costs much: vectored transfers in few calls.

use extant::device::{read_gathered, write_gathered};
use extant::{BlockDevice, DeviceError, DeviceResult, Filesystem, MemoryDevice, MountOptions};
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

const MOST: usize = 4096;

/// A device in memory that notes the ranges of its calls.
#[derive(Debug)]
struct Noted {
    inner: MemoryDevice,
    calls: Mutex<Vec<(u64, usize)>>,
}

impl Noted {
    fn new(inner: MemoryDevice) -> Self {
        let calls = Mutex::default();
        Self { inner, calls }
    }

    fn note(&self, offset: u64, len: usize) {
        self.calls.lock().unwrap().push((offset, len));
    }

    /// The calls since they were asked for last.
    fn take(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl BlockDevice for Noted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.note(offset, buf.len());
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.note(offset, buf.len());
        self.inner.write_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        read_gathered(self, offset, bufs, 1 << 20)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        write_gathered(self, offset, bufs, 1 << 20)
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}

#[test]
fn neighbours_share_a_call_up_to_a_size() {
    let device = Noted::new(MemoryDevice::new(1 << 16));
    // Small ones, one that is too large for any company, none, and small ones.
    let lens = [1000, 3000, 96, 1, 5000, 0, 4096, 4096, 100, 3996, 1];
    let calls = [
        (500, 4096),
        (4596, 1),
        (4597, 5000),
        (9597, 4096),
        (13693, 4096),
        (17789, 4096),
        (21885, 1),
    ];
    let content: Vec<Vec<u8>> = lens
        .iter()
        .zip(1..)
        .map(|(&len, byte)| vec![byte; len])
        .collect();
    let slices: Vec<IoSlice<'_>> = content.iter().map(|buf| IoSlice::new(buf)).collect();
    write_gathered(&device, 500, &slices, MOST).unwrap();
    assert_eq!(device.take(), calls);
    let mut found: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
    let mut slices: Vec<IoSliceMut<'_>> = found.iter_mut().map(|b| IoSliceMut::new(b)).collect();
    read_gathered(&device, 500, &mut slices, MOST).unwrap();
    assert_eq!(device.take(), calls);
    assert_eq!(found, content);
    let mut all = vec![9; 21887];
    device.inner.read_at(0, &mut all).unwrap();
    assert!(all[..500].iter().all(|&byte| byte == 0));
    assert_eq!(all[500..21886], content.concat());
    assert_eq!(all[21886], 0);
}

#[test]
fn what_does_not_lie_on_the_device_is_refused_before_the_first_call() {
    let device = Noted::new(MemoryDevice::new(8192));
    let (mut one, mut two) = ([1; 4096], [2; 4097]);
    let written = write_gathered(&device, 0, &[IoSlice::new(&one), IoSlice::new(&two)], MOST);
    assert!(matches!(written, Err(DeviceError::OutOfRange { .. })));
    let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
    let read = read_gathered(&device, 0, &mut bufs, MOST);
    assert!(matches!(read, Err(DeviceError::OutOfRange { .. })));
    assert_eq!(device.take(), []);
    read_gathered(&device, 8192, &mut [], MOST).unwrap();
    assert_eq!(device.take(), []);
}

#[test]
fn a_file_is_read_in_few_calls() {
    let memory = Arc::new(MemoryDevice::new(32 << 20));
    let fs = Filesystem::format_device(Arc::clone(&memory)).unwrap();
    let content: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 999) as u8).collect();
    fs.write("/large", &content).unwrap();
    fs.close().unwrap();
    let image = extant::device::to_vec(&*memory).unwrap();
    let device = Arc::new(Noted::new(MemoryDevice::from_image(&image)));
    let fs = Filesystem::open_device(Arc::clone(&device), MountOptions::read_only()).unwrap();
    device.take();
    assert!(fs.read("/large").unwrap() == content);
    let calls = device.take();
    assert!(calls.len() <= 32, "{} calls: {calls:?}", calls.len());
}
