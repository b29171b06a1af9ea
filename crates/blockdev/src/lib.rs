//! Block devices: files, memory, windows and partitions.

mod device;
mod error;

pub use device::{BlockDevice, SharedDevice};
pub use error::{DeviceError, DeviceResult};
