//! A device with its last pieces in memory.
//!
//! A read of a page's file costs the same for a block and for a thousand. So what is read is read
//! in pieces, and pieces that were used lately stay.

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Bytes of a piece.
const PIECE: usize = 128 << 10;

/// Pieces that are kept: 24 MiB.
const MOST: usize = 192;

static PIECES_CLASS: LockClass = LockClass::new("pieces of an image", Rank::Leaf);

/// The device.
pub(crate) struct Cached {
    inner: SharedDevice,
    pieces: Mutex<Pieces>,
}

#[derive(Default)]
struct Pieces {
    by_number: HashMap<u64, Kept>,
    /// Counts uses.
    clock: u64,
}

struct Kept {
    bytes: Arc<Vec<u8>>,
    used: u64,
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cached").field(&self.inner).finish()
    }
}

impl Cached {
    pub(crate) fn new(inner: SharedDevice) -> Self {
        Self {
            inner,
            pieces: Mutex::new(&PIECES_CLASS, Pieces::default()),
        }
    }

    /// Returns a piece, which is read if it is not in memory.
    fn piece(&self, number: u64) -> DeviceResult<Arc<Vec<u8>>> {
        if let Some(bytes) = self.pieces.lock().get(number) {
            return Ok(bytes);
        }
        let at = number * PIECE as u64;
        let len = (self.inner.size() - at).min(PIECE as u64) as usize;
        let mut bytes = vec![0; len];
        self.inner.read_at(at, &mut bytes)?;
        let bytes = Arc::new(bytes);
        self.pieces.lock().keep(number, Arc::clone(&bytes));
        Ok(bytes)
    }
}

impl Pieces {
    fn get(&mut self, number: u64) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let kept = self.by_number.get_mut(&number)?;
        kept.used = self.clock;
        Some(Arc::clone(&kept.bytes))
    }

    fn keep(&mut self, number: u64, bytes: Arc<Vec<u8>>) {
        if self.by_number.len() >= MOST {
            self.forget();
        }
        let used = self.clock;
        self.by_number.insert(number, Kept { bytes, used });
    }

    /// Lets go of the older half, so that looking for the oldest is rare.
    fn forget(&mut self) {
        let mut uses: Vec<u64> = self.by_number.values().map(|kept| kept.used).collect();
        uses.sort_unstable();
        let middle = uses.get(uses.len() / 2).copied().unwrap_or(0);
        self.by_number.retain(|_, kept| kept.used > middle);
    }
}

impl BlockDevice for Cached {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        // What is large is not likely to be asked for again.
        if buf.len() >= PIECE {
            return self.inner.read_at(offset, buf);
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let piece = self.piece(at / PIECE as u64)?;
            let from = piece.get((at % PIECE as u64) as usize..).unwrap_or(&[]);
            let len = from.len().min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(from.get(..len).unwrap_or(&[]));
            (at, rest) = (at + len as u64, later);
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::MemoryDevice;

    #[test]
    fn reads_are_those_of_the_device_and_few_pieces_stay() {
        let size = (MOST + 5) * PIECE + 777;
        let bytes: Vec<u8> = (0..size).map(|at| (at / 512 * 7 + at) as u8).collect();
        let cached = Cached::new(Arc::new(MemoryDevice::from_image(&bytes)));
        let mut at = 0;
        while at < size {
            let mut buf = vec![0; 4000.min(size - at)];
            cached.read_at(at as u64, &mut buf).expect("inside");
            assert!(buf == bytes[at..at + buf.len()], "at {at}");
            at += 100_003;
        }
        let mut large = vec![0; 3 * PIECE];
        cached.read_at(5, &mut large).expect("inside");
        assert!(large == bytes[5..5 + large.len()]);
        let mut last = [0; 7];
        cached.read_at(size as u64 - 7, &mut last).expect("inside");
        assert_eq!(last, bytes[size - 7..]);
        assert!(cached.pieces.lock().by_number.len() <= MOST);
        cached
            .read_at(size as u64 - 6, &mut last)
            .expect_err("behind the end");
    }
}
