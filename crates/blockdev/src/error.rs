//! Errors of devices.

use std::io;

/// Result of a device operation.
pub type DeviceResult<T> = Result<T, DeviceError>;

/// A device operation that failed: what was tried, where, and why.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The system refused or broke the operation.
    #[error("cannot {op} {len} bytes at offset {offset}: {source}")]
    Io {
        /// The operation, as a verb (`read`, `write`, `flush`).
        op: &'static str,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The range does not lie on the device.
    #[error("cannot {op} {len} bytes at offset {offset}: the device ends at byte {size}")]
    OutOfRange {
        /// The operation, as a verb.
        op: &'static str,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// A write to a device that was opened for reading.
    #[error("the device is open for reading only")]
    ReadOnly,
}
