//! What can be taken for a device.

use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, MemoryDevice, SharedDevice};
use std::io;
use std::sync::Arc;

/// What can be taken for a device: one of yours in an [`Arc`], a shared one, one in memory, or the
/// bytes of an image, of which a copy in memory is made.
///
/// ```
/// use extant::device::IntoDevice;
/// use extant::MemoryDevice;
/// use std::sync::Arc;
///
/// let shared = MemoryDevice::new(4096).into_device();
/// let own = Arc::new(MemoryDevice::new(4096)).into_device();
/// let bytes = vec![7; 4096].into_device();
/// assert_eq!([shared.size(), own.size(), bytes.size()], [4096; 3]);
/// ```
pub trait IntoDevice {
    /// Makes a shared device of it.
    fn into_device(self) -> SharedDevice;
}

impl IntoDevice for SharedDevice {
    fn into_device(self) -> SharedDevice {
        self
    }
}

impl<T: BlockDevice + 'static> IntoDevice for Arc<T> {
    fn into_device(self) -> SharedDevice {
        self
    }
}

impl IntoDevice for MemoryDevice {
    fn into_device(self) -> SharedDevice {
        Arc::new(self)
    }
}

impl IntoDevice for Vec<u8> {
    fn into_device(self) -> SharedDevice {
        Arc::new(MemoryDevice::from_image(&self))
    }
}

/// Returns a copy of all bytes of a device.
///
/// # Errors
/// When the device fails, or is too large for the memory that there is.
pub fn to_vec(device: &dyn BlockDevice) -> DeviceResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let len = usize::try_from(device.size()).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(len).is_err() {
        return Err(DeviceError::Io {
            op: "read",
            device: device.name(),
            offset: 0,
            len: device.size(),
            source: io::ErrorKind::OutOfMemory.into(),
        });
    }
    bytes.resize(len, 0);
    device.read_at(0, &mut bytes)?;
    Ok(bytes)
}
