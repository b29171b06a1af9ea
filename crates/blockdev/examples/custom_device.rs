//! A device of one's own: one that counts what is read from the device below and written to it.
//!
//! ```console
//! cargo run -p extant-blockdev --example custom_device -- disk.img
//! ```

use extant_blockdev::{BlockDevice, DeviceResult, OpenSpec, Request, SharedDevice};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts bytes on their way.
#[derive(Debug)]
pub(crate) struct Counted {
    inner: SharedDevice,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
}

impl Counted {
    pub(crate) fn new(inner: SharedDevice) -> Self {
        Self {
            inner,
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }
}

/// Five methods are enough. Transfers of several buffers, batches of requests and writes of zeroes
/// come down to them.
impl BlockDevice for Counted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        // Any number of threads may be here at once.
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }

    // Not among the five, but errors shall name the device below.
    fn name(&self) -> String {
        self.inner.name()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("give an image")?;
    let device = Arc::new(Counted::new(OpenSpec::read_only(image).open()?));
    let len = device.size().min(1 << 20) as usize;
    // A batch: all of it has been tried when this returns, and the first error is given back.
    let batch = vec![Request::read(0, len / 2), Request::read(0, len)];
    device.submit(batch).wait_all()?;
    println!("{} bytes were read", device.read.load(Ordering::Relaxed));
    Ok(())
}
