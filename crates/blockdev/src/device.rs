//! The device trait.

use crate::DeviceResult;
use std::fmt;
use std::sync::Arc;

/// A device shared by everything that uses it.
pub type SharedDevice = Arc<dyn BlockDevice>;

/// A block device: positioned reads and writes from any number of threads.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buf` from byte `offset`. A short read is an error.
    ///
    /// # Errors
    /// `OutOfRange` past the end of the device, `Io` when the system fails.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()>;

    /// Writes all of `buf` at byte `offset`.
    ///
    /// # Errors
    /// As for `read_at`, and `ReadOnly`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()>;

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// `Io` when the system fails; nothing may then be assumed durable.
    fn flush(&self) -> DeviceResult<()>;
}
