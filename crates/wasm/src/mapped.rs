//! A disk whose pieces lie anywhere in a file, for reading.

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use std::fmt::Debug;
use std::io;

/// Where the pieces of a disk lie.
pub(crate) trait Map: Debug + Send + Sync {
    /// Fills the beginning of a buffer, which has at least a byte and ends on the disk, with what
    /// the disk has from byte `at` on. Returns how much that is, at least a byte.
    fn fill(&self, file: &dyn BlockDevice, at: u64, buf: &mut [u8]) -> DeviceResult<usize>;
}

/// The disk.
#[derive(Debug)]
pub(crate) struct Mapped<M> {
    file: SharedDevice,
    size: u64,
    map: M,
}

impl<M: Map> Mapped<M> {
    pub(crate) fn new(file: SharedDevice, size: u64, map: M) -> Self {
        Self { file, size, map }
    }
}

/// The beginning of a buffer, so much of it as there is.
pub(crate) fn first(buf: &mut [u8], len: u64) -> &mut [u8] {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(buf.len());
    buf.get_mut(..len).unwrap_or_default()
}

/// The number at a place of a header: its bytes, or zeros behind its end.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        field.copy_from_slice(found);
    }
    field
}

/// What of a file at `at` cannot be read, since it is damaged.
pub(crate) fn broken(file: &dyn BlockDevice, at: u64, len: u64, why: String) -> DeviceError {
    DeviceError::Io {
        op: "read",
        device: file.name(),
        offset: at,
        len,
        source: io::Error::other(why),
    }
}

impl<M: Map> BlockDevice for Mapped<M> {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.file.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let filled = self.map.fill(&*self.file, at, rest)?.clamp(1, rest.len());
            at += filled as u64;
            rest = rest.get_mut(filled..).unwrap_or_default();
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
